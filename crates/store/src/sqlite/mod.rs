//! A store in one file: SQLite, with its write-ahead log, synced at each commit. Several processes may have the file open.
//!
//! A thread owns the connection; what is asked of it waits in a queue, so that no executor is blocked. While there are watches
//! it looks several times a second whether another process has changed something. It ends leases when their time has come, as
//! each process that has the file does.

mod database;
mod file;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::commit::Commit;
use crate::error::{CommitError, Failure, LeaseError, ListError, OpenError, WatchError};
use crate::key::{Key, Prefix};
use crate::revision::{Lease, LeaseId, Revision};
use crate::store::{Changes, Entry, Listing, Store, Watch};
use database::{Clock, Database};

/// How many revisions a watch may be late.
const HISTORY: u64 = 1000;
/// How often the thread looks what other processes have changed, while somebody watches.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The thread looks after leases at least so often: other processes keep them alive, too.
const IDLE: Duration = Duration::from_secs(1);

/// Between two tries to end leases.
const BREATH: Duration = Duration::from_millis(10);

/// A store in one file. Clones are the same one; the file is closed when the last of them and of their watches is dropped.
#[derive(Clone, Debug)]
pub struct Sqlite {
    thread: Arc<Thread>,
}

#[derive(Debug)]
struct Thread {
    /// What is to be done. None at the end.
    work: Option<mpsc::Sender<Work>>,
    handle: Option<JoinHandle<()>>,
    /// The last revision that was seen, while somebody watches.
    seen: watch::Receiver<u64>,
}

type Work = Box<dyn FnOnce(&mut Database) + Send>;

impl Sqlite {
    /// Opens the store in a file, which is made if it is not there, and brought to the schema of this version. It takes a while
    /// where another program holds the file: not for an executor's threads.
    ///
    /// # Errors
    /// If it cannot be opened, is not a store's, is a later version's, is broken, or can be read by others.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, HISTORY)
    }

    /// As [`Sqlite::open`], with another number of revisions that a watch may be late: these are kept, with their values.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(path: impl AsRef<Path>, history: u64) -> Result<Self, OpenError> {
        Self::open_by(path.as_ref(), history, Clock::of_machine()?)
    }

    fn open_by(path: &Path, history: u64, clock: Clock) -> Result<Self, OpenError> {
        let failed = |failure| OpenError::Failed { path: path.to_owned(), failure };
        let connection = file::open(path)?;
        let mut database = Database::new(connection, history, clock).map_err(failed)?;
        let (work, queue) = mpsc::channel::<Work>();
        let (saw, seen) = watch::channel(0);
        let run = move || drive(&mut database, &queue, &saw);
        let handle = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(run)
            .map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        Ok(Self { thread: Arc::new(Thread { work: Some(work), handle: Some(handle), seen }) })
    }
}

impl Thread {
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        // Who asked may have gone.
        let work = move |database: &mut Database| drop(answer.send(work(database)));
        self.work.as_ref()?.send(Box::new(work)).ok()?;
        answered.await.ok()
    }
}

impl Drop for Thread {
    /// Waits until the file is closed, so that it can be copied, or opened by somebody who wants it alone.
    fn drop(&mut self) {
        drop(self.work.take());
        // It does not panic, and if it did, it would be at its end all the same.
        let _ = self.handle.take().map(JoinHandle::join);
    }
}

/// What the thread does, until nobody has the store.
fn drive(database: &mut Database, queue: &mpsc::Receiver<Work>, saw: &watch::Sender<u64>) {
    let mut version = None;
    loop {
        // One receiver is that of the handles.
        let watched = saw.receiver_count() > 1;
        let pause = database.next_end().map_or(IDLE, |end| end.clamp(BREATH, IDLE));
        let pause = if watched { pause.min(LOOK_EVERY) } else { pause };
        match queue.recv_timeout(pause) {
            Ok(work) => work(database),
            // Where it fails, the next who asks is told.
            Err(RecvTimeoutError::Timeout) => drop(database.end_leases()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if saw.receiver_count() > 1
            && let Some(revision) = database.look(&mut version)
        {
            saw.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
        }
    }
}

fn ended() -> Failure {
    Failure::Broken("its thread has ended".to_owned())
}

impl Store for Sqlite {
    type Watch = SqliteWatch;

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Failure> {
        let key = key.clone();
        self.thread.run(move |database| database.get(&key)).await.unwrap_or_else(|| Err(ended()))
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ListError> {
        let prefix = prefix.clone();
        self.thread.run(move |database| database.list(&prefix)).await.unwrap_or_else(|| Err(ended().into()))
    }

    async fn commit(&self, commit: &Commit) -> Result<Revision, CommitError> {
        commit.check()?;
        let commit = commit.clone();
        let committed = self.thread.run(move |database| database.commit(&commit)).await;
        committed.unwrap_or_else(|| Err(CommitError::Unknown(ended().to_string())))
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> SqliteWatch {
        let (thread, seen) = (Arc::clone(&self.thread), self.thread.seen.clone());
        SqliteWatch { thread, seen, prefix: prefix.clone(), after, waiting: VecDeque::new() }
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, Failure> {
        self.thread.run(move |database| database.grant(time_to_live)).await.unwrap_or_else(|| Err(ended()))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, LeaseError> {
        let kept = self.thread.run(move |database| database.keep_alive(lease)).await;
        kept.unwrap_or_else(|| Err(ended().into()))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Failure> {
        self.thread.run(move |database| database.revoke(lease)).await.unwrap_or_else(|| Err(ended()))
    }
}

/// A watch of a store in a file.
#[derive(Debug)]
pub struct SqliteWatch {
    thread: Arc<Thread>,
    seen: watch::Receiver<u64>,
    prefix: Prefix,
    /// What was read up to this is in `waiting`.
    after: Revision,
    waiting: VecDeque<Changes>,
}

impl Watch for SqliteWatch {
    async fn next(&mut self) -> Result<Changes, WatchError> {
        loop {
            if let Some(changes) = self.waiting.pop_front() {
                return Ok(changes);
            }
            self.seen.mark_unchanged();
            let (prefix, after) = (self.prefix.clone(), self.after);
            let read = self.thread.run(move |database| database.changes(&prefix, after)).await;
            (self.after, self.waiting) = read.unwrap_or_else(|| Err(ended().into()))?;
            if self.waiting.is_empty() && self.seen.changed().await.is_err() {
                return Err(ended().into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
