//! What is asked of the file, in SQL.

use std::collections::VecDeque;
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Row, Transaction, TransactionBehavior, params,
};

use crate::commit::{Commit, Condition, Write};
use crate::error::{CommitError, Failure, LeaseError, ListError, OpenError, WatchError};
use crate::key::{Key, Prefix};
use crate::limit::LIST_OCTETS;
use crate::revision::{Lease, LeaseId, Revision};
use crate::store::{Change, Changes, Entry, Listing};

/// A watch reads so many octets at a time, and a commit more.
const READ_AT_ONCE: usize = 256 * 1024;

/// The name of this boot of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The clock of leases, which never steps, and which boot of the machine it counts from.
pub(super) struct Clock {
    pub(super) boot: String,
    pub(super) now_ms: Box<dyn Fn() -> u64 + Send>,
}

impl Clock {
    /// The kernel's.
    ///
    /// # Errors
    /// If the boot has no name for us: where a sandbox hides it.
    pub(super) fn of_machine() -> Result<Self, OpenError> {
        let said = std::fs::read_to_string(BOOT);
        let boot = said.map_err(|source| OpenError::File { path: BOOT.into(), source })?.trim().to_owned();
        Ok(Self { boot, now_ms: Box::new(linux::clock::boottime_ms) })
    }

    fn now(&self) -> i64 {
        (self.now_ms)() as i64
    }
}

/// The file, as this process has it open.
pub(super) struct Database {
    connection: Connection,
    /// How many revisions are kept.
    history: i64,
    clock: Clock,
    /// Whether we have changed something since [`Database::look`].
    changed: bool,
}

/// What a failed call of SQLite means for who asked.
pub(super) fn failure(error: rusqlite::Error) -> Failure {
    let why = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Unreachable(why),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Failure::Broken(why),
        Some(_) => Failure::Refused(why),
        // A column has something else in it than it must have.
        None => Failure::Broken(why),
    }
}

fn broken(what: impl ToString) -> Failure {
    Failure::Broken(what.to_string())
}

impl Database {
    pub(super) fn new(connection: Connection, history: u64, clock: Clock) -> Result<Self, Failure> {
        let history = i64::try_from(history).unwrap_or(i64::MAX);
        let mut database = Self { connection, history, clock, changed: false };
        database.begin_leases_again().map_err(failure)?;
        Ok(database)
    }

    /// Leases of another boot: nobody knows how long ago that was.
    fn begin_leases_again(&mut self) -> rusqlite::Result<()> {
        let others = "SELECT EXISTS (SELECT 1 FROM lease WHERE boot <> ?1)";
        if !self.connection.query_row(others, [&self.clock.boot], |row| row.get(0))? {
            return Ok(());
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "UPDATE lease SET boot = ?1, ends_ms = ?2 + time_to_live_ms WHERE boot <> ?1",
            params![self.clock.boot, self.clock.now()],
        )?;
        transaction.commit()
    }

