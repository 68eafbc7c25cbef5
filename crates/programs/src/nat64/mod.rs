//! The translator's program (RFC 7915): where packets leave by its device, before GSO packets are segmented, it makes
//! IPv4 packets of IPv6 packets and the other way round, and gives them to the host as if they had come in by that device.
//! The kernel routes them there and on, counts hop limits down, and keeps track of connections on both sides.
//!
//! A header is written anew, and what is behind it stays where it is: checksums change by what has changed in what they
//! cover (RFC 1624), so a wrong one stays wrong, one that is left to a device stays left to it, and a GSO packet crosses
//! whole. Checksums of ICMPv6 cover the message's length, which a first fragment does not tell: the mark does
//! ([`LENGTH_RULE`]), from where connection tracking has the message in one piece.
//!
//! Hosts have their places in a table of sets, eight to a set. The place is the address: what comes back is found without a
//! search. A host's set is chosen by a secret hash of its /64, of which there are groups of sets, and of the rest of its
//! address. A new one takes the place of the one that has been silent longest, where one that was never answered counts as
//! silent an hour more, and none that was answered in the last minute loses its own. So somebody inside who makes up
//! addresses, a /64 full of them, takes places of one group, from his neighbors on the link, who have an hour before all
//! that nobody answers; those of other networks keep theirs, but for the one in 16 that shares his group by chance.

mod addresses;
mod clat;
mod errors;
mod four_to_six;
mod layout;
mod six_to_four;

use std::os::fd::{AsRawFd, RawFd};

use bpf::{
    Assembler, Condition, Helper, Label, MapKind, MapShape, Operation, Register, Size, context, verdict,
};
use ipnet::Ipv4Net;
use router::nat64::{Nat64, Refusal};
use wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use wire::protocol;

use crate::refusals::Refusals;
use crate::snippet::{LINK_HEADER, Snippets as _};

pub use clat::{Clat, clat, clat_end, steering};

use Condition::{AnyBit, Equal, Greater, GreaterOrEqual, Less, NotEqual};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{Byte, Double, Half, Word};

/// Hosts of a set.
pub const WAYS: usize = 8;

/// Where things are in a set.
mod at {
    use super::WAYS;
    /// When each was heard last, in units of 2^30 ns since boot, 4 bytes; an hour more once it was answered.
    pub(super) const HEARD: i16 = 16 * WAYS as i16;
    /// Not zero: somebody makes a place for a host. 4 bytes.
    pub(super) const LOCK: i16 = HEARD + 4 * WAYS as i16;
}
const VALUE: usize = at::LOCK as usize + 8;

/// The table of counters has packets and bytes to IPv4, and to IPv6; behind that how many places have been taken; and then
/// an entry for each refusal. Of these the first is the count.
const COUNTERS: usize = 32;
const HOSTS: u32 = 1;
const REFUSALS: u32 = 2;
/// Where in an entry of counters those of each direction begin.
const TO_FOUR: i16 = 0;
const TO_SIX: i16 = 16;
/// Types of echo replies and requests in the one version and the other (RFC 7915 sections 4.2 and 5.2).
const ECHO_TO_SIX: [(i32, i32); 2] = [(0, 129), (8, 128)];
const ECHO_TO_FOUR: [(i32, i32); 2] = [(129, 0), (128, 8)];

/// How much longer one is kept that was answered, and how long it is kept in any case, in units of 2^30 ns.
const ANSWERED: i32 = 3_600;
const KEPT: i32 = 60;

/// What the program shares with others.
#[derive(Debug)]
pub struct Tables<M> {
    /// Sets of hosts; of a CLAT, its own end, as [`clat_end`] has it.
    pub hosts: M,
    /// What crossed, and behind it what was refused: see [`counts`].
    pub counters: M,
}

