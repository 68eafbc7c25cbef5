//! A controller: a fleet as its store has it, followed as it changes, and told to agents.

use std::sync::{Arc, Mutex as StdMutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use fleet::desk::Desk;
use fleet::document::Serial;
use fleet::exchange::{Answer, Question};
use fleet::fleet::{Fleet, Notices};
use fleet::name::Name;
use fleet::news::{Have, News};
use fleet::notice::ContactNotice;
use fleet::pace::Pace;
use fleet::signed::Signed;
use store::{Change, Changes, Commit, Entry, Revision, Store, Watch, WatchError};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::error::Error;
use crate::heard::{Ear, Hearing};
use crate::load::{self, Loaded, Part};
use crate::records::What;
use crate::turn_marks::Turns;
use crate::waiting::{Concerned, Waiting};
use crate::{log, records};

/// Between two tries, where the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How long is waited until what was just committed has come back by the watch.
const CATCH_UP: Duration = Duration::from_secs(5);

/// How often it is looked for invitations that have expired, at most.
const LOOK: Duration = Duration::from_secs(600);

/// A controller. Clones are the same one.
pub struct Controller<S: Store> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    store: S,
    desk: RwLock<Desk>,
    /// Up to which revision the store was followed.
    followed: watch::Sender<u64>,
    waiting: Waiting,
    /// How often each site says something new, and when this began.
    pace: StdMutex<Pace>,
    began: Instant,
    ear: Ear,
    /// Held by whoever writes into the log.
    writing: Mutex<()>,
    /// When it was looked for invitations that have expired.
    looked: StdMutex<Option<Instant>>,
    turns: Turns,
}

/// Figures about a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Agents that wait for news.
    pub waiting: usize,
    /// How often one of them was woken.
    pub woken: u64,
    /// Up to which of the store's revisions it was followed.
    pub revision: u64,
}

