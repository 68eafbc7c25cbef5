//! The test vectors beside docs/protocol.md (docs/protocol-vectors.json), checked against this implementation.
//!
//! `UPDATE_VECTORS=1 cargo test -p sidestep-mt6d vectors` writes the file anew. A change of a value that stands there is a change
//! of the protocol.

mod datagrams;
mod live;
mod masks;

use std::time::Duration;

use hkdf::Hkdf;
use ipnet::Ipv6Net;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use sha2::Sha256;
use snow::Builder;
use x25519_dalek::{PublicKey as X25519Public, StaticSecret};

use crate::births::{self, Births, Life};
use crate::config::{Daily, Padding, Rate, Shape};
use crate::drops::DropReason;
use crate::endpoint::{self, Place};
use crate::envelope::{self, Claim, Kind};
use crate::handshake::{self, Occasion, Parties, SessionSecret};
use crate::id::{Epoch, LaneId};
use crate::kdf::expand;
use crate::keys::{PairKeys, PresharedKey, PrivateKey, PublicKey, Role};
use crate::offer::Offer;
use crate::record::Record;
use crate::rendezvous::{self, Rendezvous};
use crate::schedule::Schedule;
use crate::tier::{Tier, TierEpoch};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol-vectors.json");
const DOCUMENT: &str = include_str!("../../../docs/protocol.md");

#[test]
fn the_published_vectors_are_what_the_implementation_does() {
    let vectors = json!({
        "about": "Test vectors of docs/protocol.md, described there. Bytes are in hexadecimal, times in milliseconds.",
        "pair": pairs(),
        "record": records(),
        "endpoint": endpoints(),
        "rewrite": rewrites(),
        "epoch": epochs(),
        "current": currents(),
        "wait": waits(),
        "life": lives(),
        "rendezvous": meetings(),
        "offer": offers(),
        "handshake": handshakes(),
        "rekey": rekeys(),
        "session": sessions(),
        "path": paths(),
        "control": datagrams::controls(),
        "inner": datagrams::inners(),
        "data": datagrams::sealed(),
        "mask": masks::masks(),
    });
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&vectors).unwrap();
        std::fs::write(FILE, text + "\n").unwrap();
    }
    let published: Value = serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap();
    for (section, cases) in vectors.as_object().unwrap() {
        assert_eq!(&published[section], cases, "section {section}");
    }
    assert_eq!(published.as_object().unwrap().len(), vectors.as_object().unwrap().len());
}

/// `reference/vectors.py` computes all of it anew from the document alone, in another language.
#[test]
fn an_independent_implementation_agrees() {
    run("vectors.py");
}

/// So does what the document says of births and deaths, which it draws as the document says.
#[test]
fn what_births_and_deaths_tell_is_what_the_document_says() {
    run("lanes.py");
}

#[test]
fn both_documents_explain_every_drop_reason() {
    for document in [DOCUMENT, include_str!("../../../docs/operations.md")] {
        for reason in DropReason::ALL {
            assert!(document.contains(&format!("| `{}` |", reason.name())), "{}", reason.name());
        }
    }
}

/// Runs a program of `reference`, which has to agree.
fn run(program: &str) {
    let program = format!("{}/../../reference/{program}", env!("CARGO_MANIFEST_DIR"));
    let run = match std::process::Command::new("python3").arg("-B").arg(program).output() {
        Ok(run) => run,
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs python3: {error}");
            eprintln!("skipped: needs python3: {error}");
            return;
        }
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&[run.stdout, run.stderr].concat()));
}

/// What is put in, and what comes out.
fn case(given: Value, then: Value) -> Value {
    json!({ "given": given, "then": then })
}

/// 32 recognisable bytes.
fn counting(from: u8) -> [u8; 32] {
    std::array::from_fn(|i| from + i as u8)
}

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

/// The pair of nodes of all vectors; `b` has the smaller public key.
struct Pair {
    a: PrivateKey,
    b: PrivateKey,
    psk: Option<PresharedKey>,
}

impl Pair {
    fn new(psk: bool) -> Self {
        Pair {
            a: PrivateKey::from_bytes(counting(0x00)),
            b: PrivateKey::from_bytes(counting(0x20)),
            psk: psk.then(|| PresharedKey::from_bytes(counting(0x40))),
        }
    }

