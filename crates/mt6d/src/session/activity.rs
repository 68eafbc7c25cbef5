//! What the carrying of packets leaves behind, in numbers that several threads may write: counts, and when something
//! crossed last. Nothing hangs together in here that must be read at one instant.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::drops::AtomicDrops;
use crate::time::{AtomicTime, Time};

/// The shortest packet, in bytes, that may take more than the smallest MTU that there is.
const LARGE: u64 = 1200;

/// Packets and bytes that crossed, inner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets to the peer.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets from it.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, more: Traffic) {
        self.tx_packets += more.tx_packets;
        self.tx_bytes += more.tx_bytes;
        self.rx_packets += more.rx_packets;
        self.rx_bytes += more.rx_bytes;
    }
}

/// Of one session.
#[derive(Debug)]
pub(crate) struct Activity {
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    /// Of these, those that crossed as they are but for their addresses: out, and in.
    rewritten: [AtomicU64; 4],
    pub(crate) drops: AtomicDrops,
    /// When the last inner packet left, or came from the peer for certain; at first, when the session began.
    pub(crate) last_inner: AtomicTime,
    /// Whether packets left lately that a path may be too narrow for.
    large: AtomicBool,
    /// When the last datagram left, control messages included.
    pub(crate) last_sent: AtomicTime,
    /// When the last datagram came that opened.
    pub(crate) last_received: AtomicTime,
    /// Since when something was sent and nothing received; zero if not.
    unanswered: AtomicTime,
    /// Whether what comes proves first of all that the peer has the keys. Not set again once it is not.
    pub(crate) unproven: AtomicBool,
    /// Names for packets that leave in halves.
    next_half: AtomicU32,
}

impl Activity {
    pub(crate) fn new(unproven: bool, now: Time) -> Self {
        Activity {
            tx_packets: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            rx_packets: AtomicU64::new(0),
            rx_bytes: AtomicU64::new(0),
            rewritten: Default::default(),
            drops: AtomicDrops::default(),
            last_inner: AtomicTime::new(now),
            large: AtomicBool::new(false),
            last_sent: AtomicTime::new(now),
            last_received: AtomicTime::new(now),
            unanswered: AtomicTime::default(),
            unproven: AtomicBool::new(unproven),
            next_half: AtomicU32::new(0),
        }
    }

    /// Inner packets left.
    pub(crate) fn sent(&self, packets: u64, bytes: u64, now: Time) {
        self.tx_packets.fetch_add(packets, Relaxed);
        self.tx_bytes.fetch_add(bytes, Relaxed);
        self.note_size(bytes);
        self.last_inner.set(now);
        self.last_sent.set(now);
        self.waits_for_answer(now);
    }

    /// So many bytes left in one packet, or in several: that some of these were large is likely enough.
    fn note_size(&self, bytes: u64) {
        // Read first: threads that only read it do not take it from each other.
        if bytes >= LARGE && !self.large.load(Relaxed) {
            self.large.store(true, Relaxed);
        }
    }

    /// Whether such packets left since this was last asked.
    pub(crate) fn take_large(&self) -> bool {
        self.large.swap(false, Relaxed)
    }

    /// Something opened.
    pub(crate) fn received(&self, now: Time) {
        self.last_received.set(now);
        self.unanswered.set(Time::default());
    }

    /// Inner packets came.
    pub(crate) fn delivered(&self, packets: u64, bytes: u64, now: Time) {
        self.rx_packets.fetch_add(packets, Relaxed);
        self.rx_bytes.fetch_add(bytes, Relaxed);
        self.last_inner.set(now);
    }

    /// Packets crossed as they are but for their addresses. What came proves nothing: it is no sign of life, and a stranger who
    /// sends it must not have the session go on, ask, or open its lanes.
    pub(crate) fn count_rewritten(&self, traffic: &Traffic, now: Time) {
        let Traffic { tx_packets, tx_bytes, rx_packets, rx_bytes } = *traffic;
        self.tx_packets.fetch_add(tx_packets, Relaxed);
        self.tx_bytes.fetch_add(tx_bytes, Relaxed);
        self.rx_packets.fetch_add(rx_packets, Relaxed);
        self.rx_bytes.fetch_add(rx_bytes, Relaxed);
        for (sum, more) in self.rewritten.iter().zip([tx_packets, tx_bytes, rx_packets, rx_bytes]) {
            sum.fetch_add(more, Relaxed);
        }
        if tx_packets > 0 {
            self.note_size(tx_bytes);
            self.last_inner.set(now);
            self.waits_for_answer(now);
        }
    }

    /// From now on, unless it did before, the peer owes a sign of life.
    pub(crate) fn waits_for_answer(&self, now: Time) {
        if self.unanswered.get() == Time::default() {
            self.unanswered.set(now);
        }
    }

    /// Since when it does.
    pub(crate) fn unanswered(&self) -> Option<Time> {
        Some(self.unanswered.get()).filter(|since| *since != Time::default())
    }

    /// A name for a packet in halves that no other has had for long.
    pub(crate) fn next_half(&self) -> u32 {
        self.next_half.fetch_add(1, Relaxed)
    }

    /// What crossed as it is but for its addresses.
    pub(crate) fn rewritten(&self) -> Traffic {
        let [tx_packets, tx_bytes, rx_packets, rx_bytes] =
            self.rewritten.each_ref().map(|sum| sum.load(Relaxed));
        Traffic { tx_packets, tx_bytes, rx_packets, rx_bytes }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
        }
    }
}

/// What the carrying of packets leaves behind on a lane; several threads may write it.
#[derive(Debug)]
pub(crate) struct LaneActivity {
    /// When the last datagram left.
    pub(crate) sent: AtomicTime,
    /// How long the last inner part was that left and was a packet; zero if none did.
    pub(crate) length: AtomicU32,
    /// When something came for the first time.
    heard: AtomicTime,
}

impl LaneActivity {
    pub(crate) fn new() -> Self {
        LaneActivity { sent: AtomicTime::default(), length: AtomicU32::new(0), heard: AtomicTime::default() }
    }

    /// Something opened that came on this lane.
    pub(crate) fn received(&self, now: Time) {
        if !self.heard() {
            self.heard.set(now);
        }
    }

    /// Whether something did.
    pub(crate) fn heard(&self) -> bool {
        self.heard.get() != Time::default()
    }

    /// Whether something has left since, so that the peer can have heard, too: what left before may not have come through a
    /// firewall at the peer.
    pub(crate) fn answered(&self) -> bool {
        self.heard() && self.sent.get() > self.heard.get()
    }
}
