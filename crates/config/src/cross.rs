//! What concerns several values of a configuration.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::path::Path;

use ipnet::{IpNet, Ipv6Net};
use mt6d::config::{ConfigError, NodeConfig, PeerConfig, REKEY_AFTER};
use mt6d::keys::{KeyError, PrivateKey};
use toml::Spanned;

use super::convert::Converted;
use super::document::{Document, Peer};
use super::report::{Finding, Report};
use super::{Config, Gateway, Mode, Node, Tunnel, Whole};

/// A hopping prefix that no peer has (RFC 6666), for a node that has none yet.
pub(super) const STAND_IN: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64);

/// Checks everything that could be converted, also if other things could not. Gives the configuration if all of it
/// could be.
pub(super) fn check(document: &Document, converted: Converted, report: &mut Report) -> Option<Whole> {
    let Converted { node, tunnel, peers, classic, scripts, gateway } = converted;
    if document.is_without_tunnel() {
        let scripts = scripts?;
        let gateway = gateway.map(|gateway| Gateway { scripts, ..gateway });
        return Some(Whole { tunnel: None, gateway, warnings: Report::default() });
    }
    if let Some(node) = &node {
        check_node(document, node, tunnel.as_ref(), report);
    }
    check_names(document, report);
    check_pairs(document, node.as_ref(), &peers, report);
    if node.as_ref().is_some_and(|node| node.mode == Mode::Routed) {
        check_ways(document, &peers, report);
    }
    super::classic::check(document, &classic, report);
    if let Some(node) = &node {
        super::transparent::check(document, node, &peers, &classic, report);
    }
    if document.peer.is_empty() {
        report.add(Finding::warning(
            0..0,
            "there is no peer",
            "",
            "add a [[peer]] table with name, public_key, hop_prefix and allowed_ips",
        ));
    }
    let peers = peers.into_iter().map(|(_, peer)| peer).collect();
    let classic = classic.into_iter().map(|(_, peer)| peer).collect();
    let tunnel = Config { node: node?, tunnel: tunnel?, peers, classic, scripts: scripts? };
    Some(Whole { tunnel: Some(tunnel), gateway, warnings: Report::default() })
}

fn check_node(document: &Document, node: &Node, tunnel: Option<&Tunnel>, report: &mut Report) {
    let Some(table) = document.node.as_ref().map(Spanned::get_ref) else { return };
    let prefix_span = span(table.hop_prefix.as_ref());
    if node.mode == Mode::Host
        && let Some(peer) = document.peer.iter().find(|peer| peer.get_ref().is_classic())
    {
        report.add(
            Finding::error(
                peer.span(),
                "a peer of the classic profile in mode \"host\"",
                "its addresses lie in the network of the true one, and cannot follow the link",
                "choose mode = \"routed\" for it, or version 2",
            )
            .related(span(table.mode.as_ref()), "the mode"),
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
                span(document.tunnel.name.as_ref()),
                "the tunnel has the name of the external interface",
                "",
                "give the tunnel a name of its own, like \"mt6d0\"",
            )
            .related(span(table.external.as_ref()), "the external interface"),
        );
    }
    for (address, text) in tunnel.addresses.iter().zip(&document.tunnel.addresses) {
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
    for name in document.peer.iter().filter_map(|peer| peer.get_ref().name.as_ref()) {
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
    let (private_key, hop_prefix) = match node {
        Some(node) => (node.private_key.clone(), node.hop_prefix),
        None => (PrivateKey::from_bytes([0; 32]), STAND_IN),
    };
    let config = NodeConfig {
        private_key,
        hop_prefix,
        link_mtu: 1500,
        hardware_aes: false,
        addresses: Vec::new(),
        rekey_after: REKEY_AFTER,
        peers: checked,
    };
    let table = |name: &str| document.peer.get(*distinct.get(name)?).map(Spanned::get_ref);
    // The lengths of hopping prefixes were checked with their texts.
    for error in config.errors().filter(|error| !matches!(error, ConfigError::HopPrefixLength(_))) {
        report.add(finding(&error, document, &table));
    }
}

/// Warns if the tunnel's own packets would go into the tunnel, whose routes are those of `allowed_ips`. In other modes
/// the way to the peers' hopping prefixes is set up with the rest.
fn check_ways(document: &Document, peers: &[(usize, PeerConfig)], report: &mut Report) {
    let hop_prefixes: BTreeMap<Ipv6Addr, (Ipv6Net, usize)> =
        peers.iter().map(|(index, peer)| (peer.hop_prefix.network(), (peer.hop_prefix, *index))).collect();
    let table = |index: usize| document.peer.get(index).map(Spanned::get_ref);
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
                "without a longer route outside, the tunnel's own packets go into it",
                format!("have a route of your own to {hop_prefix}, as in \"A default route through the tunnel\" in the manual, or leave the prefix out"),
            )
            .related(span(table(*owner).and_then(|peer| peer.hop_prefix.as_ref())), "the hopping prefix"),
        );
    }
}

