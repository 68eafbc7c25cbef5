//! What holds where no rule decides, and what no rule is asked about: lists of steps that [`super::evaluate`] follows
//! and [`mod@super::compile`] writes down.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::address::Family;
use super::packet_words::{Packet, State};
use super::policy::{LINK_LOCAL, Policy, Settings, Trust, UNSPECIFIED, Verdict, ZoneRef};
use super::service::protocol::{AH, ESP, HIP, ICMP, ICMPV6, IPV4, IPV6, TCP, UDP};

/// A condition, and what becomes of packets that meet it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// All of them hold.
    pub tests: Vec<Test>,
    /// What becomes of the packet.
    pub verdict: Verdict,
    /// Why, with the source.
    pub reason: &'static str,
}

/// A question about a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// It is of this family.
    Family(Family),
    /// Its upper-layer protocol is one of these.
    Protocol(&'static [u8]),
    /// Its upper-layer protocol is none of these.
    NotProtocol(u8),
    /// Its destination port is one of these.
    Port(&'static [u16]),
    /// Its source port is this.
    FromPort(u16),
    /// It is ICMPv6 with a type in one of these ranges.
    Icmpv6(&'static [(u8, u8)]),
    /// It is ICMP with one of these types.
    Icmp(u8),
    /// Its hop limit is 255: it was not forwarded.
    HopLimit255,
    /// Its source is in one of the first, and in none of the second. All of one family.
    Source(Vec<IpNet>, Vec<IpNet>),
    /// The same of its destination.
    Destination(Vec<IpNet>, Vec<IpNet>),
    /// It goes to a group whose scope is the organization or narrower.
    NarrowGroup,
    /// Its source is not routed back to the interface that it came from.
    Unroutable,
    /// Its source is routed to one of these interfaces, which it did not come from.
    RoutedTo(Vec<String>),
    /// Conntrack calls it invalid.
    Invalid,
    /// It is of this family, and a host has asked for it.
    Mapped(Family),
}

/// The steps between two places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stages {
    /// Before the rules.
    pub before: Vec<Step>,
    /// After the rules.
    pub after: Vec<Step>,
    /// What becomes of the rest.
    pub rest: Option<Verdict>,
}

impl Test {
    /// Whether the packet meets it.
    #[must_use]
    pub fn matches(&self, packet: &Packet) -> bool {
        let has_type = |protocol| packet.protocol == protocol;
        let among = |address, nets: &[IpNet]| nets.iter().any(|net| net.contains(address));
        match self {
            Test::Family(family) => packet.family() == *family,
            Test::Protocol(protocols) => protocols.contains(&packet.protocol),
            Test::NotProtocol(protocol) => packet.protocol != *protocol,
            Test::Port(ports) => ports.contains(&packet.ports.1),
            Test::FromPort(port) => packet.ports.0 == *port,
            Test::Icmpv6(types) => {
                let within = |(first, last): &(u8, u8)| (*first..=*last).contains(&packet.icmp.0);
                packet.family() == Family::V6 && has_type(ICMPV6) && types.iter().any(within)
            }
            Test::Icmp(kind) => packet.family() == Family::V4 && has_type(ICMP) && packet.icmp.0 == *kind,
            Test::HopLimit255 => packet.family() == Family::V6 && packet.hop_limit == 255,
            Test::Source(nets, except) => among(&packet.source, nets) && !among(&packet.source, except),
            Test::Destination(nets, except) => {
                among(&packet.destination, nets) && !among(&packet.destination, except)
            }
            Test::NarrowGroup => match packet.destination {
                std::net::IpAddr::V6(group) => group.is_multicast() && group.segments()[0] & 0xf <= 8,
                std::net::IpAddr::V4(_) => false,
            },
            Test::Unroutable | Test::RoutedTo(_) => packet.spoofed,
            Test::Invalid => packet.state == State::Invalid,
            Test::Mapped(family) => packet.mapped && packet.family() == *family,
        }
    }
}

impl Step {
    /// Whether the packet meets all its tests.
    #[must_use]
    pub fn matches(&self, packet: &Packet) -> bool {
        self.tests.iter().all(|test| test.matches(packet))
    }
}

fn step(verdict: Verdict, tests: Vec<Test>, reason: &'static str) -> Step {
    Step { tests, verdict, reason }
}

/// Messages that are believed only if nobody forwarded them: neighbor discovery, its inverse, secure discovery.
const OF_THE_LINK: &[(u8, u8)] = &[(133, 137), (141, 142), (148, 149)];
/// Membership of groups, and discovery of multicast routers.
const OF_GROUPS: &[(u8, u8)] = &[(130, 132), (143, 143), (151, 153)];
/// What is not forwarded: messages of a link (RFC 4890 section 4.3.3), and 4.3.5: router renumbering, node
/// information, experiments and what is reserved.
const NOT_FORWARDED: &[(u8, u8)] =
    &[(100, 101), (127, 127), (130, 143), (148, 149), (151, 153), (200, 201), (255, 255)];
const ECHO: &[(u8, u8)] = &[(128, 128)];
const MOBILE: &[(u8, u8)] = &[(144, 147)];
/// Below these, conntrack knows what a message belongs to; those above are new to it each time, and called invalid.
const KNOWN_TO_CONNTRACK: &[(u8, u8)] = &[(0, 129)];

const fn v6(segments: [u16; 8], length: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = segments;
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length))
}

