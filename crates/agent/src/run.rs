//! The agent's loop: one thread, which does what `fleet::agent` wants.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dns::Kind;
use fleet::agent::{Action, Agent, Asker, Held, Outcome, RequestId, Source};
use fleet::exchange::{Answer, Question, Told};
use fleet::key::Digest;
use fleet::news::News;
use fleet::site::Contact;
use ipnet::IpNet;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::controller::Controller;
use crate::event::Event;
use crate::folder::{Folder, FolderError};
use crate::gateway::{Found, Gateway, Reloaded};
use crate::http::HttpError;
use crate::peers;
use crate::standby::{self, Beside, Places};

/// How often the gateway is asked how it is met.
const LOOK: Duration = Duration::from_secs(5);
/// The same, while it does not run.
const LOOK_FOR: Duration = Duration::from_secs(1);
/// How long a reload may keep the gateway from saying whether it is there, in milliseconds.
const BUSY_MS: u64 = 5000;

/// How an agent runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its folder.
    pub folder: PathBuf,
    /// The folder of the daemon's sockets, if it is not the usual one.
    pub sockets: Option<PathBuf>,
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Its folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It has not been admitted.
    #[error("this site is no member yet: `sidestep enroll --wait` waits for that")]
    NotAdmitted,
    /// The system.
    #[error("{0}")]
    System(std::io::Error),
}

/// Runs an agent until the process ends.
///
/// # Errors
/// If it cannot begin.
pub fn run(options: &Options) -> Result<std::convert::Infallible, RunError> {
    let folder = Folder::new(options.folder.clone());
    let (identity, key) = folder.identity()?;
    let fleet = folder.fleet(identity.network)?.ok_or(RunError::NotAdmitted)?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| RunError::System(std::io::Error::other(error.to_string())))?;
    let mut agent = Agent::new(identity.site, key, fleet, u64::from_ne_bytes(seed), Duration::ZERO);
    agent.remember(folder.taken()?);
    let gateway = Gateway::of(&identity.tunnel, options.sockets.as_deref());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(RunError::System)?;
    runtime.block_on(async {
        let (sender, events) = mpsc::channel(256);
        let began = Instant::now();
        let running = BTreeMap::new();
        let runner = Runner {
            agent,
            folder,
            gateway,
            began,
            sender,
            running,
            held: Held::default(),
            line: Arc::default(),
            serving: None,
            is_there: false,
            is_due: false,
            is_reloading: false,
            places: watch::Sender::new(Places::default()),
            busy_until: Arc::default(),
        };
        runner.run(events).await
    })
}

struct Runner {
    agent: Agent,
    folder: Folder,
    gateway: Gateway,
    began: Instant,
    sender: mpsc::Sender<Event>,
    /// Questions that are asked.
    running: BTreeMap<RequestId, AbortHandle>,
    /// What peers wait for.
    held: Held<oneshot::Sender<Answer>>,
    /// The connection to the controller that was asked last, for the next question.
    line: Line,
    /// Where peers are answered.
    serving: Option<(IpAddr, AbortHandle)>,
    /// Whether the gateway answered when it was looked at last.
    is_there: bool,
    /// Whether the gateway is to read what was written.
    is_due: bool,
    is_reloading: bool,
    /// For who asks controllers whose turn it is.
    places: watch::Sender<Places>,
    /// Until when a reload may keep the gateway busy, in milliseconds of CLOCK_BOOTTIME.
    busy_until: Arc<AtomicU64>,
}