    fn given(&self) -> Value {
        json!({
            "private_a": hex::encode(self.a.as_bytes()),
            "private_b": hex::encode(self.b.as_bytes()),
            "psk": self.psk.as_ref().map(|p| hex::encode(p.as_bytes())),
        })
    }

    /// What a node, and what its peer derives.
    fn keys(&self) -> (PairKeys, PairKeys) {
        let derive =
            |own: &PrivateKey, peer: &PrivateKey| PairKeys::derive(own, &peer.public(), self.psk.as_ref());
        (derive(&self.a, &self.b).unwrap(), derive(&self.b, &self.a).unwrap())
    }
}

fn pairs() -> Vec<Value> {
    [true, false]
        .map(|psk| {
            let pair = Pair::new(psk);
            let (keys, at_b) = pair.keys();
            assert_eq!(keys.handshake, at_b.handshake);
            let dh = StaticSecret::from(*pair.a.as_bytes())
                .diffie_hellman(&X25519Public::from(*pair.b.public().as_bytes()));
            let psk = pair.psk.as_ref().map_or([0; 32], |p| *p.as_bytes());
            let (ps, _) = Hkdf::<Sha256>::extract(Some(b"sidestep/3 pair"), &[dh.to_bytes(), psk].concat());
            let tiers = Tier::ALL.map(|tier| {
                json!({
                    "tier": tier.number(),
                    "address_key_l": hex::encode(keys.rendezvous(tier, Role::L)),
                    "address_key_h": hex::encode(keys.rendezvous(tier, Role::H)),
                    "schedule_key": hex::encode(keys.rendezvous_schedule(tier)),
                })
            });
            let then = json!({
                "public_a": hex::encode(pair.a.public().as_bytes()),
                "public_b": hex::encode(pair.b.public().as_bytes()),
                "role_a": format!("{:?}", keys.role),
                "dh": hex::encode(dh.to_bytes()),
                "ps": hex::encode(ps),
                "hsk": hex::encode(*keys.handshake),
                "rendezvous": tiers,
            });
            case(pair.given(), then)
        })
        .into()
}

fn records() -> Vec<Value> {
    [true, false]
        .map(|psk| {
            let pair = Pair::new(psk);
            let (keys, _) = pair.keys();
            let nonce: [u8; 24] = counting(0xa0)[..24].try_into().unwrap();
            let (place, unix_ms) = ("2001:db8:a1::/64", 1_800_000_000_000);
            let mut given = pair.given();
            given["nonce"] = json!(hex::encode(nonce));
            given["place"] = json!(place);
            given["unix_ms"] = json!(unix_ms);
            let then = json!({
                "key": hex::encode(keys.record(keys.role)),
                "record": Record { place: net(place), unix_ms }.seal(&keys, &nonce),
            });
            case(given, then)
        })
        .into()
}

fn endpoints() -> Vec<Value> {
    let key = counting(0x60);
    [
        ("2001:db8::/32", 1),
        ("2001:db8:a1::/48", 2),
        ("2001:db8:a1:b2::/64", 3),
        ("2001:db8:a1:b2::/64", 4_294_967_297),
        ("2001:db8:a1:b2:c3::/80", 5),
        ("2001:db8:a1:b2:c3:d4:e5::/112", 6),
        // Half of this prefix's last 256 addresses are reserved (RFC 2526): some numbers take a second try.
        ("2001:db8:a1:b2:fdff:ffff:ffff::/112", NUMBER_OF_A_RETRY),
    ]
    .map(|(prefix, number)| {
        let [of_lane, of_epoch] = [Place::Lane(LaneId(number)), Place::Epoch(Epoch(number))]
            .map(|place| endpoint::derive(&key, net(prefix), place));
        assert_eq!(of_lane, of_epoch);
        let given = json!({ "address_key": hex::encode(key), "prefix": prefix, "number": number });
        case(given, place(of_lane))
    })
    .into()
}

/// A number whose first host part is reserved in the last prefix of [`endpoints`].
const NUMBER_OF_A_RETRY: u64 = 361;