    /// How long it is until the next lease ends.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let ends = self.connection.query_row("SELECT min(ends_ms) FROM lease", (), |row| row.get(0));
        let ends: Option<i64> = ends.ok().flatten();
        ends.map(|ends| Duration::from_millis(u64::try_from(ends - self.clock.now()).unwrap_or(0)))
    }

    /// The last revision, if it may be another one than at the last look.
    pub(super) fn look(&mut self, version: &mut Option<i64>) -> Option<u64> {
        // What other connections have committed; not our own.
        let now = self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
        if std::mem::replace(version, now) == now && !std::mem::take(&mut self.changed) {
            return None;
        }
        state(&self.connection).ok().map(|(revision, _)| revision.number())
    }

    /// Ends the leases whose time has come.
    pub(super) fn end_leases(&mut self) -> Result<(), Failure> {
        let due = "SELECT EXISTS (SELECT 1 FROM lease WHERE ends_ms <= ?1)";
        let now = self.clock.now();
        if !self.connection.query_row(due, [now], |row| row.get(0)).map_err(failure)? {
            return Ok(());
        }
        self.write(|transaction| {
            // Another process may have kept them alive.
            let mut due = transaction.prepare("SELECT id FROM lease WHERE ends_ms <= ?1 ORDER BY id")?;
            let due: Vec<i64> = due.query_map([now], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            due.into_iter().try_for_each(|lease| end(transaction, lease))
        })
        .map_err(certain)
    }

    pub(super) fn get(&mut self, key: &Key) -> Result<Option<Entry>, Failure> {
        self.end_leases()?;
        let sql = "SELECT revision, key, value, lease FROM version WHERE key = ?1 AND current = 1";
        let row = self.connection.query_row(sql, [key.as_str()], read).optional().map_err(failure)?;
        match row.map(Stored::change).transpose()? {
            Some(Change::Put(entry)) => Ok(Some(entry)),
            Some(Change::Deleted(key)) => Err(broken(format!("{key} is there without a value"))),
            None => Ok(None),
        }
    }

    pub(super) fn list(&mut self, prefix: &Prefix) -> Result<Listing, ListError> {
        self.end_leases()?;
        let transaction = self.connection.transaction().map_err(failure)?;
        let (revision, _) = state(&transaction)?;
        let sql = "SELECT revision, key, value, lease FROM version
                   WHERE key >= ?1 AND key < ?2 AND current = 1 ORDER BY key";
        let mut statement = transaction.prepare(sql).map_err(failure)?;
        let (start, end) = prefix.range();
        let (mut entries, mut octets) = (Vec::new(), 0);
        for row in statement.query_map([start, end], read).map_err(failure)? {
            match row.map_err(failure)?.change()? {
                Change::Put(entry) => {
                    octets += entry.key.as_str().len() + entry.value.len();
                    entries.push(entry);
                }
                Change::Deleted(key) => return Err(broken(format!("{key} is there without a value")).into()),
            }
            if octets > LIST_OCTETS {
                return Err(ListError::TooLarge(prefix.to_string()));
            }
        }
        Ok(Listing { entries, revision })
    }

    /// Changes after a revision, whole commits, and the revision up to which these are all.
    pub(super) fn changes(
        &mut self,
        prefix: &Prefix,
        after: Revision,
    ) -> Result<(Revision, VecDeque<Changes>), WatchError> {
        self.end_leases()?;
        let transaction = self.connection.transaction().map_err(failure)?;
        let (revision, compacted) = state(&transaction)?;
        // A later revision was one of a file that is no more.
        if after.signed() < compacted || after > revision {
            return Err(WatchError::Compacted(after));
        }
        let sql = "SELECT revision, key, value, lease FROM version
                   WHERE revision > ?1 AND key >= ?2 AND key < ?3 ORDER BY revision, key";
        let mut statement = transaction.prepare(sql).map_err(failure)?;
        let (start, end) = prefix.range();
        let (mut commits, mut octets) = (VecDeque::<Changes>::new(), 0);
        for row in statement.query_map(params![after.signed(), start, end], read).map_err(failure)? {
            let stored = row.map_err(failure)?;
            let at = Revision::from_signed(stored.revision).ok_or_else(|| broken("revision 0"))?;
            octets += stored.value.as_ref().map_or(0, Vec::len);
            let change = stored.change()?;
            match commits.back_mut() {
                Some(commit) if commit.revision == at => commit.changes.push(change),
                // The rest the next time.
                Some(commit) if octets > READ_AT_ONCE => return Ok((commit.revision, commits)),
                _ => commits.push_back(Changes { revision: at, changes: vec![change] }),
            }
        }
        Ok((revision, commits))
    }

    pub(super) fn commit(&mut self, commit: &Commit) -> Result<Revision, CommitError> {
        self.end_leases()?;
        self.write(|transaction| {
            for (key, condition) in &commit.conditions {
                let sql = "SELECT revision FROM version WHERE key = ?1 AND current = 1";
                let found: Option<i64> =
                    transaction.query_row(sql, [key.as_str()], |row| row.get(0)).optional()?;
                let holds = match condition {
                    Condition::Absent => found.is_none(),
                    Condition::At(revision) => found == Some(revision.signed()),
                };
                if !holds {
                    return Err(CommitError::Conflict.into());
                }
            }
            let leases = commit.writes.values().filter_map(|write| match write {
                Write::Put { lease, .. } => *lease,
                Write::Delete => None,
            });
            for lease in leases {
                let sql = "SELECT EXISTS (SELECT 1 FROM lease WHERE id = ?1)";
                if !transaction.query_row(sql, [lease.signed()], |row| row.get(0))? {
                    return Err(CommitError::LeaseEnded.into());
                }
            }
            write(transaction, commit.writes.iter().map(|(key, write)| (key.as_str(), write)))
        })
    }

    pub(super) fn grant(&mut self, time_to_live: Duration) -> Result<Lease, Failure> {
        let milliseconds = i64::try_from(time_to_live.as_millis()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        let sql = "INSERT INTO lease (time_to_live_ms, boot, ends_ms) VALUES (?1, ?2, ?3)";
        let row = params![milliseconds, self.clock.boot, self.clock.now() + milliseconds];
        self.connection.execute(sql, row).map_err(failure)?;
        let id =
            LeaseId::from_signed(self.connection.last_insert_rowid()).ok_or_else(|| broken("lease 0"))?;
        Ok(Lease { id, time_to_live })
    }

    pub(super) fn keep_alive(&mut self, lease: LeaseId) -> Result<Duration, LeaseError> {
        self.end_leases()?;
        let sql = "UPDATE lease SET ends_ms = ?2 + time_to_live_ms, boot = ?3 WHERE id = ?1 RETURNING time_to_live_ms";
        let row = params![lease.signed(), self.clock.now(), self.clock.boot];
        let kept: Option<i64> =
            self.connection.query_row(sql, row, |row| row.get(0)).optional().map_err(failure)?;
        let milliseconds = kept.ok_or(LeaseError::Ended)?;
        Ok(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)))
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> Result<(), Failure> {
        self.write(|transaction| end(transaction, lease.signed())).map_err(certain)
    }

    /// A transaction that writes, with the history behind it cut to its length.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Stop>) -> Result<T, CommitError> {
        let begin = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begin.map_err(failure)?;
        let done = work(&transaction).and_then(|done| {
            forget(&transaction, self.history)?;
            Ok(done)
        });
        let done = done.map_err(|Stop(error)| error)?;
        // What a failed sync has left may be found after a crash.
        let committed = transaction.commit().map_err(|error| match failure(error) {
            busy @ Failure::Unreachable(_) => CommitError::Failed(busy),
            other => CommitError::Unknown(other.to_string()),
        });
        self.changed = true;
        committed.map(|()| done)
    }
}

