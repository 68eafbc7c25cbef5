//! How often programs run, and for how long: the kernel counts that while somebody asks it to (Linux 5.8).

use std::os::fd::{AsRawFd as _, OwnedFd};

use serde::{Deserialize, Serialize};

use super::program::Program;
use super::syscall::{bpf, exchange};
use crate::error::{Context as _, Result};

// Commands of bpf(2), from linux/bpf.h, as all numbers here.
const OBJ_GET_INFO_BY_FD: i32 = 15;
const ENABLE_STATS: i32 = 32;

/// The kernel counts the runs of all programs of the machine, with two looks at its clock for each, until this is dropped
/// or the process ends.
#[derive(Debug)]
pub struct Statistics {
    _fd: OwnedFd,
}

/// What was counted of one program, of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTime {
    /// How often it ran.
    pub runs: u64,
    /// For how many nanoseconds.
    pub nanoseconds: u64,
}

impl Statistics {
    /// Has the kernel count. Needs CAP_SYS_ADMIN.
    pub fn enable() -> Result<Self> {
        /// BPF_STATS_RUN_TIME
        const RUN_TIME: u32 = 0;
        #[repr(C)]
        struct Attributes {
            kind: u32,
        }
        // SAFETY: ENABLE_STATS reads the structure, which holds no pointer, and returns a descriptor.
        let fd = unsafe { bpf(ENABLE_STATS, &Attributes { kind: RUN_TIME }) };
        let fd = fd.context(|| "bpf ENABLE_STATS (needs root or CAP_SYS_ADMIN, and Linux 5.8)")?;
        Ok(Self { _fd: fd })
    }
}

impl RunTime {
    /// What was counted since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(earlier.runs),
            nanoseconds: self.nanoseconds.saturating_sub(earlier.nanoseconds),
        }
    }
}

impl Program {
    /// What was counted of it since it was loaded.
    pub fn run_time(&self) -> Result<RunTime> {
        /// `struct bpf_prog_info` as far as the end of `run_cnt`, in words of 64 bits. Pointers in it stay zero: the kernel
        /// then tells of lists how long they are, and nothing else.
        const WORDS: usize = 26;
        const RUN_TIME: usize = 24;
        const RUNS: usize = 25;
        #[repr(C)]
        struct Attributes {
            program: u32,
            length: u32,
            information: u64,
        }
        let mut information = [0_u64; WORDS];
        let mut attributes = Attributes {
            program: self.fd.as_raw_fd() as u32,
            length: size_of_val(&information) as u32,
            information: information.as_mut_ptr() as u64,
        };
        // SAFETY: the kernel reads and writes at most `length` bytes of `information`, which live across the call; all
        // pointers and lengths in it are zero.
        unsafe { exchange(OBJ_GET_INFO_BY_FD, &mut attributes) }.context(|| "bpf OBJ_GET_INFO_BY_FD")?;
        Ok(RunTime { runs: information[RUNS], nanoseconds: information[RUN_TIME] })
    }
}
