//! Asks all control sockets, a thread for each, so that one that is stuck holds up no other; keeps what they said, writes each
//! minute into the history, and tells the browsers once a second.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::Request;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tracing::warn;

use crate::error::Error;
use crate::feed::Feed;
use crate::happened::Kept;
use crate::history::{HOURS, History, MINUTES, Tier};
use crate::place;
use crate::sample::by_columns;
use crate::source::{Asker, Kind, Source};

/// How often the browsers are told.
const EVERY: Duration = Duration::from_secs(1);
/// Sockets that are asked at the most. Where there are more, those of daemons that are gone make room.
const SOURCES: usize = 64;

/// All that is known.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) feed: Feed,
    /// Why the page must end: it stands where a tunnel now hops.
    pub(crate) must_end: Notify,
    listen: SocketAddr,
    known: Mutex<Known>,
    /// None where it cannot be kept.
    history: Option<History>,
}

#[derive(Debug, Default)]
struct Known {
    sources: BTreeMap<String, Source>,
    events: Kept,
    why_to_end: Option<Error>,
    /// Why the sockets cannot be looked for.
    unread: Option<String>,
}

impl Collected {
    pub(crate) fn new(listen: SocketAddr, history: Option<History>) -> Collected {
        Collected { feed: Feed::default(), must_end: Notify::new(), listen, known: Mutex::default(), history }
    }

    /// Starts to ask the sockets of a folder.
    pub(crate) fn start(self: &Arc<Self>, folder: PathBuf) -> Result<(), Error> {
        let collected = Arc::clone(self);
        let thread = std::thread::Builder::new().name("collect".into()).spawn(move || collected.run(&folder));
        thread.map(drop).map_err(|source| Error::System { what: "a thread", source })
    }

    fn run(self: &Arc<Self>, folder: &Path) {
        let mut minute = now_ms() / 60_000;
        loop {
            for socket in self.look(folder) {
                self.follow(&socket);
            }
            let now = now_ms();
            if now / 60_000 != minute {
                self.remember(minute * 60);
                minute = now / 60_000;
            }
            self.feed.tell(self.document(), now);
            std::thread::sleep(EVERY);
        }
    }

    /// The sockets that there are.
    fn look(&self, folder: &Path) -> Vec<PathBuf> {
        let found = control::all_sockets(folder);
        let mut known = self.known();
        let unread = found.as_ref().err().map(ToString::to_string);
        if let Some(why) = unread.as_ref().filter(|_| known.unread != unread) {
            warn!("sockets are not found: {why}");
        }
        known.unread = unread;
        let mut sockets = found.unwrap_or_default();
        // So that the same are asked where there are too many.
        sockets.sort();
        sockets
    }

    /// Asks a socket from now on, unless it is asked already, or there are too many.
    fn follow(self: &Arc<Self>, socket: &Path) {
        let (collected, mut asker) = (Arc::clone(self), Asker::new(socket));
        let mut known = self.known();
        if known.sources.contains_key(&asker.name) || known.sources.len() >= SOURCES {
            return;
        }
        let (name, source) = (asker.name.clone(), Source::new(asker.kind, socket));
        let ask = move || {
            while collected.ask(&mut asker) {
                collected.feed.pause(asker.kind.pause(collected.feed.is_heard()));
            }
        };
        match std::thread::Builder::new().name("ask".into()).spawn(ask) {
            // It finds its source: it needs the same lock for that.
            Ok(_) => drop(known.sources.insert(name, source)),
            Err(error) => warn!("{}: is not asked yet: {error}", socket.display()),
        }
    }

    /// Asks once; whether it is to be asked again.
    fn ask(&self, asker: &mut Asker) -> bool {
        let answer = asker.ask();
        let events = if answer.is_ok() { asker.ask_events().unwrap_or_default() } else { Vec::new() };
        let mut known = self.known();
        let Known { sources, events: kept, why_to_end, .. } = &mut *known;
        let is_full = sources.len() >= SOURCES;
        let Some(source) = sources.get_mut(&asker.name) else { return false };
        if asker.is_gone(&answer) && (source.may_go() || is_full) {
            sources.remove(&asker.name);
            return false;
        }
        source.take(answer, now_ms());
        if let Err(why) = place::refuse_hopping(self.listen, source.tunnel.status()) {
            *why_to_end = Some(why);
            self.must_end.notify_one();
        }
        // A new browser gets these either with all others or by themselves, never both: it comes in under the same lock.
        kept.keep(&events);
        self.feed.tell_events(&events);
        true
    }

