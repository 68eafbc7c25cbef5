//! Values: from the text of one to what it means, or to what is wrong with it. What one section alone has is with it.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use mt6d::config::HOP_PREFIX_LENGTH;
use router::nat64::{NoPrefix, Prefix};

/// What is wrong with a value, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Written at the value.
    pub(crate) label: String,
    pub(crate) help: String,
}

pub(crate) fn problem<T>(label: impl Into<String>, help: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { label: label.into(), help: help.into() })
}

/// Why a text is no duration, and what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// A number alone, which this is.
    #[error("a unit is missing: write {0}s for seconds")]
    NoUnit(String),
    /// Anything else that is not a number and a unit.
    #[error("write a number and a unit, like 500ms, 10s, 1m or 1h")]
    Form,
    /// Longer than can be counted.
    #[error("write a smaller number and a unit, like 10s")]
    TooLong,
}

/// A duration such as `500ms`, `10s`, `1h` or `1h 30m`.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => DurationError::TooLong,
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            DurationError::NoUnit(text.to_owned())
        }
        _ => DurationError::Form,
    })
}

/// A duration that a key can have; `help` says which those are.
pub(crate) fn duration(text: &str, range: RangeInclusive<Duration>, help: &str) -> Result<Duration, Problem> {
    match parse_duration(text) {
        Ok(duration) if range.contains(&duration) => Ok(duration),
        Ok(_) => problem("out of range", help),
        Err(error) => problem("not a duration", error.to_string()),
    }
}

/// The true address of a protected host.
pub(crate) fn host_address(text: &str) -> Result<Ipv6Addr, Problem> {
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Ok(address),
        Err(_) => problem("not an IPv6 address", r#"write the host's address, like "2001:db8:a::1""#),
    }
}

/// A MAC address.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], Problem> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2)).collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or_else(
        || problem("not a MAC address", r#"write six bytes in hexadecimal, like "00:ab:cd:11:22:01""#),
        Ok,
    )
}

/// The tunnel's MTU.
pub(crate) fn mtu(number: i64) -> Result<u16, Problem> {
    match u16::try_from(number) {
        Ok(mtu) if mtu >= 1280 => Ok(mtu),
        _ => problem(
            "out of range",
            "write 1280, which IPv6 needs, to 65535; without the key it follows the path",
        ),
    }
}

/// The name of a network interface, as the kernel takes it (and the path of a socket and of sysctls do).
pub(crate) fn interface(name: &str) -> Result<String, Problem> {
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

/// The name of a tunnel: that of its interface, and of its socket among those of gateways and script hosts, which are known by
/// their names.
pub(crate) fn tunnel_name(name: &str) -> Result<String, Problem> {
    let is_kind = |kind| name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    if ["gateway", "scripts"].into_iter().any(is_kind) {
        return problem(
            "the name of another kind of daemon",
            "\"gateway\", \"scripts\" and names that begin with \"gateway-\" or \"scripts-\" are not for tunnels",
        );
    }
    interface(name)
}

/// A name that the user gives a peer.
pub(crate) fn peer_name(name: &str) -> Result<String, Problem> {
    if (1..=64).contains(&name.chars().count()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return Ok(name.to_owned());
    }
    problem("not a name for a peer", "a name has 1 to 64 characters and no spaces")
}

/// What is said where a hopping prefix is missing.
pub(crate) const HOP_PREFIX: &str = r#"the prefix to hop in, like "2001:db8:a1::/64""#;

/// A hopping prefix.
pub(crate) fn hop_prefix(text: &str) -> Result<Ipv6Net, Problem> {
    let example = r#"write an IPv6 prefix, like "2001:db8:a1::/64""#;
    let Ok(prefix) = text.parse::<Ipv6Net>() else {
        return match text.parse::<Ipv6Addr>() {
            Ok(address) => {
                problem("the prefix length is missing", format!("write \"{address}/64\" if it is a /64"))
            }
            Err(_) => problem("not an IPv6 prefix", example),
        };
    };
    if !HOP_PREFIX_LENGTH.contains(&prefix.prefix_len()) {
        return problem(
            "too short or too long",
            "write a prefix from /32 to /112, usually /64; a longer one has too few addresses",
        );
    }
    if prefix.trunc() != prefix {
        return problem("bits are set after the prefix", format!("write \"{}\"", prefix.trunc()));
    }
    let first = prefix.network().segments()[0];
    if first & 0xff00 == 0xff00 || first & 0xffc0 == 0xfe80 {
        return problem("multicast or link-local", example);
    }
    Ok(prefix)
}

/// A prefix behind a peer, IPv6 or IPv4.
pub(crate) fn inner_prefix(text: &str) -> Result<IpNet, Problem> {
    let prefix = network(text)?;
    if prefix.trunc() != prefix {
        return problem("bits are set after the prefix", format!("write \"{}\"", prefix.trunc()));
    }
    Ok(prefix)
}

/// What means something on a link or in a machine alone. A shorter prefix, such as a default route, may contain it.
const NOT_BEHIND_A_PEER: [(&str, &str); 7] = [
    ("fe80::/10", "link-local addresses"),
    ("169.254.0.0/16", "link-local addresses"),
    ("ff00::/8", "multicast addresses"),
    ("224.0.0.0/4", "multicast addresses"),
    ("::1/128", "each machine's own address"),
    ("127.0.0.0/8", "each machine's own addresses"),
    ("::/128", "nobody's address"),
];

/// A prefix of `allowed_ips`.
pub(crate) fn allowed_prefix(text: &str) -> Result<IpNet, Problem> {
    let prefix = inner_prefix(text)?;
    let contains = |own: &str| own.parse::<IpNet>().is_ok_and(|own| own.contains(&prefix));
    match NOT_BEHIND_A_PEER.iter().find(|(own, _)| contains(own)) {
        Some((_, what)) => problem(
            format!("{what}, to which no tunnel leads"),
            "list the networks behind the peer, by the addresses that their hosts are reached at from elsewhere",
        ),
        None => Ok(prefix),
    }
}

/// An address of the tunnel device.
pub(crate) fn interface_address(text: &str) -> Result<IpNet, Problem> {
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
            "the prefix length is missing",
            format!("write \"{}\" for this one address", IpNet::from(address)),
        ),
        Err(_) => problem("not a prefix", r#"write a prefix, like "2001:db8:b::/64" or "192.0.2.0/24""#),
    })
}

