//! A packet as the firewall sees it, and how one is written in words.
//!
//! ```text
//! tcp from 2a02:8100:1::5 to 2a00:1450::1 port 22 in lan
//! udp from 2001:db8::1 port 5353 to 2001:db8:1::5 port 53 in guest out wan established
//! icmpv6/echo-request from 2a00:1450::1 to 2a02:8100:1::5 in wan out lan
//! tcp from 203.0.113.9 to fibre port 443 in guest
//! ```
//!
//! | word | says |
//! |---|---|
//! | first | the upper-layer protocol, for ICMP with its type |
//! | `from ADDRESS`, `to ADDRESS` | source and destination, also by the name of a host that has its address from the gateway; `to gateway` is an address of this machine, `to fibre` the one that it has at an uplink with a forward |
//! | `port N` | source port behind `from`, destination port behind `to` |
//! | `in ZONE`, `out ZONE` | where it comes from, where it goes; names of interfaces do as well |
//! | `new`, `established`, `related`, `invalid` | the state of its connection, new unless said |
//! | `hop-limit N` | 64 unless said, 255 and 1 for messages of the link |
//! | `spoofed` | its source is not routed back to where it came from |
//! | `routing-header-0`, `incomplete` | it has that header; it is a first fragment without its upper-layer header |
//! | `above-rate` | rules with a rate have had enough |
//! | `at mon 09:30` | when |

use std::net::{IpAddr, Ipv6Addr};

use super::address::Family;
use super::policy::{GATEWAY, Policy, Trust, ZoneRef};
use super::schedule::{DAYS, Moment, minute_of_day};
use super::service::{self, Service, protocol};

/// State of a connection, as conntrack has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// The first packet of a connection, or one without a connection.
    #[default]
    New,
    /// Of a connection that was seen in both directions.
    Established,
    /// An error about a connection, or one that belongs to another.
    Related,
    /// Of no connection that there can be.
    Invalid,
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The zone that it comes from, or the gateway that sends it.
    pub from: ZoneRef,
    /// The zone that it goes to, or the gateway.
    pub to: ZoneRef,
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the source's family.
    pub destination: IpAddr,
    /// The upper-layer protocol.
    pub protocol: u8,
    /// Source and destination port, where the protocol has ports.
    pub ports: (u16, u16),
    /// ICMP type and code, where it is that.
    pub icmp: (u8, u8),
    /// IPv6 hop limit, IPv4 time to live.
    pub hop_limit: u8,
    /// Of its connection.
    pub state: State,
    /// Its source is routed elsewhere: not back through where it came from, or for a zone outside, to an inner one.
    pub spoofed: bool,
    /// It has a routing header of type 0 (RFC 5095).
    pub routing_header_0: bool,
    /// It is a first fragment that ends before its upper-layer header (RFC 7112).
    pub incomplete: bool,
    /// Rules with a rate have had enough.
    pub above_rate: bool,
    /// When; None asks about all rules as if their schedules held.
    pub moment: Option<Moment>,
    /// A host behind the gateway has asked for it (`port_mapping`).
    pub mapped: bool,
    /// Of the policy's forwards the one that has given it its destination; the packet is as it goes on.
    pub forward: Option<usize>,
}

/// Why words are no packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordsError {
    /// The first word is no protocol.
    #[error("`{0}` is not a protocol: begin with tcp, udp, icmpv6/echo-request, esp, proto/47 …")]
    Protocol(String),
    /// A word is not known here.
    #[error(
        "`{0}` is not understood; known are from, to, port, in, out, new, established, related, invalid, hop-limit, spoofed, routing-header-0, incomplete, above-rate, mapped, at"
    )]
    Word(String),
    /// What follows a word is not what it needs.
    #[error("`{0}` needs {1} after it")]
    Value(&'static str, &'static str),
    /// A part is missing.
    #[error("{0} is missing: {1}")]
    Missing(&'static str, &'static str),
    /// Addresses of two families.
    #[error("source and destination are of different families")]
    Families,
    /// Neither a zone nor an interface.
    #[error("`{0}` is neither a zone nor an interface of one that contains the address: there are {1}")]
    Zone(String, String),
    /// It may leave in several ways.
    #[error("where does it go? write `out ZONE` (there are {0}) or `to gateway`")]
    Out(String),
}

