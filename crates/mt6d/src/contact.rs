//! First contact with a peer: where to listen for its first messages, and when to try with ours
//! (docs/protocol.md, "Rendezvous").

use std::collections::BTreeMap;
use std::net::SocketAddrV6;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use ipnet::Ipv6Net;
use rustc_hash::FxHashSet;

use crate::envelope::Ephemeral;
use crate::handshake::InitiatorState;
use crate::host_interface::{HostInterface, Purpose};
use crate::id::{EndpointId, Epoch, PairingId, PeerId};
use crate::keys::PairKeys;
use crate::rendezvous::{self, Rendezvous};
use crate::tier::{Tier, TierEpoch};
use crate::time::{Now, Time};

/// Tries in one tier before the next.
const ATTEMPTS_IN_TIER: u32 = 3;
/// From one copy of a first message to the next. There are two at least.
const COPY: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_millis(1500);
/// None leaves so long after the first.
const LAST_COPY: Duration = Duration::from_millis(2500);
/// How long a try lasts.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(3);
/// A try is forgotten this long after its first copy left. An answer that came too late is told from a stranger's
/// datagram until then.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(6);
/// Longest pause between two tries.
const LONGEST_PAUSE: u64 = 60;
/// Once all tiers were tried in vain, the tier changes with each so many milliseconds of Unix time: so two ends that
/// both sit behind stateful firewalls try in the same tier at about the same time.
const SLICE: u64 = 120_000;
/// First messages remembered for each rendezvous endpoint. Only the peer can make one, so there are few.
const REMEMBERED: usize = 4096;

/// A rendezvous endpoint that is open or being opened.
struct Listener {
    id: EndpointId,
    open: bool,
    /// The peer's own, which only the peer can choose, so a plain hash will do.
    seen: FxHashSet<Ephemeral>,
}

/// The rendezvous endpoints of this node towards one peer.
pub(crate) struct Listeners {
    pairing: PairingId,
    rendezvous: Rendezvous,
    open: BTreeMap<TierEpoch, Listener>,
    tiers: &'static [Tier],
    /// Unix times, in milliseconds, at which nothing is to be opened or closed; and what was kept beyond its time.
    settled: (Range<u64>, Option<TierEpoch>),
}

impl Listeners {
    pub(crate) fn new(keys: &PairKeys, clockless: bool) -> Self {
        let tiers = if clockless { &Tier::ALL[..] } else { &Tier::ALL[..2] };
        Listeners {
            pairing: PairingId::default(),
            rendezvous: Rendezvous::new(keys),
            open: BTreeMap::new(),
            tiers,
            settled: (0..0, None),
        }
    }

    /// Of this pairing, before any is open.
    pub(crate) fn are_of(&mut self, pairing: PairingId) {
        self.pairing = pairing;
    }

    /// Opens what the time asks for, closes the rest but `keep`. When to be called again.
    pub(crate) fn poll(
        &mut self,
        now: Now,
        peer: PeerId,
        keys: &PairKeys,
        prefix: Ipv6Net,
        keep: Option<TierEpoch>,
        host: &mut HostInterface,
    ) -> Time {
        if !self.settled.0.contains(&now.unix_ms) || self.settled.1 != keep {
            self.open_and_close(now.unix_ms, peer, keys, prefix, keep, host);
            let changes = self.tiers.iter().map(|t| self.rendezvous.window_changes(*t, now.unix_ms)).min();
            self.settled = (now.unix_ms..changes.unwrap_or(u64::MAX), keep);
        }
        now.boot + Duration::from_millis(self.settled.0.end - now.unix_ms)
    }

    fn open_and_close(
        &mut self,
        unix_ms: u64,
        peer: PeerId,
        keys: &PairKeys,
        prefix: Ipv6Net,
        keep: Option<TierEpoch>,
        host: &mut HostInterface,
    ) {
        let windows: Vec<_> = self.tiers.iter().map(|t| (*t, self.rendezvous.window(*t, unix_ms))).collect();
        self.open.retain(|at, listener| {
            let wanted =
                keep == Some(*at) || windows.iter().any(|(t, w)| *t == at.tier && w.contains(&at.epoch));
            if !wanted {
                host.close(listener.id);
            }
            wanted
        });
        for (tier, window) in windows {
            for epoch in (window.start().0..=window.end().0).map(Epoch) {
                self.listen(TierEpoch { tier, epoch }, peer, keys, prefix, host);
            }
        }
    }

    /// The endpoint of an epoch, asked for now if need be. Tries leave from it too: where both ends try at once, each
    /// opens its stateful firewall for the other.
    pub(crate) fn listen(
        &mut self,
        at: TierEpoch,
        peer: PeerId,
        keys: &PairKeys,
        prefix: Ipv6Net,
        host: &mut HostInterface,
    ) -> EndpointId {
        let listener = self.open.entry(at).or_insert_with(|| {
            let local = rendezvous::endpoint(keys, keys.role, prefix, at.tier, at.epoch);
            let id = host.open(peer, Purpose::Rendezvous(self.pairing, at), local, None);
            Listener { id, open: false, seen: FxHashSet::default() }
        });
        listener.id
    }

