//! The screen of `show --watch` and `status --watch`: tunnels, their peers, the gateway and events, until the user leaves it.
//!
//! [`source`] asks the sockets, in a thread of its own, so that a daemon that is slow to answer holds up no key. [`app`] is
//! what was answered and what was pressed: it knows no terminal and no clock, so that tests draw it in any size. [`run`]
//! joins them with the terminal, and gives that back as it was, however it ends.

mod app;
mod details;
mod events;
mod gateway;
mod history;
mod peers;
mod run;
mod source;
mod tunnel;

pub(crate) use app::Tab;
pub(crate) use run::run;
pub(crate) use source::{Source, Tunnels};
