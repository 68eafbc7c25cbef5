//! A router with five interfaces, the world at their other ends, and a table behind the firewall that sees what the
//! router itself gets.
//!
//! ```text
//!   w0 ── z0 lan; in 2a00:0:77::/48 and 10.0.77.0/24 peers, in …78… partners (outside)      2a00::/32   10.0.0.0/16
//!   w1 ── z1 dmz: these and no other addresses                      2a01::/32   10.1.0.0/16
//!   w2 ── z2 guest                                                  2a02::/32   10.2.0.0/16
//!   w3 ── z3 wan                                                    the rest
//!   w4 ── z4 wan2                                                   2a04::/32   10.4.0.0/16
//! ```
//! Frames are written at w0 to w4 and read there; the world has no addresses.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use lab::namespaces::Namespace;
use linux::netlink::Netlink;
use linux::packet::{PacketOptions, PacketSocket};
use router::firewall::service::protocol::{AH, ESP, ICMP, ICMPV6, TCP, UDP};
use router::firewall::{Packet, Policy, State, TimeZone, Trust, Zone, ZoneRef, compile};

use super::frame::{Seen, frame, read};

pub(crate) const INTERFACES: usize = 5;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    Dropped,
    Rejected,
}

pub(crate) struct FirewallScene {
    router: Namespace,
    world: Namespace,
    sockets: Vec<PacketSocket>,
    /// Packets without ports, by which conntrack would know an answer: source, destination, protocol.
    connections: HashSet<(IpAddr, IpAddr, u8)>,
    /// Of the last packet, for sources of packets with ports and echoes: each is a connection of its own.
    flow: u16,
}

impl Drop for FirewallScene {
    fn drop(&mut self) {
        self.sockets.clear();
        for namespace in [&self.router, &self.world] {
            // A test that failed has more to tell.
            let _ = namespace.delete();
        }
    }
}

fn mac(interface: usize, of_router: bool) -> [u8; 6] {
    [2, 0, 0, 0, u8::try_from(interface).expect("few"), u8::from(of_router)]
}

/// The router's address in a zone.
pub(crate) fn own(interface: usize, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::from((0x2a00 + interface as u128) << 112 | 1).into()
    } else {
        IpAddr::from([10, u8::try_from(interface).expect("few"), 0, 1])
    }
}

/// The interface that an address is routed to.
pub(crate) fn route(address: IpAddr) -> usize {
    match address {
        IpAddr::V6(address) => match address.segments() {
            [first @ 0x2a00..=0x2a04, 0, ..] => usize::from(first - 0x2a00),
            _ => 3,
        },
        IpAddr::V4(address) => match address.octets() {
            [10, second @ 0..=4, ..] => usize::from(second),
            _ => 3,
        },
    }
}

impl FirewallScene {
    /// None where the tests cannot have namespaces.
    pub(crate) fn new() -> Option<Self> {
        if !linux::netns::available_to_tests() {
            return None;
        }
        let prefix = lab::prefix::unique();
        let [router, world] = ["r", "w"].map(|letter| Namespace::named(format!("{prefix}-{letter}")));
        for namespace in [&router, &world] {
            namespace.create().expect("a namespace");
        }
        let mut scene =
            FirewallScene { router, world, sockets: Vec::new(), connections: HashSet::new(), flow: 1 };
        scene.set_up();
        Some(scene)
    }

    fn set_up(&mut self) {
        let (router, world) = (&self.router, &self.world);
        router
            .sysctl(&[
                ("ipv6/conf/all/forwarding", 1),
                ("ipv4/ip_forward", 1),
                ("ipv4/conf/all/rp_filter", 0),
                ("ipv4/conf/default/rp_filter", 0),
                ("ipv4/conf/all/send_redirects", 0),
                ("ipv4/conf/default/send_redirects", 0),
                ("ipv4/icmp_ratemask", 0),
                // Of ICMPv6 errors only "packet too big" is limited; there is none.
                ("ipv6/icmp/ratemask", 2),
                ("ipv6/icmp/ratelimit", 0),
                ("ipv6/auto_flowlabels", 0),
            ])
            .expect("sysctl");
        let mut lines = String::new();
        for n in 0..INTERFACES {
            let hex = |of_router| mac(n, of_router).map(|byte| format!("{byte:02x}")).join(":");
            let (here, there) = (hex(true), hex(false));
            lines += &format!(
                "link add name z{n} address {here} type veth peer name w{n} address {there} netns {}\n\
                 link set dev z{n} up\n\
                 addr add fe80::1/64 dev z{n} nodad\naddr add {}/128 dev z{n} nodad\naddr add {}/30 dev z{n}\n\
                 neigh add fe80::2 lladdr {there} dev z{n} nud permanent\n\
                 neigh add 10.{n}.0.2 lladdr {there} dev z{n} nud permanent\n\
                 route add 2a0{n}::/32 via fe80::2 dev z{n}\nroute add 10.{n}.0.0/16 via 10.{n}.0.2\n",
                world.name(),
                own(n, true),
                own(n, false),
            );
        }
        lines += "route add ::/0 via fe80::2 dev z3\nroute add default via 10.3.0.2\n";
        world.sysctl(&[("ipv6/conf/default/disable_ipv6", 1)]).expect("sysctl");
        router.ip(&lines).expect("the router");
        let up: String = (0..INTERFACES).map(|n| format!("link set dev w{n} up\n")).collect();
        world.ip(&up).expect("the world");
        let open = || {
            let mut netlink = Netlink::open().expect("netlink");
            let mut socket = |n| {
                let link = netlink.link_by_name(&format!("w{n}")).expect("netlink").expect("an interface");
                PacketSocket::open(link.index, &PacketOptions::default()).expect("a packet socket")
            };
            (0..INTERFACES).map(&mut socket).collect()
        };
        let namespace = linux::netns::Namespace::open(world.name()).expect("the world");
        self.sockets = namespace.run(open).expect("the world");
    }

