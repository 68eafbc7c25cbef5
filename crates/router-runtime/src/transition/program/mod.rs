//! The two programs of a tunnel: what `router::transition` does with a packet, in the kernel.
//!
//! One runs where packets leave by the tunnel's device, before super-packets are cut: it puts an outer header before them
//! and sends them on by the interface that carries the tunnel. What it cannot do it leaves to the device, and so to us.
//! The other runs where packets come in by that interface, before the stack: it takes what is the tunnel's, whole, and
//! without options, and gives the inner packet to the device, as if it had come in there. All else goes on as if the
//! program were not there: fragments to the kernel, which puts them together and gives them to our socket.
//!
//! What does not change while the tunnel is there is in the code; this end's address and the prefixes that come of it are
//! in a table.

mod incoming;
mod outgoing;

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux::bpf::{
    Assembler, Condition, Helper, Label, Map, MapKind, NEXT_HOP, Operation, Program, ProgramKind, Register,
    Size, context, next_hop, verdict,
};
use router::transition::{Domain, Endpoint, Kind, LEAST_MTU, PROTOCOL_IPV4, Refusal};
use wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use wire::protocol;

use Condition::{AnyBit, Equal, Greater, Less, NotEqual};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{Byte, Double, Half, Word};

/// Prefixes of this side that the program knows.
pub(super) const OWN: usize = 8;

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
    /// Prefixes of this side: mask and leading 64 bits, as numbers.
    pub(super) const OWN: i16 = 48;
}
const VALUE: usize = at::OWN as usize + OWN * 16;

/// The table of counters has packets and bytes in, packets and bytes out; and behind that an entry for each refusal, of
/// which the first is the count.
const COUNTERS: usize = 32;
const REFUSALS: u32 = 1;

/// What programs and gateway share.
#[derive(Debug)]
pub(super) struct Tables {
    end: Map,
    counters: Map,
}

/// What has crossed, and what has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) rx_packets: u64,
    pub(super) rx_bytes: u64,
    pub(super) tx_packets: u64,
    pub(super) tx_bytes: u64,
    pub(super) refused: [u64; Refusal::ALL.len()],
}

impl Tables {
    pub(super) fn new() -> linux::Result<Self> {
        Ok(Tables {
            end: Map::create(MapKind::Array, 4, VALUE, 1)?,
            counters: Map::create(MapKind::PerCpuArray, 4, COUNTERS, REFUSALS + Refusal::ALL.len() as u32)?,
        })
    }

    /// The tunnel has this end now, and packets to its only other end are given to that neighbor; without an end it
    /// carries nothing, and without a neighbor the kernel looks for one for each packet.
    pub(super) fn set_end(&self, end: Option<&Endpoint>, neighbor: Option<IpAddr>) -> linux::Result<()> {
        let mut value = [0; VALUE];
        if let Some(address) = neighbor {
            value[at::NEXT_HOP as usize..][..NEXT_HOP].copy_from_slice(&next_hop(address));
        }
        if let Some(end) = end {
            match end.local {
                IpAddr::V4(local) => value[..4].copy_from_slice(&local.octets()),
                IpAddr::V6(local) => value[..16].copy_from_slice(&local.octets()),
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
        self.end.set(&[0; 4], &value)
    }

    pub(super) fn counts(&self) -> Counts {
        let entry = |number: u32| self.counters.sum(&number.to_ne_bytes()).unwrap_or_default();
        let [rx_packets, rx_bytes, tx_packets, tx_bytes] = entry(0)[..] else { return Counts::default() };
        let refused =
            std::array::from_fn(|number| entry(REFUSALS + number as u32).first().copied().unwrap_or(0));
        Counts { rx_packets, rx_bytes, tx_packets, tx_bytes, refused }
    }
}

/// What the programs are made for.
#[derive(Clone, Debug)]
pub(super) struct Settings<'a> {
    pub(super) kind: &'a Kind,
    pub(super) hop_limit: u8,
    /// The interface that carries the tunnel, and bytes of its link header.
    pub(super) over: (u32, u8),
    /// The tunnel's device, and the same of it: none.
    pub(super) device: (u32, u8),
    /// Whether the kernel changes a packet's protocol when its outer header goes (Linux 6.3).
    pub(super) decapsulates: bool,
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

/// Bytes that a link header has, where there is none and the next device wants one.
const LINK_HEADER: i32 = 14;
/// Nothing but the two bits of ECN; and "congestion experienced".
const ECN: i32 = 3;

/// The program where packets come in by the interface that carries the tunnel.
pub(super) fn incoming(settings: &Settings<'_>, tables: &Tables) -> Assembler {
    let mut code = Code::new(settings, tables);
    match settings.kind {
        Kind::SixInFour { remote } => code.in_four(Some(*remote), None),
        Kind::Automatic(domain) => code.in_four(None, Some(domain)),
        Kind::FourInSix { remote } => code.in_six(*remote),
    }
    code.finish()
}

/// The program where packets leave by the tunnel's device.
pub(super) fn outgoing(settings: &Settings<'_>, tables: &Tables) -> Assembler {
    let mut code = Code::new(settings, tables);
    match settings.kind {
        Kind::SixInFour { remote } => code.out_four(Some(*remote), None),
        Kind::Automatic(domain) => code.out_four(None, Some(domain)),
        Kind::FourInSix { remote } => code.out_six(*remote),
    }
    code.finish()
}

/// In all of it R6 is the context, R7 this end, as the table has it.
struct Code<'a> {
    code: Assembler,
    settings: &'a Settings<'a>,
    tables: &'a Tables,
    leave: Label,
    refusals: [Label; Refusal::ALL.len()],
    /// Which of them something leads to: the verifier wants no others.
    used: Cell<[bool; Refusal::ALL.len()]>,
}

impl<'a> Code<'a> {
    fn new(settings: &'a Settings<'a>, tables: &'a Tables) -> Self {
        let mut code = Assembler::default();
        let leave = code.label();
        let refusals = std::array::from_fn(|_| code.label());
        Code { code, settings, tables, leave, refusals, used: Cell::default() }
    }

