//! What all of a simulation share.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet::agent::Agent;
use fleet::authority::NetworkId;
use fleet::fleet::Fleet;
use fleet::peers::SharedParts;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::controllers::Controllers;
use crate::event::Event;

/// How many documents are kept that agents share in memory.
const SHARED: usize = 12;

pub(crate) struct World {
    begin: Instant,
    pub(crate) seed: u64,
    pub(crate) network: NetworkId,
    pub(crate) controllers: Controllers,
    /// How each site is told something; none before it is there.
    pub(crate) mailboxes: RefCell<Vec<Option<UnboundedSender<Event>>>>,
    pub(crate) seen: RefCell<Vec<Seen>>,
    /// Texts that a gateway has as long as a site is not out.
    pub(crate) watched: RefCell<Vec<String>>,
    /// Sites that reach no controller.
    pub(crate) cut: RefCell<BTreeSet<usize>>,
    /// By serial.
    known: RefCell<BTreeMap<u64, Fleet>>,
    /// What gateways have.
    given: RefCell<SharedParts>,
    /// Octets between sites and controllers, and between sites.
    pub(crate) to_controllers: Cell<u64>,
    pub(crate) to_peers: Cell<u64>,
    /// Questions that controllers were asked in each second.
    pub(crate) asked: RefCell<BTreeMap<u64, u64>>,
    /// The longest that an agent has computed at once.
    pub(crate) longest: Cell<Duration>,
    /// What must not happen, and has.
    pub(crate) broken: RefCell<Vec<String>>,
}

/// What was seen of a site.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The document that it has.
    pub(crate) serial: u64,
    /// When it has become a member.
    pub(crate) enrolled: Option<Duration>,
    /// How often its gateway was given other peers.
    pub(crate) changes: u64,
    /// When its gateway was first without what is watched.
    pub(crate) out: Option<Duration>,
    /// When a controller has answered it last.
    pub(crate) answered: Option<Duration>,
}

impl World {
    pub(crate) fn new(seed: u64, network: NetworkId, controllers: Controllers, sites: usize) -> Self {
        World {
            begin: Instant::now(),
            seed,
            network,
            controllers,
            mailboxes: RefCell::new((0..sites).map(|_| None).collect()),
            seen: RefCell::new(vec![Seen::default(); sites]),
            watched: RefCell::default(),
            cut: RefCell::default(),
            known: RefCell::default(),
            given: RefCell::default(),
            to_controllers: Cell::default(),
            to_peers: Cell::default(),
            asked: RefCell::default(),
            longest: Cell::default(),
            broken: RefCell::default(),
        }
    }

    /// Since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(crate) fn at(&self, since: Duration) -> Instant {
        self.begin + since.min(self.now() + Duration::from_secs(3600))
    }

    pub(crate) fn see(&self, number: usize, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.borrow_mut()[number]);
    }

    /// An agent knows something else. What is the same at thousands is there once.
    pub(crate) fn learned(&self, number: usize, agent: &mut Agent) {
        let Some(serial) = agent.fleet().serial() else { return };
        let before = std::mem::replace(&mut self.seen.borrow_mut()[number].serial, serial.0);
        if before > serial.0 {
            let why = format!("site {number} has gone back from document {before} to {}", serial.0);
            self.broken.borrow_mut().push(why);
        }
        let mut known = self.known.borrow_mut();
        let same = known.entry(serial.0).or_insert_with(|| agent.fleet().clone());
        agent.share(same);
        if known.len() > SHARED {
            known.pop_first();
            self.given.borrow_mut().forget_unused();
        }
    }

    /// A gateway is given other peers.
    pub(crate) fn applied(&self, number: usize, agent: &mut Agent, text: &str) {
        agent.share_given(&mut self.given.borrow_mut());
        let (now, watched) = (self.now(), self.watched.borrow());
        let is_out = !watched.is_empty() && !watched.iter().any(|part| text.contains(part));
        self.see(number, |seen| {
            seen.changes += 1;
            if is_out {
                seen.out.get_or_insert(now);
            }
        });
    }

    pub(crate) fn count(counter: &Cell<u64>, octets: u64) {
        counter.set(counter.get() + octets);
    }

    pub(crate) fn note_question(&self) {
        *self.asked.borrow_mut().entry(self.now().as_secs()).or_default() += 1;
    }
}