#[test]
fn one_endpoint_takes_a_second_try() {
    let first = crate::kdf::prf(&counting(0x60), &[b"endpoint", &NUMBER_OF_A_RETRY.to_be_bytes(), &[0]]);
    assert!(u16::from_be_bytes([first[14], first[15]]) >= 0xff80);
}

/// An epoch whose first host part is reserved in the last prefix of [`rewrites`].
const EPOCH_OF_A_RETRIED_REWRITE: u64 = 158;

fn rewrites() -> Vec<Value> {
    let key = counting(0x60);
    let hosts = ["2001:db8:a::1", "2001:db8:b::2"].map(|text| text.parse().unwrap());
    [
        ("2001:db8::/32", 1),
        ("2001:db8:a1:b2::/64", 2),
        ("2001:db8:a1:b2::/64", 4_294_967_297),
        ("2001:db8:a1:b2:c3:d4::/96", 3),
        // One in 256 of this prefix's addresses is reserved (RFC 5453): some epochs take a second try.
        ("2001:db8:a1:b2:200:5eff::/96", EPOCH_OF_A_RETRIED_REWRITE),
    ]
    .map(|(prefix, epoch)| {
        let at = endpoint::derive_replaced(&key, net(prefix), Epoch(epoch), hosts);
        let given = json!({
            "address_key": hex::encode(key), "prefix": prefix, "epoch": epoch, "host_l": hosts[0], "host_h": hosts[1],
        });
        case(given, json!({ "address": at }))
    })
    .into()
}

#[test]
fn one_replaced_address_takes_a_second_try() {
    let hosts = ["2001:db8:a::1", "2001:db8:b::2"].map(|text| text.parse::<std::net::Ipv6Addr>().unwrap());
    let [low, high] = hosts.map(|host| host.octets());
    let epoch = EPOCH_OF_A_RETRIED_REWRITE.to_be_bytes();
    let first = crate::kdf::prf(&counting(0x60), &[b"rewrite", &epoch, &low, &high, &[0]]);
    assert_eq!(first[12], 0xfe);
}

fn place(at: std::net::SocketAddrV6) -> Value {
    json!({ "address": at.ip().to_string(), "port": at.port() })
}

fn epochs() -> Vec<Value> {
    let key = counting(0x80);
    let mut cases = Vec::new();
    for interval in [1_000, 10_000, 3_599_999] {
        let schedule = Schedule::new(key, interval);
        for epoch in [1, 2, 1_000_000] {
            let given = json!({ "schedule_key": hex::encode(key), "interval": interval, "epoch": epoch });
            let epoch = Epoch(epoch);
            let then = json!({ "jitter": schedule.jitter(epoch), "start": schedule.start(epoch) });
            cases.push(case(given, then));
        }
    }
    cases
}

fn currents() -> Vec<Value> {
    let key = counting(0x80);
    let interval = 10_000;
    let schedule = Schedule::new(key, interval);
    let start = schedule.start(Epoch(7));
    [-1, 0, start - 1, start, start + 5_000, 1_000_000_000]
        .map(|now| {
            let given = json!({ "schedule_key": hex::encode(key), "interval": interval, "now": now });
            case(given, json!({ "epoch": schedule.current(now).0 }))
        })
        .into()
}

fn waits() -> Vec<Value> {
    [0, 1, 2, 0x1234_5678_9abc_def0, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX]
        .map(|x: u64| case(json!({ "x": format!("{x:016x}") }), json!({ "wait": births::exponential(x) })))
        .into()
}

fn lives() -> Vec<Value> {
    let key = counting(0x80);
    [(1_000, 16), (10_000, 1), (10_000, 3), (3_599_999, 2)]
        .map(|(interval, lanes)| {
            let given = json!({ "schedule_key": hex::encode(key), "interval": interval, "lanes": lanes });
            let (births, deaths): (Vec<i64>, Vec<i64>) =
                first_lives(key, interval, lanes, 40).map(|life| (birth(&life), life.death)).unzip();
            case(given, json!({ "births": births, "deaths": deaths }))
        })
        .into()
}

