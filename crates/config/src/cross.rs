//! What concerns several values of a tunnel.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use ipnet::{IpNet, Ipv6Net};
use mt6d::config::{ConfigError, NOWHERE, NodeConfig, PeerConfig, REKEY_AFTER};
use mt6d::keys::{KeyError, PrivateKey};
use toml::Spanned;

use crate::classic::{self, ClassicPeer};
use crate::document::{self, Document};
use crate::meeting;
use crate::node::{Mode, Node};
use crate::part::Part;
use crate::peer::PeerTable;
use crate::report::{Finding, Report};
use crate::section::Given;
use crate::tunnel::Tunnel;

/// Checks everything that means something, also if other things do not. Peers have their index in the document.
pub(crate) fn check_tunnel(
    document: &Document,
    node: Option<&Node>,
    tunnel: Option<&Tunnel>,
    peers: &[(usize, PeerConfig)],
    classic: &[(usize, ClassicPeer)],
    report: &mut Report,
) {
    if let Some(node) = node {
        check_node(document, node, tunnel, report);
    }
    check_names(document, report);
    check_pairs(document, node, peers, report);
    meeting::check(document, peers, report);
    if node.is_some_and(|node| node.mode == Mode::Routed) {
        check_routes(document, peers, report);
    }
    classic::check(document.peer.list(), classic, report);
    if let Some(node) = node {
        check_transparent(document, node, peers, classic, report);
    }
    let is_for_a_tunnel = !document.node.is_absent() || !document.tunnel.is_absent();
    // Where peers are in files of their own, there may be none yet.
    let comes_from_elsewhere = !document.include.is_absent() || !document.fleet.is_absent();
    if document.peer.is_absent() && !comes_from_elsewhere && is_for_a_tunnel {
        report.add(Finding::warning(
            0..0,
            "there is no peer",
            "",
            "add a [[peer]] table with name, public_key, hop_prefix and allowed_ips",
        ));
    }
}

fn check_node(document: &Document, node: &Node, tunnel: Option<&Tunnel>, report: &mut Report) {
    let Some(table) = document.node.get() else { return };
    let prefix_span = table.hop_prefix.span();
    if node.mode == Mode::Host
        && let Some(peer) = document.peer.list().iter().find(|peer| peer.get_ref().is_classic())
    {
        report.add(
            Finding::error(
                peer.span(),
                "a peer of the classic profile in mode \"host\"",
                "its addresses are in the true address's network, and cannot follow the link",
                "choose mode = \"routed\" for it, or the moving-target profile",
            )
            .related(table.mode.span(), "the mode"),
        );
    }
    if node.on_link && node.transparent.is_none() && node.hop_prefix.prefix_len() > 64 {
        report.add(Finding::error(
            prefix_span.clone(),
            "an on-link hopping prefix is too long",
            "longer than a /64",
            "with on_link = true give the /64 of the link, or have a prefix routed to this gateway",
        ));
    }
    let Some(tunnel) = tunnel else { return };
    if tunnel.name == node.external {
        report.add(
            Finding::error(
                document.tunnel.get().map_or(0..0, |table| table.name.span()),
                "the tunnel has the name of the external interface",
                "",
                "give the tunnel a name of its own, like \"mt6d0\"",
            )
            .related(table.external.span(), "the external interface"),
        );
    }
    let texts = document.tunnel.get().map_or(&[][..], |table| table.addresses.list());
    for (address, text) in tunnel.addresses.iter().zip(texts) {
        if matches!(address.addr(), IpAddr::V6(a) if node.hop_prefix.contains(&a)) {
            report.add(
                Finding::error(
                    text.span(),
                    "an address of the tunnel lies in the hopping prefix",
                    "nobody could reach it there",
                    "give the tunnel an address of the network that it serves",
                )
                .related(prefix_span.clone(), "the hopping prefix"),
            );
        }
    }
}

/// Names must differ before they can tell peers apart in what follows.
fn check_names(document: &Document, report: &mut Report) {
    let mut earlier: HashMap<&str, Range<usize>> = HashMap::new();
    for name in document.peer.list().iter().filter_map(|peer| peer.get_ref().name.given()) {
        let Some(first) = earlier.get(name.get_ref().as_str()) else {
            earlier.insert(name.get_ref(), name.span());
            continue;
        };
        let title = format!("two peers are named {:?}", name.get_ref());
        report.add(
            Finding::error(name.span(), title, "the second", "give each peer a name of its own")
                .related(first.clone(), "the first"),
        );
    }
}

