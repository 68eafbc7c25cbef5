//! What the kernel has to be told of a program with functions that a helper calls back: where each begins, and that it is one
//! that nobody else can call (BTF, Documentation/bpf/btf.rst). Since Linux 5.13.

use std::os::fd::OwnedFd;

use super::{Assembler, btf};
use crate::error::Result;

/// Types of the functions of a program, for as long as it is loaded.
pub(super) struct Functions {
    pub(super) types: OwnedFd,
    /// Where each begins, and the number of its type (`struct bpf_func_info`); the program itself is the first.
    pub(super) places: Vec<[u32; 2]>,
}

impl Functions {
    /// None: the program has none but itself.
    pub(super) fn of(code: &Assembler) -> Result<Option<Self>> {
        if code.functions().is_empty() {
            return Ok(None);
        }
        // `int`, `int ()`, and a function of that type, which is static: its arguments are those that the helper gives it.
        const INTEGER: u32 = 1 << 24;
        const PROTOTYPE: u32 = 13 << 24;
        const FUNCTION: u32 = 12 << 24;
        const SIGNED_BITS: u32 = 1 << 24 | 32;
        let strings = b"\0int\0function\0";
        let types = [&[1, INTEGER, 4, SIGNED_BITS][..], &[0, PROTOTYPE, 1], &[5, FUNCTION, 2]].concat();
        let begins = std::iter::once(0).chain(code.functions().iter().copied());
        let places = begins.map(|begin| [begin as u32, 3]).collect();
        Ok(Some(Self { types: btf::load(&types, strings)?, places }))
    }
}
