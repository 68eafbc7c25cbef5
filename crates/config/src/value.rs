//! Values: from the text of one to what it means, or to what is wrong with it.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use classic::cipher::Cipher;
use classic::profile::Carry;
use ipnet::{IpNet, Ipv6Net};
use mt6d::config::{HOP_PREFIX_LENGTH, LANES, Padding, ROTATION};

use super::Mode;
use super::classic::KernelUse;
use super::document::Cover;

/// What is wrong with a value, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Written at the value.
    pub(super) label: String,
    pub(super) help: String,
}

fn problem<T>(label: impl Into<String>, help: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { label: label.into(), help: help.into() })
}

/// A duration such as `500ms`, `10s`, `1m` or `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let microseconds = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "" if !number.is_empty() => return Err(format!("a unit is missing: write {number}s for seconds")),
        _ => return Err("write a whole number and a unit, like 500ms, 10s, 1m or 1h".to_owned()),
    };
    let number = number.parse::<u64>().ok().and_then(|n| n.checked_mul(microseconds));
    number
        .map(Duration::from_micros)
        .ok_or_else(|| "write a smaller whole number and a unit, like 10s".to_owned())
}

/// The rotation interval.
pub(super) fn rotation(text: &str) -> Result<Duration, Problem> {
    in_range(text, "a rotation takes 1s to 1h")
}

/// How often something is sent at least.
pub(super) fn keepalive(text: &str) -> Result<Duration, Problem> {
    in_range(text, "a keepalive is 1s to 1h; 25s suits most firewalls")
}

/// How long to look for packets before sleeping.
pub(super) fn spin(text: &str) -> Result<Duration, Problem> {
    const HELP: &str = "write 0us to 1ms; 0us to sleep at once";
    match parse_duration(text) {
        Ok(duration) if duration <= Duration::from_millis(1) => Ok(duration),
        Ok(_) => problem("out of range", HELP),
        Err(_) => problem("not a duration", HELP),
    }
}

/// A number of whole seconds, as the classic profile counts.
pub(super) fn seconds(text: &str) -> Result<u32, Problem> {
    const HELP: &str = "write whole seconds, like 10s, 1m or 24h";
    match parse_duration(text) {
        Ok(duration) if duration.subsec_nanos() == 0 => {
            u32::try_from(duration.as_secs()).map_or_else(|_| problem("out of range", HELP), Ok)
        }
        Ok(_) => problem("not whole seconds", HELP),
        Err(help) => problem("not a duration", help),
    }
}

/// When keys of the classic profile are exchanged, in seconds; None is never.
pub(super) fn key_exchange(text: &str) -> Result<Option<u32>, Problem> {
    if text == "off" { Ok(None) } else { seconds(text).map(Some) }
}

