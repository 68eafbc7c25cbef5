//! What the two ends of a session tell each other in the handshake's payloads: type-length-value items
//! (docs/protocol.md, "Offers").

use std::net::Ipv6Addr;
use std::time::Duration;

use ipnet::Ipv6Net;

use crate::config::{Daily, LANES, Padding, ROTATION, Rate, Shape};

/// The ciphers that seal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cipher {
    /// AES-256-GCM, where both ends have AES instructions.
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305 = 2,
}

impl Cipher {
    /// The name that the status shows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cipher::Aes256Gcm => "AES-256-GCM",
            Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }
}

/// One end's side of a handshake. Unknown items are ignored, missing ones leave the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Answer: the sender's CLOCK_REALTIME in milliseconds.
    pub(crate) unix_ms: Option<u64>,
    /// First message: the sender has AES instructions. Answer: AES-256-GCM is chosen.
    pub(crate) aes: bool,
    pub(crate) rotation: Duration,
    pub(crate) lanes: Option<u8>,
    pub(crate) padding: Padding,
    /// Answer: the prefix that the sender hops in.
    pub(crate) hop_prefix: Option<Ipv6Net>,
    /// The largest outer packet that the sender's link takes, in bytes.
    pub(crate) receive_mtu: u16,
    /// The one inner address behind the *receiver*, where the sender knows but one.
    pub(crate) stream: Option<Ipv6Addr>,
    /// How many contexts the sender keeps for the receiver.
    pub(crate) contexts: u16,
    /// Answer: the prefix that the first message came from.
    pub(crate) observed: Option<Ipv6Net>,
    /// Rekey: from when on the new keys hold, on the session clock in milliseconds.
    pub(crate) switch: Option<i64>,
    /// The sender replaces addresses, if the receiver does.
    pub(crate) rewrite: bool,
    /// The sender masks the packets of another tunnel, which has this UDP port at its end, if the receiver does.
    pub(crate) mask: Option<u16>,
    pub(crate) shape: Shape,
    /// Of a node that takes turns with another of the same key: its turn.
    pub(crate) turn: Option<u64>,
}

/// A payload that is not one: an item is cut short or has a value out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

mod item {
    pub(super) const UNIX_MS: u8 = 1;
    pub(super) const CIPHERS: u8 = 2;
    pub(super) const ROTATION: u8 = 3;
    pub(super) const LANES: u8 = 4;
    pub(super) const PADDING: u8 = 5;
    pub(super) const HOP_PREFIX: u8 = 6;
    pub(super) const RECEIVE_MTU: u8 = 7;
    pub(super) const STREAM: u8 = 8;
    pub(super) const CONTEXTS: u8 = 9;
    pub(super) const OBSERVED: u8 = 10;
    pub(super) const SWITCH: u8 = 11;
    pub(super) const REWRITE: u8 = 12;
    pub(super) const SHAPE: u8 = 13;
    pub(super) const TURN: u8 = 14;
    pub(super) const MASK: u8 = 15;
}

/// What the first byte of a shape says.
mod shape_kind {
    pub(super) const NONE: u8 = 0;
    pub(super) const ADAPTIVE: u8 = 1;
    pub(super) const CONSTANT: u8 = 2;
}

