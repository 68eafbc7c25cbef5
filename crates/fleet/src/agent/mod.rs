//! A site's agent, sans-IO: whom it asks and when, what it takes, and what its gateway is to do.
//!
//! It asks controllers, inside of the tunnels first, and waits there until something is new. Where none answers it asks its
//! peers the same, and answers theirs. Every now and then it asks a peer in any case: controllers that keep something from it
//! cannot keep it from everybody. It never gives up what it has.
//!
//! Times are since any moment, the same for all calls.

mod given;
mod held;
mod sources;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use crate::pace::{Pace, Paced};
use crate::peers::{Parts, SharedParts};
use crate::plan::Plan;
use crate::signed::Signed;
use crate::signpost::{self, Signpost};
use crate::site::Contact;
use crate::standby::{Wish, Wishing};
use given::Given;
use sources::{Failing, Random, Sources};

pub use given::{Outcome, Taken};
pub use held::Held;
pub use sources::Source;

/// How long one waits for news where it asks, at most: by then the other end has answered.
pub const WAIT: Duration = Duration::from_secs(300);
/// How much longer than that an answer may take.
const GRACE: Duration = Duration::from_secs(30);
/// How often a peer is asked although controllers answer, on average.
const GOSSIP: Duration = Duration::from_secs(600);
/// How often controllers are told again what this site says of itself, on average: they may have refused it while another site
/// still had a network, or be restored from a backup.
const SAY_AGAIN: Duration = Duration::from_secs(3600);
/// Between two changes of the gateway, at least: a reload loses nothing, and is not for every one of many documents.
const BETWEEN: Duration = Duration::from_secs(1);

/// How often signposts are looked for while nobody answers, on average.
const LOOK_UP: Duration = Duration::from_secs(120);
/// After how long it is said again that the same source tells what is refused, and how many refusals of one source are said until
/// then: who tells it may do so all the time, and something else each time.
const WARN_AGAIN: Duration = Duration::from_secs(3600);
const MOST_WARNINGS: usize = 8;

/// A site's agent.
#[derive(Debug)]
pub struct Agent {
    own: Name,
    identity: Arc<SigningKey>,
    desk: Desk,
    random: Random,
    /// How controllers and peers are asked.
    lines: [Line; 2],
    given: Given,
    /// Since when the gateway has what it was given last.
    applied: Option<Duration>,
    /// When it is given something else.
    apply_at: Option<Duration>,
    /// What others say of themselves, at a pace, and how often this site does.
    paced: Paced,
    own_pace: Pace,
    /// Whether a controller has answered since one last did not.
    has_controller: bool,
    /// Where signposts have led, and when they are looked for again.
    found: Vec<Source>,
    look_up_at: Duration,
    /// Own notices that no controller has answered since they are new, or since they were to be told again.
    unsaid: News,
    /// When they are told again: after a start with the first question.
    say_again_at: Duration,
    /// How many peers are still to be told them in a row, where no controller passes them on.
    untold: usize,
    /// Which refusals were said lately, by who told what was refused, and since when.
    warned: BTreeMap<String, (Duration, BTreeSet<Digest>)>,
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

    /// What it signs with.
    #[must_use]
    pub fn identity(&self) -> Arc<SigningKey> {
        Arc::clone(&self.identity)
    }

    /// The network that it is a member of.
    #[must_use]
    pub fn network(&self) -> NetworkId {
        self.network
    }

