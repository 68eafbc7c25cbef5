//! The SSH connection that a command came by: a firewall that closes it locks its administrator out.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;

use config::{Config, Firewall, TunnelConfig};
use linux::netlink::Netlink;
use router::firewall::{Packet, Verdict, ZoneRef, evaluate};

use crate::failure::Failure;

/// What `sshd` tells of itself.
const VARIABLE: &str = "SSH_CONNECTION";
const TCP: u8 = 6;
/// Processes that are looked at on the way up to `sshd`.
const MOST_ANCESTORS: usize = 32;

/// A connection, as seen from here.
#[derive(Debug, PartialEq, Eq)]
struct Connection {
    /// By which link-local addresses come.
    interface: Option<String>,
    client: IpAddr,
    client_port: u16,
    server: IpAddr,
    server_port: u16,
}

/// Refuses a firewall that closes the connection which the command came by; with a time to confirm it only says so.
pub(crate) fn refuse_to_close(
    firewall: &Firewall,
    file: &Path,
    is_to_be_confirmed: bool,
) -> Result<(), Failure> {
    match why_closed(firewall, file) {
        Some(why) => refuse(&why, is_to_be_confirmed),
        None => Ok(()),
    }
}

/// Refuses a configuration whose firewall closes the connection which the command came by, or whose tunnel takes its client
/// away; with a time to confirm it only says so.
pub(crate) fn refuse_to_lock_out(
    config: &Config,
    file: &Path,
    is_to_be_confirmed: bool,
) -> Result<(), Failure> {
    if let Some(firewall) = config.gateway.as_ref().and_then(|gateway| gateway.firewall.as_ref()) {
        refuse_to_close(firewall, file, is_to_be_confirmed)?;
    }
    match config.tunnel.as_ref().and_then(why_taken_away) {
        Some(why) => refuse(&why, is_to_be_confirmed),
        None => Ok(()),
    }
}

/// What this tunnel, once it is up, does to the connection that the command came by, if it takes its client away.
pub(crate) fn taken_away(tunnel: &TunnelConfig) -> Option<String> {
    why_taken_away(tunnel).map(|why| closed(&why))
}

/// What this firewall, once it is in force, does to the connection that the command came by, if it closes it.
pub(crate) fn closed_by(firewall: &Firewall, file: &Path) -> Option<String> {
    why_closed(firewall, file).map(|why| closed(&why))
}

/// Whether the command came by one.
pub(crate) fn is_used() -> bool {
    current().is_some()
}

fn why_closed(firewall: &Firewall, file: &Path) -> Option<String> {
    let connection = current()?;
    // Without an answer there is nothing to say.
    let interface = connection.interface.clone().or_else(|| interface_to(connection.client).ok()?)?;
    let why = closes(firewall, file, &interface, &connection)?;
    let Connection { client, server_port, .. } = connection;
    Some(format!("from {client} by {interface} to port {server_port}: {why}; let it in"))
}

fn why_taken_away(tunnel: &TunnelConfig) -> Option<String> {
    let Connection { client, interface, .. } = current()?;
    // Without an answer there is nothing to say.
    let why = tunnel_runtime::surroundings::takes_away(tunnel, client, interface.as_deref()).ok()??;
    Some(format!("from {client}: {why}"))
}

fn closed(why: &str) -> String {
    format!("this closes the SSH connection that you are on, {why}")
}

fn refuse(why: &str, is_to_be_confirmed: bool) -> Result<(), Failure> {
    let closed = closed(why);
    if !is_to_be_confirmed {
        return Err(Failure::Message(format!("{closed}, or add --confirm 60s to have it taken back")));
    }
    let _ = writeln!(std::io::stderr(), "sidestep: {closed}");
    Ok(())
}

/// Which rule closes it, if one does.
fn closes(firewall: &Firewall, file: &Path, interface: &str, connection: &Connection) -> Option<String> {
    let policy = &firewall.policy;
    let Some(zone) = policy.zone_of(interface, connection.client) else {
        return Some(format!("{interface} is in no zone"));
    };
    let mut packet = Packet::new(zone, ZoneRef::Gateway, connection.client, connection.server, TCP);
    packet.ports = (connection.client_port, connection.server_port);
    let decision = evaluate(policy, &packet);
    (decision.verdict != Verdict::Accept).then(|| router_runtime::firewall::reason(firewall, file, &decision))
}

/// The interface that packets to that address leave by.
fn interface_to(address: IpAddr) -> linux::Result<Option<String>> {
    let mut netlink = Netlink::open()?;
    let Some(hop) = netlink.route_to(address)? else { return Ok(None) };
    Ok(netlink.link_by_index(hop.index)?.map(|link| link.name))
}

/// The connection of this process, or of one that it descends from: `sudo` passes nothing of it on.
fn current() -> Option<Connection> {
    let mut pid = std::process::id();
    for _ in 0..MOST_ANCESTORS {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables =
            environment.split(|byte| *byte == 0).filter_map(|line| std::str::from_utf8(line).ok());
        let found = variables.find_map(|line| line.strip_prefix(VARIABLE)?.strip_prefix('='));
        if let Some(connection) = found.and_then(parse) {
            return Some(connection);
        }
        pid = parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    }
    None
}

/// The process that has started one of which the kernel says this: `PID (NAME) STATE PARENT …`.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid > 0)
}

/// `CLIENT PORT SERVER PORT`.
fn parse(text: &str) -> Option<Connection> {
    let mut words = text.split_whitespace();
    // A link-local address has its interface after it.
    let (client, client_port) = (words.next()?, words.next()?.parse().ok()?);
    let (client, interface) =
        client.split_once('%').map_or((client, None), |(client, on)| (client, Some(on)));
    let server = words.next()?.split('%').next()?;
    Some(Connection {
        interface: interface.map(str::to_owned),
        client: client.parse().ok()?,
        client_port,
        server: server.parse().ok()?,
        server_port: words.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sshd_and_the_kernel_write_is_understood() {
        let connection = parse("fe80::5%eth0 50022 2001:db8::1 22").expect("a connection");
        let expected = Connection {
            interface: Some("eth0".to_owned()),
            client: "fe80::5".parse().expect("an address"),
            client_port: 50_022,
            server: "2001:db8::1".parse().expect("an address"),
            server_port: 22,
        };
        assert_eq!(connection, expected);
        assert_eq!(parse("2001:db8::5 50022 2001:db8::1"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parent("17 (a b) c) S 5 17 17 0"), Some(5));
        assert_eq!(parent("1 (init) S 0 1 1 0"), None);
    }
}