impl Runner {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) -> Result<std::convert::Infallible, RunError> {
        tokio::spawn(look(self.gateway.clone(), self.sender.clone()));
        tokio::spawn(standby::run(Beside {
            gateway: self.gateway.clone(),
            asker: self.agent.asker(),
            folder: self.folder.clone(),
            places: self.places.subscribe(),
            busy_until: Arc::clone(&self.busy_until),
        }));
        let site = self.agent.asker();
        info!(event = "agent_started", "the agent of {} runs", site.site());
        loop {
            let now = self.began.elapsed();
            self.agent.handle_timeout(now);
            while let Some(action) = self.agent.next_action() {
                self.act(action);
            }
            self.tell_places();
            self.serve();
            self.answer(now);
            self.reload();
            let until = self.began + self.deadline().min(now + Duration::from_secs(3600));
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                // This task has a sender itself, so there is always another event.
                Some(event) = events.recv() => self.happen(event),
            }
        }
    }

    fn deadline(&self) -> Duration {
        self.held.deadline().map_or(self.agent.deadline(), |held| held.min(self.agent.deadline()))
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Ask { id, source, question, news, wait } => {
                let (asker, events, line) = (self.agent.asker(), self.sender.clone(), Arc::clone(&self.line));
                let own = self.address();
                let task = tokio::spawn(async move {
                    let answer = ask(source, own, &asker, question, &news, wait, &line).await;
                    let _ = events.send(Event::Answered(id, answer)).await;
                });
                self.running.insert(id, task.abort_handle());
            }
            Action::LookUp(names) => {
                let events = self.sender.clone();
                tokio::spawn(async move {
                    let texts = tokio::task::spawn_blocking(move || texts_of(&names)).await;
                    let _ = events.send(Event::Signposts(texts.unwrap_or_default())).await;
                });
            }
            Action::Forget(id) => {
                if let Some(task) = self.running.remove(&id) {
                    task.abort();
                }
            }
            Action::Keep => {
                self.held.note_news();
                if let Err(error) = self.folder.keep_fleet(self.agent.fleet()) {
                    warn!(
                        event = "fleet_not_kept",
                        "what is known of the fleet is not kept over a restart: {error}"
                    );
                }
                let serial = self.agent.fleet().serial().map_or(0, |serial| serial.0);
                info!(
                    event = "fleet_changed",
                    "document {serial} of the fleet, with what its sites say of themselves"
                );
            }
            Action::Apply(text) => {
                self.is_due |= self.write_peers(&text);
            }
            Action::Leave(text) => {
                self.write_peers(&text);
            }
            Action::KeepTaken => {
                if let Err(error) = self.folder.keep_taken(self.agent.taken()) {
                    warn!(event = "fleet_not_kept", "what the gateway has taken is not kept: {error}");
                }
            }
            Action::Gateway(outcome) => tell(&outcome),
            // It comes from elsewhere, and may go to a terminal.
            Action::Warn(text) => warn!(event = "fleet_refused", "{}", text.escape_debug()),
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.began.elapsed();
        match event {
            Event::MayAsk(from, allowed) => drop(allowed.send(self.agent.peer_at(from).is_some())),
            Event::Asked(held) => {
                let Some(peer) = self.agent.peer_at(held.from) else { return };
                self.agent.told(&peer, held.news.clone(), now);
                self.held.put(peer, held.question, now + held.wait, held.answer);
            }
            Event::Answered(id, answer) => {
                self.running.remove(&id);
                match answer {
                    Ok((answer, told)) => {
                        if told == Told::NotKept {
                            self.agent.not_kept(id);
                        }
                        self.agent.answered(id, answer, now);
                    }
                    Err(error) => {
                        self.note(&error);
                        self.agent.failed(id, now);
                    }
                }
            }
            Event::Gateway(found) => {
                // It may have read its file before the agent has written it.
                if found.is_some() && !self.is_there {
                    self.agent.gateway_is_there();
                }
                self.is_there = found.is_some();
                if let Some(Found { contact: Some(contact), inner }) = found {
                    self.looked(contact, &inner, now);
                }
            }
            Event::Signposts(texts) => {
                info!(
                    event = "signposts",
                    "neither controllers nor peers answer: {} texts in DNS say where else to ask",
                    texts.len()
                );
                self.agent.told_signposts(&texts, now);
            }
            Event::Reloaded(result) => self.reloaded(result, now),
        }
    }

    /// What is no matter of the path is told; that nobody answers now and then is not.
    fn note(&self, error: &HttpError) {
        match error {
            HttpError::Unreachable { .. } => tracing::debug!("{error}"),
            _ => warn!(event = "controller_refused", "{error}"),
        }
    }

    /// The gateway is found so: what is different is told. A key that administrators have announced stays the next one until it
    /// has it.
    fn looked(&mut self, mut contact: Contact, inner: &[(IpNet, IpAddr)], now: Duration) {
        let own = self.agent.asker();
        let Some(site) = self.agent.fleet().site(own.site()) else { return };
        let announced = site.contact.and_then(|known| known.next_key).filter(|next| *next != contact.key);
        contact.next_key = contact.next_key.or(announced);
        let networks = site.member.renumbered(inner);
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.agent.renumbered(Some(contact), networks, unix_s, now);
    }

    /// Where this site is inside of the tunnels.
    fn address(&self) -> Option<IpAddr> {
        let own = self.agent.asker();
        self.agent.fleet().site(own.site()).and_then(|site| site.member.address)
    }

    /// Tells who asks controllers whose turn it is where they are.
    fn tell_places(&self) {
        let places = Places { own: self.address(), controllers: self.agent.controllers() };
        self.places.send_if_modified(|known| {
            let is_other = *known != places;
            *known = places;
            is_other
        });
    }

    /// Answers peers at the address that the site has now.
    fn serve(&mut self) {
        let address = self.address();
        if self.serving.as_ref().map(|(at, _)| *at) == address {
            return;
        }
        if let Some((_, task)) = self.serving.take() {
            task.abort();
        }
        if let Some(address) = address {
            let task = tokio::spawn(peers::serve(address, self.sender.clone()));
            self.serving = Some((address, task.abort_handle()));
        }
    }

    /// Answers those who are told something by now, and those who have waited long enough.
    fn answer(&mut self, now: Duration) {
        for (reply, answer) in self.held.answered(&self.agent, now, oneshot::Sender::is_closed) {
            // It may have gone away.
            let _ = reply.send(answer);
        }
    }

    /// Writes peers for the gateway; false where that fails, as on a disk that is full.
    fn write_peers(&mut self, text: &str) -> bool {
        let written = self.folder.write_peers(text);
        if let Err(error) = &written {
            self.agent.peers_not_written(format!("not written: {error}"), self.began.elapsed());
        }
        written.is_ok()
    }

    fn reload(&mut self) {
        if self.is_reloading || !self.is_due {
            return;
        }
        (self.is_due, self.is_reloading) = (false, true);
        self.busy_until.store(linux::clock::boottime_ms() + BUSY_MS, Relaxed);
        let (gateway, events) = (self.gateway.clone(), self.sender.clone());
        tokio::spawn(async move {
            let result = gateway.reload().await;
            let _ = events.send(Event::Reloaded(result)).await;
        });
    }

    fn reloaded(&mut self, reloaded: Reloaded, now: Duration) {
        self.is_reloading = false;
        self.busy_until.store(0, Relaxed);
        // It may have read the file before or after it was written again.
        if self.is_due {
            return;
        }
        match reloaded {
            Reloaded::Taken => self.agent.gateway_answered(Ok(()), now),
            Reloaded::Refused(why) => self.agent.gateway_answered(Err(why), now),
            Reloaded::Absent => {
                self.is_there = false;
                self.agent.gateway_is_absent(now);
            }
        }
    }
}