const fn v4(a: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, 0, 0, 0), length))
}

/// IPv4-compatible (with the loopback and the unspecified address) and -mapped, documentation (RFC 3849, RFC 9637),
/// ORCHID (RFC 4843, RFC 7343 is routable nowhere either), site-local (RFC 3879), link-local, unique local (RFC 4193).
const NEVER_OUTSIDE: [IpNet; 9] = [
    v6([0; 8], 96),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
    v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28),
    v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
    LINK_LOCAL,
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];
/// This network, loopback, reserved (RFC 6890). Private addresses may be translated behind the firewall.
const NEVER_OUTSIDE_IPV4: [IpNet; 3] = [v4(0, 8), v4(127, 8), v4(240, 4)];

/// Of the addresses that are never outside, those that this network is among; None where it may be outside, here.
#[must_use]
pub fn never_outside(net: IpNet, settings: &Settings) -> Option<IpNet> {
    let accepted = settings.accept_special.iter().any(|special| special.contains(&net));
    NEVER_OUTSIDE.into_iter().chain(NEVER_OUTSIDE_IPV4).find(|never| never.contains(&net) && !accepted)
}

/// The steps for packets between the two.
#[must_use]
pub fn stages(policy: &Policy, from: ZoneRef, to: ZoneRef) -> Stages {
    let mut stages = match (policy.trust(from), policy.trust(to)) {
        (None, None) => Stages { rest: Some(Verdict::Accept), ..Stages::default() },
        (None, Some(_)) => {
            let errors = [Test::Icmpv6(&[(1, 4)]), Test::Icmp(3), Test::Icmp(11)];
            let link = Test::Icmpv6(&[(130, 137), (141, 143), (148, 149), (151, 153)]);
            let accept = |test, reason| step(Verdict::Accept, vec![test], reason);
            let before = [accept(link, "the link needs it (RFC 4890 section 4.4.1)")]
                .into_iter()
                .chain(errors.map(|test| accept(test, "an error of this gateway (RFC 4890 section 4.4.1)")));
            Stages { before: before.collect(), rest: Some(Verdict::Accept), ..Stages::default() }
        }
        (Some(trust), None) => to_gateway(policy, from, trust),
        (Some(trust), Some(other)) => between(policy, (from, trust), other),
    };
    stages.rest.get_or_insert(match policy.trust(from) {
        Some(Trust::Outside) => Verdict::Drop,
        _ => policy.settings().refuse,
    });
    stages
}