fn first_lives(key: [u8; 32], interval: u64, lanes: u8, count: usize) -> impl Iterator<Item = Life> {
    let mut births = Births::new(key, interval, lanes);
    std::iter::repeat_with(move || births.draw()).take(count)
}

/// That of the first lane is 0 in the document, which says besides that it has always been alive.
fn birth(life: &Life) -> i64 {
    if life.lane == LaneId::FIRST { 0 } else { life.birth }
}

const UNIX_MS: u64 = 1_800_000_000_000;

fn meetings() -> Vec<Value> {
    let mut cases = Vec::new();
    let prefixes =
        ["2001:db8::/32", "2001:db8:a1::/48", "2001:db8:a1:b2::/64", "2001:db8:a1:b2:c3:d4:e5::/112"];
    for tier in Tier::ALL {
        for (unix_ms, prefix_l) in (UNIX_MS..).step_by(12_345_678).zip(prefixes) {
            let pair = Pair::new(true);
            let (keys, _) = pair.keys();
            let rendezvous = Rendezvous::new(&keys);
            let (epoch, window) = (rendezvous.current(tier, unix_ms), rendezvous.window(tier, unix_ms));
            let prefix_h = "2001:db8:f1::/64";
            let at = |role, prefix| place(rendezvous::endpoint(&keys, role, net(prefix), tier, epoch));
            let mut given = pair.given();
            given["tier"] = json!(tier.number());
            given["unix_ms"] = json!(unix_ms);
            given["prefix_l"] = json!(prefix_l);
            given["prefix_h"] = json!(prefix_h);
            let then = json!({
                "epoch": epoch.0,
                "start": rendezvous.start(tier, epoch),
                "window": [window.start().0, window.end().0],
                "endpoint_l": at(Role::L, prefix_l),
                "endpoint_h": at(Role::H, prefix_h),
            });
            cases.push(case(given, then));
        }
    }
    cases
}

fn smallest_offer() -> Offer {
    Offer {
        unix_ms: None,
        aes: false,
        rotation: Duration::from_secs(1),
        lanes: None,
        padding: Padding::None,
        hop_prefix: None,
        receive_mtu: 1500,
        stream: None,
        contexts: 1024,
        observed: None,
        switch: None,
        rewrite: false,
        mask: None,
        shape: Shape::None,
        turn: None,
    }
}

fn first_offer() -> Offer {
    Offer {
        aes: true,
        rotation: Duration::from_secs(10),
        lanes: Some(4),
        padding: Padding::Buckets,
        stream: Some("2001:db8:b::1".parse().unwrap()),
        ..smallest_offer()
    }
}

fn answering_offer() -> Offer {
    Offer {
        unix_ms: Some(UNIX_MS + 1_234),
        lanes: Some(2),
        hop_prefix: Some(net("2001:db8:f1::/48")),
        receive_mtu: 1492,
        stream: Some("2001:db8:a::1".parse().unwrap()),
        observed: Some(net("2001:db8:a1::/64")),
        ..first_offer()
    }
}

fn offers() -> Vec<Value> {
    let switch = Offer { switch: Some(77_000), ..first_offer() };
    let rewrite = Offer { rewrite: true, ..first_offer() };
    let shape = Offer { shape: Shape::Constant(Rate::LEAST), ..first_offer() };
    let adaptive = Offer { shape: Shape::Adaptive(Daily::default()), ..first_offer() };
    let turn = Offer { turn: Some(1_800_000_001), ..answering_offer() };
    let mask = Offer { mask: Some(51_820), ..first_offer() };
    [smallest_offer(), first_offer(), answering_offer(), switch, rewrite, shape, adaptive, turn, mask]
        .map(|offer| {
            assert_eq!(Offer::decode(&offer.encode()), Ok(offer.clone()));
            case(stated(&offer), json!({ "payload": hex::encode(offer.encode()) }))
        })
        .into()
}

