//! The transparent mode of `[node]`: its values, and what concerns them and others.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use ipnet::{IpNet, Ipv6Net};
use mt6d::config::PeerConfig;
use toml::Spanned;
use wire::ethernet::MacAddress;

use super::classic::ClassicPeer;
use super::convert::Converter;
use super::document::{Document, Node as NodeTable};
use super::report::{Finding, Report};
use super::value;
use super::{Config, Mode, Node};

/// A gateway between its hosts and their router that neither of them sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transparent {
    /// Name of the interface that the hosts are behind.
    pub internal: String,
    /// The hosts that are protected, beside those of peers of the classic profile.
    pub protect: Vec<ProtectedHost>,
    /// What protected hosts and others than their peers say to each other passes, which shows the hosts.
    pub pass_others: bool,
}

/// A host of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedHost {
    /// Its address.
    pub address: Ipv6Addr,
    /// Its hardware address; learned where it is not given.
    pub mac: Option<MacAddress>,
}

impl Transparent {
    /// All hosts that are protected, those of peers of the classic profile, too.
    pub fn hosts(&self, classic: &[ClassicPeer]) -> Vec<ProtectedHost> {
        let mut hosts = self.protect.clone();
        for peer in classic {
            let local = peer.stream.local;
            match hosts.iter_mut().find(|host| host.address == local.address) {
                Some(host) => host.mac = host.mac.or(local.mac.map(MacAddress)),
                None => {
                    let mac = local.mac.map(MacAddress);
                    hosts.push(ProtectedHost { address: local.address, mac });
                }
            }
        }
        hosts
    }
}

impl Config {
    /// The networks of the link that a transparent gateway is on: that of the hopping prefix, and those of its hosts.
    pub fn link_networks(&self) -> Vec<Ipv6Net> {
        let Some(transparent) = &self.node.transparent else { return Vec::new() };
        let hosts = transparent.hosts(&self.classic).into_iter().map(|host| host.address);
        let hopping = (!self.is_classic()).then(|| self.node.hop_prefix.addr());
        let mut networks: Vec<_> = hosts.chain(hopping).map(network).collect();
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// Where a transparent gateway's outer packets go: the networks of its peers that are not on its link.
    pub fn remote_networks(&self) -> Vec<Ipv6Net> {
        let links = self.link_networks();
        let version_2 = self.peers.iter().map(|peer| peer.hop_prefix.trunc());
        let classic = self.classic.iter().map(|peer| network(peer.stream.remote.address));
        let mut networks: Vec<_> = version_2.chain(classic).collect();
        networks.retain(|remote| !links.iter().any(|link| link.contains(remote)));
        networks.sort_unstable();
        networks.dedup();
        networks
    }
}

/// The /64 of an address.
fn network(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new(address, 64).expect("64 is a prefix length").trunc()
}

impl Converter<'_> {
    /// The transparent mode, if that is what the table says. None if something of it is wrong.
    pub(super) fn transparent(
        &mut self,
        node: &NodeTable,
        header: &Range<usize>,
        mode: Mode,
    ) -> Option<Option<Transparent>> {
        if mode != Mode::Transparent {
            let mut fits = true;
            for (name, span) in node.transparent_keys().into_iter().flatten() {
                fits = false;
                let help = "add mode = \"transparent\", or remove it";
                self.report(Finding::error(span, format!("`{name}` does not fit the mode"), "", help));
            }
            return fits.then_some(None);
        }
        let help = r#"the interface that the hosts are behind, like "eth1""#;
        let internal = self.required(&node.internal, header, "[node]", "internal", help);
        let internal = self.value("internal", internal, |text| value::interface(text));
        let pass_others = self.optional("others", node.others.as_ref(), |text| value::others(text));
        let tables = node.protect.as_ref().map_or(&[][..], |list| list.get_ref());
        let hosts: Vec<_> = tables
            .iter()
            .map(|table| {
                let host = table.get_ref();
                let help = "the address of a host that is protected";
                let address =
                    self.required(&host.address, &table.span(), "a host of `protect`", "address", help);
                let address = self.value("address", address, |text| value::host_address(text));
                let mac = self.optional("mac", host.mac.as_ref(), |text| value::mac(text));
                Some(ProtectedHost { address: address?, mac: mac?.map(MacAddress) })
            })
            .collect();
        Some(Some(Transparent {
            internal: internal?,
            protect: hosts.into_iter().collect::<Option<_>>()?,
            pass_others: pass_others?.unwrap_or(false),
        }))
    }
}

/// What concerns several values.
pub(super) fn check(
    document: &Document,
    node: &Node,
    peers: &[(usize, PeerConfig)],
    classic: &[(usize, ClassicPeer)],
    report: &mut Report,
) {
    let (Some(transparent), Some(table)) = (&node.transparent, &document.node) else { return };
    let table = table.get_ref();
    let span = |text: &Option<Spanned<String>>| text.as_ref().map_or(0..0, Spanned::span);
    if transparent.internal == node.external {
        let help = "give the one that the hosts are behind, and the one that their router is behind";
        let finding =
            Finding::error(span(&table.internal), "`internal` and `external` are the same", "", help);
        report.add(finding.related(span(&table.external), "the external interface"));
    }
    if !peers.is_empty() && node.hop_prefix.prefix_len() <= 64 {
        report.add(Finding::error(
            span(&table.hop_prefix),
            "the hopping prefix is all of the link's network",
            "its hosts could not be told from hopping addresses",
            "give a part of the link's /64 that no host has an address in, like 2001:db8:a:0:f000::/68, and another \
             part to a peer on the same link",
        ));
    }
    for host in &transparent.protect {
        if !peers.is_empty() && node.hop_prefix.contains(&host.address) {
            let finding = Finding::error(
                table.protect.as_ref().map_or(0..0, Spanned::span),
                format!("{} lies in the hopping prefix", host.address),
                "nobody could reach it there",
                "hop in a part of the link's network that no host has an address in",
            );
            report.add(finding.related(span(&table.hop_prefix), "the hopping prefix"));
        }
    }
    if transparent.protect.is_empty() && classic.is_empty() {
        report.add(Finding::warning(
            span(&table.mode),
            "no host is protected",
            "",
            "list them: protect = [{ address = \"2001:db8:a::10\", mac = \"02:00:00:00:00:10\" }]",
        ));
    }
    for (index, _) in peers.iter().filter(|(_, peer)| peer.rewrite) {
        let carry = document.peer.get(*index).and_then(|peer| peer.get_ref().carry.as_ref());
        report.add(Finding::error(
            carry.map_or(0..0, Spanned::span),
            "a transparent gateway replaces no addresses",
            "not in this mode",
            "leave the line out, or choose mode = \"routed\"",
        ));
    }
    for (index, peer) in peers {
        let ipv4 = |net: &IpNet| matches!(net.addr(), IpAddr::V4(_));
        if peer.allowed_ips.iter().any(ipv4) {
            let table = document.peer.get(*index).and_then(|peer| peer.get_ref().allowed_ips.as_ref());
            report.add(Finding::error(
                table.map_or(0..0, Spanned::span),
                "IPv4 does not go through the tunnel of a transparent gateway",
                "",
                "list IPv6 addresses alone",
            ));
        }
    }
}