/// An IPv6 address.
pub(crate) fn ipv6_address(text: &str) -> Result<Ipv6Addr, Problem> {
    text.parse().or_else(|_| problem("not an IPv6 address", "write one like \"2001:db8::1\""))
}

/// An IPv6 prefix; `help` says what one looks like.
pub(crate) fn ipv6_prefix(text: &str, help: &str) -> Result<Ipv6Net, Problem> {
    match text.parse::<Ipv6Net>() {
        Ok(prefix) if prefix.trunc() != prefix => {
            problem("bits are set after the prefix", format!("write \"{}\"", prefix.trunc()))
        }
        Ok(prefix) => Ok(prefix),
        Err(_) => problem("not an IPv6 prefix", help),
    }
}

/// An IPv6 prefix that is routed somewhere.
pub(crate) fn routed_prefix(text: &str) -> Result<Ipv6Net, Problem> {
    ipv6_prefix(text, "write a prefix, like \"2001:db8:100::/56\"")
}

/// Where a translator finds IPv4 addresses.
pub(crate) fn nat64_prefix(text: &str) -> Result<Prefix, Problem> {
    const HELP: &str = "write a prefix of 96, 64, 56, 48, 40 or 32 bits, like \"64:ff9b::/96\" or \"2001:db8:0:64::/96\" (RFC 6052)";
    match Prefix::new(ipv6_prefix(text, HELP)?) {
        Ok(found) => Ok(found),
        Err(NoPrefix::Length) => problem("not a length that translators have", HELP),
        Err(NoPrefix::ReservedBits) => problem("bits 64 to 71 have to be zero (RFC 6052)", HELP),
        Err(NoPrefix::OtherUse) => problem("such addresses are no translator's", HELP),
    }
}

/// A number with one of these units, in what each of them stands for.
pub(crate) fn measure(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, worth)| {
        let number = text.strip_suffix(unit)?.trim_end();
        let is_plain = number.starts_with(|c: char| c.is_ascii_digit()) && !number.contains(['e', 'E']);
        number.parse::<f64>().ok().filter(|_| is_plain).map(|number| number * worth)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("1m", 60_000),
            ("1h", 3_600_000),
            ("1h 30m", 5_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)));
        }
        assert_eq!(parse_duration("10"), Err(DurationError::NoUnit("10".into())));
        for text in ["", "s", "-1s", "1x", "99999999999999999999s", "9999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_tunnel_is_called_as_the_sockets_of_others_are() {
        for taken in ["gateway", "scripts", "gateway-1", "scripts-", "gateway-home", "no name", ""] {
            assert!(tunnel_name(taken).is_err(), "{taken}");
        }
        for free in ["mt6d0", "gateways", "my-gateway", "script-1"] {
            assert_eq!(tunnel_name(free).unwrap(), free);
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
            let _ = (host_address(&text), mac(&text), interface(&text), peer_name(&text), mtu(number));
        }
    }
}
