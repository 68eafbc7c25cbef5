//! `[[wrap]]` with a device of WireGuard: what WireGuard's own tool says of it, and what it is told. `wg` knows the kernel's
//! devices and those in user space alike.

use std::net::{Ipv6Addr, SocketAddr};
use std::process::Command;

use config::{TunnelConfig, Wrap};
use mt6d::mask;
use tracing::{info, warn};

/// Asks each device for its port, where the configuration does not say it, and leads its peer into the tunnel, to the port that a
/// peer has said to be its, if it has said one. What does not work is said; that flow is not masked then, and reaches the peer
/// as it did, until the configuration is read again.
pub(crate) fn prepare(config: &mut TunnelConfig, said: impl Fn(&str) -> Option<u16>) {
    let addresses: Vec<Option<Ipv6Addr>> =
        config.wraps.iter().map(|wrap| Some(mask::address(&config.peer(&wrap.peer)?.public_key))).collect();
    for (wrap, address) in config.wraps.iter_mut().zip(addresses) {
        let (Some(interface), Some(address)) = (wrap.interface.clone(), address) else { continue };
        let port = said(&wrap.peer);
        if let Err(error) = prepare_device(wrap, &interface, address, port) {
            warn!(
                "[[wrap]] {interface}: {error}; `sidestep wrap {interface}` or `sidestep reload` tries again"
            );
        }
    }
}

fn prepare_device(
    wrap: &mut Wrap,
    interface: &str,
    address: Ipv6Addr,
    said: Option<u16>,
) -> Result<(), String> {
    if wrap.port.is_none() {
        let port = wg(&["show", interface, "listen-port"])?.trim().parse().unwrap_or(0);
        wrap.port = Some(port).filter(|port| *port != 0);
    }
    let own = wrap.port.ok_or("the device listens at no port yet: set its ListenPort")?;
    let endpoints = wg(&["show", interface, "endpoints"])?;
    let (key, endpoint) = choose(&endpoints, wrap.public_key.as_deref())?;
    // The port is the peer's, whatever leads there.
    let port = said.or(endpoint.map(|endpoint| endpoint.port())).unwrap_or(own);
    let new = SocketAddr::new(address.into(), port);
    // Also where it is that already: it forgets by which interface it last sent there, which is not the one of today.
    wg(&["set", interface, "peer", &key, "endpoint", &new.to_string()])?;
    if endpoint == Some(new) {
        return Ok(());
    }
    let before = endpoint.map_or_else(|| "unset".to_owned(), |endpoint| endpoint.to_string());
    info!("{interface}: the endpoint of {key} was {before}, and is {new}, in the tunnel to {}", wrap.peer);
    Ok(())
}

/// Of the device's peers the one that is meant, with its endpoint, if it has one.
fn choose(endpoints: &str, wanted: Option<&str>) -> Result<(String, Option<SocketAddr>), String> {
    let peers: Vec<(&str, &str)> = endpoints.lines().filter_map(|line| line.split_once('\t')).collect();
    let (key, endpoint) = match (wanted, &peers[..]) {
        (Some(wanted), peers) => *peers
            .iter()
            .find(|(key, _)| *key == wanted)
            .ok_or_else(|| format!("the device has no peer with the public key {wanted}"))?,
        (None, [only]) => *only,
        (None, []) => return Err("the device has no peer yet".to_owned()),
        (None, _) => {
            return Err("the device has several peers: write which one, public_key = \"…\"".to_owned());
        }
    };
    Ok((key.to_owned(), endpoint.parse().ok()))
}

/// What WireGuard's tool says.
fn wg(arguments: &[&str]) -> Result<String, String> {
    let output = match Command::new("wg").args(arguments).env("PATH", PATH).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err("`wg` is not installed: apt install wireguard-tools".to_owned());
        }
        Err(error) => return Err(format!("wg: {error}")),
    };
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
}

/// Where it may be.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_peer_is_meant_and_of_several_the_one_that_is_named() {
        let one = "aaaa=\t[2001:db8::1]:51820\n";
        assert_eq!(choose(one, None), Ok(("aaaa=".to_owned(), "[2001:db8::1]:51820".parse().ok())));
        let two = "aaaa=\t(none)\nbbbb=\t192.0.2.1:7\n";
        assert!(choose(two, None).unwrap_err().contains("public_key"));
        assert_eq!(choose(two, Some("bbbb=")), Ok(("bbbb=".to_owned(), "192.0.2.1:7".parse().ok())));
        assert_eq!(choose(two, Some("aaaa=")), Ok(("aaaa=".to_owned(), None)));
        assert!(choose(two, Some("cccc=")).is_err() && choose("", None).is_err());
    }
}
