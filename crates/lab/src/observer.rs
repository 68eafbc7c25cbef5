//! What somebody on the path learns from the packets: which endpoints there are, when they are used, how they
//! follow each other, how large packets are, and what is always the same in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;
use std::time::Duration;

use serde::Serialize;

use crate::capture::Packet;
use crate::topology::Site;

/// Time is divided into bins of this length to say when an endpoint was in use.
pub const BIN: Duration = Duration::from_millis(100);

/// A flow has taken over a direction when this many packets in a row belong to it. Fewer are openers sent ahead,
/// or stragglers.
const TAKEOVER: usize = 4;

/// An outer address and UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Endpoint {
    /// The address.
    pub address: Ipv6Addr,
    /// The UDP port.
    pub port: u16,
}

/// An endpoint's life as seen from the path.
#[derive(Clone, Debug, Serialize)]
pub struct Sighting {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Seconds after the observation's begin when it was first seen.
    pub first: f64,
    /// Seconds after the observation's begin when it was last seen.
    pub last: f64,
    /// Packets from it and to it.
    pub packets: u64,
    /// The bins (of [`BIN`]) in which packets were seen, and how many.
    pub bins: BTreeMap<u32, u32>,
}

/// All packets between one endpoint of A and one of B.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
    /// The end at site A.
    pub a: Endpoint,
    /// The end at site B.
    pub b: Endpoint,
    /// Seconds after the observation's begin.
    pub first: f64,
    /// Seconds after the observation's begin.
    pub last: f64,
    /// Packets from A and from B.
    pub packets: [u64; 2],
}

/// An account of a capture taken between the gateways.
#[derive(Clone, Debug, Serialize)]
pub struct Observation {
    /// The endpoints of site A and of site B, in order of first sight.
    pub endpoints: [Vec<Sighting>; 2],
    /// The flows, in order of first sight.
    pub flows: Vec<Flow>,
    /// When each direction (from A, from B) moved to another flow, in seconds after the begin.
    pub moves: [Vec<f64>; 2],
    /// Packets by their IPv6 length.
    pub sizes: BTreeMap<usize, u64>,
    /// Packets between the sites, and what else was between them that is not UDP.
    pub packets: u64,
    /// Next-header values other than UDP between the two sites' prefixes, and how often.
    pub not_udp: BTreeMap<u8, u64>,
    /// Offsets of the first 64 bytes of the UDP payloads that always hold the same value.
    pub constant_bytes: Vec<usize>,
}

impl Observation {
    /// Evaluates the packets between two sites; `site_of` tells which addresses are whose. Others are ignored.
    /// Times count from `begin` (Unix time).
    pub fn of(packets: &[Packet], begin: Duration, site_of: impl Fn(Ipv6Addr) -> Option<Site>) -> Self {
        let mut observation = Self {
            endpoints: [Vec::new(), Vec::new()],
            flows: Vec::new(),
            moves: [Vec::new(), Vec::new()],
            sizes: BTreeMap::new(),
            packets: 0,
            not_udp: BTreeMap::new(),
            constant_bytes: Vec::new(),
        };
        let mut known = Index::default();
        let mut movements = [Movement::default(), Movement::default()];
        let mut constant = ConstantBytes::default();
        for packet in packets {
            let (Some(from), Some(to)) = (site_of(packet.source), site_of(packet.destination)) else {
                continue;
            };
            if from == to || packet.time < begin {
                continue;
            }
            observation.packets += 1;
            *observation.sizes.entry(packet.length).or_default() += 1;
            if packet.is_udp() {
                constant.add(&packet.payload);
            } else {
                *observation.not_udp.entry(packet.next_header).or_default() += 1;
            }
            if packet.ports == (0, 0) {
                continue;
            }
            let time = (packet.time - begin).as_secs_f64();
            let flow = observation.note(&mut known, packet, from, time);
            if let Some(moved) = movements[from as usize].add(flow, time) {
                observation.moves[from as usize].push(moved);
            }
        }
        observation.constant_bytes = constant.offsets();
        observation
    }

