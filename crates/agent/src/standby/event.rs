//! What happens beside the task, and is told to it.

use control::standby::Turn;
use fleet::standby::Registered;

/// What happens.
pub(super) enum Event {
    /// Something came from the other gateway's address.
    Beat(Vec<u8>),
    /// What the daemon answers.
    Daemon(Result<Turn, control::Error>),
    /// What the register has, as soon as it is another; nothing, as soon as no controller answers.
    Registered(Option<Registered>),
    /// What came of replacing it; nothing, if nobody knows.
    Put(Option<Registered>),
}
