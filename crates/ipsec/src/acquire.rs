//! Wishes for associations, and the packets that wait for them: bounded in number, bytes and time, since whoever can make
//! this host send can make it wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::level::Socket;
use crate::request::Request;

/// How long a daemon has (as `net.core.xfrm_acq_expires`); a handshake with its repetitions takes a few seconds.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// Wishes at once: more peers than a host finds at once. A scan of a network behind the policy makes as many.
pub const MAX_ACQUIRES: usize = 256;
/// Packets that wait for one wish: the first flight of a connection. What is more would be sent again anyway.
pub const MAX_DELAYED_PACKETS: usize = 16;
/// Bytes that wait in all.
pub const MAX_DELAYED_BYTES: usize = 1 << 20;

/// A wish. A daemon's answer names it: the sequence number of `SADB_ACQUIRE` (RFC 2367 §3.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcquireId(pub u32);

/// No more wishes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireError {
    Full,
}

/// A packet that waited, and may go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The packet as it was when it was delayed.
    pub packet: Vec<u8>,
    /// Who sent it, as it was then.
    pub socket: Option<Socket>,
}

/// All wishes.
#[derive(Debug, Default)]
pub(crate) struct Acquires {
    wishes: Vec<Wish>,
    released: VecDeque<Released>,
    bytes: usize,
    last_id: u32,
}

#[derive(Debug)]
struct Wish {
    id: AcquireId,
    request: Request,
    since: Instant,
    packets: Vec<Released>,
}

impl Acquires {
    /// The wish for this, and whether it is a new one.
    pub(crate) fn want(
        &mut self,
        request: &Request,
        now: Instant,
    ) -> Result<(AcquireId, bool), AcquireError> {
        if let Some(wish) = self.wishes.iter().find(|wish| wish.request.is_like(request)) {
            return Ok((wish.id, false));
        }
        if self.wishes.len() == MAX_ACQUIRES {
            return Err(AcquireError::Full);
        }
        // Zero is what a daemon writes that answers nothing.
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        let id = AcquireId(self.last_id);
        self.wishes.push(Wish { id, request: request.clone(), since: now, packets: Vec::new() });
        Ok((id, true))
    }

    pub(crate) fn request(&self, id: AcquireId) -> Option<&Request> {
        self.wishes.iter().find(|wish| wish.id == id).map(|wish| &wish.request)
    }

    pub(crate) fn delay(&mut self, id: AcquireId, packet: &[u8], socket: Option<Socket>) -> bool {
        let Some(wish) = self.wishes.iter_mut().find(|wish| wish.id == id) else { return false };
        if wish.packets.len() == MAX_DELAYED_PACKETS || self.bytes + packet.len() > MAX_DELAYED_BYTES {
            return false;
        }
        self.bytes += packet.len();
        wish.packets.push(Released { packet: packet.to_vec(), socket });
        true
    }

    /// Releases what waits for what is there now.
    pub(crate) fn satisfy(&mut self, is_met: impl Fn(&Request) -> bool) {
        for wish in self.wishes.extract_if(.., |wish| is_met(&wish.request)) {
            self.released.extend(wish.packets);
        }
    }

    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    pub(crate) fn next_released(&mut self) -> Option<Released> {
        let released = self.released.pop_front()?;
        self.bytes -= released.packet.len();
        Some(released)
    }

    /// Drops what waits for this, and returns how many packets.
    pub(crate) fn give_up(&mut self, id: AcquireId) -> usize {
        self.drop_wishes(|wish| wish.id == id)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) -> usize {
        self.drop_wishes(|wish| now.saturating_duration_since(wish.since) >= ACQUIRE_TIMEOUT)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.wishes.iter().filter_map(|wish| wish.since.checked_add(ACQUIRE_TIMEOUT)).min()
    }

    fn drop_wishes(&mut self, is_meant: impl Fn(&Wish) -> bool) -> usize {
        let mut dropped = 0;
        for wish in self.wishes.extract_if(.., |wish| is_meant(wish)) {
            dropped += wish.packets.len();
            self.bytes -= wish.packets.iter().map(|waiting| waiting.packet.len()).sum::<usize>();
        }
        dropped
    }
}
