//! Any datagrams at the two ends of an IKE SA, and messages of any payloads, and damaged copies of those that the two have
//! sent: none makes anything panic, and none ends it.

#![no_main]

use std::time::{Duration, Instant};

use ike::Endpoint;
use ike::config::{ChildConfig, Config, Mode, PeerConfig, PeerIndex};
use ike::crypto::secret::Secret;
use ike::event::{Event, Path};
use ike::message::body::Identity;
use ike::message::builder::Builder;
use ike::message::traffic_selector::{self, TrafficSelector};
use ike::message::{Header, Message, body, configuration, proposal};
use ike::numbers::{ExchangeType, IkeSpi, MessageId, PayloadType};
use ike::random::Random;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

struct Counter(u8);

impl Random for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(5).wrapping_add(1);
            *byte = self.0;
        }
    }
}

fn endpoint(local: &str, remote: &str, seed: u8) -> Endpoint<Counter> {
    let name = |name: &str| Identity::Fqdn(name.to_owned());
    let mut peer = PeerConfig::new(name(local), Some(name(remote)), Secret::new(b"key".to_vec()));
    let any = || vec![TrafficSelector::ANY_IPV6];
    peer.children.push(ChildConfig::new(Mode::Tunnel, any(), any()));
    Endpoint::new(Config::new(vec![peer]), Counter(seed))
}

/// What somebody on the path sends.
#[derive(Arbitrary, Debug)]
enum Forged {
    Bytes(Vec<u8>),
    /// A message that is well-formed as far as its payloads are.
    Payloads {
        spis: [u64; 2],
        exchange: u8,
        from_initiator: bool,
        is_response: bool,
        message_id: u8,
        payloads: Vec<(u8, Vec<u8>)>,
    },
    /// One of those that were sent, with these bytes in place of its own, and whatever length it then has.
    Damaged {
        which: u8,
        at: u16,
        bytes: Vec<u8>,
        cut: bool,
    },
}

impl Forged {
    fn datagram(&self, sent: &[Vec<u8>]) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Payloads { spis, exchange, from_initiator, is_response, message_id, payloads } => {
                let known = |position: usize| {
                    let header = sent.last().and_then(|sent| Header::of_any_version(sent))?;
                    Some([header.initiator_spi, header.responder_spi][position])
                };
                // A number that is small stands for the SPI that there is.
                let spi = |position: usize| match spis[position] {
                    1..=16 => known(position).unwrap_or(IkeSpi::ZERO),
                    other => IkeSpi(other),
                };
                let mut chain = Builder::new();
                for (kind, body) in payloads {
                    chain.raw(PayloadType(*kind), |to| to.extend(body));
                }
                chain.finish(&Header {
                    initiator_spi: spi(0),
                    responder_spi: spi(1),
                    exchange: ExchangeType(*exchange),
                    from_initiator: *from_initiator,
                    is_response: *is_response,
                    message_id: MessageId(u32::from(*message_id)),
                })
            }
            Self::Damaged { which, at, bytes, cut } => {
                let Some(genuine) = sent.get(usize::from(*which) % sent.len().max(1)) else {
                    return Vec::new();
                };
                let at = usize::from(*at) % genuine.len();
                let end = if *cut { genuine.len() } else { genuine.len().min(at + bytes.len()) };
                let mut damaged = [&genuine[..at], bytes, &genuine[end..]].concat();
                let length = damaged.len() as u32;
                if let Some(field) = damaged.get_mut(24..28).filter(|_| at >= 28) {
                    field.copy_from_slice(&length.to_be_bytes());
                }
                damaged
            }
        }
    }
}

fuzz_target!(|forged: Vec<(bool, Forged)>| {
    let (mut a, mut b) = (endpoint("a", "b", 1), endpoint("b", "a", 2));
    let path =
        Path { local: "[2001:db8::a]:500".parse().unwrap(), remote: "[2001:db8::b]:500".parse().unwrap() };
    let back = Path { local: path.remote, remote: path.local };
    let mut now = Instant::now();
    let mut sent = Vec::new();
    let _ = a.initiate(now, PeerIndex(0), path);
    for round in 0..4 {
        while let Some(request) = a.poll_transmit() {
            b.receive(now, back, &request.payload);
            sent.push(request.payload);
        }
        for (_, early) in forged.iter().filter(|(early, _)| *early && round == 0) {
            let datagram = early.datagram(&sent);
            a.receive(now, path, &datagram);
            b.receive(now, back, &datagram);
        }
        while let Some(answer) = b.poll_transmit() {
            a.receive(now, path, &answer.payload);
            sent.push(answer.payload);
        }
    }
    for (_, late) in &forged {
        let datagram = late.datagram(&sent);
        a.receive(now, path, &datagram);
        b.receive(now, back, &datagram);
        now += Duration::from_millis(1);
        if let Ok(message) = Message::parse(&datagram) {
            for payload in message.payloads() {
                let _ = proposal::parse(payload.body);
                let _ = traffic_selector::parse(payload.body);
                let _ = configuration::parse(payload.body);
                let _ = body::Identity::parse(payload.body);
                let _ = body::Delete::parse(payload.body).map(|delete| delete.spis().count());
            }
        }
    }
    for end in [&mut a, &mut b] {
        while let Some(event) = end.poll_event() {
            assert!(!matches!(event, Event::IkeDown { .. } | Event::ChildDown { .. }));
        }
    }
});
