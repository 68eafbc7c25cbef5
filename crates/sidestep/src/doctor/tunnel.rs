//! This machine, and the tunnel as a whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use config::TunnelConfig;
use control::standby::Status as Standby;
use control::tunnel_status::{Peer, State, Status, Wrapped};
use ipnet::IpNet;
use linux::netlink::Netlink;
use tunnel_runtime::{obstacles, surroundings};

use super::finding::Finding;
use crate::running::unit_of;
use crate::show::standby::OLD_MS;

/// Nobody uses a program from before it was written.
const WRITTEN: u64 = 1_760_000_000;
/// Codes of obstacles that concern the ways to one peer, which its name is in.
const OF_PEERS: [&str; 3] = ["no_route", "own_prefix", "other_interface"];

/// What this machine lacks; `status` where the tunnel runs.
pub(super) fn look(
    config: &TunnelConfig,
    peer: Option<&str>,
    status: Option<&Status>,
    findings: &mut Vec<Finding>,
) {
    if status.is_none() {
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
    // What a session shows is known better than what rules seem to say.
    let works = status.is_some_and(|status| status.peers.iter().any(|peer| peer.state == State::Established));
    findings.extend(found.into_iter().map(|found| {
        match found.certain && !(works && found.code == "closed_input") {
            true => Finding::fault(found.code, found.says),
            false => Finding::warning(found.code, found.says),
        }
    }));
    if SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) < WRITTEN {
        let says = "the clock of this machine was never set: first contact needs one that is right to an hour (timedatectl set-ntp true), or `clockless` at both ends";
        findings.push(Finding::fault("clock_unset", says));
    }
    if let Some(status) = status {
        look_at_device(config, status, peer, findings);
    }
}

fn look_at_device(config: &TunnelConfig, status: &Status, peer: Option<&str>, findings: &mut Vec<Finding>) {
    let Ok(mut netlink) = Netlink::open() else { return };
    let name = &config.tunnel.name;
    match netlink.link_by_name(name) {
        Ok(Some(link)) if link.up => look_at_inner_routes(config, peer, link.index, &mut netlink, findings),
        Ok(Some(_)) => {
            let says = format!("the device {name} is down (ip link set {name} up)");
            findings.push(Finding::fault("tunnel_down", says));
        }
        Ok(None) => {
            let unit = unit_of(Path::new(&status.file));
            let says = format!("the device {name} is gone (systemctl restart {unit})");
            findings.push(Finding::fault("tunnel_gone", says));
        }
        Err(_) => {}
    }
}

/// What is for a peer's networks is to go into the tunnel, but for what is in networks of this machine: a network of a peer may
/// contain these.
fn look_at_inner_routes(
    config: &TunnelConfig,
    only: Option<&str>,
    tunnel: u32,
    netlink: &mut Netlink,
    findings: &mut Vec<Finding>,
) {
    let connected = netlink.all_addresses().unwrap_or_default().into_iter();
    let connected = connected.filter(|found| found.index != tunnel).map(|found| found.address.trunc());
    // Nobody has the address that is none.
    let none = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].map(|none: IpAddr| none.into());
    let mut connected: Vec<IpNet> = connected.chain(none).collect();
    connected.sort();
    for peer in config.peers.iter().filter(|peer| only.is_none_or(|only| only == peer.name)) {
        for prefix in peer.allowed_ips.iter().filter(|prefix| prefix.prefix_len() > 0) {
            let Some(address) = address_outside(*prefix, &connected) else { continue };
            let Ok(found) = netlink.route_to(address) else { continue };
            if found.is_some_and(|hop| hop.index == tunnel) {
                continue;
            }
            let by = found.and_then(|hop| netlink.link_by_index(hop.index).ok().flatten());
            let by = by.map_or("nowhere".to_owned(), |link| format!("by {}", link.name));
            let name = &config.tunnel.name;
            let length = netlink.matched_length(address).ok().flatten();
            let finding = match length.is_some_and(|length| length > prefix.prefix_len()) {
                true => Finding::warning(
                    "inner_route",
                    format!(
                        "some of {prefix}, behind {}, goes {by}, not into {name}: another route is more specific (ip route get {address})",
                        peer.name,
                    ),
                ),
                false => Finding::fault(
                    "inner_route",
                    format!(
                        "what is for {prefix}, behind {}, goes {by}, not into {name}: its route is gone, or another or a rule comes before (ip route get {address}, sidestep reload {name})",
                        peer.name,
                    ),
                ),
            };
            findings.push(finding.of(&peer.name));
        }
    }
}

/// The first address of a network that is in none of these smaller ones, which are in order; `None` where all are.
fn address_outside(prefix: IpNet, connected: &[IpNet]) -> Option<IpAddr> {
    let mut address = prefix.network();
    for network in connected.iter().filter(|network| prefix.contains(*network) && **network != prefix) {
        if network.contains(&address) {
            address = following(network.broadcast()).filter(|next| prefix.contains(next))?;
        }
    }
    Some(address)
}

