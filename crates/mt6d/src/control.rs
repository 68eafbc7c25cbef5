//! Control messages inside a session (docs/protocol.md, "Control").
//!
//! ```text
//! 0x00 ‖ type (1) ‖ length of the body (2) ‖ id (4) ‖ body ‖ padding
//! ```
//! They are idempotent; any may be lost, repeated or reordered. Unknown types are ignored.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::keys::PublicKey;

/// Length of a control message's header.
pub(crate) const HEADER: usize = 8;

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    /// Nothing but bytes: shape, keepalive.
    Padding,
    /// Opens the path's stateful firewalls for a new endpoint.
    Opener,
    /// "I have the new keys": of a session, or of a rekey with this id. With the sender's session clock (ms).
    Confirm { clock: i64 },
    /// Answers a confirmation: its clock, and the answerer's.
    Confirmed { echo: i64, clock: i64 },
    /// A Noise first message for new keys.
    RekeyFirst(&'a [u8]),
    /// The Noise answer.
    RekeyAnswer(&'a [u8]),
    /// From now on `context` may stand for this address pair; `retires` (0: none) is used no more.
    Context { context: u16, retires: u16, source: Ipv6Addr, destination: Ipv6Addr },
    /// The context of the announcement with this id is known.
    ContextKnown { context: u16 },
    /// Padded to the size that it probes (outer packet, bytes).
    MtuProbe { size: u16 },
    /// The probe with this id and size arrived.
    MtuProbed { size: u16 },
    /// Asks for an answer, with the sender's session clock (ms).
    RoundTrip {
        clock: i64,
        /// For how long (ms) the sender should have heard something; 0 if it has.
        overdue: u32,
        /// Whether the sender keeps the session without traffic.
        keeps: bool,
    },
    /// Answers: the question's clock, and the answerer's.
    RoundTripAnswer { echo: i64, clock: i64 },
    /// The session is over.
    Close,
    /// Half of an inner packet that did not fit: part 0 or 1 of the packet `id`.
    Half { part: u8, bytes: &'a [u8] },
    /// The sender wants to meet the node with this key, and be met by it.
    Meet(PublicKey),
    /// The node with this key wants to meet the receiver, and hops here.
    Met(PublicKey, Ipv6Net),
    /// The sender's wall clock was set: by it, the session clock was 0 at this Unix time (ms). So it does not matter how long
    /// the message is on its way.
    WallClock { zero_unix_ms: u64 },
}

mod kind {
    pub(super) const PADDING: u8 = 0;
    pub(super) const OPENER: u8 = 1;
    pub(super) const CONFIRM: u8 = 2;
    pub(super) const CONFIRMED: u8 = 3;
    pub(super) const REKEY_FIRST: u8 = 4;
    pub(super) const REKEY_ANSWER: u8 = 5;
    pub(super) const CONTEXT: u8 = 6;
    pub(super) const CONTEXT_KNOWN: u8 = 7;
    pub(super) const MTU_PROBE: u8 = 10;
    pub(super) const MTU_PROBED: u8 = 11;
    pub(super) const ROUND_TRIP: u8 = 12;
    pub(super) const ROUND_TRIP_ANSWER: u8 = 13;
    pub(super) const CLOSE: u8 = 14;
    pub(super) const HALF: u8 = 15;
    pub(super) const MEET: u8 = 16;
    pub(super) const MET: u8 = 17;
    pub(super) const WALL_CLOCK: u8 = 18;
}

/// What a control message says, for the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// A message with its id.
    Message(u32, Control<'a>),
    /// A type of a later version.
    Unknown,
}

impl<'a> Control<'a> {
    /// Writes header and body to the front of `out`; their length.
    pub(crate) fn encode(&self, id: u32, out: &mut [u8]) -> usize {
        let mut body = HEADER;
        let mut put = |bytes: &[u8]| {
            out[body..body + bytes.len()].copy_from_slice(bytes);
            body += bytes.len();
        };
        let kind = match *self {
            Control::Padding => kind::PADDING,
            Control::Opener => kind::OPENER,
            Control::Confirm { clock } => {
                put(&clock.to_be_bytes());
                kind::CONFIRM
            }
            Control::Confirmed { echo, clock } => {
                put(&echo.to_be_bytes());
                put(&clock.to_be_bytes());
                kind::CONFIRMED
            }
            Control::RekeyFirst(message) => {
                put(message);
                kind::REKEY_FIRST
            }
            Control::RekeyAnswer(message) => {
                put(message);
                kind::REKEY_ANSWER
            }
            Control::Context { context, retires, source, destination } => {
                put(&context.to_be_bytes());
                put(&retires.to_be_bytes());
                put(&source.octets());
                put(&destination.octets());
                kind::CONTEXT
            }
            Control::ContextKnown { context } => {
                put(&context.to_be_bytes());
                kind::CONTEXT_KNOWN
            }
            Control::MtuProbe { size } => {
                put(&size.to_be_bytes());
                kind::MTU_PROBE
            }
            Control::MtuProbed { size } => {
                put(&size.to_be_bytes());
                kind::MTU_PROBED
            }
            Control::RoundTrip { clock, overdue, keeps } => {
                put(&clock.to_be_bytes());
                put(&overdue.to_be_bytes());
                put(&[keeps.into()]);
                kind::ROUND_TRIP
            }
            Control::RoundTripAnswer { echo, clock } => {
                put(&echo.to_be_bytes());
                put(&clock.to_be_bytes());
                kind::ROUND_TRIP_ANSWER
            }
            Control::Close => kind::CLOSE,
            Control::Half { part, bytes } => {
                put(&[part]);
                put(bytes);
                kind::HALF
            }
            Control::Meet(key) => {
                put(key.as_bytes());
                kind::MEET
            }
            Control::Met(key, place) => {
                put(key.as_bytes());
                put(&[place.prefix_len()]);
                put(&place.network().octets());
                kind::MET
            }
            Control::WallClock { zero_unix_ms } => {
                put(&zero_unix_ms.to_be_bytes());
                kind::WALL_CLOCK
            }
        };
        out[0] = 0;
        out[1] = kind;
        out[2..4].copy_from_slice(&((body - HEADER) as u16).to_be_bytes());
        out[4..8].copy_from_slice(&id.to_be_bytes());
        body
    }

    /// The length of header and body.
    pub(crate) fn length(&self) -> usize {
        HEADER
            + match self {
                Control::Padding | Control::Opener | Control::Close => 0,
                Control::ContextKnown { .. } | Control::MtuProbe { .. } | Control::MtuProbed { .. } => 2,
                Control::Confirm { .. } | Control::WallClock { .. } => 8,
                Control::RoundTrip { .. } => 13,
                Control::Confirmed { .. } | Control::RoundTripAnswer { .. } => 16,
                Control::Context { .. } => 36,
                Control::Meet(_) => 32,
                Control::Met(..) => 49,
                Control::RekeyFirst(message) | Control::RekeyAnswer(message) => message.len(),
                Control::Half { bytes, .. } => 1 + bytes.len(),
            }
    }

    /// Whether an inner part is nothing but padding.
    pub(crate) fn is_padding(inner: &[u8]) -> bool {
        inner.len() >= HEADER && inner[..4] == [0, kind::PADDING, 0, 0]
    }

    /// Reads a control message; `inner` begins with its zero nibble. `None` if it is malformed.
    pub(crate) fn decode(inner: &'a [u8]) -> Option<Decoded<'a>> {
        let (header, rest) = inner.split_first_chunk::<HEADER>()?;
        let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let body = rest.get(..usize::from(u16::from_be_bytes([header[2], header[3]])))?;
        if header[0] != 0 {
            return Some(Decoded::Unknown);
        }
        let clock = || body.try_into().ok().map(i64::from_be_bytes);
        let clocks = || {
            let (echo, clock) = body.split_first_chunk::<8>()?;
            Some((i64::from_be_bytes(*echo), i64::from_be_bytes(clock.try_into().ok()?)))
        };
        let short = || body.try_into().ok().map(u16::from_be_bytes);
        let message = match header[1] {
            kind::PADDING => Control::Padding,
            kind::OPENER => Control::Opener,
            kind::CONFIRM => Control::Confirm { clock: clock()? },
            kind::CONFIRMED => {
                let (echo, clock) = clocks()?;
                Control::Confirmed { echo, clock }
            }
            kind::REKEY_FIRST => Control::RekeyFirst(body),
            kind::REKEY_ANSWER => Control::RekeyAnswer(body),
            kind::CONTEXT => {
                let body: &[u8; 36] = body.try_into().ok()?;
                let address =
                    |at: usize| body[at..at + 16].try_into().map(|a: [u8; 16]| Ipv6Addr::from(a)).ok();
                Control::Context {
                    context: u16::from_be_bytes([body[0], body[1]]),
                    retires: u16::from_be_bytes([body[2], body[3]]),
                    source: address(4)?,
                    destination: address(20)?,
                }
            }
            kind::CONTEXT_KNOWN => Control::ContextKnown { context: short()? },
            kind::MTU_PROBE => Control::MtuProbe { size: short()? },
            kind::MTU_PROBED => Control::MtuProbed { size: short()? },
            kind::ROUND_TRIP => {
                let (clock, rest) = body.split_first_chunk::<8>()?;
                let (overdue, keeps) = rest.split_first_chunk::<4>()?;
                let [keeps] = keeps.try_into().ok()?;
                Control::RoundTrip {
                    clock: i64::from_be_bytes(*clock),
                    overdue: u32::from_be_bytes(*overdue),
                    keeps: keeps != 0,
                }
            }
            kind::ROUND_TRIP_ANSWER => {
                let (echo, clock) = clocks()?;
                Control::RoundTripAnswer { echo, clock }
            }
            kind::CLOSE => Control::Close,
            kind::HALF => {
                let (part, bytes) = body.split_first()?;
                Control::Half { part: *part, bytes }
            }
            kind::MEET => Control::Meet(PublicKey::from_bytes(body.try_into().ok()?)),
            kind::MET => {
                let (key, rest) = body.split_first_chunk::<32>()?;
                let (plen, network) = rest.split_first()?;
                let network: [u8; 16] = network.try_into().ok()?;
                let place = Ipv6Net::new(network.into(), *plen).ok()?;
                Control::Met(PublicKey::from_bytes(*key), place)
            }
            kind::WALL_CLOCK => {
                Control::WallClock { zero_unix_ms: u64::from_be_bytes(body.try_into().ok()?) }
            }
            _ => return Some(Decoded::Unknown),
        };
        Some(Decoded::Message(id, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decodes_what_it_encoded_whatever_follows() {
        let messages = [
            Control::Padding,
            Control::Opener,
            Control::Confirm { clock: -5 },
            Control::Confirmed { echo: 1, clock: i64::MAX },
            Control::RekeyFirst(b"noise"),
            Control::RekeyAnswer(b""),
            Control::Context {
                context: 3,
                retires: 1,
                source: "2001:db8::1".parse().unwrap(),
                destination: "2001:db8::2".parse().unwrap(),
            },
            Control::ContextKnown { context: 3 },
            Control::MtuProbe { size: 1500 },
            Control::MtuProbed { size: 1280 },
            Control::RoundTrip { clock: 9, overdue: 2_500, keeps: true },
            Control::RoundTripAnswer { echo: 9, clock: 10 },
            Control::Close,
            Control::Half { part: 1, bytes: b"second" },
            Control::Meet(PublicKey::from_bytes([9; 32])),
            Control::Met(PublicKey::from_bytes([9; 32]), "2001:db8:c1::/64".parse().unwrap()),
            Control::WallClock { zero_unix_ms: 1_700_000_000_000 },
        ];
        for message in messages {
            let mut buffer = [0xee; 100];
            let length = message.encode(77, &mut buffer);
            assert_eq!(length, message.length(), "{message:?}");
            assert_eq!(Control::decode(&buffer), Some(Decoded::Message(77, message)));
            assert_eq!(Control::decode(&buffer[..length - 1]), None, "{message:?} cut short");
        }
    }

    #[test]
    fn later_versions_are_ignored() {
        assert_eq!(Control::decode(&[0, 99, 0, 0, 0, 0, 0, 1]), Some(Decoded::Unknown));
        assert_eq!(Control::decode(&[1, 0, 0, 0, 0, 0, 0, 1]), Some(Decoded::Unknown));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Control::decode(&bytes);
        }
    }
}
