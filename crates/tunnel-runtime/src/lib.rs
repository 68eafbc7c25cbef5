//! `sidestep up`: the protocol over the kernel.
//!
//! Two threads do the work. This one carries packets and runs the protocol: it waits in one poller for the TUN device,
//! all endpoint sockets, signals and the control socket, and drives [`mt6d::Node`]. The [`kernel`] thread opens and
//! closes sockets and changes routes, so that a rotation never delays a packet; what would hold packets up otherwise
//! (files, status) has threads of its own. Where the machine has processors for it, [`threads`] of their own carry the
//! packets of sessions. They all talk over channels.
//!
//! [`rootless`] is another host for the same protocol, which changes nothing in the kernel: for one program, or a proxy.
//!
//! Invariants:
//! - All that is set up in the kernel is in the journal of [`linux::undo`] or dies with the TUN device; what is to stay
//!   ([`kernel::closed`]) is in a journal of its own.
//! - A configuration is applied as a whole or not at all.

mod busy_poll;
mod classic;
mod clock;
mod daemon;
mod data;
mod error;
mod evidence;
mod firewall;
mod happened;
mod kernel;
mod key_log;
pub mod limits;
mod load;
mod machine;
mod mask;
pub mod names;
mod next_hop;
pub mod obstacles;
mod packet_path;
mod peer_file;
mod programs_beside;
mod report;
mod rewrite;
pub mod rootless;
mod standby;
pub mod surroundings;
mod threads;
mod token;
mod transparent;
mod wrap;

pub use daemon::run;
pub use error::Error;
pub use kernel::closed::{Opened, close, is_closed, open_up};
