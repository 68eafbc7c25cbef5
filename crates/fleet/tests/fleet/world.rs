//! Agents and controllers on a network in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use fleet::agent::{Action, Agent, Outcome, RequestId, Source};
use fleet::desk::Desk;
use fleet::exchange::{Answer, Question};
use fleet::fleet::Fleet;
use fleet::key::Digest;
use fleet::name::Name;
use fleet::news::News;
use fleet::settings::Controller;

use crate::scene::{name, signer};

/// How long a message takes.
const LATENCY: Duration = Duration::from_millis(20);
/// How long somebody waits for one that is not there.
const REFUSED: Duration = Duration::from_secs(3);

/// How long a controller holds an answer back at the most that has not kept what was told.
const NOT_KEPT_WAIT: Duration = Duration::from_secs(10);

/// Why a site's gateway refuses a file, if it does.
pub(crate) type Refuses = Box<dyn Fn(&Name, &str) -> Option<String>>;

pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) agents: BTreeMap<Name, Agent>,
    /// What each gateway was given last.
    pub(crate) gateways: BTreeMap<Name, String>,
    /// All that they were given, and what came of it.
    pub(crate) given: Vec<(Name, String)>,
    pub(crate) outcomes: Vec<(Name, Outcome)>,
    /// Why a gateway refuses a file, and those that do not run.
    pub(crate) refuses: Option<Refuses>,
    pub(crate) absent: Vec<Name>,
    /// Whose disks are full.
    pub(crate) unwritable: Vec<Name>,
    /// What names say, and who has looked for which.
    pub(crate) names: Vec<(String, String)>,
    pub(crate) looked_up: Vec<(Name, Vec<String>)>,
    pub(crate) warnings: Vec<String>,
    /// The controllers, which share a store, and of which some are there.
    pub(crate) controllers: Desk,
    pub(crate) are_up: BTreeMap<Name, bool>,
    /// Those whose store does not answer: they answer what they know.
    pub(crate) without_store: Vec<Name>,
    /// Agents that none of their peers reaches.
    pub(crate) cut: Vec<Name>,
    /// What lies waiting for an answer: who asks, whom, with what.
    waiting: Vec<Waiting>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    count: u64,
    /// Bytes that agents have sent and received, and questions that controllers were asked.
    pub(crate) bytes: u64,
    pub(crate) questions: u64,
    /// Questions for the whole document, by who has one.
    pub(crate) wholes: u64,
    /// What controllers tell instead of what they know, to all and at once.
    pub(crate) says: Option<News>,
}

#[derive(Clone)]
struct Waiting {
    by: Name,
    id: RequestId,
    /// A peer, or a controller.
    at: Result<Name, Name>,
    question: Question,
    until: Duration,
    /// Whether what was told with it was kept.
    is_kept: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Failed(Name, RequestId),
    Answered(Name, RequestId, String, bool),
}

pub(crate) fn controller(text: &str) -> Controller {
    Controller {
        name: name(text),
        inside: None,
        outside: Some(format!("{text}.example:4160")),
        certificate: Digest::of(text.as_bytes()),
    }
}

impl World {
    pub(crate) fn new(controllers: Fleet, names: &[&str]) -> Self {
        World {
            now: Duration::ZERO,
            agents: BTreeMap::new(),
            gateways: BTreeMap::new(),
            given: Vec::new(),
            outcomes: Vec::new(),
            refuses: None,
            absent: Vec::new(),
            unwritable: Vec::new(),
            names: Vec::new(),
            looked_up: Vec::new(),
            warnings: Vec::new(),
            controllers: Desk::new(controllers, 1),
            are_up: names.iter().map(|text| (name(text), true)).collect(),
            without_store: Vec::new(),
            cut: Vec::new(),
            waiting: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            bytes: 0,
            questions: 0,
            wholes: 0,
            says: None,
        }
    }

    pub(crate) fn add(&mut self, who: &str, fleet: Fleet) {
        let seed = self.agents.len() as u64 + 100;
        self.agents.insert(name(who), Agent::new(name(who), signer(who), fleet, seed, self.now));
    }

    pub(crate) fn set_up(&mut self, is_up: bool) {
        self.are_up.values_mut().for_each(|up| *up = is_up);
        if !is_up {
            let lost: Vec<_> = self.waiting.extract_if(.., |waiting| waiting.at.is_err()).collect();
            for waiting in lost {
                self.later(LATENCY, Event::Failed(waiting.by, waiting.id));
            }
        }
    }

