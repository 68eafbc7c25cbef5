//! The two programs of a transition tunnel: what `router::transition` does with a packet, in the kernel.
//!
//! One runs where packets leave by the tunnel's device, before GSO packets are segmented: it puts an outer header before them
//! and sends them on by the interface that carries the tunnel. What it cannot do it leaves to the device, and so to us.
//! The other runs where packets come in by that interface, before the stack: it takes what is the tunnel's, whole, and
//! without options, and gives the inner packet to the device, as if it had come in there. All else goes on as if the
//! program were not there: fragments to the kernel, which puts them together and gives them to our socket.
//!
//! What does not change while the tunnel is there is in the code; this end's address and the prefixes that come of it, and the
//! other end of IPv4 in IPv6, are in a table.

mod incoming;
mod outgoing;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};

use bpf::{
    Assembler, Condition, Helper, Label, MapKind, MapShape, NEXT_HOP, Operation, Register, Size, context,
    next_hop, verdict,
};
use router::transition::{Domain, Endpoint, Kind, LEAST_MTU, PROTOCOL_IPV4, Refusal};
use wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use wire::protocol;

use crate::refusals::Refusals;
use crate::snippet::{LINK_HEADER, Snippets as _};

use Condition::{AnyBit, Equal, Greater, Less, NotEqual};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{Byte, Double, Half, Word};

/// Prefixes of this side that the program knows.
pub const OWN: usize = 8;

/// Where things are in the table's only value.
mod at {
    /// This end's outer address, in network byte order.
    pub(super) const LOCAL: i16 = 0;
    /// Not zero: there is an address. 4 bytes.
    pub(super) const VALID: i16 = 16;
    /// How many prefixes are in use, 4 bytes.
    pub(super) const PREFIXES: i16 = 20;
    /// Where packets to the only other end go next, [`next_hop`]; zeros: the kernel looks for the way.
    pub(super) const NEXT_HOP: i16 = 24;
    /// The other end of IPv4 in IPv6, in network byte order.
    pub(super) const REMOTE: i16 = 48;
    /// Prefixes of this side: mask and leading 64 bits, as numbers.
    pub(super) const OWN: i16 = 64;
}
const VALUE: usize = at::OWN as usize + OWN * 16;

/// The table of counters has packets and bytes in, packets and bytes out; and behind that an entry for each refusal, of
/// which the first is the count.
const COUNTERS: usize = 32;
const REFUSALS: u32 = 1;

/// What programs and router share.
#[derive(Debug)]
pub struct Tables<M> {
    /// This end: one value, as [`end_value`] has it.
    pub end: M,
    /// What crossed, and behind it what was refused: see [`counts`].
    pub counters: M,
}

/// As programs name them.
type Descriptors = Tables<RawFd>;

impl<M> Tables<M> {
    /// Empty ones, each made by `create`.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn create<E>(create: impl Fn(MapShape) -> Result<M, E>) -> Result<Self, E> {
        let counters = REFUSALS + Refusal::ALL.len() as u32;
        Ok(Tables {
            end: create(MapShape { kind: MapKind::Array, key: 4, value: VALUE, entries: 1 })?,
            counters: create(MapShape {
                kind: MapKind::PerCpuArray,
                key: 4,
                value: COUNTERS,
                entries: counters,
            })?,
        })
    }
}

impl<M: AsRawFd> Tables<M> {
    fn descriptors(&self) -> Descriptors {
        Tables { end: self.end.as_raw_fd(), counters: self.counters.as_raw_fd() }
    }
}

/// The value of [`Tables::end`]: the tunnel has this end now, and packets to its only other end are given to that
/// neighbor. Without an end it carries nothing, and without a neighbor the kernel looks for one for each packet.
pub fn end_value(end: Option<&Endpoint>, neighbor: Option<IpAddr>) -> [u8; VALUE] {
    let mut value = [0; VALUE];
    if let Some(address) = neighbor {
        value[at::NEXT_HOP as usize..][..NEXT_HOP].copy_from_slice(&next_hop(address));
    }
    if let Some(end) = end {
        match end.local {
            IpAddr::V4(local) => value[..4].copy_from_slice(&local.octets()),
            IpAddr::V6(local) => value[..16].copy_from_slice(&local.octets()),
        }
        if let Kind::FourInSix { remote: Some(remote) } = end.kind {
            value[at::REMOTE as usize..][..16].copy_from_slice(&remote.octets());
        }
        let prefixes = end.local_prefixes.len().min(OWN) as u32;
        value[16..20].copy_from_slice(&1u32.to_ne_bytes());
        value[20..24].copy_from_slice(&prefixes.to_ne_bytes());
        for (place, own) in value[at::OWN as usize..].chunks_exact_mut(16).zip(&end.local_prefixes) {
            let leading = |address: Ipv6Addr| ((address.to_bits() >> 64) as u64).to_ne_bytes();
            place[..8].copy_from_slice(&leading(own.netmask()));
            place[8..].copy_from_slice(&leading(own.network()));
        }
    }
    value
}

/// What has crossed, and what has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came out of the tunnel.
    pub rx_packets: u64,
    /// Their bytes, as inner packets.
    pub rx_bytes: u64,
    /// Packets that went into it.
    pub tx_packets: u64,
    /// Their bytes, as inner packets.
    pub tx_bytes: u64,
    /// Packets that were refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

/// What has been counted; `entry` reads one of [`Tables::counters`], summed up over processors.
pub fn counts(entry: impl Fn(u32) -> Vec<u64>) -> Counts {
    let [rx_packets, rx_bytes, tx_packets, tx_bytes] = entry(0)[..] else { return Counts::default() };
    let refused = std::array::from_fn(|number| entry(REFUSALS + number as u32).first().copied().unwrap_or(0));
    Counts { rx_packets, rx_bytes, tx_packets, tx_bytes, refused }
}

