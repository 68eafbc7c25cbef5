//! `sidestep up` as a router between networks: what `router` decides, over the kernel.
//!
//! A thread of its own hears what happens on the links, has the plan computed anew when something has changed, and the
//! kernel made as planned ([`kernel`]). Uplinks and networks have their sockets in [`uplink`] and [`network`];
//! programs that run [`beside`] it are looked after by threads of their own.
//!
//! Invariants:
//! - What is set up in the kernel is in a journal before it is there, and taken back at the end, or at the next start.
//! - A configuration is applied as a whole or not at all. Later, what cannot be done is told, and tried again.
//! - Nothing is touched that somebody else has set up.

mod answers;
mod autorate;
mod beside;
mod dhcp6;
mod error;
pub mod firewall;
mod flows;
mod handle;
mod kernel;
mod link;
mod lookups;
mod named;
mod nat;
mod nat64;
mod needs;
mod neighbors;
mod network;
mod offload;
mod port_mapping;
mod problem;
mod random;
mod router;
mod settings;
mod shaping;
mod standalone;
mod state_file;
mod status;
mod traffic;
mod transition;
mod unconfirmed;
mod uplink;

pub use error::Error;
pub use handle::{RouterHandle, RouterThread};
pub use needs::refuse;
pub use router::TunnelBeside;
pub use standalone::{confine, run, start_hook};
pub use unconfirmed::{AWAITS, Unconfirmed, taken_back};