    /// The endpoint of an epoch, if it is open.
    pub(crate) fn open_at(&self, at: TierEpoch) -> Option<EndpointId> {
        self.open.get(&at).filter(|l| l.open).map(|l| l.id)
    }

    /// An endpoint is open.
    pub(crate) fn opened(&mut self, at: TierEpoch) {
        if let Some(listener) = self.open.get_mut(&at) {
            listener.open = true;
        }
    }

    /// An endpoint could not be opened: without it there are others. It is asked for again when the next change.
    pub(crate) fn open_failed(&mut self, at: TierEpoch, host: &mut HostInterface) {
        if let Some(listener) = self.open.remove(&at) {
            host.close(listener.id);
        }
    }

    /// Closes all.
    pub(crate) fn close(&mut self, host: &mut HostInterface) {
        self.settled = (0..0, None);
        for listener in std::mem::take(&mut self.open).into_values() {
            host.close(listener.id);
        }
    }

    /// Whether a first message came before, or so many have that nobody knows.
    pub(crate) fn seen(&self, at: TierEpoch, first: &Ephemeral) -> bool {
        self.open
            .get(&at)
            .is_none_or(|listener| listener.seen.len() >= REMEMBERED || listener.seen.contains(first))
    }

    /// Remembers a first message. Only what was verified in all respects comes here: a copy from elsewhere must not be
    /// in the genuine one's way.
    pub(crate) fn remember(&mut self, at: TierEpoch, first: Ephemeral) {
        if let Some(listener) = self.open.get_mut(&at) {
            listener.seen.insert(first);
        }
    }

    /// Whether an epoch is no later than what is listened to at some time.
    pub(crate) fn within(&self, at: TierEpoch, unix_ms: u64) -> bool {
        at.epoch <= *self.rendezvous.window(at.tier, unix_ms).end()
    }

    /// The tiers in use.
    pub(crate) fn tiers(&self) -> &'static [Tier] {
        self.tiers
    }

    /// The epoch of a tier at some time.
    pub(crate) fn epoch(&self, tier: Tier, unix_ms: u64) -> Epoch {
        self.rendezvous.current(tier, unix_ms)
    }
}

/// A try: one fresh handshake, its first message sent several times within one epoch, each time in an envelope of its own.
pub(crate) struct Attempt {
    pub(crate) first: FirstMessage,
    /// When its first copy left, or was made.
    pub(crate) begun: Time,
    pub(crate) pending: Option<InitiatorState>,
    /// When the first copy of its message left; it waits for the endpoint until then.
    pub(crate) left: Option<Time>,
    /// When the next copy leaves; none if that was the last.
    next_copy: Option<Time>,
    /// The peer was heard meanwhile, but may not have been: the next copy is another message, which says what was heard.
    renews: Renews,
}

/// Whether a try's message is replaced by another. Once at most: it gives up the answer to the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renews {
    No,
    WithNextCopy,
    Has,
}

/// A first message, and where it goes.
pub(crate) struct FirstMessage {
    pub(crate) pairing: PairingId,
    pub(crate) at: TierEpoch,
    pub(crate) from: EndpointId,
    pub(crate) to: SocketAddrV6,
    /// Where the peer is thought to hop.
    pub(crate) remote_prefix: Ipv6Net,
    pub(crate) ephemeral: Ephemeral,
    /// Claim and Noise message.
    pub(crate) message: Vec<u8>,
}

/// Tries, and the pauses between them.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Apart, as most peers have none.
    pub(crate) current: Option<Box<Attempt>>,
    /// Tries since there was reason to try.
    count: u32,
    /// When the next try may begin.
    next: Option<Time>,
    /// When there began to be reason.
    since: Option<Time>,
    /// Where the last one went.
    to: Option<SocketAddrV6>,
    /// When its last copy left.
    copied: Option<Time>,
}

/// Tries to reach a peer, as the status shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptStatus {
    /// For how long there has been reason to try.
    pub since: Duration,
    /// How many there were.
    pub tries: u32,
    /// Where the last one went; none before the first.
    pub to: Option<SocketAddrV6>,
}

impl Attempts {
    /// Whether there is reason to try already.
    pub(crate) fn active(&self) -> bool {
        self.next.is_some()
    }

    /// There is reason to try: at once, if there was none before.
    pub(crate) fn begin(&mut self, now: Time) {
        self.next.get_or_insert(now);
        self.since.get_or_insert(now);
    }

    /// There is more reason than before: the first try need not wait. Whether it would have.
    pub(crate) fn expedite(&mut self, now: Time) -> bool {
        let waits = self.count == 0 && self.next.is_some_and(|next| next > now);
        if waits {
            self.next = Some(now);
        }
        waits
    }

    /// There is no reason any more.
    pub(crate) fn stop(&mut self) {
        *self = Attempts::default();
    }

