//! Sites: each enrols, and runs its agent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fleet::agent::{Action, Agent, Asker, Held, RequestId, Source};
use fleet::enrolment::{APPLY, Invitation, State, Status, Terms, id, pause, status_path};
use fleet::exchange::{Answer, Challenge, FromController, Question, Request, SYNC, Told};
use fleet::fleet::Fleet;
use fleet::news::News;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::Instant;

use crate::controllers::{Controllers, LATENCY, OF_PEER, REFUSED};
use crate::event::Event;
use crate::identity::{self, SITE, TOKEN, member, signer};
use crate::processor::timed;
use crate::world::World;

/// How long a controller keeps a connection.
const LIFETIME: Duration = Duration::from_secs(3600);
/// The same, while nothing is asked over it.
const IDLE: Duration = Duration::from_secs(15);

/// What an invitation of a site is good for.
pub(crate) fn terms(number: usize, sites: usize) -> Terms {
    let member = member(number, sites);
    let (site, role, region) = (Some(member.name), member.role, member.region);
    Terms { site, role, region, zone: None, standby: None, within: Vec::new() }
}

/// A site from its enrolment on.
pub(crate) async fn live(world: Rc<World>, number: usize, sites: usize, expires: u64) {
    let mut random = fastrand::Rng::with_seed(world.seed ^ (number as u64 + 1));
    let Some(fleet) = enrol(&world, number, sites, expires, &mut random).await else {
        world.broken.borrow_mut().push(format!("site {number} could not enrol"));
        return;
    };
    world.see(number, |seen| seen.enrolled = Some(world.now()));
    let (sender, events) = mpsc::unbounded_channel();
    world.mailboxes.borrow_mut()[number] = Some(sender.clone());
    let own = member(number, sites).name;
    let agent = Agent::new(own, signer(SITE, number), fleet, random.u64(..), world.now());
    let line = Rc::default();
    let mut site =
        Site { world, number, agent, sender, running: BTreeMap::new(), held: Held::default(), line };
    site.world.learned(number, &mut site.agent);
    site.run(events).await;
}

/// Applies, waits, and fetches the document: what `agent::Enrolment` does, of which what is decided is in `fleet`.
async fn enrol(
    world: &Rc<World>,
    number: usize,
    sites: usize,
    expires: u64,
    random: &mut fastrand::Rng,
) -> Option<Fleet> {
    let (terms, token) = (terms(number, sites), signer(TOKEN, number));
    let invitation = Invitation::new(world.network, world.controllers.about(), &token, terms, expires);
    let member = member(number, sites);
    let name = member.name.clone();
    let application = invitation.apply(&signer(SITE, number), member, identity::contact(number)).ok()?;
    let (begin, from) = (Instant::now(), identity::outside(number));
    let (which, mut has_applied) = (random.usize(..world.controllers.count()), false);
    let mut asked: Option<Instant> = None;
    let status = loop {
        let (path, body) = match has_applied {
            true => (status_path(&id(&application)), None),
            false => (APPLY.to_owned(), serde_json::to_vec(&application).ok()),
        };
        let is_connected = asked.is_some_and(|at| at.elapsed() < IDLE);
        let reply = world.controllers.ask(which, from, &path, body, is_connected).await;
        asked = reply.is_some().then(Instant::now);
        if let Some(reply) = reply.filter(|reply| reply.status.is_success()) {
            let status: Status = serde_json::from_slice(&reply.body).ok()?;
            match status.state {
                State::Member => break status,
                State::Refused { .. } => return None,
                State::Waiting => has_applied = true,
            }
        }
        tokio::time::sleep(pause(begin.elapsed(), random)).await;
    };
    let mut fleet = Fleet::new(invitation.chain(status.authorities).ok()?);
    let asker = Asker::new(world.network, name.clone(), signer(SITE, number));
    let question = Question { have: fleet.have(), since: None };
    let line = Line::default();
    let (answer, _) =
        sync(world, number, which, &asker, question, &News::default(), Duration::ZERO, &line).await?;
    let taken = fleet.take(answer.news);
    let is_member =
        fleet.site(&name).is_some_and(|site| site.member.identity == signer(SITE, number).public());
    (taken.refused.is_empty() && is_member).then_some(fleet)
}

/// A connection to a controller that is not in use: which one, since when, and what the next question is bound to.
type Line = Rc<RefCell<Option<(usize, Instant, String)>>>;

struct Site {
    world: Rc<World>,
    number: usize,
    agent: Agent,
    sender: mpsc::UnboundedSender<Event>,
    running: BTreeMap<RequestId, AbortHandle>,
    held: Held<oneshot::Sender<Answer>>,
    line: Line,
}

