//! Packets in pieces, of both versions of IP: fragments are kept until their packet is whole, or their time is over.
//!
//! Fragments that overlap give the whole packet up, with those of its fragments that are still to come (RFC 5722). What
//! strangers can make us keep is bounded: in packets and octets, of one source and of all. If there is no room, the oldest
//! packet makes some: of the source that has too many, or of all.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::ecn::{self, Ecn};

use crate::DropReason;

/// After the first fragment to arrive, the others have so long (RFC 8200 §4.5, RFC 1122 §3.3.2).
pub const REASSEMBLY_TIME: Duration = Duration::from_secs(60);
/// Packets in pieces, of all sources. Those that have lost a fragment are the oldest, and make room.
pub const MAX_PACKETS: usize = 64;
/// Packets in pieces of one source: what a burst of large datagrams out of order needs.
pub const MAX_PACKETS_PER_SOURCE: usize = 8;
/// Octets of all sources: sixteen packets of the largest size.
pub const MAX_OCTETS: usize = 1 << 20;
/// Octets of one source: four packets of the largest size.
pub const MAX_OCTETS_PER_SOURCE: usize = 1 << 18;
/// Fragments of one packet: 65,535 octets in pieces for the least MTU are 54.
pub const MAX_FRAGMENTS: usize = 64;
/// What a fragment is counted with beside its octets, so that small ones are not free.
const FRAGMENT_COST: usize = 64;

/// Which packet a fragment is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its identification.
    pub identification: u32,
    /// In IPv4 identifications of different protocols have nothing to do with each other.
    pub protocol: Option<u8>,
    /// What it was protected by, and 0 for what came as it is: what came by different ways is not put together, or some
    /// of it could be forged.
    pub protection: u8,
}

/// A fragment.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Where its data begin.
    pub offset: usize,
    /// Whether more follow.
    pub more: bool,
    /// Its data, not empty.
    pub data: &'a [u8],
    /// Its congestion mark.
    pub ecn: Ecn,
    /// Its headers, from the IP header on. Those of the first fragment become the packet's.
    pub headers: [&'a [u8]; 2],
    /// How many octets of the headers the packet has, too.
    pub kept: usize,
    /// The octet of the headers that says that this is a fragment, and what it is in the packet.
    pub changed: (usize, u8),
}

/// The packets of which some fragments have arrived.
#[derive(Default)]
pub struct Fragments {
    /// The oldest first.
    packets: Vec<Pieces>,
}

struct Pieces {
    id: Id,
    deadline: Instant,
    /// Of the first fragment.
    headers: Option<Headers>,
    /// By offset; none overlap.
    fragments: Vec<Piece>,
    /// How long the whole is, once the last fragment has come.
    total: Option<usize>,
    congestion_experienced: bool,
    not_ect: bool,
    octets: usize,
    /// Fragments have overlapped: those that come are dropped, too.
    given_up: bool,
}

struct Headers {
    bytes: Vec<u8>,
    kept: usize,
    changed: (usize, u8),
}

struct Piece {
    offset: usize,
    data: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.data.len()
    }
}

impl Fragments {
    /// Takes a fragment. If that completes its packet, it is written to `out` with the headers that are kept, and `true`
    /// returned; lengths and checksums of headers are the caller's to write.
    ///
    /// # Errors
    /// When the fragment overlaps another, or has no room.
    pub fn insert(
        &mut self,
        now: Instant,
        id: Id,
        part: &Part<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, DropReason> {
        let index = self.find_or_begin(now, id);
        let pieces = &mut self.packets[index];
        if pieces.given_up {
            return Err(DropReason::OverlappingFragment);
        }
        if !pieces.fits(part) {
            pieces.give_up();
            return Err(DropReason::OverlappingFragment);
        }
        if pieces.has(part) {
            return Ok(false);
        }
        let headers: usize = part.headers.iter().map(|part| part.len()).sum();
        let index = self.make_room(index, headers + part.data.len() + FRAGMENT_COST)?;
        let pieces = &mut self.packets[index];
        pieces.add(part);
        if !pieces.is_whole() {
            return Ok(false);
        }
        self.packets.remove(index).write(out)
    }

    /// When [`Fragments::expire`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.packets.first().map(|pieces| pieces.deadline)
    }

