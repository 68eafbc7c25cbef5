//! When packets go before ordinary programs.
//!
//! A bulk flow keeps the packet thread busy for long enough that the scheduler interrupts it, and all packets wait until
//! others have had their time: so it goes first then. Single packets come and go between interruptions. For them it
//! would be waked before the next one can arrive, and each would cost a turn of its own.

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

    /// A turn has done so much: bytes, and some hundred more for each packet.
    ///
    /// # Errors
    /// When the kernel does not allow it, once: other programs can delay packets on a busy machine then.
    pub fn turn(&mut self, work: usize) -> Result<()> {
        self.recent = self.recent - self.recent / TURNS + work;
        let average = self.recent / TURNS;
        let change = if self.first { average < BULK.1 } else { average >= BULK.0 };
        if !change || !self.wanted {
            return Ok(());
        }
        self.first = !self.first;
        process::set_realtime(self.first).inspect_err(|_| self.wanted = false)
    }
}