    fn refused(&self, refusal: Refusal) -> Label {
        let mut used = self.used.get();
        used[refusal as usize] = true;
        self.used.set(used);
        self.refusals[refusal as usize]
    }

    /// The ends of all ways.
    fn finish(mut self) -> Assembler {
        let Code { code, tables, leave, refusals, used, .. } = &mut self;
        let count = code.label();
        let used = Refusal::ALL.into_iter().zip(*refusals).zip(used.get()).filter(|(_, used)| *used);
        for ((refusal, label), _) in used {
            code.bind(label);
            code.set(R7, REFUSALS.cast_signed() + i32::from(refusal as u8));
            code.jump(count);
        }
        code.bind(count);
        code.store(Word, R10, NUMBER, R7);
        code.load_map(R1, &tables.counters);
        code.copy(R2, R10);
        code.add(R2, i32::from(NUMBER));
        code.call(Helper::MapLookup);
        code.jump_if(R0, Equal, 0, *leave);
        code.load(Double, R1, R0, 0);
        code.add(R1, 1);
        code.store(Double, R0, 0, R1);
        code.jump_if(R7, Equal, REFUSALS.cast_signed() + i32::from(Refusal::Stranger as u8), *leave);
        code.exit_with(verdict::DROP);
        code.bind(*leave);
        code.exit_with(verdict::NEXT);
        self.code
    }

    /// Remembers how many packets this is, which the kernel forgets when the length changes.
    fn packets(&mut self) {
        let code = &mut self.code;
        let some = code.label();
        code.load(Word, R1, R6, context::GSO_SEGMENTS);
        code.jump_if(R1, NotEqual, 0, some);
        code.set(R1, 1);
        code.bind(some);
        code.store(Word, R10, PACKETS, R1);
    }

    /// Counts the packet, of which so many bytes in front are not the inner packet's.
    fn count(&mut self, direction: i16, before: i32) {
        let code = &mut self.code;
        code.load(Word, R1, R6, context::LEN);
        code.add(R1, -before);
        code.store(Word, R10, BYTES, R1);
        code.store_value(Word, R10, NUMBER, 0);
        code.load_map(R1, &self.tables.counters);
        code.copy(R2, R10);
        code.add(R2, i32::from(NUMBER));
        code.call(Helper::MapLookup);
        let uncounted = code.label();
        code.jump_if(R0, Equal, 0, uncounted);
        for (offset, what) in [(0, PACKETS), (8, BYTES)] {
            code.load(Word, R2, R10, what);
            code.load(Double, R1, R0, direction + offset);
            code.add(R1, R2);
            code.store(Double, R0, direction + offset, R1);
        }
        code.bind(uncounted);
    }

    /// Reads a part of the packet, from its very beginning, to the stack.
    fn read(&mut self, offset: i32, to: i16, length: i32, otherwise: Label) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, offset);
        code.copy(R3, R10);
        code.add(R3, i32::from(to));
        code.set(R4, length);
        code.call(Helper::SkbLoadBytes);
        code.jump_if(R0, NotEqual, 0, otherwise);
    }

    /// Writes what is on the stack over the packet, or loses it.
    fn write(&mut self, offset: i32, from: i16, length: i32) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, offset);
        code.copy(R3, R10);
        code.add(R3, i32::from(from));
        code.set(R4, length);
        code.set(R5, 0);
        code.call(Helper::SkbStoreBytes);
        self.or_drop();
    }

    fn adjust_room(&mut self, difference: i32, flags: i32) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, difference);
        code.set(R3, ROOM_MAC);
        code.set(R4, flags);
        code.call(Helper::SkbAdjustRoom);
    }

    /// Goes on if the last call went well. The packet has been changed already: else it is lost.
    fn or_drop(&mut self) {
        let well = self.code.label();
        self.code.jump_if(R0, Equal, 0, well);
        self.code.exit_with(verdict::DROP);
        self.code.bind(well);
    }
}

/// Whether skb_adjust_room changes a packet's protocol when its outer header goes (Linux 6.3): asked of a program.
pub(super) fn kernel_decapsulates() -> linux::Result<bool> {
    let mut code = Assembler::default();
    code.set(R2, -i32::from(IPV4));
    code.set(R3, ROOM_MAC);
    code.set(R4, DECAP_IPV6);
    code.call(Helper::SkbAdjustRoom);
    code.exit();
    let program = Program::load(ProgramKind::SchedCls, &code)?;
    let mut frame = [0; 14 + 20 + 40];
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
    frame[14] = 0x45;
    Ok(program.test_run(&frame)?.0 == 0)
}
