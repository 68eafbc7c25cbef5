//! Types, as the kernel tells and takes them (BTF, Documentation/bpf/btf.rst): where a member of a structure is, which number
//! a function has, and types of our own.

use std::os::fd::OwnedFd;

use super::syscall::bpf;
use crate::error::{Context as _, Error, Result};

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const BTF_LOAD: i32 = 18;
/// Structures within structures that a member is looked for in.
const DEEPEST: usize = 4;

// Kinds of types.
const ARRAY: u8 = 3;
const STRUCT: u8 = 4;
const UNION: u8 = 5;
const FUNCTION: u8 = 12;

/// Gives the kernel types, in words, and the strings that are their names. They are there as long as the descriptor, or
/// what was made with it.
pub(super) fn load(types: &[u32], strings: &[u8]) -> Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        types: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        flags: u32,
    }
    let bytes = bytes(types, strings);
    let attributes = Attributes {
        types: bytes.as_ptr() as u64,
        log: 0,
        size: bytes.len() as u32,
        log_size: 0,
        log_level: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads as many bytes as are given, which live across the call.
    unsafe { bpf(BTF_LOAD, &attributes) }.context(|| "bpf BTF_LOAD (needs CAP_BPF)")
}

/// Types with the header that says where they and their names are.
fn bytes(types: &[u32], strings: &[u8]) -> Vec<u8> {
    let length = 4 * types.len() as u32;
    let version = u32::from_ne_bytes({
        let [low, high] = MAGIC.to_ne_bytes();
        [low, high, 1, 0]
    });
    let header = [version, 24, 0, length, length, strings.len() as u32];
    let words = header.iter().chain(types).flat_map(|word| word.to_ne_bytes());
    words.chain(strings.iter().copied()).collect()
}

/// What a kernel, or one of its modules, tells of its types.
pub(super) struct Types {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Where each type is. Their numbers begin with 1.
    places: Vec<usize>,
}

impl Types {
    /// Those of the kernel that runs.
    pub(super) fn of_kernel() -> Result<Self> {
        let bytes = std::fs::read(PATH).context(|| format!("read {PATH} (needs CONFIG_DEBUG_INFO_BTF)"))?;
        Self::read(&bytes).ok_or_else(|| Error::other(format!("read {PATH}"), "it is no BTF"))
    }

    /// None: they are cut short, or something else.
    fn read(bytes: &[u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(*bytes.first_chunk()?);
        let header = word(bytes, 4)?;
        let part = |at: usize| {
            let from = header.checked_add(word(bytes, at)?)?;
            Some(bytes.get(from..from.checked_add(word(bytes, at + 4)?)?)?.to_vec())
        };
        let mut types = Self { types: part(8)?, strings: part(16)?, places: Vec::new() };
        let mut at = 0;
        while at < types.types.len() {
            types.places.push(at);
            at += 12 + types.more(at)?;
        }
        (magic == MAGIC).then_some(types)
    }

    /// Number of a function.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        self.find(FUNCTION, name).map(|number| number as u32)
    }

    /// Offset of a member of a structure, in bytes; in what has no name it is looked for, too.
    pub(super) fn member(&self, structure: &str, name: &str) -> Option<u32> {
        let bits = self.member_of(self.find(STRUCT, structure)?, name, DEEPEST)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    fn find(&self, kind: u8, name: &str) -> Option<usize> {
        let is_it = |at: &usize| self.kind(*at) == Some(kind) && self.name(*at) == Some(name.as_bytes());
        self.places.iter().position(is_it).map(|place| place + 1)
    }

    /// In bits.
    fn member_of(&self, number: usize, name: &str, deep: usize) -> Option<u32> {
        let at = *self.places.get(number.checked_sub(1)?)?;
        if !matches!(self.kind(at)?, STRUCT | UNION) {
            return None;
        }
        let info = word(&self.types, at + 4)?;
        let mut members = (0..info & 0xffff).map(|member| at + 12 + 12 * member);
        members.find_map(|member| {
            let own = self.name(member)?;
            // Of what has bit fields the upper 8 bits are their size.
            let offset = word(&self.types, member + 8)? as u32;
            let offset = if info >> 31 == 1 { offset & 0x00ff_ffff } else { offset };
            if own == name.as_bytes() {
                return Some(offset);
            }
            if !own.is_empty() || deep == 0 {
                return None;
            }
            self.member_of(word(&self.types, member + 4)?, name, deep - 1)?.checked_add(offset)
        })
    }

    fn kind(&self, at: usize) -> Option<u8> {
        word(&self.types, at + 4).map(|info| (info >> 24) as u8 & 0x1f)
    }

    fn name(&self, at: usize) -> Option<&[u8]> {
        self.strings.get(word(&self.types, at)?..)?.split(|byte| *byte == 0).next()
    }

    /// Bytes of a type behind the first 12.
    fn more(&self, at: usize) -> Option<usize> {
        let count = word(&self.types, at + 4)? & 0xffff;
        Some(match self.kind(at)? {
            // Integers, variables, tags of declarations.
            1 | 14 | 17 => 4,
            ARRAY => 12,
            // With members of 12 bytes: also sections and enumerations of 64 bits.
            STRUCT | UNION | 15 | 19 => 12 * count,
            // With members of 8 bytes: enumerations, prototypes of functions.
            6 | 13 => 8 * count,
            // Pointers, names of types, qualifiers, functions, floats, tags of types.
            2 | 7..=FUNCTION | 16 | 18 => 0,
            _ => return None,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct a { int b; union { int c; struct { int d; }; }; }` and a function.
    fn example() -> Vec<u8> {
        let strings = b"\0int\0a\0b\0c\0d\0f\0";
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let types = [
            &[1, kind(1, 0), 4, 32][..],
            &[0, kind(4, 1), 4, 11, 1, 0],
            &[0, kind(5, 2), 4, 9, 1, 0, 0, 2, 0],
            &[5, kind(4, 2), 8, 7, 1, 0, 0, 3, 32],
            &[13, kind(12, 0), 0],
        ]
        .concat();
        bytes(&types, strings)
    }

    #[test]
    fn members_are_found_in_what_has_no_name() {
        let types = Types::read(&example()).unwrap();
        let members = ["b", "c", "d", "e"].map(|name| types.member("a", name));
        assert_eq!(members, [Some(0), Some(4), Some(4), None]);
        assert_eq!((types.function("f"), types.function("a")), (Some(5), None));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            damage in proptest::collection::vec((0..200_usize, proptest::prelude::any::<u8>()), 0..6),
            length in 0..200_usize,
        ) {
            let mut bytes = example();
            for (at, byte) in damage {
                let length = bytes.len();
                bytes[at % length] = byte;
            }
            bytes.truncate(length);
            if let Some(types) = Types::read(&bytes) {
                types.member("a", "d");
                types.function("f");
            }
        }
    }
}
