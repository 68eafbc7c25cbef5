//! The agent's loop: one thread, which does what `fleet::agent` wants.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fleet::agent::{Action, Agent, Asker, RequestId, Source};
use fleet::exchange::{Answer, Question};
use fleet::name::Name;
use fleet::news::News;
use fleet::site::Contact;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::controller::Controller;
use crate::event::{Event, Held};
use crate::folder::{Folder, FolderError};
use crate::gateway::Gateway;
use crate::http::HttpError;
use crate::peers;

/// How often the gateway is asked how it is met.
const LOOK: Duration = Duration::from_secs(5);
/// After how long the gateway is asked again to take what it has refused: something else may have been wrong.
const RELOAD_AGAIN: Duration = Duration::from_secs(30);

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
    let agent = Agent::new(identity.site, key, fleet, u64::from_ne_bytes(seed), Duration::ZERO);
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
            held: BTreeMap::new(),
            serving: None,
            is_there: false,
            reload_at: None,
            is_reloading: false,
            refused: None,
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
    /// The last question of each peer, and until when it is held.
    held: BTreeMap<Name, (Held, Duration)>,
    /// Where peers are answered.
    serving: Option<(IpAddr, AbortHandle)>,
    /// Whether the gateway answered when it was looked at last.
    is_there: bool,
    reload_at: Option<Duration>,
    is_reloading: bool,
    /// What the gateway has refused last.
    refused: Option<String>,
}

impl Runner {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) -> Result<std::convert::Infallible, RunError> {
        tokio::spawn(look(self.gateway.clone(), self.sender.clone()));
        let site = self.agent.asker();
        info!(event = "agent_started", "the agent of {} runs", site.site());
        loop {
            let now = self.began.elapsed();
            self.agent.handle_timeout(now);
            while let Some(action) = self.agent.next_action() {
                self.act(action);
            }
            self.serve();
            self.answer(now);
            self.reload(now);
            let until = self.began + self.deadline().min(now + Duration::from_secs(3600));
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                // This task has a sender itself, so there is always another event.
                Some(event) = events.recv() => self.happen(event),
            }
        }
    }

    fn deadline(&self) -> Duration {
        let held = self.held.values().map(|(_, until)| *until);
        let reload = self.reload_at.filter(|_| !self.is_reloading);
        held.chain(reload).chain([self.agent.deadline()]).min().unwrap_or(Duration::MAX)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Ask { id, source, question, news, wait } => {
                let (asker, events) = (self.agent.asker(), self.sender.clone());
                let own = self.address();
                let task = tokio::spawn(async move {
                    let answer = ask(source, own, &asker, question, &news, wait).await;
                    let _ = events.send(Event::Answered(id, answer)).await;
                });
                self.running.insert(id, task.abort_handle());
            }
            Action::Forget(id) => {
                if let Some(task) = self.running.remove(&id) {
                    task.abort();
                }
            }
            Action::Keep => {
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
            Action::Apply(text) => match self.folder.write_peers(&text) {
                Ok(()) => self.reload_at = Some(Duration::ZERO),
                Err(error) => warn!(event = "peers_not_written", "the gateway keeps its peers: {error}"),
            },
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
                let until = now + held.wait;
                self.held.insert(peer, (held, until));
            }
            Event::Answered(id, answer) => {
                self.running.remove(&id);
                match answer {
                    Ok(answer) => self.agent.answered(id, answer, now),
                    Err(error) => {
                        self.note(&error);
                        self.agent.failed(id, now);
                    }
                }
            }
            Event::Gateway(found) => {
                // It may have read its file before the agent has written it.
                if found.is_some() && !self.is_there {
                    self.reload_at = Some(now);
                }
                self.is_there = found.is_some();
                if let Some(contact) = found {
                    self.looked(contact, now);
                }
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

    /// The gateway is met so. A key that it was going to have, and has, is not the next one any more.
    fn looked(&mut self, mut contact: Contact, now: Duration) {
        let own = self.agent.asker();
        let known = self.agent.fleet().site(own.site()).and_then(|site| site.contact.cloned());
        contact.next_key = known.and_then(|known| known.next_key).filter(|next| *next != contact.key);
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.agent.renumbered(Some(contact), None, unix_s, now);
    }

    /// Where this site is inside of the tunnels.
    fn address(&self) -> Option<IpAddr> {
        let own = self.agent.asker();
        self.agent.fleet().site(own.site()).and_then(|site| site.member.address)
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
        for (peer, (held, until)) in std::mem::take(&mut self.held) {
            if held.answer.is_closed() {
                continue;
            }
            match self.agent.answer(&peer, &held.question, until <= now) {
                Some(answer) => drop(held.answer.send(answer)),
                None => drop(self.held.insert(peer, (held, until))),
            }
        }
    }

    fn reload(&mut self, now: Duration) {
        if self.is_reloading || self.reload_at.is_none_or(|at| at > now) {
            return;
        }
        self.reload_at = None;
        self.is_reloading = true;
        let (gateway, events) = (self.gateway.clone(), self.sender.clone());
        tokio::spawn(async move {
            let result = gateway.reload().await;
            let _ = events.send(Event::Reloaded(result)).await;
        });
    }

    fn reloaded(&mut self, result: Result<(), String>, now: Duration) {
        self.is_reloading = false;
        match result {
            Ok(()) => {
                if self.refused.take().is_some() {
                    info!(event = "peers_taken", "the gateway takes its peers again");
                }
            }
            Err(why) => {
                // Once for each reason.
                if self.refused.as_ref() != Some(&why) {
                    warn!(event = "peers_refused", "the gateway keeps the peers that it had: {why}");
                }
                self.refused = Some(why);
                self.reload_at.get_or_insert(now + RELOAD_AGAIN);
            }
        }
    }
}

async fn ask(
    source: Source,
    own: Option<IpAddr>,
    asker: &Asker,
    question: Question,
    news: &News,
    wait: Duration,
) -> Result<Answer, HttpError> {
    let mut controller = match source {
        Source::Inside { address, certificate, .. } => Controller::inside(address, own, certificate).await?,
        Source::Outside { place, certificate, .. } => Controller::at(&place, certificate).await?,
        Source::Peer { address, .. } => return peers::ask(address, own, question, news, wait).await,
    };
    controller.sync(asker, question, news, wait).await
}

/// Asks the gateway now and then how it is met.
async fn look(gateway: Gateway, events: mpsc::Sender<Event>) {
    loop {
        let contact = gateway.contact().await;
        if events.send(Event::Gateway(contact)).await.is_err() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}
