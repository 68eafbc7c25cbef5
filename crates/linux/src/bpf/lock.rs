//! What the kernel has to be told of a map whose values begin with a lock: where in them it is, as types (BTF,
//! Documentation/bpf/btf.rst). Since Linux 5.1.

use std::os::fd::OwnedFd;

use super::btf::MAGIC;
use super::syscall::bpf;
use crate::error::{Context as _, Result};

const BTF_LOAD: i32 = 18;

/// Numbers of types, from 1 on: `unsigned int`, which is the key, the lock, and the value.
pub(super) const KEY: u32 = 1;
const LOCK: u32 = 2;
pub(super) const VALUE: u32 = 3;

/// Types of a map of locks, for as long as it is made.
pub(super) fn load_types(value_size: usize) -> Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        types: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        flags: u32,
    }
    let types = types(value_size as u32);
    let attributes = Attributes {
        types: types.as_ptr() as u64,
        log: 0,
        size: types.len() as u32,
        log_size: 0,
        log_level: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads as many bytes as are given, which live across the call.
    unsafe { bpf(BTF_LOAD, &attributes) }.context(|| "bpf BTF_LOAD (needs CAP_BPF)")
}

/// `struct bpf_spin_lock { unsigned int val; }`, by whose name the kernel knows it, and a structure that begins with one.
fn types(value_size: u32) -> Vec<u8> {
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
        &[name("lock"), STRUCTURE_OF_ONE, value_size, name("lock"), LOCK, 0],
    ]
    .concat();
    let length = 4 * types.len() as u32;
    let version = u32::from_ne_bytes({
        let [low, high] = MAGIC.to_ne_bytes();
        [low, high, 1, 0]
    });
    let header = [version, 24, 0, length, length, strings.len() as u32];
    let words = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes());
    words.chain(strings.iter().copied()).collect()
}
