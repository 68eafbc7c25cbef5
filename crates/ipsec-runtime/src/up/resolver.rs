//! Which DNS servers this machine asks. The tunnel does not change them: it says where they are not those that a remote gives.

use std::net::IpAddr;
use std::path::Path;

/// What programs read.
const PROGRAMS: &str = "/etc/resolv.conf";
/// Whom systemd-resolved asks, where programs ask that.
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
/// Servers at most that are looked at: libc's own is three.
const MAX_SERVERS: usize = 16;

/// The servers that this machine asks.
pub(super) fn servers() -> Vec<IpAddr> {
    let read = |path: &str| parse(&std::fs::read_to_string(path).unwrap_or_default());
    let servers = read(PROGRAMS);
    // A server on this machine asks others: of this one it is known whom.
    match servers.iter().all(IpAddr::is_loopback) && Path::new(RESOLVED).exists() {
        true => read(RESOLVED),
        false => servers,
    }
}

/// Of resolv.conf(5).
fn parse(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        let without_zone = address.split_once('%').map_or(address, |(address, _)| address);
        without_zone.parse().ok()
    };
    text.lines().filter_map(server).take(MAX_SERVERS).collect()
}

/// What to say where some are asked past the tunnel.
pub(super) fn warning(tunnel: &str, given: &[IpAddr], past: &[IpAddr]) -> String {
    let join =
        |list: &[IpAddr], between: &str| list.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(between);
    format!(
        "names are asked of {}, past the tunnel and in clear, although the remote gives DNS servers: `resolvectl dns {tunnel} \
         {}` and `resolvectl domain {tunnel} '~.'`, or write them to {PROGRAMS}",
        join(past, ", "),
        join(given, " ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_file_are_found() {
        let text = "# nameserver 192.0.2.9\nsearch home\nnameserver 192.168.1.1\n nameserver\tfe80::1%eth0 # the router\n\
                    nameserver\nnameserver nonsense\noptions edns0\nnameserver ::1";
        let found: Vec<_> = parse(text).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, ["192.168.1.1", "fe80::1", "::1"]);
        assert_eq!(parse(&"nameserver ::1\n".repeat(1000)).len(), MAX_SERVERS);
    }

    #[test]
    fn a_warning_says_what_to_type() {
        let told = warning("laptop", &["10.9.0.1".parse().unwrap()], &["192.168.1.1".parse().unwrap()]);
        assert!(told.contains("`resolvectl dns laptop 10.9.0.1`"), "{told}");
        assert!(told.starts_with("names are asked of 192.168.1.1, past the tunnel"), "{told}");
    }
}
