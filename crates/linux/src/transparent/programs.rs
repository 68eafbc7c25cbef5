//! The programs: what becomes of a frame.
//!
//! They copy its headers to the stack, so that addresses are keys of the tables where they lie; offsets there are from
//! the stack's end, R10. R6 is the context, R7 what a program remembers, the rest is scratch.

use wire::ethernet::MacAddress;

use super::Settings;
use super::tables::{ELSEWHERE, SOCKET, Tables};
use crate::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R10};
use crate::bpf::{Assembler, Condition, Helper, Label, Map, Size, context, verdict};

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

const ETHERNET_LEN: i32 = 14;
const HEADERS_LEN: i32 = ETHERNET_LEN + 40;
/// In a neighbor solicitation behind the headers.
const TARGET: i32 = HEADERS_LEN + 8;

const ICMPV6: i32 = 58;
const ROUTER_SOLICITATION: i32 = 133;
const ROUTER_ADVERTISEMENT: i32 = 134;
const NEIGHBOR_SOLICITATION: i32 = 135;

const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Bits of an address.
const WHOLE: i32 = 128;

/// For frames that come from the hosts.
pub(super) fn inside(settings: &Settings, tables: &Tables) -> Assembler {
    let mut code = Assembler::default();
    let (other, not_ours, drop) = (code.label(), code.label(), code.label());
    begin(&mut code, drop);
    // R7: the sender is protected, as far as it is known.
    let unknown = code.label();
    code.set(R7, 0);
    look_up(&mut code, &tables.macs, SOURCE_MAC);
    code.jump_if(R0, Condition::Equal, 0, unknown);
    code.set(R7, 1);
    code.bind(unknown);
    load_ipv6(&mut code, other);

    look_up(&mut code, &tables.protected, SOURCE);
    code.jump_if(R0, Condition::Equal, 0, not_ours);
    code.set(R7, 1);
    look_up_prefix(&mut code, &tables.remote, DESTINATION);
    code.jump_if(R0, Condition::Equal, 0, not_ours);
    code.load(Size::Word, R1, R0, 0);
    redirect(&mut code);

    // What hosts say to protected ones is their own business, and hopping addresses are not theirs.
    code.bind(not_ours);
    look_up(&mut code, &tables.protected, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    look_up(&mut code, &tables.hopping, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    look_up_prefix(&mut code, &tables.prefixes, DESTINATION);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    load_icmp_type(&mut code, other);
    // The daemon sends one that tells nothing in its place.
    code.jump_if(R1, Condition::Equal, ROUTER_SOLICITATION, drop);
    code.jump_if(R1, Condition::NotEqual, NEIGHBOR_SOLICITATION, other);
    load_target(&mut code, other);
    look_up(&mut code, &tables.protected, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    look_up(&mut code, &tables.hopping, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    for prefixes in [&tables.prefixes, &tables.remote] {
        look_up_prefix(&mut code, prefixes, EXTRA);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }

    code.bind(other);
    if !settings.pass_others {
        code.jump_if(R7, Condition::NotEqual, 0, drop);
    }
    look_up(&mut code, &tables.macs, DESTINATION_MAC);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.set(R1, settings.outside.0 as i32);
    redirect(&mut code);
    code.bind(drop);
    code.exit_with(verdict::DROP);
    code
}

/// For frames that come from the router's side.
pub(super) fn outside(settings: &Settings, tables: &Tables) -> Assembler {
    let mut code = Assembler::default();
    let (other, drop, one) = (code.label(), code.label(), code.label());
    let (not_for_us, to_socket, own) = (code.label(), code.label(), code.label());
    begin(&mut code, drop);
    load_ipv6(&mut code, other);

    look_up(&mut code, &tables.hopping, DESTINATION);
    code.jump_if(R0, Condition::Equal, 0, not_for_us);
    code.load(Size::Word, R1, R0, 0);
    code.jump_if(R1, Condition::Equal, SOCKET as i32, to_socket);
    code.jump_if_32(R1, Condition::Equal, ELSEWHERE as i32, drop);
    redirect(&mut code);
    code.bind(to_socket);
    code.exit_with(verdict::PASS);

    code.bind(not_for_us);
    // What a peer says by itself, as of neighbors, may be for this host, and is for none behind it.
    look_up(&mut code, &tables.hopping, SOURCE);
    code.jump_if(R0, Condition::NotEqual, 0, own);
    if !settings.pass_others {
        look_up(&mut code, &tables.protected, DESTINATION);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }
    // The next header is where the length of a prefix will be.
    code.load(Size::Byte, R7, R10, NEXT_HEADER);
    look_up_prefix(&mut code, &tables.prefixes, SOURCE);
    code.jump_if(R0, Condition::NotEqual, 0, own);
    if settings.pass_others {
        // What a remote host says to a protected one comes through the tunnel or is forged.
        let genuine = code.label();
        look_up(&mut code, &tables.protected, DESTINATION);
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
    code.jump_if(R1, Condition::Equal, ROUTER_ADVERTISEMENT, drop);
    code.jump_if(R1, Condition::NotEqual, NEIGHBOR_SOLICITATION, other);
    load_target(&mut code, other);
    look_up(&mut code, &tables.hopping, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    look_up_prefix(&mut code, &tables.prefixes, EXTRA);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    if !settings.pass_others {
        look_up(&mut code, &tables.protected, EXTRA);
        code.jump_if(R0, Condition::NotEqual, 0, drop);
    }

    code.bind(other);
    if !settings.pass_others {
        look_up(&mut code, &tables.macs, DESTINATION_MAC);
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
    redirect(&mut code);
    code.bind(drop);
    code.exit_with(verdict::DROP);
    code
}

/// For packets that the daemon writes to a TUN device.
pub(super) fn tunnel(settings: &Settings, tables: &Tables) -> Assembler {
    const HEADER: i16 = -14;
    let mut code = Assembler::default();
    let (drop, outer, have, unknown) = (code.label(), code.label(), code.label(), code.label());
    code.copy(R6, R1);
    code.load(Size::Word, R1, R6, context::PROTOCOL);
    code.jump_if(R1, Condition::NotEqual, i32::from(ETHERTYPE_IPV6.to_be()), drop);
    load(&mut code, 0, IPV6, 40, drop);
    look_up(&mut code, &tables.protected, DESTINATION);
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
    look_up(&mut code, &tables.router, NUMBER);
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
    add_link_header(&mut code, drop);
    code.copy(R1, R6);
    code.set(R2, 0);
    code.copy(R3, R10);
    code.add(R3, i32::from(HEADER));
    code.set(R4, ETHERNET_LEN);
    code.set(R5, 0);
    code.call(Helper::SkbStoreBytes);
    code.jump_if(R0, Condition::NotEqual, 0, drop);
    code.set(R1, settings.inside.0 as i32);
    redirect(&mut code);

    // From a hopping address of this side: out, by the kernel's routes and neighbors.
    code.bind(outer);
    look_up(&mut code, &tables.hopping, SOURCE);
    code.jump_if(R0, Condition::Equal, 0, drop);
    add_link_header(&mut code, drop);
    code.set(R1, settings.outside.0 as i32);
    code.set(R2, 0);
    code.set(R3, 0);
    code.set(R4, 0);
    code.call(Helper::RedirectNeighbor);
    code.exit();
    code.bind(drop);
    code.exit_with(verdict::DROP);
    code
}

/// R6 is the context, and the Ethernet header lies in its place.
fn begin(code: &mut Assembler, short: Label) {
    code.copy(R6, R1);
    load(code, 0, ETHERNET, ETHERNET_LEN, short);
}

/// Both headers, unless the frame is no plain IPv6, or too short for it.
fn load_ipv6(code: &mut Assembler, other: Label) {
    code.load(Size::Word, R1, R6, context::VLAN_PRESENT);
    code.jump_if(R1, Condition::NotEqual, 0, other);
    code.load(Size::Word, R1, R6, context::PROTOCOL);
    code.jump_if(R1, Condition::NotEqual, i32::from(ETHERTYPE_IPV6.to_be()), other);
    load(code, ETHERNET_LEN, IPV6, 40, other);
}

/// R1 is the ICMPv6 type, unless it is no such packet.
fn load_icmp_type(code: &mut Assembler, other: Label) {
    code.load(Size::Byte, R1, R10, NEXT_HEADER);
    code.jump_if(R1, Condition::NotEqual, ICMPV6, other);
    load(code, HEADERS_LEN, EXTRA, 1, other);
    code.load(Size::Byte, R1, R10, EXTRA);
}

fn load_target(code: &mut Assembler, other: Label) {
    load(code, TARGET, EXTRA, 16, other);
}

/// Bytes of the packet to the stack.
fn load(code: &mut Assembler, from: i32, to: i16, length: i32, failed: Label) {
    code.copy(R1, R6);
    code.set(R2, from);
    code.copy(R3, R10);
    code.add(R3, i32::from(to));
    code.set(R4, length);
    code.call(Helper::SkbLoadBytes);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
}

/// R0 is the value in the map of the key that lies there, or 0.
fn look_up(code: &mut Assembler, map: &Map, key: i16) {
    code.load_map(R1, map);
    code.copy(R2, R10);
    code.add(R2, i32::from(key));
    code.call(Helper::MapLookup);
}

/// The same for the longest prefix of the address that lies there. The four bytes before it are lost.
fn look_up_prefix(code: &mut Assembler, map: &Map, address: i16) {
    code.store_value(Size::Word, R10, address - 4, WHOLE);
    look_up(code, map, address - 4);
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

/// Room for an Ethernet header, of zeros, before a packet that has none.
fn add_link_header(code: &mut Assembler, failed: Label) {
    code.copy(R1, R6);
    code.set(R2, ETHERNET_LEN);
    code.set(R3, 0);
    code.call(Helper::SkbChangeHead);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
}

/// Out of the interface whose index is in R1, and that is all.
fn redirect(code: &mut Assembler) {
    code.set(R2, 0);
    code.call(Helper::Redirect);
    code.exit();
}