impl Packet {
    /// A packet of this protocol with nothing special about it.
    #[must_use]
    pub fn new(from: ZoneRef, to: ZoneRef, source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        Packet {
            from,
            to,
            source,
            destination,
            protocol,
            ports: (0, 0),
            icmp: (0, 0),
            hop_limit: 64,
            state: State::New,
            spoofed: false,
            routing_header_0: false,
            incomplete: false,
            above_rate: false,
            moment: None,
            mapped: false,
            forward: None,
        }
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.source)
    }

    /// Whether it is of the service.
    #[must_use]
    pub fn is(&self, service: &Service) -> bool {
        if service.protocol() != self.protocol || service.family().is_some_and(|f| f != self.family()) {
            return false;
        }
        match *service {
            Service::Protocol(_) => true,
            Service::Ports(_, first, last) => (first..=last).contains(&self.ports.1),
            Service::Icmp(_, kind, code) => {
                self.icmp.0 == kind && code.is_none_or(|code| code == self.icmp.1)
            }
        }
    }

    /// Reads a packet from words.
    ///
    /// # Errors
    /// The first word that cannot be understood, or what is missing.
    pub fn parse(words: &str, policy: &Policy) -> Result<Self, WordsError> {
        Words::read(words)?.packet(policy)
    }
}

/// Words of a packet with addresses in the place of names of hosts behind `from` and `to`, as far as `addresses` knows them.
/// What means something already stays. Of a host's addresses it is the first of the IP version that both ends have.
#[must_use]
pub fn with_addresses(words: &str, addresses: impl Fn(&str) -> Vec<IpAddr>) -> String {
    let mut before = "";
    let known = words.split_whitespace().map(|word| {
        let is_end = matches!(std::mem::replace(&mut before, word), "from" | "to") && word != GATEWAY;
        let known = match word.parse() {
            _ if !is_end => Vec::new(),
            Ok(address) => vec![address],
            Err(_) => addresses(word),
        };
        (word, known)
    });
    let known: Vec<(&str, Vec<IpAddr>)> = known.collect();
    let of = |known: &[IpAddr], family| known.iter().copied().find(|address| Family::of(*address) == family);
    let have_all =
        |family: &Family| known.iter().all(|(_, known)| known.is_empty() || of(known, *family).is_some());
    let family = [Family::V4, Family::V6].into_iter().find(have_all);
    let replaced = known.iter().map(|(word, known)| {
        let address = family.and_then(|family| of(known, family)).or(known.first().copied());
        address.map_or_else(|| (*word).to_owned(), |address| address.to_string())
    });
    replaced.collect::<Vec<_>>().join(" ")
}

/// What the words say, before it is known what is missing.
#[derive(Default)]
struct Words<'w> {
    protocol: u8,
    icmp: Option<(Family, u8, u8)>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    to_gateway: bool,
    to_uplink: Option<&'w str>,
    ports: (u16, u16),
    places: (Option<&'w str>, Option<&'w str>),
    hop_limit: Option<u8>,
    state: State,
    flags: [bool; 5],
    moment: Option<Moment>,
}

const TO: WordsError = WordsError::Value("to", "an address or `gateway`");

const FLAGS: [&str; 5] = ["spoofed", "routing-header-0", "incomplete", "above-rate", "mapped"];

