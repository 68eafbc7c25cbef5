//! Packets of the moving-target profile that travel as they are but for their addresses (docs/protocol.md section 9.5): the
//! kernel replaces these, and what the programs for that need to know is kept as the protocol has it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::Ipv6Addr;

use linux::bpf::Map;
use linux::netlink::{Link, Netlink};
use linux::undo::Journal;
use mt6d::{Action, Rewrite, Traffic};
use tracing::{debug, warn};

use super::classic::kernel::{difference, key, put, write_next_hop};
use super::next_hop::{NextHop, Outside};
use super::programs_beside::ProgramsBeside;
use programs::pair::{INCOMING, KEY, OUTGOING, SOURCE, Tables, at};
use programs::rewrite as program;

/// Pairs of hosts that a peer may have, and all peers together.
const PAIRS: (usize, usize) = (2_048, 1 << 14);
/// Addresses that a pair receives at, at once: those of the epochs that are open when they are shortest, and some more.
const EPOCHS: u32 = 12;
/// How the number of a pair is called that has none, because there are too many: nobody counts its packets.
const UNCOUNTED: u32 = 0;

/// Our host and the peer's.
type Inner = (Ipv6Addr, Ipv6Addr);

/// The programs, attached, and what they know.
pub(super) struct Rewriter {
    tables: Tables<Map>,
    programs: ProgramsBeside,
    outside: Outside,
    /// What is received, by source and destination.
    incoming: HashMap<[u8; KEY], (Rewrite, [u8; INCOMING])>,
    /// What is sent.
    sent: HashMap<Inner, Sent>,
    pairs: HashMap<Inner, Counted>,
    free: Vec<u32>,
    /// How packets get to hosts of ours that were looked up lately.
    next_hops: HashMap<Ipv6Addr, Option<NextHop>>,
}

/// How packets of a pair are sent.
#[derive(Clone, Copy)]
struct Sent {
    outer: (Ipv6Addr, Ipv6Addr),
    /// The program's entry. None: there is no route.
    value: Option<[u8; OUTGOING]>,
}

/// A pair's number in the table of counters.
struct Counted {
    number: u32,
    /// Entries of incoming packets that count under it.
    users: u32,
    /// What was counted when that was last reported.
    reported: [u64; 4],
}

impl Rewriter {
    /// Loads the programs for so many peers and attaches them, by links of the kind tcx if the kernel has them and they
    /// are wanted. Needs CAP_BPF.
    ///
    /// # Errors
    /// Why this kernel cannot do it.
    pub(super) fn open(
        peers: usize,
        outside: Outside,
        tcx: bool,
        journal: &mut Journal,
    ) -> linux::Result<Self> {
        let pairs = (peers * PAIRS.0).min(PAIRS.1) as u32;
        let tables = Tables::create(pairs, pairs * EPOCHS, Map::of)?;
        let incoming = |link| program::incoming(&tables, link, outside.tun);
        let outgoing = program::outgoing(&tables, 0);
        let programs = ProgramsBeside::attach(&outgoing, incoming, &outside, tcx, journal)?;
        Ok(Rewriter {
            tables,
            programs,
            outside,
            incoming: HashMap::new(),
            sent: HashMap::new(),
            pairs: HashMap::new(),
            free: (UNCOUNTED + 1..pairs).rev().collect(),
            next_hops: HashMap::new(),
        })
    }

