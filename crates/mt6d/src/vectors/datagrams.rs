//! Vectors of what travels inside a session: control messages, inner forms, sealed datagrams.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use serde_json::{Value, json};

use super::{case, handshake};
use crate::control::{Control, Decoded};
use crate::id::LaneId;
use crate::keys::{PublicKey, Role};
use crate::offer::Cipher;
use crate::session::seal::{COUNTER, SealingKey, TAG};

/// An IPv6 packet between the two hosts of context 0.
pub(super) const ELIDED: &str = "60012345000e113f20010db8000a0000000000000000000120010db8000b0000000000000000000\
                                 19c400035000ed39e656c69646564";
/// An IPv6 packet of the pair that context 1 stands for.
pub(super) const CONTEXT: &str = "60012345000f113f20010db8000a0000000000000000000220010db8000b0000000000000000000\
                                  29c400035000f5c73636f6e74657874";
/// An IPv6 packet of a pair without a context.
pub(super) const FULL: &str = "60012345000f113f20010db8000a0000000000000000000320010db8000b000000000000000000039c4\
                               00035000f9c8c696e2066756c6c";
pub(super) const IPV4: &str = "45000020000140003f1127c80a0100010a0200019c400035000c8fd749507634";

/// The addresses of context 1, from `L` to `H`.
pub(super) fn context_pair() -> (Ipv6Addr, Ipv6Addr) {
    ("2001:db8:a::2".parse().unwrap(), "2001:db8:b::2".parse().unwrap())
}

pub(super) fn inners() -> Vec<Value> {
    [
        ("elided", None, ELIDED, 0),
        ("context", Some(1), CONTEXT, 0),
        ("full", None, FULL, 0),
        ("ipv4", None, IPV4, 0),
        ("elided", None, ELIDED, 60),
        ("ipv4", None, IPV4, 60),
    ]
    .map(|(form, context, packet, length)| {
        let given = json!({ "form": form, "context": context, "packet": packet, "length": length });
        case(given, json!({ "inner": hex::encode(inner(form, context, packet, length)) }))
    })
    .into()
}

/// An inner packet in a form, padded to `length`. That the implementation sends and takes it is tested in `live`.
pub(super) fn inner(form: &str, context: Option<u16>, packet: &str, length: usize) -> Vec<u8> {
    let packet = hex::decode(packet).unwrap();
    let without_addresses = || [&packet[..8], &packet[40..]].concat();
    let mut inner = match form {
        "elided" => without_addresses(),
        "context" => [&[0x20], context.unwrap().to_be_bytes().as_slice(), &without_addresses()].concat(),
        "full" => [&[0x10, 0, 0], packet.as_slice()].concat(),
        _ => packet,
    };
    inner.resize(inner.len().max(length), 0);
    inner
}

pub(super) fn control(message: &Control, id: u32, length: usize) -> Vec<u8> {
    let mut inner = vec![0; message.length().max(length)];
    message.encode(id, &mut inner);
    assert_eq!(Control::decode(&inner), Some(Decoded::Message(id, *message)));
    inner
}