    /// When there began to be reason to try, if there is.
    pub(crate) fn since(&self) -> Option<Time> {
        self.since.filter(|_| self.active())
    }

    /// How it goes; none if there is no reason to try.
    pub(crate) fn status(&self, now: Time) -> Option<AttemptStatus> {
        let since = self.since()?;
        Some(AttemptStatus { since: now.since(since), tries: self.count, to: self.to })
    }

    /// A copy of the try's message leaves.
    pub(crate) fn note_copy(&mut self, now: Time) {
        self.copied = Some(now);
    }

    /// When the last copy of a message left.
    pub(crate) fn last_copy(&self) -> Option<Time> {
        self.copied
    }

    /// A try begins, with a message of its own.
    pub(crate) fn start(&mut self, attempt: Attempt) {
        self.to = Some(attempt.first.to);
        self.current = Some(Box::new(attempt));
    }

    /// Whether all tiers were tried in vain.
    pub(crate) fn tried_all_tiers(&self, tiers: &[Tier]) -> bool {
        self.count > ATTEMPTS_IN_TIER * tiers.len() as u32
    }

    /// Whether the first tries of the quickest tier are over.
    pub(crate) fn slow(&self) -> bool {
        self.count > ATTEMPTS_IN_TIER
    }

    /// Whether a new try is to begin: its tier, and its place in the row of tries.
    pub(crate) fn due(&mut self, now: Now, tiers: &[Tier], host: &mut HostInterface) -> Option<(Tier, u32)> {
        if self.next.is_none_or(|next| now.boot < next) {
            return None;
        }
        let number = self.count;
        self.count += 1;
        let pause = 1u64.checked_shl(number).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE) * 1000;
        let pause = host.random(pause * 3 / 4..=pause * 5 / 4);
        self.next = Some(now.boot + ATTEMPT + Duration::from_millis(pause));
        Some((self.tier(number, now, tiers), number))
    }

    /// A try beside those that have their turn: the next of them waits until it is over. Its tier.
    pub(crate) fn beside(&mut self, now: Now, tiers: &[Tier]) -> Tier {
        self.next = self.next.map(|next| next.max(now.boot + ATTEMPT));
        self.tier(self.count.saturating_sub(1), now, tiers)
    }

    fn tier(&self, number: u32, now: Now, tiers: &[Tier]) -> Tier {
        let group = if self.tried_all_tiers(tiers) {
            now.unix_ms / SLICE
        } else {
            u64::from(number / ATTEMPTS_IN_TIER)
        };
        tiers[group as usize % tiers.len()]
    }

    /// When there is something to do; copies leave only if their endpoint `is_open`.
    pub(crate) fn deadline(&self, is_open: impl Fn(&FirstMessage) -> bool) -> Option<Time> {
        let copy = self.current.as_ref().filter(|t| is_open(&t.first)).and_then(|t| t.next_copy());
        let over = self.current.as_ref().and_then(|t| t.left).map(|left| left + FORGOTTEN_AFTER);
        [copy, over, self.next].into_iter().flatten().min()
    }
}

impl Attempt {
    /// A try that begins now.
    pub(crate) fn new(first: FirstMessage, pending: InitiatorState, now: Time) -> Self {
        let (pending, next_copy) = (Some(pending), Some(now));
        Attempt { first, begun: now, pending, left: None, next_copy, renews: Renews::No }
    }

    /// The next copy is to be another message.
    pub(crate) fn renew(&mut self) {
        if self.renews == Renews::No {
            self.renews = Renews::WithNextCopy;
        }
    }

    /// Whether the copy that is due now is to be another message: it takes the place of the first.
    pub(crate) fn renewal_due(&mut self, now: Time) -> bool {
        let due = self.renews == Renews::WithNextCopy && self.left.is_some();
        due && self.next_copy().is_some_and(|at| at <= now)
    }

    /// Puts another message in the place of the first.
    pub(crate) fn replace(&mut self, first: FirstMessage, pending: InitiatorState, now: Time) {
        (self.first, self.pending, self.left) = (first, Some(pending), Some(now));
        self.renews = Renews::Has;
    }

    /// Whether no answer can come any more that would be taken.
    pub(crate) fn over(&self, now: Time) -> bool {
        self.left.is_some_and(|left| now.since(left) >= FORGOTTEN_AFTER)
    }

    /// Whether a copy is to leave now.
    pub(crate) fn copy_due(&mut self, now: Time, host: &mut HostInterface) -> bool {
        if self.next_copy().is_none_or(|at| now < at) {
            return false;
        }
        if self.left.is_none() {
            (self.begun, self.left) = (now, Some(now));
        }
        let next = now + host.pause(COPY);
        self.next_copy = Some(next).filter(|next| next.since(self.begun) <= LAST_COPY);
        true
    }

    fn next_copy(&self) -> Option<Time> {
        self.next_copy.filter(|_| self.pending.is_some())
    }
}
