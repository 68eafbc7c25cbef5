//! `[nat64]`: the translator by which hosts of IPv6 reach servers of IPv4.

pub(crate) mod table;

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use router::firewall::address::{Address, Family};
use router::firewall::policy::{Rule, Zone};
use router::nat64::{DEVICE, LONGEST_POOL, Nat64, SHORTEST_POOL};
use router::site::Site;

use crate::converter::Converter;
use crate::document::Document;
use crate::report::Finding;
use crate::value::{Problem, nat64_prefix, problem};

impl Converter<'_> {
    /// The translator that the file describes, if it does; None where it cannot be.
    pub(crate) fn nat64(&mut self, document: &Document) -> Option<Option<Nat64>> {
        if document.nat64.is_wrong() {
            return None;
        }
        let Some(table) = document.nat64.given() else { return Some(None) };
        let prefix = self.value(&table.get_ref().prefix, nat64_prefix);
        let pool = self.value(&table.get_ref().pool, pool);
        Some(Some(Nat64 { prefix: prefix?, pool: pool? }))
    }

    /// What concerns the translator and the rest: somebody is inside, something leads outside, and nobody else has its
    /// addresses.
    pub(crate) fn nat64_fits(&mut self, document: &Document, site: &Site) {
        let (Some(nat64), Some(table)) = (&site.nat64, document.nat64.given()) else { return };
        if !site.uplinks.iter().any(|uplink| uplink.masquerade) {
            let help = "set masquerade = true in the [[uplink]] that IPv4 leaves by";
            let label = "no uplink translates IPv4";
            self.report(Finding::error(table.span(), "[nat64] leads nowhere", label, help));
        }
        let uplinks = site.uplinks.iter().map(|uplink| &uplink.interface);
        let networks = site.networks.iter().map(|network| &network.interface);
        let routes = site.routes.iter().map(|route| &route.interface);
        if uplinks.chain(networks).chain(routes).any(|interface| interface == DEVICE) {
            let title = format!("an interface has the name {DEVICE:?}");
            let help = "rename it: that is what the translator's device is called";
            self.report(Finding::error(table.span(), title, "", help));
        }
        let given = table.get_ref();
        let overlap = |one: IpNet, other: &IpNet| one.contains(other) || other.contains(&one);
        for (key, span, own) in [
            ("pool", given.pool.span_or_table(), IpNet::from(nat64.pool)),
            ("prefix", given.prefix.span_or_table(), nat64.prefix.net().into()),
        ] {
            let Some((net, whose)) = taken(site).into_iter().find(|(net, _)| overlap(own, net)) else {
                continue;
            };
            let label = format!("{whose} has {net}");
            let help = format!("choose another `{key}`: nobody else may have these addresses");
            let span = if span.is_empty() { table.span() } else { span };
            self.refuse(span, key, Problem { label, help });
        }
        let whole = |net: &&ipnet::Ipv6Net| nat64.prefix.net().contains(*net);
        let own = site.uplinks.iter().find_map(|uplink| Some((uplink, uplink.prefixes.iter().find(whole)?)));
        if let Some((uplink, net)) = own {
            let label = format!("all of {net}, the prefix of uplink {}, is in it", uplink.name);
            let help = "take a part of that, or another prefix: hosts have addresses of it, too".to_owned();
            self.refuse(given.prefix.span_or_table(), "prefix", Problem { label, help });
        }
    }
}

/// Prefixes that somebody has, as far as the file says. An uplink's own is no matter: a translator's may be a part of
/// it, though not all.
fn taken(site: &Site) -> Vec<(IpNet, String)> {
    let mut taken = Vec::new();
    for network in &site.networks {
        let whose = || format!("network {}", network.name);
        taken.extend(network.ipv4.map(|net| (net.trunc().into(), whose())));
        taken.extend(network.prefixes.iter().map(|net| (IpNet::from(*net), whose())));
    }
    for uplink in &site.uplinks {
        let on_link = uplink.addresses.iter().map(|net| (net.trunc(), format!("uplink {}", uplink.name)));
        taken.extend(on_link);
    }
    // Where an uplink carries a CLAT, its router tells the provider's prefix from ours.
    let is_carried =
        |over: &str| site.uplinks.iter().any(|below| below.interface == over && below.tunnel.is_none());
    for uplink in &site.uplinks {
        if let Some(tunnel) = uplink.tunnel.as_ref().filter(|tunnel| !is_carried(&tunnel.over)) {
            let whose = || format!("the translator behind uplink {}", uplink.name);
            taken.extend(tunnel.kind.plat().map(|plat| (IpNet::from(plat.net()), whose())));
        }
    }
    let is_default = |net: &IpNet| net.prefix_len() == 0;
    let routes = site.routes.iter().filter(|route| !is_default(&route.to));
    taken.extend(routes.map(|route| (route.to, "a [[route]]".to_owned())));
    taken.extend(site.elsewhere.iter().filter(|net| !is_default(net)).map(|net| (*net, "a peer".to_owned())));
    taken
}

/// The translator's device is as far outside as the first uplink that its packets may leave by.
pub(crate) fn join_zone(document: &Document, zones: &mut [Zone]) {
    let uplinks = document.uplink.list().iter().map(toml::Spanned::get_ref);
    let outside = uplinks.filter(|uplink| uplink.masquerades()).find_map(|uplink| uplink.interface.text());
    let has = |zone: &Zone, name: &str| zone.interfaces.iter().any(|interface| interface == name);
    let Some(outside) = outside.filter(|_| !document.nat64.is_absent()) else { return };
    if zones.iter().all(|zone| !has(zone, DEVICE))
        && let Some(zone) = zones.iter_mut().find(|zone| has(zone, outside))
    {
        zone.interfaces.push(DEVICE.to_owned());
    }
}

/// Rules about servers of IPv4 are about them as hosts of IPv6 see them, too.
pub(crate) fn add_embedded(nat64: &Nat64, rules: &mut [Rule]) {
    for rule in rules.iter_mut().filter(|rule| !rule.forwarded) {
        let Some(destination) = &mut rule.destination else { continue };
        let seen = |number: u128| nat64.prefix.embed(Ipv4Addr::from_bits(number as u32)).to_bits();
        let embedded = destination.iter().filter_map(|address| match *address {
            Address::Range(Family::V4, from, to) => Some(Address::Range(Family::V6, seen(from), seen(to))),
            _ => None,
        });
        let embedded: Vec<_> = embedded.collect();
        destination.extend(embedded);
    }
}

fn pool(text: &str) -> Result<Ipv4Net, Problem> {
    let help =
        format!("write a private network of {SHORTEST_POOL} to {LONGEST_POOL} bits, like \"198.18.0.0/16\"");
    let Ok(found) = text.parse::<Ipv4Net>() else { return problem("not an IPv4 network", help) };
    if found.trunc() != found {
        return problem("bits are set after the prefix length", format!("write {}", found.trunc()));
    }
    if !(SHORTEST_POOL..=LONGEST_POOL).contains(&found.prefix_len()) {
        return problem("not a size that a pool can have", help);
    }
    // The kernel has opinions of its own about the others.
    let first = found.network();
    let kept = [first.is_loopback(), first.is_multicast(), first.is_unspecified(), first.octets()[0] >= 240];
    if kept.contains(&true) || first.is_link_local() || first.octets()[0] == 0 {
        return problem("not addresses that hosts can have", help);
    }
    Ok(found)
}
