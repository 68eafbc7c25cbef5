//! From the document to what it describes: all of it is looked at, also what depends on something that is wrong
//! elsewhere, so that one report has all that is to be mended.

use std::path::Path;

use mt6d::config::NOWHERE;
use toml::Spanned;

use crate::config::{Config, TunnelConfig};
use crate::converter::{Converter, ReadKey};
use crate::cross::check_tunnel;
use crate::document::Document;
use crate::firewall::Tunnels;
use crate::follows;
use crate::report::{Finding, Report};
use crate::router::RouterConfig;
use crate::standby;
use crate::wrap;

/// What the document, which is that of `text`, describes; None if something of it cannot be. `read_key` reads key files,
/// whose names are relative to `folder`.
pub(crate) fn assemble(
    document: &Document,
    text: &str,
    folder: &Path,
    read_key: &ReadKey<'_>,
    report: &mut Report,
) -> Option<Config> {
    let mut converter = Converter::new(folder, read_key, report);
    let tables = document.peer.list();
    let all_classic = !tables.is_empty() && tables.iter().all(|peer| peer.get_ref().is_classic());
    let node = document.node.get().and_then(|node| converter.node(node, all_classic));
    if document.node.is_absent() && !document.is_without_tunnel() {
        let is_empty = tables.is_empty() && document.tunnel.is_absent() && document.script.is_absent();
        let title =
            if is_empty { "no table says what this file is for" } else { "the table [node] is missing" };
        let help = if tables.is_empty() {
            "[node] and [[peer]] describe a tunnel, [ipsec] and [[remote]] one of IPsec, [[uplink]] and [[network]] a gateway, [[zone]] a firewall"
        } else {
            "begin with [node]: private_key_file, external and hop_prefix describe this gateway"
        };
        converter.report(Finding::error(0..0, title, "", help));
    }
    let on_event = document.events.get().and_then(|events| converter.on_event(events));
    let tunnel = document.tunnel.get().and_then(|tunnel| converter.tunnel(tunnel));
    let hop_prefix = node.as_ref().map_or(NOWHERE, |node| node.hop_prefix);
    let standby = document.standby.get().map(|table| converter.standby(table, hop_prefix));
    // Each with its index in the document.
    let (mut peers, mut classic) = (Vec::new(), Vec::new());
    for (index, peer) in tables.iter().map(Spanned::get_ref).enumerate() {
        if !converter.keys_fit_the_profile(peer) {
            continue;
        }
        if peer.is_classic() {
            classic.extend(converter.classic_peer(peer).map(|peer| (index, peer)));
        } else {
            peers.extend(converter.peer(peer).map(|peer| (index, peer)));
        }
    }
    let names = converter.names(document);
    let wraps = converter.wraps(document.wrap.list(), tables, &peers);
    let name = tunnel.as_ref().map(|tunnel| tunnel.name.as_str());
    let scripts = document.script.list().iter();
    let scripts: Vec<_> = scripts.map(|script| converter.script(script.get_ref(), name)).collect();
    let scripts = scripts.into_iter().collect::<Option<Vec<_>>>();
    // Where all peers are of the classic profile, the prefix may be a stand-in.
    let endpoints = node.iter().map(|node| node.hop_prefix).filter(|prefix| *prefix != NOWHERE).collect();
    let tunnels = Tunnels { device: name, peers: &peers, endpoints };
    let site = converter.site(document);
    let known = site.as_ref().map(|(site, _)| (site.forwards.clone(), site.nat64.as_ref()));
    let (forwards, nat64) = known.unwrap_or_default();
    let firewall = converter.firewall(document, text, tunnels, forwards, nat64);
    let mut gateway = converter.router(document, site, firewall);
    if let (Some(gateway), Some(scripts)) = (&gateway, &scripts) {
        converter.scripts_see_offloaded(document, &gateway.site, scripts);
    }
    if document.is_without_tunnel() {
        let gateway = RouterConfig { scripts: scripts?, ..gateway? };
        return Some(Config {
            tunnel: None,
            gateway: Some(gateway),
            on_event: on_event?,
            warnings: Report::default(),
        });
    }
    if let Some(gateway) = &mut gateway {
        gateway.site.hops = node.as_ref().and_then(|node| node.follows.clone());
        gateway.site.elsewhere = peers.iter().flat_map(|(_, peer)| peer.allowed_ips.clone()).collect();
    }
    if let Some(node) = &node {
        follows::check(document, node, gateway.as_ref().map(|gateway| &gateway.site), report);
        if let Some(table) = document.standby.get() {
            standby::check(table, node, report);
        }
    }
    check_tunnel(document, node.as_ref(), tunnel.as_ref(), &peers, &classic, report);
    let mut peers: Vec<_> = peers.into_iter().map(|(_, peer)| peer).collect();
    let classic = classic.into_iter().map(|(_, peer)| peer).collect();
    let mut uplinks = gateway.iter().flat_map(|gateway| &gateway.site.uplinks);
    let external_over = node.as_ref().and_then(|node| {
        let uplink = uplinks.find(|uplink| uplink.interface == node.external)?;
        Some(uplink.tunnel.as_ref()?.over.clone())
    });
    let (node, mut tunnel, wraps) = (node?, tunnel?, wraps?);
    wrap::prepare(&wraps, &node, &mut tunnel, &mut peers);
    let tunnel = TunnelConfig {
        node,
        tunnel,
        peers,
        wraps,
        names: names?,
        classic,
        scripts: scripts?,
        standby: match standby {
            None => None,
            Some(standby) => Some(standby?),
        },
        external_over,
        digest: String::new(),
    };
    Some(Config { tunnel: Some(tunnel), gateway, on_event: on_event?, warnings: Report::default() })
}