    /// Counts a datagram; returns its flow's index.
    fn note(&mut self, known: &mut Index, packet: &Packet, from: Site, time: f64) -> usize {
        let source = Endpoint { address: packet.source, port: packet.ports.0 };
        let destination = Endpoint { address: packet.destination, port: packet.ports.1 };
        let (a, b) = if from == Site::A { (source, destination) } else { (destination, source) };
        for (site, endpoint) in [(Site::A, a), (Site::B, b)] {
            let sightings = &mut self.endpoints[site as usize];
            let index = *known.endpoints[site as usize].entry(endpoint).or_insert_with(|| {
                sightings.push(Sighting {
                    endpoint,
                    first: time,
                    last: time,
                    packets: 0,
                    bins: BTreeMap::new(),
                });
                sightings.len() - 1
            });
            let sighting = &mut sightings[index];
            sighting.last = time;
            sighting.packets += 1;
            *sighting.bins.entry((time / BIN.as_secs_f64()) as u32).or_default() += 1;
        }
        let flows = &mut self.flows;
        let index = *known.flows.entry((a, b)).or_insert_with(|| {
            flows.push(Flow { a, b, first: time, last: time, packets: [0, 0] });
            flows.len() - 1
        });
        flows[index].last = time;
        flows[index].packets[from as usize] += 1;
        index
    }

    /// Distinct addresses of a site.
    pub fn addresses(&self, site: Site) -> usize {
        let addresses = self.endpoints[site as usize].iter().map(|sighting| sighting.endpoint.address);
        addresses.collect::<BTreeSet<_>>().len()
    }

    /// Distinct ports of a site.
    pub fn ports(&self, site: Site) -> usize {
        let ports = self.endpoints[site as usize].iter().map(|sighting| sighting.endpoint.port);
        ports.collect::<BTreeSet<_>>().len()
    }

    /// Addresses that belong to more than one flow that carried data, so that they link these flows. A flow
    /// with fewer than `least` packets is not counted: first contact tries several.
    pub fn linking_addresses(&self, least: u64) -> Vec<Ipv6Addr> {
        let mut uses: BTreeMap<Ipv6Addr, u32> = BTreeMap::new();
        for flow in self.flows.iter().filter(|flow| flow.packets.iter().sum::<u64>() >= least) {
            *uses.entry(flow.a.address).or_default() += 1;
            *uses.entry(flow.b.address).or_default() += 1;
        }
        uses.into_iter().filter(|(_, uses)| *uses > 1).map(|(address, _)| address).collect()
    }

    /// For each move of A's direction, how many seconds before or after it the nearest one of B's was. After the last one of B
    /// nobody knows: its traffic may have ended just then.
    pub fn move_skews(&self) -> Vec<f64> {
        let [a, b] = &self.moves;
        let last = b.last().copied().unwrap_or_default();
        let nearest = |time: &f64| b.iter().map(|other| (other - time).abs()).min_by(f64::total_cmp);
        a.iter().filter(|time| **time <= last).filter_map(nearest).collect()
    }
}

/// Where endpoints and flows are in an observation's lists.
#[derive(Default)]
struct Index {
    endpoints: [HashMap<Endpoint, usize>; 2],
    flows: HashMap<(Endpoint, Endpoint), usize>,
}

/// Notices when a direction moves to another flow.
#[derive(Default)]
struct Movement {
    current: Option<usize>,
    candidate: Option<(usize, f64, usize)>,
}

impl Movement {
    /// A packet of `flow`; returns when its takeover began, once it has happened.
    fn add(&mut self, flow: usize, time: f64) -> Option<f64> {
        if self.current == Some(flow) {
            self.candidate = None;
            return None;
        }
        let (begin, run) = match self.candidate {
            Some((candidate, begin, run)) if candidate == flow => (begin, run + 1),
            _ => (time, 1),
        };
        self.candidate = Some((flow, begin, run));
        if run < TAKEOVER {
            return None;
        }
        self.candidate = None;
        let moved = self.current.is_some();
        self.current = Some(flow);
        moved.then_some(begin)
    }
}

