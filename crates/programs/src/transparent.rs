//! A transparent gateway, between hosts and their router: what becomes of a frame at each interface.
//!
//! They copy its headers to the stack, so that addresses are keys of the tables where they lie; offsets there are from
//! the stack's end, R10. R6 is the context, R7 what a program remembers, the rest is scratch.

use std::os::fd::{AsRawFd, RawFd};

use bpf::Register::{R0, R1, R2, R3, R6, R7, R10};
use bpf::{Assembler, Condition, Helper, Label, MapKind, MapShape, Size, context, verdict};
use wire::ethernet::{ETHERTYPE_IPV6, MacAddress};
use wire::icmpv6::{NEIGHBOR_SOLICITATION, ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION};
use wire::protocol;

use crate::snippet::{LINK_HEADER, Snippets as _};

/// Entries of each table, at most. Endpoints of thousands of peers fit.
const ENTRIES: u32 = 1 << 16;
/// Of [`Tables::hopping`]: packets for it are for this host's sockets.
pub const SOCKET: u32 = 0;
/// Likewise: packets for it are nobody's business here.
pub const ELSEWHERE: u32 = u32::MAX;

/// What the programs are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interface that the hosts are behind, and its address.
    pub inside: (u32, MacAddress),
    /// The interface that the router is behind, and its address.
    pub outside: (u32, MacAddress),
    /// What protected hosts and others say to each other passes, which shows the hosts; otherwise it is dropped.
    pub pass_others: bool,
}

/// What the programs decide by.
#[derive(Debug)]
pub struct Tables<M> {
    /// Protected hosts of this side by address: hardware address and two bytes, the first of which is 1 if it is known.
    pub protected: M,
    /// Their hardware addresses.
    pub macs: M,
    /// Remote protected hosts and networks, by prefix: device (4 bytes) and whether on this link (4).
    pub remote: M,
    /// Hopping addresses in use: [`SOCKET`], the index of a device, or [`ELSEWHERE`].
    pub hopping: M,
    /// Prefixes that are hopped in, and nothing else is there.
    pub prefixes: M,
    /// The router's hardware address, as those of protected hosts.
    pub router: M,
}

impl<M> Tables<M> {
    /// Empty ones, each made by `create`.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn create<E>(create: impl Fn(MapShape) -> Result<M, E>) -> Result<Self, E> {
        let table = |kind, key, value, entries| create(MapShape { kind, key, value, entries });
        Ok(Self {
            protected: table(MapKind::Hash, 16, 8, ENTRIES)?,
            macs: table(MapKind::Hash, 6, 1, ENTRIES)?,
            remote: table(MapKind::LongestPrefix, 20, 8, ENTRIES)?,
            hopping: table(MapKind::Hash, 16, 4, ENTRIES)?,
            prefixes: table(MapKind::LongestPrefix, 20, 1, ENTRIES)?,
            router: table(MapKind::Array, 4, 8, 1)?,
        })
    }
}

impl<M: AsRawFd> Tables<M> {
    fn descriptors(&self) -> Tables<RawFd> {
        Tables {
            protected: self.protected.as_raw_fd(),
            macs: self.macs.as_raw_fd(),
            remote: self.remote.as_raw_fd(),
            hopping: self.hopping.as_raw_fd(),
            prefixes: self.prefixes.as_raw_fd(),
            router: self.router.as_raw_fd(),
        }
    }
}

/// Where an Ethernet header (14 bytes) and an IPv6 header (40) lie: the length field of a prefix fits before each address
/// of the latter, over what was looked at before.
const ETHERNET: i16 = -70;
const DESTINATION_MAC: i16 = ETHERNET;
const SOURCE_MAC: i16 = ETHERNET + 6;
const IPV6: i16 = ETHERNET + 14;
const NEXT_HEADER: i16 = IPV6 + 6;
const SOURCE: i16 = IPV6 + 8;
const DESTINATION: i16 = IPV6 + 24;
/// Behind them, an ICMPv6 type or the target of a solicitation.
const EXTRA: i16 = -16;
/// A key for an array.
const NUMBER: i16 = -76;

const HEADERS_LEN: i32 = LINK_HEADER + 40;
/// In a neighbor solicitation behind the headers.
const TARGET: i32 = HEADERS_LEN + 8;

/// Bits of an address.
const WHOLE: i32 = 128;