    /// A wish as a controller wants it, which has this certificate and has given out this challenge.
    #[must_use]
    pub fn wishing(&self, wish: Wish, certificate: Digest, challenge: String) -> Signed<Wishing> {
        let (network, site) = (self.network, self.site.clone());
        Signed::new(&Wishing { network, site, certificate, challenge, wish }, [&*self.identity])
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
    /// Answers that brought nothing but what is refused or known: the same question would be answered with the same at once.
    futile: Failing,
    /// Whether the next question is for the whole document: what was told as a change of the one that is known here was a change
    /// of another one with its serial, as where controllers were restored from a backup.
    wants_whole: bool,
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
    /// Own notices that were told with it, unless it is known that they were not kept.
    told: Option<News>,
    /// Whether it is for the whole document.
    is_whole: bool,
}

/// What came of an answer.
#[derive(Debug, Clone, Copy)]
struct Came {
    /// Whether the same question would bring the same again, at once.
    is_futile: bool,
    /// Whether it told a change of another document than is known here.
    is_of_other: bool,
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
    /// Nobody answers: look up the texts that these names have in DNS, and call [`Agent::told_signposts`] with them.
    LookUp(Vec<String>),
    /// Forget a question that is not needed any more.
    Forget(RequestId),
    /// Keep what is known ([`Fleet::memory`]) over a restart.
    Keep,
    /// Give this to the gateway, in place of what it had: its peers. Then call [`Agent::gateway_answered`], or
    /// [`Agent::gateway_is_absent`].
    Apply(String),
    /// Write this for the gateway that is not there, for it to begin with. It is not to be told: one that begins just now, with
    /// what was written before, would end sessions for it.
    Leave(String),
    /// Keep what the gateway has taken ([`Agent::taken`]) over a restart.
    KeepTaken,
    /// Say what came of it.
    Gateway(Outcome),
    /// Say that something was refused, or is wrong.
    Warn(String),
}

impl Agent {
    /// An agent of the site `own`, with what is remembered of its fleet. `seed`: for what it draws, and the number of its desk.
    #[must_use]
    pub fn new(own: Name, identity: SigningKey, fleet: Fleet, seed: u64, now: Duration) -> Self {
        let mut random = Random::new(seed);
        let desk = Desk::of_agent(fleet, random.number());
        let line = |kind| Line {
            kind,
            sources: Sources::default(),
            failing: Failing::default(),
            futile: Failing::default(),
            wants_whole: false,
            asked: None,
            at: now,
        };
        let mut agent = Agent {
            own,
            identity: Arc::new(identity),
            desk,
            random,
            lines: [line(Kind::Controllers), line(Kind::Peers)],
            given: Given::default(),
            applied: None,
            apply_at: Some(now),
            paced: Paced::default(),
            own_pace: Pace::default(),
            has_controller: false,
            found: Vec::new(),
            look_up_at: now,
            unsaid: News::default(),
            say_again_at: now,
            untold: 0,
            warned: BTreeMap::new(),
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

    /// Shares in memory what is the same in what another knows ([`Fleet::share`]).
    pub fn share(&mut self, other: &Fleet) {
        self.desk.share(other);
    }

    /// Shares in memory what the gateways of others are given, too.
    pub fn share_given(&mut self, shared: &mut SharedParts) {
        self.given.share(shared);
    }

    /// When [`Agent::handle_timeout`] is to be called, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let lines = self.lines.iter().map(|line| line.asked.as_ref().map_or(line.at, |asked| asked.until));
        let given = [self.given.deadline(), self.given.leave_deadline()];
        let others = [self.apply_at, self.paced.deadline()].into_iter().chain(given);
        lines.chain(others.flatten()).min().unwrap_or(Duration::MAX)
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.paced.deadline().is_some_and(|at| at <= now) {
            let due = self.paced.due(now);
            self.take_now(due, "a site that says much", now);
        }
        if self.apply_at.is_some_and(|at| at <= now) {
            self.apply(now);
        }
        if self.given.deadline().is_some_and(|at| at <= now) {
            self.give_again();
        }
        if self.given.leave_deadline().is_some_and(|at| at <= now) {
            self.actions.extend(self.given.leave().map(Action::Leave));
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
            Kind::Controllers => {
                if self.say_again_at <= now {
                    self.unsaid = self.desk.fleet().notices_of(&self.own);
                    self.say_again_at = now + self.random.around(SAY_AGAIN);
                }
                (WAIT, self.unsaid.clone())
            }
            // To a peer one turns for a moment only, unless there is nobody else, and nothing to tell the others.
            Kind::Peers => {
                let is_short = self.has_controller || self.untold > 1;
                self.untold = self.untold.saturating_sub(1);
                let wait = if is_short { Duration::ZERO } else { WAIT };
                (wait, self.desk.fleet().notices_of(&self.own))
            }
        };
        let mut have = self.desk.fleet().have();
        let is_whole = std::mem::take(&mut line.wants_whole);
        if is_whole {
            have.serial = None;
        }
        let question = Question { have, since: line.sources.heard() };
        let id = RequestId(self.next);
        self.next += 1;
        let (until, told) = (now + wait + GRACE, Some(news.clone()));
        line.asked = Some(Asked { id, source: source.clone(), until, told, is_whole });
        self.actions.push_back(Action::Ask { id, source, question, news: Box::new(news), wait });
    }

    /// What was told with a question was not kept where it is answered ([`crate::exchange::NOT_KEPT`]). Comes before
    /// [`Agent::answered`].
    pub fn not_kept(&mut self, id: RequestId) {
        let asked = self.lines.iter_mut().find_map(|line| line.asked.as_mut().filter(|asked| asked.id == id));
        if let Some(asked) = asked {
            asked.told = None;
        }
    }

    /// A question was answered.
    pub fn answered(&mut self, id: RequestId, answer: Answer, now: Duration) {
        let Some(index) = self.line_of(id) else { return };
        let line = &mut self.lines[index];
        let Some(asked) = line.asked.take() else { return };
        line.failing = Failing::default();
        line.sources.heard_until(answer.since);
        let (kind, is_kept) = (line.kind, asked.told.is_some());
        if kind == Kind::Controllers {
            if asked.told.is_some_and(|told| told == self.unsaid) {
                self.unsaid = News::default();
                self.untold = 0;
            }
            if !std::mem::replace(&mut self.has_controller, true) {
                self.leave_peers(now);
            }
            if !is_kept && self.untold > 0 && self.lines[1].asked.is_none() {
                // Until then nobody else hears of it.
                self.lines[1].at = now;
            }
        }
        let Came { is_futile, is_of_other } = self.take(answer.news, &asked.source.to_string(), now);
        let line = &mut self.lines[index];
        line.at = now;
        // Who has told a change of something else is asked again: nobody has to tell all because of another.
        line.wants_whole = is_of_other && !asked.is_whole;
        match kind {
            _ if line.wants_whole => {}
            // Another one may have a store that answers.
            Kind::Controllers if !is_kept => drop(line.sources.next()),
            // By now there may be a tunnel.
            Kind::Controllers if matches!(asked.source, Source::Outside { .. }) => line.sources.begin_again(),
            Kind::Controllers => {}
            Kind::Peers => drop(line.sources.next()),
        }
        if kind == Kind::Peers && self.has_controller && self.untold == 0 {
            line.at += self.random.around(GOSSIP);
        }
        if is_futile {
            line.at = line.at.max(now + line.futile.pause(&mut self.random));
        } else {
            line.futile = Failing::default();
        }
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
        if went_round {
            self.look_up(now);
        }
        let line = &mut self.lines[index];
        if line.kind == Kind::Controllers && went_round && std::mem::take(&mut self.has_controller) {
            let peers = &mut self.lines[1];
            if peers.asked.is_none() {
                peers.at = now;
            }
        }
    }

    /// Looks for signposts, if neither controllers nor peers answer.
    fn look_up(&mut self, now: Duration) {
        let is_lost = self.lines.iter().all(|line| line.failing.is_in_vain() || line.sources.is_empty());
        let fleet = self.desk.fleet();
        let domain = fleet.settings().and_then(|settings| settings.signposts.as_deref());
        let (Some(domain), true) = (domain, is_lost && self.look_up_at <= now) else { return };
        let (network, site) = (fleet.network(), self.identity.public());
        let names = (0..signpost::MOST).map(|index| signpost::name(network, site, index, domain));
        self.actions.push_back(Action::LookUp(names.collect()));
        self.look_up_at = now + self.random.around(LOOK_UP);
    }

    /// What the names of this site's signposts say: those that an administrator has sealed for it are followed.
    pub fn told_signposts(&mut self, texts: &[String], now: Duration) {
        let administrators = &self.desk.fleet().chain().current().administrators;
        let open = |text: &String| {
            administrators.iter().find_map(|one| Signpost::open(text, one.key, &self.identity))
        };
        let mut found: Vec<Signpost> = texts.iter().filter_map(open).collect();
        // Of several the newest: somebody may have put back an old one.
        let newest = found.iter().map(|signpost| signpost.serial).max();
        found.retain(|signpost| Some(signpost.serial) == newest);
        let found: Vec<Source> = found.into_iter().map(sources::found).collect();
        if found.is_empty() || found == self.found {
            return;
        }
        self.found = found;
        self.find_sources();
        if self.lines[0].asked.is_none() {
            self.lines[0].at = now;
        }
    }

    fn line_of(&self, id: RequestId) -> Option<usize> {
        self.lines.iter().position(|line| line.asked.as_ref().is_some_and(|asked| asked.id == id))
    }

    /// The controllers, as far as is known: those inside of the tunnels first.
    #[must_use]
    pub fn controllers(&self) -> Vec<Source> {
        let [inside, outside] = sources::controllers(self.desk.fleet());
        [inside, outside, self.found.clone()].concat()
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
        self.take(news, &format!("peer {peer}"), now);
    }

    /// Takes what others tell; of a site that says something new all the time, the last of it and later.
    fn take(&mut self, news: News, source: &str, now: Duration) -> Came {
        let news = self.paced.now(news, self.desk.fleet(), now);
        self.take_now(news, source, now)
    }

    fn take_now(&mut self, news: News, source: &str, now: Duration) -> Came {
        // Notices are told once, these as long as they are lacking.
        let is_lacking =
            !(news.authorities.is_empty() && news.document.is_none() && news.delegated.is_empty());
        let taken = self.desk.take(news);
        let came = Came {
            is_futile: !taken.is_new && (is_lacking || !taken.refused.is_empty()),
            is_of_other: taken.refused.iter().any(|refusal| matches!(refusal, Refusal::NotSigned(_))),
        };
        for refusal in taken.refused {
            // A change of what is not known here is asked for as a whole, with the next question.
            if !matches!(refusal, Refusal::Gap(_)) {
                self.warn(source, &refusal, now);
            }
        }
        if taken.is_new {
            self.actions.push_back(Action::Keep);
            self.find_sources();
            self.plan_to_apply(now);
        }
        came
    }

    /// Says what is refused, if that was not said lately.
    fn warn(&mut self, source: &str, refusal: &Refusal, now: Duration) {
        let text = format!("{source}: {refusal}");
        let (since, said) = self.warned.entry(source.to_owned()).or_insert((now, BTreeSet::new()));
        if now.saturating_sub(*since) >= WARN_AGAIN {
            (*since, *said) = (now, BTreeSet::new());
        }
        if said.len() < MOST_WARNINGS && said.insert(Digest::of(text.as_bytes())) {
            self.actions.push_back(Action::Warn(text));
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
        // Who looks again says it then.
        if news == News::default() || self.own_pace.hear(&self.own, now).is_err() {
            return;
        }
        self.take_now(news, "this site", now);
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
        let earliest = self.applied.map_or(now, |since| (since + BETWEEN).max(now));
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
        let parts = Parts::of(Plan::of(fleet, &self.own));
        if let Some(text) = self.given.want(parts) {
            self.actions.push_back(Action::Apply(text));
            self.applied = Some(now);
        }
    }

    /// What the gateway had taken before, as it was kept.
    pub fn remember(&mut self, taken: Taken) {
        self.given.remember(taken);
    }

    /// What the gateway has taken, and what it refuses.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        self.given.taken()
    }

    /// The gateway takes what it was given last, or says why not.
    pub fn gateway_answered(&mut self, answer: Result<(), String>, now: Duration) {
        let before = self.given.taken().clone();
        let (outcomes, next) = self.given.answered(answer, now);
        self.actions.extend(outcomes.into_iter().map(Action::Gateway));
        self.actions.extend(next.map(Action::Apply));
        if before != *self.given.taken() {
            self.actions.push_back(Action::KeepTaken);
        }
    }

    /// The gateway does not run. If it is not there soon it begins with what it has taken before, so that what it might refuse
    /// does not keep it from running.
    pub fn gateway_is_absent(&mut self, now: Duration) {
        self.given.absent(now);
    }

    /// What the gateway was to be given, or left, could not be written.
    pub fn peers_not_written(&mut self, why: String, now: Duration) {
        self.actions.extend(self.given.failed(why, now).map(Action::Gateway));
    }

    /// The gateway runs again.
    pub fn gateway_is_there(&mut self) {
        self.given.there();
        if self.desk.fleet().document().is_some() {
            self.give_again();
        }
    }

    fn give_again(&mut self) {
        let text = self.given.begin();
        self.actions.push_back(Action::Apply(text));
    }

    /// Who is to be asked, out of what is known.
    fn find_sources(&mut self) {
        let fleet = self.desk.fleet();
        let [inside, mut outside] = sources::controllers(fleet);
        outside.extend(self.found.iter().cloned());
        self.lines[0].sources.set([inside, outside], &mut self.random);
        self.lines[1].sources.set(sources::peers(fleet, &self.own), &mut self.random);
    }
}
