//! The other gateway of the site, if it has two: whose turn it is. What is decided is in [`fleet::standby`].
//!
//! A task beside the agent's loop, with as little in its way as possible: it asks the daemon several times in the time after which
//! silence means something, and hears the other gateway at addresses that both machines have to themselves.

mod event;
mod links;
mod register;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::standby::{Be, Turn, View};
use fleet::agent::Asker;
use fleet::signed::Signed;
use fleet::standby::{Ability, Action, Beat, Gateway as Standby, Run};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::folder::Folder;
use crate::gateway::Gateway;
use event::Event;
use links::Links;
use register::Register;

pub(crate) use register::Places;

/// How often it is looked whether there is another gateway at all.
const LOOK: Duration = Duration::from_secs(2);
/// How long the daemon may take to be met, or not to be any more: that changes rules and routes. It is there meanwhile.
const CHANGE: Duration = Duration::from_secs(2);

/// What it needs of the agent.
pub(crate) struct Beside {
    pub(crate) gateway: Gateway,
    pub(crate) asker: Asker,
    pub(crate) folder: Folder,
    pub(crate) places: watch::Receiver<Places>,
    /// Until when the daemon may be busy with what the agent has asked for, in milliseconds of CLOCK_BOOTTIME.
    pub(crate) busy_until: Arc<AtomicU64>,
}