fn to_gateway(policy: &Policy, from: ZoneRef, trust: Trust) -> Stages {
    use Verdict::{Accept, Drop};
    let from_link = |tests: Vec<Test>| [tests, vec![Test::Source(vec![LINK_LOCAL], vec![])]].concat();
    let mut before = vec![
        step(
            Accept,
            vec![Test::Icmpv6(OF_THE_LINK), Test::HopLimit255],
            "neighbor discovery (RFC 4890 section 4.4.1)",
        ),
        step(
            Drop,
            vec![Test::Icmpv6(OF_THE_LINK)],
            "neighbor discovery that was forwarded (RFC 4861 section 7.1)",
        ),
        step(Accept, from_link(vec![Test::Icmpv6(OF_GROUPS)]), "group membership (RFC 4890 section 4.4.1)"),
        step(
            Accept,
            vec![Test::Icmpv6(&[(131, 132), (143, 143)]), Test::Source(vec![UNSPECIFIED], vec![])],
            "group membership before there is an address (RFC 3590)",
        ),
        step(Drop, vec![Test::Icmpv6(OF_GROUPS)], "group membership from elsewhere (RFC 3810 section 5)"),
    ];
    let udp = |port| vec![Test::Protocol(&[UDP]), Test::Port(port)];
    if trust == Trust::Outside {
        // Servers answer from any address and port. The client's socket is at a link-local address (RFC 8415 section
        // 17), and no router forwards anything to one.
        let replies = [udp(&[546]), vec![Test::Destination(vec![LINK_LOCAL], vec![])]].concat();
        before.push(step(Accept, replies, "DHCPv6 answers to this gateway (RFC 8415)"));
        let replies = [vec![Test::Family(Family::V4)], udp(&[68]), vec![Test::FromPort(67)]].concat();
        before.push(step(Accept, replies, "DHCP answers to this gateway (RFC 2131)"));
    } else {
        before.push(step(Accept, from_link(udp(&[547])), "DHCPv6 (RFC 8415)"));
        let requests = [vec![Test::Family(Family::V4)], udp(&[67]), vec![Test::FromPort(68)]].concat();
        before.push(step(Accept, requests, "DHCP (RFC 2131)"));
    }
    let endpoints: Vec<IpNet> = policy.settings().tunnel_endpoints.iter().copied().map(IpNet::V6).collect();
    if !endpoints.is_empty() {
        let tests = vec![Test::Protocol(&[UDP]), Test::Destination(endpoints, vec![])];
        before.push(step(Accept, tests, "an endpoint of a tunnel of this gateway"));
    }
    let settings = policy.settings();
    for (wanted, family, protocol) in
        [(settings.ipv6_in_ipv4, Family::V4, &[IPV6][..]), (settings.ipv4_in_ipv6, Family::V6, &[IPV4])]
    {
        if wanted {
            let tests = vec![Test::Family(family), Test::Protocol(protocol)];
            before.push(step(Accept, tests, "for a transition tunnel of this gateway, which judges it"));
        }
    }
    before.extend(invalid());
    before.extend(origin(policy, from, trust));
    let ping = [
        step(Accept, vec![Test::Icmpv6(ECHO)], "echo (RFC 4890 section 4.4.1)"),
        step(Accept, vec![Test::Icmp(8)], "echo"),
    ];
    let after = match trust {
        Trust::Inside => vec![step(Accept, vec![], "inside may open connections to the gateway")],
        Trust::Guest => {
            let dns = step(Accept, vec![Test::Protocol(&[TCP, UDP]), Test::Port(&[53])], "DNS for guests");
            ping.into_iter().chain([dns]).collect()
        }
        Trust::Outside => ping.to_vec(),
    };
    Stages { before, after, rest: None }
}

fn between(policy: &Policy, (zone, from): (ZoneRef, Trust), to: Trust) -> Stages {
    use Verdict::{Accept, Drop};
    let mut before = invalid();
    before.extend(origin(policy, zone, from));
    if (from == Trust::Outside) != (to == Trust::Outside) {
        before.extend(boundary(policy));
    }
    let mut after = vec![step(
        Drop,
        vec![Test::Icmpv6(NOT_FORWARDED)],
        "not to be forwarded (RFC 4890 sections 4.3.3 and 4.3.5)",
    )];
    if policy.settings().port_mapping && from != Trust::Inside && to == Trust::Inside {
        let mapped = |family| step(Accept, vec![Test::Mapped(family)], "a host has asked for it (RFC 6887)");
        after.extend([Family::V4, Family::V6].map(mapped));
    }
    match (from, to) {
        (Trust::Inside, _) => after.push(step(Accept, vec![], "inside may open connections everywhere")),
        (Trust::Guest, Trust::Outside) => after.push(step(Accept, vec![], "guests may go outside")),
        (Trust::Outside, Trust::Inside | Trust::Guest) => after.extend([
            step(Accept, vec![Test::Icmpv6(ECHO)], "echo (RFC 4890 section 4.3.1)"),
            step(Accept, vec![Test::Icmpv6(MOBILE)], "mobile hosts (RFC 4890 section 4.3.2)"),
            step(
                Accept,
                vec![Test::Family(Family::V6), Test::Protocol(&[AH, ESP, HIP])],
                "AH, ESP, HIP (RFC 6092 REC-21, REC-22, REC-26)",
            ),
            step(
                Accept,
                vec![Test::Family(Family::V6), Test::Protocol(&[UDP]), Test::Port(&[500])],
                "IKE (RFC 6092 REC-24)",
            ),
        ]),
        // Nobody outside reaches anybody else outside through this gateway, not even within a zone: a neighbor on the
        // provider's link would go out as the customer.
        _ => {}
    }
    Stages { before, after, rest: None }
}