/// Says what came of what the gateway was given. Reasons are its own words about texts from elsewhere.
fn tell(outcome: &Outcome) {
    match outcome {
        Outcome::LeftOut { site, why } => warn!(
            event = "site_left_out",
            "site {site} is left out, or as it was before: the gateway refuses it: {}",
            why.escape_debug()
        ),
        Outcome::Back(site) => info!(event = "site_taken", "the gateway takes site {site} again"),
        Outcome::Refused(why) => {
            warn!(event = "peers_refused", "the gateway keeps the peers that it had: {}", why.escape_debug());
        }
        Outcome::Takes => info!(event = "peers_taken", "the gateway takes its peers again"),
    }
}

/// The texts that these names have.
fn texts_of(names: &[String]) -> Vec<String> {
    let mut texts = Vec::new();
    for name in names {
        match dns::lookup(name, Kind::Txt) {
            Ok(found) => texts.extend(found.into_iter().filter_map(|found| match found {
                dns::Found::Text(text) => Some(text),
                dns::Found::Address(_) => None,
            })),
            // No server, or no more of them.
            Err(_) => break,
        }
    }
    texts
}

/// A connection that is not in use, and between which places with which certificate it is.
type Line = Arc<Mutex<Option<(Ends, Controller)>>>;
type Ends = (String, Option<IpAddr>, Digest);

async fn ask(
    source: Source,
    own: Option<IpAddr>,
    asker: &Asker,
    question: Question,
    news: &News,
    wait: Duration,
    line: &Line,
) -> Result<(Answer, Told), HttpError> {
    let (inside, place, certificate) = match source {
        Source::Inside { address, certificate, .. } => (Some(address), address.to_string(), certificate),
        Source::Outside { place, certificate, .. } => (None, place, certificate),
        Source::Peer { address, .. } => {
            let answer = peers::ask(address, own, question, news, wait).await?;
            return Ok((answer, Told::Kept));
        }
    };
    let ends: Ends = (place, own.filter(|_| inside.is_some()), certificate);
    let free = || line.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = free().take().filter(|(kept, _)| *kept == ends);
    if let Some((_, mut controller)) = kept {
        match controller.sync(asker, question, news, wait).await {
            // It was closed meanwhile, as old ones are.
            Err(HttpError::Unreachable { .. }) => {}
            answer => {
                *free() = answer.is_ok().then_some((ends, controller));
                return answer;
            }
        }
    }
    let mut controller = match inside {
        Some(address) => Controller::inside(address, own, certificate).await?,
        None => Controller::at(&ends.0, certificate).await?,
    };
    let answer = controller.sync(asker, question, news, wait).await?;
    *free() = Some((ends, controller));
    Ok(answer)
}

/// Asks the gateway now and then how it is met.
async fn look(gateway: Gateway, events: mpsc::Sender<Event>) {
    loop {
        let found = gateway.look().await;
        let pause = if found.is_some() { LOOK } else { LOOK_FOR };
        if events.send(Event::Gateway(found)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}
