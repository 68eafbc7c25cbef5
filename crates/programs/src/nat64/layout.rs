//! A prefix as programs have it: numbers by which an IPv4 address is put into it and found there, in the same steps for all.

use std::net::Ipv6Addr;

use router::nat64::Prefix;

/// Which numbers a layout has, in its upper and its lower half.
pub(super) mod part {
    pub(in super::super) const UPPER: usize = 0;
    pub(in super::super) const LOWER: usize = 1;
    /// The first address, as it lies in memory.
    pub(in super::super) const PREFIX: usize = 0;
    /// Bits of the IPv4 address, likewise.
    pub(in super::super) const MASK: usize = 2;
    /// How far these are shifted.
    pub(in super::super) const SHIFT: usize = 4;
}

/// The layout of a prefix: what [`router::nat64::Layout`] says.
pub(super) fn layout(prefix: Prefix) -> [u64; 6] {
    let layout = prefix.layout();
    let [prefix, mask] = [layout.prefix, layout.mask].map(Ipv6Addr::from_bits);
    [upper(prefix), lower(prefix), upper(mask), lower(mask), layout.left.into(), layout.right.into()]
}

/// Half of an address, as a register has it from memory.
pub(super) fn upper(address: Ipv6Addr) -> u64 {
    u64::to_be((address.to_bits() >> 64) as u64)
}

fn lower(address: Ipv6Addr) -> u64 {
    u64::to_be(address.to_bits() as u64)
}
