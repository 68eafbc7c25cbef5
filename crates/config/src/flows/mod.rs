//! `[flows]`: who is told of flows.

pub(crate) mod table;

use std::net::SocketAddr;
use std::time::Duration;

use router::site::Flows;

use crate::converter::Converter;
use crate::document::Document;
use crate::firewall::Firewall;
use crate::report::Finding;
use crate::value::{Problem, duration, problem};

impl Converter<'_> {
    /// The collector that the file names, if it does; None where it cannot be.
    pub(crate) fn flows(&mut self, document: &Document) -> Option<Option<Flows>> {
        if document.flows.is_wrong() {
            return None;
        }
        let Some(table) = document.flows.given() else { return Some(None) };
        if document.network.is_absent() {
            let help = "add a [[network]] with the hosts whose flows are told, or remove it";
            self.report(Finding::error(table.span(), "[flows] tells nothing", "there is no network", help));
            return None;
        }
        let table = table.get_ref();
        let collector = self.value(&table.collector, collector);
        let range = Duration::from_secs(10)..=Duration::from_secs(3_600);
        let interval = self.value(&table.interval, |text| duration(text, range, "write 10s to 1h"));
        let observation_domain = self.value(&table.observation_domain, |number| {
            u32::try_from(number).or_else(|_| problem("out of range", "write 0 to 4294967295, usually 1"))
        });
        Some(Some(Flows {
            collector: collector?,
            interval: interval?,
            observation_domain: observation_domain?,
        }))
    }

    /// The kernel follows connections for a firewall, or to translate their addresses.
    pub(crate) fn flows_are_followed(
        &mut self,
        document: &Document,
        has_nat: bool,
        firewall: Option<&Firewall>,
    ) {
        if let Some(table) = document.flows.given()
            && firewall.is_none()
            && !has_nat
        {
            let help = "remove enabled = false from [firewall], or [flows]";
            let label = "the kernel follows connections only for a firewall";
            self.report(Finding::error(table.span(), "[flows] tells nothing", label, help));
        }
    }
}

fn collector(text: &str) -> Result<SocketAddr, Problem> {
    const HELP: &str = r#"write them like "[2001:db8:5::10]:4739" or "192.0.2.10:4739""#;
    match text.parse::<SocketAddr>() {
        Ok(place) if place.port() == 0 || place.ip().is_unspecified() || place.ip().is_multicast() => {
            problem("nobody can be there", HELP)
        }
        Ok(SocketAddr::V6(place)) if place.ip().is_unicast_link_local() => problem("link-local", HELP),
        Ok(place) => Ok(place),
        Err(_) => problem("no address and port", HELP),
    }
}