impl Site {
    async fn run(&mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        loop {
            let now = self.world.now();
            let ((), time) = timed(|| self.step(now));
            self.world.longest.set(self.world.longest.get().max(time));
            let until = self.held.deadline().into_iter().chain([self.agent.deadline()]).min();
            let until = self.world.at(until.unwrap_or(Duration::MAX));
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                Some(event) = events.recv() => {
                    let now = self.world.now();
                    let ((), time) = timed(|| self.happen(event, now));
                    self.world.longest.set(self.world.longest.get().max(time));
                }
            }
        }
    }

    fn step(&mut self, now: Duration) {
        self.agent.handle_timeout(now);
        while let Some(action) = self.agent.next_action() {
            self.act(action, now);
        }
        for (reply, answer) in self.held.answered(&self.agent, now, oneshot::Sender::is_closed) {
            let _ = reply.send(answer);
        }
    }

    fn act(&mut self, action: Action, now: Duration) {
        match action {
            Action::Ask { id, source, question, news, wait } => {
                let (world, number, asker) = (Rc::clone(&self.world), self.number, self.agent.asker());
                let (sender, line) = (self.sender.clone(), Rc::clone(&self.line));
                let asking = spawn_local(async move {
                    let answer = ask(&world, number, source, &asker, question, *news, wait, &line).await;
                    let _ = sender.send(Event::Answered(id, answer));
                });
                self.running.insert(id, asking.abort_handle());
            }
            Action::Forget(id) => {
                if let Some(asking) = self.running.remove(&id) {
                    asking.abort();
                }
            }
            Action::Keep => {
                self.held.note_news();
                self.world.learned(self.number, &mut self.agent);
            }
            Action::Apply(text) => {
                self.agent.gateway_answered(Ok(()), now);
                self.world.applied(self.number, &mut self.agent, &text);
            }
            // Nobody here has signposts, and what a gateway has taken is there as long as its agent.
            Action::LookUp(_) | Action::KeepTaken | Action::Leave(_) => {}
            Action::Gateway(outcome) => self.breaks(&format!("{outcome:?}")),
            Action::Warn(text) => self.breaks(&text),
        }
    }

    fn breaks(&self, why: &str) {
        self.world.broken.borrow_mut().push(format!("site {}: {why}", self.number));
    }

    fn happen(&mut self, event: Event, now: Duration) {
        match event {
            Event::Answered(id, answer) => {
                self.running.remove(&id);
                match answer {
                    Some((answer, told)) => {
                        if told == Told::NotKept {
                            self.agent.not_kept(id);
                        }
                        self.agent.answered(id, answer, now);
                    }
                    None => self.agent.failed(id, now),
                }
            }
            Event::Asked { from, question, news, wait, reply } => {
                let Some(peer) = self.agent.peer_at(from) else { return };
                self.agent.told(&peer, news, now);
                self.held.put(peer, question, now + wait, reply);
            }
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "what an action says, and who does it")]
async fn ask(
    world: &Rc<World>,
    number: usize,
    source: Source,
    asker: &Asker,
    question: Question,
    news: News,
    wait: Duration,
    line: &Line,
) -> Option<(Answer, Told)> {
    match source {
        Source::Inside { name, .. } | Source::Outside { name, .. } => {
            let which = world.controllers.number_of(&name)?;
            if world.cut.borrow().contains(&number) {
                tokio::time::sleep(REFUSED).await;
                return None;
            }
            world.note_question();
            let answer = sync(world, number, which, asker, question, &news, wait, line).await?;
            world.see(number, |seen| seen.answered = Some(world.now()));
            Some(answer)
        }
        Source::Peer { address, .. } => {
            let mailbox = world.mailboxes.borrow().get(identity::number_of(address))?.clone();
            let Some(mailbox) = mailbox else {
                tokio::time::sleep(REFUSED).await;
                return None;
            };
            let request = Request { asking: question, news: news.clone() };
            let sent = serde_json::to_vec(&request).ok()?.len();
            tokio::time::sleep(3 * LATENCY).await;
            let (reply, answer) = oneshot::channel();
            let from = identity::address(number);
            mailbox.send(Event::Asked { from, question, news, wait, reply }).ok()?;
            let answer = answer.await.ok()?;
            let octets = sent + serde_json::to_vec(&answer).ok()?.len();
            World::count(&world.to_peers, octets as u64 + OF_PEER);
            tokio::time::sleep(LATENCY).await;
            Some((answer, Told::Kept))
        }
    }
}

/// Asks a controller, once more with what it wants the question to be bound to.
#[expect(clippy::too_many_arguments, reason = "what an action says, and who does it")]
async fn sync(
    world: &Rc<World>,
    number: usize,
    which: usize,
    asker: &Asker,
    question: Question,
    news: &News,
    wait: Duration,
    line: &Line,
) -> Option<(Answer, Told)> {
    let path = format!("{SYNC}?wait={}", wait.as_secs());
    let is_good = |(to, since, _): &(usize, Instant, String)| *to == which && since.elapsed() < LIFETIME;
    let kept = line.borrow_mut().take().filter(is_good);
    let (mut is_connected, since) = (kept.is_some(), kept.as_ref().map_or_else(Instant::now, |kept| kept.1));
    let mut challenge = kept.map_or_else(String::new, |kept| kept.2);
    for _ in 0..2 {
        // Nothing is signed for one that is not reached.
        if !world.controllers.is_there(which) {
            tokio::time::sleep(REFUSED).await;
            return None;
        }
        let asking = asker.asking(question, world.controllers.certificate(which), challenge);
        let body = serde_json::to_vec(&Request { asking, news: news.clone() }).ok()?;
        let sent = body.len();
        let reply =
            world.controllers.ask(which, identity::outside(number), &path, Some(body), is_connected).await?;
        let octets = (sent + reply.body.len()) as u64 + Controllers::beside(is_connected);
        World::count(&world.to_controllers, octets);
        is_connected = true;
        if reply.status.as_u16() == 401 {
            challenge = serde_json::from_slice::<Challenge>(&reply.body).ok()?.challenge;
            continue;
        }
        // One that has not heard yet of a site that is new: another one is asked.
        if !reply.status.is_success() {
            return None;
        }
        let answer: FromController = serde_json::from_slice(&reply.body).ok()?;
        line.replace(Some((which, since, answer.challenge)));
        return Some((answer.answer, Told::of_status(reply.status.as_u16())));
    }
    None
}
