//! The attacker on the path: a state machine that carries the frames of both directions, tries what it is told, one
//! thing at a time, and notes what both ends send then.
//!
//! A moment is a datagram of one end, the first that comes after a drawn time. Something is tried with it, or, as
//! often, nothing: so both have in common that a datagram was there. What the ends send is noted as it comes in, before
//! anything is dropped or delayed, and what is injected is never noted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use lab::relay::Middle;
use lab::{Site, Topology};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use wire::ethernet::{ETHERTYPE_IPV6, Frame};
use wire::{icmpv6, ipv6};

use super::draw::{below, bytes, draw, uniform};
use super::kind::{Kind, Quote, Recorded};
use super::packet::Datagram;
use super::window::{Sent, WINDOWS, What, Window};
use super::{probe, tamper};

/// How long recorded datagrams are kept, and how many at most.
const KEPT: Duration = Duration::from_secs(50);
const KEPT_AT_MOST: usize = 20_000;

/// A flow is expired when nothing came for so long.
const EXPIRED: Duration = Duration::from_secs(5);

/// A flow is live when something came within this time; a recorded datagram of one is at least half of it old.
const LIVE: Duration = Duration::from_secs(1);

/// Between two moments, beyond the window: at least so long, and up to so much more.
const REST: Duration = Duration::from_millis(100);
const MORE_REST: Duration = Duration::from_millis(400);

/// What the oracle says of the path: less than Ethernet carries, more than IPv6 guarantees.
const ORACLE_MTU: u32 = 1_400;

/// What the attacker is to do.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// What to try, each so many times.
    pub(super) kinds: Vec<Kind>,
    pub(super) tries: u32,
    /// Moments in which nothing is tried.
    pub(super) baseline: u32,
    /// How long only to look on, from the first datagram on.
    pub(super) settle: Duration,
    /// Divides the windows and the rests, for tests.
    pub(super) scale: u32,
    pub(super) seed: u64,
}

/// What came of one try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The name of the kind.
    pub(super) kind: String,
    /// As [`Window::features`] has them.
    pub(super) features: Vec<f64>,
    /// As [`Window::large_at_once`].
    pub(super) large_at_once: bool,
}

/// The attacker.
pub(super) struct Attacker {
    plan: Plan,
    random: ChaCha8Rng,
    /// What is still to be tried, in drawn order.
    to_do: VecDeque<Kind>,
    phase: Phase,
    /// When each flow was last seen.
    flows: HashMap<super::packet::Flow, Duration>,
    recorded: VecDeque<Datagram>,
    leaving: BinaryHeap<Leaving>,
    left: u64,
    outcomes: Vec<Outcome>,
}

/// A frame that is to leave, the earliest first: when, a number that keeps the order, the port, the frame.
type Leaving = Reverse<(Duration, u64, usize, Vec<u8>)>;

enum Phase {
    /// Before the first datagram.
    Start,
    /// Until a time.
    Rest(Duration),
    /// The next datagram of this port's end is the moment.
    Ready(usize),
    /// Since a datagram of the port's end.
    Watch {
        since: Duration,
        from: usize,
        kind: Kind,
        window: Window,
    },
    Done,
}