/// Finds payload bytes that never change.
#[derive(Default)]
struct ConstantBytes {
    first: Option<Vec<u8>>,
    same: Vec<bool>,
}

impl ConstantBytes {
    const DEPTH: usize = 64;

    fn add(&mut self, payload: &[u8]) {
        let head = &payload[..payload.len().min(Self::DEPTH)];
        let Some(first) = &self.first else {
            self.first = Some(head.to_vec());
            self.same = vec![true; head.len()];
            return;
        };
        for (offset, byte) in head.iter().enumerate().take(first.len()) {
            self.same[offset] &= *byte == first[offset];
        }
    }

    fn offsets(&self) -> Vec<usize> {
        (0..self.same.len()).filter(|offset| self.same[*offset]).collect()
    }
}

/// How many packets contain these bytes anywhere in their payload.
pub fn packets_containing(packets: &[Packet], needle: &[u8]) -> usize {
    let contains = |payload: &[u8]| payload.windows(needle.len()).any(|window| window == needle);
    packets.iter().filter(|packet| contains(&packet.payload)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(millis: u64, from: Site, epoch: u16) -> Packet {
        let a = Ipv6Addr::new(0x2001, 0xdb8, 0xa1, 0, 0, 0, 0, epoch);
        let b = Ipv6Addr::new(0x2001, 0xdb8, 0xb1, 0, 0, 0, 0, epoch);
        let (source, destination) = if from == Site::A { (a, b) } else { (b, a) };
        Packet {
            time: Duration::from_millis(millis),
            source,
            destination,
            next_header: 17,
            ports: (4000 + epoch, 4000 + epoch),
            length: 100,
            payload: vec![7, (millis % 251) as u8, epoch as u8],
        }
    }

    fn site_of(address: Ipv6Addr) -> Option<Site> {
        [Site::A, Site::B].into_iter().find(|site| site.in_hop_prefix(address))
    }

    /// Both directions, a packet every 10 ms, a new epoch every second; openers 300 ms ahead.
    fn rotating() -> Vec<Packet> {
        let mut packets = Vec::new();
        for step in 0..500 {
            let millis = step * 10;
            for from in [Site::A, Site::B] {
                packets.push(packet(millis, from, (millis / 1_000) as u16));
                if millis % 1_000 == 700 {
                    packets.push(packet(millis, from, (millis / 1_000 + 1) as u16));
                }
            }
        }
        packets
    }

    #[test]
    fn rotation_is_seen_as_such() {
        let observation = Observation::of(&rotating(), Duration::ZERO, site_of);
        assert_eq!((observation.addresses(Site::A), observation.ports(Site::B)), (6, 6));
        assert_eq!(observation.moves[0], [1.0, 2.0, 3.0, 4.0]);
        assert!(observation.move_skews().iter().all(|skew| *skew < 0.001));
        assert!(observation.linking_addresses(5).is_empty());
        assert_eq!(observation.constant_bytes, [0]);
        assert!((observation.endpoints[0][1].first - 0.7).abs() < 1e-9);
    }

    #[test]
    fn an_address_used_twice_links_flows() {
        let mut packets = rotating();
        for step in 0..10 {
            let mut late = packet(6_000 + step, Site::A, 9);
            late.source = Ipv6Addr::new(0x2001, 0xdb8, 0xa1, 0, 0, 0, 0, 2);
            packets.push(late);
        }
        let observation = Observation::of(&packets, Duration::ZERO, site_of);
        assert_eq!(observation.linking_addresses(5), [Ipv6Addr::new(0x2001, 0xdb8, 0xa1, 0, 0, 0, 0, 2)]);
    }

    #[test]
    fn plaintext_is_found_where_it_is() {
        let mut packets = rotating();
        assert_eq!(packets_containing(&packets, b"secret"), 0);
        packets[3].payload = b"a secret word".to_vec();
        assert_eq!(packets_containing(&packets, b"secret"), 1);
    }
}