/// Runs as long as the agent does.
pub(crate) async fn run(beside: Beside) {
    let mut told = None;
    loop {
        match beside.gateway.turn(None, LOOK).await {
            Ok(turn) => match Pair::new(&beside, turn) {
                Ok(pair) => {
                    told = None;
                    pair.run().await;
                }
                // Once for each reason.
                Err(why) => {
                    if told.as_ref() != Some(&why) {
                        warn!(event = "standby_waits", "this gateway cannot stand by: {why}");
                    }
                    told = Some(why);
                }
            },
            Err(error) => debug!("{error}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Since boot.
fn now() -> Duration {
    Duration::from_micros(linux::clock::boottime_us())
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// This gateway and the other one.
struct Pair<'b> {
    beside: &'b Beside,
    standby: Standby,
    silence: Duration,
    gateways: Vec<std::net::IpAddr>,
    links: Links,
    register: Register,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    /// The daemon is being told something, and what is to be said next.
    telling: bool,
    next: Option<(Option<u64>, bool)>,
    /// Which turn it had when it answered last, and whether it is being told of another.
    has: Option<u64>,
    is_changing: bool,
    /// What was told of the other one last, and why the daemon did not take its turn.
    told: Option<&'static str>,
    refused: Option<String>,
}

impl<'b> Pair<'b> {
    fn new(beside: &'b Beside, turn: Turn) -> Result<Self, String> {
        let (sender, events) = mpsc::channel(256);
        let links = Links::open(&turn.gateways, sender.clone())?;
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|error| error.to_string())?;
        let silence = silence_of(&turn);
        let asker = &beside.asker;
        let site = (asker.network(), asker.site().clone());
        let run = Run(u64::from_ne_bytes(run));
        let mut standby = Standby::new(site, asker.identity(), run, beside.folder.turn(), silence, now());
        // Before it is told anything: one that is active stays so when its agent begins anew.
        standby.daemon(turn.turn, now());
        let register = Register::start(asker.clone(), beside.places.clone(), sender.clone());
        Ok(Pair {
            beside,
            standby,
            silence,
            gateways: turn.gateways,
            links,
            register,
            sender,
            events,
            telling: false,
            next: None,
            has: turn.turn,
            is_changing: false,
            told: None,
            refused: None,
        })
    }

    /// Until the daemon is configured otherwise.
    async fn run(mut self) {
        info!(event = "standby_started", "this site has two gateways, of which one is active at a time");
        let mut last = now();
        loop {
            let at = now();
            if at.saturating_sub(last) > self.silence {
                // What has come meanwhile is as old as that.
                while self.events.try_recv().is_ok() {}
                self.standby.slept(at);
                self.register.begin_again();
                (self.telling, self.is_changing, self.next) = (false, false, None);
                warn!("this agent stood still for {} ms", (at.saturating_sub(last)).as_millis());
            }
            last = at;
            let reloads = at < Duration::from_millis(self.beside.busy_until.load(Relaxed));
            if reloads || self.is_changing {
                self.standby.daemon_is_busy(at);
            }
            if self.standby.deadline() <= at {
                self.standby.handle_timeout(at, unix_s());
            }
            while let Some(action) = self.standby.next_action() {
                self.act(action);
            }
            self.tell(at);
            self.note(at);
            let wait = self.standby.deadline().saturating_sub(now());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // This task has a sender itself, so there is always another event.
                Some(event) = self.events.recv() => {
                    if !self.happen(event) {
                        return;
                    }
                }
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Beat(beat) => self.links.send(&serde_json::to_vec(&*beat).expect("texts and numbers")),
            Action::Tell { turn, announce } => self.next = Some((turn, announce)),
            Action::Prepare => self.register.prepare(),
            Action::Put { at, turn } => self.register.put(at, *turn),
            Action::Keep(turn) => {
                if let Err(error) = self.beside.folder.keep_turn(turn) {
                    warn!("after a restart it is not known which turn this gateway had: {error}");
                }
            }
        }
    }

    /// Tells the daemon what it is to be; one thing after the other.
    fn tell(&mut self, at: Duration) {
        if self.telling {
            return;
        }
        let Some((turn, announce)) = self.next.take() else { return };
        (self.telling, self.is_changing) = (true, turn != self.has);
        let (state, patience) = (self.standby.state(at), self.standby.patience());
        let other = state.other.map(|(ability, ago)| (word(ability).to_owned(), ago.as_millis() as u64));
        let (other, other_ms) = other.unzip();
        let view = View { known: state.known, other, other_ms, register: state.register };
        // Before the other one, which hears nothing more of this one, begins a turn.
        let until_ms = (at + self.silence).as_millis() as u64;
        let be = Be { turn, announce, until_ms, view };
        let (gateway, events) = (self.beside.gateway.clone(), self.sender.clone());
        let within = if self.is_changing { CHANGE } else { patience };
        tokio::spawn(async move {
            let answer = gateway.turn(Some(be), within).await;
            let _ = events.send(Event::Daemon(answer)).await;
        });
    }

    /// Whether to go on.
    fn happen(&mut self, event: Event) -> bool {
        let at = now();
        match event {
            Event::Beat(bytes) => {
                if let Ok(beat) = serde_json::from_slice::<Signed<Beat>>(&bytes) {
                    self.standby.heard(&beat, at);
                }
            }
            Event::Daemon(answer) => {
                (self.telling, self.is_changing) = (false, false);
                match answer {
                    Ok(turn) if turn.gateways != self.gateways || silence_of(&turn) != self.silence => {
                        return false;
                    }
                    Ok(turn) => {
                        (self.has, self.refused) = (turn.turn, None);
                        self.standby.daemon(turn.turn, at);
                    }
                    Err(control::Error::Refused(why)) => {
                        // Once for each reason.
                        if self.refused.as_ref() != Some(&why) {
                            warn!(event = "turn_refused", "the daemon does not take its turn: {why}");
                        }
                        self.refused = Some(why);
                        self.standby.daemon_is_gone(at);
                    }
                    Err(control::Error::NotRunning { .. }) => {
                        self.has = None;
                        self.standby.daemon_is_gone(at);
                    }
                    // It takes longer than it should, or is gone with its answer: the next question tells.
                    Err(error) => debug!("{error}"),
                }
            }
            Event::Registered(Some(registered)) => self.standby.registered(&registered, unix_s(), at),
            Event::Registered(None) => self.standby.register_is_gone(),
            Event::Put(registered) => {
                if let Some(registered) = registered {
                    self.standby.registered(&registered, unix_s(), at);
                }
                self.standby.put_ended();
            }
        }
        true
    }

    /// Notes what has changed of the other one.
    fn note(&mut self, at: Duration) {
        let other = self.standby.state(at).other;
        let is = match other {
            Some((ability, ago)) if ago < self.silence => word(ability),
            Some(_) => "silent",
            None => return,
        };
        if self.told.replace(is) != Some(is) {
            info!(event = "other_gateway", "the other gateway of this site is {is}");
        }
    }
}

fn silence_of(turn: &Turn) -> Duration {
    Duration::from_millis(turn.silence_ms.max(100))
}

fn word(ability: Ability) -> &'static str {
    match ability {
        Ability::Active => "active",
        Ability::Able => "able",
        Ability::Unable => "unable",
    }
}
