//! The two programs of a tunnel: what `gateway::tunnel` does with a packet, in the kernel.
//!
//! One runs where packets leave by the tunnel's device, before super-packets are cut: it puts an outer header before them
//! and sends them on by the interface that carries the tunnel. What it cannot do it leaves to the device, and so to us.
//! The other runs where packets come in by that interface, before the stack: it takes what is the tunnel's, whole, and
//! without options, and gives the inner packet to the device, as if it had come in there. All else goes on as if the
//! program were not there: fragments to the kernel, which puts them together and gives them to our socket.
//!
//! What does not change while the tunnel is there is in the code; this end's address and the prefixes that come of it are
//! in a table.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gateway::tunnel::{Domain, End, Kind, LEAST_MTU, PROTOCOL_IPV4, Refusal};
use linux::bpf::{
    Assembler, Condition, Helper, Label, Map, MapKind, Operation, Program, ProgramKind, Register, Size,
    context, verdict,
};
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
    /// Prefixes of this side: mask and leading 64 bits, as numbers.
    pub(super) const OWN: i16 = 24;
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

    /// The tunnel has this end now; without one it carries nothing.
    pub(super) fn set_end(&self, end: Option<&End>) -> linux::Result<()> {
        let mut value = [0; VALUE];
        if let Some(end) = end {
            match end.local {
                IpAddr::V4(local) => value[..4].copy_from_slice(&local.octets()),
                IpAddr::V6(local) => value[..16].copy_from_slice(&local.octets()),
            }
            let prefixes = end.own.len().min(OWN) as u32;
            value[16..20].copy_from_slice(&1u32.to_ne_bytes());
            value[20..24].copy_from_slice(&prefixes.to_ne_bytes());
            for (place, own) in value[24..].chunks_exact_mut(16).zip(&end.own) {
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

    // In

    /// A packet of IPv4 that is the tunnel's.
    fn in_four(&mut self, remote: Option<Ipv4Addr>, domain: Option<&Domain>) {
        let link = i32::from(self.settings.over.1);
        self.begin_incoming(ETHERTYPE_IPV4);
        self.read(link, OUTER, IPV4.into(), self.leave);
        let (leave, malformed) = (self.leave, self.refused(Refusal::Malformed));
        self.code.load(Byte, R1, R10, OUTER);
        self.code.jump_if(R1, NotEqual, 0x45, leave);
        self.code.load(Byte, R1, R10, OUTER + 9);
        self.code.jump_if(R1, NotEqual, i32::from(protocol::IPV6), leave);
        self.code.load(Half, R1, R10, OUTER + 6);
        self.code.jump_if(R1, AnyBit, i32::from(0x3fff_u16.to_be()), leave);
        self.code.load(Word, R1, R10, OUTER + 16);
        self.code.load(Word, R2, R7, at::LOCAL);
        self.code.jump_if(R1, NotEqual, R2, leave);
        self.length_of_outer(OUTER + 2, 0);
        if let Some(remote) = remote {
            self.code.load(Word, R1, R10, OUTER + 12);
            let stranger = self.refused(Refusal::Stranger);
            self.code.set_wide(R2, u32::from_ne_bytes(remote.octets()).into());
            self.code.jump_if(R1, NotEqual, R2, stranger);
        }
        self.sum_of_outer();
        self.code.jump_if(R1, NotEqual, 0xffff, malformed);
        self.read(link + i32::from(IPV4), INNER, IPV6.into(), malformed);
        self.code.load(Byte, R1, R10, INNER);
        self.code.shift_right(R1, 4);
        self.code.jump_if(R1, NotEqual, 6, malformed);
        self.length_of_inner(IPV4.into());
        match domain {
            Some(domain) => self.check_domain(domain),
            None => self.check_broker(),
        }
        self.code.load(Byte, R2, R10, OUTER + 1);
        self.code.load(Byte, R3, R10, INNER + 1);
        self.code.shift_right(R3, 4);
        self.merge_ecn();
        // R8: the inner byte as it should be, or as it was.
        let code = &mut self.code;
        code.load(Byte, R8, R10, INNER + 1);
        code.and(R8, 0xcf);
        code.shift_left(R3, 4);
        code.and(R3, 0x30);
        code.calculate(Operation::Or, R8, R3);
        let unchanged = code.label();
        self.take_off(IPV4.into(), DECAP_IPV6, ETHERTYPE_IPV6);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER + 1);
        code.jump_if(R1, Equal, R8, unchanged);
        code.store(Byte, R10, INNER + 1, R8);
        self.write(link + 1, INNER + 1, 1);
        self.code.bind(unchanged);
        self.hand_in();
    }

    /// A packet of IPv6 that is the tunnel's.
    fn in_six(&mut self, remote: Ipv6Addr) {
        let link = i32::from(self.settings.over.1);
        self.begin_incoming(ETHERTYPE_IPV6);
        self.read(link, OUTER, IPV6.into(), self.leave);
        let (leave, malformed, stranger) =
            (self.leave, self.refused(Refusal::Malformed), self.refused(Refusal::Stranger));
        let code = &mut self.code;
        // With an encapsulation limit, and with any other header: by the kernel and our socket.
        code.load(Byte, R1, R10, OUTER + 6);
        code.jump_if(R1, NotEqual, i32::from(PROTOCOL_IPV4), leave);
        for part in [0, 8] {
            code.load(Double, R1, R10, OUTER + DESTINATION + part);
            code.load(Double, R2, R7, at::LOCAL + part);
            code.jump_if(R1, NotEqual, R2, leave);
        }
        self.length_of_outer(OUTER + 4, IPV6.into());
        for (part, bits) in [(0, remote.to_bits() >> 64), (8, remote.to_bits())] {
            self.code.load(Double, R1, R10, OUTER + SOURCE + part);
            self.code.set_wide(R2, (bits as u64).to_be());
            self.code.jump_if(R1, NotEqual, R2, stranger);
        }
        self.read(link + i32::from(IPV6), INNER, IPV4.into(), malformed);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.jump_if(R1, Less, 0x45, malformed);
        code.jump_if(R1, Greater, 0x4f, malformed);
        // Its own header fits, and it is as long as what carries it.
        code.and(R1, 0xf);
        code.shift_left(R1, 2);
        code.load(Half, R2, R10, INNER + 2);
        code.network_order(R2, 16);
        code.jump_if(R2, Less, R1, malformed);
        let whole = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, whole);
        code.load(Half, R1, R10, OUTER + 4);
        code.network_order(R1, 16);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(whole);
        self.single_host_ipv4(INNER + 12, self.refused(Refusal::Source));
        self.single_host_ipv4(INNER + 16, self.refused(Refusal::Destination));
        self.code.load(Half, R2, R10, OUTER);
        self.code.network_order(R2, 16);
        self.code.shift_right(R2, 4);
        self.code.load(Byte, R3, R10, INNER + 1);
        self.merge_ecn();
        let code = &mut self.code;
        code.load(Byte, R8, R10, INNER + 1);
        code.and(R8, 0xfc);
        code.and(R3, ECN);
        code.calculate(Operation::Or, R8, R3);
        let unchanged = code.label();
        self.take_off(IPV6.into(), DECAP_IPV4, ETHERTYPE_IPV4);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER + 1);
        code.jump_if(R1, Equal, R8, unchanged);
        // The header's checksum covers the byte; the other one of its word stays.
        code.load(Half, R3, R10, INNER);
        code.store(Byte, R10, INNER + 1, R8);
        code.load(Half, R4, R10, INNER);
        code.copy(R1, R6);
        code.set(R2, link + 10);
        code.set(R5, 2);
        code.call(Helper::L3ChecksumReplace);
        self.or_drop();
        self.write(link + 1, INNER + 1, 1);
        self.code.bind(unchanged);
        self.hand_in();
    }

    /// R7 = this end, for a packet of that type that is for this host and in no VLAN.
    fn begin_incoming(&mut self, ethertype: u16) {
        let leave = self.leave;
        let code = &mut self.code;
        code.copy(R6, R1);
        for (field, expected) in [
            (context::PACKET_TYPE, 0),
            (context::VLAN_PRESENT, 0),
            (context::PROTOCOL, ethertype.to_be().into()),
        ] {
            code.load(Word, R1, R6, field);
            code.jump_if(R1, NotEqual, expected, leave);
        }
        self.this_end(leave);
    }

    /// R7 = this end; where there is none, goes on at the label.
    fn this_end(&mut self, without: Label) {
        let leave = self.leave;
        let code = &mut self.code;
        code.store_value(Word, R10, NUMBER, 0);
        code.load_map(R1, &self.tables.end);
        code.copy(R2, R10);
        code.add(R2, i32::from(NUMBER));
        code.call(Helper::MapLookup);
        code.jump_if(R0, Equal, 0, leave);
        code.copy(R7, R0);
        code.load(Word, R1, R7, at::VALID);
        code.jump_if(R1, Equal, 0, without);
    }

    /// Leaves a packet that is shorter than its outer header says, which counts from behind so many bytes.
    fn length_of_outer(&mut self, field: i16, from: i32) {
        let leave = self.leave;
        let code = &mut self.code;
        let super_packet = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, super_packet);
        code.load(Half, R1, R10, field);
        code.network_order(R1, 16);
        if from == 0 {
            code.jump_if(R1, Less, i32::from(IPV4), leave);
        }
        code.add(R1, from + i32::from(self.settings.over.1));
        code.load(Word, R2, R6, context::LEN);
        code.jump_if(R2, Less, R1, leave);
        code.bind(super_packet);
    }

    /// Refuses an inner packet that is not as long as the outer one, of so many bytes of header, leaves. A super-packet
    /// is as long as the kernel says.
    fn length_of_inner(&mut self, header: i32) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        let super_packet = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, super_packet);
        code.load(Half, R1, R10, INNER + 4);
        code.network_order(R1, 16);
        code.add(R1, header + i32::from(IPV6));
        code.load(Half, R2, R10, OUTER + 2);
        code.network_order(R2, 16);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(super_packet);
    }

    /// R1 = the sum of the IPv4 header in its place on the stack, folded.
    fn sum_of_outer(&mut self) {
        let code = &mut self.code;
        code.load(Word, R1, R10, OUTER);
        for word in 1..5 {
            code.load(Word, R2, R10, OUTER + 4 * word);
            code.add(R1, R2);
        }
        // 35 bits, to 32, to 17, to 16.
        for bits in [32, 16, 16] {
            code.copy(R2, R1);
            code.shift_right(R2, bits);
            match bits {
                32 => code.calculate_32(Operation::Move, R1, R1),
                _ => code.and(R1, 0xffff),
            }
            code.add(R1, R2);
        }
        let folded = code.label();
        code.jump_if(R1, Less, 0x1_0000, folded);
        code.add(R1, -0xffff);
        code.bind(folded);
    }

    /// R3 = the codepoint inside, from R2 outside and R3 inside (RFC 6040 section 4.2).
    fn merge_ecn(&mut self) {
        let congestion = self.refused(Refusal::Congestion);
        let code = &mut self.code;
        let [marked, done] = std::array::from_fn(|_| code.label());
        code.and(R2, ECN);
        code.and(R3, ECN);
        code.jump_if(R2, Equal, ECN, marked);
        // ECT(1) outside, ECT(0) inside.
        code.jump_if(R2, NotEqual, 1, done);
        code.jump_if(R3, NotEqual, 2, done);
        code.set(R3, 1);
        code.jump(done);
        code.bind(marked);
        code.jump_if(R3, Equal, 0, congestion);
        code.set(R3, ECN);
        code.bind(done);
    }

    /// R8 = the leading 64 bits of an address on the stack, as a number.
    fn leading(&mut self, place: i16) {
        self.code.load(Double, R8, R10, place);
        self.code.network_order(R8, 64);
    }

    /// Goes on at the label unless the address, whose leading bits are in R8, can be that of one host.
    fn single_host(&mut self, otherwise: Label) {
        self.code.jump_if(R8, Equal, 0, otherwise);
        self.code.copy(R1, R8);
        self.code.shift_right(R1, 56);
        self.code.jump_if(R1, Equal, 0xff, otherwise);
    }

    /// The same of IPv4, at a place of the stack.
    fn single_host_ipv4(&mut self, place: i16, otherwise: Label) {
        self.code.load(Byte, R1, R10, place);
        self.code.jump_if(R1, Equal, 0, otherwise);
        self.code.jump_if(R1, Equal, 127, otherwise);
        self.code.jump_if(R1, Greater, 223, otherwise);
    }

    /// Goes on at the label if the address whose leading bits are in R8 is link-local.
    fn link_local(&mut self, then: Label) {
        self.code.copy(R1, R8);
        self.code.shift_right(R1, 54);
        self.code.jump_if(R1, Equal, 0xfe80 >> 6, then);
    }

    /// Goes on at the label if the address whose leading bits are in R8 is of this side.
    fn own(&mut self, then: Label) {
        let code = &mut self.code;
        let end = code.label();
        code.load(Word, R3, R7, at::PREFIXES);
        for number in 0..OWN as i16 {
            code.jump_if(R3, Equal, i32::from(number), end);
            code.load(Double, R1, R7, at::OWN + 16 * number);
            code.and(R1, R8);
            code.load(Double, R2, R7, at::OWN + 16 * number + 8);
            code.jump_if(R1, Equal, R2, then);
        }
        code.bind(end);
    }

    fn check_broker(&mut self) {
        let (source, spoofed) = (self.refused(Refusal::Source), self.refused(Refusal::Spoofed));
        let [on_link, known] = std::array::from_fn(|_| self.code.label());
        self.leading(INNER + SOURCE);
        self.single_host(source);
        self.link_local(on_link);
        self.own(spoofed);
        self.code.jump(known);
        self.code.bind(on_link);
        self.leading(INNER + DESTINATION);
        self.link_local(known);
        self.code.copy(R1, R8);
        self.code.shift_right(R1, 56);
        self.code.jump_if(R1, NotEqual, 0xff, source);
        self.code.bind(known);
        self.leading(INNER + DESTINATION);
        let destination = self.refused(Refusal::Destination);
        self.code.jump_if(R8, Equal, 0, destination);
    }

    fn check_domain(&mut self, domain: &Domain) {
        let [spoofed, stranger, destination] =
            [Refusal::Spoofed, Refusal::Stranger, Refusal::Destination].map(|refusal| self.refused(refusal));
        let [beyond, known, arrived] = std::array::from_fn(|_| self.code.label());
        self.leading(INNER + SOURCE);
        self.embedded(domain, beyond);
        self.code.load(Word, R1, R10, OUTER + 12);
        self.code.network_order(R1, 32);
        self.code.jump_if(R9, NotEqual, R1, spoofed);
        self.usable(domain, spoofed);
        self.code.jump(known);

        self.code.bind(beyond);
        let Some(relay) = domain.relay else {
            self.code.jump(stranger);
            self.code.bind(known);
            return self.addressed_here(destination);
        };
        self.code.load(Word, R1, R10, OUTER + 12);
        self.code.set_wide(R2, u32::from_ne_bytes(relay.octets()).into());
        self.code.jump_if(R1, NotEqual, R2, stranger);
        self.code.load(Word, R2, R7, at::LOCAL);
        self.code.jump_if(R1, Equal, R2, stranger);
        let source = self.refused(Refusal::Source);
        self.single_host(source);
        self.link_local(source);

        self.code.bind(known);
        // The relay itself takes what goes on to anybody.
        let customer = self.code.label();
        self.code.load(Word, R1, R7, at::LOCAL);
        self.code.set_wide(R2, u32::from_ne_bytes(relay.octets()).into());
        self.code.jump_if(R1, NotEqual, R2, customer);
        self.leading(INNER + DESTINATION);
        self.single_host(destination);
        self.link_local(destination);
        self.code.jump(arrived);
        self.code.bind(customer);
        self.addressed_here(destination);
        self.code.bind(arrived);
    }

    fn addressed_here(&mut self, otherwise: Label) {
        let own = self.code.label();
        self.leading(INNER + DESTINATION);
        self.own(own);
        self.code.jump(otherwise);
        self.code.bind(own);
    }

    /// R9 = the IPv4 address in the one whose leading bits are in R8; goes on at the label where it is not of the domain.
    fn embedded(&mut self, domain: &Domain, beyond: Label) {
        let prefix = domain.prefix;
        let leading = (prefix.network().to_bits() >> 64) as u64;
        let mask = (prefix.netmask().to_bits() >> 64) as u64;
        let low = (1u64 << domain.ipv4_bits()) - 1;
        let code = &mut self.code;
        code.set_wide(R1, mask);
        code.and(R1, R8);
        code.set_wide(R2, leading);
        code.jump_if(R1, NotEqual, R2, beyond);
        code.copy(R9, R8);
        code.shift_right(R9, i32::from(64 - domain.delegated_length()));
        code.set_wide(R1, low);
        code.and(R9, R1);
        code.load(Word, R2, R7, at::LOCAL);
        code.network_order(R2, 32);
        code.set_wide(R1, u64::from(u32::MAX) & !low);
        code.and(R2, R1);
        code.calculate(Operation::Or, R9, R2);
    }

    /// Goes on at the label where no other end has the address in R9, as a number.
    fn usable(&mut self, domain: &Domain, otherwise: Label) {
        let code = &mut self.code;
        code.load(Word, R1, R7, at::LOCAL);
        code.network_order(R1, 32);
        code.jump_if(R9, Equal, R1, otherwise);
        code.copy(R1, R9);
        code.shift_right(R1, 24);
        code.jump_if(R1, Equal, 0, otherwise);
        code.jump_if(R1, Equal, 127, otherwise);
        code.jump_if(R1, Greater, 223, otherwise);
        for net in domain.unusable() {
            let bits = 32 - i32::from(net.prefix_len());
            code.copy(R1, R9);
            code.shift_right(R1, bits);
            code.set_wide(R2, (net.network().to_bits() >> bits).into());
            code.jump_if(R1, Equal, R2, otherwise);
        }
    }

    /// The outer header goes.
    fn take_off(&mut self, header: i32, flag: i32, ethertype: u16) {
        self.packets();
        if self.settings.decapsulates {
            self.adjust_room(-header, flag | FIXED_GSO);
            self.or_drop();
        } else {
            // It has no more than a way to change the version, for translation: that makes the header 20 bytes longer, or
            // shorter, and all of it goes.
            let code = &mut self.code;
            code.copy(R1, R6);
            code.set(R2, ethertype.to_be().into());
            code.set(R3, 0);
            code.call(Helper::SkbChangeProto);
            self.or_drop();
            let changed = if ethertype == ETHERTYPE_IPV6 { header + 20 } else { header - 20 };
            self.adjust_room(-changed, FIXED_GSO);
            self.or_drop();
        }
    }

    /// Gives the inner packet to the tunnel's device, as if it had come in there.
    fn hand_in(&mut self) {
        const INGRESS: i32 = 1;
        self.count(0, i32::from(self.settings.over.1));
        self.code.set(R1, self.settings.device.0.cast_signed());
        self.code.set(R2, INGRESS);
        self.code.call(Helper::Redirect);
        self.code.exit();
    }

    // Out

    fn out_four(&mut self, remote: Option<Ipv4Addr>, domain: Option<&Domain>) {
        self.begin_outgoing(ETHERTYPE_IPV6, IPV6.into());
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.shift_right(R1, 4);
        code.jump_if(R1, NotEqual, 6, malformed);
        code.load(Half, R1, R10, INNER + 4);
        code.network_order(R1, 16);
        code.add(R1, i32::from(IPV6));
        self.as_long();
        // R9 = whom it goes to, in network byte order.
        if let Some(remote) = remote {
            self.code.set_wide(R9, u32::from_ne_bytes(remote.octets()).into());
        }
        if let Some(domain) = domain {
            self.next_end(domain);
        }
        let code = &mut self.code;
        code.load(Half, R1, R10, INNER);
        code.network_order(R1, 16);
        code.shift_right(R1, 4);
        code.store_value(Byte, R10, OUTER, 0x45);
        code.store(Byte, R10, OUTER + 1, R1);
        // A super-packet may be longer than the field can say: what it is cut into gets lengths of its own.
        let [short, single, may_be_cut] = std::array::from_fn(|_| code.label());
        code.load(Word, R8, R6, context::LEN);
        code.add(R8, -i32::from(self.settings.device.1));
        code.copy(R1, R8);
        code.add(R1, i32::from(IPV4));
        code.jump_if(R1, Less, 0x1_0000, short);
        code.set(R1, 0);
        code.bind(short);
        code.network_order(R1, 16);
        code.store(Half, R10, OUTER + 2, R1);
        code.store_value(Half, R10, OUTER + 6, 0);
        // Of a super-packet that counts which it is cut into, with headers of IPv6 and TCP.
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Equal, 0, single);
        code.copy(R8, R1);
        code.add(R8, 60);
        code.bind(single);
        code.jump_if(R8, Less, LEAST_MTU as i32 + 1, may_be_cut);
        code.store_value(Half, R10, OUTER + 6, i32::from(wire::ipv4::DONT_FRAGMENT.to_be()));
        code.bind(may_be_cut);
        code.store_value(Byte, R10, OUTER + 8, self.settings.hop_limit.into());
        code.store_value(Byte, R10, OUTER + 9, protocol::IPV6.into());
        code.store_value(Half, R10, OUTER + 10, 0);
        code.load(Word, R1, R7, at::LOCAL);
        code.store(Word, R10, OUTER + 12, R1);
        code.store(Word, R10, OUTER + 16, R9);
        code.call(Helper::GetPrandomU32);
        code.store(Half, R10, OUTER + 4, R0);
        self.sum_of_outer();
        self.code.calculate(Operation::Xor, R1, 0xffff);
        self.code.store(Half, R10, OUTER + 10, R1);
        self.send_out(IPV4.into(), ENCAP_IPV4);
    }

    fn out_six(&mut self, remote: Ipv6Addr) {
        self.begin_outgoing(ETHERTYPE_IPV4, IPV4.into());
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.jump_if(R1, Less, 0x45, malformed);
        code.jump_if(R1, Greater, 0x4f, malformed);
        code.and(R1, 0xf);
        code.shift_left(R1, 2);
        code.copy(R2, R1);
        code.load(Half, R1, R10, INNER + 2);
        code.network_order(R1, 16);
        code.jump_if(R1, Less, R2, malformed);
        self.as_long();
        self.single_host_ipv4(INNER + 12, self.refused(Refusal::Source));
        let code = &mut self.code;
        code.store_value(Word, R10, OUTER, 0);
        code.load(Byte, R1, R10, INNER + 1);
        code.shift_left(R1, 4);
        code.calculate(Operation::Or, R1, 0x6000);
        code.network_order(R1, 16);
        code.store(Half, R10, OUTER, R1);
        code.load(Half, R1, R10, INNER + 2);
        code.store(Half, R10, OUTER + 4, R1);
        code.store_value(Byte, R10, OUTER + 6, PROTOCOL_IPV4.into());
        code.store_value(Byte, R10, OUTER + 7, self.settings.hop_limit.into());
        for (part, bits) in [(0, remote.to_bits() >> 64), (8, remote.to_bits())] {
            code.load(Double, R1, R7, at::LOCAL + part);
            code.store(Double, R10, OUTER + SOURCE + part, R1);
            code.set_wide(R1, (bits as u64).to_be());
            code.store(Double, R10, OUTER + DESTINATION + part, R1);
        }
        self.send_out(IPV6.into(), ENCAP_IPV6);
    }

    fn begin_outgoing(&mut self, ethertype: u16, header: i32) {
        let (no_way, malformed) = (self.refused(Refusal::NoWay), self.refused(Refusal::Malformed));
        self.code.copy(R6, R1);
        self.code.load(Word, R1, R6, context::PROTOCOL);
        self.code.jump_if(R1, NotEqual, i32::from(ethertype.to_be()), no_way);
        self.this_end(no_way);
        self.read(self.settings.device.1.into(), INNER, header, malformed);
    }

    /// Refuses a packet that is not of R1 bytes, unless it is a super-packet.
    fn as_long(&mut self) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        let super_packet = code.label();
        code.load(Word, R2, R6, context::GSO_SIZE);
        code.jump_if(R2, NotEqual, 0, super_packet);
        code.add(R1, i32::from(self.settings.device.1));
        code.load(Word, R2, R6, context::LEN);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(super_packet);
    }

    /// R9 = whose address is in the destination, or the relay's, in network byte order.
    fn next_end(&mut self, domain: &Domain) {
        let [multicast, source, destination, no_way] =
            [Refusal::Multicast, Refusal::Source, Refusal::Destination, Refusal::NoWay]
                .map(|refusal| self.refused(refusal));
        let [from_us, beyond, found] = std::array::from_fn(|_| self.code.label());
        self.code.load(Byte, R1, R10, INNER + DESTINATION);
        self.code.jump_if(R1, Equal, 0xff, multicast);
        let relay = domain.relay.map(|relay| u64::from(u32::from_ne_bytes(relay.octets())));
        if let Some(relay) = relay {
            self.code.load(Word, R1, R7, at::LOCAL);
            self.code.set_wide(R2, relay);
            self.code.jump_if(R1, Equal, R2, from_us);
        }
        self.leading(INNER + SOURCE);
        self.own(from_us);
        self.code.jump(source);
        self.code.bind(from_us);
        self.leading(INNER + DESTINATION);
        self.embedded(domain, beyond);
        self.usable(domain, destination);
        self.code.network_order(R9, 32);
        self.code.jump(found);
        self.code.bind(beyond);
        match relay {
            Some(relay) => {
                self.code.set_wide(R9, relay);
                self.code.load(Word, R1, R7, at::LOCAL);
                self.code.jump_if(R1, Equal, R9, no_way);
            }
            None => self.code.jump(no_way),
        }
        self.code.bind(found);
    }

    /// Sends the packet behind the outer header on the stack. What the kernel does not encapsulate we do.
    fn send_out(&mut self, header: i32, flag: i32) {
        let leave = self.leave;
        self.packets();
        self.adjust_room(header, flag | FIXED_GSO);
        self.code.jump_if(R0, NotEqual, 0, leave);
        let link = self.settings.device.1;
        self.write(link.into(), OUTER, header);
        self.count(16, header + i32::from(link));
        if link == 0 {
            self.code.copy(R1, R6);
            self.code.set(R2, LINK_HEADER);
            self.code.set(R3, 0);
            self.code.call(Helper::SkbChangeHead);
            self.or_drop();
        }
        let code = &mut self.code;
        code.set(R1, self.settings.over.0.cast_signed());
        code.set(R2, 0);
        code.set(R3, 0);
        code.set(R4, 0);
        code.call(Helper::RedirectNeighbor);
        code.exit();
    }

    // Both

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
