//! A store in memory, for tests and simulations: it fails when it is told to, and its time passes when it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::commit::{Commit, Condition, Write};
use crate::error::{CommitError, Failure, LeaseError, ListError, WatchError};
use crate::key::{Key, Prefix};
use crate::limit::LIST_OCTETS;
use crate::revision::{Lease, LeaseId, Revision};
use crate::store::{Change, Changes, Entry, Listing, Store, Watch};

/// A store in memory. Clones are the same store.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    /// Wakes watches.
    changed: watch::Sender<()>,
}

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It happens, if its conditions hold, and that is told.
    Happens,
    /// The store cannot be reached.
    Unreachable,
    /// It happens, if its conditions hold, and nobody is told.
    UnknownButHappens,
    /// It does not happen, and nobody is told.
    UnknownAndLost,
    /// It happens at [`Memory::arrive`], if its conditions hold then, and nobody is told.
    UnknownAndLate,
}

type Decide = Box<dyn FnMut(&Commit) -> Fate + Send>;

struct State {
    revision: u64,
    entries: BTreeMap<Key, Entry>,
    /// Every commit after `compacted`, oldest first.
    history: VecDeque<Changes>,
    compacted: u64,
    leases: BTreeMap<LeaseId, Term>,
    granted: i64,
    now: Duration,
    reachable: bool,
    watches_held: bool,
    decide: Decide,
    late: Vec<Commit>,
}

struct Term {
    time_to_live: Duration,
    ends: Duration,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Memory @{}", self.state().revision)
    }
}