/// What the programs are made for.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// Which kind of tunnel.
    pub kind: &'a Kind,
    /// Of outer headers.
    pub hop_limit: u8,
    /// The interface that carries the tunnel, and bytes of its link header.
    pub over: (u32, u8),
    /// The tunnel's device, and the same of it: none.
    pub device: (u32, u8),
    /// Whether the kernel changes a packet's protocol when its outer header goes (Linux 6.3).
    pub decapsulates: bool,
}

// Places on the stack: outer and inner header, and other things.
const OUTER: i16 = -48;
const INNER: i16 = -96;
const NUMBER: i16 = -100;
const BYTES: i16 = -104;
const PACKETS: i16 = -108;

// Offsets in headers.
const IPV4: i16 = 20;
const IPV6: i16 = 40;
const SOURCE: i16 = 8;
const DESTINATION: i16 = 24;

// Of skb_adjust_room.
const ROOM_MAC: i32 = 1;
const FIXED_GSO: i32 = 1;
const ENCAP_IPV4: i32 = 2;
const ENCAP_IPV6: i32 = 4;
const DECAP_IPV4: i32 = 128;
const DECAP_IPV6: i32 = 256;

/// Nothing but the two bits of ECN; and "congestion experienced".
const ECN: i32 = 3;

/// The program where packets come in by the interface that carries the tunnel.
pub fn incoming(settings: &Settings<'_>, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = &tables.descriptors();
    let mut code = Code::new(settings, tables);
    match settings.kind {
        Kind::SixInFour { remote } => code.in_four(Some(*remote), None),
        Kind::Automatic(domain) => code.in_four(None, Some(domain)),
        Kind::FourInSix { .. } => code.in_six(),
        Kind::Clat { .. } => unreachable!("its programs are those of `nat64`"),
    }
    code.finish()
}

/// The program where packets leave by the tunnel's device.
pub fn outgoing(settings: &Settings<'_>, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = &tables.descriptors();
    let mut code = Code::new(settings, tables);
    match settings.kind {
        Kind::SixInFour { remote } => code.out_four(Some(*remote), None),
        Kind::Automatic(domain) => code.out_four(None, Some(domain)),
        Kind::FourInSix { .. } => code.out_six(),
        Kind::Clat { .. } => unreachable!("its programs are those of `nat64`"),
    }
    code.finish()
}

/// In all of it R6 is the context, R7 this end, as the table has it.
struct Code<'a> {
    code: Assembler,
    settings: &'a Settings<'a>,
    tables: &'a Descriptors,
    leave: Label,
    refusals: Refusals<{ Refusal::ALL.len() }>,
}

impl<'a> Code<'a> {
    fn new(settings: &'a Settings<'a>, tables: &'a Descriptors) -> Self {
        let mut code = Assembler::default();
        let leave = code.label();
        let refusals = Refusals::new(&mut code);
        Code { code, settings, tables, leave, refusals }
    }

    fn refused(&self, refusal: Refusal) -> Label {
        self.refusals.label(refusal as usize)
    }

    /// The ends of all ways.
    fn finish(mut self) -> Assembler {
        let Code { code, tables, leave, refusals, .. } = &mut self;
        refusals.counted(code, &tables.counters, REFUSALS, NUMBER);
        code.jump_if(R7, Equal, REFUSALS.cast_signed() + i32::from(Refusal::Stranger as u8), *leave);
        code.exit_with(verdict::DROP);
        code.bind(*leave);
        code.exit_with(verdict::NEXT);
        self.code
    }

    /// Remembers how many packets this is, which the kernel forgets when the length changes.
    fn packets(&mut self) {
        let code = &mut self.code;
        code.segments();
        code.store(Word, R10, PACKETS, R1);
    }

    /// Counts the packet, of which so many bytes in front are not the inner packet's.
    fn count(&mut self, direction: i16, before: i32) {
        let code = &mut self.code;
        code.load(Word, R1, R6, context::LEN);
        code.add(R1, -before);
        code.store(Word, R10, BYTES, R1);
        code.store_value(Word, R10, NUMBER, 0);
        code.look_up(&self.tables.counters, NUMBER);
        let uncounted = code.label();
        code.jump_if(R0, Equal, 0, uncounted);
        for (offset, what) in [(0, PACKETS), (8, BYTES)] {
            code.load(Word, R1, R10, what);
            code.count(direction + offset);
        }
        code.bind(uncounted);
    }

    /// Reads a part of the packet, from its very beginning, to the stack.
    fn read(&mut self, offset: i32, to: i16, length: i32, otherwise: Label) {
        self.code.load_bytes(offset, to, length, otherwise);
    }

    /// Writes what is on the stack over the packet, or loses it.
    fn write(&mut self, offset: i32, from: i16, length: i32) {
        self.code.store_bytes(offset, from, length);
        self.code.or_drop();
    }
}

/// Whether skb_adjust_room changes a packet's protocol when its outer header goes (Linux 6.3): a program that tells, by
/// 0, when it is run on this frame.
pub fn decapsulates() -> (Assembler, [u8; 14 + 20 + 40]) {
    let mut code = Assembler::default();
    code.set(R2, -i32::from(IPV4));
    code.set(R3, ROOM_MAC);
    code.set(R4, DECAP_IPV6);
    code.call(Helper::SkbAdjustRoom);
    code.exit();
    let mut frame = [0; 14 + 20 + 40];
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
    frame[14] = 0x45;
    (code, frame)
}
