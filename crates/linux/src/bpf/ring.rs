//! Ring buffers: what programs tell, record by record (Linux 5.8). The kernel's documentation, `bpf/ringbuf.rst`, has
//! the layout.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ::bpf::MapKind;

use super::map::Map;
use crate::error::{Context as _, Result};

/// Bytes of a record's header: its length with two flags, and what the kernel keeps for itself.
const HEADER: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// A ring buffer and our view of it. It is readable when there are records.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// A page of ours, which begins with how far we have read.
    consumer: NonNull<AtomicU64>,
    /// A page of the kernel's, which begins with how far programs have written; then the data, twice in a row, so that
    /// each record is in one piece.
    producer: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the memory is the process's, whichever thread looks at it.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring of so many bytes: a power of two of whole pages.
    pub fn create(size: u32) -> Result<Self> {
        let map = Map::create(MapKind::RingBuffer, 0, 0, size)?;
        // SAFETY: it takes and gives a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let size = size as usize;
        let consumer = map_memory(&map, page, libc::PROT_READ | libc::PROT_WRITE, 0)?.cast();
        let producer = match map_memory(&map, page + 2 * size, libc::PROT_READ, page) {
            Ok(producer) => producer,
            Err(error) => {
                unmap(consumer.cast(), page);
                return Err(error);
            }
        };
        Ok(Self { map, consumer, producer, page, size })
    }

    /// Gives out the records that are there, the oldest first, so many at most.
    pub fn read(&mut self, most: usize, mut each: impl FnMut(&[u8])) {
        // SAFETY: the page is mapped as long as this is, begins with this number, and is aligned as pages are.
        let consumer = unsafe { self.consumer.as_ref() };
        // SAFETY: the same; the kernel changes it with atomic writes.
        let producer = unsafe { self.producer.cast::<AtomicU64>().as_ref() };
        for _ in 0..most {
            let at = consumer.load(Ordering::Relaxed);
            if at == producer.load(Ordering::Acquire) {
                return;
            }
            let begin = self.page + (at as usize & (self.size - 1));
            // SAFETY: it is within the mapping, of which the second copy of the data goes on where the first ends.
            let record = unsafe { self.producer.add(begin) };
            // SAFETY: a record begins with its header, and is aligned to eight bytes.
            let header = unsafe { record.cast::<AtomicU32>().as_ref() };
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                return;
            }
            let length = (header & !DISCARDED) as usize;
            if header & DISCARDED == 0 && length <= self.size - HEADER {
                // SAFETY: the record follows its header.
                let data = unsafe { record.add(HEADER) };
                // SAFETY: it is no longer than the ring, and nobody writes there until we have said how far we are.
                let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), length) };
                each(bytes);
            }
            let next = at + (HEADER + length).next_multiple_of(8) as u64;
            consumer.store(next, Ordering::Release);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap(self.consumer.cast(), self.page);
        unmap(self.producer, self.page + 2 * self.size);
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.fd.as_fd()
    }
}

fn map_memory(map: &Map, length: usize, protection: i32, offset: usize) -> Result<NonNull<u8>> {
    // SAFETY: a new mapping, wherever the kernel puts it.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            libc::MAP_SHARED,
            map.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    let mapped = if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) };
    mapped.ok_or_else(std::io::Error::last_os_error).context(|| "mmap of a ring buffer".to_owned())
}

fn unmap(address: NonNull<u8>, length: usize) {
    // SAFETY: it is the mapping that `map_memory` made with this length, which nobody uses any more.
    unsafe { libc::munmap(address.as_ptr().cast(), length) };
}