    /// Whether there are pairs, so that [`Rewriter::refresh`] is to be called.
    pub(super) fn is_active(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// The external interface is like this now.
    pub(super) fn set_external(&mut self, link: &Link, netlink: &mut Netlink, journal: &mut Journal) {
        self.programs.follow(link, netlink, journal);
        self.outside.external = link.clone();
    }

    /// Does what the protocol asks for.
    pub(super) fn act(&mut self, action: &Action, netlink: &mut Netlink) {
        match *action {
            Action::AddRewrite(rewrite) => self.add_incoming(rewrite, netlink),
            Action::RemoveRewrite(rewrite) => self.remove_incoming(&rewrite),
            Action::Replace { inner, outer: Some(outer) } => {
                let value = self.sent.get(&inner).and_then(|sent| sent.value);
                self.send(inner, Sent { outer, value }, netlink);
            }
            Action::Replace { inner, outer: None } => {
                self.sent.remove(&inner);
                if let Err(error) = self.tables.outgoing.remove(&key(inner.0, inner.1)) {
                    warn!("{error}");
                }
            }
            _ => {}
        }
    }

    fn add_incoming(&mut self, rewrite: Rewrite, netlink: &mut Netlink) {
        let free = &mut self.free;
        let counted = self.pairs.entry(rewrite.inner).or_insert_with(|| Counted {
            number: free.pop().unwrap_or(UNCOUNTED),
            users: 0,
            reported: [0; 4],
        });
        if counted.users == 0 && counted.number != UNCOUNTED {
            counted.reported = counters(&self.tables, counted.number);
        }
        counted.users += 1;
        let number = counted.number;
        let value = incoming_value(&rewrite, number, &self.next_hop_inside(rewrite.inner.0, netlink));
        let key = key(rewrite.outer.1, rewrite.outer.0);
        if let Err(error) = self.tables.incoming.set(&key, &value) {
            warn!("packets of a pair of hosts will not be heard: {error}");
        }
        self.incoming.insert(key, (rewrite, value));
    }

    fn remove_incoming(&mut self, rewrite: &Rewrite) {
        let key = key(rewrite.outer.1, rewrite.outer.0);
        self.incoming.remove(&key);
        if let Err(error) = self.tables.incoming.remove(&key) {
            debug!("{error}");
        }
        let Some(counted) = self.pairs.get_mut(&rewrite.inner) else { return };
        counted.users -= 1;
        if counted.users == 0 {
            self.free.extend(Some(counted.number).filter(|number| *number != UNCOUNTED));
            self.pairs.remove(&rewrite.inner);
            if self.pairs.is_empty() {
                self.next_hops.clear();
            }
        }
    }

    /// Tells the program where a pair's packets go, unless it knows. Without a route they are the tunnel's.
    fn send(&mut self, inner: Inner, Sent { outer, value: before }: Sent, netlink: &mut Netlink) {
        let number = self.pairs.get(&inner).map_or(UNCOUNTED, |counted| counted.number);
        let hop = self.outside.next_hop(outer.0, outer.1, netlink);
        let value = hop.map(|hop| outgoing_value(inner, outer, number, &hop));
        self.sent.insert(inner, Sent { outer, value });
        let key = key(inner.0, inner.1);
        let changed = match &value {
            value if *value == before => return,
            Some(value) => self.tables.outgoing.set(&key, value),
            None => self.tables.outgoing.remove(&key).map(drop),
        };
        if let Err(error) = changed {
            debug!("{error}");
        }
    }

    /// Looks again how packets leave, and whether they are still heard. To be called every second: tells which packets crossed
    /// since.
    pub(super) fn refresh(&mut self, netlink: &mut Netlink) -> Vec<(Inner, Traffic)> {
        self.programs.put_back(&self.outside.external);
        self.next_hops.clear();
        for (inner, sent) in self.sent.clone() {
            self.send(inner, sent, netlink);
        }
        for (key, (rewrite, before)) in std::mem::take(&mut self.incoming) {
            let number = self.pairs.get(&rewrite.inner).map_or(UNCOUNTED, |counted| counted.number);
            let value = incoming_value(&rewrite, number, &self.next_hop_inside(rewrite.inner.0, netlink));
            if value != before
                && let Err(error) = self.tables.incoming.set(&key, &value)
            {
                debug!("{error}");
            }
            self.incoming.insert(key, (rewrite, value));
        }
        let tables = &self.tables;
        let counted = self.pairs.iter_mut().filter(|(_, counted)| counted.number != UNCOUNTED);
        let crossed = counted.filter_map(|(inner, counted)| {
            let now = counters(tables, counted.number);
            let before = std::mem::replace(&mut counted.reported, now);
            let more = std::array::from_fn::<u64, 4, _>(|at| now[at].wrapping_sub(before[at]));
            let [tx_packets, tx_bytes, rx_packets, rx_bytes] = more;
            let traffic = Traffic { tx_packets, tx_bytes, rx_packets, rx_bytes };
            (tx_packets + rx_packets > 0).then_some((*inner, traffic))
        });
        crossed.collect()
    }

    /// The next hop to a host of ours, looked up once: the stack, if they may not go there at once.
    fn next_hop_inside(&mut self, host: Ipv6Addr, netlink: &mut Netlink) -> NextHop {
        let Outside { tun, external, .. } = &self.outside;
        let hop = *self.next_hops.entry(host).or_insert_with(|| NextHop::lookup(host, *tun, netlink));
        // What came by a wider link may be too big: then it is the stack's to tell the sender.
        hop.filter(|hop| hop.mtu >= external.mtu).unwrap_or(NextHop::LOCAL)
    }
}

/// Packets and bytes out, packets and bytes in.
fn counters(tables: &Tables<Map>, number: u32) -> [u64; 4] {
    let sums = tables.counters.sum(&number.to_ne_bytes()).ok();
    sums.and_then(|sums| sums.try_into().ok()).unwrap_or_default()
}

fn outgoing_value(inner: Inner, outer: (Ipv6Addr, Ipv6Addr), number: u32, hop: &NextHop) -> [u8; OUTGOING] {
    let mut value = [0; OUTGOING];
    write_next_hop(&mut value, number, hop);
    put(&mut value, at::HEADERS + SOURCE, &key(outer.0, outer.1));
    put(&mut value, at::SUM, &difference(inner, outer).to_ne_bytes());
    value
}

fn incoming_value(rewrite: &Rewrite, number: u32, hop: &NextHop) -> [u8; INCOMING] {
    let Rewrite { inner, outer } = *rewrite;
    let mut value = [0; INCOMING];
    write_next_hop(&mut value, number, hop);
    put(&mut value, at::ADDRESSES, &key(inner.1, inner.0));
    let both = difference((outer.1, outer.0), (inner.1, inner.0));
    put(&mut value, at::DIFFERENCE, &both.to_ne_bytes());
    // An error has our address twice, and the peer's once.
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let ours = difference((unspecified, outer.0), (unspecified, inner.0));
    put(&mut value, program::ERROR_DIFFERENCE, &(both + ours).to_ne_bytes());
    value
}