fn stated(offer: &Offer) -> Value {
    json!({
        "unix_ms": offer.unix_ms,
        "ciphers": if offer.aes { vec![1, 2] } else { vec![2] },
        "rotation": offer.rotation.as_millis() as u64,
        "lanes": offer.lanes,
        "padding": offer.padding as u8,
        "hop_prefix": offer.hop_prefix,
        "receive_mtu": offer.receive_mtu,
        "stream": offer.stream,
        "contexts": offer.contexts,
        "observed": offer.observed,
        "switch": offer.switch,
        "rewrite": offer.rewrite.then_some(true),
        "shape": match offer.shape {
            Shape::None => Value::Null,
            Shape::Adaptive(_) => json!({ "kind": 1, "rate": 0 }),
            Shape::Constant(rate) => json!({ "kind": 2, "rate": rate.bytes() }),
        },
        "turn": offer.turn,
        "mask": offer.mask,
    })
}

/// A generator, and the ephemeral key that a handshake takes from it.
fn ephemeral(seed: u8) -> (ChaCha20Rng, [u8; 32]) {
    let mut key = [0; 32];
    ChaCha20Rng::from_seed([seed; 32]).fill_bytes(&mut key);
    (ChaCha20Rng::from_seed([seed; 32]), key)
}

/// What the first messages of the vectors claim.
fn claim() -> Claim {
    Claim {
        hop_prefix: net("2001:db8:a1::/64"),
        unix_ms: UNIX_MS,
        heard: [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7],
    }
}

/// A handshake that `L` or `H` began: its vector, and the secret that it leaves.
fn handshake(initiator: Role) -> (Value, SessionSecret) {
    let pair = Pair::new(initiator == Role::L);
    let (at_a, at_b) = pair.keys();
    let (publics_a, publics_b) = (pair.a.public(), pair.b.public());
    let parties = |role: Role| {
        let (own, peer, keys): (&PrivateKey, &PublicKey, &PairKeys) =
            if role == at_a.role { (&pair.a, &publics_b, &at_a) } else { (&pair.b, &publics_a, &at_b) };
        Parties { own, peer, psk: pair.psk.as_ref(), pair: keys }
    };
    let at = TierEpoch { tier: Tier::Hours, epoch: Epoch(500_000) };
    let (first_nonce, answer_nonce): ([u8; 24], [u8; 24]) = ([0xa1; 24], [0xa2; 24]);
    let (first_size, answer_size) = (280, 243);
    let occasion = Occasion::Contact(claim());
    let (mut first_rng, first_ephemeral) = ephemeral(1);
    let (mut answer_rng, answer_ephemeral) = ephemeral(2);

    let (first, pending) =
        handshake::initiate(&parties(initiator), &occasion, &first_offer(), &mut first_rng);
    let (offer, answering) =
        handshake::receive(&parties(initiator.other()), &occasion, &first, &mut answer_rng).unwrap();
    assert_eq!(offer, first_offer());
    let (answer, secret) = answering.answer(&answering_offer());
    let (offer, _) = pending.finish(&answer).unwrap();
    assert_eq!(offer, answering_offer());

    let seal = |kind: Kind, nonce, message: &[u8], size| {
        let datagram = envelope::seal(&at_a.handshake, &kind, nonce, message, size);
        assert_eq!(envelope::open(&at_b.handshake, &kind, &datagram), Some(message.to_vec()));
        datagram
    };
    let claimed = [claim().to_bytes().as_slice(), &first].concat();
    let first_datagram =
        seal(Kind::First { receiver: initiator.other(), at }, &first_nonce, &claimed, first_size);
    let answer_datagram =
        seal(Kind::Answer { first: first.first_chunk().unwrap() }, &answer_nonce, &answer, answer_size);
    let ends = (&parties(initiator), &parties(initiator.other()));
    let prologue = [b"sidestep/3 contact", at_a.publics.as_slice(), &claim().to_bytes()].concat();
    let (k1, k2, hash) =
        split(ends, &prologue, &first_ephemeral, &answer_ephemeral, (&first_offer(), &answering_offer())).2;

    let mut given = pair.given();
    given["initiator"] = json!(format!("{initiator:?}"));
    given["tier"] = json!(at.tier.number());
    given["epoch"] = json!(at.epoch.0);
    given["first_prefix"] = json!(claim().hop_prefix);
    given["first_clock"] = json!(claim().unix_ms);
    given["first_heard"] = json!(hex::encode(claim().heard));
    given["first_ephemeral"] = json!(hex::encode(first_ephemeral));
    given["first_payload"] = json!(hex::encode(first_offer().encode()));
    given["first_nonce"] = json!(hex::encode(first_nonce));
    given["first_size"] = json!(first_size);
    given["answer_ephemeral"] = json!(hex::encode(answer_ephemeral));
    given["answer_payload"] = json!(hex::encode(answering_offer().encode()));
    given["answer_nonce"] = json!(hex::encode(answer_nonce));
    given["answer_size"] = json!(answer_size);
    let then = json!({
        "first_message": hex::encode(&first),
        "first_datagram": hex::encode(first_datagram),
        "answer_message": hex::encode(&answer),
        "answer_datagram": hex::encode(answer_datagram),
        "k1": hex::encode(k1),
        "k2": hex::encode(k2),
        "h": hex::encode(hash),
    });
    (case(given, then), secret)
}

