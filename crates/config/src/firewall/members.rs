//! Who is in a zone by the key `zone` of an uplink, a network or a peer, and the zones of a file that has none.

use ipnet::Ipv6Net;
use mt6d::config::PeerConfig;
use router::firewall::{PolicyError, Trust, Zone};
use toml::Spanned;

use crate::converter::Converter;
use crate::document::Document;
use crate::report::Finding;
use crate::section::Given;
use crate::value::interface;

/// The tunnels of the same file.
pub(crate) struct Tunnels<'a> {
    /// The device that all of them come out of, where it is known.
    pub(crate) device: Option<&'a str>,
    /// Peers of the moving-target profile, each with its index in the document.
    pub(crate) peers: &'a [(usize, PeerConfig)],
    /// Prefixes that datagrams of tunnels come to.
    pub(crate) endpoints: Vec<Ipv6Net>,
}

/// The zones of a gateway that says nothing of zones: its uplinks, and its networks. RFC 6092 wants it to be safe then.
pub(super) fn standard_zones() -> [Zone; 2] {
    [("wan", Trust::Outside), ("lan", Trust::Inside)].map(|(name, trust)| Zone {
        name: name.to_owned(),
        trust,
        interfaces: Vec::new(),
        networks: Vec::new(),
    })
}

impl Converter<'_> {
    /// Puts interfaces and peers into the zones that they name. None where one cannot be.
    pub(super) fn members(
        &mut self,
        document: &Document,
        tunnels: &Tunnels<'_>,
        zones: &mut Vec<Zone>,
    ) -> Option<()> {
        let mut good = true;
        let standard = document.zone.list().is_empty();
        if let ([_, lan], Some(device), true) = (&mut zones[..], tunnels.device, standard)
            && !document.peer.list().is_empty()
        {
            lan.interfaces.push(device.to_owned());
        }
        for (place, (zone, interface)) in links(document).enumerate() {
            let Some(interface) = interface.given() else { continue };
            let Some(zone) = zone.given() else {
                if standard {
                    let zone = &mut zones[usize::from(place >= document.uplink.list().len())];
                    zone.interfaces.push(interface.get_ref().clone());
                    continue;
                }
                let nowhere = |zone: &Zone| !zone.interfaces.contains(interface.get_ref());
                if zones.iter().all(nowhere) {
                    self.report(Finding::warning(
                        interface.span(),
                        format!("{} is in no zone", interface.get_ref()),
                        "packets from it are dropped",
                        "add `zone = \"…\"`, with the name of a [[zone]]",
                    ));
                }
                continue;
            };
            match self.named(zone, zones) {
                Some(index) if zones[index].interfaces.contains(interface.get_ref()) => {}
                Some(index) => zones[index].interfaces.push(interface.get_ref().clone()),
                None => good = false,
            }
        }
        // What carries a tunnel is as far outside as the tunnel is.
        for uplink in document.uplink.list().iter().map(Spanned::get_ref) {
            let over = uplink.tunnel.get().and_then(|tunnel| tunnel.over.text());
            if let (Some(over), Some(interface)) = (over, uplink.interface.text())
                && zones.iter().all(|zone| !has(zone, over))
                && let Some(zone) = zones.iter_mut().find(|zone| has(zone, interface))
            {
                zone.interfaces.push(over.to_owned());
            }
        }
        good &= self.peers(document, tunnels, zones);
        if standard {
            zones.retain(|zone| !zone.interfaces.is_empty());
        }
        good.then_some(())
    }

    /// Without a zone none can be named.
    pub(super) fn no_members(&mut self, document: &Document) {
        let peers = document.peer.list().iter().filter_map(|peer| peer.get_ref().zone.given());
        for zone in links(document).filter_map(|(zone, _)| zone.given()).chain(peers) {
            self.named(zone, &[]);
        }
    }

    /// Peers are parts of the tunnel's device, so their zones have nothing else: its networks are those of its peers.
    fn peers(&mut self, document: &Document, tunnels: &Tunnels<'_>, zones: &mut [Zone]) -> bool {
        let mut good = true;
        let before: Vec<bool> =
            zones.iter().map(|zone| zone.interfaces.is_empty() && zone.networks.is_empty()).collect();
        for (index, peer) in tunnels.peers {
            let Some(given) = document.peer.list().get(*index).and_then(|peer| peer.get_ref().zone.given())
            else {
                continue;
            };
            let (Some(place), Some(device)) = (self.named(given, zones), tunnels.device) else {
                good = false;
                continue;
            };
            if !before[place] {
                good = false;
                self.report(Finding::error(
                    given.span(),
                    "`zone` cannot be used",
                    "this zone also has interfaces or networks",
                    "give peers a [[zone]] that has only name and trust",
                ));
                continue;
            }
            let zone = &mut zones[place];
            zone.networks.extend_from_slice(&peer.allowed_ips);
            if zone.interfaces.is_empty() {
                zone.interfaces.push(device.to_owned());
            }
        }
        good & self.zones_of_fleet(document, tunnels.device, zones, &before)
    }

    /// The index of the zone of this name.
    fn named(&mut self, name: &Spanned<String>, zones: &[Zone]) -> Option<usize> {
        let found = zones.iter().position(|zone| zone.name == *name.get_ref());
        if found.is_none() {
            let names: Vec<_> = zones.iter().map(|zone| zone.name.as_str()).collect();
            let help = if names.is_empty() {
                "add a [[zone]] table: name and trust".to_owned()
            } else {
                format!("zones are: {}", names.join(", "))
            };
            self.report(Finding::error(name.span(), "`zone` cannot be used", "no such zone", help));
        }
        found
    }
}

/// Whether the zone has the interface.
fn has(zone: &Zone, interface: &str) -> bool {
    zone.interfaces.iter().any(|name| name == interface)
}

/// Whether the interface that zones do not agree about is told of where uplinks and networks are looked at: several have
/// it, or it can be that of none.
pub(super) fn is_told_of_links(error: &PolicyError, document: &Document) -> bool {
    let links = |name: &str| links(document).filter(|(_, link)| link.text() == Some(name)).count();
    match error {
        PolicyError::SameInterface(_, _, name) => links(name) > 1,
        PolicyError::InterfaceName(_, name) => links(name) > 0 && interface(name).is_err(),
        _ => false,
    }
}

/// The key `zone` of each uplink and network, and its interface.
fn links(document: &Document) -> impl Iterator<Item = (&Given<String>, &Given<String>)> {
    let uplinks = document.uplink.list().iter().map(Spanned::get_ref);
    let networks = document.network.list().iter().map(Spanned::get_ref);
    let uplinks = uplinks.map(|uplink| (&uplink.zone, &uplink.interface));
    uplinks.chain(networks.map(|network| (&network.zone, &network.interface)))
}
