//! Why a command failed.

use std::fmt;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// To be told to the user.
    Message(String),
    /// A configuration is wrong: its report, and a closing line.
    Report(config::Report, String),
    /// A configuration is valid, but this machine, as it is, would refuse it: exit status 3.
    NotHere(String),
    /// Nobody reads our output any more; no failure of ours.
    ClosedOutput,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Message(message) | Failure::NotHere(message) | Failure::Report(_, message) => {
                f.write_str(message)
            }
            Failure::ClosedOutput => f.write_str("the output was closed"),
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Message(error.to_string())
    }
}