/// For frames that come from the hosts.
pub fn inside(settings: &Settings, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = tables.descriptors();
    let mut code = Assembler::default();
    let (other, not_ours, drop) = (code.label(), code.label(), code.label());
    begin(&mut code, drop);
    // R7: the sender is protected, as far as it is known.
    let unknown = code.label();
    code.set(R7, 0);
    code.look_up(&tables.macs, SOURCE_MAC);
    code.jump_if(R0, Condition::Equal, 0, unknown);
    code.set(R7, 1);
    code.bind(unknown);
    load_ipv6(&mut code, other);

    code.look_up(&tables.protected, SOURCE);
    code.jump_if(R0, Condition::Equal, 0, not_ours);
    code.set(R7, 1);
    look_up_prefix(&mut code, &tables.remote, DESTINATION);
    code.jump_if(R0, Condition::Equal, 0, not_ours);
    code.load(Size::Word, R1, R0, 0);
    code.redirect();

    // What hosts say to protected ones is their own business, and hopping addresses are not theirs.
    code.bind(not_ours);
    code.look_up(&tables.protected, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.look_up(&tables.hopping, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    look_up_prefix(&mut code, &tables.prefixes, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    load_icmp_type(&mut code, other);
    // The daemon sends one that tells nothing in its place.
    code.jump_if(R1, Condition::Equal, i32::from(ROUTER_SOLICITATION), drop);
    code.jump_if(R1, Condition::NotEqual, i32::from(NEIGHBOR_SOLICITATION), other);
    load_target(&mut code, other);
    code.look_up(&tables.protected, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.look_up(&tables.hopping, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    for prefixes in [&tables.prefixes, &tables.remote] {
        look_up_prefix(&mut code, prefixes, EXTRA);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }

    code.bind(other);
    if !settings.pass_others {
        code.jump_if(R7, Condition::NotEqual, 0, drop);
    }
    code.look_up(&tables.macs, DESTINATION_MAC);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.set(R1, settings.outside.0 as i32);
    code.redirect();
    code.bind(drop);
    code.exit_with(verdict::DROP);
    code
}

/// For frames that come from the router's side.
pub fn outside(settings: &Settings, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = tables.descriptors();
    let mut code = Assembler::default();
    let (other, drop, one) = (code.label(), code.label(), code.label());
    let (not_for_us, to_socket, own) = (code.label(), code.label(), code.label());
    begin(&mut code, drop);
    load_ipv6(&mut code, other);

    code.look_up(&tables.hopping, DESTINATION);
    code.jump_if(R0, Condition::Equal, 0, not_for_us);
    code.load(Size::Word, R1, R0, 0);
    code.jump_if(R1, Condition::Equal, SOCKET as i32, to_socket);
    code.jump_if_32(R1, Condition::Equal, ELSEWHERE as i32, drop);
    code.redirect();
    code.bind(to_socket);
    code.exit_with(verdict::PASS);

    code.bind(not_for_us);
    // What a peer says by itself, as of neighbors, may be for this host, and is for none behind it.
    code.look_up(&tables.hopping, SOURCE);
    code.jump_if(R0, Condition::NotEqual, 0, own);
    if !settings.pass_others {
        code.look_up(&tables.protected, DESTINATION);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }
    // The next header is where the length of a prefix will be.
    code.load(Size::Byte, R7, R10, NEXT_HEADER);
    look_up_prefix(&mut code, &tables.prefixes, SOURCE);
    code.jump_if(R0, Condition::NotEqual, 0, own);
    if settings.pass_others {
        // What a remote host says to a protected one comes through the tunnel or is forged.
        let genuine = code.label();
        code.look_up(&tables.protected, DESTINATION);
        code.jump_if(R0, Condition::Equal, 0, genuine);
        look_up_prefix(&mut code, &tables.remote, SOURCE);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
        code.bind(genuine);
    }
    look_up_prefix(&mut code, &tables.prefixes, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.store(Size::Byte, R10, NEXT_HEADER, R7);
    load_icmp_type(&mut code, other);
    // The daemon sends one with another MTU in its place.
    code.jump_if(R1, Condition::Equal, i32::from(ROUTER_ADVERTISEMENT), drop);
    code.jump_if(R1, Condition::NotEqual, i32::from(NEIGHBOR_SOLICITATION), other);
    load_target(&mut code, other);
    code.look_up(&tables.hopping, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    look_up_prefix(&mut code, &tables.prefixes, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    if !settings.pass_others {
        code.look_up(&tables.protected, EXTRA);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }

    code.bind(other);
    if !settings.pass_others {
        code.look_up(&tables.macs, DESTINATION_MAC);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }
    jump_if_mac(&mut code, DESTINATION_MAC, settings.outside.1, own);
    code.load(Size::Byte, R1, R10, DESTINATION_MAC);
    code.and(R1, 1);
    code.jump_if(R1, Condition::Equal, 0, one);
    // For all: this host may be asked, too.
    code.copy(R1, R6);
    code.set(R2, settings.inside.0 as i32);
    code.set(R3, 0);
    code.call(Helper::CloneRedirect);
    code.bind(own);
    code.exit_with(verdict::PASS);
    code.bind(one);
    code.set(R1, settings.inside.0 as i32);
    code.redirect();
    code.bind(drop);
    code.exit_with(verdict::DROP);
    code
}

/// For packets that the daemon writes to a TUN device.
pub fn tunnel(settings: &Settings, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = tables.descriptors();
    const HEADER: i16 = -14;
    let mut code = Assembler::default();
    let (drop, outer, have, unknown) = (code.label(), code.label(), code.label(), code.label());
    code.copy(R6, R1);
    code.load(Size::Word, R1, R6, context::PROTOCOL);
    code.jump_if(R1, Condition::NotEqual, i32::from(ETHERTYPE_IPV6.to_be()), drop);
    code.load_bytes(0, IPV6, 40, drop);
    code.look_up(&tables.protected, DESTINATION);
    code.jump_if(R0, Condition::Equal, 0, outer);

    // To a protected host: from the router, or from the remote host as it is known on this link.
    code.copy(R7, R0);
    code.load(Size::Byte, R1, R7, 6);
    code.jump_if(R1, Condition::Equal, 0, drop);
    look_up_prefix(&mut code, &tables.remote, SOURCE);
    let from_router = code.label();
    code.jump_if(R0, Condition::Equal, 0, from_router);
    code.load(Size::Word, R1, R0, 4);
    code.jump_if(R1, Condition::NotEqual, 0, unknown);
    code.bind(from_router);
    code.store_value(Size::Word, R10, NUMBER, 0);
    code.look_up(&tables.router, NUMBER);
    code.jump_if(R0, Condition::Equal, 0, unknown);
    code.load(Size::Byte, R1, R0, 6);
    code.jump_if(R1, Condition::Equal, 0, unknown);
    for at in [0, 2, 4] {
        code.load(Size::Half, R1, R0, at);
        code.store(Size::Half, R10, HEADER + 6 + at, R1);
    }
    code.jump(have);
    code.bind(unknown);
    for (at, value) in halves(settings.inside.1) {
        code.store_value(Size::Half, R10, HEADER + 6 + at, value);
    }
    code.bind(have);
    for at in [0, 2, 4] {
        code.load(Size::Half, R1, R7, at);
        code.store(Size::Half, R10, HEADER + at, R1);
    }
    code.store_value(Size::Half, R10, HEADER + 12, i32::from(ETHERTYPE_IPV6.to_be()));
    code.change_head(LINK_HEADER);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.store_bytes(0, HEADER, LINK_HEADER);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.set(R1, settings.inside.0 as i32);
    code.redirect();

    // From a hopping address of this side: out, by the kernel's routes and neighbors.
    code.bind(outer);
    code.look_up(&tables.hopping, SOURCE);
    code.jump_if(R0, Condition::Equal, 0, drop);
    code.change_head(LINK_HEADER);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.set(R1, settings.outside.0 as i32);
    code.set(R2, 0);
    code.set(R3, 0);
    code.redirect_to_neighbor();
    code.bind(drop);
    code.exit_with(verdict::DROP);
    code
}

/// R6 is the context, and the Ethernet header lies in its place.
fn begin(code: &mut Assembler, short: Label) {
    code.copy(R6, R1);
    code.load_bytes(0, ETHERNET, LINK_HEADER, short);
}

/// Both headers, unless the frame is no plain IPv6, or too short for it.
fn load_ipv6(code: &mut Assembler, other: Label) {
    code.load(Size::Word, R1, R6, context::VLAN_PRESENT);
    code.jump_if(R1, Condition::NotEqual, 0, other);
    code.load(Size::Word, R1, R6, context::PROTOCOL);
    code.jump_if(R1, Condition::NotEqual, i32::from(ETHERTYPE_IPV6.to_be()), other);
    code.load_bytes(LINK_HEADER, IPV6, 40, other);
}

/// R1 is the ICMPv6 type, unless it is no such packet.
fn load_icmp_type(code: &mut Assembler, other: Label) {
    code.load(Size::Byte, R1, R10, NEXT_HEADER);
    code.jump_if(R1, Condition::NotEqual, i32::from(protocol::ICMPV6), other);
    code.load_bytes(HEADERS_LEN, EXTRA, 1, other);
    code.load(Size::Byte, R1, R10, EXTRA);
}

fn load_target(code: &mut Assembler, other: Label) {
    code.load_bytes(TARGET, EXTRA, 16, other);
}

/// The same for the longest prefix of the address that lies there. The four bytes before it are lost.
fn look_up_prefix(code: &mut Assembler, map: &RawFd, address: i16) {
    code.store_value(Size::Word, R10, address - 4, WHOLE);
    code.look_up(map, address - 4);
}

/// Goes on where a hardware address on the stack is this one.
fn jump_if_mac(code: &mut Assembler, at: i16, mac: MacAddress, label: Label) {
    let differs = code.label();
    for (offset, value) in halves(mac) {
        code.load(Size::Half, R1, R10, at + offset);
        code.jump_if(R1, Condition::NotEqual, value, differs);
    }
    code.jump(label);
    code.bind(differs);
}

/// An address in three parts, as this machine loads and stores them.
fn halves(mac: MacAddress) -> [(i16, i32); 3] {
    let [a, b, c, d, e, f] = mac.0;
    [(0, [a, b]), (2, [c, d]), (4, [e, f])].map(|(at, pair)| (at, i32::from(u16::from_ne_bytes(pair))))
}