/// New keys for a session, which `L` asked for: the messages, and what is split.
fn rekeys() -> Vec<Value> {
    let pair = Pair::new(true);
    let (at_a, at_b) = pair.keys();
    let (publics_a, publics_b) = (pair.a.public(), pair.b.public());
    let psk = pair.psk.as_ref();
    let a = Parties { own: &pair.a, peer: &publics_b, psk, pair: &at_a };
    let b = Parties { own: &pair.b, peer: &publics_a, psk, pair: &at_b };
    let (initiator, responder) = if at_a.role == Role::L { (a, b) } else { (b, a) };
    let first_offer = Offer { switch: Some(77_000), ..smallest_offer() };
    let (mut first_rng, first_ephemeral) = ephemeral(3);
    let (mut answer_rng, answer_ephemeral) = ephemeral(4);

    let (first, pending) = handshake::initiate(&initiator, &Occasion::Rekey, &first_offer, &mut first_rng);
    let (_, answering) = handshake::receive(&responder, &Occasion::Rekey, &first, &mut answer_rng).unwrap();
    let (answer, _) = answering.answer(&smallest_offer());
    pending.finish(&answer).unwrap();
    let contact = Occasion::Contact(claim());
    assert!(
        handshake::receive(&responder, &contact, &first, &mut answer_rng).is_err(),
        "good for nothing else"
    );

    let prologue = [b"sidestep/3 rekey".as_slice(), &at_a.publics].concat();
    let offers = (&first_offer, &smallest_offer());
    let (first_again, answer_again, (k1, k2, hash)) =
        split((&initiator, &responder), &prologue, &first_ephemeral, &answer_ephemeral, offers);
    assert_eq!((&first, &answer), (&first_again, &answer_again));
    let mut given = pair.given();
    given["initiator"] = json!("L");
    given["first_ephemeral"] = json!(hex::encode(first_ephemeral));
    given["first_payload"] = json!(hex::encode(first_offer.encode()));
    given["answer_ephemeral"] = json!(hex::encode(answer_ephemeral));
    given["answer_payload"] = json!(hex::encode(smallest_offer().encode()));
    let then = json!({
        "first_message": hex::encode(&first),
        "answer_message": hex::encode(&answer),
        "k1": hex::encode(k1),
        "k2": hex::encode(k2),
        "h": hex::encode(hash),
    });
    vec![case(given, then)]
}

/// The two keys and the hash that sessions are derived from.
type Split = ([u8; 32], [u8; 32], Vec<u8>);