    /// The zones of its interfaces.
    pub(crate) fn zones(&self) -> Vec<Zone> {
        let zone = |name: &str, trust, interface: &str, networks: &[&str]| Zone {
            name: name.to_owned(),
            trust,
            interfaces: vec![interface.to_owned()],
            networks: networks.iter().map(|net| net.parse().expect("a network")).collect(),
        };
        vec![
            zone("lan", Trust::Inside, "z0", &[]),
            zone("dmz", Trust::Inside, "z1", &["2a01::/32", "10.1.0.0/16"]),
            zone("guest", Trust::Guest, "z2", &[]),
            zone("wan", Trust::Outside, "z3", &[]),
            zone("wan2", Trust::Outside, "z4", &[]),
            zone("peers", Trust::Guest, "z0", &["2a00:0:77::/48", "10.0.77.0/24"]),
            zone("partners", Trust::Outside, "z0", &["2a00:0:78::/48", "10.0.78.0/24"]),
        ]
    }

    /// Puts the policy in place of the one before, and an empty probe behind it.
    pub(crate) fn apply(&self, policy: &Policy) {
        let script = compile(policy, TimeZone::default()).script;
        let table = router::firewall::TABLE;
        let probe = "add table inet probe\ndelete table inet probe\ntable inet probe {\n\
            set seen6 { typeof ip6 flowlabel; flags dynamic; size 65535; }\n\
            set seen4 { typeof ip id; flags dynamic; size 65535; }\n\
            chain input { type filter hook input priority 300; policy accept;\n\
            add @seen6 { ip6 flowlabel }\nadd @seen4 { ip id }\n}\n}\n";
        let text = format!("add table inet {table}\ndelete table inet {table}\n{script}{probe}");
        self.router.nft(&text).unwrap_or_else(|error| panic!("{error}\n{script}"));
    }

    /// Puts the table back as nft lists it, which is what happens where a change is not confirmed.
    pub(crate) fn put_back(&self) {
        let table = router::firewall::TABLE;
        let mut list = self.router.command("nft").expect("the namespace");
        let listed = list.args(["list", "table", "inet", table]).output().expect("nft").stdout;
        let listed = String::from_utf8(listed).expect("text");
        self.router
            .nft(&format!("delete table inet {table}\n{listed}"))
            .unwrap_or_else(|error| panic!("{error}\n{listed}"));
    }

    /// The packet as it would come: from the zone of an interface, to where its destination is. None for what the
    /// kernel would not hand to the firewall, or conntrack not take for the beginning of a connection.
    pub(crate) fn possible(
        &mut self,
        policy: &Policy,
        (interface, packet): (usize, Packet),
    ) -> Option<Packet> {
        let name = |n: usize| format!("z{n}");
        let from = policy.zone_of(&name(interface), packet.source)?;
        let v6 = packet.source.is_ipv6();
        let is_own = (0..INTERFACES).any(|n| own(n, v6) == packet.destination);
        let of_link = match packet.destination {
            IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        };
        let link_source = match packet.source {
            IpAddr::V6(address) => address.is_unicast_link_local() || address.is_unspecified(),
            IpAddr::V4(_) => false,
        };
        let to = if is_own || of_link {
            ZoneRef::Gateway
        } else if link_source {
            return None;
        } else {
            policy.zone_of(&name(route(packet.destination)), packet.destination)?
        };
        self.flow = self.flow.checked_add(1).expect("fewer than 65536 packets");
        let known_to_conntrack = match packet.protocol {
            ICMPV6 => !matches!(packet.icmp.0, 0..=127 | 129),
            ICMP => packet.icmp.0 == 8,
            _ => true,
        };
        if !matches!(packet.protocol, TCP | UDP | ICMP | ICMPV6) {
            let protocol = if packet.protocol == AH { ESP } else { packet.protocol };
            let answered = (packet.destination, packet.source, protocol);
            if self.connections.contains(&answered) {
                return None;
            }
            self.connections.insert((packet.source, packet.destination, protocol));
        }
        let source_interface = route(packet.source);
        let outside = policy.trust(from) == Some(Trust::Outside);
        let spoofed = source_interface != interface && (!outside || source_interface < 3);
        Some(Packet {
            from,
            to,
            ports: if matches!(packet.protocol, TCP | UDP) { (self.flow, packet.ports.1) } else { (0, 0) },
            state: if known_to_conntrack { State::New } else { State::Invalid },
            // Link-local addresses are on every link, and ICMPv6 may come from none (nft_fib6 in the kernel).
            spoofed: spoofed
                && !(link_source && (!packet.source.is_unspecified() || packet.protocol == ICMPV6)),
            ..packet
        })
    }

