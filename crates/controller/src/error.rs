//! Why something was not done.

use store::{CommitError, Failure, ListError};

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may not be, whoever asks when.
    #[error("{0}")]
    Refused(String),
    /// Something else has happened since: what is asked for has to be made anew.
    #[error("{0}")]
    Overtaken(String),
    /// There is no such thing.
    #[error("there is no {0}")]
    Missing(String),
    /// The store does not answer. It has happened or not: to ask for the same again is safe.
    #[error("{0}: ask for the same again")]
    Unavailable(String),
    /// What is stored cannot be read.
    #[error("what is stored cannot be used: {0}")]
    Broken(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(why) => Error::Broken(why),
            other => Error::Unavailable(other.to_string()),
        }
    }
}

impl From<ListError> for Error {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Failed(failure) => failure.into(),
            error @ ListError::TooLarge(_) => Error::Broken(error.to_string()),
        }
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Failed(failure) => failure.into(),
            CommitError::TooMany(_) | CommitError::TooLarge(_) => Error::Refused(error.to_string()),
            other => Error::Unavailable(other.to_string()),
        }
    }
}
