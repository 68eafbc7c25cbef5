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

fuzz_target!(|messages: Vec<(bool, u8, Vec<u8>)>| {
    let (mut engine, mut policies, mut pf_key) = (KeyEngine::new(), PolicyDatabase::new(), PfKey::new());
    let daemons = [DaemonId(1), DaemonId(2)];
    assert!(daemons.iter().all(|daemon| pf_key.open(*daemon)));
    let mut clock = Clock { now: Instant::now(), unix_seconds: 1_800_000_000 };
    let mut random = Counter(0);
    for (from, seconds, bytes) in messages {
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