    /// Sends the packets, and tells what became of each.
    pub(crate) fn send(&mut self, packets: &[Packet]) -> Vec<Outcome> {
        let mut seen = Vec::new();
        self.router.nft("flush set inet probe seen6\nflush set inet probe seen4").expect("nft");
        let by_port: HashMap<u16, usize> =
            packets.iter().enumerate().map(|(index, packet)| (packet.ports.0, index)).collect();
        for (index, packet) in packets.iter().enumerate() {
            let interface = self.interface(packet);
            let id = u16::try_from(index + 1).expect("few");
            let flow = if packet.state == State::Established { packet.ports.1 } else { 0x4000 | id };
            let frame = frame(mac(interface, true), mac(interface, false), packet, id, flow);
            assert!(self.sockets[interface].send(&frame).expect("send"), "the queue is full");
            if index % 16 == 0 {
                self.drain(&mut seen);
            }
        }
        // What was sent before a marker is through when it is; what that caused, when a second one is.
        for round in [0xff00, 0xff80] {
            self.marker(round);
            self.drain(&mut seen);
        }
        let mut outcomes = vec![Outcome::Dropped; packets.len()];
        let mut set = |index: usize, outcome| {
            if let Some(known) = outcomes.get_mut(index)
                && *known != Outcome::Accepted
            {
                *known = outcome;
            }
        };
        for what in seen {
            match what {
                Seen::Forwarded(id) if id > 0 => set(usize::from(id) - 1, Outcome::Accepted),
                Seen::Prohibited(id) if id > 0 => set(usize::from(id) - 1, Outcome::Rejected),
                Seen::Reset(port) if by_port.contains_key(&port) => set(by_port[&port], Outcome::Rejected),
                _ => {}
            }
        }
        for (name, v6) in [("seen6", true), ("seen4", false)] {
            for id in self.probed(name) {
                let index = usize::from(id).wrapping_sub(1);
                if packets.get(index).is_some_and(|packet| packet.source.is_ipv6() == v6) {
                    set(index, Outcome::Accepted);
                }
            }
        }
        outcomes
    }

    /// The interface that a packet comes from.
    fn interface(&self, packet: &Packet) -> usize {
        let ZoneRef::Zone(zone) = packet.from else { panic!("from the router") };
        self.zones()[zone].interfaces[0][1..].parse().expect("a number")
    }

    /// Sends a neighbor solicitation through every interface, and waits until the router has them.
    fn marker(&self, id: u16) {
        let limit = Instant::now() + Duration::from_secs(20);
        let address = |text: &str| text.parse().expect("an address");
        for n in 0..INTERFACES {
            let mut packet = Packet::new(
                ZoneRef::Gateway,
                ZoneRef::Gateway,
                address("fe80::2"),
                address("fe80::1"),
                ICMPV6,
            );
            packet.icmp = (135, 0);
            packet.hop_limit = 255;
            let id = id + u16::try_from(n).expect("few");
            let frame = frame(mac(n, true), mac(n, false), &packet, id, 0);
            assert!(self.sockets[n].send(&frame).expect("send"));
        }
        while self.probed("seen6").iter().filter(|seen| (id..id + 5).contains(seen)).count() < INTERFACES {
            assert!(Instant::now() < limit, "the router does not get its markers");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn drain(&self, seen: &mut Vec<Seen>) {
        let mut buffer = [0; 2048];
        for socket in &self.sockets {
            while let Some(length) = socket.recv(&mut buffer).expect("recv") {
                seen.extend(read(&buffer[..length]));
            }
        }
    }

    /// What is in a set of the probe.
    fn probed(&self, set: &str) -> Vec<u16> {
        let mut command = self.router.command("nft").expect("the router");
        let output = command.args(["-j", "list", "set", "inet", "probe", set]).output().expect("nft");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let elements = value["nftables"][1]["set"]["elem"].as_array().cloned().unwrap_or_default();
        elements.iter().filter_map(|id| u16::try_from(id.as_u64()?).ok()).collect()
    }
}

/// Whether the kernel answers the packet where it is rejected: nothing to or from groups.
pub(crate) fn is_answered(packet: &Packet) -> bool {
    match (packet.source, packet.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            !source.is_unspecified() && !source.is_multicast() && !destination.is_multicast()
        }
        _ => true,
    }
}

/// What a host would answer.
pub(crate) fn reply(packet: &Packet) -> Option<Packet> {
    let has_ports = matches!(packet.protocol, TCP | UDP);
    (has_ports && packet.to != ZoneRef::Gateway).then(|| Packet {
        from: packet.to,
        to: packet.from,
        source: packet.destination,
        destination: packet.source,
        ports: (packet.ports.1, packet.ports.0),
        state: State::Established,
        ..packet.clone()
    })
}