impl Memory {
    /// An empty store, whose time stands.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            revision: 1,
            entries: BTreeMap::new(),
            history: VecDeque::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            granted: 0,
            now: Duration::ZERO,
            reachable: true,
            watches_held: false,
            decide: Box::new(|_| Fate::Happens),
            late: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), changed: watch::Sender::new(()) }
    }

    /// Lets time pass, and leases end.
    pub fn pass(&self, time: Duration) {
        self.change(|state| {
            state.now += time;
            let now = state.now;
            let ended = state.leases.iter().filter(|(_, term)| term.ends <= now);
            for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
                state.end(id);
            }
        });
    }

    /// Whether anything but [`Failure::Unreachable`] is answered from now on.
    pub fn reachable(&self, reachable: bool) {
        self.change(|state| state.reachable = reachable);
    }

    /// Who says what becomes of commits from now on.
    pub fn decide(&self, decide: impl FnMut(&Commit) -> Fate + Send + 'static) {
        self.change(|state| state.decide = Box::new(decide));
    }

    /// Lets the commits happen that are late.
    pub fn arrive(&self) {
        self.change(|state| {
            for commit in std::mem::take(&mut state.late) {
                // Nobody is told, not even of a conflict.
                let _ = state.apply(&commit);
            }
        });
    }

    /// Whether watches hand out nothing from now on, as slow ones do.
    pub fn hold_watches(&self, held: bool) {
        self.change(|state| state.watches_held = held);
    }

    /// Forgets the history: watches that have not handed it out have to begin again.
    pub fn compact(&self) {
        self.change(|state| {
            state.history.clear();
            state.compacted = state.revision;
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }

    fn reached(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let state = self.state();
        state.check()?;
        Ok(state)
    }
}

impl Store for Memory {
    type Watch = MemoryWatch;

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Failure> {
        Ok(self.reached()?.entries.get(key).cloned())
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ListError> {
        let state = self.reached()?;
        let entries: Vec<Entry> =
            state.entries.values().filter(|entry| prefix.contains(&entry.key)).cloned().collect();
        let octets: usize = entries.iter().map(|entry| entry.key.as_str().len() + entry.value.len()).sum();
        if octets > LIST_OCTETS {
            return Err(ListError::TooLarge(prefix.to_string()));
        }
        Ok(Listing { entries, revision: state.at() })
    }

    async fn commit(&self, commit: &Commit) -> Result<Revision, CommitError> {
        commit.check()?;
        self.change(|state| {
            state.check()?;
            let unknown = || Err(CommitError::Unknown("the answer was lost".to_owned()));
            match (state.decide)(commit) {
                Fate::Happens => state.apply(commit),
                Fate::Unreachable => Err(unreachable_now().into()),
                Fate::UnknownAndLost => unknown(),
                Fate::UnknownButHappens => {
                    let _ = state.apply(commit);
                    unknown()
                }
                Fate::UnknownAndLate => {
                    state.late.push(commit.clone());
                    unknown()
                }
            }
        })
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> MemoryWatch {
        let changed = self.changed.subscribe();
        MemoryWatch {
            state: Arc::clone(&self.state),
            changed,
            prefix: prefix.clone(),
            after: after.number(),
            said_unreachable: false,
        }
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, Failure> {
        let mut state = self.reached()?;
        state.granted += 1;
        let Some(id) = LeaseId::from_signed(state.granted) else {
            return Err(Failure::Broken("no lease is left".to_owned()));
        };
        let ends = state.now + time_to_live;
        state.leases.insert(id, Term { time_to_live, ends });
        Ok(Lease { id, time_to_live })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, LeaseError> {
        let mut state = self.reached()?;
        let now = state.now;
        let term = state.leases.get_mut(&lease).ok_or(LeaseError::Ended)?;
        term.ends = now + term.time_to_live;
        Ok(term.time_to_live)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Failure> {
        self.change(|state| {
            state.check()?;
            state.end(lease);
            Ok(())
        })
    }
}

fn unreachable_now() -> Failure {
    Failure::Unreachable("it was told to be".to_owned())
}

impl State {
    fn check(&self) -> Result<(), Failure> {
        if self.reachable { Ok(()) } else { Err(unreachable_now()) }
    }

    fn at(&self) -> Revision {
        // It begins at 1 and grows.
        Revision::new(self.revision).unwrap_or_else(|| unreachable!("revision 0"))
    }

    fn apply(&mut self, commit: &Commit) -> Result<Revision, CommitError> {
        let holds = |(key, condition): &(Key, Condition)| match (self.entries.get(key), condition) {
            (None, Condition::Absent) => true,
            (Some(entry), Condition::At(revision)) => entry.revision == *revision,
            _ => false,
        };
        if !commit.conditions.iter().all(holds) {
            return Err(CommitError::Conflict);
        }
        let known = |write: &Write| match write {
            Write::Put { lease: Some(lease), .. } => self.leases.contains_key(lease),
            _ => true,
        };
        if !commit.writes.values().all(known) {
            return Err(CommitError::LeaseEnded);
        }
        let writes = commit.writes.iter().map(|(key, write)| (key.clone(), write.clone()));
        self.write(writes.collect());
        Ok(self.at())
    }

    fn end(&mut self, lease: LeaseId) {
        if self.leases.remove(&lease).is_none() {
            return;
        }
        let bound = self.entries.values().filter(|entry| entry.lease == Some(lease));
        let writes = bound.map(|entry| (entry.key.clone(), Write::Delete)).collect();
        self.write(writes);
    }

    fn write(&mut self, writes: Vec<(Key, Write)>) {
        let Some(revision) = Revision::new(self.revision + 1) else { return };
        let mut changes = Vec::new();
        for (key, write) in writes {
            match write {
                Write::Put { value, lease } => {
                    let entry = Entry { key: key.clone(), value, revision, lease };
                    self.entries.insert(key, entry.clone());
                    changes.push(Change::Put(entry));
                }
                Write::Delete if self.entries.remove(&key).is_some() => changes.push(Change::Deleted(key)),
                Write::Delete => {}
            }
        }
        if !changes.is_empty() {
            self.revision = revision.number();
            self.history.push_back(Changes { revision, changes });
        }
    }

    /// What a watch hands out next. Nothing before its revision is asked for again.
    fn after(&self, prefix: &Prefix, after: &mut u64) -> Result<Option<Changes>, WatchError> {
        self.check()?;
        if *after < self.compacted || *after > self.revision {
            return Err(WatchError::Compacted(Revision::new(*after).unwrap_or_else(|| self.at())));
        }
        if self.watches_held {
            return Ok(None);
        }
        let begin = *after;
        for commit in self.history.iter().filter(|commit| commit.revision.number() > begin) {
            *after = commit.revision.number();
            let below = |change: &&Change| match change {
                Change::Put(entry) => prefix.contains(&entry.key),
                Change::Deleted(key) => prefix.contains(key),
            };
            let changes: Vec<Change> = commit.changes.iter().filter(below).cloned().collect();
            if !changes.is_empty() {
                return Ok(Some(Changes { revision: commit.revision, changes }));
            }
        }
        *after = self.revision;
        Ok(None)
    }
}

/// A watch of a store in memory.
#[derive(Debug)]
pub struct MemoryWatch {
    state: Arc<Mutex<State>>,
    changed: watch::Receiver<()>,
    prefix: Prefix,
    after: u64,
    /// It has said that the store cannot be reached: the next time it waits for something else to say.
    said_unreachable: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "@{}", self.revision)
    }
}

impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Changes, WatchError> {
        loop {
            self.changed.mark_unchanged();
            let next = {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.after(&self.prefix, &mut self.after)
            };
            self.said_unreachable &= matches!(next, Err(WatchError::Failed(_)));
            match next {
                Ok(Some(changes)) => return Ok(changes),
                Err(WatchError::Failed(_)) if self.said_unreachable => {}
                Err(error) => {
                    self.said_unreachable = true;
                    return Err(error);
                }
                Ok(None) => {}
            }
            // All handles are gone: nothing will ever change.
            if self.changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
