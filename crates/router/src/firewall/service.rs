//! Services: protocols, ports and ICMP types, from text.
//!
//! | written | is |
//! |---|---|
//! | `tcp/443`, `udp/8000-8010` | a port or a range of ports; also of `sctp`, `dccp` and `udplite` |
//! | `tcp`, `gre`, `proto/47` | all of a protocol |
//! | `icmpv6/echo-request`, `icmpv6/1`, `icmpv6/1/4` | a type, by name or number, and a code |
//! | `ssh`, `https`, `dns` | a name of [`WELL_KNOWN`] |
//!
//! Extension headers are none: a rule is about what comes behind them. What an authentication header protects is not
//! looked at: the packet is of the protocol `ah`, as for the kernel.

use std::fmt;
use std::str::FromStr;

use super::address::Family;

/// Protocol numbers (IANA "Assigned Internet Protocol Numbers").
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// IPv4 inside of another packet (RFC 2473).
    pub const IPV4: u8 = 4;
    /// IPv6 inside of another packet (RFC 4213).
    pub const IPV6: u8 = 41;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP (RFC 4340).
    pub const DCCP: u8 = 33;
    /// Encapsulating Security Payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication Header (RFC 4302).
    pub const AH: u8 = 51;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// Mobility Header (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite (RFC 3828).
    pub const UDPLITE: u8 = 136;
    /// Host Identity Protocol (RFC 7401).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533).
    pub const SHIM6: u8 = 140;
}

use protocol::{AH, DCCP, ESP, HIP, ICMP, ICMPV6, MOBILITY, SCTP, SHIM6, TCP, UDP, UDPLITE};

const PROTOCOLS: [(&str, u8); 18] = [
    ("tcp", TCP),
    ("udp", UDP),
    ("sctp", SCTP),
    ("dccp", DCCP),
    ("udplite", UDPLITE),
    ("icmpv6", ICMPV6),
    ("icmp", ICMP),
    ("esp", ESP),
    ("ah", AH),
    ("gre", 47),
    ("ipip", 4),
    ("6in4", 41),
    ("ospf", 89),
    ("vrrp", 112),
    ("hip", HIP),
    ("mobility", MOBILITY),
    ("shim6", SHIM6),
    ("igmp", 2),
];

/// Names of ICMPv6 types (IANA "ICMPv6 Parameters").
const ICMPV6_TYPES: [(&str, u8); 26] = [
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-query", 130),
    ("mld-report", 131),
    ("mld-done", 132),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbor-solicitation", 135),
    ("neighbor-advertisement", 136),
    ("redirect", 137),
    ("router-renumbering", 138),
    ("node-information-query", 139),
    ("node-information-response", 140),
    ("inverse-neighbor-solicitation", 141),
    ("inverse-neighbor-advertisement", 142),
    ("mld2-report", 143),
    ("home-agent-discovery-request", 144),
    ("home-agent-discovery-reply", 145),
    ("mobile-prefix-solicitation", 146),
    ("mobile-prefix-advertisement", 147),
    ("certification-path-solicitation", 148),
    ("certification-path-advertisement", 149),
];

const ICMP_TYPES: [(&str, u8); 5] = [
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("echo-request", 8),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
];