fn following(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address).checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

/// Whether one of the two gateways of a site can take over from the other.
fn look_at_standby(standby: &Standby, tunnel: &str, findings: &mut Vec<Finding>) {
    let view = standby.view.as_ref().filter(|_| standby.view_ms.is_some_and(|age| age < OLD_MS));
    let Some(view) = view else {
        let says = format!(
            "the site has two gateways, and this one's agent does not say which is active (systemctl status sidestep-agent@{tunnel}): it neither takes over nor steps back"
        );
        findings.push(Finding::fault("no_turns", says));
        return;
    };
    if view.other_ms.is_none_or(|ago| ago >= OLD_MS) {
        let says = "the other gateway of the site is not heard: if it runs, a firewall between the two may drop UDP port 4162, or `gateways` in [standby] is wrong";
        findings.push(Finding::warning("alone", says));
    }
    if !view.register {
        let says = "no controller of the fleet answers: where one of the two gateways of the site dies without a word, the other does not take over until one does";
        findings.push(Finding::warning("no_register", says));
    }
    if standby.turn.is_none() {
        findings
            .push(Finding::ok("stands_by", "this gateway stands by: it has no sessions until it takes over"));
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
    if let Some(standby) = &status.standby {
        look_at_standby(standby, &status.tunnel, findings);
    }
    if status.dark == Some(false) {
        let says = format!(
            "the rules that keep the hopping prefix dark are gone: they come back within some seconds, unless something removes them again (nft monitor, sidestep reload {})",
            status.tunnel
        );
        findings.push(Finding::fault("not_dark", says));
    }
    if status.rules_restored > 0 {
        let says = format!(
            "another program has changed or removed the rules that keep the prefix dark, {} times since the start: they were restored; find out which does (nft monitor)",
            status.rules_restored
        );
        findings.push(Finding::warning("rules_restored", says));
    }
    for (peer, wrapped) in status.peers.iter().filter_map(|peer| Some((peer, peer.wrapped.as_ref()?))) {
        if let Some(finding) = look_at_wrapped(peer, wrapped) {
            findings.push(finding.of(&peer.name));
        }
    }
    if status.keylog {
        let says = format!(
            "the keys of the tunnel are written to a file, as `up --keylog` asked for: whoever has it reads the recorded traffic (systemctl restart {} without it, and delete the file)",
            unit_of(Path::new(&status.file))
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

/// WireGuard that is to travel with a peer, and does not.
fn look_at_wrapped(peer: &Peer, wrapped: &Wrapped) -> Option<Finding> {
    let Wrapped { interface, endpoint, problem } = wrapped;
    if let Some(problem) = problem {
        return Some(Finding::fault("wrap", format!("{interface} is not led into the tunnel: {problem}")));
    }
    if peer.state == State::Established && peer.masked.is_none() {
        let says = format!(
            "{interface} travels without a mask: {} has no [[wrap]] for it, or one of the two ends cannot mask, which the log says (up)",
            peer.name
        );
        return Some(Finding::warning("not_masked", says));
    }
    // The inner ends of a peer's keys are hosts of its own; a prefix may be all there is.
    let inside = |at: &SocketAddr| peer.allowed_ips.contains(&IpNet::from(at.ip()));
    let outside = endpoint.filter(|at| !inside(at))?;
    let says = format!(
        "the peer of {interface} has just sent from {outside}, past the tunnel: that is dropped from now on, and its endpoint is led back; {} is to have a [[wrap]] for it, too",
        peer.name
    );
    Some(Finding::warning("wrap_left", says))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_outside_of_the_networks_of_this_machine() {
        for (prefix, connected, address) in [
            ("10.0.0.0/8", &[][..], Some("10.0.0.0")),
            ("10.0.0.0/8", &["10.0.0.0/24", "10.0.1.0/32", "10.0.3.0/24", "fd00::/8"], Some("10.0.1.1")),
            ("10.0.0.0/8", &["10.0.0.0/8"], Some("10.0.0.0")),
            ("10.0.0.0/8", &["10.0.0.0/9", "10.128.0.0/9"], None),
            ("10.0.0.0/8", &["10.0.0.0/16", "10.0.0.0/24", "10.1.0.0/24"], Some("10.1.1.0")),
            ("2001:db8:b::/64", &["2001:db8::/32"], Some("2001:db8:b::")),
            ("2001:db8::/32", &["2001:db8::/64"], Some("2001:db8:0:1::")),
            ("255.255.255.0/24", &["255.255.255.0/25", "255.255.255.128/25"], None),
        ] {
            let connected: Vec<IpNet> = connected.iter().map(|network| network.parse().unwrap()).collect();
            let found = address_outside(prefix.parse().unwrap(), &connected);
            assert_eq!(found, address.map(|address| address.parse().unwrap()), "{prefix} {connected:?}");
        }
    }
}
