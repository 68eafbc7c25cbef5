//! Programs in the kernel: loaded, and run for a test.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::Assembler;
use super::attach_type::AttachType;
use super::functions::Functions;
use super::syscall::{bpf, exchange};
use crate::error::{Context as _, Error, Result};

// Commands of bpf(2), from linux/bpf.h, as all numbers here.
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;

/// Bytes of the verifier's report that are asked for; only its last line is told.
const LOG_SIZE: usize = 1 << 20;
/// Bytes for all of a million instructions, with what is in registers at each; those that are not written take no memory.
const LARGE_LOG_SIZE: usize = 1 << 28;

/// How often a load is tried at which signals come: the verifier gives up at each (`EAGAIN`).
const TRIES: u32 = 10;

/// What a program is for, which decides its context, its helpers and its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Context `__sk_buff`; result: how much of the packet is kept, or what else it was asked.
    SocketFilter,
    /// Context `__sk_buff`; result: a [`verdict`].
    SchedCls,
    /// Context `bpf_sk_lookup`; result: pass or drop.
    SkLookup,
    /// Context and results: [`bpf::netfilter`]; Linux 6.4.
    Netfilter,
    /// Context `xdp_md`, of packets in any number of parts (Linux 5.18); results: [`bpf::xdp`].
    Xdp,
}

impl ProgramKind {
    /// Program type and expected type of attachment.
    fn numbers(self) -> (u32, u32) {
        match self {
            ProgramKind::SocketFilter => (1, 0),
            ProgramKind::SchedCls => (3, 0),
            ProgramKind::SkLookup => (30, AttachType::SkLookup as u32),
            ProgramKind::Netfilter => (32, AttachType::Netfilter as u32),
            ProgramKind::Xdp => (6, AttachType::Xdp as u32),
        }
    }

    /// Netfilter's packets are read by functions, and in structures, that the kernel opens to licences that go with the
    /// GPL alone, of which it knows this name for ours: what is under the MIT licence may be used under the GPL.
    fn license(self) -> &'static CStr {
        match self {
            ProgramKind::Netfilter => c"Dual MIT/GPL",
            ProgramKind::SocketFilter | ProgramKind::SchedCls | ProgramKind::SkLookup | ProgramKind::Xdp => {
                c"Apache-2.0 OR MIT"
            }
        }
    }

    /// Flags of a load.
    fn flags(self) -> u32 {
        /// Without it, the kernel refuses interfaces whose packets may be longer than a page.
        const XDP_HAS_FRAGMENTS: u32 = 1 << 5;
        match self {
            ProgramKind::Xdp => XDP_HAS_FRAGMENTS,
            _ => 0,
        }
    }
}

/// A program that the verifier has accepted. It stays in the kernel until this and all that it is attached to are gone.
#[derive(Debug)]
pub struct Program {
    pub(super) fd: OwnedFd,
}

impl Program {
    /// Loads a program. Needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN.
    ///
    /// An error has the verifier's reason, if it was the verifier's.
    pub fn load(kind: ProgramKind, code: &Assembler) -> Result<Self> {
        let code = assembled(code)?;
        if let Ok(fd) = load(kind, &code, 0, &mut []) {
            return Ok(Self { fd });
        }
        let (loaded, log) = load_with_reasons(kind, &code);
        loaded.map(|fd| Self { fd }).map_err(|error| {
            // The last line but statistics is the one that says why.
            let reason = log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            Error::new(format!("bpf PROG_LOAD{reason} (needs CAP_BPF and CAP_NET_ADMIN)"), error)
        })
    }

    /// Loads a program, with what the verifier says about the work that it was: `processed 804 insns …`.
    ///
    /// # Errors
    /// As [`Program::load`]. `E2BIG`: the verifier gave up, after a million instructions on all ways.
    pub fn load_with_statistics(kind: ProgramKind, code: &Assembler) -> Result<(Self, String)> {
        let mut log = vec![0u8; LOG_SIZE];
        match load(kind, &assembled(code)?, STATISTICS, &mut log) {
            Ok(fd) => Ok((Self { fd }, text(&log))),
            // That takes seconds, and has no other reason.
            Err(error) if error.raw_os_error() == Some(libc::E2BIG) => {
                Err(Error::new("bpf PROG_LOAD", error))
            }
            Err(_) => Self::load(kind, code).map(|program| (program, String::new())),
        }
    }

    /// What the verifier says of a program that it refuses, all of it; none if it does not refuse it, or does not say.
    #[must_use]
    pub fn refusal(kind: ProgramKind, code: &Assembler) -> Option<String> {
        let (loaded, log) = load_with_reasons(kind, &assembled(code).ok()?);
        loaded.is_err().then_some(log).filter(|log| !log.is_empty())
    }

