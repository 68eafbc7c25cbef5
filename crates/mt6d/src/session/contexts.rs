//! Contexts: an address pair that both ends know by a number, so that packets need not carry it
//! (docs/protocol.md, "Contexts").

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::control::Control;
use crate::overhead;
use crate::time::{AtomicTime, Time};

/// Contexts that a node keeps for its peer.
pub(crate) const KEPT: u16 = 1024;
/// An address pair gets a context with its third packet: a port scan gets none.
const PACKETS_BEFORE: u8 = 3;
/// Address pairs without a context that are counted at once.
const CANDIDATES: usize = 1024;
/// A context may make room for another when it was idle this long: none of its packets is on its way any more.
const IDLE: Duration = Duration::from_secs(10);
/// A pair that gave its context up is remembered for so long after the peer knows.
const FADES: Duration = Duration::from_secs(5);
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

/// Source and destination of a pair.
pub(crate) fn addresses(pair: &Pair) -> (Ipv6Addr, Ipv6Addr) {
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&pair[at..at + 16]).expect("16 bytes"));
    (address(0), address(16))
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
            Form::Context(_) => usize::from(overhead::CONTEXT - overhead::ELIDED),
            Form::Full => usize::from(overhead::FULL - overhead::ELIDED),
        }
    }
}

/// The contexts that the peer is known to know: what sending needs, on any thread.
#[derive(Clone, Default)]
pub(crate) struct KnownContexts {
    fixed: Option<Pair>,
    pairs: HashMap<Pair, Known>,
}

#[derive(Clone)]
struct Known {
    context: u16,
    used: Arc<AtomicTime>,
}

impl KnownContexts {
    /// The form for a packet of `pair`.
    pub(crate) fn form(&self, pair: &Pair, now: Time) -> Form {
        if self.fixed.as_ref() == Some(pair) {
            return Form::Elided;
        }
        let Some(known) = self.pairs.get(pair) else { return Form::Full };
        known.used.set(now);
        Form::Context(known.context)
    }
}

/// The sender's side: which pairs get a context.
pub(crate) struct SendContexts {
    /// Replaced, not changed, while others hold it.
    known: Arc<KnownContexts>,
    candidates: HashMap<Pair, Candidate>,
    limit: usize,
    live: usize,
    next: u16,
    /// No context can make room for another before then.
    full_until: Time,
    /// Pairs that gave up their context to another, which the peer may use until it knows that one: None, and for a
    /// while. Kept where the session replaces addresses.
    fading: Option<Vec<(Pair, u16, Option<Time>)>>,
}

/// A pair without a context that the peer knows.
struct Candidate {
    /// Announced, if it is not 0.
    context: u16,
    packets: u8,
    used: Time,
    announced: Time,
    retires: u16,
}

impl SendContexts {
    /// For a peer that keeps `limit` contexts; `fixed` is context 0, if the session has one.
    /// Where the session is `rewriting`, the peer may send with what it was told.
    pub(crate) fn new(limit: u16, fixed: Option<Pair>, rewriting: bool) -> Self {
        SendContexts {
            known: Arc::new(KnownContexts { fixed, pairs: HashMap::new() }),
            candidates: HashMap::new(),
            limit: limit.into(),
            live: 0,
            next: 1,
            full_until: Time::default(),
            fading: rewriting.then(Vec::new),
        }
    }

