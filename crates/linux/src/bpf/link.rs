//! Links: programs attached in such a way that they go with the last descriptor, and so with the process, also when it
//! crashes.

use std::io::Result;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::attach_type::AttachType;
use super::program::Program;
use super::syscall::{bpf, call};

const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;

/// What a program is attached by.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Attaches a program to what the number says: an interface, or the descriptor of a network namespace. `more` is what
    /// this type of attachment wants to know besides.
    pub(super) fn create(
        program: &Program,
        target: u32,
        attach_type: AttachType,
        flags: u32,
        more: [u32; 4],
    ) -> Result<Self> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            target: u32,
            attach_type: u32,
            flags: u32,
            more: [u32; 4],
        }
        let (program, attach_type) = (program.fd.as_raw_fd() as u32, attach_type as u32);
        let attributes = Attributes { program, target, attach_type, flags, more };
        // SAFETY: LINK_CREATE reads the structure, in which no type of attachment above has a pointer. The link keeps the
        // program.
        unsafe { bpf(LINK_CREATE, &attributes) }.map(Self)
    }

    /// The descriptor, as a place among links is told by.
    pub(super) fn number(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }

    /// Puts another program in the place of the one that runs, between two packets.
    pub(super) fn replace(&self, program: &Program) -> Result<()> {
        #[repr(C)]
        struct Attributes {
            link: u32,
            program: u32,
            flags: u32,
            old_program: u32,
        }
        let (link, program) = (self.0.as_raw_fd() as u32, program.fd.as_raw_fd() as u32);
        let attributes = Attributes { link, program, flags: 0, old_program: 0 };
        // SAFETY: LINK_UPDATE reads the structure, which holds no pointer. The link keeps the program.
        unsafe { call(LINK_UPDATE, &attributes) }.map(drop)
    }
}