/// The same handshake with nothing but `snow`: both messages, and what they come to.
fn split(
    (first, second): (&Parties, &Parties),
    prologue: &[u8],
    one: &[u8],
    two: &[u8],
    (offer, answer): (&Offer, &Offer),
) -> (Vec<u8>, Vec<u8>, Split) {
    fn builder<'a>(
        parties: &'a Parties,
        ephemeral: &'a [u8],
        prologue: &'a [u8],
        psk: &'a [u8; 32],
    ) -> Builder<'a> {
        Builder::new("Noise_KKpsk2_25519_ChaChaPoly_BLAKE2s".parse().unwrap())
            .prologue(prologue)
            .and_then(|b| b.local_private_key(parties.own.as_bytes()))
            .and_then(|b| b.remote_public_key(parties.peer.as_bytes()))
            .and_then(|b| b.psk(2, psk))
            .map(|b| b.fixed_ephemeral_key_for_testing_only(ephemeral))
            .unwrap()
    }
    let psk = first.psk.map_or([0; 32], |p| *p.as_bytes());
    let mut initiator = builder(first, one, prologue, &psk).build_initiator().unwrap();
    let mut responder = builder(second, two, prologue, &psk).build_responder().unwrap();
    let (mut buffer, mut payload) = ([0; 512], [0; 512]);
    let length = initiator.write_message(&offer.encode(), &mut buffer).unwrap();
    let first = buffer[..length].to_vec();
    responder.read_message(&first, &mut payload).unwrap();
    let length = responder.write_message(&answer.encode(), &mut buffer).unwrap();
    let second = buffer[..length].to_vec();
    initiator.read_message(&second, &mut payload).unwrap();
    let (k1, k2) = initiator.dangerously_get_raw_split();
    (first, second, (k1, k2, initiator.get_handshake_hash().to_vec()))
}

fn handshakes() -> Vec<Value> {
    [Role::L, Role::H].map(|initiator| handshake(initiator).0).into()
}

fn sessions() -> Vec<Value> {
    [Role::L, Role::H]
        .map(|initiator| {
            let (handshake, secret) = handshake(initiator);
            let part = |name: &str| handshake["then"][name].as_str().unwrap().to_owned();
            let ikm = hex::decode(part("k1") + &part("k2") + &part("h")).unwrap();
            let (ex, from_ex) = Hkdf::<Sha256>::extract(Some(b"sidestep/3 session"), &ikm);
            let (lh, hl) = (secret.lanes(Role::L), secret.lanes(Role::H));
            let lanes = [0, 1, 4_294_967_297].map(LaneId).map(|lane| {
                json!({
                    "lane": lane.0,
                    "data_lh": hex::encode(*lh.data(lane)),
                    "data_hl": hex::encode(*hl.data(lane)),
                    "header_lh": hex::encode(*lh.header(lane)),
                    "header_hl": hex::encode(*hl.header(lane)),
                    "mask_lh": hex::encode(*lh.mask(lane)),
                    "mask_hl": hex::encode(*hl.mask(lane)),
                })
            });
            let of_lanes = |direction: &[u8]| hex::encode(*expand(&from_ex, &[b"lanes", direction]));
            let given = json!({ "k1": part("k1"), "k2": part("k2"), "h": part("h") });
            let then = json!({
                "ex": hex::encode(ex),
                "lanes_lh": of_lanes(b"LH"),
                "lanes_hl": of_lanes(b"HL"),
                "address_key_l": hex::encode(*secret.address(Role::L)),
                "address_key_h": hex::encode(*secret.address(Role::H)),
                "schedule_key": hex::encode(*secret.schedule()),
                "lanes": lanes,
            });
            case(given, then)
        })
        .into()
}

/// Where the two ends of a session are, lane by lane.
fn paths() -> Vec<Value> {
    let (_, secret) = handshake(Role::L);
    let (prefix_l, prefix_h, interval, lanes) = ("2001:db8:a1::/64", "2001:db8:f1::/48", 10_000, 2);
    let steps: Vec<Value> = first_lives(*secret.schedule(), interval, lanes, 12)
        .map(|life| {
            let lane = Place::Lane(life.lane);
            let at = |role, prefix| place(endpoint::derive(&secret.address(role), net(prefix), lane));
            json!({
                "lane": life.lane.0,
                "birth": birth(&life),
                "death": life.death,
                "endpoint_l": at(Role::L, prefix_l),
                "endpoint_h": at(Role::H, prefix_h),
            })
        })
        .collect();
    let given = json!({
        "address_key_l": hex::encode(*secret.address(Role::L)),
        "address_key_h": hex::encode(*secret.address(Role::H)),
        "schedule_key": hex::encode(*secret.schedule()),
        "prefix_l": prefix_l,
        "prefix_h": prefix_h,
        "interval": interval,
        "lanes": lanes,
    });
    vec![case(given, json!({ "lanes": steps }))]
}