impl<'w> Words<'w> {
    fn read(text: &'w str) -> Result<Self, WordsError> {
        let mut words = text.split_whitespace();
        let mut said = Words::default();
        let first = words.next().unwrap_or("");
        match first.parse() {
            Ok(Service::Icmp(family, kind, code)) => said.icmp = Some((family, kind, code.unwrap_or(0))),
            Ok(Service::Ports(_, _, port)) => said.ports.1 = port,
            Ok(Service::Protocol(protocol::ICMP)) => said.icmp = Some((Family::V4, 8, 0)),
            Ok(Service::Protocol(protocol::ICMPV6)) => said.icmp = Some((Family::V6, 128, 0)),
            Ok(Service::Protocol(_)) => {}
            Err(_) => return Err(WordsError::Protocol(first.to_owned())),
        }
        said.protocol = first.parse().map_or(0, |service: Service| service.protocol());
        let mut behind_from = false;
        while let Some(word) = words.next() {
            match word {
                "from" => {
                    said.source = Some(value(words.next(), "from", "an address")?);
                    behind_from = true;
                }
                "to" => {
                    behind_from = false;
                    match words.next() {
                        Some(GATEWAY) => said.to_gateway = true,
                        Some(word) => match word.parse() {
                            Ok(address) => said.destination = Some(address),
                            Err(_) => said.to_uplink = Some(word),
                        },
                        None => return Err(TO),
                    }
                }
                "port" => {
                    let port = value(words.next(), "port", "a number up to 65535")?;
                    *(if behind_from { &mut said.ports.0 } else { &mut said.ports.1 }) = port;
                }
                "in" => said.places.0 = Some(words.next().ok_or(WordsError::Value("in", "a zone"))?),
                "out" => said.places.1 = Some(words.next().ok_or(WordsError::Value("out", "a zone"))?),
                "hop-limit" => {
                    said.hop_limit = Some(value(words.next(), "hop-limit", "a number up to 255")?);
                }
                "at" => {
                    let when = moment(words.next(), words.next());
                    said.moment =
                        Some(when.ok_or(WordsError::Value("at", "a day and a time: at mon 09:30"))?);
                }
                "new" => said.state = State::New,
                "established" => said.state = State::Established,
                "related" => said.state = State::Related,
                "invalid" => said.state = State::Invalid,
                other => match FLAGS.iter().position(|flag| *flag == other) {
                    Some(flag) => said.flags[flag] = true,
                    None => return Err(WordsError::Word(other.to_owned())),
                },
            }
        }
        Ok(said)
    }

