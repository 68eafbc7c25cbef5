//! Which store: the one place that knows all kinds of them.

use std::path::Path;

use store::{OpenError, Sqlite, Store};

/// Something that is done with a store, of whichever kind.
pub trait Job {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run<S: Store>(self, store: S) -> impl Future<Output = Self::Output>;
}

/// A store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoStore {
    /// It does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is of a kind that is not known here.
    #[error("{0}: this version of sidestep keeps a controller's state in a file")]
    Unknown(String),
}

/// Does something with the store at a place: the path of a file.
///
/// # Errors
/// If there is no such store.
pub async fn with_store<J: Job>(place: &str, job: J) -> Result<J::Output, NoStore> {
    if place.contains("://") {
        return Err(NoStore::Unknown(place.to_owned()));
    }
    Ok(job.run(Sqlite::open(Path::new(place))?).await)
}