/// Where this prefix is in the peer's `allowed_ips`.
fn inner(peer: Option<&Peer>, prefix: &IpNet) -> Range<usize> {
    let prefixes = peer.and_then(|peer| peer.allowed_ips.as_ref());
    let mut prefixes = prefixes.into_iter().flat_map(Spanned::get_ref);
    span(prefixes.find(|text| text.get_ref().parse() == Ok(*prefix)))
}

/// What the protocol found, at its place in the file. `table` gives the table of a peer.
fn finding<'d>(
    error: &ConfigError,
    document: &'d Document,
    table: &dyn Fn(&str) -> Option<&'d Peer>,
) -> Finding {
    let key = |name: &str| span(table(name).and_then(|peer| peer.public_key.as_ref()));
    let hop_prefix = |name: &str| span(table(name).and_then(|peer| peer.hop_prefix.as_ref()));
    let own_prefix = || span(document.node.as_ref().and_then(|node| node.get_ref().hop_prefix.as_ref()));
    let inner = |name: &str, prefix: &IpNet| inner(table(name), prefix);
    let title = error.to_string();
    match error {
        ConfigError::HopPrefixLength(_) => Finding::error(own_prefix(), title, "", ""),
        ConfigError::Key { name, source } => {
            let help = match source {
                KeyError::Own => "give the peer's public key here, and this node's own to the peer",
                _ => "ask the peer for what `sidestep pubkey` prints there",
            };
            Finding::error(key(name), title, "", help)
        }
        ConfigError::SameKey(first, second) => Finding::error(
            key(second),
            title,
            "the second",
            "each peer has a key of its own; is one there twice?",
        )
        .related(key(first), "the first"),
        ConfigError::SamePrefix(first, second, prefix) => Finding::error(
            inner(second, prefix),
            title,
            "the second",
            "a prefix is behind one peer; a part of it, with a longer prefix, may be behind another",
        )
        .related(inner(first, prefix), "the first"),
        ConfigError::Loop { name, prefix, hop_prefix: hopping } => {
            let own = document.node.as_ref().and_then(|node| node.get_ref().hop_prefix.as_ref());
            let is_own = own.is_some_and(|text| text.get_ref().parse() == Ok(*hopping));
            Finding::error(
                inner(name, prefix),
                title,
                "would go into the tunnel for ever",
                "hop in a prefix of its own, outside of the networks that the tunnel connects",
            )
            .related(if is_own { own_prefix() } else { hop_prefix(name) }, "the hopping prefix")
        }
        ConfigError::Crowded { name, hop_prefix: crowded } => {
            let peers = table(name).and_then(|peer| peer.hop_prefix.as_ref());
            let is_peers = peers.is_some_and(|text| text.get_ref().parse() == Ok(*crowded));
            let carry = span(table(name).and_then(|peer| peer.carry.as_ref()));
            Finding::error(
                if is_peers { hop_prefix(name) } else { own_prefix() },
                title,
                "too few addresses for pairs of hosts",
                "give it a prefix of /96 at the longest, /64 is usual, or carry = \"encapsulate\"",
            )
            .related(carry, "what takes them")
        }
        ConfigError::SameHopPrefix(_, name, _) => {
            Finding::error(hop_prefix(name), title, "", "each gateway hops in a prefix of its own")
                .related(own_prefix(), "this gateway's")
        }
        ConfigError::Range { name, .. } => {
            Finding::error(span(table(name).and_then(|peer| peer.name.as_ref())), title, "this peer", "")
        }
        ConfigError::SameName(name) => {
            Finding::error(span(table(name).and_then(|peer| peer.name.as_ref())), title, "", "")
        }
        // Of a later version: its words have to do.
        _ => Finding::error(0..0, title, "", ""),
    }
}

fn span<T>(value: Option<&Spanned<T>>) -> Range<usize> {
    value.map_or(0..0, Spanned::span)
}

/// Warns if a file that others can read holds secrets.
pub(super) fn warn_of_readable_secrets(text: &str, path: &Path, warnings: &mut Report) {
    let Ok(document) = toml::from_str::<Document>(text) else { return };
    let private = document.node.as_ref().and_then(|node| node.get_ref().private_key.as_ref());
    let peers = document.peer.iter().map(Spanned::get_ref);
    let mut of_peers =
        peers.flat_map(|peer| [&peer.preshared_key, &peer.session_key]).filter_map(Option::as_ref);
    if let Some(secret) = private.or_else(|| of_peers.next()) {
        warnings.add(Finding::warning(
            secret.span(),
            "others can read this file, and it holds a secret",
            "",
            format!("chmod 600 {}", path.display()),
        ));
    }
}