/// Services with a name.
pub const WELL_KNOWN: [(&str, &[&str]); 40] = [
    ("ssh", &["tcp/22"]),
    ("telnet", &["tcp/23"]),
    ("smtp", &["tcp/25"]),
    ("submission", &["tcp/587"]),
    ("submissions", &["tcp/465"]),
    ("dns", &["udp/53", "tcp/53"]),
    ("dns-over-tls", &["tcp/853"]),
    ("dhcp", &["udp/67-68"]),
    ("dhcpv6", &["udp/546-547"]),
    ("tftp", &["udp/69"]),
    ("http", &["tcp/80"]),
    ("https", &["tcp/443", "udp/443"]),
    ("kerberos", &["tcp/88", "udp/88"]),
    ("pop3", &["tcp/110"]),
    ("pop3s", &["tcp/995"]),
    ("ntp", &["udp/123"]),
    ("imap", &["tcp/143"]),
    ("imaps", &["tcp/993"]),
    ("snmp", &["udp/161"]),
    ("bgp", &["tcp/179"]),
    ("ldap", &["tcp/389"]),
    ("ldaps", &["tcp/636"]),
    ("smb", &["tcp/445"]),
    ("ike", &["udp/500", "udp/4500"]),
    ("ipsec", &["udp/500", "udp/4500", "esp", "ah"]),
    ("syslog", &["udp/514"]),
    ("ipp", &["tcp/631"]),
    ("openvpn", &["udp/1194", "tcp/1194"]),
    ("mqtt", &["tcp/1883"]),
    ("mqtts", &["tcp/8883"]),
    ("nfs", &["tcp/2049"]),
    ("mysql", &["tcp/3306"]),
    ("rdp", &["tcp/3389", "udp/3389"]),
    ("postgresql", &["tcp/5432"]),
    ("sip", &["udp/5060", "tcp/5060"]),
    ("sips", &["tcp/5061"]),
    ("mdns", &["udp/5353"]),
    ("wireguard", &["udp/51820"]),
    ("ping", &["icmpv6/echo-request", "icmp/echo-request"]),
    ("traceroute", &["udp/33434-33534"]),
];

/// What a rule says of the upper-layer protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// All of a protocol.
    Protocol(u8),
    /// Destination ports from the first to the last.
    Ports(u8, u16, u16),
    /// A type of ICMP or ICMPv6, and a code, or all of them.
    Icmp(Family, u8, Option<u8>),
}

/// Why a text is no service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// No such protocol or name.
    #[error("not a protocol: tcp, udp, icmpv6, esp … or proto/0 to proto/255")]
    Protocol,
    /// What follows the protocol is no port, or it has no ports.
    #[error("ports of tcp, udp, sctp, dccp and udplite are 0 to 65535, a range is 8000-8010")]
    Port,
    /// What follows `icmpv6` or `icmp` is no type.
    #[error("a type is a name like echo-request or a number, with a code after it if need be: icmpv6/1/4")]
    IcmpType,
    /// A header that stands before the upper-layer protocol.
    #[error("an extension header, and rules match what follows those")]
    ExtensionHeader,
}

/// The services of that name in [`WELL_KNOWN`].
#[must_use]
pub fn well_known(name: &str) -> Option<Vec<Service>> {
    let (_, texts) = WELL_KNOWN.iter().find(|(known, _)| *known == name)?;
    texts.iter().map(|text| text.parse().ok()).collect()
}

/// Number of a protocol with a name, or written `proto/47`.
#[must_use]
pub fn protocol_number(text: &str) -> Option<u8> {
    match text.strip_prefix("proto/") {
        Some(number) => number.parse().ok(),
        None => by_name(&PROTOCOLS, text),
    }
}

/// Name of a protocol, `proto/N` where it has none.
#[must_use]
pub fn protocol_name(number: u8) -> String {
    by_number(&PROTOCOLS, number).map_or_else(|| format!("proto/{number}"), str::to_owned)
}

/// Number of an ICMP type of the family, by name or number.
#[must_use]
pub fn icmp_type(family: Family, text: &str) -> Option<u8> {
    by_name(icmp_types(family), text).or_else(|| text.parse().ok())
}

/// Whether the protocol's header begins with ports.
#[must_use]
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP | DCCP | UDPLITE)
}

fn icmp_types(family: Family) -> &'static [(&'static str, u8)] {
    if family == Family::V4 { &ICMP_TYPES } else { &ICMPV6_TYPES }
}

fn by_name(table: &[(&str, u8)], text: &str) -> Option<u8> {
    table.iter().find(|(name, _)| *name == text).map(|(_, number)| *number)
}