impl Attacker {
    pub(super) fn new(plan: Plan) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
        let mut to_do: Vec<Kind> = (0..plan.tries).flat_map(|_| plan.kinds.iter().copied()).collect();
        to_do.extend((0..plan.baseline).map(|_| Kind::Nothing));
        for last in (1..to_do.len()).rev() {
            to_do.swap(last, below(&mut random, last + 1));
        }
        Self {
            plan,
            random,
            to_do: to_do.into(),
            phase: Phase::Start,
            flows: HashMap::new(),
            recorded: VecDeque::new(),
            leaving: BinaryHeap::new(),
            left: 0,
            outcomes: Vec::new(),
        }
    }

    /// What came of all tries, once they are done.
    pub(super) fn outcomes(&self) -> Option<&[Outcome]> {
        matches!(self.phase, Phase::Done).then_some(&self.outcomes)
    }

    /// Notes what an end sent.
    fn note(&mut self, now: Duration, by: usize, length: usize, what: What) {
        if let Phase::Watch { since, from, window, .. } = &mut self.phase {
            window.add(Sent { after: now - *since, by_sender: *from == by, length, what });
        }
    }

    fn record(&mut self, datagram: Datagram) {
        let now = datagram.time;
        self.recorded.push_back(datagram);
        let old = |datagram: &Datagram| now - datagram.time > KEPT;
        while self.recorded.front().is_some_and(old) || self.recorded.len() > KEPT_AT_MOST {
            self.recorded.pop_front();
        }
    }

    fn leave(&mut self, at: Duration, to: usize, frame: Vec<u8>) {
        self.left += 1;
        self.leaving.push(Reverse((at, self.left, to, frame)));
    }

    /// Ends what is over by now.
    fn advance(&mut self, now: Duration) {
        match &self.phase {
            Phase::Rest(until) if *until <= now => {
                self.phase = if self.to_do.is_empty() {
                    Phase::Done
                } else {
                    Phase::Ready(below(&mut self.random, 2))
                };
            }
            Phase::Watch { since, kind, window, .. } if now - *since > WINDOWS[1] / self.plan.scale => {
                self.outcomes.push(Outcome {
                    kind: kind.to_string(),
                    features: window.features(self.plan.scale),
                    large_at_once: window.large_at_once(self.plan.scale),
                });
                let rest = REST + MORE_REST.mul_f64(uniform(&mut self.random));
                self.phase = Phase::Rest(now + rest / self.plan.scale);
            }
            _ => {}
        }
    }

    /// Tries the next thing that can be tried with this datagram, which is on its way.
    fn attack(&mut self, datagram: &Datagram) {
        for _ in 0..self.to_do.len() {
            let Some(kind) = self.to_do.pop_front() else { break };
            if self.attempt(kind, datagram) {
                let (since, from) = (datagram.time, datagram.from);
                self.phase = Phase::Watch { since, from, kind, window: Window::default() };
                return;
            }
            self.to_do.push_back(kind);
        }
        self.leave(datagram.time, 1 - datagram.from, datagram.frame.clone());
    }

    /// Tries it; `false`, and nothing is done, if nothing has been recorded yet that it needs.
    fn attempt(&mut self, kind: Kind, datagram: &Datagram) -> bool {
        let (now, to) = (datagram.time, 1 - datagram.from);
        let on = datagram.frame.clone();
        match kind {
            Kind::Nothing => self.leave(now, to, on),
            Kind::Replay(which) => {
                let Some(again) = self.recall(now, which, None) else { return false };
                self.leave(now, to, on);
                self.leave(now, 1 - again.from, again.frame);
            }
            Kind::Duplicate => {
                self.leave(now, to, on.clone());
                self.leave(now, to, on);
            }
            Kind::Drop => {}
            Kind::Delay => {
                let delay = Duration::from_millis(50 + below(&mut self.random, 451) as u64);
                self.leave(now + delay, to, on);
            }
            Kind::Truncate => {
                let short = tamper::truncated(datagram, &mut self.random);
                self.leave(now, to, short);
            }
            Kind::Tamper(place) => {
                let changed = tamper::changed(datagram, place, &mut self.random);
                self.leave(now, to, changed);
            }
            Kind::Spoof => {
                let forged = datagram.with_payload(&bytes(&mut self.random, datagram.payload().len()));
                self.leave(now, to, on);
                self.leave(now, to, forged);
            }
            Kind::Scan(what, target) => {
                let (port, frame) = probe::scan(datagram, what, target, &mut self.random);
                self.leave(now, to, on);
                self.leave(now, port, frame);
            }
            Kind::Oracle => {
                let Some(quoted) = self.quoted(datagram, Quote::Old) else { return false };
                self.leave(now, to, on);
                self.leave(now, quoted.from, probe::too_big(&quoted, ORACLE_MTU));
            }
            Kind::Error(error, quote) => {
                let Some(quoted) = self.quoted(datagram, quote) else { return false };
                let frame = probe::error(&quoted, error, &mut self.random);
                self.leave(now, to, on);
                self.leave(now, quoted.from, frame);
            }
        }
        true
    }

    /// The datagram that an error of this kind quotes; it goes to whoever that says has sent it.
    fn quoted(&mut self, datagram: &Datagram, quote: Quote) -> Option<Datagram> {
        let mut quoted = datagram.clone();
        match quote {
            Quote::Live => {}
            Quote::Old => {
                let old = self.recall(datagram.time, Recorded::Expired, Some(datagram.from))?;
                quoted.frame = datagram.with_payload(old.payload());
            }
            Quote::Expired => quoted = self.recall(datagram.time, Recorded::Expired, None)?,
            Quote::Foreign => {
                quoted.frame = datagram.with_payload(&bytes(&mut self.random, datagram.payload().len()));
            }
            Quote::Unknown => {
                for end in [&mut quoted.flow.source, &mut quoted.flow.destination] {
                    *end = (probe::neighbor_of(end.0, &mut self.random), draw(&mut self.random) as u16);
                }
                quoted = probe::between(&quoted, &bytes(&mut self.random, datagram.payload().len()));
            }
        }
        Some(quoted)
    }

    /// One of the recorded datagrams, if there is one of this kind, and from this port.
    fn recall(&mut self, now: Duration, which: Recorded, from: Option<usize>) -> Option<Datagram> {
        let suits = |datagram: &&Datagram| {
            let silent = now.saturating_sub(self.flows.get(&datagram.flow).copied().unwrap_or_default());
            let suits = match which {
                Recorded::Live => silent < LIVE && now - datagram.time > LIVE / 2,
                Recorded::Expired => silent > EXPIRED,
            };
            suits && from.is_none_or(|from| from == datagram.from)
        };
        let found: Vec<_> = self.recorded.iter().filter(suits).collect();
        if found.is_empty() {
            return None;
        }
        Some(found[below(&mut self.random, found.len())].clone())
    }
}

