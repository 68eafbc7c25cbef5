//! Programs at an interface that see packets before the kernel has made anything of them (XDP): in the driver where that
//! can, else where it hands packets to the kernel. An interface has one such program.
//!
//! A link goes with the process, also when it crashes.

use serde::{Deserialize, Serialize};

use super::attach_type::AttachType;
use super::link;
use super::program::Program;
use crate::error::{Context as _, Result};

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
    link: link::Link,
    index: u32,
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
        // XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE, from linux/if_link.h.
        let flags = match mode {
            Mode::Native => 1 << 2,
            Mode::Generic => 1 << 1,
        };
        let link = link::Link::create(program, index, AttachType::Xdp, flags, [0; 4]);
        let what = || format!("bpf LINK_CREATE xdp at interface {index}, {mode:?} (needs CAP_NET_ADMIN)");
        Ok(Self { link: link.context(what)?, index, mode })
    }

    /// Puts another program in the place of the one that runs, between two packets.
    pub fn replace(&self, program: &Program) -> Result<()> {
        self.link.replace(program).context(|| "bpf LINK_UPDATE xdp")
    }

    /// The interface, which may have gone since.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Where it runs.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}
