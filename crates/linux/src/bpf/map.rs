//! Maps: what programs and we both read and write.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use ::bpf::{MapKind, MapShape};

use super::lock;
use super::syscall::{bpf, call, exchange};
use crate::error::{Context as _, Error, Result};

// Commands of bpf(2), from linux/bpf.h, as all numbers here.
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
// For hashes since Linux 5.6, for longest prefixes since 5.13.
const MAP_LOOKUP_BATCH: i32 = 24;
const MAP_UPDATE_BATCH: i32 = 26;
const MAP_DELETE_BATCH: i32 = 27;

/// Of MAP_UPDATE_ELEM: whether an entry is there or not; and refuse one that is.
const ANY: u64 = 0;
const NO_EXIST: u64 = 1;
/// Of MAP_CREATE: entries take memory when they are made.
const NO_PREALLOCATION: u32 = 1;

/// Entries that are read with one call, at first: the bucket of a hash is read as a whole.
const BATCH: usize = 4096;

/// A map, shared with programs. Closed when the last of its users is gone.
#[derive(Debug)]
pub struct Map {
    pub(super) fd: OwnedFd,
    kind: MapKind,
    key_size: usize,
    value_size: usize,
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Map {
    /// A map of this shape.
    pub fn of(MapShape { kind, key, value, entries }: MapShape) -> Result<Self> {
        Self::create(kind, key, value, entries)
    }

    /// A map of so many entries at most. Sizes are in bytes.
    pub fn create(kind: MapKind, key_size: usize, value_size: usize, entries: u32) -> Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            flags: u32,
            inner_map: u32,
            numa_node: u32,
            name: [u8; 16],
            device: u32,
            types: u32,
            key_type: u32,
            value_type: u32,
        }
        let (number, flags) = match kind {
            MapKind::Hash => (1, NO_PREALLOCATION),
            MapKind::Array => (2, 0),
            MapKind::Programs => (3, 0),
            MapKind::PerCpuArray => (6, 0),
            MapKind::LruHash => (9, 0),
            MapKind::LongestPrefix => (11, NO_PREALLOCATION),
            MapKind::Sockets => (15, 0),
            MapKind::RingBuffer => (27, 0),
            // An array.
            MapKind::Locks => (2, 0),
        };
        let types = match kind {
            MapKind::Locks => Some(lock::load_types(value_size)?),
            _ => None,
        };
        let number_of = |number: u32| if types.is_some() { number } else { 0 };
        let attributes = Attributes {
            kind: number,
            key_size: key_size as u32,
            value_size: value_size as u32,
            max_entries: entries,
            flags,
            inner_map: 0,
            numa_node: 0,
            name: [0; 16],
            device: 0,
            types: types.as_ref().map_or(0, |types| types.as_raw_fd() as u32),
            key_type: number_of(lock::KEY),
            value_type: number_of(lock::VALUE),
        };
        // SAFETY: MAP_CREATE reads the structure, which holds no pointer.
        let fd = unsafe { bpf(MAP_CREATE, &attributes) };
        let fd = fd.context(|| format!("bpf MAP_CREATE {kind:?} (needs CAP_BPF)"))?;
        Ok(Self { fd, kind, key_size, value_size })
    }

    /// Adds an entry. `EEXIST`: it is there; `E2BIG`: the map is full.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value, NO_EXIST)
    }

    /// Adds an entry, or changes the one that is there. `E2BIG`: the map is full.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value, ANY)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<()> {
        self.check_key(key);
        assert!(value.len() == self.value_size && self.kind != MapKind::PerCpuArray, "{:?}", self.kind);
        let attributes = Element { flags, ..Element::new(self, key, value.as_ptr() as u64) };
        // SAFETY: the kernel reads as many bytes of key and value as the map was made for: see above.
        unsafe { call(MAP_UPDATE_ELEM, &attributes) }.map(drop).context(|| "bpf MAP_UPDATE_ELEM")
    }

    /// The value of an entry, if there is one. Of a map with values for each processor see [`Map::sum`].
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        assert!(self.kind != MapKind::PerCpuArray, "it has a value for each processor");
        self.read(key, self.value_size)
    }

    /// What the processors have counted: the values of an entry, of integers with 64 bits, added up.
    pub fn sum(&self, key: &[u8]) -> Result<Vec<u64>> {
        assert!(self.kind == MapKind::PerCpuArray && self.value_size.is_multiple_of(8), "{:?}", self.kind);
        let mut sums = vec![0u64; self.value_size / 8];
        let values = self.read(key, self.value_size * processors()?)?.unwrap_or_default();
        for value in values.chunks_exact(self.value_size) {
            for (sum, integer) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*integer));
            }
        }
        Ok(sums)
    }

    fn read(&self, key: &[u8], length: usize) -> Result<Option<Vec<u8>>> {
        self.check_key(key);
        let mut value = vec![0; length];
        let attributes = Element::new(self, key, value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads the map's size of the key: see above. It writes the map's size of value, which the
        // callers have asked for, once or for each possible processor.
        match unsafe { call(MAP_LOOKUP_ELEM, &attributes) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(Error::new("bpf MAP_LOOKUP_ELEM", error)),
        }
    }

    /// Removes an entry. Returns whether it was there.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.check_key(key);
        let attributes = Element::new(self, key, 0);
        // SAFETY: the kernel reads as many bytes of the key as the map was made for: see above.
        match unsafe { call(MAP_DELETE_ELEM, &attributes) } {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(Error::new("bpf MAP_DELETE_ELEM", error)),
        }
    }

    /// All entries. Those that are there from the beginning to the end of the call are each given once, whatever programs
    /// write meanwhile. Not of arrays, whose entries are numbers.
    pub fn entries(&self) -> Result<Entries> {
        let (mut entries, mut from) = self.entries_from(None)?;
        while let Some(place) = from {
            let (more, next) = self.entries_from(Some(place))?;
            entries.extend(more);
            from = next;
        }
        Ok(entries)
    }

    /// The next entries, some thousands at most, and where those behind them begin; none there at the end.
    pub fn entries_from(&self, place: Option<Place>) -> Result<(Entries, Option<Place>)> {
        assert!(self.is_keyed(), "{:?}", self.kind);
        let place = place.map(|Place(place)| place);
        assert!(place.as_ref().is_none_or(|place| place.len() == self.place_size()), "of another map");
        let mut most = BATCH;
        loop {
            let (mut keys, mut values) = (vec![0; most * self.key_size], vec![0; most * self.value_size]);
            let mut next = vec![0; self.place_size()];
            let mut batch = Batch {
                from: place.as_ref().map_or(0, |place| place.as_ptr() as u64),
                to: next.as_mut_ptr() as u64,
                ..Batch::new(self, keys.as_mut_ptr(), values.as_mut_ptr(), most)
            };
            // SAFETY: the kernel writes at most `most` keys and values of the map's sizes, and one place of four bytes or a
            // key, and reads one that it has written; all are as long, and live across the call.
            let result = unsafe { exchange(MAP_LOOKUP_BATCH, &mut batch) };
            let ends = match &result {
                Ok(()) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                // A bucket has more.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    most *= 2;
                    continue;
                }
                Err(_) => return result.map(|()| (Vec::new(), None)).context(|| "bpf MAP_LOOKUP_BATCH"),
            };
            let count = (batch.count as usize).min(most);
            let pairs = keys.chunks_exact(self.key_size).zip(values.chunks_exact(self.value_size));
            let entries = pairs.take(count).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            return Ok((entries, (!ends).then_some(Place(next))));
        }
    }

    /// Adds entries, or changes those that are there, each at once, until the map is full: how many were written.
    pub fn set_all(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<usize> {
        if entries.is_empty() {
            return Ok(0);
        }
        assert!(self.is_keyed(), "{:?}", self.kind);
        let mut keys = Vec::with_capacity(entries.len() * self.key_size);
        let mut values = Vec::with_capacity(entries.len() * self.value_size);
        for (key, value) in entries {
            self.check_key(key);
            assert!(
                value.len() == self.value_size,
                "a value of {} bytes, not {}",
                self.value_size,
                value.len()
            );
            keys.extend_from_slice(key);
            values.extend_from_slice(value);
        }
        let mut batch = Batch::new(self, keys.as_mut_ptr(), values.as_mut_ptr(), entries.len());
        // SAFETY: the kernel reads as many keys and values as are given, of the map's sizes: see above.
        match unsafe { exchange(MAP_UPDATE_BATCH, &mut batch) } {
            Ok(()) => Ok(entries.len()),
            // A hash is full, or a set of prefixes.
            Err(error) if matches!(error.raw_os_error(), Some(libc::E2BIG | libc::ENOSPC)) => {
                Ok(batch.count as usize)
            }
            Err(error) => Err(Error::new("bpf MAP_UPDATE_BATCH", error)),
        }
    }

    /// Removes entries: how many of them there were.
    pub fn remove_all(&self, keys: &[Vec<u8>]) -> Result<usize> {
        assert!(self.is_keyed(), "{:?}", self.kind);
        let mut octets = Vec::with_capacity(keys.len() * self.key_size);
        for key in keys {
            self.check_key(key);
            octets.extend_from_slice(key);
        }
        let (mut at, mut removed) = (0, 0);
        while at < keys.len() {
            let from = octets[at * self.key_size..].as_mut_ptr();
            let mut batch = Batch::new(self, from, std::ptr::null_mut(), keys.len() - at);
            // SAFETY: the kernel reads as many keys as are given, of the map's size: see above.
            match unsafe { exchange(MAP_DELETE_BATCH, &mut batch) } {
                Ok(()) => return Ok(removed + keys.len() - at),
                // It stops at one that is not there.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    removed += batch.count as usize;
                    at += batch.count as usize + 1;
                }
                Err(error) => return Err(Error::new("bpf MAP_DELETE_BATCH", error)),
            }
        }
        Ok(removed)
    }

    /// Whether keys are what they are made, and not numbers of what is always there.
    const fn is_keyed(&self) -> bool {
        matches!(self.kind, MapKind::Hash | MapKind::LruHash | MapKind::LongestPrefix)
    }

    /// What a [`Place`] has: the number of a bucket has four bytes.
    const fn place_size(&self) -> usize {
        if self.key_size > 4 { self.key_size } else { 4 }
    }

    fn check_key(&self, key: &[u8]) {
        assert!(key.len() == self.key_size, "a key of {} bytes, not {}", self.key_size, key.len());
    }
}

/// Keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Where in a map the kernel goes on: the number of a bucket, or a key.
#[derive(Debug)]
pub struct Place(Vec<u8>);

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
    fn new(map: &Map, key: &[u8], value: u64) -> Self {
        Self { map: map.fd.as_raw_fd() as u32, padding: 0, key: key.as_ptr() as u64, value, flags: ANY }
    }
}

/// What the commands for many elements take. The kernel writes to `count` how many it has done.
#[repr(C)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

impl Batch {
    fn new(map: &Map, keys: *mut u8, values: *mut u8, count: usize) -> Self {
        let (keys, values, map) = (keys as u64, values as u64, map.fd.as_raw_fd() as u32);
        // A map has no more entries than this.
        Self { from: 0, to: 0, keys, values, count: count as u32, map, element_flags: ANY, flags: 0 }
    }
}

/// Processors that the kernel keeps values and places of maps for: all that could be plugged in.
pub fn processors() -> Result<usize> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(PATH).context(|| format!("read {PATH}"))?;
    // "0", "0-7", and in theory "0-3,8-11": the kernel counts up to the highest.
    let highest = text.trim().rsplit(['-', ',']).next().and_then(|number| number.parse::<usize>().ok());
    highest.map(|number| number + 1).ok_or_else(|| Error::other(format!("read {PATH}"), text))
}
