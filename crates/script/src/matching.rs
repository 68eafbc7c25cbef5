//! The rule that says which packets a script gets (`--match`, `match =`), in the words of nft(8).
//!
//! All parts of a rule must hold:
//!
//! | words | what holds |
//! |---|---|
//! | `ip6 saddr PREFIX`, `ip6 daddr PREFIX`, the same with `ip` | the address is in the prefix |
//! | `meta l4proto tcp` (or `udp`, `icmp`, `icmpv6`, a number) | the transport protocol |
//! | `tcp dport 80`, `udp sport 1000-2000`, `th dport { 53, 80-90 }` | a port; `th` is either of TCP and UDP |
//! | `icmpv6 type 128`, `icmp type 8` | type of the message |
//! | `iif NAME`, `oif NAME` | interface that it came from, or goes to |

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use wire::protocol;

use crate::checksum::Layout;
use crate::packet::Packet;

/// Longest name of an interface in Linux (IFNAMSIZ, with the zero).
const MAX_INTERFACE: usize = 15;

/// What must hold of a packet. Parts that are not given hold of every packet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// IP version, 4 or 6.
    pub family: Option<u8>,
    /// Where the source address is.
    pub saddr: Option<IpNet>,
    /// Where the destination address is.
    pub daddr: Option<IpNet>,
    /// Transport protocol, behind extension headers.
    pub protocol: Option<u8>,
    /// Source port of TCP or UDP: in one of these, if there are some.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Destination port, likewise.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Type of an ICMP or ICMPv6 message; the protocol says which.
    pub icmp_type: Option<u8>,
    /// Interface that it came from.
    pub iif: Option<String>,
    /// Interface that it goes to.
    pub oif: Option<String>,
}

/// What is wrong with a rule, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct RuleError {
    /// First character of the word that is wrong, from 1; behind the end where one is missing.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Rule {
    /// Reads a rule; one without words holds of every packet.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut words = Words { words: words(text), next: 0, end: text.chars().count() + 1 };
        let mut rule = Self::default();
        while let Some(word) = words.take() {
            rule.part(word, &mut words)?;
        }
        Ok(rule)
    }

    fn part(&mut self, word: Word<'_>, words: &mut Words<'_>) -> Result<(), RuleError> {
        match word.text {
            "ip" | "ip6" => {
                let version = if word.text == "ip" { 4 } else { 6 };
                once(&mut self.family, version, word)?;
                let end = words.one_of(&["saddr", "daddr"])?;
                let prefix = words.value("a prefix, such as 2001:db8::/32")?;
                let place = if end.text == "saddr" { &mut self.saddr } else { &mut self.daddr };
                if place.is_some() {
                    return Err(end.wrong(format_args!("{} is given twice", end.text)));
                }
                *place = Some(prefix_of(prefix, version)?);
            }
            "meta" => {
                words.one_of(&["l4proto"])?;
                let name = words.value("a protocol: tcp, udp, icmp, icmpv6 or a number")?;
                once(&mut self.protocol, protocol_of(name)?, name)?;
            }
            "tcp" | "udp" | "th" => {
                if word.text != "th" {
                    once(&mut self.protocol, protocol_of(word)?, word)?;
                }
                let end = words.one_of(&["sport", "dport"])?;
                let ports =
                    if end.text == "sport" { &mut self.source_ports } else { &mut self.destination_ports };
                if !ports.is_empty() {
                    return Err(end.wrong(format_args!("{} is given twice", end.text)));
                }
                *ports = words.ports()?;
            }
            "icmp" | "icmpv6" => {
                once(&mut self.protocol, protocol_of(word)?, word)?;
                words.one_of(&["type"])?;
                let kind = words.value("a number from 0 to 255")?;
                let number = kind.text.parse().map_err(|_| kind.wrong("a type is a number from 0 to 255"))?;
                once(&mut self.icmp_type, number, kind)?;
            }
            "iif" | "oif" => {
                let name = words.value("the name of an interface")?;
                let text = name.text.trim_matches('"');
                let is_name = (1..=MAX_INTERFACE).contains(&text.len())
                    && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\"\\*".contains(&byte));
                if !is_name {
                    return Err(name.wrong("not the name of an interface"));
                }
                once(if word.text == "iif" { &mut self.iif } else { &mut self.oif }, text.to_owned(), word)?;
            }
            _ => {
                let known = "ip6, ip, meta, tcp, udp, th, icmpv6, icmp, iif or oif";
                return Err(word.wrong(format_args!("`{}` is not known here: {known}", word.text)));
            }
        }
        Ok(())
    }

    /// Whether it holds of a packet. Interfaces are not asked for: a packet does not know them.
    pub fn holds(&self, packet: &Packet) -> bool {
        let bytes = packet.bytes();
        let Some(layout) = Layout::of_frame(bytes) else { return *self == Self::default() };
        let (from, to) = layout.addresses();
        let (source, destination) = bytes[from..to].split_at((to - from) / 2);
        let within = |prefix: &Option<IpNet>, octets: &[u8]| {
            prefix.is_none_or(|prefix| address(octets).is_some_and(|address| prefix.contains(&address)))
        };
        let transport = layout.transport;
        let number = |at: usize| transport.and_then(|transport| bytes.get(transport.start + at).copied());
        let has_ports =
            transport.is_some_and(|transport| matches!(transport.protocol, protocol::TCP | protocol::UDP));
        let port = |ports: &[RangeInclusive<u16>], at: usize| {
            let port = || Some(u16::from_be_bytes([number(at)?, number(at + 1)?]));
            ports.is_empty()
                || has_ports && port().is_some_and(|port| ports.iter().any(|range| range.contains(&port)))
        };
        self.family.is_none_or(|family| family == layout.version)
            && within(&self.saddr, source)
            && within(&self.daddr, destination)
            && self.protocol.is_none_or(|wanted| packet.flow().is_some_and(|flow| flow.protocol == wanted))
            && port(&self.source_ports, 0)
            && port(&self.destination_ports, 2)
            && self.icmp_type.is_none_or(|kind| number(0) == Some(kind))
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
        _ => Some(<[u8; 16]>::try_from(octets).ok()?.into()),
    }
}