    /// All pairs that the peer was told of, each with whether it knows that it is to use it.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Pair, bool)> + '_ {
        let known = self.known.pairs.keys().chain(&self.known.fixed).map(|pair| (*pair, true));
        let announced =
            self.candidates.iter().filter(|(_, c)| c.context != 0).map(|(pair, _)| (*pair, false));
        let fading = self.fading.iter().flatten().map(|(pair, ..)| (*pair, false));
        fading.chain(announced).chain(known)
    }

    /// Packets of a pair crossed by another way.
    pub(crate) fn used(&self, pair: &Pair, now: Time) {
        if let Some(known) = self.known.pairs.get(pair) {
            known.used.set(now);
        }
    }

    /// Forgets pairs that the peer uses no more. Whether there were some.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let Some(fading) = &mut self.fading else { return false };
        let before = fading.len();
        fading.retain(|(.., until)| until.is_none_or(|until| now < until));
        fading.len() < before
    }

    /// Those that the peer knows, as they are now.
    pub(crate) fn known_ones(&self) -> &Arc<KnownContexts> {
        &self.known
    }

    /// A packet of a pair without a known context was sent. The announcement to send, due when unanswered for `again`.
    pub(crate) fn sent_in_full(
        &mut self,
        pair: &Pair,
        now: Time,
        again: Duration,
    ) -> Option<(u32, Control<'static>)> {
        let Some(candidate) = self.candidates.get_mut(pair) else {
            // Told by another thread that did not know yet.
            if self.known.pairs.contains_key(pair) {
                return None;
            }
            if self.candidates.len() >= CANDIDATES {
                self.candidates.retain(|_, c| c.context != 0);
            }
            let candidate = Candidate { context: 0, packets: 1, used: now, announced: now, retires: 0 };
            self.candidates.insert(*pair, candidate);
            return None;
        };
        candidate.used = now;
        if candidate.context == 0 {
            candidate.packets = candidate.packets.saturating_add(1);
            if candidate.packets < PACKETS_BEFORE || self.next == u16::MAX {
                return None;
            }
            let retires = if self.live < self.limit { 0 } else { self.retire(now)? };
            let candidate = self.candidates.get_mut(pair).expect("looked up above");
            (candidate.context, candidate.retires) = (self.next, retires);
            self.next += 1;
            self.live += 1;
        } else if now.since(candidate.announced) < again {
            return None;
        }
        let candidate = self.candidates.get_mut(pair).expect("looked up above");
        candidate.announced = now;
        Some((candidate.context.into(), announcement(pair, candidate.context, candidate.retires)))
    }

    /// The peer knows a context.
    pub(crate) fn known(&mut self, context: u16, now: Time) {
        for (.., until) in self.fading.iter_mut().flatten().filter(|(_, by, _)| *by == context) {
            until.get_or_insert(now + FADES);
        }
        let announced = |(_, c): &(&Pair, &Candidate)| c.context == context && context != 0;
        let Some((&pair, candidate)) = self.candidates.iter().find(announced) else { return };
        let known = Known { context, used: Arc::new(AtomicTime::new(candidate.used)) };
        self.candidates.remove(&pair);
        Arc::make_mut(&mut self.known).pairs.insert(pair, known);
    }

    /// Gives up the context that was idle longest, if any was long enough.
    fn retire(&mut self, now: Time) -> Option<u16> {
        if now < self.full_until {
            return None;
        }
        let known = self.known.pairs.iter().map(|(pair, k)| (*pair, k.context, k.used.get()));
        // One that the peer may not know yet tells it what else it is to forget.
        let announced = self.candidates.iter().filter(|_| self.fading.is_none());
        let announced = announced.map(|(pair, c)| (*pair, c.context, c.used));
        let oldest = known
            .chain(announced.filter(|(_, context, _)| *context != 0))
            .min_by_key(|(_, context, used)| (*used, *context));
        let Some((pair, context, _)) = oldest.filter(|(.., used)| now.since(*used) >= IDLE) else {
            // Looking costs a walk over all of them, which is not for every packet.
            let idle = oldest.map_or(now, |(.., used)| used) + IDLE;
            self.full_until = idle.max(now + LOOK_AGAIN);
            return None;
        };
        self.candidates.remove(&pair);
        Arc::make_mut(&mut self.known).pairs.remove(&pair);
        self.live -= 1;
        if let Some(fading) = &mut self.fading {
            fading.push((pair, self.next, None));
        }
        Some(context)
    }
}

