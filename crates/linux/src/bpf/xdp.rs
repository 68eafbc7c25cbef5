//! Programs at an interface that see packets before the kernel has made anything of them (XDP): in the driver where that
//! can, else where it hands packets to the kernel. An interface has one such program.
//!
//! A link goes with the process, also when it crashes.

use std::os::fd::{AsRawFd as _, OwnedFd};

use serde::{Deserialize, Serialize};

use super::program::Program;
use super::syscall::{bpf, call};
use crate::error::{Context as _, Result};

const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
pub(super) const ATTACH_TYPE: u32 = 37;

/// Where on a packet's way the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// In the driver, before there is a socket buffer: a drop costs least.
    Native,
    /// Behind the driver, on socket buffers: for drivers that cannot.
    Generic,
}

/// A program at an interface. It runs until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    mode: Mode,
}

impl Link {
    /// Attaches a program of type `xdp` to an interface of this thread's network namespace: native, or generic where the
    /// driver refuses that.
    ///
    /// # Errors
    /// `EBUSY`, `EEXIST`: the interface has a program already.
    pub fn attach(program: &Program, index: u32) -> Result<Self> {
        match Self::attach_as(program, index, Mode::Native) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                Self::attach_as(program, index, Mode::Generic)
            }
            result => result,
        }
    }

    /// The same, in this mode.
    pub fn attach_as(program: &Program, index: u32, mode: Mode) -> Result<Self> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            attach_type: u32,
            flags: u32,
        }
        let attributes = Attributes {
            program: program.fd.as_raw_fd() as u32,
            interface: index,
            attach_type: ATTACH_TYPE,
            // XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE, from linux/if_link.h.
            flags: match mode {
                Mode::Native => 1 << 2,
                Mode::Generic => 1 << 1,
            },
        };
        // SAFETY: LINK_CREATE reads the structure, which holds no pointer. The link keeps the program.
        let fd = unsafe { bpf(LINK_CREATE, &attributes) };
        let what = || format!("bpf LINK_CREATE xdp at interface {index}, {mode:?} (needs CAP_NET_ADMIN)");
        Ok(Self { fd: fd.context(what)?, mode })
    }

    /// Puts another program in the place of the one that runs, between two packets.
    pub fn replace(&self, program: &Program) -> Result<()> {
        #[repr(C)]
        struct Attributes {
            link: u32,
            program: u32,
            flags: u32,
            old_program: u32,
        }
        let (link, program) = (self.fd.as_raw_fd() as u32, program.fd.as_raw_fd() as u32);
        let attributes = Attributes { link, program, flags: 0, old_program: 0 };
        // SAFETY: LINK_UPDATE reads the structure, which holds no pointer. The link keeps the program.
        unsafe { call(LINK_UPDATE, &attributes) }.map(drop).context(|| "bpf LINK_UPDATE xdp")
    }

    /// Where it runs.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}