#[derive(Debug, Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    column: usize,
}

impl Word<'_> {
    fn wrong(self, message: impl ToString) -> RuleError {
        RuleError { column: self.column, message: message.to_string() }
    }
}

/// Words between spaces; braces and commas stand for themselves.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start: Option<(usize, usize)> = None;
    for (column, (at, character)) in text.char_indices().enumerate() {
        let alone = matches!(character, '{' | '}' | ',');
        if alone || character.is_whitespace() {
            if let Some((from, column)) = start.take() {
                words.push(Word { text: &text[from..at], column });
            }
            if alone {
                words.push(Word { text: &text[at..=at], column: column + 1 });
            }
        } else if start.is_none() {
            start = Some((at, column + 1));
        }
    }
    if let Some((from, column)) = start {
        words.push(Word { text: &text[from..], column });
    }
    words
}

struct Words<'a> {
    words: Vec<Word<'a>>,
    next: usize,
    end: usize,
}

impl<'a> Words<'a> {
    fn take(&mut self) -> Option<Word<'a>> {
        let word = self.words.get(self.next).copied()?;
        self.next += 1;
        Some(word)
    }

    fn value(&mut self, wanted: &str) -> Result<Word<'a>, RuleError> {
        let end = self.end;
        self.take().ok_or_else(|| RuleError { column: end, message: format!("{wanted} is missing") })
    }

    fn one_of(&mut self, known: &[&str]) -> Result<Word<'a>, RuleError> {
        let wanted = known.join(" or ");
        let word = self.value(&wanted)?;
        if known.contains(&word.text) {
            return Ok(word);
        }
        Err(word.wrong(format_args!("{wanted} is wanted, not `{}`", word.text)))
    }

    /// A port, a range, or several of these in braces.
    fn ports(&mut self) -> Result<Vec<RangeInclusive<u16>>, RuleError> {
        let first = self.value("a port")?;
        if first.text != "{" {
            return Ok(vec![range(first)?]);
        }
        let mut ports = Vec::new();
        loop {
            ports.push(range(self.value("a port")?)?);
            if self.one_of(&[",", "}"])?.text == "}" {
                return Ok(ports);
            }
        }
    }
}

fn range(word: Word<'_>) -> Result<RangeInclusive<u16>, RuleError> {
    let (first, last) = word.text.split_once('-').unwrap_or((word.text, word.text));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(word.wrong("a port is a number up to 65535, or two such as 80-90")),
    }
}