impl<M> Tables<M> {
    /// Empty ones, each made by `create`.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn create<E>(pool: Ipv4Net, create: impl Fn(MapShape) -> Result<M, E>) -> Result<Self, E> {
        Self::with_hosts((VALUE, 1 << set_bits(pool)), create)
    }

    /// With so many entries of so many bytes in the table of hosts.
    fn with_hosts<E>(
        (value, entries): (usize, u32),
        create: impl Fn(MapShape) -> Result<M, E>,
    ) -> Result<Self, E> {
        let counters = REFUSALS + Refusal::ALL.len() as u32;
        Ok(Tables {
            hosts: create(MapShape { kind: MapKind::Array, key: 4, value, entries })?,
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
    fn descriptors(&self) -> Tables<RawFd> {
        Tables { hosts: self.hosts.as_raw_fd(), counters: self.counters.as_raw_fd() }
    }
}

/// How many bits number the sets of a pool.
fn set_bits(pool: Ipv4Net) -> u32 {
    29u32.saturating_sub(pool.prefix_len().into())
}

/// What has crossed, and what has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that became IPv4.
    pub to_ipv4_packets: u64,
    /// Their bytes, as they came.
    pub to_ipv4_bytes: u64,
    /// Packets that became IPv6.
    pub to_ipv6_packets: u64,
    /// Their bytes, as they came.
    pub to_ipv6_bytes: u64,
    /// Addresses of the pool that a host has, or had before it was silent for long.
    pub hosts: u64,
    /// Packets that were refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

/// What has been counted; `entry` reads one of [`Tables::counters`], summed up over processors.
pub fn counts(entry: impl Fn(u32) -> Vec<u64>) -> Counts {
    let [to_ipv4_packets, to_ipv4_bytes, to_ipv6_packets, to_ipv6_bytes] = entry(0)[..] else {
        return Counts::default();
    };
    let first = |number| entry(number).first().copied().unwrap_or(0);
    let refused = std::array::from_fn(|number| first(REFUSALS + number as u32));
    let hosts = first(HOSTS);
    Counts { hosts, to_ipv4_packets, to_ipv4_bytes, to_ipv6_packets, to_ipv6_bytes, refused }
}

/// A rule of nft about packets that leave by the device, for a chain at a hook where messages are whole: it tells the program
/// how long those of ICMP are. The program takes the mark off again.
pub const LENGTH_RULE: &str = "meta l4proto { icmp, ipv6-icmp } meta mark set meta length";

/// What the program is made for.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Prefix and pool.
    pub nat64: &'a Nat64,
    /// The device, and bytes of its link header: none.
    pub device: (u32, u8),
    /// What nobody can guess, for where hosts are.
    pub secret: [u64; 2],
}

// Places on the stack: the IPv6 packet from its addresses on as checksums of ICMPv6 cover it, and what it quotes.
const V6: i16 = -112;
const PSEUDO: i16 = V6 + IPV6;
const ICMP6: i16 = PSEUDO + 8;
const QUOTED_V6: i16 = ICMP6 + 8;
const QUOTED_REST_6: i16 = QUOTED_V6 + IPV6;
// The IPv4 packet, and what it quotes.
const V4: i16 = -136;
const FRAGMENT: i16 = -144;
const ICMP4: i16 = -184;
const QUOTED_V4: i16 = ICMP4 + 8;
const QUOTED_REST_4: i16 = QUOTED_V4 + IPV4;
// Other things.
const NUMBER: i16 = -188;
const PACKETS: i16 = -196;
const DIFFERENCE: i16 = -200;
/// The upper-layer protocol, and where it begins behind the link header.
const PROTOCOL: i16 = -204;
const UPPER: i16 = -208;
/// Whether there are more fragments or an offset, and that offset.
const IS_FRAGMENT: i16 = -212;
const OFFSET: i16 = -216;
/// How long the packet is behind the link header.
const LENGTH: i16 = -220;
const NOW: i16 = -224;

// Offsets in headers.
const IPV4: i16 = 20;
const IPV6: i16 = 40;
const FRAGMENT_HEADER: i16 = 8;
const SOURCE_6: i16 = 8;
const DESTINATION_6: i16 = 24;
const SOURCE_4: i16 = 12;
const DESTINATION_4: i16 = 16;

// Of skb_store_bytes, l4_csum_replace, skb_adjust_room.
const RECOMPUTE: i32 = 1;
const PSEUDO_HEADER: i32 = 0x10;
const MAY_BE_ABSENT: i32 = 0x20;
const ROOM_NET: i32 = 0;

const FRAGMENTED: i32 = 44;
/// Extension headers that are not translated: hop-by-hop and destination options, routing, mobility, HIP, shim6; and a
/// fragment's, where a fragment is.
const EXTENSIONS: [i32; 7] = [0, 43, FRAGMENTED, 60, 135, 139, 140];
const ICMP: i32 = 1;
const ICMPV6: i32 = protocol::ICMPV6 as i32;
const TCP: i32 = protocol::TCP as i32;
const UDP: i32 = protocol::UDP as i32;

/// The program where packets leave by the translator's device.
pub fn translator(settings: &Settings<'_>, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = &tables.descriptors();
    both_ways(Code::new(Role::Nat64(settings), settings.device, tables))
}

/// The program, in either role.
fn both_ways(mut code: Code<'_>) -> Assembler {
    let (six, four) = (code.code.label(), code.code.label());
    code.code.copy(R6, R1);
    code.code.load(Word, R1, R6, context::PROTOCOL);
    code.code.jump_if(R1, Equal, i32::from(ETHERTYPE_IPV6.to_be()), six);
    code.code.jump_if(R1, Equal, i32::from(ETHERTYPE_IPV4.to_be()), four);
    let malformed = code.refused(Refusal::Malformed);
    code.code.jump(malformed);
    code.code.bind(six);
    code.six_to_four();
    code.code.bind(four);
    code.four_to_six();
    code.finish()
}

/// At which end of a translated path the program is: on one side are hosts, whose addresses it gives, on the other servers,
/// whose addresses of IPv4 are in a prefix.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// Hosts of IPv6 reach servers of IPv4.
    Nat64(&'a Settings<'a>),
    /// This machine, which is 192.0.0.1, reaches servers of IPv4 as a host of IPv6 does.
    Clat(&'a Clat),
}

/// In all of it R6 is the context; R7 the set of the host, once that is known, or the CLAT's end.
struct Code<'a> {
    code: Assembler,
    role: Role<'a>,
    /// The device, and bytes of its link header.
    device: u32,
    tables: &'a Tables<RawFd>,
    link: i32,
    /// To the device, and so to us.
    leave: Label,
    refusals: Refusals<{ Refusal::ALL.len() }>,
}

