//! Another tunnel's packets under a mask (docs/protocol.md section 9.6): the kernel masks them and gives them a lane's addresses
//! and ports, and what the programs for that need to know is kept as the protocol has it.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{Ipv6Addr, SocketAddrV6};

use linux::bpf::{Map, next_hop};
use linux::netlink::{Link, Netlink};
use linux::undo::Journal;
use mt6d::mask::{DrawnLane, Flow, MaskedLane};
use mt6d::{Action, Traffic};
use tracing::{debug, warn};
use zeroize::Zeroizing;

use super::classic::kernel::{difference, put, words};
use super::next_hop::{NextHop, Outside};
use super::programs_beside::ProgramsBeside;
use crate::error::Error;
use crate::machine;
use programs::mask::{self as program, DRAWN, FLOW, INCOMING, LANE, Tables, at};

/// Flows of all peers together.
const FLOWS: u32 = 1 << 10;
/// Lanes in each direction that may be open at once: of each flow those that are alive, that were and that will be soon.
const LANES: u32 = 1 << 14;

/// The programs, attached, and what they know.
pub(super) struct Masker {
    tables: Tables<Map>,
    programs: ProgramsBeside,
    outside: Outside,
    /// Lanes by which masked packets come.
    incoming: HashSet<Flow>,
    /// The flows that leave or come.
    flows: HashMap<Flow, Known>,
    /// Numbers that are free; those that were longest come first, so that nobody reads what is written there.
    free_flows: VecDeque<u32>,
    free_lanes: VecDeque<u16>,
}

/// What is known of a flow.
struct Known {
    /// In the table of counters.
    number: u32,
    /// Lanes by which it comes.
    comes_by: usize,
    leaves_by: Vec<Leaving>,
    /// By how many nanoseconds its draws begin earlier than another's: two that changed lanes at the same instants would be seen
    /// to belong together.
    earlier: u32,
    /// What was drawn.
    drawn: [u8; DRAWN],
    /// What was counted when that was last reported.
    reported: [u64; 4],
}

/// A lane by which a flow leaves.
struct Leaving {
    drawn: DrawnLane,
    /// In the table of lanes, and what is written there, with the key.
    number: u16,
    value: Zeroizing<[u8; LANE]>,
}

impl Masker {
    /// Loads the programs and attaches them, by links of the kind tcx if the kernel has them and they are
    /// wanted. Needs CAP_BPF.
    ///
    /// # Errors
    /// Why this kernel cannot do it.
    pub(super) fn open(outside: Outside, tcx: bool, journal: &mut Journal) -> Result<Self, Error> {
        if cfg!(target_endian = "big") {
            return Err(Error::Limit("masking needs a processor that is little-endian".to_owned()));
        }
        let tables = Tables::create(FLOWS, LANES, Map::of)?;
        tables.chance.set(&0u32.to_ne_bytes(), &machine::seed()?)?;
        let incoming = |link| program::incoming(&tables, link, outside.tun);
        let outgoing = program::outgoing(&tables, 0);
        let programs = ProgramsBeside::attach(&outgoing, incoming, &outside, tcx, journal)?;
        Ok(Masker {
            tables,
            programs,
            outside,
            incoming: HashSet::new(),
            flows: HashMap::new(),
            free_flows: (0..FLOWS).collect(),
            free_lanes: (0..LANES as u16).collect(),
        })
    }