    /// Runs a `sched_cls` or `xdp` program on a frame, which begins with an Ethernet header and whose first interface is the
    /// loopback device of this thread's network namespace. Tells the result, and what the packet is then. One for
    /// netfilter gets a packet that begins with an IP header, as one of this host's own; what it is then is not told. For
    /// tests: nothing is sent.
    pub fn test_run(&self, frame: &[u8]) -> Result<(i32, Vec<u8>)> {
        self.run(frame, 1 << 16).map(|(result, out, _)| (result, out))
    }

    /// The same, for how long it took by the kernel's clock: one look at it is in that.
    pub fn time_run(&self, frame: &[u8]) -> Result<Duration> {
        self.run(frame, 0).map(|(_, _, duration)| duration)
    }

    /// Runs it, with so much room for what the packet is then; without any it is not told.
    fn run(&self, frame: &[u8], room: usize) -> Result<(i32, Vec<u8>, Duration)> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            result: u32,
            size_in: u32,
            size_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
            context_size_in: u32,
            context_size_out: u32,
            context_in: u64,
            context_out: u64,
        }
        let mut out = vec![0u8; room];
        let mut attributes = Attributes {
            program: self.fd.as_raw_fd() as u32,
            result: 0,
            size_in: frame.len() as u32,
            size_out: out.len() as u32,
            data_in: frame.as_ptr() as u64,
            // The kernel refuses a place without room.
            data_out: if out.is_empty() { 0 } else { out.as_mut_ptr() as u64 },
            repeat: 1,
            duration: 0,
            context_size_in: 0,
            context_size_out: 0,
            context_in: 0,
            context_out: 0,
        };
        // SAFETY: the kernel reads the frame's length of it, and writes at most the length of `out` there.
        unsafe { exchange(PROG_TEST_RUN, &mut attributes) }.context(|| "bpf PROG_TEST_RUN")?;
        out.truncate(attributes.size_out as usize);
        let duration = Duration::from_nanos(attributes.duration.into());
        Ok((attributes.result as i32, out, duration))
    }
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Of a load: what the verifier writes to its log.
const REASONS: u32 = 1;
const STATISTICS: u32 = 4;

/// Instructions, and what the kernel has to know of the functions in them.
struct Assembled {
    code: Vec<[u8; 8]>,
    functions: Option<Functions>,
}

fn assembled(code: &Assembler) -> Result<Assembled> {
    let functions = Functions::of(code)?;
    let code =
        code.instructions().map_err(|error| Error::other("assemble a BPF program", error.to_string()))?;
    Ok(Assembled { code, functions })
}

/// Loads a program again, with what the verifier says of each way through it.
fn load_with_reasons(kind: ProgramKind, code: &Assembled) -> (std::io::Result<OwnedFd>, String) {
    let mut log = vec![0u8; LOG_SIZE];
    let mut loaded = load(kind, code, REASONS, &mut log);
    // Before Linux 6.4 a log that is full lacks its end, where the reason is, and is an error of its own.
    if loaded.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)) {
        log = vec![0u8; LARGE_LOG_SIZE];
        loaded = load(kind, code, REASONS, &mut log);
    }
    (loaded, text(&log))
}

/// What is written in a log, up to the zeros behind it.
fn text(log: &[u8]) -> String {
    let length = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..length]).into_owned()
}

/// PROG_LOAD, with a log that may be empty.
fn load(kind: ProgramKind, program: &Assembled, log_level: u32, log: &mut [u8]) -> std::io::Result<OwnedFd> {
    let Assembled { code, functions } = program;
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        device: u32,
        attach_type: u32,
        types: u32,
        function_size: u32,
        functions: u64,
        function_count: u32,
        reserved: u32,
    }
    let places = functions.as_ref().map_or(&[][..], |functions| &functions.places);
    let license = kind.license();
    let flags = kind.flags();
    let (kind, attach_type) = kind.numbers();
    let attributes = Attributes {
        kind,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level,
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags,
        name: *b"sidestep\0\0\0\0\0\0\0\0",
        device: 0,
        attach_type,
        types: functions.as_ref().map_or(0, |functions| functions.types.as_raw_fd() as u32),
        function_size: size_of::<[u32; 2]>() as u32,
        functions: places.as_ptr() as u64,
        function_count: places.len() as u32,
        reserved: 0,
    };
    // SAFETY: the kernel reads `count` instructions, a string that ends with a zero, and `function_count` places of so many
    // bytes; all live across the call. It writes at most `log_size` bytes to `log`, which are there.
    let load = || unsafe { bpf(PROG_LOAD, &attributes) };
    let is_interrupted = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    (1..TRIES).map(|_| load()).find(|loaded| !loaded.as_ref().is_err_and(is_interrupted)).unwrap_or_else(load)
}