fn invalid() -> Vec<Step> {
    const REASON: &str = "of no known connection (RFC 6092 REC-10)";
    vec![
        step(Verdict::Drop, vec![Test::Invalid, Test::NotProtocol(ICMPV6)], REASON),
        step(Verdict::Drop, vec![Test::Invalid, Test::Icmpv6(KNOWN_TO_CONNTRACK)], REASON),
    ]
}

/// What cannot come from a zone.
fn origin(policy: &Policy, from: ZoneRef, trust: Trust) -> Vec<Step> {
    const GROUP: &str = "a group is no source (RFC 6092 REC-1)";
    // What may come from it, as neighbor discovery, has been accepted. Kernels differ in what they say of its route.
    const UNSPECIFIED: &str = "the unspecified address is no source (RFC 4291 section 2.5.2)";
    let none =
        [(v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), GROUP), (v4(224, 4), GROUP), (v6([0; 8], 128), UNSPECIFIED)];
    let mut steps: Vec<Step> = none
        .into_iter()
        .map(|(net, reason)| step(Verdict::Drop, vec![Test::Source(vec![net], vec![])], reason))
        .collect();
    if trust != Trust::Outside {
        let reason = "its source is routed elsewhere (RFC 6092 REC-5, RFC 2827)";
        steps.push(step(Verdict::Drop, vec![Test::Unroutable], reason));
        return steps;
    }
    // On a device that an inner zone has a part of, a source of that part makes a packet one of that zone.
    let own = match from {
        ZoneRef::Zone(zone) => policy.zones()[zone].interfaces.as_slice(),
        ZoneRef::Gateway => &[],
    };
    let inner = policy.zones().iter().filter(|zone| zone.trust != Trust::Outside);
    let interfaces = inner.flat_map(|zone| &zone.interfaces).filter(|interface| !own.contains(interface));
    let interfaces: Vec<String> = interfaces.cloned().collect();
    if !interfaces.is_empty() {
        let reason = "its source is an inner one (RFC 6092 REC-6)";
        steps.push(step(Verdict::Drop, vec![Test::RoutedTo(interfaces)], reason));
    }
    steps
}

/// What does not cross the boundary between outside and the rest.
fn boundary(policy: &Policy) -> Vec<Step> {
    let special = &policy.settings().accept_special;
    let except = |family: Family| -> Vec<IpNet> {
        special.iter().copied().filter(|net| Family::of(net.addr()) == family).collect()
    };
    let mut steps = vec![step(
        Verdict::Drop,
        vec![Test::NarrowGroup],
        "a group of narrower scope than the internet (RFC 6092 REC-2)",
    )];
    for (nets, family, of_source, of_destination) in [
        (
            NEVER_OUTSIDE.to_vec(),
            Family::V6,
            "its source is never outside (RFC 6092 REC-3 and REC-7)",
            "its destination is never outside (RFC 6092 REC-3 and REC-7)",
        ),
        (
            NEVER_OUTSIDE_IPV4.to_vec(),
            Family::V4,
            "its source is never outside (RFC 6890)",
            "its destination is never outside (RFC 6890)",
        ),
    ] {
        let mut from = vec![Test::Source(nets.clone(), except(family))];
        // Hosts with unique local addresses alone are not seen outside when they are translated.
        if let (Some(prefix), Family::V6) = (policy.settings().translated, family) {
            from.push(Test::Destination(vec![IpNet::V6(Ipv6Net::default())], vec![IpNet::V6(prefix)]));
        }
        steps.push(step(Verdict::Drop, from, of_source));
        steps.push(step(Verdict::Drop, vec![Test::Destination(nets, except(family))], of_destination));
    }
    steps
}
