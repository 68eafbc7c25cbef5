//! Packets between a host and one that shares keys with it, by each kind of association: what a stranger sends, what the
//! peer protects, and what was damaged on the way.

#![no_main]

use std::time::{Duration, Instant};

use ipsec::key_engine::KeyEngine;
use ipsec::packet_buffer::PacketBuffer;
use ipsec::policy::{Output, PolicyDatabase};
use ipsec::processing::{self, MAX_HEADROOM, MAX_TAILROOM, Progress, Step};
use ipsec::selector::Traffic;
use ipsec::udp_encapsulation;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// What protects packets from `2001:db8::1` to `2001:db8:1::N`.
const PROTECTIONS: [&[&str]; 7] = [
    &["esp KEY -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213"],
    &["esp KEY -r 64 -E aes-cbc 0x00112233445566778899aabbccddeeff -A hmac-sha2-256 \
       0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"],
    &[
        "esp KEY -r 64 -E null -A hmac-sha2-256 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ],
    &["esp KEY -m tunnel -r 64 -E chacha20-poly1305 \
       0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f10111213"],
    &["ah KEY -r 64 -A aes-gmac 0x000102030405060708090a0b0c0d0e0f10111213"],
    &["ah KEY -r 64 -A hmac-sha2-256 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"],
    &[
        "esp KEY -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213",
        "ah KEY -r 64 -A hmac-sha2-256 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ],
];

#[derive(Debug, Arbitrary)]
enum Sent {
    /// Any bytes, of somebody without keys.
    Strange(Vec<u8>),
    /// A packet with these bytes behind its IPv6 header, of the peer that has keys.
    Protected { by: u8, next_header: u8, payload: Vec<u8> },
    /// The same, and a byte of it was changed on the way.
    Damaged { by: u8, next_header: u8, payload: Vec<u8>, at: u16, mask: u8 },
}

struct Ends {
    engines: [KeyEngine; 2],
    policies: PolicyDatabase,
    now: Instant,
}

impl Ends {
    fn new(now: Instant) -> Self {
        let mut file = String::new();
        for (number, protections) in PROTECTIONS.iter().enumerate() {
            let ends = format!("2001:db8::1 2001:db8:1::{number:x}");
            let mut rule = String::new();
            for (nth, protection) in protections.iter().enumerate() {
                let spi = 0x1000 + number * 16 + nth;
                file += &format!("add {ends} {};\n", protection.replace("KEY", &spi.to_string()));
                let protocol = protection.split(' ').next().unwrap();
                rule += &match protection.contains("-m tunnel") {
                    true => format!(" {protocol}/tunnel/{}/require", ends.replace(' ', "-")),
                    false => format!(" {protocol}/transport//require"),
                };
            }
            file += &format!("spdadd {ends} any -P out ipsec{rule};\n");
        }
        let mut policies = PolicyDatabase::new();
        let engines = [(); 2].map(|()| {
            policies = PolicyDatabase::new();
            let mut engine = KeyEngine::new();
            let commands = ipsec::setkey::parse(&file).unwrap();
            ipsec::setkey::apply(commands, &mut engine, &mut policies, now).unwrap();
            engine
        });
        Self { engines, policies, now }
    }

    /// The packet, and what of it leaves, if anything does.
    fn seal(&mut self, by: u8, next_header: u8, payload: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let by = by % PROTECTIONS.len() as u8;
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let mut plain = vec![0x60, 0, 0, 0, length[0], length[1], next_header, 64];
        plain.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        plain.extend([0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, by]);
        plain.extend(payload);
        let place = MAX_HEADROOM..MAX_HEADROOM + plain.len();
        let mut buffer = vec![0; place.end + MAX_TAILROOM];
        buffer[place.clone()].copy_from_slice(&plain);
        let sealed = Traffic::of(&plain).ok().and_then(|traffic| {
            let output = self.policies.output_policy(&mut self.engines[0], &traffic, None, self.now);
            let Ok(Output::Send(bundle)) = output else { return None };
            let mut packet = PacketBuffer::new(&mut buffer, place)?;
            processing::seal(&mut self.engines[0], &bundle, &mut packet, self.now).ok()?;
            Some(packet.packet().to_vec())
        });
        (plain, sealed)
    }

    /// What the other end makes of it, as far as it can be opened.
    fn open(&mut self, mut received: Vec<u8>) -> (Vec<u8>, Progress) {
        let (all, mut progress) = (0..received.len(), Progress::default());
        let mut packet = PacketBuffer::new(&mut received, all).unwrap();
        let port = Some(udp_encapsulation::PORT);
        while let Ok(Step::Opened(next)) =
            processing::open(&mut self.engines[1], &mut packet, progress, port, self.now)
        {
            progress = next;
        }
        (packet.packet().to_vec(), progress)
    }
}

fuzz_target!(|sent: Vec<(u8, Sent)>| {
    let mut ends = Ends::new(Instant::now());
    for (seconds, sent) in sent {
        ends.now += Duration::from_secs(seconds.into());
        match sent {
            Sent::Strange(bytes) => {
                let (_, progress) = ends.open(bytes);
                assert_eq!(progress, Progress::default(), "a stranger has no keys");
            }
            // 59 is a dummy, which is dropped (RFC 4303 2.6).
            Sent::Protected { by, next_header, payload } if payload.len() <= 0xff00 && next_header != 59 => {
                let (plain, sealed) = ends.seal(by, next_header, &payload);
                let Some(sealed) = sealed else { continue };
                let (opened, progress) = ends.open(sealed.clone());
                assert!(progress.marks.authentic, "{opened:x?}");
                // What it carries may be protected once more, and then be opened further or not at all.
                if !matches!(next_header, 4 | 41 | 50 | 51) && is_short(next_header) {
                    assert_eq!(opened, plain);
                }
                assert!(!ends.open(sealed).1.marks.authentic, "a replay");
            }
            Sent::Damaged { by, next_header, payload, at, mask } if payload.len() <= 0xff00 && mask != 0 => {
                let Some(mut sealed) = ends.seal(by, next_header, &payload).1 else { continue };
                let at = usize::from(at) % sealed.len();
                sealed[at] ^= mask;
                let (opened, progress) = ends.open(sealed);
                // ESP does not cover the header before it, AH not what routers change.
                if at >= 40 {
                    assert!(!progress.marks.authentic, "{at}: {opened:x?}");
                }
            }
            _ => {}
        }
    }
    // Nothing that strangers did has hurt an association.
    for by in 0..PROTECTIONS.len() as u8 {
        let (plain, sealed) = ends.seal(by, 253, b"still here");
        let (opened, progress) = ends.open(sealed.expect("an association"));
        assert!(progress.marks.authentic);
        assert_eq!(opened, plain);
    }
});

/// No extension header, which security headers may stand behind.
fn is_short(next_header: u8) -> bool {
    !matches!(next_header, 0 | 43 | 44 | 60 | 135 | 139 | 140)
}
