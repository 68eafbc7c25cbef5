//! Small programs that run in the kernel: bpf(2), as far as [`crate::udp::SharedSocket`] and the queues of [`crate::tun`]
//! need it.
//!
//! Maps, programs and links are descriptors. Nothing here is pinned: what a process attached goes with it, also when it
//! crashes. Loading takes CAP_BPF (or CAP_SYS_ADMIN); changing a map does not, from Linux 5.19 on.

mod assembler;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(crate) use assembler::{PacketField, Program, Register};

use crate::error::{Context, Error, Result};

// Commands of bpf(2), from linux/bpf.h, as all numbers here.
const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

/// Bytes of the verifier's report that are asked for; only its last line is told.
const LOG_SIZE: usize = 64 * 1024;

/// What a map holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    /// Any keys and values; an entry takes memory when it is made, its bucket (16 bytes) always.
    Hash,
    /// Sockets, by an index of four bytes; values are descriptors of eight.
    Sockets,
}

/// Of MAP_UPDATE_ELEM: refuse an entry that is there.
const NO_EXIST: u64 = 1;

/// A map, shared with programs. Closed when the last of its users is gone.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
    /// Flags of MAP_UPDATE_ELEM.
    update: u64,
}

impl Map {
    /// A map of so many entries at most.
    pub(crate) fn create(kind: MapKind, key_size: usize, value_size: usize, entries: u32) -> Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            flags: u32,
        }
        const NO_PREALLOCATION: u32 = 1;
        let (kind, flags, update) = match kind {
            MapKind::Hash => (1, NO_PREALLOCATION, NO_EXIST),
            MapKind::Sockets => (15, 0, 0),
        };
        let attributes = Attributes {
            kind,
            key_size: key_size as u32,
            value_size: value_size as u32,
            max_entries: entries,
            flags,
        };
        // SAFETY: MAP_CREATE reads the structure, which holds no pointer.
        let fd = unsafe { bpf(MAP_CREATE, &attributes) };
        Ok(Self { fd: fd.context(|| "bpf MAP_CREATE (needs CAP_BPF)")?, key_size, value_size, update })
    }

    /// Adds an entry. `EEXIST`: it is there; `E2BIG`: the map is full. A map of sockets has all its entries from the
    /// start, and one that is set changes.
    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        assert!(
            key.len() == self.key_size && value.len() == self.value_size,
            "sizes are the caller's to keep"
        );
        let attributes = Element { flags: self.update, ..Element::new(self, key, value.as_ptr()) };
        // SAFETY: the kernel reads as many bytes of key and value as the map was made for: see above.
        unsafe { call(MAP_UPDATE_ELEM, &attributes) }.map(drop).context(|| "bpf MAP_UPDATE_ELEM")
    }

    /// Removes an entry. Returns whether it was there.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool> {
        assert!(key.len() == self.key_size, "sizes are the caller's to keep");
        let attributes = Element::new(self, key, std::ptr::null());
        // SAFETY: the kernel reads as many bytes of the key as the map was made for: see above.
        match unsafe { call(MAP_DELETE_ELEM, &attributes) } {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(Error::new("bpf MAP_DELETE_ELEM", error)),
        }
    }
}

/// What the commands for elements of maps take.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new(map: &Map, key: &[u8], value: *const u8) -> Self {
        Self {
            map: map.fd.as_raw_fd() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

/// A program attached to a network namespace. It runs until this is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Link {
    _fd: OwnedFd,
}

/// Loads a program of type `sk_lookup` and attaches it to the network namespace of this thread. It runs for each packet
/// that no connected socket takes, after the programs that others have attached.
pub(crate) fn attach_sk_lookup(program: &Program) -> Result<Link> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
    }
    const SK_LOOKUP: (u32, u32) = (30, 36);
    let program = load(program, SK_LOOKUP)?;
    let namespace =
        std::fs::File::open("/proc/thread-self/ns/net").context(|| "open /proc/thread-self/ns/net")?;
    let attributes = Attributes {
        program: program.as_raw_fd() as u32,
        target: namespace.as_raw_fd() as u32,
        attach_type: SK_LOOKUP.1,
        flags: 0,
    };
    // SAFETY: LINK_CREATE reads the structure, which holds no pointer. The link keeps the program.
    let fd = unsafe { bpf(LINK_CREATE, &attributes) };
    Ok(Link { _fd: fd.context(|| "bpf LINK_CREATE sk_lookup (needs CAP_NET_ADMIN and Linux 5.9)")? })
}

/// Loads a program of type `socket_filter`.
pub(crate) fn load_socket_filter(program: &Program) -> Result<OwnedFd> {
    const SOCKET_FILTER: (u32, u32) = (1, 0);
    load(program, SOCKET_FILTER)
}

fn load(program: &Program, (kind, attach_type): (u32, u32)) -> Result<OwnedFd> {
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
    }
    let code = program.instructions();
    let mut attributes = Attributes {
        kind,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"Apache-2.0 OR MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"sidestep\0\0\0\0\0\0\0\0",
        device: 0,
        attach_type,
    };
    // SAFETY: the kernel reads `count` instructions, and a string that ends with a zero; both live across the call.
    if let Ok(fd) = unsafe { bpf(PROG_LOAD, &attributes) } {
        return Ok(fd);
    }
    // Again, for the verifier's reasons.
    let mut log = vec![0u8; LOG_SIZE];
    (attributes.log_level, attributes.log_size, attributes.log) =
        (1, LOG_SIZE as u32, log.as_mut_ptr() as u64);
    // SAFETY: as above; and the kernel writes at most `log_size` bytes to `log`, which are there.
    unsafe { bpf(PROG_LOAD, &attributes) }.map_err(|error| {
        let log = String::from_utf8_lossy(&log);
        let lines = log.trim_end_matches('\0').lines();
        // The last line but statistics is the one that says why.
        let reason = lines.rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        Error::new(format!("bpf PROG_LOAD{reason} (needs CAP_BPF and CAP_NET_ADMIN)"), error)
    })
}

/// A command that makes a descriptor.
///
/// # Safety
/// As [`call`]; and the command is one that returns a descriptor.
unsafe fn bpf<T>(command: i32, attributes: &T) -> std::io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bpf(2).
///
/// # Safety
/// `T` is a `repr(C)` structure of what the command takes, without padding, and every pointer in it points to as much
/// memory as the command reads and writes there.
unsafe fn call<T>(command: i32, attributes: &T) -> std::io::Result<i32> {
    // SAFETY: pointer and length describe `attributes`, which lives across the call and which the kernel only reads;
    // what it points to is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result as i32) }
}
