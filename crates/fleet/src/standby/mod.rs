//! Two gateways of one site, which have one identity and one key: which of them is met, sans-IO.
//!
//! Each agent has one of these. It is told what the daemon beside it says, what comes from the other gateway, and what the fleet's
//! register has; it says what to tell these.
//!
//! A *turn* has a number, larger than all before; it is the active gateway's, which puts it into its handshakes, so that peers
//! begin nothing with one whose turn is over. That is the fence, and it needs no clock. So a turn may begin as soon as it is
//! likely that the other gateway is gone, and nobody has to wait until a time is over:
//!
//! - Who hears the other one say that it cannot go on begins a turn. Both have agreed on that, so no register is needed.
//! - Who hears nothing says in the register that it doubts. An active one that is there sees that and takes the doubt out again.
//!   Where nobody does, for some round trips, the register is replaced, under the condition that nobody did.
//! - Who knows of a turn that is later than its own is not active, whatever else it hears.
//! - Who had the last turn that it knows of may go on with it, for the same reason: if somebody has begun another, peers know.
//!
//! Times are since any moment, the same for all calls, and go on while the machine sleeps.

mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::authority::NetworkId;
use crate::key::SigningKey;
use crate::name::Name;
use crate::signed::Signed;

pub use words::{
    Ability, BEAT_PORT, Beat, FromRegister, REGISTER, Registered, Run, ToRegister, Turn, Wish, Wishing,
};

/// How many lives of the other gateway's agent are remembered, so that nothing of an earlier one passes for new.
const RUNS: usize = 16;
/// A doubt lasts so many times as long as it took to be put, at least: an answer takes the way there, and another back.
const ROUND_TRIPS: u32 = 3;
/// After a doubt that was answered, the next one is due as late as this.
const CALM: Duration = Duration::from_secs(10);
/// How long after its beginning a turn is announced in any case. Later on only who hears the other one, and so would be told of a
/// later turn.
const NEW: Duration = Duration::from_secs(3);
/// Where neither register nor the other gateway is there, who had the last turn goes on after so many times the silence.
const ALONE: u32 = 10;
/// How long what was put may take.
const PUT: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send this to the other gateway.
    Beat(Box<Signed<Beat>>),
    /// Ask the daemon to be active, or not; it answers with [`Gateway::daemon`]. Does no harm when it is repeated.
    Tell {
        /// Its turn; `None`: it is not to be met.
        turn: Option<u64>,
        /// It may tell its links that it is there.
        announce: bool,
    },
    /// The register may be asked soon: connect to it.
    Prepare,
    /// Replace the register, if it still has this version. To be answered with [`Gateway::registered`], where there is an answer,
    /// and with [`Gateway::put_ended`] in any case.
    Put {
        /// The version.
        at: u64,
        /// By this.
        turn: Box<Signed<Turn>>,
    },
    /// Keep the last turn of this machine over a restart.
    Keep(u64),
}

/// What a gateway is, for a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The turn that this gateway has.
    pub active: Option<u64>,
    /// The last turn that anybody has begun, as far as is known here.
    pub known: u64,
    /// What the other one said last, and how long ago.
    pub other: Option<(Ability, Duration)>,
    /// Whether the register answers.
    pub register: bool,
}

/// The other gateway.
#[derive(Debug, Clone, Copy)]
struct Other {
    run: Run,
    at: Duration,
    /// It said so to this run.
    to_us: bool,
    ability: Ability,
    held: u64,
}

/// What waits in the register for the other one's answer.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    version: u64,
    until: Duration,
}

/// A gateway of a site that has two.
#[derive(Debug)]
pub struct Gateway {
    network: NetworkId,
    site: Name,
    identity: Arc<SigningKey>,
    run: Run,
    /// After how long without a sign of life the other one is doubted.
    silence: Duration,
    began: Duration,
    /// When the daemon answered last, and with which turn.
    daemon: Option<(Duration, Option<u64>)>,
    /// What the daemon is to be.
    active: Option<u64>,
    since: Duration,
    known: u64,
    held: u64,
    other: Option<Other>,
    counts: BTreeMap<Run, u64>,
    count: u64,
    version: Option<u64>,
    turn: Option<Turn>,
    /// What is being put, and since when.
    putting: Option<(Turn, Duration)>,
    doubt: Option<Doubt>,
    calm_until: Duration,
    prepared: bool,
    beat_at: Duration,
    tell_at: Duration,
    actions: VecDeque<Action>,
}

impl Gateway {
    /// A gateway whose machine had the turn `held` last; 0 if none. `silence`: after how long without a sign of life the other
    /// one is doubted.
    #[must_use]
    pub fn new(
        (network, site): (NetworkId, Name),
        identity: Arc<SigningKey>,
        run: Run,
        held: u64,
        silence: Duration,
        now: Duration,
    ) -> Self {
        Gateway {
            network,
            site,
            identity,
            run,
            silence,
            began: now,
            daemon: None,
            active: None,
            since: now,
            known: held,
            held,
            other: None,
            counts: BTreeMap::new(),
            count: 0,
            version: None,
            turn: None,
            putting: None,
            doubt: None,
            calm_until: now,
            prepared: false,
            beat_at: now,
            tell_at: now,
            actions: VecDeque::new(),
        }
    }