    /// Gives up the oldest packet if its time is over. If its first fragment had arrived, and as it is, that is written to
    /// `out` for the error to quote (Time Exceeded, code 1), else `out` is empty: what came protected is quoted to nobody.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        out.clear();
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return false;
        }
        let pieces = self.packets.remove(0);
        if let (Some(headers), Some(first)) = (&pieces.headers, pieces.fragments.first())
            && pieces.id.protection == 0
        {
            out.extend_from_slice(&headers.bytes);
            out.extend_from_slice(&first.data);
        }
        true
    }

    /// Octets that are kept.
    pub fn octets(&self) -> usize {
        self.packets.iter().map(|pieces| pieces.octets).sum()
    }

    /// How many packets are kept.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether none are.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn find_or_begin(&mut self, now: Instant, id: Id) -> usize {
        if let Some(index) = self.packets.iter().position(|pieces| pieces.id == id) {
            return index;
        }
        let of_source = |pieces: &&Pieces| pieces.id.source == id.source;
        if self.packets.iter().filter(of_source).count() >= MAX_PACKETS_PER_SOURCE {
            self.remove_oldest(|pieces| pieces.id.source == id.source);
        }
        if self.packets.len() >= MAX_PACKETS {
            self.packets.remove(0);
        }
        self.packets.push(Pieces {
            id,
            deadline: now + REASSEMBLY_TIME,
            headers: None,
            fragments: Vec::new(),
            total: None,
            congestion_experienced: false,
            not_ect: false,
            octets: 0,
            given_up: false,
        });
        self.packets.len() - 1
    }

    /// Makes room for `octets` more of the packet at `index`; returns where it is then.
    fn make_room(&mut self, index: usize, octets: usize) -> Result<usize, DropReason> {
        let id = self.packets[index].id;
        let source = id.source;
        let full = DropReason::FragmentLimit;
        if self.packets[index].fragments.len() >= MAX_FRAGMENTS {
            return Err(full);
        }
        let of_source = |this: &Self| {
            let of_source = this.packets.iter().filter(|pieces| pieces.id.source == source);
            of_source.map(|pieces| pieces.octets).sum::<usize>()
        };
        while of_source(self) + octets > MAX_OCTETS_PER_SOURCE {
            if !self.remove_oldest(|pieces| pieces.id.source == source && pieces.id != id) {
                return Err(full);
            }
        }
        while self.octets() + octets > MAX_OCTETS {
            if !self.remove_oldest(|pieces| pieces.id != id) {
                return Err(full);
            }
        }
        self.packets.iter().position(|pieces| pieces.id == id).ok_or(full)
    }

    fn remove_oldest(&mut self, of: impl Fn(&Pieces) -> bool) -> bool {
        let oldest = self.packets.iter().position(of);
        oldest.map(|oldest| self.packets.remove(oldest)).is_some()
    }
}

impl Pieces {
    /// Whether the fragment goes with those that are here: no overlap, other than with one that is equal.
    fn fits(&self, part: &Part<'_>) -> bool {
        let (offset, end) = (part.offset, part.offset + part.data.len());
        let beyond = match self.total {
            Some(total) => end > total || part.more == (end == total),
            None => !part.more && self.fragments.last().is_some_and(|last| last.end() > end),
        };
        !beyond
            && (self.has(part)
                || self.fragments.iter().all(|piece| piece.end() <= offset || end <= piece.offset))
    }

    /// Whether this very fragment is here: networks duplicate packets (RFC 8200 §4.5).
    fn has(&self, part: &Part<'_>) -> bool {
        let found = self.fragments.binary_search_by_key(&part.offset, |piece| piece.offset);
        found.is_ok_and(|index| self.fragments[index].data == part.data)
    }

    fn add(&mut self, part: &Part<'_>) {
        if part.offset == 0 {
            let bytes = part.headers.concat();
            self.octets += bytes.len();
            self.headers = Some(Headers { bytes, kept: part.kept, changed: part.changed });
        }
        if !part.more {
            self.total = Some(part.offset + part.data.len());
        }
        match part.ecn {
            Ecn::Ce => self.congestion_experienced = true,
            Ecn::NotEct => self.not_ect = true,
            Ecn::Ect0 | Ecn::Ect1 => {}
        }
        let place = self.fragments.partition_point(|piece| piece.offset < part.offset);
        self.fragments.insert(place, Piece { offset: part.offset, data: part.data.to_vec() });
        self.octets += part.data.len() + FRAGMENT_COST;
    }

    fn is_whole(&self) -> bool {
        let mut end = 0;
        self.fragments.iter().all(|piece| piece.offset == std::mem::replace(&mut end, piece.end()))
            && self.total == Some(end)
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.headers = None;
        self.fragments = Vec::new();
        self.octets = 0;
    }

    fn write(self, out: &mut Vec<u8>) -> Result<bool, DropReason> {
        let impossible = DropReason::ImpossibleFragment;
        // Congestion marks on some fragments of a packet that cannot carry one (RFC 3168 §5.3).
        if self.congestion_experienced && self.not_ect {
            return Err(impossible);
        }
        let Headers { bytes, kept, changed: (at, value) } = self.headers.ok_or(impossible)?;
        out.clear();
        out.extend_from_slice(bytes.get(..kept).ok_or(impossible)?);
        *out.get_mut(at).ok_or(impossible)? = value;
        for piece in &self.fragments {
            out.extend_from_slice(&piece.data);
        }
        if self.congestion_experienced {
            ecn::set(out, Ecn::Ce);
        }
        Ok(true)
    }
}