impl Middle for Attacker {
    fn push(&mut self, now: Duration, from: usize, frame: &[u8]) {
        self.advance(now);
        let Some(datagram) = Datagram::parse(now, from, frame) else {
            if let Some(length) = answer(frame) {
                self.note(now, from, length, What::Other);
            }
            return self.leave(now, 1 - from, frame.to_vec());
        };
        let new = self.flows.insert(datagram.flow, now).is_none();
        let what = if new { What::NewFlow } else { What::Datagram };
        self.note(now, from, datagram.packet().len(), what);
        match self.phase {
            Phase::Ready(awaited) if awaited == from => self.attack(&datagram),
            Phase::Start => {
                self.phase = Phase::Rest(now + self.plan.settle);
                self.leave(now, 1 - from, datagram.frame.clone());
            }
            _ => self.leave(now, 1 - from, datagram.frame.clone()),
        }
        self.record(datagram);
    }

    fn pop(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        self.advance(now);
        let Reverse((due, ..)) = self.leaving.peek()?;
        if *due > now {
            return None;
        }
        self.leaving.pop().map(|Reverse((_, _, to, frame))| (to, frame))
    }

    fn next_departure(&self) -> Option<Duration> {
        self.leaving.peek().map(|Reverse((due, ..))| *due)
    }
}

