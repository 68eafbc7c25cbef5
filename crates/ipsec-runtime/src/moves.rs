//! News that this machine may have another address, or another way to its remotes. It takes no privileges.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use config::ipsec::IpsecConfig;
use ike::random::Random;
use linux::netlink::{Change, Monitor};
use tracing::{debug, warn};

use crate::carrier::Carrier;
use crate::deliver::Deliver;
use crate::place;

/// Between a change of addresses or routes and a look from where remotes are reached now: changes come several at once.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// Hears of changes of links, addresses and routes. Readable when there is something to [read](Self::read).
#[derive(Debug)]
pub struct Moves {
    monitor: Monitor,
    look_at: Option<Instant>,
}

impl Moves {
    /// Hears of changes from now on.
    ///
    /// # Errors
    /// Where the kernel tells nobody.
    pub fn open() -> linux::Result<Self> {
        let mut monitor = Monitor::open()?;
        monitor.watch_routes()?;
        Ok(Self { monitor, look_at: None })
    }

    /// The same for who can do without it, if the address of this end may change.
    pub fn open_for(config: &IpsecConfig) -> Option<Self> {
        if config.local.is_some() {
            return None;
        }
        Self::open()
            .inspect_err(|error| warn!("another address of this machine goes unnoticed: {error}"))
            .ok()
    }

    /// Reads what there is. True if it may be another way, which is to be looked at [soon](Self::deadline).
    ///
    /// # Errors
    /// When nothing can be heard any more.
    pub fn read(&mut self, now: Instant) -> linux::Result<bool> {
        let matters = |change: &Change| !matches!(change, Change::Neighbor(_));
        let has_changed = self.monitor.read()?.iter().any(matters);
        if has_changed {
            self.look_at.get_or_insert(now + LOOK_AFTER);
        }
        Ok(has_changed)
    }

    /// When it is to be looked at from where remotes are reached.
    pub fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether it is to be looked at now; then not any more.
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }
}

impl AsFd for Moves {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// What `carrier` has begun goes on from where its remotes are reached now, as a socket would be.
pub fn follow<R: Random>(carrier: &mut Carrier<R>, now: Instant, deliver: &mut dyn Deliver) {
    let source = |remote: IpAddr| match place::source_towards(remote) {
        Ok(source) => Some(source),
        Err(error) => {
            debug!("{remote}: {error}");
            None
        }
    };
    carrier.move_where(source, now, deliver);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_changes_are_one_look() {
        // A look is asked for by the first change alone: what never comes to rest is looked at all the same.
        let now = Instant::now();
        let Ok(mut moves) = Moves::open() else { return };
        moves.look_at.get_or_insert(now + LOOK_AFTER);
        moves.look_at.get_or_insert(now + LOOK_AFTER * 2);
        assert_eq!(moves.deadline(), Some(now + LOOK_AFTER));
        assert!(!moves.is_due(now));
        assert!(moves.is_due(now + LOOK_AFTER));
        assert!(!moves.is_due(now + LOOK_AFTER * 3));
    }
}
