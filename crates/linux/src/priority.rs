//! When packets go before ordinary programs.
//!
//! A bulk flow keeps the packet thread busy for long enough that the scheduler interrupts it, and all packets wait until
//! others have had their time: so it goes first then. Single packets come and go between interruptions. For them it
//! would be waked before the next one can arrive, and each would cost a turn of its own. Where times are kept that others
//! see it is always first.

use crate::error::Result;
use crate::process;

/// Work in a turn, on average, from which on there is a bulk flow, and below which there no longer is: a dozen small
/// datagrams, three of them.
const BULK: (usize, usize) = (8 * 1024, 2 * 1024);
/// Turns that the average is over, about.
const TURNS: usize = 16;

/// The priority of a thread that carries packets.
#[derive(Debug)]
pub struct Priority {
    wanted: bool,
    first: bool,
    /// Sum of about the last [`TURNS`] turns.
    recent: usize,
}

impl Priority {
    /// An ordinary thread, which may become more if that is `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Priority { wanted, first: false, recent: 0 }
    }

    /// A turn has done so much: bytes, and some hundred more for each packet. `keeps_time`: what is late shows.
    ///
    /// # Errors
    /// When the kernel does not allow it, once: other programs can delay packets on a busy machine then.
    pub fn turn(&mut self, work: usize, keeps_time: bool) -> Result<()> {
        let first = self.goes_first(work, keeps_time);
        if first == self.first || !self.wanted {
            return Ok(());
        }
        self.first = first;
        process::set_realtime(first).inspect_err(|_| self.wanted = false)
    }

    fn goes_first(&mut self, work: usize, keeps_time: bool) -> bool {
        self.recent = self.recent - self.recent / TURNS + work;
        keeps_time || self.recent / TURNS >= if self.first { BULK.1 } else { BULK.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_flows_and_what_keeps_time_go_first() {
        let mut priority = Priority::new(false);
        assert!(!priority.goes_first(2_000, false), "single packets");
        assert!(priority.goes_first(2_000, true), "those whose times show");
        assert!((0..20).any(|_| priority.goes_first(60_000, false)), "a bulk flow");
        priority.first = true;
        assert!((0..20).all(|_| priority.goes_first(4_000, false)), "between two bursts of it");
        assert!((0..100).any(|_| !priority.goes_first(0, false)), "until it is over");
    }
}
