//! A CLAT (464XLAT, RFC 6877): the same program at the customer's end, and where packets come in by the interface to the
//! provider, which are for it.
//!
//! All that is of IPv4 comes from one address, 192.0.0.1 (RFC 7335): the kernel has masqueraded it. That becomes the CLAT's own
//! address of IPv6 and back, and servers' addresses are put into the provider's prefix. Both are in a table: they change
//! while packets cross.
//!
//! This file and `mod.rs` need each other: there is one program, whose role is in all of it.

use std::net::{IpAddr, Ipv6Addr};

use bpf::{NEXT_HOP, next_hop};
use router::nat64::Prefix;
use router::transition::CLAT_IPV4;

use super::layout::layout;
use super::*;

/// Where things are in the table's only value.
pub(super) mod at {
    /// The CLAT's own address.
    pub(super) const OWN: i16 = 0;
    /// The layout of the provider's prefix, 6 numbers of 8 bytes.
    pub(in super::super) const PLAT: i16 = 16;
    /// Not zero: there is an end. 4 bytes.
    pub(super) const VALID: i16 = 64;
    /// Where packets go next, [`super::next_hop`]; zeros: the kernel looks for the way.
    pub(super) const NEXT_HOP: i16 = 72;
}
const VALUE: usize = (at::NEXT_HOP as usize + NEXT_HOP).next_multiple_of(8);

/// What the programs are made for.
#[derive(Clone, Copy, Debug)]
pub struct Clat {
    /// The device, and bytes of its link header: none.
    pub device: (u32, u8),
    /// The interface to the provider, and bytes of its link header.
    pub over: (u32, u8),
}

impl<M> Tables<M> {
    /// Those of a CLAT that has no end yet, each made by `create`.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn of_clat<E>(create: impl Fn(MapShape) -> Result<M, E>) -> Result<Self, E> {
        Self::with_hosts((VALUE, 1), create)
    }
}

/// The value of a CLAT's [`Tables::hosts`]: its own address, the prefix of the provider's translator, and to which neighbor
/// packets go.
pub fn clat_end(end: Option<(Ipv6Addr, Prefix)>, neighbor: Option<IpAddr>) -> [u8; VALUE] {
    let mut value = [0; VALUE];
    if let Some(address) = neighbor {
        value[at::NEXT_HOP as usize..][..NEXT_HOP].copy_from_slice(&next_hop(address));
    }
    if let Some((own, plat)) = end {
        value[..16].copy_from_slice(&own.octets());
        let places = value[at::PLAT as usize..].chunks_exact_mut(8);
        for (place, part) in places.zip(layout(plat)) {
            place.copy_from_slice(&part.to_ne_bytes());
        }
        value[at::VALID as usize] = 1;
    }
    value
}

/// The program where packets leave by the CLAT's device: of IPv4, to the provider, and of IPv6, which [`steering`] has given it.
pub fn clat(settings: &Clat, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = &tables.descriptors();
    both_ways(Code::new(Role::Clat(settings), settings.device, tables))
}

/// The program where packets come in by the interface to the provider: those for the CLAT's address that come out of the
/// provider's translator, and errors of ICMPv6, leave by the CLAT's device. All others go on as if it were not there.
pub fn steering(settings: &Clat, tables: &Tables<impl AsRawFd>) -> Assembler {
    let tables = &tables.descriptors();
    let mut code = Code::new(Role::Clat(settings), settings.over, tables);
    let (leave, errors, ours) = (code.leave, code.code.label(), code.code.label());
    let link = i32::from(settings.over.1);
    code.code.copy(R6, R1);
    for (field, expected) in [
        (context::PACKET_TYPE, 0),
        (context::VLAN_PRESENT, 0),
        (context::PROTOCOL, ETHERTYPE_IPV6.to_be().into()),
    ] {
        code.code.load(Word, R1, R6, field);
        code.code.jump_if(R1, NotEqual, expected, leave);
    }
    code.code.load_bytes(link, V6, IPV6.into(), leave);
    code.look_up_end(leave);
    code.is_own(V6 + DESTINATION_6, leave);
    code.server_to_four(V6 + SOURCE_6, V4, errors);
    code.code.jump(ours);
    code.code.bind(errors);
    code.code.load(Byte, R1, R10, V6 + 6);
    code.code.jump_if(R1, NotEqual, ICMPV6, leave);
    code.code.load_bytes(link + i32::from(IPV6), ICMP6, 1, leave);
    code.code.load(Byte, R1, R10, ICMP6);
    code.code.jump_if(R1, GreaterOrEqual, 128, leave);
    code.code.bind(ours);
    code.code.set(R1, settings.device.0.cast_signed());
    code.code.redirect();
    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    code.code
}

impl Code<'_> {
    /// R7 = the end of a CLAT, if this is one.
    pub(super) fn own_end(&mut self) {
        if matches!(self.role, Role::Clat(_)) {
            let no_host = self.refused(Refusal::NoHost);
            self.look_up_end(no_host);
        }
    }

    /// R7 = the CLAT's end; where there is none, goes on at the label.
    fn look_up_end(&mut self, without: Label) {
        let code = &mut self.code;
        code.store_value(Word, R10, NUMBER, 0);
        code.look_up(&self.tables.hosts, NUMBER);
        code.jump_if(R0, Equal, 0, without);
        code.copy(R7, R0);
        code.load(Word, R1, R7, at::VALID);
        code.jump_if(R1, Equal, 0, without);
    }

    /// Goes on at the label unless the address there is the CLAT's own.
    fn is_own(&mut self, place: i16, otherwise: Label) {
        for part in [0, 8] {
            self.code.load(Double, R1, R10, place + part);
            self.code.load(Double, R2, R7, at::OWN + part);
            self.code.jump_if(R1, NotEqual, R2, otherwise);
        }
    }

    pub(super) fn own_to_four(&mut self, from: i16, to: i16, otherwise: Label) {
        self.is_own(from, otherwise);
        self.code.store_value(Word, R10, to, u32::from_ne_bytes(CLAT_IPV4.octets()).cast_signed());
    }

    pub(super) fn own_to_six(&mut self, from: i16, to: i16, otherwise: Label) {
        let code = &mut self.code;
        code.load(Word, R1, R10, from);
        code.set(R2, u32::from_ne_bytes(CLAT_IPV4.octets()).cast_signed());
        code.jump_if_32(R1, NotEqual, R2, otherwise);
        for part in [0, 8] {
            code.load(Double, R1, R7, at::OWN + part);
            code.store(Double, R10, to + part, R1);
        }
    }

    /// Ends: the packet leaves by the interface to the provider.
    pub(super) fn send_to_provider(&mut self, settings: &Clat) {
        if self.link == 0 {
            self.code.change_head(LINK_HEADER);
            self.code.or_drop();
        }
        self.code.set(R1, settings.over.0.cast_signed());
        self.code.redirect_to_known_neighbor(R7, at::NEXT_HOP);
    }
}
