//! What the stories of single rules are told with: a connection of ours, and segments written by hand.

use std::time::{Duration, Instant};

use wire::ecn::Ecn;
use wire::tcp::{ACK, Header, SYN, SackBlocks, Segment, SegmentOptions, Timestamps};

use super::super::{Config, Connection, DropReason, State};
use super::network::{flow, secrets};

/// Their initial sequence number; ours is the connection's choice.
pub(super) const THEIRS: u32 = u32::MAX - 1;
pub(super) const MSS: usize = 1000;
/// Of the handshake.
pub(super) const RTT: Duration = Duration::from_millis(50);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// What left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Left {
    /// From our initial sequence number and theirs on: the first byte of each stream is 1.
    pub(super) sequence: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) options: SegmentOptions,
    pub(super) payload: Vec<u8>,
    pub(super) segment_size: Option<u16>,
    pub(super) ecn: Ecn,
}

impl Left {
    /// Sequence, acknowledgement, flags and length.
    pub(super) fn brief(&self) -> (u32, u32, u8, usize) {
        (self.sequence, self.ack, self.flags, self.payload.len())
    }
}

pub(super) struct Story {
    pub(super) now: Instant,
    pub(super) connection: Connection,
    pub(super) initial: u32,
    /// What they acknowledge and say of their window in [`Story::give`].
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) timestamps: Option<Timestamps>,
    pub(super) max_gso: usize,
    /// Why the last segment of theirs went no further.
    pub(super) dropped: Option<DropReason>,
}

pub(super) fn config() -> Config {
    Config { ecn: false, pacing: false, ..Config::new(MSS as u16) }
}

/// What they offer in their SYN.
pub(super) fn offer() -> SegmentOptions {
    SegmentOptions {
        maximum_segment_size: Some(MSS as u16),
        sack_permitted: true,
        ..SegmentOptions::default()
    }
}

impl Story {
    /// A SYN has left.
    pub(super) fn connecting(config: Config) -> (Self, Left) {
        let now = Instant::now();
        let connection = Connection::connect(now, &flow(), &secrets(now), &config);
        let mut story = Story {
            now,
            connection,
            initial: 0,
            ack: 1,
            window: 60_000,
            timestamps: None,
            max_gso: 0,
            dropped: None,
        };
        let mut syn = story.take().unwrap();
        story.initial = syn.sequence;
        syn.sequence = 0;
        (story, syn)
    }

    pub(super) fn established_with(config: Config, options: SegmentOptions, flags: u8) -> Self {
        let (mut story, _) = Self::connecting(config);
        story.timestamps = options.timestamps;
        story.now += RTT;
        story.send(Header { flags: SYN | ACK | flags, options, ..story.header(0) }, &[]);
        assert_eq!(story.connection.state(), State::Established);
        assert_eq!(story.take().unwrap().brief(), (1, 1, ACK, 0));
        story
    }

    pub(super) fn established() -> Self {
        Self::established_with(config(), offer(), 0)
    }

    pub(super) fn header(&self, sequence: u32) -> Header {
        let options = SegmentOptions { timestamps: self.timestamps, ..SegmentOptions::default() };
        Header {
            source_port: 80,
            destination_port: 4000,
            sequence: THEIRS.wrapping_add(sequence),
            acknowledgement: self.initial.wrapping_add(self.ack),
            flags: ACK,
            window: self.window,
            options,
            ..Header::default()
        }
    }

    pub(super) fn send(&mut self, header: Header, payload: &[u8]) {
        self.send_marked(header, payload, Ecn::NotEct);
    }

    pub(super) fn send_marked(&mut self, header: Header, payload: &[u8], ecn: Ecn) {
        let bytes = [&header.to_bytes()[..], payload].concat();
        self.dropped = self.connection.receive(self.now, &Segment::parse(&bytes).unwrap(), ecn);
    }

    /// They send a segment, numbered from their initial sequence number on.
    pub(super) fn give(&mut self, sequence: u32, flags: u8, payload: &[u8]) {
        self.send(Header { flags, ..self.header(sequence) }, payload);
    }

    /// They acknowledge up to `ack`.
    pub(super) fn acknowledge(&mut self, ack: u32) {
        self.ack = ack;
        self.give(1, ACK, &[]);
    }

    /// They acknowledge what they did before, and report blocks.
    pub(super) fn sack(&mut self, blocks: &[(u32, u32)]) {
        let mut sack = SackBlocks::default();
        for (start, end) in blocks {
            sack.push(self.initial.wrapping_add(*start), self.initial.wrapping_add(*end));
        }
        let mut header = self.header(1);
        header.options.sack = sack;
        self.send(header, &[]);
    }

    pub(super) fn take(&mut self) -> Option<Left> {
        let mut out = Vec::new();
        let transmit = self.connection.poll_transmit(self.now, self.max_gso, &mut out)?;
        let segment = Segment::parse(&out).unwrap();
        assert_eq!(
            (segment.header().len(), segment.payload().len()),
            (transmit.header_len, transmit.payload_len)
        );
        let ack = segment.acknowledgement();
        Some(Left {
            sequence: segment.sequence().wrapping_sub(self.initial),
            ack: if segment.flags() & ACK != 0 { ack.wrapping_sub(THEIRS) } else { ack },
            flags: segment.flags(),
            window: segment.window(),
            options: SegmentOptions::of(&segment),
            payload: segment.payload().to_vec(),
            segment_size: transmit.segment_size,
            ecn: transmit.ecn,
        })
    }

    /// Sequence, flags and urgent pointer of what leaves.
    pub(super) fn take_header(&mut self) -> Option<(u32, u8, u16)> {
        let mut out = Vec::new();
        self.connection.poll_transmit(self.now, self.max_gso, &mut out)?;
        let segment = Segment::parse(&out).unwrap();
        Some((segment.sequence().wrapping_sub(self.initial), segment.flags(), segment.urgent_pointer()))
    }

    /// All that leaves now: sequence, acknowledgement, flags and length.
    pub(super) fn all(&mut self) -> Vec<(u32, u32, u8, usize)> {
        std::iter::from_fn(|| self.take()).map(|left| left.brief()).collect()
    }

    /// Time passes; timers fire one by one, and what leaves then is returned.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<(u32, u32, u8, usize)> {
        let end = self.now + time;
        let mut left = self.all();
        while let Some(deadline) = self.connection.deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.connection.handle_timeout(self.now);
            left.extend(self.all());
        }
        self.now = end;
        left
    }

    /// Time until something leaves.
    pub(super) fn until_something_leaves(&mut self) -> (Duration, Left) {
        let start = self.now;
        assert_eq!(self.take(), None);
        loop {
            self.now = self.connection.deadline().expect("a timer").max(self.now);
            self.connection.handle_timeout(self.now);
            if let Some(left) = self.take() {
                return (self.now - start, left);
            }
        }
    }

    pub(super) fn write(&mut self, len: usize) {
        assert_eq!(self.connection.write(&vec![7; len]), len);
    }

    pub(super) fn state(&self) -> State {
        self.connection.state()
    }
}

pub(super) fn with_timestamps() -> SegmentOptions {
    let timestamps = Some(Timestamps { value: 100, echo: 0 });
    SegmentOptions { window_scale: Some(3), timestamps, ..offer() }
}
