//! The key log: lines with what opens recorded datagrams, for who asks for it (docs/operations.md, "Key log").
//!
//! There are none unless [`Node::log_keys`](crate::Node::log_keys) was called. A line has the least that serves: the keys
//! of one lane in one direction, or the key of one envelope. What others come from, such as a node's private key, is in
//! none: a line opens what it names, and nothing that was sent before the log began or is sent after it ends.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::envelope::{self, Kind, NONCE};
use crate::id::LaneId;
use crate::keys::Role;
use crate::limit::Limit;
use crate::mask::MaskKey;
use crate::offer::Cipher;
use crate::time::Time;

/// Lines that wait for the host; where it does not take them, the oldest makes room.
const LINES: usize = 4096;
/// Longer than any line: where one grew, it would leave copies behind that nobody wipes.
const LINE: usize = 640;
/// Envelopes of the peer's: so many at once, and one more after each pause. Who sends the same one again and again is not to
/// fill a disk.
const RECEIVED: (u32, Duration) = (64, Duration::from_millis(100));

/// What a session is called in the log: the same at both ends.
pub(crate) type Label = [u8; 4];

/// Lines that wait for the host.
pub(crate) struct KeyLog {
    lines: VecDeque<Zeroizing<String>>,
    received: Limit,
}

/// A lane in one direction.
pub(crate) struct LaneKeys<'a> {
    pub(crate) session: Label,
    pub(crate) sender: Role,
    pub(crate) lane: LaneId,
    pub(crate) cipher: Cipher,
    pub(crate) from: SocketAddrV6,
    pub(crate) to: SocketAddrV6,
    pub(crate) data: &'a [u8; 32],
    pub(crate) header: &'a [u8; 32],
    pub(crate) mask: Option<&'a MaskKey>,
}

impl KeyLog {
    pub(crate) fn new(now: Time) -> Self {
        KeyLog { lines: VecDeque::new(), received: Limit::new(RECEIVED.0, RECEIVED.1, now) }
    }

    /// A session begins, with the peer of this name; this node's role in the pair is `own`.
    pub(crate) fn session(&mut self, session: Label, own: Role, peer: &str) {
        self.line("SESSION", &[&Hex(&session), &letter(own), &peer]);
    }

    /// A lane's endpoint is asked for: what `sender` sends there opens with these keys.
    pub(crate) fn lane(&mut self, keys: &LaneKeys) {
        let LaneKeys { session, sender, lane, cipher, from, to, data, header, mask } = keys;
        self.line(
            "LANE",
            &[
                &Hex(session),
                &letter(*sender),
                lane,
                &cipher.name(),
                from.ip(),
                &from.port(),
                to.ip(),
                &to.port(),
                &Hex(*data),
                &Hex(*header),
            ],
        );
        if let Some(mask) = mask {
            self.line("MASK", &[&Hex(session), &letter(*sender), lane, &Hex(mask.bytes())]);
        }
    }

    /// `sender` names an inner address pair by a number.
    pub(crate) fn context(
        &mut self,
        session: Label,
        sender: Role,
        context: u16,
        from: Ipv6Addr,
        to: Ipv6Addr,
    ) {
        self.line("CONTEXT", &[&Hex(&session), &letter(sender), &context, &from, &to]);
    }

    /// An envelope of this node's leaves for the peer of this name, sealed with `key`.
    pub(crate) fn sealed(&mut self, key: &[u8; 32], kind: &Kind, datagram: &[u8], peer: &str) {
        let Some(nonce) = datagram.first_chunk::<NONCE>() else { return };
        let own = envelope::own_key(key, nonce);
        self.line("ENVELOPE", &[&Hex(nonce), &Hex(&kind.associated_data()), &Hex(own.as_slice()), &peer]);
    }

    /// One of the peer's was opened.
    pub(crate) fn opened(&mut self, key: &[u8; 32], kind: &Kind, datagram: &[u8], peer: &str, now: Time) {
        if self.received.take(now) {
            self.sealed(key, kind, datagram, peer);
        }
    }

    /// The oldest line, with its end.
    pub(crate) fn next(&mut self) -> Option<Zeroizing<String>> {
        self.lines.pop_front()
    }

    fn line(&mut self, label: &str, fields: &[&dyn std::fmt::Display]) {
        let mut line = Zeroizing::new(String::with_capacity(LINE));
        line.push_str(label);
        for field in fields {
            let _ = write!(line, " {field}");
        }
        line.push('\n');
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

fn letter(role: Role) -> &'static str {
    match role {
        Role::L => "L",
        Role::H => "H",
    }
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