    /// Something is published at the controllers.
    pub(crate) fn publish(&mut self, news: News) {
        let taken = self.controllers.take(news);
        assert_eq!(taken.refused, []);
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now + after, self.count, event)));
    }

    /// Lets so much time pass, or less if something comes to hold; whether it did.
    pub(crate) fn run_until(&mut self, span: Duration, holds: impl Fn(&World) -> bool) -> bool {
        let end = self.now + span;
        loop {
            self.act();
            if holds(self) {
                return true;
            }
            let next_event = self.events.peek().map_or(Duration::MAX, |Reverse((at, ..))| *at);
            let deadlines = self.agents.values().map(Agent::deadline);
            let waits = self.waiting.iter().map(|waiting| waiting.until);
            let next = deadlines.chain(waits).min().unwrap_or(Duration::MAX).min(next_event).max(self.now);
            if next > end {
                self.now = end;
                return false;
            }
            self.now = next;
            while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
                let Some(Reverse((_, _, event))) = self.events.pop() else { break };
                self.happen(event);
            }
            let now = self.now;
            for agent in self.agents.values_mut().filter(|agent| agent.deadline() <= now) {
                agent.handle_timeout(now);
            }
        }
    }

    pub(crate) fn run(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Failed(who, id) => {
                if let Some(agent) = self.agents.get_mut(&who) {
                    agent.failed(id, now);
                }
            }
            Event::Answered(who, id, text, is_kept) => {
                self.bytes += text.len() as u64;
                let answer: Answer = serde_json::from_str(&text).unwrap();
                if let Some(agent) = self.agents.get_mut(&who) {
                    if !is_kept {
                        agent.not_kept(id);
                    }
                    agent.answered(id, answer, now);
                }
            }
        }
    }

    /// Does what agents want, and answers those who wait.
    fn act(&mut self) {
        let names: Vec<Name> = self.agents.keys().cloned().collect();
        for who in names {
            while let Some(action) = self.agents.get_mut(&who).and_then(Agent::next_action) {
                self.do_one(&who, action);
            }
        }
        self.answer_waiting();
    }

    fn do_one(&mut self, who: &Name, action: Action) {
        match action {
            Action::Ask { id, source, question, news, wait } => {
                let text = serde_json::to_string(&question).unwrap() + &serde_json::to_string(&news).unwrap();
                self.bytes += text.len() as u64;
                let has_document = self.agents[who].fleet().serial().is_some();
                self.wholes += u64::from(question.have.serial.is_none() && has_document);
                let at = match source {
                    Source::Peer { name, .. } => Ok(name),
                    Source::Inside { name, .. } => Err(name),
                    // `c1.example:4160`.
                    Source::Outside { place, .. } => Err(name(place.split('.').next().unwrap())),
                };
                let is_there = match &at {
                    Ok(peer) => {
                        self.agents.contains_key(peer)
                            && ![who, peer].iter().any(|one| self.cut.contains(one))
                    }
                    Err(controller) => self.are_up.get(controller).copied().unwrap_or_default(),
                };
                if !is_there {
                    self.later(REFUSED, Event::Failed(who.clone(), id));
                    return;
                }
                let (mut is_kept, mut until) = (true, self.now + wait);
                match &at {
                    Ok(peer) => {
                        let now = self.now;
                        self.agents.get_mut(peer).unwrap().told(who, *news, now);
                    }
                    Err(controller) => {
                        self.questions += 1;
                        is_kept = *news == News::default() || !self.without_store.contains(controller);
                        if is_kept {
                            self.controllers.take(*news);
                        } else {
                            until = until.min(self.now + NOT_KEPT_WAIT);
                        }
                    }
                }
                self.waiting.push(Waiting { by: who.clone(), id, at, question, until, is_kept });
            }
            Action::Forget(id) => self.waiting.retain(|waiting| waiting.by != *who || waiting.id != id),
            Action::Keep => {}
            Action::LookUp(names) => {
                let known: BTreeMap<String, String> = self.names.iter().cloned().collect();
                let texts: Vec<String> = names.iter().filter_map(|name| known.get(name).cloned()).collect();
                self.looked_up.push((who.clone(), names));
                let now = self.now;
                self.agents.get_mut(who).unwrap().told_signposts(&texts, now);
            }
            Action::Apply(text) => self.apply(who, text),
            Action::Leave(text) => drop(self.gateways.insert(who.clone(), text)),
            Action::KeepTaken => {}
            Action::Gateway(outcome) => self.outcomes.push((who.clone(), outcome)),
            Action::Warn(text) => self.warnings.push(format!("{who}: {text}")),
        }
    }

    fn apply(&mut self, who: &Name, text: String) {
        if self.unwritable.contains(who) {
            let now = self.now;
            return self.agents.get_mut(who).unwrap().peers_not_written("the disk is full".to_owned(), now);
        }
        let refused = self.refuses.as_ref().and_then(|refuses| refuses(who, &text));
        self.given.push((who.clone(), text.clone()));
        self.gateways.insert(who.clone(), text);
        let now = self.now;
        let Some(agent) = self.agents.get_mut(who) else { return };
        match refused {
            _ if self.absent.contains(who) => agent.gateway_is_absent(now),
            Some(why) => agent.gateway_answered(Err(why), now),
            None => agent.gateway_answered(Ok(()), now),
        }
    }

    fn answer_waiting(&mut self) {
        let now = self.now;
        let mut still = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let desk_answer = match &waiting.at {
                Ok(peer) => self.agents[peer].answer(&waiting.by, &waiting.question, waiting.until <= now),
                Err(_) => {
                    let is_late = self.says.is_some() || waiting.until <= now;
                    self.controllers.answer(&waiting.by, &waiting.question, is_late).map(|answer| {
                        let news = self.says.clone().unwrap_or(answer.news);
                        Answer { news, ..answer }
                    })
                }
            };
            match desk_answer {
                Some(answer) => {
                    let text = serde_json::to_string(&answer).unwrap();
                    self.later(2 * LATENCY, Event::Answered(waiting.by, waiting.id, text, waiting.is_kept));
                }
                None => still.push(waiting),
            }
        }
        self.waiting = still;
    }
}