impl Offer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let mut put = |kind: u8, value: &[u8]| {
            out.push(kind);
            out.extend_from_slice(&(value.len() as u16).to_be_bytes());
            out.extend_from_slice(value);
        };
        let prefix = |p: Ipv6Net| [p.network().octets().as_slice(), &[p.prefix_len()]].concat();
        if let Some(unix_ms) = self.unix_ms {
            put(item::UNIX_MS, &unix_ms.to_be_bytes());
        }
        let ciphers: &[u8] = if self.aes {
            &[Cipher::Aes256Gcm as u8, Cipher::ChaCha20Poly1305 as u8]
        } else {
            &[Cipher::ChaCha20Poly1305 as u8]
        };
        put(item::CIPHERS, ciphers);
        put(item::ROTATION, &(self.rotation.as_millis() as u32).to_be_bytes());
        if let Some(lanes) = self.lanes {
            put(item::LANES, &[lanes]);
        }
        put(item::PADDING, &[self.padding as u8]);
        if let Some(hop_prefix) = self.hop_prefix {
            put(item::HOP_PREFIX, &prefix(hop_prefix));
        }
        put(item::RECEIVE_MTU, &self.receive_mtu.to_be_bytes());
        if let Some(stream) = self.stream {
            put(item::STREAM, &stream.octets());
        }
        put(item::CONTEXTS, &self.contexts.to_be_bytes());
        if let Some(observed) = self.observed {
            put(item::OBSERVED, &prefix(observed));
        }
        if let Some(switch) = self.switch {
            put(item::SWITCH, &switch.to_be_bytes());
        }
        if self.rewrite {
            put(item::REWRITE, &[]);
        }
        match self.shape {
            Shape::None => {}
            Shape::Adaptive(_) => put(item::SHAPE, &[shape_kind::ADAPTIVE, 0, 0, 0, 0]),
            Shape::Constant(rate) => {
                put(item::SHAPE, &[&[shape_kind::CONSTANT], rate.bytes().to_be_bytes().as_slice()].concat());
            }
        }
        if let Some(turn) = self.turn {
            put(item::TURN, &turn.to_be_bytes());
        }
        if let Some(port) = self.mask {
            put(item::MASK, &port.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Offer, Malformed> {
        let mut offer = Offer {
            unix_ms: None,
            aes: false,
            rotation: *ROTATION.start(),
            lanes: None,
            padding: Padding::None,
            hop_prefix: None,
            receive_mtu: 1280,
            stream: None,
            contexts: 0,
            observed: None,
            switch: None,
            rewrite: false,
            mask: None,
            shape: Shape::None,
            turn: None,
        };
        while let Some((head, rest)) = bytes.split_first_chunk::<3>() {
            let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
            let (value, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
            bytes = rest;
            match head[0] {
                item::UNIX_MS => offer.unix_ms = Some(u64::from_be_bytes(fixed(value)?)),
                item::CIPHERS => offer.aes = value.contains(&(Cipher::Aes256Gcm as u8)),
                item::ROTATION => {
                    offer.rotation = Duration::from_millis(u32::from_be_bytes(fixed(value)?).into());
                    if !ROTATION.contains(&offer.rotation) {
                        return Err(Malformed);
                    }
                }
                item::LANES => {
                    let [lanes] = fixed(value)?;
                    if !LANES.contains(&lanes) {
                        return Err(Malformed);
                    }
                    offer.lanes = Some(lanes);
                }
                item::PADDING => {
                    offer.padding = match fixed(value)? {
                        [0] => Padding::None,
                        [1] => Padding::Buckets,
                        [2] => Padding::Full,
                        _ => return Err(Malformed),
                    }
                }
                item::HOP_PREFIX => offer.hop_prefix = Some(prefix(value)?),
                item::RECEIVE_MTU => offer.receive_mtu = u16::from_be_bytes(fixed(value)?).max(1280),
                item::STREAM => offer.stream = Some(Ipv6Addr::from(fixed::<16>(value)?)),
                item::CONTEXTS => offer.contexts = u16::from_be_bytes(fixed(value)?),
                item::OBSERVED => offer.observed = Some(prefix(value)?),
                item::SWITCH => offer.switch = Some(i64::from_be_bytes(fixed(value)?)),
                item::REWRITE => offer.rewrite = fixed(value).map(|[]: [u8; 0]| true)?,
                item::SHAPE => offer.shape = shape(value)?,
                item::TURN => offer.turn = Some(u64::from_be_bytes(fixed(value)?)),
                item::MASK => {
                    offer.mask = Some(u16::from_be_bytes(fixed(value)?));
                    if offer.mask == Some(0) {
                        return Err(Malformed);
                    }
                }
                _ => {}
            }
        }
        if bytes.is_empty() { Ok(offer) } else { Err(Malformed) }
    }
}

fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed)
}

fn shape(value: &[u8]) -> Result<Shape, Malformed> {
    let [kind, rate @ ..]: [u8; 5] = fixed(value)?;
    let rate = || Rate::from_bytes(u32::from_be_bytes(rate)).ok_or(Malformed);
    match kind {
        shape_kind::NONE => Ok(Shape::None),
        // The sender's budget is nobody else's business.
        shape_kind::ADAPTIVE => Ok(Shape::Adaptive(Daily::default())),
        shape_kind::CONSTANT => Ok(Shape::Constant(rate()?)),
        _ => Err(Malformed),
    }
}

fn prefix(value: &[u8]) -> Result<Ipv6Net, Malformed> {
    let bytes: [u8; 17] = fixed(value)?;
    let (address, plen) = bytes.split_first_chunk::<16>().ok_or(Malformed)?;
    if !crate::config::HOP_PREFIX_LENGTH.contains(&plen[0]) {
        return Err(Malformed);
    }
    Ok(Ipv6Net::new(Ipv6Addr::from(*address), plen[0]).map_err(|_| Malformed)?.trunc())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// With all items.
    pub(crate) fn offer() -> Offer {
        Offer {
            unix_ms: Some(1_700_000_000_000),
            aes: true,
            rotation: Duration::from_secs(10),
            lanes: Some(4),
            padding: Padding::Buckets,
            hop_prefix: Some("2001:db8:a1::/64".parse().unwrap()),
            receive_mtu: 1500,
            stream: Some("2001:db8::1".parse().unwrap()),
            contexts: 1024,
            observed: Some("2001:db8:b1::/48".parse().unwrap()),
            switch: Some(90_000),
            rewrite: true,
            mask: Some(51_820),
            shape: Shape::Constant(Rate::LEAST),
            turn: Some(7),
        }
    }

    #[test]
    fn decodes_what_it_encoded_and_ignores_unknown_items() {
        let mut bytes = offer().encode();
        bytes.extend_from_slice(&[200, 0, 2, 1, 2]);
        assert_eq!(Offer::decode(&bytes), Ok(offer()));
        assert_eq!(Offer::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        assert_eq!(Offer::decode(&[4, 0, 1, 17]), Err(Malformed), "17 lanes");
        assert_eq!(Offer::decode(&[3, 0, 4, 0, 0, 0, 0]), Err(Malformed), "no interval");
        assert_eq!(Offer::decode(&[13, 0, 5, 2, 0, 0, 0, 99]), Err(Malformed), "hardly a rate");
        assert_eq!(Offer::decode(&[15, 0, 2, 0, 0]), Err(Malformed), "no port");
        assert_eq!(Offer::decode(&[13, 0, 5, 9, 0, 1, 0, 0]), Err(Malformed), "no kind of shape");
    }

    proptest! {
        #[test]
        fn arbitrary_payloads_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Offer::decode(&bytes);
        }
    }
}
