//! What the kernel has to be told of a map whose values begin with a lock: where in them it is, as types (BTF,
//! Documentation/bpf/btf.rst). Since Linux 5.1.

use std::os::fd::OwnedFd;

use super::btf;
use crate::error::Result;

/// Numbers of types, from 1 on: `unsigned int`, which is the key, the lock, and the value.
pub(super) const KEY: u32 = 1;
const LOCK: u32 = 2;
pub(super) const VALUE: u32 = 3;

/// Types of a map of locks, for as long as it is made.
pub(super) fn load_types(value_size: usize) -> Result<OwnedFd> {
    // `struct bpf_spin_lock { unsigned int val; }`, by whose name the kernel knows it, and a structure that begins with one.
    const INTEGER: u32 = 1 << 24;
    const STRUCTURE_OF_ONE: u32 = 4 << 24 | 1;
    const BITS: u32 = 32;
    let strings = b"\0unsigned int\0val\0bpf_spin_lock\0lock\0";
    let name = |name: &str| {
        let place = strings.windows(name.len()).position(|part| part == name.as_bytes());
        place.unwrap_or_default() as u32
    };
    // A type is its name, what it is, and its size; an integer's bits follow, and each member: name, type, place.
    let types = [
        [name("unsigned int"), INTEGER, 4, BITS].as_slice(),
        &[name("bpf_spin_lock"), STRUCTURE_OF_ONE, 4, name("val"), KEY, 0],
        &[name("lock"), STRUCTURE_OF_ONE, value_size as u32, name("lock"), LOCK, 0],
    ]
    .concat();
    btf::load(&types, strings)
}
