//! Contexts: an address pair that both ends know by a number, so that packets need not carry it
//! (docs/protocol.md, "Contexts").

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::control::Control;
use crate::time::Time;

/// Contexts that a node keeps for its peer.
pub(crate) const KEPT: u16 = 1024;
/// An address pair gets a context with its third packet: a port scan gets none.
const PACKETS_BEFORE: u8 = 3;
/// Address pairs without a context that are counted at once.
const CANDIDATES: usize = 1024;
/// A context may make room for another when it was idle this long: none of its packets is on its way any more.
const IDLE: Duration = Duration::from_secs(10);
/// How often to look for one, where all are in use.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Source and destination of an inner packet.
pub(crate) type Pair = [u8; 32];

/// The pair of two addresses.
pub(crate) fn pair(source: Ipv6Addr, destination: Ipv6Addr) -> Pair {
    let mut pair = [0; 32];
    pair[..16].copy_from_slice(&source.octets());
    pair[16..].copy_from_slice(&destination.octets());
    pair
}

/// How a packet names its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Not at all: context 0, the one pair of a session between two hosts.
    Elided,
    /// By the number of a context.
    Context(u16),
    /// In full.
    Full,
}

impl Form {
    /// Bytes that the form adds to a packet without its addresses (docs/protocol.md, "Overhead").
    pub(crate) fn extra(self) -> usize {
        match self {
            Form::Elided => 0,
            Form::Context(_) => 3,
            Form::Full => 3 + 32,
        }
    }
}

/// The sender's side.
pub(crate) struct SendContexts {
    fixed: Option<Pair>,
    pairs: HashMap<Pair, Entry>,
    limit: usize,
    live: usize,
    next: u16,
    /// No context can make room for another before then.
    full_until: Time,
}

struct Entry {
    context: u16,
    packets: u8,
    known: bool,
    used: Time,
    announced: Time,
    retires: u16,
}

impl SendContexts {
    /// For a peer that keeps `limit` contexts; `fixed` is context 0, if the session has one.
    pub(crate) fn new(limit: u16, fixed: Option<Pair>) -> Self {
        SendContexts {
            fixed,
            pairs: HashMap::new(),
            limit: limit.into(),
            live: 0,
            next: 1,
            full_until: Time::default(),
        }
    }

    /// The form for a packet of `pair`, and an announcement to send, due when unanswered for `again`.
    pub(crate) fn form(
        &mut self,
        pair: &Pair,
        now: Time,
        again: Duration,
    ) -> (Form, Option<(u32, Control<'static>)>) {
        if self.fixed.as_ref() == Some(pair) {
            return (Form::Elided, None);
        }
        let Some(entry) = self.pairs.get_mut(pair) else {
            if self.pairs.len() - self.live >= CANDIDATES {
                self.pairs.retain(|_, e| e.context != 0);
            }
            let entry = Entry { context: 0, packets: 1, known: false, used: now, announced: now, retires: 0 };
            self.pairs.insert(*pair, entry);
            return (Form::Full, None);
        };
        entry.used = now;
        if entry.known {
            return (Form::Context(entry.context), None);
        }
        if entry.context == 0 {
            entry.packets = entry.packets.saturating_add(1);
            if entry.packets < PACKETS_BEFORE || self.next == u16::MAX {
                return (Form::Full, None);
            }
            let retires = if self.live < self.limit {
                0
            } else if let Some(retired) = self.retire(now) {
                retired
            } else {
                return (Form::Full, None);
            };
            let entry = self.pairs.get_mut(pair).expect("looked up above");
            (entry.context, entry.announced, entry.retires) = (self.next, now, retires);
            self.next += 1;
            self.live += 1;
        } else if now.since(entry.announced) < again {
            return (Form::Full, None);
        }
        let entry = self.pairs.get_mut(pair).expect("looked up above");
        entry.announced = now;
        (Form::Full, Some((entry.context.into(), announcement(pair, entry.context, entry.retires))))
    }

    /// The peer knows a context.
    pub(crate) fn known(&mut self, context: u16) {
        if let Some(entry) = self.pairs.values_mut().find(|e| e.context == context && context != 0) {
            entry.known = true;
        }
    }

    /// Gives up the context that was idle longest, if any was long enough.
    fn retire(&mut self, now: Time) -> Option<u16> {
        if now < self.full_until {
            return None;
        }
        let contexts = self.pairs.iter().filter(|(_, e)| e.context != 0);
        let oldest =
            contexts.min_by_key(|(_, e)| (e.used, e.context)).map(|(pair, e)| (*pair, e.context, e.used));
        let Some((pair, context, _)) = oldest.filter(|(.., used)| now.since(*used) >= IDLE) else {
            // Looking costs a walk over all of them, which is not for every packet.
            let idle = oldest.map_or(now, |(.., used)| used) + IDLE;
            self.full_until = idle.max(now + LOOK_AGAIN);
            return None;
        };
        self.pairs.remove(&pair);
        self.live -= 1;
        Some(context)
    }
}

fn announcement(pair: &Pair, context: u16, retires: u16) -> Control<'static> {
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&pair[at..at + 16]).expect("16 bytes"));
    Control::Context { context, retires, source: address(0), destination: address(16) }
}

