//! The classic profile (docs/classic.md), sans-IO: the Moving Target IPv6 Defense as the thesis on its C version and the
//! report on a live IPv6 network describe it. Unauthenticated, for research and for comparing.
//!
//! Two nodes carry what protected hosts say to each other in UDP packets whose addresses and ports follow from a session
//! key and the wall clock. This crate opens no socket, reads no clock and draws no randomness of its own: a host gives
//! it time and bytes, and does what it asks for.
//!
//! # How a host drives a [`Node`]
//!
//! 1. [`Node::handle_timeout`] once its [`deadline`](Node::deadline) has come, before anything else.
//! 2. [`Node::send`] for each packet of a protected host: it writes the outer packet. [`Node::receive`] for each packet
//!    from outside: it says whose it is, and writes the inner one.
//! 3. [`Node::next_action`] until it has nothing more: addresses to answer for and to give up, packets to send, a new
//!    session key to store.
//! 4. Sleep until something arrives or [`Node::deadline`].
//!
//! Outer packets are whole IPv6 packets, so the host sends them on a raw socket and receives them where its kernel does
//! not answer first.
//!
//! # Invariants
//!
//! - The local address of a route is asked for when the route is made and given up one round after it expired.
//! - A session key is adopted only after a packet under it came from the peer.
//! - What is dropped is counted under a [`DropReason`] and has no other effect; nobody is answered.
//! - Nothing here panics whatever arrives.
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | [`profile`] | what a stream is configured with |
//! | [`keys`], [`hashed`] | session keys; what follows from them and the time |
//! | [`routes`] | when routes are made, used, set aside, collected |
//! | [`packet`], `destination_options`, [`cipher`] | from inner packets to outer ones and back |
//! | `rewrite` | the same for streams whose packets have their addresses replaced |
//! | `exchange` | who offers a new session key, and when both agree |
//! | `stream` | one pair of hosts: routes of one or two keys, and what decides between them |
//! | `icmp` | errors about outer packets |
//! | `node`, `host_interface` | the host's side |

#![forbid(unsafe_code)]

pub mod cipher;
mod destination_options;
mod drops;
mod exchange;
pub mod hashed;
mod host_interface;
mod icmp;
pub mod keys;
mod node;
pub mod packet;
pub mod profile;
mod rewrite;
pub mod routes;
mod stream;
mod time;
#[cfg(test)]
mod vectors;

pub use drops::{DropReason, Drops};
pub use host_interface::{Action, Endpoint};
pub use node::{Node, Received, SendError};
pub use stream::{KeyState, StreamRoutes, StreamStatus};
pub use time::UnixTime;