/// The encryption of the classic profile.
pub(super) fn cipher(text: &str) -> Result<Option<Cipher>, Problem> {
    match text {
        "aes-256-cbc" => Ok(Some(Cipher::Aes256Cbc)),
        "aes-128-cbc" => Ok(Some(Cipher::Aes128Cbc)),
        "none" => Ok(None),
        _ => problem("not a cipher", r#"write "aes-256-cbc", "aes-128-cbc" or "none""#),
    }
}

/// How packets of a peer travel.
pub(super) fn carry(text: &str) -> Result<Carry, Problem> {
    match text {
        "encapsulate" => Ok(Carry::Encapsulate),
        "rewrite" => Ok(Carry::Rewrite),
        _ => problem("not a way to travel", r#"write "encapsulate" or "rewrite""#),
    }
}

/// Where packets of a peer of the classic profile are carried.
pub(super) fn kernel(text: &str) -> Result<KernelUse, Problem> {
    match text {
        "auto" => Ok(KernelUse::Auto),
        "off" => Ok(KernelUse::Off),
        "required" => Ok(KernelUse::Required),
        _ => problem("not a choice", r#"write "auto", "off" or "required""#),
    }
}

/// The true address of a protected host.
pub(super) fn host_address(text: &str) -> Result<Ipv6Addr, Problem> {
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Ok(address),
        Err(_) => problem("not an IPv6 address", r#"write the host's address, like "2001:db8:a::1""#),
    }
}

/// A MAC address.
pub(super) fn mac(text: &str) -> Result<[u8; 6], Problem> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2)).collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or_else(
        || problem("not a MAC address", r#"write six bytes in hexadecimal, like "00:ab:cd:11:22:01""#),
        Ok,
    )
}

fn in_range(text: &str, range: &str) -> Result<Duration, Problem> {
    match parse_duration(text) {
        Ok(duration) if ROTATION.contains(&duration) => Ok(duration),
        Ok(_) => problem("out of range", range),
        Err(help) => problem("not a duration", help),
    }
}

/// How many threads carry packets.
pub(super) fn threads(number: i64) -> Result<usize, Problem> {
    match usize::try_from(number) {
        Ok(threads @ 1..=16) => Ok(threads),
        _ => problem(
            "out of range",
            "1 to 16 threads carry packets; half as many as there are processors do well",
        ),
    }
}

/// A processor that there is.
pub(super) fn processor(number: i64) -> Result<usize, Problem> {
    match usize::try_from(number) {
        Ok(processor) if linux::process::processors().contains(&processor) => Ok(processor),
        _ => problem(
            "there is no such processor for this program",
            "`nproc` and `taskset -p $$` tell which there are",
        ),
    }
}

/// How many endpoints are in use at once.
pub(super) fn lanes(number: i64) -> Result<u8, Problem> {
    match u8::try_from(number) {
        Ok(lanes) if LANES.contains(&lanes) => Ok(lanes),
        _ => problem("out of range", "a peer has 1 to 16 lanes"),
    }
}

/// The padding policy.
pub(super) fn padding(text: &str) -> Result<Padding, Problem> {
    match text {
        "none" => Ok(Padding::None),
        "buckets" => Ok(Padding::Buckets),
        "full" => Ok(Padding::Full),
        _ => problem("not a padding policy", r#"write "none", "buckets" or "full""#),
    }
}

/// Whether what protected hosts and others say to each other passes.
pub(super) fn others(text: &str) -> Result<bool, Problem> {
    match text {
        "block" => Ok(false),
        "pass" => Ok(true),
        _ => problem("neither of the two", r#"write "block", or "pass", which shows the hosts' addresses"#),
    }
}

/// Datagrams of cover traffic per second.
pub(super) fn cover(value: &Cover) -> Result<u32, Problem> {
    let number = match value {
        Cover::Text(text) => text.parse().ok(),
        Cover::Number(number) => u32::try_from(*number).ok(),
    };
    number.map_or_else(
        || problem("not a number of datagrams per second", r#"write a whole number, like "50"; "0" is none"#),
        Ok,
    )
}

/// The tunnel's MTU.
pub(super) fn mtu(number: i64) -> Result<u16, Problem> {
    match u16::try_from(number) {
        Ok(mtu) if mtu >= 1280 => Ok(mtu),
        _ => problem(
            "out of range",
            "IPv6 needs 1280 bytes at least, 65535 are the most; without the key it follows the path",
        ),
    }
}

/// The name of a network interface, as the kernel takes it (and the path of a socket and of sysctls do).
pub(super) fn interface(name: &str) -> Result<String, Problem> {
    let fits = (1..=15).contains(&name.len());
    let plain = name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%'));
    if fits && plain && !matches!(name, "." | ".." | "all" | "default") {
        return Ok(name.to_owned());
    }
    problem(
        "not an interface name",
        "a name has 1 to 15 visible ASCII characters without / : % and is not \"all\" or \"default\"",
    )
}

/// A name that the user gives a peer.
pub(super) fn peer_name(name: &str) -> Result<String, Problem> {
    if (1..=64).contains(&name.chars().count()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return Ok(name.to_owned());
    }
    problem("not a name for a peer", "a name has 1 to 64 characters and no spaces")
}

/// A hopping prefix.
pub(super) fn hop_prefix(text: &str) -> Result<Ipv6Net, Problem> {
    let example = r#"write an IPv6 prefix, like "2001:db8:a1::/64""#;
    let Ok(prefix) = text.parse::<Ipv6Net>() else {
        return match text.parse::<Ipv6Addr>() {
            Ok(address) => problem("its length is missing", format!("write \"{address}/64\" if it is a /64")),
            Err(_) => problem("not an IPv6 prefix", example),
        };
    };
    if !HOP_PREFIX_LENGTH.contains(&prefix.prefix_len()) {
        return problem(
            "too short or too long",
            "a hopping prefix is a /32 to /112: shorter is nobody's, longer leaves too few addresses; /64 is usual",
        );
    }
    if prefix.trunc() != prefix {
        return problem("bits are set behind the prefix", format!("write \"{}\"", prefix.trunc()));
    }
    let first = prefix.network().segments()[0];
    if first & 0xff00 == 0xff00 || first & 0xffc0 == 0xfe80 {
        return problem("multicast or link-local", example);
    }
    Ok(prefix)
}

/// What kind of node.
pub(super) fn mode(text: &str) -> Result<Mode, Problem> {
    match text {
        "routed" => Ok(Mode::Routed),
        "transparent" => Ok(Mode::Transparent),
        "host" => Ok(Mode::Host),
        _ => problem(
            "not a mode",
            r#"write "routed" for a router, "transparent" for a gateway that hosts and router do not see, or "host" for one machine that protects itself"#,
        ),
    }
}

/// A prefix behind a peer, IPv6 or IPv4.
pub(super) fn inner_prefix(text: &str) -> Result<IpNet, Problem> {
    let prefix = network(text)?;
    if prefix.trunc() != prefix {
        return problem("bits are set behind the prefix", format!("write \"{}\"", prefix.trunc()));
    }
    Ok(prefix)
}

/// An address of the tunnel device.
pub(super) fn interface_address(text: &str) -> Result<IpNet, Problem> {
    let address = network(text)?;
    let unusable = match address.addr() {
        IpAddr::V6(a) => a.is_unspecified() || a.is_multicast() || a.is_loopback(),
        IpAddr::V4(a) => a.is_unspecified() || a.is_multicast() || a.is_loopback() || a.is_broadcast(),
    };
    if unusable {
        return problem("not an address of an interface", r#"write an address, like "2001:db8:a::1/128""#);
    }
    Ok(address)
}

fn network(text: &str) -> Result<IpNet, Problem> {
    text.parse::<IpNet>().or_else(|_| match text.parse::<IpAddr>() {
        Ok(address) => problem(
            "its length is missing",
            format!("write \"{}\" for this one address", IpNet::from(address)),
        ),
        Err(_) => problem("not a prefix", r#"write a prefix, like "2001:db8:b::/64" or "192.0.2.0/24""#),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        for (text, milliseconds) in
            [("500ms", 500), ("10s", 10_000), ("1m", 60_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)));
        }
        for text in
            ["", "s", "10", "1d", "1.5s", "-1s", " 1s", "99999999999999999999s", "9999999999999999999h"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_are_given_back_corrected() {
        let help = |result: Result<_, Problem>| result.unwrap_err().help;
        assert_eq!(help(hop_prefix("2001:db8:a1::1/64").map(drop)), "write \"2001:db8:a1::/64\"");
        assert_eq!(help(hop_prefix("2001:db8:a1::").map(drop)), "write \"2001:db8:a1::/64\" if it is a /64");
        assert_eq!(help(inner_prefix("192.0.2.1/24").map(drop)), "write \"192.0.2.0/24\"");
        assert_eq!(help(inner_prefix("192.0.2.1").map(drop)), "write \"192.0.2.1/32\" for this one address");
        for text in ["192.0.2.0/24", "ff02::/64", "fe80::/64", "2001:db8::/31", "2001:db8::/113", "", "x/64"]
        {
            assert!(hop_prefix(text).is_err(), "{text}");
        }
        for text in ["2001:db8::/32", "2001:db8::/112", "2001:db8:a1::/64"] {
            assert!(hop_prefix(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn processors_are_those_of_this_machine() {
        let here = linux::process::processors();
        assert!(here.iter().all(|number| processor(*number as i64) == Ok(*number)));
        for number in [-1, 100_000, i64::MAX] {
            assert!(processor(number).is_err() && threads(number).is_err(), "{number}");
        }
        assert_eq!(threads(16), Ok(16));
        assert!(threads(0).is_err());
    }

    #[test]
    fn interface_names() {
        for name in ["mt6d0", "eth0.100", "x", "fifteen-letters"] {
            assert!(interface(name).is_ok(), "{name}");
        }
        for name in ["", "sixteen-letters-", "a/b", "a b", "..", ".", "tun%d", "all", "é"] {
            assert!(interface(name).is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), number: i64) {
            let _ = (parse_duration(&text), hop_prefix(&text), inner_prefix(&text), interface_address(&text));
            let _ = (seconds(&text), key_exchange(&text), cipher(&text), host_address(&text), mac(&text));
            let _ = (interface(&text), peer_name(&text), padding(&text), cover(&Cover::Text(text)));
            let _ = (lanes(number), mtu(number), cover(&Cover::Number(number)));
            let _ = (threads(number), processor(number));
        }
    }
}