pub(super) fn controls() -> Vec<Value> {
    let (source, destination) = context_pair();
    let case = |name: &str, id: u32, mut given: Value, length: usize, message: Control| {
        given["message"] = json!(name);
        given["id"] = json!(id);
        given["length"] = json!(length);
        case(given, json!({ "inner": hex::encode(control(&message, id, length)) }))
    };
    let noise: Vec<u8> = (0..20).collect();
    let bytes = hex::encode(&noise);
    let key = hex::encode([9; 32]);
    let place: Ipv6Net = "2001:db8:c1::/64".parse().unwrap();
    vec![
        case("padding", 0, json!({}), 40, Control::Padding),
        case("opener", 0, json!({}), 8, Control::Opener),
        case("confirm", 0, json!({ "clock": 1_000 }), 20, Control::Confirm { clock: 1_000 }),
        case("confirm", 7, json!({ "clock": -1 }), 0, Control::Confirm { clock: -1 }),
        case(
            "confirmed",
            7,
            json!({ "echo": 1_000, "clock": 1_020 }),
            0,
            Control::Confirmed { echo: 1_000, clock: 1_020 },
        ),
        case("rekey_first", 8, json!({ "noise": bytes }), 0, Control::RekeyFirst(&noise)),
        case("rekey_answer", 8, json!({ "noise": bytes }), 0, Control::RekeyAnswer(&noise)),
        case(
            "context",
            1,
            json!({ "context": 1, "retires": 0, "source": source, "destination": destination }),
            0,
            Control::Context { context: 1, retires: 0, source, destination },
        ),
        case("context_known", 1, json!({ "context": 1 }), 0, Control::ContextKnown { context: 1 }),
        case("mtu_probe", 10, json!({ "size": 1400 }), 100, Control::MtuProbe { size: 1400 }),
        case("mtu_probed", 10, json!({ "size": 1400 }), 0, Control::MtuProbed { size: 1400 }),
        case(
            "round_trip",
            11,
            json!({ "clock": 123_456, "overdue": 2_500, "keeps": true }),
            0,
            Control::RoundTrip { clock: 123_456, overdue: 2_500, keeps: true },
        ),
        case(
            "round_trip_answer",
            11,
            json!({ "echo": 123_456, "clock": 123_470 }),
            0,
            Control::RoundTripAnswer { echo: 123_456, clock: 123_470 },
        ),
        case("close", 0, json!({}), 0, Control::Close),
        case("half", 12, json!({ "part": 0, "bytes": bytes }), 0, Control::Half { part: 0, bytes: &noise }),
        case("half", 12, json!({ "part": 1, "bytes": bytes }), 0, Control::Half { part: 1, bytes: &noise }),
        case("meet", 0, json!({ "key": key }), 0, Control::Meet(PublicKey::from_bytes([9; 32]))),
        case(
            "met",
            0,
            json!({ "key": key, "place": place }),
            60,
            Control::Met(PublicKey::from_bytes([9; 32]), place),
        ),
        case(
            "wall_clock",
            0,
            json!({ "zero_unix_ms": 1_700_000_000_000u64 }),
            0,
            Control::WallClock { zero_unix_ms: 1_700_000_000_000 },
        ),
    ]
}

/// What `L` sends on the first lane of a session, in this order; and the inner packets in it.
pub(super) fn sent() -> Vec<(u32, Vec<u8>)> {
    let (source, destination) = context_pair();
    let announcement = Control::Context { context: 1, retires: 0, source, destination };
    let whole = inner("full", None, FULL, 0);
    let (first, second) = whole.split_at(whole.len().div_ceil(2));
    vec![
        (0, control(&Control::Confirm { clock: 1_000 }, 0, 20)),
        (1, inner("elided", None, ELIDED, 0)),
        (2, control(&announcement, 1, 0)),
        (3, inner("context", Some(1), CONTEXT, 0)),
        (4, inner("full", None, FULL, 0)),
        (5, inner("ipv4", None, IPV4, 0)),
        (6, inner("ipv4", None, IPV4, 60)),
        (256, control(&Control::Half { part: 0, bytes: first }, 12, 0)),
        (257, control(&Control::Half { part: 1, bytes: second }, 12, 0)),
        (70_000, inner("elided", None, ELIDED, 60)),
    ]
}

/// What the datagrams of [`sent`] deliver.
pub(super) const DELIVERED: [&str; 7] = [ELIDED, CONTEXT, FULL, IPV4, IPV4, FULL, ELIDED];

pub(super) const LANE: LaneId = LaneId::FIRST;

pub(super) fn sealed() -> Vec<Value> {
    [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305].into_iter().flat_map(sealed_with).collect()
}

pub(super) fn sealed_with(cipher: Cipher) -> Vec<Value> {
    let (_, secret) = handshake(Role::L);
    let keys = secret.lanes(Role::L);
    let (data, header) = (keys.data(LANE), keys.header(LANE));
    let key = SealingKey::new(cipher, &data, &header, None);
    let mut cases = Vec::new();
    for (counter, inner) in sent() {
        let mut datagram = Vec::new();
        while key.used() <= counter {
            datagram = [&[0; COUNTER], inner.as_slice(), &[0; TAG]].concat();
            assert!(key.seal(&mut datagram));
        }
        assert_eq!(key.counter_of(&datagram), Some(counter));
        let hidden = u32::from_be_bytes(datagram[..COUNTER].try_into().unwrap());
        let given = json!({
            "cipher": cipher.name(),
            "data_key": hex::encode(*data),
            "header_key": hex::encode(*header),
            "counter": counter,
            "inner": hex::encode(inner),
        });
        let then = json!({
            "mask": format!("{:08x}", hidden ^ counter),
            "datagram": hex::encode(datagram),
        });
        cases.push(case(given, then));
    }
    cases
}
