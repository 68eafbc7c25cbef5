//! The moving-target protocol, version 2 (docs/protocol.md), sans-IO.
//!
//! Two nodes exchange inner packets in UDP datagrams whose addresses and ports change at both ends at the same instant,
//! every few seconds, with nothing announced and nothing lost. This crate opens no socket, reads no clock and draws no
//! randomness: a host gives it time and bytes, and does what it asks for. The same code runs over a TUN device, over a
//! simulated network in virtual time, and in a fuzzer.
//!
//! # How a host drives a [`Node`]
//!
//! 1. [`Node::send`] for each packet from the TUN device, [`Node::receive`] for each datagram of an endpoint,
//!    [`Node::handle_timeout`] when its time has come. Inner packets come out through [`Deliver`], datagrams gather in
//!    the [`Outbox`].
//! 2. Send what is in the outbox, and clear it. Some of it may leave from endpoints that are closed next.
//! 3. [`Node::next_action`] until it has nothing more: open and close the endpoints that it names, and tell the node
//!    with [`Node::opened`] or [`Node::open_failed`].
//! 4. Sleep until something arrives or [`Node::deadline`].
//!
//! Where one thread does not do for all packets, others carry with a [`PacketWorker`] each.
//!
//! # Invariants
//!
//! - An endpoint is asked for before its epoch begins and closed after its end, never the other way round.
//! - No byte of the network is believed before it is authenticated; what is not is counted under a [`DropReason`], and
//!   nobody is answered.
//! - A datagram is delivered at most once.
//! - Nothing here panics whatever arrives.
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | [`keys`], `kdf` | identities, what a pair derives from them |
//! | [`schedule`], [`endpoint`], [`rendezvous`] | when and where |
//! | `envelope`, `handshake`, `offer` | first contact: what is said |
//! | `contact`, `peer` | first contact: who, when, from where; which session is in use |
//! | `session` | lanes, keys, replay window, contexts, path MTU, rekey: what happens from then on |
//! | `control` | messages inside a session |
//! | `node`, `host`, [`Outbox`], [`Deliver`] | the host's side |
//! | `packet_worker` | carrying packets on other threads |

#![forbid(unsafe_code)]

pub mod config;
mod contact;
mod control;
mod deliver;
mod drops;
pub mod endpoint;
mod env;
mod envelope;
mod handshake;
mod host;
mod id;
mod kdf;
pub mod keys;
mod node;
mod offer;
mod outbox;
pub mod overhead;
mod packet_worker;
mod peer;
mod received;
pub mod rendezvous;
mod routes;
pub mod schedule;
mod session;
mod tier;
mod time;
#[cfg(test)]
mod vectors;

pub use deliver::Deliver;
pub use drops::{DropReason, Drops};
pub use host::{Action, Rewrite};
pub use id::{EndpointId, Epoch, LaneId};
pub use node::Node;
pub use outbox::{Batch, Outbox};
pub use packet_worker::{Notice, PacketWorker, Receiver, Update};
pub use peer::{LaneStatus, PeerMemory, PeerState, PeerStatus, SessionStatus};
pub use received::Received;
pub use session::{InnerMtu, Traffic};
pub use time::{Now, Time};