    /// Whether there are flows, so that [`Masker::refresh`] is to be called.
    pub(super) fn is_active(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Whether masked packets come by this lane: what its endpoint's socket sends and receives is to look the same.
    pub(super) fn takes(&self, local: SocketAddrV6, remote: SocketAddrV6) -> bool {
        self.incoming.contains(&Flow { local, remote })
    }

    /// The external interface is like this now.
    pub(super) fn set_external(&mut self, link: &Link, netlink: &mut Netlink, journal: &mut Journal) {
        self.programs.follow(link, netlink, journal);
        self.outside.external = link.clone();
    }

    /// Does what the protocol asks for.
    pub(super) fn act(&mut self, action: Action, netlink: &mut Netlink) {
        match action {
            Action::AddMask(lane) => self.add(&lane),
            Action::RemoveMask { lane, flow } => self.remove(&lane, flow),
            Action::Mask { flow, lanes } => self.send(flow, lanes, netlink),
            _ => {}
        }
    }

    fn known(&mut self, flow: Flow) -> Option<&mut Known> {
        if !self.flows.contains_key(&flow) {
            let number = self.free_flows.pop_front()?;
            let reported = counters(&self.tables, number);
            let chance = machine::seed().unwrap_or_default();
            let earlier =
                u32::from_ne_bytes(*chance.first_chunk().expect("32 bytes")) % (1 << program::MOMENT);
            let (leaves_by, drawn) = (Vec::new(), [0xff; DRAWN]);
            let known = Known { number, comes_by: 0, leaves_by, earlier, drawn, reported };
            self.flows.insert(flow, known);
        }
        self.flows.get_mut(&flow)
    }

    /// Forgets a flow that neither comes nor leaves.
    fn forget_unused(&mut self, flow: Flow) {
        if self.flows.get(&flow).is_some_and(|known| known.comes_by == 0 && known.leaves_by.is_empty()) {
            self.free_flows.extend(self.flows.remove(&flow).map(|known| known.number));
        }
    }

    fn add(&mut self, lane: &MaskedLane) {
        let Some(known) = self.known(lane.flow) else {
            return warn!("masked packets of one flow more cannot be taken");
        };
        known.comes_by += 1;
        let value = incoming_value(lane, known.number);
        if let Err(error) =
            self.tables.incoming.set(&key(lane.lane.remote, lane.lane.local), value.as_slice())
        {
            warn!("masked packets will not be heard on a lane: {error}");
        }
        self.incoming.insert(lane.lane);
    }

    fn remove(&mut self, lane: &Flow, flow: Flow) {
        if !self.incoming.remove(lane) {
            return;
        }
        if let Err(error) = self.tables.incoming.remove(&key(lane.remote, lane.local)) {
            debug!("{error}");
        }
        if let Some(known) = self.flows.get_mut(&flow) {
            known.comes_by -= 1;
        }
        self.forget_unused(flow);
    }

    /// Tells the program by which lanes a flow leaves.
    fn send(&mut self, flow: Flow, lanes: Vec<DrawnLane>, netlink: &mut Netlink) {
        let mut leaving = Vec::new();
        if let Some(known) = self.known(flow) {
            leaving = std::mem::take(&mut known.leaves_by);
        }
        let (stays, goes): (Vec<_>, Vec<_>) =
            leaving.into_iter().partition(|leaving: &Leaving| lanes.contains(&leaving.drawn));
        let mut leaves_by = stays;
        for drawn in lanes {
            if leaves_by.iter().any(|leaving| leaving.drawn == drawn) {
                continue;
            }
            // Without a number packets go by the others, or the daemon.
            let Some(number) = self.free_lanes.pop_front() else { break };
            let value = self.lane_value(&flow, &drawn, netlink);
            self.write_lane(number, &value);
            leaves_by.push(Leaving { drawn, number, value });
        }
        if let Some(known) = self.flows.get_mut(&flow) {
            known.leaves_by = leaves_by;
        }
        self.draw(flow);
        for leaving in goes {
            self.write_lane(leaving.number, &[0; LANE]);
            self.free_lanes.push_back(leaving.number);
        }
        self.forget_unused(flow);
    }

    /// Draws for a flow by which lanes it leaves in the next moments, so that none is recognised by what it carries. What was
    /// drawn for the present one and its neighbors stays, as long as that lane is there.
    fn draw(&mut self, flow: Flow) {
        let Some(known) = self.flows.get_mut(&flow) else { return };
        let key = key(flow.local, flow.remote);
        let tickets: Vec<u16> = known
            .leaves_by
            .iter()
            .flat_map(|leaving| std::iter::repeat_n(leaving.number, leaving.drawn.tickets.into()))
            .collect();
        let changed = match (tickets.len(), machine::seed(), machine::seed()) {
            (1.., Ok(one), Ok(other)) => {
                let clock = linux::clock::monotonic_ms() * 1_000_000;
                let now = (clock + u64::from(known.earlier)) >> program::MOMENT;
                let value = &mut known.drawn;
                let places = value.as_chunks_mut::<2>().0.iter_mut().take(program::DRAWS).enumerate();
                for ((at, place), chance) in places.zip(one.into_iter().chain(other)) {
                    let is_near = (at as u64 + 1).wrapping_sub(now) % (program::DRAWS as u64) < 3;
                    if !is_near || !tickets.contains(&u16::from_ne_bytes(*place)) {
                        *place = tickets[usize::from(chance) % tickets.len()].to_ne_bytes();
                    }
                }
                put(value, at::NUMBER, &known.number.to_ne_bytes());
                put(value, at::EARLIER, &known.earlier.to_ne_bytes());
                self.tables.flows.set(&key, value)
            }
            _ => self.tables.flows.remove(&key).map(drop),
        };
        if let Err(error) = changed {
            debug!("{error}");
        }
    }

    fn write_lane(&self, number: u16, value: &[u8; LANE]) {
        if let Err(error) = self.tables.lanes.set(&u32::from(number).to_ne_bytes(), value) {
            debug!("{error}");
        }
    }

    /// Draws again, and looks again how packets leave, and whether they are still heard. To be called every second: tells which
    /// packets crossed since, by the flow's addresses.
    pub(super) fn refresh(&mut self, netlink: &mut Netlink) -> Vec<((Ipv6Addr, Ipv6Addr), Traffic)> {
        self.programs.put_back(&self.outside.external);
        let flows: Vec<Flow> = self.flows.keys().copied().collect();
        let mut crossed = Vec::new();
        for flow in flows {
            let mut leaves_by = self
                .flows
                .get_mut(&flow)
                .map(|known| std::mem::take(&mut known.leaves_by))
                .unwrap_or_default();
            for leaving in &mut leaves_by {
                let value = self.lane_value(&flow, &leaving.drawn, netlink);
                if leaving.value != value {
                    self.write_lane(leaving.number, &value);
                    leaving.value = value;
                }
            }
            let Some(known) = self.flows.get_mut(&flow) else { continue };
            known.leaves_by = leaves_by;
            let now = counters(&self.tables, known.number);
            let before = std::mem::replace(&mut known.reported, now);
            let more = std::array::from_fn::<u64, 4, _>(|at| now[at].wrapping_sub(before[at]));
            let [tx_packets, tx_bytes, rx_packets, rx_bytes] = more;
            if tx_packets + rx_packets > 0 {
                let traffic = Traffic { tx_packets, tx_bytes, rx_packets, rx_bytes };
                crossed.push(((*flow.local.ip(), *flow.remote.ip()), traffic));
            }
            self.draw(flow);
        }
        crossed
    }

    /// What the program needs to send by a lane. Without a route packets are the daemon's.
    fn lane_value(&self, flow: &Flow, drawn: &DrawnLane, netlink: &mut Netlink) -> Zeroizing<[u8; LANE]> {
        let hop = self.outside.next_hop(*drawn.lane.local.ip(), *drawn.lane.remote.ip(), netlink);
        hop.map_or(Zeroizing::new([0; LANE]), |hop| lane_value(flow, drawn, &hop))
    }
}

fn lane_value(
    flow: &Flow,
    DrawnLane { lane, key: mask, .. }: &DrawnLane,
    hop: &NextHop,
) -> Zeroizing<[u8; LANE]> {
    let mut value = Zeroizing::new([0; LANE]);
    put(value.as_mut_slice(), at::INTERFACE, &hop.interface.to_ne_bytes());
    put(value.as_mut_slice(), at::MTU, &hop.mtu.to_ne_bytes());
    if let Some(neighbor) = hop.neighbor {
        put(value.as_mut_slice(), at::NEIGHBOR, &next_hop(neighbor.into()));
    }
    let [addresses, ports] = differences(flow, lane);
    put(value.as_mut_slice(), at::ADDRESSES_DIFFERENCE, &addresses.to_ne_bytes());
    put(value.as_mut_slice(), at::PORTS_DIFFERENCE, &ports.to_ne_bytes());
    put(value.as_mut_slice(), at::ADDRESSES, &key(lane.local, lane.remote));
    put(value.as_mut_slice(), at::KEY, mask.bytes());
    value
}

/// Packets and bytes out, packets and bytes in.
fn counters(tables: &Tables<Map>, number: u32) -> [u64; 4] {
    let sums = tables.counters.sum(&number.to_ne_bytes()).ok();
    sums.and_then(|sums| sums.try_into().ok()).unwrap_or_default()
}

/// What a packet of these ends is looked up by: addresses and ports, as they stand in it.
fn key(source: SocketAddrV6, destination: SocketAddrV6) -> [u8; FLOW] {
    let mut key = [0; FLOW];
    put(&mut key, 0, &source.ip().octets());
    put(&mut key, 16, &destination.ip().octets());
    put(&mut key, 32, &source.port().to_be_bytes());
    put(&mut key, 34, &destination.port().to_be_bytes());
    key
}

/// How the sums of addresses and of ports change where one flow becomes the other.
fn differences(from: &Flow, to: &Flow) -> [u32; 2] {
    let addresses = |flow: &Flow| (*flow.local.ip(), *flow.remote.ip());
    let ports = |flow: &Flow| [flow.local.port().to_be_bytes(), flow.remote.port().to_be_bytes()].concat();
    let gone: Vec<u8> = ports(from).iter().map(|byte| !byte).collect();
    [difference(addresses(from), addresses(to)), words(&gone) + words(&ports(to))]
}

fn incoming_value(lane: &MaskedLane, number: u32) -> Zeroizing<[u8; INCOMING]> {
    let MaskedLane { flow, lane, key: mask } = lane;
    let mut value = Zeroizing::new([0; INCOMING]);
    put(value.as_mut_slice(), at::incoming::NUMBER, &number.to_ne_bytes());
    // The sums are the same in both directions.
    let [addresses, ports] = differences(lane, flow);
    put(value.as_mut_slice(), at::incoming::ADDRESSES_DIFFERENCE, &addresses.to_ne_bytes());
    put(value.as_mut_slice(), at::incoming::PORTS_DIFFERENCE, &ports.to_ne_bytes());
    put(value.as_mut_slice(), at::incoming::ADDRESSES, &key(flow.remote, flow.local));
    put(value.as_mut_slice(), at::incoming::KEY, mask.bytes());
    value
}
