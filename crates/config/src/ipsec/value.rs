//! Values of IPsec: from text to what it means, or to what is wrong with it.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ike::crypto::secret::Secret;
use ike::message::body::Identity;
use ipnet::IpNet;
use ipsec::level::Level;
use ipsec::selector::Upper;
use router::firewall::address::Family;
use router::firewall::service::{Service, has_ports};
use zeroize::Zeroizing;

use super::config::{Place, Start};
use super::document::{LevelValue, RangeValue};
use crate::value::{Problem, duration, problem};

/// The longest domain name (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

/// The longest part of a domain name between two dots.
const MAX_LABEL: usize = 63;

/// The longest identity, as IKE takes it.
const MAX_IDENTITY: usize = 256;

/// Longest key in the file: nobody writes more by hand.
const MAX_SHARED_KEY: usize = 4096;

/// An identity: an address, a mail address, a domain name, or `keyid:` and any text.
pub(super) fn identity(text: &str) -> Result<Identity, Problem> {
    const HELP: &str =
        r#"write a domain name like "a.example", a mail address, an IP address, or "keyid:" and any text"#;
    if text.len() > MAX_IDENTITY {
        return problem("too long", format!("an identity has {MAX_IDENTITY} characters at most"));
    }
    if let Some(bytes) = text.strip_prefix("keyid:") {
        return match bytes.is_empty() {
            true => problem("nothing behind keyid:", HELP),
            false => Ok(Identity::KeyId(bytes.as_bytes().to_vec())),
        };
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Identity::Address(address));
    }
    if let Some(name) = text.strip_prefix('@').filter(|name| is_domain_name(name)) {
        return problem("not an identity", format!("a name has no @ before it: write \"{name}\""));
    }
    if text.contains('=') {
        return problem(
            "distinguished names are not supported here",
            "use one of the names or addresses among the certificate's alternative names (subjectAltName)",
        );
    }
    match text.split_once('@') {
        Some((user, domain)) if is_user(user) && is_domain_name(domain) => {
            Ok(Identity::Email(text.to_owned()))
        }
        None if is_domain_name(text) => Ok(Identity::Fqdn(text.to_owned())),
        _ => problem("not an identity", HELP),
    }
}

fn is_user(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '@')
}

/// Whether it can be looked up; a part of digits alone at the end would be a misspelt address.
fn is_domain_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        (1..=MAX_LABEL).contains(&label.len()) && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_NAME && text.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where a remote is.
pub(super) fn place(text: &str) -> Result<Place, Problem> {
    match text.parse::<IpAddr>() {
        Ok(_) => address(text).map(Place::Address),
        Err(_) if is_domain_name(text) => Ok(Place::Name(text.to_owned())),
        Err(_) if text.parse::<std::net::SocketAddr>().is_ok() => {
            problem("a port is no part of an address", "write the port into `port` or `nat_port`")
        }
        Err(_) => problem(
            "not an address or host name",
            r#"write one like "192.0.2.1", "2001:db8::1" or "vpn.example""#,
        ),
    }
}

/// An address of a host.
pub(super) fn address(text: &str) -> Result<IpAddr, Problem> {
    const HELP: &str = r#"write one like "192.0.2.1" or "2001:db8::1""#;
    let Ok(address) = text.parse::<IpAddr>() else { return problem("not an IP address", HELP) };
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || mapped || link_local || broadcast {
        return problem("not an address that packets can come from on any link", HELP);
    }
    Ok(address)
}

/// A network, or one host.
pub(super) fn network(text: &str) -> Result<IpNet, Problem> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let Ok(net) = net else {
        return problem(
            "not a network",
            r#"write one like "2001:db8:b::/64" or "10.2.0.0/16", or the address of one host"#,
        );
    };
    if net.trunc() != net {
        return problem("bits are set after the prefix", format!("write \"{}\"", net.trunc()));
    }
    Ok(net)
}

/// A UDP port at this end, which may be any free one, or at another.
pub(super) fn port(number: i64, is_ours: bool) -> Result<u16, Problem> {
    match u16::try_from(number) {
        Ok(port) if port > 0 || is_ours => Ok(port),
        _ if is_ours => problem("not a port", "a port is 1 to 65535; 0 takes any free one"),
        _ => problem("not a port", "a port is 1 to 65535"),
    }
}

/// A level.
pub(super) fn level(value: &LevelValue) -> Result<Level, Problem> {
    let level = match value {
        LevelValue::Number(number) => u8::try_from(*number).ok().and_then(Level::from_number),
        LevelValue::Name(name) => match name.as_str() {
            "none" => Some(Level::None),
            "use" => Some(Level::Use),
            "require" => Some(Level::Require),
            "unique" => Some(Level::Unique),
            _ => None,
        },
    };
    level.map_or_else(
        || problem("not a level", r#"write "none", "use", "require" or "unique", or 0 to 3"#),
        Ok,
    )
}

/// The name of a level.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::None => "none",
        Level::Use => "use",
        Level::Require => "require",
        Level::Unique => "unique",
    }
}