impl<S: Store> Clone for Controller<S> {
    fn clone(&self) -> Self {
        Controller { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> Controller<S> {
    /// The controller of a store that has a network. [`Controller::follow`] has to run beside what is asked of it.
    ///
    /// # Errors
    /// If the store has none, does not answer, or has what administrators have not signed.
    pub async fn open(store: S) -> Result<Self, Error> {
        let Loaded { desk, revision, .. } = load::load(&store, true).await?;
        let (desk, followed) = (RwLock::new(desk), watch::Sender::new(revision.number()));
        let shared = Shared {
            store,
            desk,
            followed,
            waiting: Waiting::default(),
            pace: StdMutex::default(),
            began: Instant::now(),
            ear: Ear::new(),
            writing: Mutex::default(),
            looked: StdMutex::default(),
            turns: Turns::default(),
        };
        Ok(Controller { shared: Arc::new(shared) })
    }

    /// The store.
    pub(crate) fn store(&self) -> &S {
        &self.shared.store
    }

    /// Whether a site has not said too much that is new lately. It is noted.
    pub(crate) fn hears(&self, site: &Name) -> bool {
        let mut pace = self.shared.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.hear(site, self.shared.began.elapsed()).is_ok()
    }

    /// [`log::write`], one at a time here: each is written under the condition that no other was written meanwhile, and of
    /// hundreds at once most would try in vain.
    pub(crate) async fn write(
        &self,
        commit: Commit,
        who: &str,
        what: What,
    ) -> Result<Option<Revision>, Error> {
        let _writing = self.shared.writing.lock().await;
        log::write(self.store(), commit, who, what).await
    }

    /// Whether it is time to look for invitations that have expired: all are read for that.
    pub(crate) fn may_look(&self) -> bool {
        let mut looked = self.shared.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let may = looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if may {
            *looked = Some(Instant::now());
        }
        may
    }

    /// How far the store was followed.
    pub(crate) fn followed(&self) -> watch::Receiver<u64> {
        self.shared.followed.subscribe()
    }

    /// Of sites with two gateways.
    pub(crate) fn turns(&self) -> &Turns {
        &self.shared.turns
    }

    /// What is known here: late by what has not come from the store yet.
    pub(crate) fn desk(&self) -> RwLockReadGuard<'_, Desk> {
        self.shared.desk.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what is known here.
    #[must_use]
    pub fn fleet(&self) -> Fleet {
        self.desk().fleet().clone()
    }

    /// All that is known of the fleet, for who may know all.
    #[must_use]
    pub fn all_news(&self, have: &Have) -> News {
        self.desk().fleet().all_news(have, Notices::All)
    }

    /// The serial of the document in force, as far as is known here.
    #[must_use]
    pub fn serial(&self) -> Option<Serial> {
        self.desk().fleet().serial()
    }

    /// The texts of the log's records from a number on: [`log::PAGE`] of them at the most. [`log::verify`] reads them.
    ///
    /// # Errors
    /// If the store does not answer, or a record is missing.
    pub async fn log(&self, from: u64) -> Result<Vec<String>, Error> {
        log::read(self.store(), from).await
    }

    /// The last record of the log.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn log_head(&self) -> Result<Option<log::Head>, Error> {
        log::head(self.store()).await
    }

    /// Figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (waiting, woken) = self.shared.waiting.figures();
        Figures { waiting, woken, revision: *self.shared.followed.borrow() }
    }

    /// When each site asked last, of those that have asked this controller since it runs.
    #[must_use]
    pub fn heard(&self) -> Hearing {
        let waiting = self.shared.waiting.sites();
        self.shared.ear.tell(self.desk().fleet(), |site| waiting.contains(site))
    }

    /// Follows what is changed in the store, by whichever controller, for as long as it is polled.
    pub async fn follow(&self) {
        let mut after = *self.shared.followed.borrow();
        loop {
            let mut watch = match Revision::new(after) {
                Some(revision) => self.shared.store.watch(&crate::keys::fleet(), revision),
                None => return,
            };
            after = loop {
                match watch.next().await {
                    Ok(changes) => {
                        if let Err(why) = self.take_changes(&changes).await {
                            warn!("a change of the store cannot be followed ({why}): reading all of it");
                            break self.load_again().await;
                        }
                    }
                    Err(WatchError::Compacted(_)) => break self.load_again().await,
                    Err(WatchError::Failed(_)) => tokio::time::sleep(PAUSE).await,
                }
            };
        }
    }

    /// Until what was committed at a revision is known here, or for a while.
    pub(crate) async fn catch_up(&self, revision: Revision) {
        let mut followed = self.shared.followed.subscribe();
        let there = followed.wait_for(|followed| *followed >= revision.number());
        // What was committed stays so; who asks next may hear it a moment later.
        let _ = tokio::time::timeout(CATCH_UP, there).await;
    }

    async fn load_again(&self) -> u64 {
        loop {
            match load::load(&self.shared.store, true).await {
                Ok(mut loaded) => {
                    let revision = loaded.revision;
                    {
                        let mut desk = self.shared.desk.write().unwrap_or_else(PoisonError::into_inner);
                        // What was known here stays known, also where the store was put back to an older state.
                        let known =
                            desk.fleet().all_news(&Have { authority: 1, ..Have::default() }, Notices::All);
                        if desk.fleet().network() == loaded.desk.fleet().network() {
                            load::take(&mut loaded.desk, known, revision);
                        }
                        *desk = loaded.desk;
                        self.shared.waiting.ring(desk.fleet(), &Concerned::All);
                    }
                    self.shared.turns.note_all(revision.number());
                    self.shared.followed.send_replace(revision.number());
                    return revision.number();
                }
                Err(why) => {
                    error!("{why}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn take_changes(&self, changes: &Changes) -> Result<(), Error> {
        let put = changes.changes.iter().filter_map(|change| match change {
            Change::Put(entry) => Some(entry),
            Change::Deleted(_) => None,
        });
        for change in &changes.changes {
            let (Change::Put(Entry { key, .. }) | Change::Deleted(key)) = change;
            self.shared.turns.note(key, changes.revision.number());
        }
        // Who may sign comes before what they have signed, and that before what goes with it: the order of their keys.
        let mut news = Vec::new();
        for entry in put {
            news.push(self.news_of(entry).await?);
        }
        news.sort_by_key(|(order, ..)| *order);
        let mut concerned: Option<Concerned> = None;
        let mut desk = self.shared.desk.write().unwrap_or_else(PoisonError::into_inner);
        for (_, news, whom) in news {
            let is_document = news.document.is_some();
            let serial = desk.fleet().serial();
            if load::take(&mut desk, news, changes.revision) {
                concerned = Some(match concerned {
                    Some(before) => before.and(whom),
                    None => whom,
                });
            } else if is_document && desk.fleet().serial() == serial {
                return Err(Error::Broken("a document does not follow the one that is known".to_owned()));
            }
        }
        if let Some(concerned) = concerned {
            self.shared.waiting.ring(desk.fleet(), &concerned);
        }
        drop(desk);
        self.shared.followed.send_replace(changes.revision.number());
        Ok(())
    }

    /// What an entry says, in which order, and whom it concerns.
    async fn news_of(&self, entry: &Entry) -> Result<(u8, News, Concerned), Error> {
        Ok(match load::part(&entry.key) {
            Part::Document(serial) => {
                let is_before_known = self.serial().is_some_and(|known| known.0 + 1 == serial.0);
                let stored = records::read(entry)?;
                let document =
                    load::document_news(&self.shared.store, serial, &stored, is_before_known).await?;
                (1, News { document: Some(document), ..News::default() }, Concerned::All)
            }
            Part::Authority => (0, load::news_of(entry)?, Concerned::All),
            Part::Contact => {
                let signed: Signed<ContactNotice> = records::read(entry)?;
                let site = signed.read().map_err(|error| Error::Broken(error.to_string()))?.site;
                (3, load::news_of(entry)?, Concerned::Around(vec![site]))
            }
            Part::Networks => (3, load::news_of(entry)?, Concerned::All),
            Part::Delegated => (2, load::news_of(entry)?, Concerned::All),
            Part::Head | Part::Other => (4, News::default(), Concerned::Around(Vec::new())),
        })
    }

    /// The answer to a site, which is told as soon as there is something new for it, and after `wait` at the latest.
    pub async fn answer(&self, who: &Name, question: &Question, wait: Duration) -> Answer {
        let until = Instant::now() + wait;
        self.shared.ear.note(who, question.have.serial);
        let has_two = self.desk().fleet().site(who).is_some_and(|site| site.member.standby.is_some());
        let waiter = self.shared.waiting.enter(who, if has_two { 2 } else { 1 });
        loop {
            let is_late = Instant::now() >= until || waiter.is_over();
            // Of who asks once there is no need to know how long it took.
            if let Some(answer) = self.desk().answer(who, question, is_late) {
                return answer;
            }
            let _ = tokio::time::timeout_at(until, waiter.rung()).await;
        }
    }
}
