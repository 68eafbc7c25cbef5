//! The interfaces that there are, by their names, for scripts that copy packets to them.
//!
//! They are looked for when one is wanted first, and from then on whenever interfaces come, go or change: one that has gone
//! and comes again under its name has another number, and copies go there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use linux::netlink::{Link, Netlink};

/// The interfaces, for all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Links(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Another one whenever the list is.
    generation: AtomicU64,
    /// None: nobody has asked yet.
    known: Mutex<Option<Vec<Link>>>,
}

impl Links {
    /// While this is the same, so is what is known.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// The interface of this name.
    pub(super) fn find(&self, name: &str) -> linux::Result<Option<Link>> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let links = match &mut *known {
            Some(links) => links,
            none => none.insert(Netlink::open()?.links()?),
        };
        Ok(links.iter().find(|link| link.name == name).cloned())
    }

    /// Something has changed: whether that is of interest to anybody, and is known now.
    pub(super) fn changed(&self) -> linux::Result<bool> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = &*known else { return Ok(false) };
        let now = Netlink::open()?.links()?;
        let is_other = *before != now;
        *known = Some(now);
        if is_other {
            self.0.generation.fetch_add(1, Ordering::Release);
        }
        Ok(is_other)
    }
}
