//! A site's agent, sans-IO: whom it asks and when, what it takes, and what its gateway is to do.
//!
//! It asks controllers, inside of the tunnels first, and waits there until something is new. Where none answers it asks its
//! peers the same, and answers theirs. Every now and then it asks a peer in any case: controllers that keep something from it
//! cannot keep it from everybody. It never gives up what it has.
//!
//! Times are since any moment, the same for all calls.

mod sources;

use std::collections::VecDeque;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::authority::NetworkId;
use crate::desk::Desk;
use crate::exchange::{Answer, Asking, Question};
use crate::fleet::Fleet;
use crate::key::{Digest, SigningKey};
use crate::name::Name;
use crate::news::{News, Refusal};
use crate::notice::{ContactNotice, NetworksNotice, next_number};
use crate::peers;
use crate::plan::Plan;
use crate::signed::Signed;
use crate::site::Contact;
use sources::{Failing, Random, Sources};

pub use sources::Source;

/// How long one waits for news where it asks, at most: by then the other end has answered.
pub const WAIT: Duration = Duration::from_secs(300);
/// How much longer than that an answer may take.
const GRACE: Duration = Duration::from_secs(30);
/// How often a peer is asked although controllers answer, on average.
const GOSSIP: Duration = Duration::from_secs(600);
/// Between two changes of the gateway, at least: a reload loses nothing, and is not for every one of many documents.
const BETWEEN: Duration = Duration::from_secs(1);

/// A site's agent.
#[derive(Debug)]
pub struct Agent {
    own: Name,
    identity: Arc<SigningKey>,
    desk: Desk,
    random: Random,
    /// How controllers and peers are asked.
    lines: [Line; 2],
    /// What the gateway was given last, and since when.
    applied: Option<(String, Duration)>,
    /// When it is given something else.
    apply_at: Option<Duration>,
    /// Whether a controller has answered since one last did not.
    has_controller: bool,
    /// Own notices that no controller has confirmed.
    unsaid: News,
    /// How many peers are still to be told them in a row, where no controller passes them on.
    untold: usize,
    actions: VecDeque<Action>,
    next: u64,
}

/// A site, as it asks controllers.
#[derive(Debug, Clone)]
pub struct Asker {
    network: NetworkId,
    site: Name,
    identity: Arc<SigningKey>,
}

impl Asker {
    /// Who asks.
    #[must_use]
    pub fn site(&self) -> &Name {
        &self.site
    }

    /// Of a site with this identity.
    #[must_use]
    pub fn new(network: NetworkId, site: Name, identity: SigningKey) -> Self {
        Asker { network, site, identity: Arc::new(identity) }
    }

    /// A question as a controller wants it, which has this certificate and has given out this challenge.
    #[must_use]
    pub fn asking(&self, question: Question, certificate: Digest, challenge: String) -> Signed<Asking> {
        let (network, site) = (self.network, self.site.clone());
        let asking = Asking { network, site, certificate, challenge, question };
        Signed::new(&asking, [&*self.identity])
    }
}

/// One question at a time.
#[derive(Debug)]
struct Line {
    kind: Kind,
    sources: Sources,
    failing: Failing,
    asked: Option<Asked>,
    /// When the next question is due, if none is open.
    at: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Controllers,
    Peers,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    source: Source,
    until: Duration,
    /// Own notices that were told with it.
    told: News,
}

/// One of the questions of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u64);

/// What an agent wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask, and call [`Agent::answered`] or [`Agent::failed`].
    Ask {
        /// Which question.
        id: RequestId,
        /// Whom.
        source: Source,
        /// What; a controller wants it as [`Asker::asking`].
        question: Question,
        /// What to tell with it.
        news: Box<News>,
        /// How long the answer may be held back while there is nothing new.
        wait: Duration,
    },
    /// Forget a question that is not needed any more.
    Forget(RequestId),
    /// Keep what is known ([`Fleet::memory`]) over a restart.
    Keep,
    /// Give this to the gateway, in place of what it had: its peers.
    Apply(String),
    /// Say that something was refused, or is wrong.
    Warn(String),
}