    /// Another browser, which is told whether there is a fleet to ask about.
    pub(crate) fn listen(&self, fleet: bool) -> Option<tokio::sync::mpsc::Receiver<hyper::body::Bytes>> {
        let known = self.known();
        let more = |_: &Value| {
            let tunnels = known.sources.iter().filter(|(_, is)| is.kind == Kind::Tunnel && is.is_shown());
            let rates: Map<String, Value> =
                tunnels.map(|(name, source)| (name.clone(), json!(source.tunnel.rates()))).collect();
            json!({ "rates": rates, "events": known.events.all(), "history": self.history.is_some(), "fleet": fleet })
        };
        self.feed.listen(more, now_ms())
    }

    /// All that is known of a peer.
    pub(crate) fn peer(&self, tunnel: &str, peer: &str) -> Option<Value> {
        self.known().sources.get(tunnel)?.tunnel.peer(peer)
    }

    /// A peer's past, or that of a tunnel as a whole where no peer is named.
    pub(crate) fn past(&self, tunnel: &str, peer: Option<&str>, is_long: bool) -> Result<Value, redb::Error> {
        let Some(history) = &self.history else { return Ok(Value::Null) };
        let tier: Tier = if is_long { HOURS } else { MINUTES };
        let past = history.read(&series(tunnel, peer), tier, now_ms() / 1000)?;
        let mut document = json!({ "from_s": past.from_s, "step_s": tier.step_s });
        document["columns"] = by_columns(&past.samples);
        Ok(document)
    }

    /// What a gateway's firewall does with a packet that is described in words.
    ///
    /// # Errors
    /// In words, where it cannot say.
    pub(crate) fn explain(&self, gateway: &str, packet: String) -> Result<Value, String> {
        self.ask_once(Kind::Gateway, gateway, &Request::Explain { packet })
    }

    /// A script's file and text.
    ///
    /// # Errors
    /// In words, where it cannot be had.
    pub(crate) fn script(&self, host: &str, id: u32) -> Result<Value, String> {
        self.ask_once(Kind::Scripts, host, &json!({ "command": "source", "id": id }))
    }

    fn ask_once(&self, kind: Kind, name: &str, request: &impl Serialize) -> Result<Value, String> {
        let socket = self
            .known()
            .sources
            .get(name)
            .filter(|source| source.kind == kind)
            .map(|source| source.socket.clone());
        let socket = socket.ok_or_else(|| "there is none of this name".to_owned())?;
        control::ask(&socket, request).map_err(|error| error.to_string())
    }

    /// Why the page must end.
    pub(crate) fn why_to_end(&self) -> Option<Error> {
        self.known().why_to_end.take()
    }

    fn document(&self) -> Value {
        let known = self.known();
        let mut document = json!({ "tunnels": {}, "gateways": {}, "scripts": {} });
        for (name, source) in known.sources.iter().filter(|(_, source)| source.is_shown()) {
            document[source.kind.place()][name] = source.summary();
        }
        if let Some(why) = &known.unread {
            document["sockets"] = json!({ "fault": why });
        }
        document
    }

    /// Writes the minute that is over and began at a time, in seconds since 1970.
    fn remember(&self, unix_s: u64) {
        let Some(history) = &self.history else { return };
        let mut samples = Vec::new();
        for (tunnel, source) in &mut self.known().sources {
            let peers = source.tunnel.take_minute();
            if !source.answers() || peers.is_empty() {
                continue;
            }
            let all = crate::sample::sum(peers.iter().map(|(_, sample)| *sample));
            samples.push((series(tunnel, None), all));
            samples.extend(peers.into_iter().map(|(peer, sample)| (series(tunnel, Some(&peer)), sample)));
        }
        if let Err(error) = history.write(&[(unix_s, samples)]) {
            warn!("the history of this minute is lost: {error}");
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a peer, or a tunnel as a whole, is called in the history.
pub(crate) fn series(tunnel: &str, peer: Option<&str>) -> String {
    // Neither name has a line break.
    peer.map_or_else(|| tunnel.to_owned(), |peer| format!("{tunnel}\n{peer}"))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
