//! What controllers have told last.

use std::sync::Arc;
use std::time::Instant;

use controller::{Access, FolderError, Waiting};
use fleet::fleet::Fleet;

use super::hearing::{Asked, Told, Why};

/// What was told last.
pub(super) struct Known {
    pub(super) at: Instant,
    /// What is signed; nothing, where no controller has answered yet.
    pub(super) fleet: Option<Arc<Fleet>>,
    /// The store's revision that this is of.
    pub(super) revision: u64,
    pub(super) controllers: Vec<Asked>,
    /// The applications, whatever became of them.
    pub(super) applications: Vec<Waiting>,
    /// What they tell and should not.
    pub(super) fault: Option<String>,
}

impl Known {
    /// Of those that have answered the one that knows most.
    pub(super) fn best(&self) -> Option<&Told> {
        let told = self.controllers.iter().filter_map(|asked| asked.answer.as_ref().ok());
        told.max_by_key(|told| (told.short.serial, told.short.revision))
    }

    pub(super) fn you(&self) -> Option<&Access> {
        self.best().map(|told| &told.you)
    }

    pub(super) fn why_not(&self) -> Why {
        let of = |asked: &Asked| asked.answer.as_ref().err().map(|why| format!("{}: {why}", asked.name));
        let all: Vec<String> =
            self.fault.clone().into_iter().chain(self.controllers.iter().filter_map(of)).collect();
        if all.is_empty() { FolderError::Nobody.to_string() } else { all.join("\n") }
    }
}
