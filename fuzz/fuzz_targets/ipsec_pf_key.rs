//! What key management daemons may write to their socket.
#![no_main]

use std::time::{Duration, Instant};

use ipsec::key_engine::{KeyEngine, Random};
use ipsec::pf_key::message::Message;
use ipsec::pf_key::{Clock, PfKey};
use ipsec::policy::PolicyDatabase;
use ipsec::request::DaemonId;
use libfuzzer_sys::fuzz_target;

struct Counter(u32);

impl Random for Counter {
    fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x1234_5677);
        self.0
    }
}

/// Makes a message of any bytes whose lengths are right, so that what is in it is looked at: of a message in 8-byte words, of
/// its extensions as far as they go, with types that there are.
fn framed(mut bytes: Vec<u8>) -> Vec<u8> {
    const HEADER: usize = 16;
    const VERSION: u8 = 2;
    const TYPES: u8 = 28;
    bytes.resize(bytes.len().max(HEADER).next_multiple_of(8).min(1 << 15), 0);
    bytes[0] = VERSION;
    bytes[1] %= TYPES;
    let words = (bytes.len() / 8) as u16;
    bytes[4..6].copy_from_slice(&words.to_ne_bytes());
    let mut at = HEADER;
    while let Some([low, _, kind, high]) = bytes.get_mut(at..at + 4) {
        *kind %= TYPES;
        *high = 0;
        let length = 8 * (1 + usize::from(*low % 16)).min((usize::from(words) * 8 - at) / 8);
        bytes[at..at + 2].copy_from_slice(&((length / 8) as u16).to_ne_bytes());
        at += length;
    }
    bytes
}

fuzz_target!(|messages: Vec<(bool, bool, u8, Vec<u8>)>| {
    let (mut engine, mut policies, mut pf_key) = (KeyEngine::new(), PolicyDatabase::new(), PfKey::new());
    let daemons = [DaemonId(1), DaemonId(2)];
    assert!(daemons.iter().all(|daemon| pf_key.open(*daemon)));
    let mut clock = Clock { now: Instant::now(), since_1970: Duration::from_secs(1_800_000_000) };
    let mut random = Counter(0);
    for (from, is_framed, seconds, bytes) in messages {
        let bytes = if is_framed { framed(bytes) } else { bytes };
        clock.now += Duration::from_secs(seconds.into());
        engine.handle_timeout(clock.now);
        pf_key.handle(&mut engine, &mut policies, daemons[usize::from(from)], &bytes, &mut random, clock);
        while let Some(event) = engine.next_event() {
            pf_key.tell(&event, &engine, clock);
        }
        while let Some((_, answer)) = pf_key.next_output() {
            // What is no message is answered with its own header.
            let is_bare = answer.len() == 16 && answer[2] != 0;
            assert!(is_bare || Message::parse(&answer).is_ok());
        }
    }
});