/// The receiver's side.
pub(crate) struct ReceiveContexts {
    fixed: Option<Pair>,
    pairs: FxHashMap<u16, Pair>,
}

impl ReceiveContexts {
    /// `fixed` is context 0, as the receiver sees it.
    pub(crate) fn new(fixed: Option<Pair>) -> Self {
        ReceiveContexts { fixed, pairs: FxHashMap::default() }
    }

    /// Takes an announcement; true if the context is known now.
    pub(crate) fn learn(&mut self, context: u16, retires: u16, pair: Pair) -> bool {
        if retires != context {
            self.pairs.remove(&retires);
        }
        match self.pairs.get(&context) {
            Some(known) => *known == pair,
            None if context != 0 && self.pairs.len() < KEPT.into() => {
                self.pairs.insert(context, pair);
                true
            }
            None => false,
        }
    }

    /// The address pair of a context.
    pub(crate) fn get(&self, context: u16) -> Option<&Pair> {
        if context == 0 { self.fixed.as_ref() } else { self.pairs.get(&context) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGAIN: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    fn numbered(n: u32) -> Pair {
        let mut pair = [0; 32];
        pair[..4].copy_from_slice(&n.to_be_bytes());
        pair
    }

    /// Sends until the pair has a context that the receiver knows.
    fn establish(
        send: &mut SendContexts,
        receive: &mut ReceiveContexts,
        pair: &Pair,
        now: Time,
    ) -> Option<u16> {
        for _ in 0..PACKETS_BEFORE {
            if let (_, Some((_, Control::Context { context, retires, .. }))) = send.form(pair, now, AGAIN) {
                assert!(receive.learn(context, retires, *pair));
                send.known(context);
            }
        }
        match send.form(pair, now, AGAIN).0 {
            Form::Context(context) => Some(context),
            _ => None,
        }
    }

    #[test]
    fn a_pair_gets_its_context_after_a_few_packets_and_once_it_is_acknowledged() {
        let mut send = SendContexts::new(KEPT, None);
        let pair = numbered(1);
        assert_eq!(send.form(&pair, at(0), AGAIN), (Form::Full, None));
        assert_eq!(send.form(&pair, at(0), AGAIN), (Form::Full, None));
        let (form, announcement) = send.form(&pair, at(0), AGAIN);
        assert_eq!(form, Form::Full);
        assert!(matches!(announcement, Some((1, Control::Context { context: 1, retires: 0, .. }))));
        assert_eq!(send.form(&pair, at(100), AGAIN), (Form::Full, None), "not announced with each packet");
        assert!(send.form(&pair, at(600), AGAIN).1.is_some(), "but again when unanswered");
        send.known(1);
        assert_eq!(send.form(&pair, at(700), AGAIN), (Form::Context(1), None));
    }

    #[test]
    fn numbers_are_never_reused_and_only_idle_contexts_make_room() {
        let (mut send, mut receive) = (SendContexts::new(2, None), ReceiveContexts::new(None));
        assert_eq!(establish(&mut send, &mut receive, &numbered(1), at(0)), Some(1));
        assert_eq!(establish(&mut send, &mut receive, &numbered(2), at(5_000)), Some(2));
        assert_eq!(establish(&mut send, &mut receive, &numbered(3), at(6_000)), None, "both are busy");
        assert_eq!(establish(&mut send, &mut receive, &numbered(3), at(11_000)), Some(3));
        assert_eq!(receive.get(1), None);
        assert_eq!(receive.get(3), Some(&numbered(3)));
        assert!(!receive.learn(3, 0, numbered(4)), "a context keeps its pair");
    }

    #[test]
    fn context_zero_is_fixed() {
        let mut send = SendContexts::new(0, Some(numbered(7)));
        assert_eq!(send.form(&numbered(7), at(0), AGAIN), (Form::Elided, None));
        for _ in 0..10 {
            assert_eq!(
                send.form(&numbered(8), at(0), AGAIN).0,
                Form::Full,
                "a peer that keeps none gets none"
            );
        }
        assert_eq!(ReceiveContexts::new(Some(numbered(9))).get(0), Some(&numbered(9)));
    }

    #[test]
    fn a_scan_does_not_fill_the_table() {
        let mut send = SendContexts::new(KEPT, None);
        for n in 0..100_000 {
            send.form(&numbered(n), at(0), AGAIN);
        }
        assert!(send.pairs.len() <= CANDIDATES + usize::from(KEPT));
    }
}