fn announcement(pair: &Pair, context: u16, retires: u16) -> Control<'static> {
    let (source, destination) = addresses(pair);
    Control::Context { context, retires, source, destination }
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

    /// All pairs.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.values().chain(&self.fixed)
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

    type Announcement = Option<(u32, Control<'static>)>;

    /// Sends a packet.
    fn send_one(send: &mut SendContexts, pair: &Pair, now: Time) -> (Form, Announcement) {
        let form = send.known_ones().form(pair, now);
        (form, if form == Form::Full { send.sent_in_full(pair, now, AGAIN) } else { None })
    }

    /// Sends until the pair has a context that the receiver knows.
    fn establish(
        send: &mut SendContexts,
        receive: &mut ReceiveContexts,
        pair: &Pair,
        now: Time,
    ) -> Option<u16> {
        for _ in 0..PACKETS_BEFORE {
            if let (_, Some((_, Control::Context { context, retires, .. }))) = send_one(send, pair, now) {
                assert!(receive.learn(context, retires, *pair));
                send.known(context, now);
            }
        }
        match send_one(send, pair, now).0 {
            Form::Context(context) => Some(context),
            _ => None,
        }
    }

    #[test]
    fn a_pair_gets_its_context_after_a_few_packets_and_once_it_is_acknowledged() {
        let mut send = SendContexts::new(KEPT, None, false);
        let pair = numbered(1);
        assert_eq!(send_one(&mut send, &pair, at(0)), (Form::Full, None));
        assert_eq!(send_one(&mut send, &pair, at(0)), (Form::Full, None));
        let (form, announcement) = send_one(&mut send, &pair, at(0));
        assert_eq!(form, Form::Full);
        assert!(matches!(announcement, Some((1, Control::Context { context: 1, retires: 0, .. }))));
        assert_eq!(send_one(&mut send, &pair, at(100)), (Form::Full, None), "not announced with each packet");
        assert!(send_one(&mut send, &pair, at(600)).1.is_some(), "but again when unanswered");
        send.known(1, at(600));
        assert_eq!(send_one(&mut send, &pair, at(700)), (Form::Context(1), None));
    }

    #[test]
    fn numbers_are_never_reused_and_only_idle_contexts_make_room() {
        let (mut send, mut receive) = (SendContexts::new(2, None, false), ReceiveContexts::new(None));
        assert_eq!(establish(&mut send, &mut receive, &numbered(1), at(0)), Some(1));
        assert_eq!(establish(&mut send, &mut receive, &numbered(2), at(5_000)), Some(2));
        assert_eq!(establish(&mut send, &mut receive, &numbered(3), at(6_000)), None, "both are busy");
        assert_eq!(establish(&mut send, &mut receive, &numbered(3), at(11_000)), Some(3));
        assert_eq!(receive.get(1), None);
        assert_eq!(receive.get(3), Some(&numbered(3)));
        assert!(!receive.learn(3, 0, numbered(4)), "a context keeps its pair");
    }

    #[test]
    fn a_pair_that_gave_its_context_up_is_remembered_until_the_peer_knows() {
        let (mut send, mut receive) = (SendContexts::new(1, None, true), ReceiveContexts::new(None));
        let all = |send: &SendContexts| send.pairs().collect::<HashMap<_, _>>();
        let (first, second) = (numbered(1), numbered(2));
        assert_eq!(establish(&mut send, &mut receive, &first, at(0)), Some(1));
        send.used(&first, at(5_000));
        establish(&mut send, &mut receive, &second, at(14_000));
        assert_eq!(all(&send), HashMap::from([(first, true)]), "it is in use");
        for _ in 0..PACKETS_BEFORE {
            send_one(&mut send, &second, at(16_000));
        }
        assert_eq!(all(&send), HashMap::from([(first, false), (second, false)]));
        assert!(!send.expire(at(60_000)), "the peer may not have heard");
        send.known(2, at(60_000));
        assert_eq!(all(&send), HashMap::from([(first, false), (second, true)]));
        assert!(!send.expire(at(64_000)) && send.expire(at(65_000)));
        assert_eq!(all(&send), HashMap::from([(second, true)]));
    }

    #[test]
    fn context_zero_is_fixed() {
        let mut send = SendContexts::new(0, Some(numbered(7)), false);
        assert_eq!(send_one(&mut send, &numbered(7), at(0)), (Form::Elided, None));
        for _ in 0..10 {
            assert_eq!(
                send_one(&mut send, &numbered(8), at(0)).0,
                Form::Full,
                "a peer that keeps none gets none"
            );
        }
        assert_eq!(ReceiveContexts::new(Some(numbered(9))).get(0), Some(&numbered(9)));
    }

    #[test]
    fn a_scan_does_not_fill_the_table() {
        let mut send = SendContexts::new(KEPT, None, false);
        for n in 0..100_000 {
            send_one(&mut send, &numbered(n), at(0));
        }
        assert!(send.candidates.len() <= CANDIDATES + usize::from(KEPT));
    }
}
