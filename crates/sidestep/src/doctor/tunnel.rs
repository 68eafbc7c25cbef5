//! This machine, and the tunnel as a whole.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use config::TunnelConfig;
use control::tunnel_status::Status;
use linux::netlink::Netlink;
use tunnel_runtime::{obstacles, surroundings};

use super::finding::Finding;

/// Nobody uses a program from before it was written.
const WRITTEN: u64 = 1_760_000_000;
/// Codes of obstacles that concern the ways to one peer, which its name is in.
const OF_PEERS: [&str; 3] = ["no_route", "own_prefix", "other_interface"];

/// What this machine lacks.
pub(super) fn look(config: &TunnelConfig, peer: Option<&str>, runs: bool, findings: &mut Vec<Finding>) {
    if !runs {
        if let Err(error) = surroundings::refuse(config) {
            findings.push(Finding::fault("cuts_off", error.to_string()));
        }
        if !Path::new("/dev/net/tun").exists() {
            findings.push(Finding::fault(
                "no_tun",
                "there is no /dev/net/tun: `modprobe tun`, or give the container the device",
            ));
        }
    }
    if let Err(error) = linux::nft::ruleset() {
        findings.push(Finding::warning("nft", format!("the firewall cannot be looked at: {error}")));
    }
    let of_others = |says: &str| {
        let others = config.peers.iter().filter(|other| peer.is_some_and(|peer| peer != other.name));
        others
            .map(|other| other.name.as_str())
            .any(|name| says.split([' ', ',', ':']).any(|word| word == name))
    };
    let found = obstacles::find(config, false);
    let found: Vec<_> = found
        .into_iter()
        .filter(|found| !(OF_PEERS.contains(&found.code) && of_others(&found.says)))
        .collect();
    if found.is_empty() {
        findings.push(Finding::ok(
            "machine",
            "interfaces, routes, forwarding and firewall let the tunnel pass, as far as can be seen",
        ));
    }
    findings.extend(found.into_iter().map(|found| Finding::fault(found.code, found.says)));
    if SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) < WRITTEN {
        let says = "the clock of this machine was never set: first contact needs one that is right to an hour (timedatectl set-ntp true), or `clockless` at both ends";
        findings.push(Finding::fault("clock_unset", says));
    }
    if runs {
        look_at_device(config, findings);
    }
}

fn look_at_device(config: &TunnelConfig, findings: &mut Vec<Finding>) {
    let Ok(mut netlink) = Netlink::open() else { return };
    let name = &config.tunnel.name;
    match netlink.link_by_name(name) {
        Ok(Some(link)) if link.up => look_at_inner_routes(config, link.index, &mut netlink, findings),
        Ok(Some(_)) => {
            let says = format!("the device {name} is down (ip link set {name} up)");
            findings.push(Finding::fault("tunnel_down", says));
        }
        Ok(None) => {
            let says = format!("the device {name} is gone (systemctl restart sidestep@{name})");
            findings.push(Finding::fault("tunnel_gone", says));
        }
        Err(_) => {}
    }
    if !config.is_classic() && linux::nft::is_dark(name).is_ok_and(|dark| !dark) {
        let says = format!(
            "the table that keeps the hopping prefix dark is gone: it comes back within some seconds, unless something removes it again (nft monitor, sidestep reload {name})"
        );
        findings.push(Finding::fault("not_dark", says));
    }
}

/// What is for a peer's networks is to go into the tunnel.
fn look_at_inner_routes(
    config: &TunnelConfig,
    tunnel: u32,
    netlink: &mut Netlink,
    findings: &mut Vec<Finding>,
) {
    for peer in &config.peers {
        for prefix in &peer.allowed_ips {
            let Ok(found) = netlink.route_to(prefix.addr()) else { continue };
            if found.is_some_and(|hop| hop.index == tunnel) || prefix.prefix_len() == 0 {
                continue;
            }
            let by = found.and_then(|hop| netlink.link_by_index(hop.index).ok().flatten());
            let by = by.map_or("nowhere".to_owned(), |link| format!("by {}", link.name));
            let says = format!(
                "what is for {prefix}, behind {}, goes {by}, not into {}: another route is more specific, or a rule comes before (ip route get {})",
                peer.name,
                config.tunnel.name,
                prefix.addr()
            );
            findings.push(Finding::fault("inner_route", says).of(&peer.name));
        }
    }
}

/// What the daemon says of itself.
pub(super) fn look_at_status(status: &Status, findings: &mut Vec<Finding>) {
    if let Some(uplink) = &status.waits_for {
        let says = format!(
            "there is no prefix to hop in: uplink {uplink} has none for the tunnel yet, and `sidestep status` says what it waits for"
        );
        findings.push(Finding::fault("no_hop_prefix", says));
    }
    if status.rules_restored > 0 {
        let says = format!(
            "another program has changed or removed the rules that keep the prefix dark, {} times since the start: they were restored; find out which does (nft monitor)",
            status.rules_restored
        );
        findings.push(Finding::warning("rules_restored", says));
    }
    if status.keylog {
        let says = format!(
            "the keys of the tunnel are written to a file, as `up --keylog` asked for: whoever has it reads the recorded traffic (systemctl restart sidestep@{} without it, and delete the file)",
            status.tunnel
        );
        findings.push(Finding::warning("keys_logged", says));
    }
    if let Some(count) = status.drops.get("no_peer").filter(|count| **count > 0) {
        let says = format!(
            "{count} packets were routed into the tunnel that no peer has in its allowed_ips: fix the route that leads them there, or add the network"
        );
        findings.push(Finding::warning("no_peer", says));
    }
}