    /// Between two signs of life.
    fn between(&self) -> Duration {
        self.silence / 5
    }

    /// How long the daemon may take to answer.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.silence * 5 / 3
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Gateway::handle_timeout`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let doubt = self.doubt.map_or(Duration::MAX, |doubt| doubt.until);
        self.beat_at.min(self.tell_at).min(doubt)
    }

    /// How it is.
    #[must_use]
    pub fn state(&self, now: Duration) -> State {
        State {
            active: self.active.filter(|_| self.is_able(now)),
            known: self.known,
            other: self.other.map(|other| (other.ability, now.saturating_sub(other.at))),
            register: self.version.is_some(),
        }
    }

    /// Does what is due. `unix_s`: seconds of Unix time, for the number of a turn where nothing else is known.
    pub fn handle_timeout(&mut self, now: Duration, unix_s: u64) {
        if self.tell_at <= now {
            self.tell(now);
        }
        let is_late = self.other.is_some_and(|other| now.saturating_sub(other.at) > self.silence / 2);
        let is_wanted = is_late && self.active.is_none();
        if is_wanted && !self.prepared {
            self.actions.push_back(Action::Prepare);
        }
        self.prepared = is_wanted;
        self.decide(now, unix_s);
        if self.beat_at <= now {
            self.beat(now);
        }
    }

    fn tell(&mut self, now: Duration) {
        self.tell_at = now + self.between();
        // What it is will be known when it has answered once.
        let announce = self.active.is_some() && (now < self.since + NEW || self.hears(now).is_some());
        self.actions.push_back(Action::Tell { turn: self.active, announce });
    }

    fn beat(&mut self, now: Duration) {
        self.beat_at = now + self.between();
        self.count += 1;
        let beat = Beat {
            network: self.network,
            site: self.site.clone(),
            run: self.run,
            count: self.count,
            hears: self.other.map(|other| other.run),
            ability: match self.is_able(now) {
                false => Ability::Unable,
                true if self.active.is_some() => Ability::Active,
                true => Ability::Able,
            },
            known: self.known,
            held: self.held,
        };
        self.actions.push_back(Action::Beat(Box::new(Signed::new(&beat, [&*self.identity]))));
    }

    /// The daemon has answered: which turn it has. One that is active where nothing is known yet, as its agent has begun anew,
    /// stays so.
    pub fn daemon(&mut self, turn: Option<u64>, now: Duration) {
        if self.daemon.is_none()
            && let Some(turn) = turn.filter(|turn| *turn >= self.known)
        {
            (self.active, self.known, self.held) = (Some(turn), turn, turn);
            // It may be over: before that is known, nobody is led here.
            self.since = now.saturating_sub(NEW);
        }
        self.daemon = Some((now, turn));
    }

    /// The daemon does something that takes a while, and is there, if it was before.
    pub fn daemon_is_busy(&mut self, now: Duration) {
        if self.is_able(now) {
            self.daemon = self.daemon.map(|(_, turn)| (now, turn));
        }
    }

    /// The daemon is not there.
    pub fn daemon_is_gone(&mut self, now: Duration) {
        if self.is_able(now) {
            // Who could begin a turn is told at once.
            self.beat_at = now;
        }
        self.daemon = self.daemon.map(|(at, _)| (at.min(now.saturating_sub(self.patience())), None));
    }

    fn is_able(&self, now: Duration) -> bool {
        self.daemon.is_some_and(|(at, _)| now.saturating_sub(at) < self.patience())
    }

    /// Something came to the port of [`BEAT_PORT`]. What the site has not signed is passed over.
    pub fn heard(&mut self, signed: &Signed<Beat>, now: Duration) {
        let Ok(beat) = signed.read() else { return };
        if beat.run == self.run || beat.site != self.site || beat.network != self.network {
            return;
        }
        let last = self.counts.get(&beat.run).copied().unwrap_or_default();
        if beat.count <= last || !signed.is_signed_by(self.identity.public()) {
            return;
        }
        if self.counts.len() == RUNS && !self.counts.contains_key(&beat.run) {
            self.counts.pop_first();
        }
        self.counts.insert(beat.run, beat.count);
        self.known = self.known.max(beat.known);
        let to_us = beat.hears == Some(self.run);
        // An earlier life of it does not come between.
        if to_us || self.other.is_none_or(|other| !other.to_us || other.run == beat.run) {
            let (run, ability, held) = (beat.run, beat.ability, beat.held);
            self.other = Some(Other { run, at: now, to_us, ability, held });
        }
    }

    /// The other one, if it is there.
    fn hears(&self, now: Duration) -> Option<Other> {
        self.other.filter(|other| other.to_us && now.saturating_sub(other.at) < self.silence)
    }

    /// The register has this. What the site has not signed counts as nothing.
    pub fn registered(&mut self, registered: &Registered, unix_s: u64, now: Duration) {
        if self.version.is_some_and(|version| registered.version < version) {
            return;
        }
        self.version = Some(registered.version);
        let signed = registered.turn.as_ref();
        let signed = signed.filter(|signed| signed.is_signed_by(self.identity.public()));
        let turn = signed.and_then(|signed| signed.read().ok());
        self.turn = turn.filter(|turn| turn.network == self.network && turn.site == self.site);
        let Some(turn) = self.turn.clone() else { return self.decide(now, unix_s) };
        self.known = self.known.max(turn.turn);
        let put = self.putting.take_if(|(put, _)| *put == turn);
        if let Some((_, since)) = put.filter(|_| turn.doubted_by == Some(self.run)) {
            let wait = (self.silence / 3).max(now.saturating_sub(since) * ROUND_TRIPS);
            self.doubt = Some(Doubt { version: registered.version, until: now + wait });
        } else if turn.run == self.run && turn.turn > self.held {
            self.begin(turn.turn, now);
        } else if self.doubt.take_if(|doubt| doubt.version != registered.version).is_some() {
            // Somebody is there.
            self.calm_until = now + CALM;
        }
        self.decide(now, unix_s);
    }

    /// Nothing more is heard of what was to be put: it was or was not, or nobody knows.
    pub fn put_ended(&mut self) {
        self.putting = None;
    }

    /// This process did not run for a while: what it knows of others may be as old as that.
    pub fn slept(&mut self, now: Duration) {
        self.other = None;
        self.since = now.saturating_sub(NEW);
        self.began = now;
        self.register_is_gone();
    }

    /// The register does not answer.
    pub fn register_is_gone(&mut self) {
        (self.version, self.doubt, self.putting) = (None, None, None);
    }

    fn begin(&mut self, turn: u64, now: Duration) {
        self.doubt = None;
        self.known = self.known.max(turn);
        if turn < self.known {
            return;
        }
        (self.active, self.held, self.since) = (Some(turn), turn, now);
        self.actions.push_back(Action::Keep(turn));
        self.beat_at = now;
        self.tell(now);
    }

    /// The number of a turn of this run's: no other run has the same.
    fn next(&self, unix_s: u64) -> u64 {
        (((self.known >> 16) + 1).max(unix_s) << 16) | (self.run.0 & 0xffff)
    }

    fn put(&mut self, at: u64, turn: u64, run: Run, doubted_by: Option<Run>, now: Duration) {
        if self.putting.as_ref().is_some_and(|(_, since)| now.saturating_sub(*since) < PUT) {
            return;
        }
        let turn = Turn { network: self.network, site: self.site.clone(), turn, run, doubted_by };
        let signed = Signed::new(&turn, [&*self.identity]);
        self.putting = Some((turn, now));
        self.actions.push_back(Action::Put { at, turn: Box::new(signed) });
    }

    fn decide(&mut self, now: Duration, unix_s: u64) {
        if self.active.is_some_and(|turn| turn < self.known) {
            // Somebody has begun another.
            self.active = None;
            self.tell(now);
            self.beat_at = now;
        }
        let registered = self.version.map(|version| (version, self.turn.clone()));
        if let Some(turn) = self.active {
            let Some((version, registered)) = registered else { return };
            let is_there = registered.is_some_and(|known| known.turn == turn && known.doubted_by.is_none());
            // While it can do nothing it does not say that it is there.
            if !is_there && self.is_able(now) {
                self.put(version, turn, self.run, None, now);
            }
            return;
        }
        if !self.is_able(now) || now < self.began + self.silence * 2 {
            return;
        }
        if let Some(other) = self.hears(now) {
            self.doubt = None;
            let is_ours = match other.ability {
                Ability::Active => false,
                Ability::Unable => true,
                Ability::Able => (self.held, other.run) > (other.held, self.run),
            };
            match registered {
                _ if !is_ours => {}
                Some((version, _)) => self.put(version, self.next(unix_s), self.run, None, now),
                // Both know that nobody else is there to begin one.
                None => self.begin(self.next(unix_s), now),
            }
            return;
        }
        match registered {
            None => {
                let last = self.other.map_or(self.began, |other| other.at).max(self.began);
                if self.held > 0 && self.held == self.known && now >= last + self.silence * ALONE {
                    self.begin(self.held, now);
                }
            }
            Some((version, Some(turn))) if turn.run != self.run && turn.turn != self.held => {
                self.doubt(version, &turn, now, unix_s);
            }
            Some((version, _)) => self.put(version, self.next(unix_s), self.run, None, now),
        }
    }

    /// Somebody else has the turn, and nothing is heard of it.
    fn doubt(&mut self, version: u64, turn: &Turn, now: Duration, unix_s: u64) {
        match self.doubt {
            Some(doubt) if now >= doubt.until => self.put(version, self.next(unix_s), self.run, None, now),
            Some(_) => {}
            None if now < self.calm_until => {}
            None => self.put(version, turn.turn, turn.run, Some(self.run), now),
        }
    }
}
