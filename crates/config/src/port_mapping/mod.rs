//! `[network.port_mapping]`: ports that a network's hosts may have opened.

pub(crate) mod table;

use std::time::Duration;

use router::firewall::{Policy, Trust};
use router::pcp::Limits;
use router::site::Site;

use crate::converter::Converter;
use crate::document::Document;
use crate::report::Finding;
use crate::section::Given;
use crate::value::{duration, problem};
use table::PortMappingTable;

impl Converter<'_> {
    /// What hosts of a network may ask for.
    pub(crate) fn port_mapping(&mut self, given: &Given<PortMappingTable>) -> Option<Option<Limits>> {
        if given.is_wrong() {
            return None;
        }
        let Some(table) = given.given() else { return Some(None) };
        let table = table.get_ref();
        let per_host = self.value(&table.per_host, |count| match usize::try_from(count) {
            Ok(count @ 1..=1_024) => Ok(count),
            _ => problem("out of range", "write 1 to 1024"),
        });
        let lowest_port = self.value(&table.lowest_port, |port| match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(port),
            _ => problem("not a port", "write 1 to 65535, usually 1024"),
        });
        let longest = self.value(&table.longest, |text| {
            let day = Duration::from_secs(86_400);
            let longest = duration(text, Duration::from_secs(1)..=day, "write 1s to 24h (RFC 6887)")?;
            if longest.subsec_nanos() == 0 {
                Ok(longest)
            } else {
                problem("not in whole seconds", "write one like 2h")
            }
        });
        Some(Some(Limits { per_host: per_host?, lowest_port: lowest_port?, longest: longest? }))
    }

    /// Nobody but those inside opens ports.
    pub(crate) fn mapped_are_inside(&mut self, document: &Document, site: &Site, policy: Option<&Policy>) {
        for (table, network) in document.network.list().iter().zip(&site.networks) {
            let (Some(given), Some(policy)) = (table.get_ref().port_mapping.given(), policy) else {
                continue;
            };
            let address = network.ipv4.map_or_else(
                || std::net::Ipv6Addr::UNSPECIFIED.into(),
                |net| std::net::IpAddr::V4(net.addr()),
            );
            let zone = policy.zone_of(&network.interface, address);
            if zone.and_then(|zone| policy.trust(zone)) != Some(Trust::Inside) {
                let title = format!("network {:?} cannot have `port_mapping`", network.name);
                let help = "remove it: only hosts in a zone with the trust \"inside\" may have ports opened";
                self.report(Finding::error(given.span(), title, "its zone is not inside", help));
            }
        }
    }
}