fn prefix_of(word: Word<'_>, version: u8) -> Result<IpNet, RuleError> {
    let prefix = word.text.parse::<IpNet>().or_else(|_| word.text.parse::<IpAddr>().map(IpNet::from));
    match prefix {
        Ok(prefix @ IpNet::V4(_)) if version == 4 => Ok(prefix.trunc()),
        Ok(prefix @ IpNet::V6(_)) if version == 6 => Ok(prefix.trunc()),
        _ => Err(word.wrong(format_args!("not an IPv{version} prefix, such as {}", example(version)))),
    }
}

const fn example(version: u8) -> &'static str {
    if version == 4 { "192.0.2.0/24" } else { "2001:db8::/32" }
}

fn protocol_of(word: Word<'_>) -> Result<u8, RuleError> {
    match word.text {
        "tcp" => Ok(protocol::TCP),
        "udp" => Ok(protocol::UDP),
        "icmp" => Ok(protocol::ICMPV4),
        "icmpv6" => Ok(protocol::ICMPV6),
        number => number
            .parse()
            .map_err(|_| word.wrong("a protocol is tcp, udp, icmp, icmpv6 or a number up to 255")),
    }
}

/// Sets what may be said several times, but not differently.
fn once<T: PartialEq>(place: &mut Option<T>, value: T, word: Word<'_>) -> Result<(), RuleError> {
    if place.as_ref().is_some_and(|known| *known != value) {
        return Err(
            word.wrong(format_args!("`{}` goes against what is before it: no packet is both", word.text))
        );
    }
    *place = Some(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::checksum::TransportChecksum;

    fn parse(text: &str) -> Rule {
        Rule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn words_of_nft_are_understood() {
        assert_eq!(parse(""), Rule::default());
        let rule = parse("ip6 saddr 2001:db8::1/32 ip6 daddr ::1 tcp dport { 80, 8000-8100 } iif eth0");
        assert_eq!(rule.family, Some(6));
        assert_eq!(rule.saddr, Some("2001:db8::/32".parse().unwrap()));
        assert_eq!(rule.daddr, Some("::1/128".parse().unwrap()));
        assert_eq!((rule.protocol, &rule.destination_ports[..]), (Some(6), &[80..=80, 8000..=8100][..]));
        assert_eq!(rule.iif.as_deref(), Some("eth0"));
        assert_eq!(parse("meta l4proto 47").protocol, Some(47));
        assert_eq!(parse("icmpv6 type 128").icmp_type, Some(128));
        assert_eq!(parse("th sport 1-2").source_ports, [1..=2]);
    }

    #[test]
    fn the_word_that_is_wrong_is_told() {
        for (text, column, part) in [
            ("ip6 addr ::1", 5, "saddr or daddr is wanted"),
            ("ip saddr ::1", 10, "not an IPv4 prefix"),
            ("ip saddr 10.0.0.1 ip6 daddr ::1", 19, "goes against"),
            ("tcp dport 80 udp dport 53", 14, "goes against"),
            ("tcp dport", 10, "a port is missing"),
            ("tcp dport 90-80", 11, "two such as"),
            ("tcp dport { 80 90 }", 16, ", or } is wanted"),
            ("dport 80", 1, "is not known here"),
            ("iif a/b", 5, "not the name"),
        ] {
            let error = Rule::parse(text).unwrap_err();
            assert_eq!((error.column, error.message.contains(part)), (column, true), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_holds_of_what_it_says() {
        let mut udp = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
        udp.extend([0x10, 0, 0, 53, 0, 8, 0, 0]);
        let packet = Packet::of_ip(&udp, TransportChecksum::Complete);
        for (text, holds) in [
            ("", true),
            ("udp dport 53", true),
            ("th dport { 1, 50-60 } ip saddr 192.0.2.0/24", true),
            ("udp sport 53", false),
            ("tcp dport 53", false),
            ("ip daddr 192.0.2.0/24", false),
            ("ip6 saddr ::/0", false),
        ] {
            assert_eq!(parse(text).holds(&packet), holds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z0-9{},:/. -]{0,60}") {
            if let Err(error) = Rule::parse(&text) {
                prop_assert!((1..=text.len() + 1).contains(&error.column));
            }
        }
    }
}
