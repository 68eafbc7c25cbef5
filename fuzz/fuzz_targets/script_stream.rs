//! Streams of TCP from any segments: what passes shows a receiver nothing that was not seen, within bounds.

#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use script::packet::Packet;
use script::streams::{Decision, Limits, Segment, Streams};
use wire::checksum::TransportChecksum;

const LIMITS: Limits = Limits { streams: 8, octets: 64, memory: 256, expires_ms: 1000 };
/// Sequence number before the first octet.
const START: u32 = 0xffff_fff8;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A segment of one of some streams.
    Segment {
        stream: u8,
        at: u8,
        flags: u8,
        octets: Vec<u8>,
    },
    Decide {
        stream: u8,
        accept: bool,
    },
    Wait(u8),
    /// Any frame.
    Frame(Vec<u8>),
}

fuzz_target!(|steps: Vec<Step>| {
    let mut streams = Streams::new(LIMITS);
    let mut now_ms = 0;
    // Where each stream begins, and what a receiver has of it that was not decided about.
    let mut received: HashMap<u8, (u8, HashMap<usize, u8>)> = HashMap::new();
    for step in steps {
        match step {
            Step::Segment { stream, at, flags, octets } => {
                let stream = stream % 16;
                let sequence = START.wrapping_add(u32::from(at)).wrapping_add(u32::from(flags & 2 == 0));
                let segment = Segment { sequence, flags, octets: &octets, fault: None };
                let seen = streams.take(&[stream], &segment, now_ms);
                let (start, received) = received.entry(stream).or_default();
                if seen.begins {
                    *start = at;
                    received.clear();
                }
                // What is behind a decision is the receiver's own affair, and a reset carries nothing.
                if seen.fault.is_some() || seen.decided.is_some() || flags & 4 != 0 || octets.is_empty() {
                    continue;
                }
                for (place, octet) in (usize::from(at - *start)..).zip(&octets) {
                    assert_eq!(streams.octets(&[stream], now_ms).get(place), Some(octet), "{place}");
                    assert_eq!(received.entry(place).or_insert(*octet), octet, "{place}");
                }
            }
            Step::Decide { stream, accept } => {
                let decision = if accept { Decision::Accept } else { Decision::Refuse };
                streams.decide(&[stream % 16], decision, now_ms);
            }
            Step::Wait(ms) => now_ms += u64::from(ms),
            Step::Frame(bytes) => {
                let packet = Packet::of_frame(bytes, TransportChecksum::Complete);
                if let Some(segment) = Segment::of(&packet) {
                    streams.take(b"frames", &segment, now_ms);
                }
            }
        }
        assert!(streams.held() <= LIMITS.memory);
    }
});