/// Has the protocol check the pairs.
fn check_pairs(document: &Document, node: Option<&Node>, peers: &[(usize, PeerConfig)], report: &mut Report) {
    let mut distinct: HashMap<&str, usize> = HashMap::new();
    let mut checked = Vec::with_capacity(peers.len());
    for (index, peer) in peers {
        if let Entry::Vacant(entry) = distinct.entry(&peer.name) {
            entry.insert(*index);
            checked.push(peer.clone());
        }
    }
    // Without this node's own values the peers can still be checked against each other.
    let (private_key, previous_key, hop_prefix) = match node {
        Some(node) => (node.private_key.clone(), node.previous_key.clone(), node.hop_prefix),
        None => (PrivateKey::from_bytes([0; 32]), None, NOWHERE),
    };
    let config = NodeConfig {
        private_key,
        previous_key,
        hop_prefix,
        link_mtu: 1500,
        hardware_aes: false,
        addresses: Vec::new(),
        rekey_after: REKEY_AFTER,
        peers: checked,
    };
    let table = |name: &str| document.peer.list().get(*distinct.get(name)?).map(Spanned::get_ref);
    // The lengths of hopping prefixes were checked with their texts.
    for error in config.errors().filter(|error| !matches!(error, ConfigError::HopPrefixLength(_))) {
        report.add(finding(&error, document, &table));
    }
}

/// Warns if packets with replaced addresses, which the kernel sends, would go into the tunnel, whose routes are those of
/// `allowed_ips`. The tunnel's own sockets are bound to the external interface.
fn check_routes(document: &Document, peers: &[(usize, PeerConfig)], report: &mut Report) {
    let rewritten = peers.iter().filter(|(_, peer)| peer.rewrite);
    let hop_prefixes: BTreeMap<Ipv6Addr, (Ipv6Net, usize)> =
        rewritten.map(|(index, peer)| (peer.hop_prefix.network(), (peer.hop_prefix, *index))).collect();
    let table = |index: usize| document.peer.list().get(index).map(Spanned::get_ref);
    for (index, prefix) in peers.iter().flat_map(|(index, peer)| peer.allowed_ips.iter().map(|p| (*index, p)))
    {
        let IpNet::V6(allowed) = prefix else { continue };
        let mut inside = hop_prefixes.range(allowed.network()..=allowed.broadcast());
        let Some((_, (hop_prefix, owner))) = inside.find(|(_, (hop, _))| allowed.contains(hop)) else {
            continue;
        };
        report.add(
            Finding::warning(
                inner(table(index), prefix),
                format!("allowed_ips {allowed} contains the hopping prefix {hop_prefix}"),
                "without a more specific route outside the tunnel, packets with replaced addresses go into it",
                format!("add a route to {hop_prefix} yourself (see \"A default route through the tunnel\" in the manual), or leave the prefix out"),
            )
            .related(of(table(*owner), |peer| peer.hop_prefix.span()), "the hopping prefix"),
        );
    }
}

/// Where this prefix is in the peer's `allowed_ips`.
fn inner(peer: Option<&PeerTable>, prefix: &IpNet) -> Range<usize> {
    let mut prefixes = peer.into_iter().flat_map(|peer| peer.allowed_ips.list());
    prefixes.find(|text| text.get_ref().parse() == Ok(*prefix)).map_or(0..0, Spanned::span)
}

/// A place in this table, if there is one.
fn of(peer: Option<&PeerTable>, place: impl Fn(&PeerTable) -> Range<usize>) -> Range<usize> {
    peer.map_or(0..0, place)
}

/// What the protocol found, at its place in the file. `table` gives the table of a peer.
fn finding<'d>(
    error: &ConfigError,
    document: &'d Document,
    table: &dyn Fn(&str) -> Option<&'d PeerTable>,
) -> Finding {
    let key = |name: &str| of(table(name), |peer| peer.public_key.span());
    let hop_prefix = |name: &str| of(table(name), |peer| peer.hop_prefix.span());
    let own_prefix = || document.node.get().map_or(0..0, |node| node.hop_prefix.span());
    let inner = |name: &str, prefix: &IpNet| inner(table(name), prefix);
    let title = error.to_string();
    match error {
        ConfigError::HopPrefixLength(_) => Finding::error(own_prefix(), title, "", ""),
        ConfigError::Key { name, source } => {
            let help = match source {
                KeyError::OwnKey => "give the peer's public key here, and this node's own to the peer",
                _ => "ask the peer for what `sidestep pubkey` prints there",
            };
            Finding::error(key(name), title, "", help)
        }
        ConfigError::SameKey(first, second) => Finding::error(
            key(second),
            title,
            "the second",
            "each peer has a key of its own; is one listed twice?",
        )
        .related(key(first), "the first"),
        ConfigError::SamePrefix(first, second, prefix) => Finding::error(
            inner(second, prefix),
            title,
            "the second",
            "a prefix belongs to one peer; a longer prefix in it may belong to another",
        )
        .related(inner(first, prefix), "the first"),
        ConfigError::Loop { name, prefix, hop_prefix: hopping } => {
            let own = document.node.get().and_then(|node| node.hop_prefix.text());
            let is_own = own.is_some_and(|text| text.parse() == Ok(*hopping));
            Finding::error(
                inner(name, prefix),
                title,
                "its packets would loop through the tunnel",
                "hop in a prefix of its own, outside the networks that the tunnel connects",
            )
            .related(if is_own { own_prefix() } else { hop_prefix(name) }, "the hopping prefix")
        }
        ConfigError::Crowded { name, hop_prefix: crowded } => {
            let peers = table(name).and_then(|peer| peer.hop_prefix.text());
            let is_peers = peers.is_some_and(|text| text.parse() == Ok(*crowded));
            let carry = of(table(name), |peer| peer.carry.span());
            Finding::error(
                if is_peers { hop_prefix(name) } else { own_prefix() },
                title,
                "too few addresses for pairs of hosts",
                "write a prefix of /96 or shorter, usually /64, or carry = \"encapsulate\"",
            )
            .related(carry, "this needs them")
        }
        ConfigError::SameHopPrefix(_, name, _) => {
            Finding::error(hop_prefix(name), title, "", "each gateway hops in a prefix of its own")
                .related(own_prefix(), "this gateway's")
        }
        ConfigError::Range { name, .. } => {
            Finding::error(of(table(name), |peer| peer.name.span()), title, "this peer", "")
        }
        ConfigError::SameName(name) => {
            Finding::error(of(table(name), |peer| peer.name.span()), title, "", "")
        }
        // Of a later version: its words have to do.
        _ => Finding::error(0..0, title, "", ""),
    }
}

