//! The register of turns, as controllers have it: watched, and replaced.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fleet::agent::{Asker, Source};
use fleet::signed::Signed;
use fleet::standby::{Turn, Wish};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::event::Event;
use crate::controller::Controller;
use crate::http::HttpError;

/// How long an answer may be held back: as often a controller that is gone without a word is noticed.
const WAIT: Duration = Duration::from_secs(30);
/// After how many answers it is looked whether a controller inside of the tunnels answers.
const LOOK_INSIDE: usize = 10;
/// By how much those inside of the tunnels come first.
const INSIDE_FIRST: Duration = Duration::from_millis(250);
/// Between two tries, and after one that was refused.
const PAUSE: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// A connection that is ready for the next put.
type Ready = Arc<Mutex<Option<Controller>>>;

/// Where it is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// This site's address inside of the tunnels, by which it is known there.
    pub(crate) own: Option<IpAddr>,
    /// The controllers.
    pub(crate) controllers: Vec<Source>,
}

pub(super) struct Register {
    asker: Asker,
    places: watch::Receiver<Places>,
    events: mpsc::Sender<Event>,
    watch: AbortHandle,
    ready: Ready,
}

impl Register {
    pub(super) fn start(asker: Asker, places: watch::Receiver<Places>, events: mpsc::Sender<Event>) -> Self {
        let watch = tokio::spawn(watch_it(asker.clone(), places.clone(), events.clone())).abort_handle();
        Register { asker, places, events, watch, ready: Ready::default() }
    }

    /// Asks anew what it has: nobody knows how old an answer is that comes now.
    pub(super) fn begin_again(&mut self) {
        self.watch.abort();
        let watch = watch_it(self.asker.clone(), self.places.clone(), self.events.clone());
        self.watch = tokio::spawn(watch).abort_handle();
        self.ready = Ready::default();
    }

    /// Connects, so that a put does not wait for that.
    pub(super) fn prepare(&self) {
        let (places, ready) = (self.places.borrow().clone(), Arc::clone(&self.ready));
        tokio::spawn(async move {
            let mut ready = ready.lock().await;
            // One that is there already may have been closed meanwhile.
            *ready = reach(places, Duration::ZERO).await.ok();
        });
    }

    /// Replaces it, if it has this version.
    pub(super) fn put(&self, at: u64, turn: Signed<Turn>) {
        let (places, ready) = (self.places.borrow().clone(), Arc::clone(&self.ready));
        let (asker, events) = (self.asker.clone(), self.events.clone());
        tokio::spawn(async move {
            let wish = Wish::Put { at, turn };
            let mut ready = ready.lock().await;
            let mut answer = None;
            // Once more where the connection was too old. That it was put twice is told from its version.
            for _ in 0..2 {
                let connection = match ready.take() {
                    Some(connection) => Ok(connection),
                    None => reach(places.clone(), Duration::ZERO).await,
                };
                let Ok(mut connection) = connection else { break };
                match connection.turn(&asker, &wish, Duration::ZERO).await {
                    Ok(registered) => {
                        answer = Some(registered);
                        *ready = Some(connection);
                        break;
                    }
                    Err(HttpError::Unreachable { .. }) => {}
                    Err(error) => {
                        tracing::warn!(event = "turn_refused", "{error}");
                        break;
                    }
                }
            }
            drop(ready);
            let _ = events.send(Event::Put(answer)).await;
        });
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Tells what it has, as soon as it is another; nothing, as soon as no controller answers.
async fn watch_it(asker: Asker, places: watch::Receiver<Places>, events: mpsc::Sender<Event>) {
    let mut refused = None;
    while !events.is_closed() {
        let all = places.borrow().clone();
        let mut pause = PAUSE;
        if let Ok(controller) = reach(all, INSIDE_FIRST).await {
            match watch_at(controller, &asker, &events).await {
                Ok(()) => continue,
                Err(HttpError::Unreachable { .. }) => {}
                Err(error) => {
                    pause = REFUSED_PAUSE;
                    let why = error.to_string();
                    if refused.as_ref() != Some(&why) {
                        tracing::warn!(event = "turn_refused", "{why}");
                        refused = Some(why);
                    }
                }
            }
        }
        let _ = events.send(Event::Registered(None)).await;
        tokio::time::sleep(pause).await;
    }
}

/// Tells what it has at one controller, until it is time to look for one inside of the tunnels.
async fn watch_at(
    mut controller: Controller,
    asker: &Asker,
    events: &mpsc::Sender<Event>,
) -> Result<(), HttpError> {
    // The first is answered at once.
    let (mut known, mut wait) = (u64::MAX, Duration::ZERO);
    for _ in 0..LOOK_INSIDE {
        let registered = controller.turn(asker, &Wish::See { known }, wait).await?;
        (known, wait) = (registered.version, WAIT);
        if events.send(Event::Registered(Some(registered))).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The first controller that answers, of all: one that is gone may take its time. Those inside of the tunnels have so much of a
/// start.
async fn reach(places: Places, inside_first: Duration) -> Result<Controller, HttpError> {
    let own = places.own;
    let mut tries = JoinSet::new();
    for source in places.controllers {
        tries.spawn(async move {
            match source {
                Source::Inside { address, certificate, .. } => {
                    Controller::inside(address, own, certificate).await
                }
                Source::Outside { place, certificate, .. } => {
                    tokio::time::sleep(inside_first).await;
                    Controller::at(&place, certificate).await
                }
                Source::Peer { name, .. } => {
                    let why = "it is no controller".to_owned();
                    Err(HttpError::Unreachable { place: name.to_string(), why })
                }
            }
        });
    }
    let mut last =
        HttpError::Unreachable { place: "the fleet".to_owned(), why: "it has no controller".to_owned() };
    while let Some(done) = tries.join_next().await {
        match done {
            Ok(Ok(controller)) => return Ok(controller),
            Ok(Err(error)) => last = error,
            Err(error) => {
                last = HttpError::Unreachable { place: "the fleet".to_owned(), why: error.to_string() };
            }
        }
    }
    Err(last)
}
