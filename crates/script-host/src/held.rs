//! Scripts that are to run and do not run yet: since the host has just started, or since they cannot be loaded. Where packets
//! must not pass without their script they are dropped meanwhile.

use tracing::warn;

use super::protocol::Held;
use super::rules::{self, Hold};
use config::attachment::Attachment;

/// What a parent is about to have loaded, and which chain holds the packets of each.
#[derive(Debug, Default)]
pub(super) struct Holds(Vec<(usize, Held)>);

impl Holds {
    /// All of these, for which there are [chains](rules::begin).
    pub(super) fn new(scripts: Vec<Attachment>) -> Self {
        let held = |attachment| Held { attachment, why: None };
        Self(scripts.into_iter().map(held).enumerate().collect())
    }

    /// Those that are left, with their chains.
    pub(super) fn chains(&self) -> impl Iterator<Item = (Hold, &Attachment)> {
        self.0.iter().map(|(chain, held)| (Hold::NotLoaded(*chain), &held.attachment))
    }

    /// Those that are left.
    pub(super) fn list(&self) -> Vec<Held> {
        self.0.iter().map(|(_, held)| held.clone()).collect()
    }

    /// Lets packets of a script go on to it: it runs, or is not wanted any more.
    pub(super) fn let_go(&mut self, attachment: &Attachment) {
        let Some(at) = self.0.iter().position(|(_, held)| held.attachment == *attachment) else { return };
        // With each base chain that goes the kernel drops what waits in queues, whosever it is: they go all at once.
        let gone = if self.0.len() == 1 {
            rules::let_all_go()
        } else {
            rules::let_go(Hold::NotLoaded(self.0[at].0))
        };
        match gone {
            Ok(()) => drop(self.0.remove(at)),
            Err(error) => warn!("{}: its packets are still dropped: {error}", attachment.file.display()),
        }
    }

    /// Lets packets of all go.
    pub(super) fn let_all_go(&mut self) {
        let gone = if self.0.is_empty() { Ok(()) } else { rules::let_all_go() };
        match gone {
            Ok(()) => self.0.clear(),
            Err(error) => warn!("packets of scripts that do not run are still dropped: {error}"),
        }
    }

    /// Notes why a script still does not run.
    pub(super) fn keep(&mut self, attachment: &Attachment, why: &str) {
        if let Some((_, held)) = self.0.iter_mut().find(|(_, held)| held.attachment == *attachment) {
            held.why = Some(why.to_owned());
        }
    }
}