impl Agent {
    /// An agent of the site `own`, with what is remembered of its fleet. `seed`: for what it draws, and the number of its desk.
    #[must_use]
    pub fn new(own: Name, identity: SigningKey, fleet: Fleet, seed: u64, now: Duration) -> Self {
        let mut random = Random::new(seed);
        let desk = Desk::new(fleet, random.number());
        let line = |kind| Line {
            kind,
            sources: Sources::default(),
            failing: Failing::default(),
            asked: None,
            at: now,
        };
        let mut agent = Agent {
            own,
            identity: Arc::new(identity),
            desk,
            random,
            lines: [line(Kind::Controllers), line(Kind::Peers)],
            applied: None,
            apply_at: Some(now),
            has_controller: false,
            unsaid: News::default(),
            untold: 0,
            actions: VecDeque::new(),
            next: 0,
        };
        agent.find_sources();
        agent
    }

    /// What is known here.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        self.desk.fleet()
    }

    /// When [`Agent::handle_timeout`] is to be called, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let lines = self.lines.iter().map(|line| line.asked.as_ref().map_or(line.at, |asked| asked.until));
        lines.chain(self.apply_at).min().unwrap_or(Duration::MAX)
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.apply_at.is_some_and(|at| at <= now) {
            self.apply(now);
        }
        for index in 0..self.lines.len() {
            let asked = &self.lines[index].asked;
            if let Some(id) = asked.as_ref().filter(|asked| asked.until <= now).map(|asked| asked.id) {
                self.actions.push_back(Action::Forget(id));
                self.failed(id, now);
            }
            if self.lines[index].asked.is_none() && self.lines[index].at <= now {
                self.ask(index, now);
            }
        }
    }

    fn ask(&mut self, index: usize, now: Duration) {
        let line = &mut self.lines[index];
        let Some(source) = line.sources.current().cloned() else {
            line.at = now + WAIT;
            return;
        };
        let (wait, news) = match line.kind {
            Kind::Controllers => (WAIT, self.unsaid.clone()),
            // To a peer one turns for a moment only, unless there is nobody else, and nothing to tell the others.
            Kind::Peers => {
                let is_short = self.has_controller || self.untold > 1;
                self.untold = self.untold.saturating_sub(1);
                let wait = if is_short { Duration::ZERO } else { WAIT };
                (wait, self.desk.fleet().notices_of(&self.own))
            }
        };
        let question = Question { have: self.desk.fleet().have(), since: line.sources.heard() };
        let id = RequestId(self.next);
        self.next += 1;
        line.asked =
            Some(Asked { id, source: source.clone(), until: now + wait + GRACE, told: news.clone() });
        self.actions.push_back(Action::Ask { id, source, question, news: Box::new(news), wait });
    }

    /// A question was answered.
    pub fn answered(&mut self, id: RequestId, answer: Answer, now: Duration) {
        let Some(index) = self.line_of(id) else { return };
        let line = &mut self.lines[index];
        let Some(asked) = line.asked.take() else { return };
        line.failing = Failing::default();
        line.sources.heard_until(answer.since);
        line.at = now;
        match line.kind {
            Kind::Controllers => {
                if self.unsaid == asked.told {
                    self.unsaid = News::default();
                    self.untold = 0;
                }
                if matches!(asked.source, Source::Outside { .. }) {
                    // By now there may be a tunnel.
                    line.sources.begin_again();
                }
                if !std::mem::replace(&mut self.has_controller, true) {
                    self.leave_peers(now);
                }
            }
            Kind::Peers => {
                line.sources.next();
                if self.has_controller {
                    line.at += self.random.around(GOSSIP);
                }
            }
        }
        self.take(answer.news, &asked.source, now);
    }

    /// Controllers answer: nobody else has to be waited for.
    fn leave_peers(&mut self, now: Duration) {
        if let Some(asked) = self.lines[1].asked.take() {
            self.actions.push_back(Action::Forget(asked.id));
        }
        self.lines[1].at = now + self.random.around(GOSSIP);
    }

    /// A question was not answered: nobody is there, or not who should be.
    pub fn failed(&mut self, id: RequestId, now: Duration) {
        let Some(index) = self.line_of(id) else { return };
        let line = &mut self.lines[index];
        line.asked = None;
        // The others are asked at once; then all of them after longer and longer pauses.
        let went_round = line.sources.next();
        line.at = if went_round { now + line.failing.pause(&mut self.random) } else { now };
        if line.kind == Kind::Controllers && went_round && std::mem::take(&mut self.has_controller) {
            let peers = &mut self.lines[1];
            if peers.asked.is_none() {
                peers.at = now;
            }
        }
    }

    fn line_of(&self, id: RequestId) -> Option<usize> {
        self.lines.iter().position(|line| line.asked.as_ref().is_some_and(|asked| asked.id == id))
    }

    /// Who asks controllers for it.
    #[must_use]
    pub fn asker(&self) -> Asker {
        let identity = Arc::clone(&self.identity);
        Asker { network: self.desk.fleet().network(), site: self.own.clone(), identity }
    }

    /// What a peer is answered; nothing while there is nothing new for it and it may wait.
    #[must_use]
    pub fn answer(&self, peer: &Name, question: &Question, is_late: bool) -> Option<Answer> {
        self.desk.answer(peer, question, is_late)
    }

    /// The site that has this address inside of the tunnels, if this one has a tunnel with it.
    #[must_use]
    pub fn peer_at(&self, address: IpAddr) -> Option<Name> {
        let mut peers = self.lines[1].sources.all();
        peers.find_map(|source| match source {
            Source::Peer { name, address: theirs } if *theirs == address => Some(name.clone()),
            _ => None,
        })
    }

    /// News came with a peer's question.
    pub fn told(&mut self, peer: &Name, news: News, now: Duration) {
        self.take(news, format_args!("peer {peer}"), now);
    }

    fn take(&mut self, news: News, source: impl Display, now: Duration) {
        let taken = self.desk.take(news);
        for refusal in taken.refused {
            // A change of what is not known here is asked for as a whole, with the next question.
            if !matches!(refusal, Refusal::Gap(_)) {
                self.actions.push_back(Action::Warn(format!("{source}: {refusal}")));
            }
        }
        if taken.is_new {
            self.actions.push_back(Action::Keep);
            self.find_sources();
            self.plan_to_apply(now);
        }
    }

    /// The site is met in another way, or other networks are behind it: says so to all, if that is not what they know. `unix_s`:
    /// seconds of Unix time.
    pub fn renumbered(
        &mut self,
        contact: Option<Contact>,
        networks: Option<(Vec<IpNet>, Option<IpAddr>)>,
        unix_s: u64,
        now: Duration,
    ) {
        let fleet = self.desk.fleet();
        let Some(site) = fleet.site(&self.own) else { return };
        let (network, last) = (fleet.network(), fleet.numbers().get(&self.own).copied().unwrap_or_default());
        let mut news = News::default();
        if let Some(contact) = contact.filter(|contact| site.contact != Some(contact)) {
            let number = next_number(last.0.max(site.member.notices_after), unix_s);
            let notice = ContactNotice { network, site: self.own.clone(), number, contact };
            news.contacts.push(Signed::new(&notice, [&*self.identity]));
        }
        let is_other = |(networks, address): &(Vec<IpNet>, Option<IpAddr>)| {
            site.member.networks != *networks || site.member.address != *address
        };
        if let Some((networks, address)) = networks.filter(is_other) {
            let number = next_number(last.1.max(site.member.notices_after), unix_s);
            let notice = NetworksNotice { network, site: self.own.clone(), number, networks, address };
            news.networks.push(Signed::new(&notice, [&*self.identity]));
        }
        if news == News::default() {
            return;
        }
        self.take(news, "this site", now);
        self.unsaid = self.desk.fleet().notices_of(&self.own);
        self.untold = self.lines[1].sources.all().count();
        // A question that waits for its answer would tell it too late.
        for line in &mut self.lines {
            if let Some(asked) = line.asked.take() {
                self.actions.push_back(Action::Forget(asked.id));
                line.at = now;
            }
        }
    }

    fn plan_to_apply(&mut self, now: Duration) {
        let earliest = self.applied.as_ref().map_or(now, |(_, since)| (*since + BETWEEN).max(now));
        self.apply_at.get_or_insert(earliest);
        if earliest <= now {
            self.apply(now);
        }
    }

    fn apply(&mut self, now: Duration) {
        self.apply_at = None;
        let fleet = self.desk.fleet();
        // Before there is a document, whatever the gateway has is better than nothing.
        if fleet.document().is_none() {
            return;
        }
        let text = peers::text(&Plan::of(fleet, &self.own));
        if self.applied.as_ref().is_none_or(|(applied, _)| *applied != text) {
            self.actions.push_back(Action::Apply(text.clone()));
            self.applied = Some((text, now));
        }
    }

    /// Who is to be asked, out of what is known.
    fn find_sources(&mut self) {
        let fleet = self.desk.fleet();
        self.lines[0].sources.set(sources::controllers(fleet), &mut self.random);
        self.lines[1].sources.set(sources::peers(fleet, &self.own), &mut self.random);
    }
}