/// Why a transaction is given up.
struct Stop(CommitError);

impl From<CommitError> for Stop {
    fn from(error: CommitError) -> Self {
        Self(error)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self(failure(error).into())
    }
}

/// For what may as well be done again.
fn certain(error: CommitError) -> Failure {
    match error {
        CommitError::Failed(failure) => failure,
        other => Failure::Unreachable(other.to_string()),
    }
}

/// The last revision, and the one up to which history is forgotten.
fn state(connection: &Connection) -> Result<(Revision, i64), Failure> {
    let sql = "SELECT revision, compacted FROM state";
    let (revision, compacted) =
        connection.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).map_err(failure)?;
    let revision = Revision::from_signed(revision).ok_or_else(|| broken("revision 0"))?;
    Ok((revision, compacted))
}

/// Ends a lease, if it has not ended, and removes its keys.
fn end(transaction: &Transaction<'_>, lease: i64) -> Result<(), Stop> {
    let mut bound =
        transaction.prepare("SELECT key FROM version WHERE lease = ?1 AND current = 1 ORDER BY key")?;
    let keys: Vec<String> = bound.query_map([lease], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    write(transaction, keys.iter().map(|key| (key.as_str(), &Write::Delete)))?;
    transaction.execute("DELETE FROM lease WHERE id = ?1", [lease])?;
    Ok(())
}

/// Writes at the next revision, if there is anything to be changed, and answers the last revision.
fn write<'a>(
    transaction: &Transaction<'_>,
    writes: impl Iterator<Item = (&'a str, &'a Write)>,
) -> Result<Revision, Stop> {
    let (revision, _) = state(transaction).map_err(CommitError::from)?;
    let next = revision.signed() + 1;
    let mut changed = 0;
    for (key, write) in writes {
        let replaced =
            transaction.execute("UPDATE version SET current = 0 WHERE key = ?1 AND current = 1", [key])?;
        let (value, lease, current) = match write {
            Write::Put { value, lease } => (Some(value), lease.map(LeaseId::signed), 1),
            Write::Delete if replaced > 0 => (None, None, 0),
            Write::Delete => continue,
        };
        changed += transaction.execute(
            "INSERT INTO version (revision, key, value, lease, current) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![next, key, value, lease, current],
        )?;
    }
    if changed == 0 {
        return Ok(revision);
    }
    transaction.execute("UPDATE state SET revision = ?1", [next])?;
    Ok(Revision::from_signed(next).unwrap_or(revision))
}

/// Forgets what no watch may ask for any more.
fn forget(transaction: &Transaction<'_>, history: i64) -> rusqlite::Result<()> {
    transaction.execute("UPDATE state SET compacted = max(compacted, revision - ?1)", [history])?;
    let sql = "DELETE FROM version WHERE current = 0 AND revision <= (SELECT compacted FROM state)";
    transaction.execute(sql, ())?;
    Ok(())
}

/// A row, as it is stored.
struct Stored {
    revision: i64,
    key: String,
    value: Option<Vec<u8>>,
    lease: Option<i64>,
}

fn read(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored { revision: row.get(0)?, key: row.get(1)?, value: row.get(2)?, lease: row.get(3)? })
}

impl Stored {
    fn change(self) -> Result<Change, Failure> {
        let key = Key::new(self.key).map_err(broken)?;
        let Some(value) = self.value else { return Ok(Change::Deleted(key)) };
        let revision = Revision::from_signed(self.revision).ok_or_else(|| broken("revision 0"))?;
        let lease = self.lease.and_then(LeaseId::from_signed);
        Ok(Change::Put(Entry { key, value, revision, lease }))
    }
}