fn by_number<'a>(table: &[(&'a str, u8)], wanted: u8) -> Option<&'a str> {
    table.iter().find(|(_, number)| *number == wanted).map(|(name, _)| *name)
}

impl Service {
    /// The protocol's number.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        match *self {
            Service::Protocol(protocol) | Service::Ports(protocol, ..) => protocol,
            Service::Icmp(Family::V4, ..) => ICMP,
            Service::Icmp(Family::V6, ..) => ICMPV6,
        }
    }

    /// The family that alone has it.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        match self.protocol() {
            ICMP => Some(Family::V4),
            ICMPV6 => Some(Family::V6),
            _ => None,
        }
    }
}

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let (name, rest) = match text.split_once('/') {
            Some(("proto", _)) | None => (text, None),
            Some((name, rest)) => (name, Some(rest)),
        };
        if matches!(name, "proto/0" | "proto/43" | "proto/44" | "proto/60") {
            return Err(ServiceError::ExtensionHeader);
        }
        let protocol = protocol_number(name).ok_or(ServiceError::Protocol)?;
        let Some(rest) = rest else { return Ok(Service::Protocol(protocol)) };
        if matches!(protocol, ICMP | ICMPV6) {
            let family = if protocol == ICMP { Family::V4 } else { Family::V6 };
            let (kind, code) = rest.split_once('/').map_or((rest, None), |(kind, code)| (kind, Some(code)));
            let code = code.map(str::parse).transpose().map_err(|_| ServiceError::IcmpType)?;
            let kind = icmp_type(family, kind).ok_or(ServiceError::IcmpType)?;
            return Ok(Service::Icmp(family, kind, code));
        }
        let (first, last) = rest.split_once('-').unwrap_or((rest, rest));
        let port = |text: &str| text.parse::<u16>().map_err(|_| ServiceError::Port);
        let (first, last) = (port(first)?, port(last)?);
        if !has_ports(protocol) || first > last {
            return Err(ServiceError::Port);
        }
        Ok(Service::Ports(protocol, first, last))
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&protocol_name(self.protocol()))?;
        match *self {
            Service::Protocol(_) => Ok(()),
            Service::Ports(_, first, last) if first == last => write!(f, "/{first}"),
            Service::Ports(_, first, last) => write!(f, "/{first}-{last}"),
            Service::Icmp(family, kind, code) => {
                match by_number(icmp_types(family), kind) {
                    Some(name) => write!(f, "/{name}")?,
                    None => write!(f, "/{kind}")?,
                }
                code.map_or(Ok(()), |code| write!(f, "/{code}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_well_known_service_can_be_read() {
        for (name, texts) in WELL_KNOWN {
            assert_eq!(well_known(name).map(|services| services.len()), Some(texts.len()), "{name}");
        }
    }

    #[test]
    fn services_are_written_as_they_are_read() {
        for text in [
            "tcp/443",
            "udp/8000-8010",
            "tcp",
            "gre",
            "proto/253",
            "icmpv6/echo-request",
            "icmpv6/99",
            "icmpv6/destination-unreachable/4",
            "icmp/echo-request",
            "6in4",
        ] {
            assert_eq!(text.parse::<Service>().unwrap().to_string(), text);
        }
        assert_eq!("proto/6".parse::<Service>(), Ok(Service::Protocol(TCP)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, error) in [
            ("htttp", ServiceError::Protocol),
            ("proto/256", ServiceError::Protocol),
            ("tcp/", ServiceError::Port),
            ("tcp/2-1", ServiceError::Port),
            ("esp/5", ServiceError::Port),
            ("icmpv6/echo", ServiceError::IcmpType),
            ("icmpv6/1/x", ServiceError::IcmpType),
            ("proto/43", ServiceError::ExtensionHeader),
        ] {
            assert_eq!(text.parse::<Service>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}|(tcp|icmpv6|proto|esp)/[0-9/-]{0,12}") {
            let _ = text.parse::<Service>();
        }
    }
}