impl<'a> Code<'a> {
    fn new(role: Role<'a>, (device, link): (u32, u8), tables: &'a Tables<RawFd>) -> Self {
        let mut code = Assembler::default();
        let leave = code.label();
        let refusals = Refusals::new(&mut code);
        Code { code, role, device, tables, link: link.into(), leave, refusals }
    }

    fn refused(&self, refusal: Refusal) -> Label {
        self.refusals.label(refusal as usize)
    }

    /// The ends of all ways.
    fn finish(mut self) -> Assembler {
        let Code { code, tables, leave, refusals, .. } = &mut self;
        refusals.counted(code, &tables.counters, REFUSALS, NUMBER);
        code.exit_with(verdict::DROP);
        code.bind(*leave);
        code.exit_with(verdict::NEXT);
        self.code
    }

    /// Reads a part of the packet, from its header on, to the stack.
    fn read(&mut self, offset: i32, to: i16, length: i16) {
        let malformed = self.refused(Refusal::Malformed);
        self.code.load_bytes(self.link + offset, to, length.into(), malformed);
    }

    /// The same from where the upper-layer header is.
    fn read_upper(&mut self, to: i16, length: i16) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.copy(R1, R6);
        code.load(Word, R2, R10, UPPER);
        code.add(R2, self.link);
        code.copy(R3, R10);
        code.add(R3, i32::from(to));
        code.set(R4, length.into());
        code.call(Helper::SkbLoadBytes);
        code.jump_if(R0, NotEqual, 0, malformed);
    }

    /// Writes what is on the stack over the packet, in front of what is there of a sum, or loses it.
    fn write(&mut self, offset: i32, from: i16, length: i16) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, self.link + offset);
        code.copy(R3, R10);
        code.add(R3, i32::from(from));
        code.set(R4, length.into());
        code.set(R5, RECOMPUTE);
        code.call(Helper::SkbStoreBytes);
        code.jump_if(R0, NotEqual, 0, malformed);
    }

    /// What the packet is: its length to the stack, packets and bytes for the counter, which the kernel forgets.
    fn begin(&mut self) {
        let code = &mut self.code;
        code.segments();
        code.store(Word, R10, PACKETS, R1);
        code.load(Word, R1, R6, context::LEN);
        code.add(R1, -self.link);
        code.store(Word, R10, LENGTH, R1);
        code.store_value(Word, R10, IS_FRAGMENT, 0);
        code.store_value(Word, R10, OFFSET, 0);
    }

    /// Refuses a packet that is not of R1 bytes, unless it is a GSO packet.
    fn as_long(&mut self) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        let gso_packet = code.label();
        code.load(Word, R2, R6, context::GSO_SIZE);
        code.jump_if(R2, NotEqual, 0, gso_packet);
        code.load(Word, R2, R10, LENGTH);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(gso_packet);
    }

    /// Leaves GSO packets of UDP: the kernel does not change their version, and segments them for the device.
    fn leave_udp_gso(&mut self) {
        let leave = self.leave;
        let code = &mut self.code;
        let other = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Equal, 0, other);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, NotEqual, TCP, leave);
        code.bind(other);
    }

    /// The difference of two pieces of the stack, which checksums cover, to its place.
    fn difference(&mut self, old: (i16, i16), new: (i16, i16)) {
        let code = &mut self.code;
        for (pointer, length, (place, bytes)) in [(R1, R2, old), (R3, R4, new)] {
            code.copy(pointer, R10);
            code.add(pointer, i32::from(place));
            code.set(length, bytes.into());
        }
        code.set(R5, 0);
        code.call(Helper::ChecksumDiff);
        code.store(Word, R10, DIFFERENCE, R0);
    }

    /// Changes the checksum there, behind the upper-layer header's beginning, by the difference.
    fn correct(&mut self, upper: i16, checksum: i32, flags: i32) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, self.link + i32::from(upper) + checksum);
        code.set(R3, 0);
        code.load(Word, R4, R10, DIFFERENCE);
        code.set(R5, PSEUDO_HEADER | flags);
        code.call(Helper::L4ChecksumReplace);
        code.jump_if(R0, NotEqual, 0, malformed);
    }

    /// The packet becomes one of the other version; what is in the place of its header is to be written.
    fn change_version(&mut self, ethertype: u16) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, ethertype.to_be().into());
        code.set(R3, 0);
        code.call(Helper::SkbChangeProto);
        code.jump_if(R0, NotEqual, 0, malformed);
    }

    /// Makes so much room behind the header, or less.
    fn room(&mut self, difference: i32) {
        let malformed = self.refused(Refusal::Malformed);
        self.code.adjust_room(difference, ROOM_NET, 0);
        self.code.jump_if(R0, NotEqual, 0, malformed);
    }

    /// Finishes an IPv4 header on the stack: its checksum.
    fn sum_of_header(&mut self, header: i16) {
        let code = &mut self.code;
        code.store_value(Half, R10, header + 10, 0);
        code.sum_ipv4_header(header);
        code.calculate(Operation::Xor, R1, 0xffff);
        code.store(Half, R10, header + 10, R1);
    }

    /// Ends: counts the packet, and gives it to the host as one that came in by the device; one of a CLAT that is of IPv6 now
    /// to the provider.
    fn hand_over(&mut self, direction: i16) {
        let code = &mut self.code;
        code.store_value(Word, R10, NUMBER, 0);
        code.look_up(&self.tables.counters, NUMBER);
        let uncounted = code.label();
        code.jump_if(R0, Equal, 0, uncounted);
        for (offset, what) in [(0, PACKETS), (8, LENGTH)] {
            code.load(Word, R1, R10, what);
            code.count(direction + offset);
        }
        code.bind(uncounted);
        match self.role {
            Role::Clat(clat) if direction == TO_SIX => self.send_to_provider(clat),
            _ => {
                code.set(R1, self.device.cast_signed());
                code.redirect_into_host();
            }
        }
    }

    /// Takes the mark off that told how long a message is.
    fn unmark(&mut self) {
        self.code.set(R1, 0);
        self.code.store(Word, R6, context::MARK, R1);
    }
}