/// The length of an IPv6 packet that could be an answer: anything that comes from a gateway, but for what neighbors and
/// routers say to each other all the time. The router between them is no end: what it says about options that every
/// router reads, it says of any site. An advertisement for an address in a prefix that endpoints move in is an answer.
fn answer(frame: &[u8]) -> Option<usize> {
    let frame = Frame::parse(frame).ok().filter(|frame| frame.ethertype() == ETHERTYPE_IPV6)?;
    let packet = ipv6::Packet::parse(frame.payload()).ok()?;
    let moves = |address| [Site::A, Site::B].iter().any(|site| site.in_hop_prefix(address));
    let message = icmpv6::Message::of_packet(&packet).ok();
    let answers = match message.as_ref().map(icmpv6::Message::message_type) {
        Some(icmpv6::NEIGHBOR_ADVERTISEMENT) => {
            let target = message.and_then(|message| message.payload().first_chunk::<16>().copied());
            target.is_some_and(|target| moves(target.into()))
        }
        Some(icmpv6::MULTICAST_LISTENER_QUERY..=icmpv6::REDIRECT | icmpv6::MULTICAST_LISTENER_REPORT) => {
            false
        }
        _ => {
            let source = packet.source();
            let gateway = |site: &Site| site.outer(Topology::Routed).parse() == Ok(source);
            moves(source) || [Site::A, Site::B].iter().any(gateway)
        }
    };
    answers.then_some(frame.payload().len())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::super::packet;
    use super::super::packet::tests::datagram;
    use super::*;

    fn plan(kinds: &[&str]) -> Plan {
        let kinds = Kind::chosen(&kinds.iter().map(ToString::to_string).collect::<Vec<_>>());
        Plan { kinds, tries: 3, baseline: 3, settle: Duration::from_secs(12), scale: 1, seed: 1 }
    }

    /// Two ends that send ten datagrams a second each, with new addresses every four seconds; what left, by time and port.
    fn play(attacker: &mut Attacker, seconds: u64) -> Vec<(Duration, usize, Vec<u8>)> {
        let mut left = Vec::new();
        for step in 0..seconds * 1_000 {
            let now = Duration::from_millis(step);
            if step % 50 == 0 {
                let host = (step / 4_000) as u16 + 1;
                let from = usize::from(step % 100 == 0);
                attacker.push(now, from, &datagram(now, from, host, &step.to_be_bytes()).frame);
            }
            while let Some((to, frame)) = attacker.pop(now) {
                left.push((now, to, frame));
            }
        }
        left
    }

    #[test]
    fn each_kind_is_tried_as_often_as_planned_and_so_is_nothing() {
        let mut attacker = Attacker::new(plan(&[]));
        play(&mut attacker, 700);
        let outcomes = attacker.outcomes().expect("all done");
        for kind in Kind::all().iter().chain([&Kind::Nothing]) {
            let count = outcomes.iter().filter(|outcome| outcome.kind == kind.to_string()).count();
            assert_eq!(count, 3, "{kind}");
        }
    }

    #[test]
    fn where_nothing_is_tried_all_passes_as_it_came() {
        let mut attacker = Attacker::new(Plan { kinds: Vec::new(), ..plan(&[]) });
        let left = play(&mut attacker, 40);
        assert!(attacker.outcomes().is_some());
        for (number, (now, to, frame)) in left.iter().enumerate() {
            let step = number as u64 * 50;
            assert_eq!((*now, *to), (Duration::from_millis(step), usize::from(!step.is_multiple_of(100))));
            assert!(frame.ends_with(&step.to_be_bytes()));
        }
    }

    #[test]
    fn a_dropped_datagram_is_counted_and_a_second_one_is_not() {
        for (kind, difference) in [("drop", -3), ("duplicate", 3), ("error.2.live", 3), ("error.2.old", 3)] {
            let mut attacker = Attacker::new(plan(&[kind]));
            let left = play(&mut attacker, 60);
            assert_eq!(left.len() as i64, 60 * 20 + difference, "{kind}");
            let outcomes = attacker.outcomes().expect("all done");
            let counts = outcomes.iter().map(|outcome| outcome.features[8] + outcome.features[9]);
            assert!(counts.clone().all(|count| count == 40.0), "{kind} {:?}", counts.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_gateway_answers_and_the_router_between_does_not() {
        let from = |source: &str, message: [u8; 2], body: &[u8]| {
            let source = source.parse().expect("an address");
            let ends = (source, Ipv6Addr::LOCALHOST);
            let bytes = packet::icmpv6(ends, message, 0, body);
            answer(&packet::frame(
                datagram(Duration::ZERO, 0, 1, b"").back(),
                ends,
                packet::ICMPV6,
                64,
                &bytes,
            ))
        };
        assert_eq!(from("2001:db8:b1::77", [129, 0], b"echo"), Some(52));
        assert_eq!(from("2001:db8:fb::2", [4, 2], b""), Some(48));
        assert_eq!(from("2001:db8:fb::1", [4, 2], b""), None);
        let target = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets();
        assert_eq!(from("fe80::1", [136, 0], &target("2001:db8:b1::77")), Some(64));
        assert_eq!(from("fe80::1", [136, 0], &target("2001:db8:fb::2")), None);
        assert_eq!(from("2001:db8:fb::2", [135, 0], &target("2001:db8:fb::1")), None);
    }

    #[test]
    fn an_old_quote_has_live_addresses_and_expired_bytes() {
        let mut attacker = Attacker::new(plan(&["error.1.live"]));
        play(&mut attacker, 11);
        let now = Duration::from_secs(11);
        let live = datagram(now, 0, 3, b"new");
        let quoted = attacker.quoted(&live, Quote::Old).expect("something has expired");
        assert_eq!(quoted.flow, live.flow);
        let sent = u64::from_be_bytes(
            *Datagram::parse(now, 0, &quoted.frame)
                .expect("a datagram")
                .payload()
                .first_chunk()
                .expect("eight bytes"),
        );
        assert!(sent < 6_000 && sent % 100 == 50, "{sent}: of the same end, and old");
    }
}
