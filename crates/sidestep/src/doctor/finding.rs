//! What was found.

use serde::Serialize;

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, but deserves a look.
    Warning,
    /// Keeps packets from crossing.
    Fault,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// How much it matters.
    pub(crate) level: Level,
    /// One word.
    pub(crate) code: String,
    /// The peer that it concerns; null if all are concerned.
    pub(crate) peer: Option<String>,
    /// One sentence, with the command that mends it.
    pub(crate) says: String,
}

impl Finding {
    pub(crate) fn fault(code: &str, says: impl Into<String>) -> Self {
        Finding { level: Level::Fault, code: code.to_owned(), peer: None, says: says.into() }
    }

    pub(crate) fn warning(code: &str, says: impl Into<String>) -> Self {
        Finding { level: Level::Warning, ..Finding::fault(code, says) }
    }

    pub(crate) fn ok(code: &str, says: impl Into<String>) -> Self {
        Finding { level: Level::Ok, ..Finding::fault(code, says) }
    }

    /// Whom it concerns, and what it is.
    pub(crate) fn whole(&self) -> String {
        match &self.peer {
            Some(peer) => format!("{peer}: {}", self.says),
            None => self.says.clone(),
        }
    }

    pub(crate) fn of(self, peer: &str) -> Self {
        Finding { peer: Some(peer.to_owned()), ..self }
    }
}
