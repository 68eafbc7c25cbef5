//! What went wrong, and what to do next.

use std::path::PathBuf;

use crate::limit::{COMMIT_OCTETS, LIST_OCTETS, WRITES};
use crate::revision::Revision;

/// The store did not do it. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It did not answer in time, or another program holds its file: try again.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// It does not want to: who asks may not, or it has no room. Somebody has to look.
    #[error("the store refuses: {0}")]
    Refused(String),
    /// What is stored cannot be read. It has to be restored.
    #[error("the store is broken: {0}")]
    Broken(String),
}

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// More is below the prefix than a list may have: list what is below longer ones.
    #[error("more than {LIST_OCTETS} octets are below {0}")]
    TooLarge(String),
    /// The store did not do it.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a commit is not known to have happened. It has not, but for [`CommitError::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A condition does not hold: read again.
    #[error("somebody else was first")]
    Conflict,
    /// A lease that a key was to be bound to has ended.
    #[error("the lease has ended")]
    LeaseEnded,
    /// It has too many writes or conditions.
    #[error("{0} writes or conditions; a commit may have {WRITES}")]
    TooMany(usize),
    /// Keys and values are too large together.
    #[error("{0} octets; a commit may have {COMMIT_OCTETS}")]
    TooLarge(usize),
    /// It may have happened, or not, or may still happen ([what follows](crate#when-nobody-says-what-became-of-a-commit)).
    #[error("nobody knows whether the commit has happened: {0}")]
    Unknown(String),
    /// The store did not do it.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a watch has nothing to hand out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// What follows the revision is no longer kept, or the store is an older one, restored: list again, and watch from there.
    #[error("changes after {0} are no longer known")]
    Compacted(Revision),
    /// The store did not do it. Nothing is lost: ask the same watch again.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a lease could not be kept alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// It has ended, and its keys are gone.
    #[error("the lease has ended")]
    Ended,
    /// The store did not answer; it may have kept the lease alive.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be told from the options how to reach it.
    #[error("{0}")]
    Options(String),
    /// The file cannot be opened or made.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Others may read the file.
    #[error("{} can be read by others (mode {mode:03o}): chmod 600 it", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file is something else.
    #[error("{} is a database of another program", .0.display())]
    Foreign(PathBuf),
    /// The file was written by a later version.
    #[error("{} has schema {schema}, which a later version of sidestep has written: this one knows {known}", path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its schema.
        schema: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// The store did not open.
    #[error("{}: {failure}", path.display())]
    Failed {
        /// Which.
        path: PathBuf,
        /// Why not.
        failure: Failure,
    },
}