    fn packet(mut self, policy: &Policy) -> Result<Packet, WordsError> {
        if let Some(name) = self.to_uplink {
            let mut uplinks = policy.settings().forwards.iter().flat_map(|forward| &forward.uplinks);
            self.to_gateway |= uplinks.any(|through| through.name == name);
            if !self.to_gateway {
                return Err(TO);
            }
        }
        let source = self.source.ok_or(WordsError::Missing("the source", "from 2001:db8::1"))?;
        let local = match source {
            IpAddr::V4(_) => IpAddr::V4([127, 0, 0, 1].into()),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let destination = match self.destination {
            None if self.to_gateway => local,
            destination => {
                destination.ok_or(WordsError::Missing("the destination", "to 2001:db8::1, or to gateway"))?
            }
        };
        let families =
            [Some(Family::of(source)), Some(Family::of(destination)), self.icmp.map(|icmp| icmp.0)];
        if families.iter().flatten().any(|family| *family != Family::of(source)) {
            return Err(WordsError::Families);
        }
        let from =
            self.places.0.ok_or(WordsError::Missing("the zone it comes from", "in lan, or in gateway"))?;
        let from = place(policy, from, source)?;
        let forwarded = if self.to_gateway { self.forwarded(policy, from, source) } else { None };
        let (destination, forward) = match forwarded {
            Some((index, to, port, _)) => {
                self.ports.1 = port;
                (to, Some(index))
            }
            None => (destination, None),
        };
        let to = match (self.places.1, forwarded) {
            (Some(name), _) => place(policy, name, destination)?,
            (None, Some((.., zone))) => zone,
            (None, None) if self.to_gateway => ZoneRef::Gateway,
            (None, None) => {
                way_out(policy, from, destination).ok_or_else(|| WordsError::Out(names(policy)))?
            }
        };
        let icmp = self.icmp.map_or((0, 0), |(_, kind, code)| (kind, code));
        let of_the_link = matches!(self.icmp, Some((Family::V6, 133..=137 | 141 | 142 | 148 | 149, _)));
        let of_a_group = matches!(self.icmp, Some((Family::V6, 130..=132 | 143 | 151..=153, _)));
        let usual = if of_the_link {
            255
        } else if of_a_group {
            1
        } else {
            64
        };
        let [spoofed, routing_header_0, incomplete, above_rate, mapped] = self.flags;
        Ok(Packet {
            ports: if service::has_ports(self.protocol) { self.ports } else { (0, 0) },
            icmp,
            hop_limit: self.hop_limit.unwrap_or(usual),
            state: self.state,
            spoofed,
            routing_header_0,
            incomplete,
            above_rate,
            mapped,
            moment: self.moment,
            forward,
            ..Packet::new(from, to, source, destination, self.protocol)
        })
    }

    /// Which forward takes it, by index, and where it goes then. What comes from outside comes in by the uplink; hosts
    /// inside have named its address.
    fn forwarded(
        &self,
        policy: &Policy,
        from: ZoneRef,
        source: IpAddr,
    ) -> Option<(usize, IpAddr, u16, ZoneRef)> {
        let comes_in_by = |interface: &str| match from {
            ZoneRef::Zone(zone) => {
                let is_of_zone = policy.zones().get(zone)?.interfaces.iter().any(|name| name == interface);
                let named = self.places.0.filter(|name| policy.zone_named(name).is_none());
                Some(is_of_zone && named.is_none_or(|name| name == interface))
            }
            ZoneRef::Gateway => None,
        };
        let is_inside = matches!(policy.trust(from), Some(Trust::Inside | Trust::Guest));
        let mut forwards = policy.settings().forwards.iter().enumerate();
        forwards.find_map(|(index, forward)| {
            let is_meant = forward.uplinks.iter().any(|through| match self.to_uplink {
                Some(name) if is_inside => through.name == name,
                named => {
                    named.is_none_or(|name| through.name == name)
                        && comes_in_by(&through.interface) == Some(true)
                }
            });
            let port = forward.takes(source, self.protocol, self.ports.1).filter(|_| is_meant)?;
            let to = IpAddr::V4(forward.to);
            Some((index, to, port, policy.zone_of(&forward.towards, to)?))
        })
    }
}

fn value<T: std::str::FromStr>(
    text: Option<&str>,
    word: &'static str,
    what: &'static str,
) -> Result<T, WordsError> {
    text.and_then(|text| text.parse().ok()).ok_or(WordsError::Value(word, what))
}

fn moment(day: Option<&str>, time: Option<&str>) -> Option<Moment> {
    let day = DAYS.iter().position(|name| Some(*name) == day)?;
    let minute = minute_of_day(time?).filter(|minute| *minute < 1440)?;
    Some(Moment { day: u8::try_from(day).ok()?, minute })
}

fn place(policy: &Policy, name: &str, address: IpAddr) -> Result<ZoneRef, WordsError> {
    let place = policy.zone_named(name).or_else(|| policy.zone_of(name, address));
    place.ok_or_else(|| WordsError::Zone(name.to_owned(), with_interfaces(policy)))
}

fn names(policy: &Policy) -> String {
    policy.zone_refs().map(|place| policy.name(place)).collect::<Vec<_>>().join(", ")
}

fn with_interfaces(policy: &Policy) -> String {
    let zones = policy.zones().iter().map(|zone| format!("{} ({})", zone.name, zone.interfaces.join(", ")));
    zones.chain([GATEWAY.to_owned()]).collect::<Vec<_>>().join(", ")
}

/// Where a packet goes if nobody says: to the one zone that has its destination by name, otherwise outside, or to the
/// only other zone. From outside nothing is guessed: the destination may be inside or outside, and much differs.
fn way_out(policy: &Policy, from: ZoneRef, destination: IpAddr) -> Option<ZoneRef> {
    let zones = || policy.zones().iter().enumerate();
    let only = |mut zones: Vec<usize>| if zones.len() == 1 { zones.pop().map(ZoneRef::Zone) } else { None };
    let named = zones().filter(|(_, zone)| zone.networks.iter().any(|net| net.contains(&destination)));
    let named = only(named.map(|(index, _)| index).collect());
    if named.is_some() || policy.trust(from) == Some(Trust::Outside) {
        return named;
    }
    let outside = zones().filter(|(_, zone)| zone.trust == Trust::Outside);
    only(outside.map(|(index, _)| index).collect()).or_else(|| {
        only(zones().map(|(index, _)| index).filter(|index| from != ZoneRef::Zone(*index)).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::super::evaluate;
    use super::super::policy::{Rule, Settings, Verdict, Zone, ZoneSet};
    use super::*;
    use crate::forward::{Forward, Ports, Through};
    use proptest::prelude::*;

    fn policy() -> Policy {
        let zone = |name: &str, trust, interface: &str| Zone {
            name: name.to_owned(),
            trust,
            interfaces: vec![interface.to_owned()],
            networks: Vec::new(),
        };
        let zones = vec![
            zone("lan", Trust::Inside, "eth1"),
            zone("guest", Trust::Guest, "eth2"),
            zone("wan", Trust::Outside, "eth0"),
        ];
        Policy::new(zones, Vec::new(), Settings::default()).unwrap()
    }

    #[test]
    fn names_of_hosts_stand_for_their_addresses_behind_from_and_to_alone() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let known = |name: &str| match name {
            "printer" => vec![address("192.168.1.5")],
            "nas" => vec![address("192.168.1.6"), address("fd00::6"), address("2001:db8::6")],
            "camera" => vec![address("2001:db8::7")],
            _ => Vec::new(),
        };
        let shown = |words: &str| with_addresses(words, known);
        assert_eq!(
            shown("tcp from printer  to gateway port 53 in printer"),
            "tcp from 192.168.1.5 to gateway port 53 in printer"
        );
        assert_eq!(
            shown("tcp from 192.0.2.1 to printer out lan"),
            "tcp from 192.0.2.1 to 192.168.1.5 out lan"
        );
        assert_eq!(shown("tcp from unknown to fibre"), "tcp from unknown to fibre");
        // Both ends speak one version, if they can.
        assert_eq!(shown("tcp from printer to nas"), "tcp from 192.168.1.5 to 192.168.1.6");
        assert_eq!(shown("tcp from nas to gateway"), "tcp from 192.168.1.6 to gateway");
        assert_eq!(shown("tcp from nas to camera"), "tcp from fd00::6 to 2001:db8::7");
        assert_eq!(shown("tcp from 2001:db8:1::1 to nas"), "tcp from 2001:db8:1::1 to fd00::6");
        assert_eq!(shown("tcp from printer to camera"), "tcp from 192.168.1.5 to 2001:db8::7");
    }

    #[test]
    fn words_become_a_packet() {
        let packet =
            Packet::parse("tcp from 2001:db8::1 port 4000 to 2001:db8:1::5 port 22 in lan", &policy())
                .unwrap();
        assert_eq!((packet.from, packet.to), (ZoneRef::Zone(0), ZoneRef::Zone(2)));
        assert_eq!((packet.protocol, packet.ports, packet.state), (6, (4000, 22), State::New));
        let short = Packet::parse("udp/53 from 10.0.0.1 to gateway in eth2 at fri 23:59", &policy()).unwrap();
        assert_eq!((short.from, short.to, short.ports.1), (ZoneRef::Zone(1), ZoneRef::Gateway, 53));
        assert_eq!(short.moment, Some(Moment { day: 4, minute: 1439 }));
        let advertisement = "icmpv6/router-advertisement from fe80::1 to ff02::1 in wan out gateway";
        assert_eq!(Packet::parse(advertisement, &policy()).unwrap().hop_limit, 255);
    }

    #[test]
    fn what_a_host_has_asked_for_is_let_in_where_that_may_be() {
        let zones = ["lan", "wan", "guest"].map(|name| Zone {
            name: name.to_owned(),
            trust: match name {
                "lan" => Trust::Inside,
                "wan" => Trust::Outside,
                _ => Trust::Guest,
            },
            interfaces: vec![name.to_owned()],
            networks: Vec::new(),
        });
        let decided = |port_mapping, words: &str| {
            let settings = Settings { port_mapping, ..Settings::default() };
            let policy = Policy::new(zones.to_vec(), Vec::new(), settings).unwrap();
            evaluate(&policy, &Packet::parse(words, &policy).unwrap()).verdict
        };
        const WORDS: &str = "udp from 2a02:8100:9::1 to 2a02:8100:1::5 port 5000 in wan out";
        for (zone, more, verdict) in [
            ("lan", " mapped", Verdict::Accept),
            ("lan", "", Verdict::Drop),
            ("guest", " mapped", Verdict::Drop),
        ] {
            let words = format!("{WORDS} {zone}{more}");
            assert_eq!(decided(true, &words), verdict, "{words}");
            assert_eq!(decided(false, &words), Verdict::Drop, "{words}");
        }
    }

    #[test]
    fn what_is_forwarded_goes_on_to_the_host() {
        let forward = |name: &str, interface: &str, port: u16| Forward {
            name: name.to_owned(),
            uplinks: vec![Through { name: name.to_owned(), interface: interface.to_owned() }],
            ports: vec![Ports { protocol: protocol::TCP, first: port, last: port }],
            to: [192, 168, 1, 5].into(),
            to_port: Some(8443),
            towards: "eth1".to_owned(),
            sources: vec!["198.51.100.0/24".parse().unwrap(), "192.168.2.0/24".parse().unwrap()],
            log: false,
        };
        let forwards = vec![forward("fibre", "eth0", 443), forward("cable", "eth3", 444)];
        let mut zones = policy().zones().to_vec();
        zones[2].interfaces.push("eth3".to_owned());
        let rules =
            forwards.iter().map(|forward| Rule::of_forward(forward, ZoneSet::Any, ZoneSet::Any)).collect();
        let policy = Policy::new(zones, rules, Settings { forwards, ..Settings::default() }).unwrap();
        let decided = |words: &str| {
            let packet = Packet::parse(words, &policy).unwrap();
            (packet.forward, packet.to, packet.ports.1, evaluate(&policy, &packet).verdict)
        };
        let (lan, gateway) = (ZoneRef::Zone(0), ZoneRef::Gateway);
        let in_order = [
            ("tcp from 198.51.100.7 to gateway port 443 in wan", Some(0), lan, 8443, Verdict::Accept),
            ("tcp from 198.51.100.7 to gateway port 443 in eth0", Some(0), lan, 8443, Verdict::Accept),
            ("tcp from 198.51.100.7 to fibre port 443 in wan", Some(0), lan, 8443, Verdict::Accept),
            ("tcp from 192.168.2.9 to cable port 444 in guest", Some(1), lan, 8443, Verdict::Accept),
            // By the other uplink, from elsewhere, to another address or by another protocol it is for the gateway.
            ("tcp from 198.51.100.7 to gateway port 443 in eth3", None, gateway, 443, Verdict::Drop),
            ("tcp from 198.51.100.7 to cable port 443 in wan", None, gateway, 443, Verdict::Drop),
            ("tcp from 203.0.113.7 to gateway port 443 in wan", None, gateway, 443, Verdict::Drop),
            ("udp from 198.51.100.7 to gateway port 443 in wan", None, gateway, 443, Verdict::Drop),
            ("tcp from 192.168.2.9 to gateway port 443 in guest", None, gateway, 443, Verdict::Reject),
            // The host itself is not open.
            ("tcp from 198.51.100.7 to 192.168.1.5 port 8443 in wan out lan", None, lan, 8443, Verdict::Drop),
        ];
        for (words, forward, to, port, verdict) in in_order {
            assert_eq!(decided(words), (forward, to, port, verdict), "{words}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (words, says) in [
            ("", "`` is not a protocol"),
            ("tpc from ::1", "`tpc` is not a protocol"),
            ("tcp from ::1 ot ::2", "`ot` is not understood"),
            ("tcp from ::1 to ::2 port x", "`port` needs a number"),
            ("tcp to ::2 in lan", "the source is missing"),
            ("tcp from ::1 to ::2", "the zone it comes from is missing"),
            ("tcp from ::1 to 10.0.0.1 in lan", "different families"),
            ("icmp from ::1 to ::2 in lan", "different families"),
            ("tcp from ::1 to ::2 in lna", "there are lan (eth1), guest (eth2), wan (eth0), gateway"),
            ("tcp from ::1 to ::2 in wan", "where does it go?"),
            ("tcp from 2a00::1 to 2606:4700::1 port 443 in wan", "where does it go?"),
            ("tcp from ::1 to fibre in lan", "`to` needs an address or `gateway` after it"),
            ("tcp from ::1 to ::2 in lan at 09:00", "a day and a time"),
        ] {
            let error = Packet::parse(words, &policy()).unwrap_err().to_string();
            assert!(error.contains(says), "{words}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_words_panic(words in "((tcp|udp/5|icmpv6/1/2|from|to|port|in|out|at|mon|09:3|::1|1.2.3.4|lan|gateway|x|9|[0-9a-z:/]{1,6}) ?){0,12}|\\PC{0,60}") {
            let _ = Packet::parse(&words, &policy());
        }
    }
}