/// When this end begins.
pub(super) fn start(text: &str) -> Result<Start, Problem> {
    match text {
        "always" => Ok(Start::Always),
        "traffic" => Ok(Start::Traffic),
        "wait" => Ok(Start::Wait),
        _ => problem("not a time to begin", r#"write "always", "traffic" or "wait""#),
    }
}

/// When there are new keys.
pub(super) fn rekey_after(text: &str) -> Result<Duration, Problem> {
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_hours(7 * 24);
    duration(text, RANGE, "write 10s to 7d; an hour is usual for children, four for IKE")
}

/// When a silent remote is asked.
pub(super) fn liveness_after(text: &str) -> Result<Duration, Problem> {
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);
    duration(text, RANGE, "write 1s to 1h; 30s is usual")
}

/// A protocol, or a kind of ICMP message.
pub(super) fn protocol(text: &str) -> Result<Upper, Problem> {
    const HELP: &str = r#"write "tcp", "udp", "icmpv6", "icmpv6/packet-too-big" … or a number: "proto/47""#;
    let all = 0..=u8::MAX;
    match text.parse::<Service>() {
        Ok(Service::Protocol(0)) => problem("not a protocol above IP", HELP),
        Ok(Service::Protocol(protocol)) => Ok(Upper::Protocol(protocol)),
        Ok(Service::Icmp(family, kind, code)) => Ok(Upper::Icmp {
            protocol: if family == Family::V4 { wire::protocol::ICMPV4 } else { wire::protocol::ICMPV6 },
            types: kind..=kind,
            codes: code.map_or(all, |code| code..=code),
        }),
        Ok(Service::Ports(..)) => {
            problem("ports have keys of their own", "write the protocol alone, and its ports in those")
        }
        Err(why) => problem(why.to_string(), HELP),
    }
}

/// Ports, as `443` or `"8000-8010"`.
pub(super) fn ports(value: &RangeValue) -> Result<RangeInclusive<u16>, Problem> {
    let (first, last) = match value {
        RangeValue::Number(number) => (u16::try_from(*number).ok(), u16::try_from(*number).ok()),
        RangeValue::Text(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            (first.trim().parse().ok(), last.trim().parse().ok())
        }
    };
    match (first, last) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => problem("not a range of ports", r#"write one port, or the first and the last: "8000-8010""#),
    }
}

