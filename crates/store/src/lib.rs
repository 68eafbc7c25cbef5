//! What a fleet's controllers share: entries with revisions, changed by atomic commits, watched, bound to leases.
//!
//! One trait, [`Store`], and three that implement it: [`Sqlite`], one file and nothing to install; [`Etcd`], a cluster, for
//! controllers on several machines; [`Memory`], for tests and simulations, with faults. Controllers keep no state of their own beside it. There is no consensus of ours.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use store::{Commit, Key, Sqlite, Store};
//!
//! let store = Sqlite::open("/var/lib/sidestep/fleet.db")?;
//! let head = Key::new("document/head")?;
//! let read = store.get(&head).await?;
//! // Replaced only if it is still the one that was read.
//! let condition = match &read {
//!     Some(entry) => Commit::new().if_at(head.clone(), entry.revision),
//!     None => Commit::new().if_absent(head.clone()),
//! };
//! let revision = store.commit(&condition.put(head, "17")).await?;
//! # let _ = revision;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `store` | the trait, what is read and watched |
//! | `key` | names of entries, and what lies below one |
//! | `revision` | moments of the store; leases |
//! | `commit`, `limit` | conditions and writes, and how large they may be |
//! | `error` | what went wrong, and what to do next |
//! | `once` | a commit whose outcome has to be known |
//! | `memory` | in memory, with faults |
//! | `sqlite` | in one file |
//! | `etcd` | in a cluster |
//!
//! # What holds
//! - **`get`, `list` and `commit` are linearizable**: each takes effect at one moment between call and answer, for all clients
//!   together. A `list` is one moment, however long it is. A commit happens as a whole or not at all, and what was acknowledged
//!   is on disk (`Sqlite`: synced; etcd: with a majority of members; `Memory`: of course not).
//! - **Revisions never go back.** Each commit that changes something, and each end of a lease that has keys, makes a new one,
//!   larger than all before; numbers may be left out, where others use the same etcd. All changes of a commit have its revision.
//! - **A watch is late, but complete**: it hands out every commit after its revision, whole, in order, once; or it says
//!   [`WatchError::Compacted`]. It says nothing about now: who needs that reads.
//! - **A lease does not end before its time** since it was granted or last kept alive, by the store's clock, which does not
//!   step (below). It may end later: after the store was restarted it lasts as long again. Who holds one knows only a time
//!   before which it has not ended: when the last answered `keep_alive` was *sent*, and its length. What must not happen after
//!   it ended is made a condition: a commit with `if_at(key, revision)` of the leased key is refused when the key is gone or
//!   somebody else's. That revision is the fence, and grows from holder to holder.
//!
//! # When nobody says what became of a commit
//! [`CommitError::Unknown`]: it may have happened, may not, and **may still happen later**, for example when a member that was
//! stopped goes on. To read that it has not happened proves nothing. What does is a condition that the commit itself makes
//! false (`if_absent(k)` with `put(k)`, `if_at(k, r)` with a write of `k`): it then happens once at the most, however often it
//! is repeated, and never after another commit wrote `k`. [`once`] does just that with a key of the caller's as a witness.
//! There are no keys for idempotency beside this: they would be a second write for each commit, and would have to be removed.
//! To drop the future of a commit before it is ready is the same as `Unknown`.
//!
//! # What time does to leases
//! `Sqlite` counts by the kernel's clock since boot (CLOCK_BOOTTIME): all processes on the machine have the same, nobody can set
//! it, and it goes on while the machine sleeps. So a step of the wall clock changes nothing; a machine that slept longer than a
//! lease lasts finds it ended, as its holder, which could not reach it, must assume; after a reboot, when nobody knows how long
//! that took, all leases begin again. While no process has the file open, a lease ends when the next one opens it. etcd counts
//! by the monotonic clock of its leader, and begins again with a new leader.
//!
//! # What is kept of the past
//! `Sqlite` keeps the last 1000 revisions for watches, `Memory` all of them until it is told to forget. etcd keeps everything
//! until it is compacted, which its operator asks for: `--auto-compaction-mode=revision --auto-compaction-retention=10000`. A
//! watch that was late, or that had to go on at another member after nothing had changed below its prefix for so long, says
//! [`WatchError::Compacted`].
#![forbid(unsafe_code)]

mod commit;
mod error;
mod etcd;
mod key;
mod limit;
mod memory;
mod once;
mod revision;
mod sqlite;
mod store;

pub use commit::Commit;
pub use error::{CommitError, Failure, LeaseError, ListError, OpenError, WatchError};
pub use etcd::{Etcd, EtcdOptions, EtcdTls};
pub use key::{Key, KeyError, Prefix};
pub use limit::{COMMIT_OCTETS, LIST_OCTETS, WRITES};
pub use memory::{Fate, Memory};
pub use once::once;
pub use revision::{Lease, LeaseId, Revision};
pub use sqlite::Sqlite;
pub use store::{Change, Changes, Entry, Listing, Store, Watch};