/// What the transparent mode cannot be with.
fn check_transparent(
    document: &Document,
    node: &Node,
    peers: &[(usize, PeerConfig)],
    classic: &[(usize, ClassicPeer)],
    report: &mut Report,
) {
    let (Some(transparent), Some(table)) = (&node.transparent, document.node.get()) else { return };
    if transparent.internal == node.external {
        let help = "`internal` leads to the hosts, `external` to their router";
        let finding =
            Finding::error(table.internal.span(), "`internal` and `external` are the same", "", help);
        report.add(finding.related(table.external.span(), "the external interface"));
    }
    if !peers.is_empty() && node.hop_prefix.prefix_len() <= 64 {
        report.add(Finding::error(
            table.hop_prefix.span(),
            "the hopping prefix covers the link's whole network",
            "its hosts could not be told apart from hopping addresses",
            "give a part of the link's /64 that no host has an address in, like 2001:db8:a:0:f000::/68, and another \
             part to a peer on the same link",
        ));
    }
    for host in &transparent.protect {
        if !peers.is_empty() && node.hop_prefix.contains(&host.address) {
            let finding = Finding::error(
                table.protect.span(),
                format!("{} lies in the hopping prefix", host.address),
                "nobody could reach it there",
                "hop in a part of the link's network that no host has an address in",
            );
            report.add(finding.related(table.hop_prefix.span(), "the hopping prefix"));
        }
    }
    if transparent.protect.is_empty() && classic.is_empty() {
        report.add(Finding::warning(
            table.mode.span(),
            "no host is protected",
            "",
            "list them: protect = [{ address = \"2001:db8:a::10\", mac = \"02:00:00:00:00:10\" }]",
        ));
    }
    for (index, _) in peers.iter().filter(|(_, peer)| peer.rewrite) {
        report.add(Finding::error(
            document.peer.list().get(*index).map_or(0..0, |peer| peer.get_ref().carry.span()),
            "a transparent gateway cannot replace addresses",
            "not in this mode",
            "leave the line out, or choose mode = \"routed\"",
        ));
    }
    for wrap in document.wrap.list() {
        report.add(Finding::error(
            wrap.get_ref().peer.span(),
            "a transparent gateway cannot mask packets",
            "not in this mode",
            "leave [[wrap]] out, or choose mode = \"routed\"",
        ));
    }
    for (index, peer) in peers {
        let ipv4 = |net: &IpNet| matches!(net.addr(), IpAddr::V4(_));
        if peer.allowed_ips.iter().any(ipv4) {
            report.add(Finding::error(
                document.peer.list().get(*index).map_or(0..0, |peer| peer.get_ref().allowed_ips.span()),
                "IPv4 does not go through the tunnel of a transparent gateway",
                "",
                "list only IPv6 prefixes",
            ));
        }
    }
}

/// Warns of each file that others can read and that holds secrets.
pub(crate) fn warn_of_readable_secrets(text: &str, parts: &[Part], warnings: &mut Report) {
    if parts.iter().all(|part| !part.is_open) {
        return;
    }
    let Some(document) = document::read(text, &mut Report::default()) else { return };
    let own = document.node.get().into_iter();
    let own = own.flat_map(|node| [&node.private_key, &node.previous_private_key]);
    let peers = document.peer.list().iter().map(Spanned::get_ref);
    let secrets = own.chain(peers.flat_map(|peer| [&peer.preshared_key, &peer.session_key]));
    let mut secrets: Vec<_> = secrets.filter_map(Given::given).map(Spanned::span).collect();
    secrets.sort_by_key(|span| span.start);
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.is_open) {
        let end = parts.get(at + 1).map_or(text.len(), |next| next.start);
        let Some(span) = secrets.iter().find(|span| (part.start..end).contains(&span.start)) else {
            continue;
        };
        warnings.add(Finding::warning(
            span.clone(),
            "others can read this file, which contains a secret",
            "",
            format!("chmod 600 {}", part.name.display()),
        ));
    }
}