/// A protocol with the ports of its two ends, where they are given.
pub(super) fn upper(
    protocol: Option<Upper>,
    source: Option<RangeInclusive<u16>>,
    destination: Option<RangeInclusive<u16>>,
) -> Result<Upper, Problem> {
    if source.is_none() && destination.is_none() {
        return Ok(protocol.unwrap_or(Upper::Any));
    }
    let all = 0..=u16::MAX;
    match protocol {
        Some(Upper::Protocol(protocol)) if has_ports(protocol) => Ok(Upper::Ports {
            protocol,
            source: source.unwrap_or(all.clone()),
            destination: destination.unwrap_or(all),
        }),
        Some(_) => problem("this protocol has no ports", r#"leave the ports out, or write "tcp" or "udp""#),
        None => problem("ports of no protocol", r#"add protocol = "tcp" or "udp""#),
    }
}

/// Whether packets of an IP version can be of this kind.
pub(super) fn fits_version(upper: &Upper, is_ipv6: bool) -> bool {
    match upper {
        Upper::Any => true,
        Upper::Protocol(protocol) | Upper::Ports { protocol, .. } | Upper::Icmp { protocol, .. } => {
            *protocol != if is_ipv6 { wire::protocol::ICMPV4 } else { wire::protocol::ICMPV6 }
        }
    }
}

/// A key that two ends share, in the forms of strongSwan's secrets.
pub(super) fn shared_key(text: &str) -> Result<Secret, Problem> {
    let text = text.trim_end_matches(['\r', '\n']);
    if text.len() > MAX_SHARED_KEY {
        return problem("too long", format!("a shared key has {MAX_SHARED_KEY} characters at most"));
    }
    let bytes = if let Some(digits) = text.strip_prefix("0x") {
        match from_hex(digits) {
            Some(bytes) => bytes,
            None => {
                return problem(
                    "not hexadecimal",
                    "write an even number of digits behind 0x, or make a key that does not begin so",
                );
            }
        }
    } else if let Some(encoded) = text.strip_prefix("0s") {
        match BASE64_STANDARD.decode(encoded) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(_) => {
                return problem(
                    "not base64",
                    "write base64 behind 0s, with the = at its end, or make a key that does not begin so",
                );
            }
        }
    } else {
        Zeroizing::new(text.as_bytes().to_vec())
    };
    if bytes.is_empty() {
        return problem("an empty key", "make one with: umask 077; sidestep genpsk > FILE");
    }
    Ok(Secret::new(bytes.to_vec()))
}

fn from_hex(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = digits.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in pairs {
        bytes.push(pair?);
    }
    Some(bytes)
}

/// An identity, as it stands in the file.
pub struct Shown<'a>(pub &'a Identity);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Identity::Address(address) => write!(f, "{address}"),
            Identity::Fqdn(name) | Identity::Email(name) => f.write_str(name),
            Identity::KeyId(bytes) => write!(f, "keyid:{}", bytes.escape_ascii()),
            Identity::DistinguishedName(_) => f.write_str("a distinguished name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn help<T>(result: Result<T, Problem>) -> String {
        match result {
            Ok(_) => panic!("it is taken"),
            Err(problem) => problem.help,
        }
    }

    #[test]
    fn identities_are_told_apart_by_their_form() {
        let of = |text: &str| identity(text).unwrap();
        assert_eq!(of("a.example"), Identity::Fqdn("a.example".into()));
        assert_eq!(of("gateway"), Identity::Fqdn("gateway".into()));
        assert_eq!(of("ann@a.example"), Identity::Email("ann@a.example".into()));
        assert_eq!(of("2001:db8::1"), Identity::Address("2001:db8::1".parse().unwrap()));
        assert_eq!(of("192.0.2.1"), Identity::Address("192.0.2.1".parse().unwrap()));
        assert_eq!(of("keyid:a b"), Identity::KeyId(b"a b".to_vec()));
        assert_eq!(help(identity("@a.example")), "a name has no @ before it: write \"a.example\"");
        for text in ["", "a b", "192.0.2.999", "keyid:", "a..example", "-a.example", "CN=a", "a@b@c", "@"] {
            assert!(identity(text).is_err(), "{text}");
        }
        assert!(identity(&"a".repeat(257)).is_err());
        for text in ["a.example", "ann@a.example", "2001:db8::1", "keyid:a b"] {
            assert_eq!(Shown(&of(text)).to_string(), text);
        }
    }

    #[test]
    fn shared_keys_are_those_of_strongswan() {
        let of = |text: &str| shared_key(text).unwrap().as_bytes().to_vec();
        assert_eq!(of("a secret of words\n"), b"a secret of words");
        assert_eq!(of("0x0aFf\n"), [0x0a, 0xff]);
        assert_eq!(of("0sAQID"), [1, 2, 3]);
        for text in ["", "\n", "0x", "0x123", "0xzz", "0x+1", "0s", "0s!", "0xé"] {
            assert!(shared_key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn places_are_addresses_or_names() {
        assert_eq!(place("192.0.2.1"), Ok(Place::Address("192.0.2.1".parse().unwrap())));
        assert_eq!(place("vpn.example"), Ok(Place::Name("vpn.example".into())));
        assert!(help(place("192.0.2.1:500")).contains("`port`"));
        for text in ["", "0.0.0.0", "ff02::1", "fe80::1", "fe80::1%eth0", "192.0.2.256", "::ffff:192.0.2.1"] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_may_be_hosts() {
        assert_eq!(network("10.2.0.0/16"), Ok("10.2.0.0/16".parse().unwrap()));
        assert_eq!(network("2001:db8::1"), Ok("2001:db8::1/128".parse().unwrap()));
        assert_eq!(help(network("10.2.0.1/16")), "write \"10.2.0.0/16\"");
    }

    #[test]
    fn levels_have_numbers_and_names() {
        for (number, name) in ["none", "use", "require", "unique"].into_iter().enumerate() {
            let by_name = level(&LevelValue::Name(name.into())).unwrap();
            assert_eq!(by_name, level(&LevelValue::Number(number as i64)).unwrap());
            assert_eq!(level_name(by_name), name);
        }
        for number in [-1, 4, i64::MAX] {
            assert!(level(&LevelValue::Number(number)).is_err());
        }
    }

    #[test]
    fn ports_belong_to_a_protocol() {
        let text = |text: &str| RangeValue::Text(text.to_owned());
        assert_eq!(ports(&RangeValue::Number(443)), Ok(443..=443));
        assert_eq!(ports(&text("1-1023")), Ok(1..=1023));
        for wrong in [text("2-1"), text("65536"), text("a"), text(""), RangeValue::Number(-1)] {
            assert!(ports(&wrong).is_err());
        }
        let tcp = protocol("tcp").unwrap();
        let web = Upper::Ports { protocol: 6, source: 0..=u16::MAX, destination: 443..=443 };
        assert_eq!(upper(Some(tcp), None, Some(443..=443)), Ok(web));
        assert!(upper(None, None, Some(443..=443)).is_err());
        assert!(upper(Some(protocol("esp").unwrap()), Some(1..=1), None).is_err());
        assert!(protocol("tcp/443").is_err() && protocol("tpc").is_err());
        let too_big = Upper::Icmp { protocol: 58, types: 2..=2, codes: 0..=255 };
        assert_eq!(protocol("icmpv6/packet-too-big"), Ok(too_big.clone()));
        assert!(fits_version(&too_big, true) && !fits_version(&too_big, false));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), number: i64) {
            let _ = (identity(&text), place(&text), network(&text), address(&text), protocol(&text));
            let _ = (shared_key(&text), start(&text), rekey_after(&text), liveness_after(&text));
            let _ = (ports(&RangeValue::Text(text)), ports(&RangeValue::Number(number)), port(number, true));
        }
    }
}
