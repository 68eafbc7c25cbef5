//! Random policies and packets that meet each other often: few hosts, few ports, many ways to name them.

use std::net::IpAddr;

use router::firewall::address::{Address, Family, number};
use router::firewall::policy::Per;
use router::firewall::service::Service;
use router::firewall::service::protocol::{AH, ESP, HIP, ICMP, ICMPV6, MOBILITY, TCP, UDP};
use router::firewall::{
    Moment, Packet, Policy, Rate, Rule, Schedule, Settings, Verdict, Zone, ZoneRef, ZoneSet,
};

use super::scene::{INTERFACES, own};

/// Choices that follow from a seed.
pub(crate) struct Random(fastrand::Rng);

const HOSTS: [&str; 4] = ["::10", "::20", "::1:10", "::1:2:3:10"];
const SUBNETS: [u128; 4] = [0, 0x77, 0x78, 0x5];
const PORTS: [u16; 6] = [22, 53, 80, 443, 500, 8080];
const TYPES: [u8; 17] = [1, 2, 3, 4, 100, 128, 129, 130, 133, 134, 135, 136, 138, 139, 143, 145, 200];

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// A host behind an interface.
    fn host(&mut self, interface: usize, v6: bool) -> IpAddr {
        if v6 {
            let host: std::net::Ipv6Addr = self.of(&HOSTS).parse().expect("an address");
            let net = (0x2a00 + interface as u128) << 112 | self.of(&SUBNETS) << 80;
            std::net::Ipv6Addr::from(net | u128::from(host)).into()
        } else {
            let number = u8::try_from(interface).expect("few");
            [10, number, self.of(&[5, 77, 78]), self.of(&[10, 20, 30])].into()
        }
    }

    fn address(&mut self, v6: bool) -> Address {
        let interface = self.below(INTERFACES);
        let host = self.host(interface, v6);
        let text = match (self.below(5), v6) {
            (0 | 1, _) => host.to_string(),
            (2, true) => self.of(&["*::10", "*::20", "*::10/16", "*::1:2:3:10", "*::1:10/32"]).to_owned(),
            (2, false) => format!("10.{interface}.5.10-10.{interface}.5.25"),
            (3, true) => format!("2a0{interface}:0:{:x}::/48", self.of(&SUBNETS)),
            (3, false) => format!("10.{interface}.77.0/24"),
            (_, true) => {
                self.of(&["2a00::/31", "2a02::/32", "2a00::5-2a01::20", "::/0", "fe80::/10"]).to_owned()
            }
            (_, false) => self.of(&["10.0.0.0/8", "10.0.0.0/15", "0.0.0.0/0"]).to_owned(),
        };
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn service(&mut self, v6: bool) -> Service {
        let text = match self.below(8) {
            0 | 1 => format!("tcp/{}", self.of(&PORTS)),
            2 => format!("udp/{}", self.of(&PORTS)),
            3 => self.of(&["tcp/1-100", "udp/50-500", "tcp/80-8080", "udp/0-65535"]).to_owned(),
            4 => self.of(&["tcp", "udp", "gre", "esp", "ah", "hip", "proto/253"]).to_owned(),
            5 if v6 => format!("icmpv6/{}", self.of(&TYPES)),
            6 if v6 => self.of(&["icmpv6", "icmpv6/128/0", "icmpv6/1/4", "icmpv6/144/1"]).to_owned(),
            _ => self.of(&["icmp", "icmp/echo-request", "icmp/8/0", "icmp/8/1"]).to_owned(),
        };
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn places(&mut self, zones: usize) -> ZoneSet {
        if self.one_in(3) {
            return ZoneSet::Any;
        }
        let count = 1 + self.below(2);
        let place = |n: usize| if n == zones { ZoneRef::Gateway } else { ZoneRef::Zone(n) };
        ZoneSet::Of((0..count).map(|_| place(self.below(zones + 1))).collect())
    }

    fn several<T>(&mut self, v6: bool, make: fn(&mut Self, bool) -> T) -> Option<Vec<T>> {
        if self.one_in(3) {
            return None;
        }
        let count = 1 + self.below(3);
        Some((0..count).map(|_| make(self, v6)).collect())
    }

    /// Prefixes of many lengths, as lists of them have: some hold hosts.
    fn list(&mut self, v6: bool) -> Vec<Address> {
        let count = 20 + self.below(40);
        let prefix = |random: &mut Self| {
            let interface = random.below(INTERFACES);
            let host = random.host(interface, v6);
            let hosts = (1 << if v6 { random.below(109) } else { random.below(21) }) - 1;
            Address::Range(Family::of(host), number(host) & !hosts, number(host) | hosts)
        };
        (0..count).map(|_| prefix(self)).collect()
    }

    /// Many ranges of ports.
    fn ranges(&mut self) -> Vec<Service> {
        let count = 5 + self.below(15);
        let range = |random: &mut Self| {
            let first = random.below(9000);
            let protocol = random.of(&["tcp", "udp"]);
            format!("{protocol}/{first}-{}", first + random.below(50)).parse().expect("a service")
        };
        (0..count).map(|_| range(self)).collect()
    }

    fn rule(&mut self, zones: usize) -> Rule {
        let v6 = !self.one_in(4);
        let rate = self.one_in(8).then_some(Rate { packets: 50_000, per: Per::Second, burst: 50_000 });
        let schedule = self.one_in(8).then(|| {
            let today = moment().day;
            let days = if self.one_in(2) { [6, 0, 1] } else { [3, 3, 4] };
            let days = days.iter().map(|day| (today + day) % 7).collect();
            Schedule { name: "some days".to_owned(), days, from: 0, to: 1440 }
        });
        let [mut source, mut destination] = [(); 2].map(|()| self.several(v6, Self::address));
        let mut service = self.several(v6, Self::service);
        match self.below(12) {
            0 => (source, destination) = (Some(self.list(v6)), None),
            1 => destination = Some(self.list(v6)),
            2 => (source, service) = (Some(self.list(v6)), Some(self.ranges())),
            _ => {}
        }
        Rule {
            from: self.places(zones),
            to: self.places(zones),
            source,
            destination,
            service,
            rate,
            schedule,
            forwarded: self.one_in(8),
            log: self.one_in(8),
            comment: String::new(),
            action: self.of(&[Verdict::Accept, Verdict::Accept, Verdict::Drop, Verdict::Reject]),
        }
    }

    pub(crate) fn policy(&mut self, zones: &[Zone]) -> Policy {
        let rules = self.below(40);
        let rules = (0..rules).map(|_| self.rule(zones.len())).collect();
        let special =
            if self.one_in(2) { vec!["2001:db8::/32".parse().expect("a prefix")] } else { Vec::new() };
        let settings = Settings {
            refuse: self.of(&[Verdict::Reject, Verdict::Drop]),
            log_refused: self.one_in(2),
            accept_special: special,
            tunnel_endpoints: Vec::new(),
            translated: None,
            ipv6_in_ipv4: self.one_in(4),
            ipv4_in_ipv6: self.one_in(4),
            forwards: Vec::new(),
            // None are mapped.
            port_mapping: self.one_in(4),
        };
        Policy::new(zones.to_vec(), rules, settings).expect("a policy")
    }

    /// A packet, and the interface that it comes to. Zones are still to be found out.
    pub(crate) fn packet(&mut self) -> (usize, Packet) {
        let v6 = !self.one_in(4);
        let interface = self.below(INTERFACES);
        let origin = if self.one_in(12) { self.below(INTERFACES) } else { interface };
        let mut source = self.host(origin, v6);
        let other = self.below(INTERFACES);
        let mut destination = if self.one_in(4) { own(other, v6) } else { self.host(other, v6) };
        if v6 && self.one_in(8) {
            let link = ["fe80::1", "ff02::1", "ff02::2"];
            destination = self.of(&link).parse().expect("an address");
            source = self.of(&["fe80::2", "::"]).parse().expect("an address");
        } else if v6 && self.one_in(12) {
            let special = ["2001:db8::7", "fd00::7", "2001:10::7", "3fff::7", "2a00:ffff::1"];
            *(if self.one_in(2) { &mut source } else { &mut destination }) =
                self.of(&special).parse().expect("an address");
        }
        let protocols = if v6 {
            [TCP, TCP, UDP, UDP, ICMPV6, ICMPV6, AH, ESP, HIP, MOBILITY]
        } else {
            [TCP, TCP, TCP, UDP, UDP, ICMP, ICMP, 47, ESP, 253]
        };
        let gateway = ZoneRef::Gateway;
        let protocol = self.of(&protocols);
        let kind = if v6 { self.of(&TYPES) } else { self.of(&[8, 8, 0, 3]) };
        let mut packet = Packet {
            ports: (0, self.of(&PORTS)),
            icmp: if matches!(protocol, ICMP | ICMPV6) { (kind, self.of(&[0, 0, 1, 4])) } else { (0, 0) },
            hop_limit: self.of(&[64, 255]),
            moment: Some(moment()),
            ..Packet::new(gateway, gateway, source, destination, protocol)
        };
        if v6 {
            match self.below(40) {
                0 => packet.routing_header_0 = true,
                1 => packet.incomplete = true,
                _ => {}
            }
        }
        (interface, packet)
    }
}

/// Now, in UTC, as the policies are compiled for.
fn moment() -> Moment {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let minutes = now.as_secs() / 60;
    // The first of January 1970 was a Thursday.
    let day = u8::try_from((minutes / 1440 + 3) % 7).expect("small");
    Moment { day, minute: u16::try_from(minutes % 1440).expect("small") }
}
