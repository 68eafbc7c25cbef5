//! What happened: the log, and out of it the events.
//!
//! An event is a record of the log that has a name: `info!(event = "session_up", peer, "{peer}: …")`. Who writes one needs to
//! know nothing else. [`start_log`] sends all records to standard error, or where that is the journal, to the journal with
//! their fields and priorities; keeps the last [`KEPT`] events, for [`since`]; and hands each to the program of
//! [`start_hook`], if there is one.
//!
//! One log for a process, as `tracing` has it. What happens to one peer again and again is held for a while, and the newest of
//! it told then: see [`limit`](mod@limit).

mod hook;
mod limit;
mod log;
mod record;
mod ring;

pub use hook::{end as end_hook, start as start_hook};
pub use log::{start as start_log, tell_held};
pub use ring::{KEPT, since};
