//! The moving-target protocol MT6D, version 3 (docs/protocol.md), sans-IO.
//!
//! Two nodes exchange inner packets in UDP datagrams on a few lanes at a time. A lane is a pair of addresses and ports, one
//! at each end, that lives for some seconds; births and deaths are drawn from keys, each apart from all others, with nothing
//! announced and no packet lost for it. This crate opens no socket and reads no clock; its
//! randomness comes from a seed. A host gives it time and bytes, and does what it asks for. The same code runs over a TUN
//! device, over a simulated network in virtual time, and in a fuzzer.
//!
//! Where two nodes are follows from their keys and from time, so they meet without a word said before:
//!
//! ```
//! use sidestep_mt6d::keys::{PairKeys, PrivateKey};
//! use sidestep_mt6d::rendezvous::{self, Rendezvous, Tier};
//!
//! let (a, b) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]));
//! let at_a = PairKeys::derive(&a, &b.public(), None)?;
//! let at_b = PairKeys::derive(&b, &a.public(), None)?;
//!
//! // Where `a` looks for `b`, there `b` listens.
//! let epoch = Rendezvous::new(&at_a).current(Tier::Seconds, 1_800_000_000_000);
//! let prefix_of_b = "2001:db8:b::/64".parse()?;
//! assert_eq!(
//!     rendezvous::endpoint(&at_a, at_a.role.other(), prefix_of_b, Tier::Seconds, epoch),
//!     rendezvous::endpoint(&at_b, at_b.role, prefix_of_b, Tier::Seconds, epoch),
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a host drives a [`Node`]
//!
//! 1. [`Node::send`] for each packet from the TUN device, [`Node::receive`] for datagrams of an endpoint,
//!    [`Node::handle_timeout`] when its time has come. Inner packets come out through [`Deliver`], datagrams gather in
//!    the [`Outbox`].
//! 2. Send what is in the outbox, and clear it. Some of it may leave from endpoints that are closed next.
//! 3. [`Node::next_action`] until it has nothing more: open and close the endpoints that it names, and tell the node
//!    with [`Node::opened`] or [`Node::open_failed`].
//! 4. Sleep until something arrives or [`Node::deadline`].
//!
//! `examples/host.rs` in the crate's folder does all of that over plain UDP sockets: a host of ninety lines, and two nodes
//! that it is tried with (`cargo run -p sidestep-mt6d --example host`). The beginning of it:
//!
//! ```
//! use std::collections::HashMap;
//! use std::time::Duration;
//!
//! use sidestep_mt6d::config::{NodeConfig, PeerConfig, REKEY_AFTER};
//! use sidestep_mt6d::keys::PrivateKey;
//! use sidestep_mt6d::{Action, Node, Now, Time};
//!
//! let key = PrivateKey::from_bytes([2; 32]).public();
//! let peer = PeerConfig::new("branch", key, "2001:db8:b::/64".parse()?, vec!["fd00:b::/64".parse()?]);
//! let config = NodeConfig {
//!     private_key: PrivateKey::from_bytes([1; 32]),
//!     previous_key: None,
//!     hop_prefix: "2001:db8:a::/64".parse()?,
//!     link_mtu: 1500,
//!     hardware_aes: false,
//!     addresses: Vec::new(),
//!     rekey_after: REKEY_AFTER,
//!     peers: vec![peer],
//! };
//! let now = Now { boot: Time::from_micros(1), unix_ms: 1_800_000_000_000 };
//! let entropy = || [7; 32]; // Not like this: 32 bytes of the best randomness there is, others each time.
//! let mut node = Node::new(config, &HashMap::new(), entropy, now)?;
//! # struct Nothing;
//! # impl sidestep_mt6d::Deliver for Nothing {
//! #     fn packet(&mut self, _: &[u8], _: &[u8], _: std::ops::Range<usize>) {}
//! #     fn whole_packet(&mut self, _: &[u8]) {}
//! # }
//! # let mut outbox = sidestep_mt6d::Outbox::new();
//!
//! node.handle_timeout(now, &mut outbox, &mut Nothing);
//! while let Some(action) = node.next_action() {
//!     if let Action::Open { id, local, .. } = action {
//!         assert!(node.hop_prefix().contains(local.ip()));
//!         // Here a host opens a socket.
//!         node.opened(id, now);
//!     }
//! }
//! assert!(node.endpoints() > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where one thread does not do for all packets, others carry some with a [`PacketWorker`] each.
//!
//! # Invariants
//!
//! - While a session goes on, an endpoint is asked for before its lane is born, and closed only after that has died; one lane
//!   at least is alive at any time. Only those of a session's first lane, and of a node that slept, come late.
//! - No payload is believed before it is authenticated; what is not is counted under a [`DropReason`], and nobody is
//!   answered. Of the outer headers, which nobody can authenticate, two things count, and only beside a payload that is
//!   genuine: the ECN codepoint (RFC 6040), and the prefix that a first message comes from.
//! - A datagram is delivered at most once.
//! - Nothing here panics whatever arrives.
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | [`config`] | what a node is given: its identity, its peers |
//! | [`keys`], `kdf` | identities, what a pair derives from them |
//! | [`births`], [`schedule`], [`endpoint`], [`rendezvous`], `tier` | when and where |
//! | `envelope`, `handshake`, `offer` | first contact: what is said |
//! | [`record`] | where a node hops, sealed for one peer |
//! | `contact`, `peer` | first contact: who, when, from where; which session is in use |
//! | `session::shape` | what leaves, and when, where that has nothing to do with what is carried |
//! | `session` | lanes, keys, replay window, contexts, path MTU, rekey: what happens from then on |
//! | [`mask`] | another tunnel's packets, which travel on the same lanes |
//! | `control` | messages inside a session |
//! | `id`, [`overhead`], `time` | numbers and what they mean |
//! | `node`, `env`, `host_interface`, [`Outbox`], [`Received`], [`Deliver`] | the host's side |
//! | `routes` | which peer an inner address is behind |
//! | `packet_worker` | carrying packets on other threads |
//! | `key_log` | secrets for who records datagrams and asked for them |
//! | `drops` | why packets go no further |
//!
//! The crate's types use those of [`ipnet`] and of `sidestep-wire`, which it hands on.

#![forbid(unsafe_code)]

pub mod births;
pub mod config;
mod contact;
mod control;
mod deliver;
mod drops;
pub mod endpoint;
mod env;
mod envelope;
mod event;
mod handshake;
mod host_interface;
mod id;
mod kdf;
mod key_log;
pub mod keys;
mod limit;
pub mod mask;
mod node;
mod offer;
mod outbox;
pub mod overhead;
mod packet_worker;
mod peer;
mod received;
pub mod record;
pub mod rendezvous;
mod routes;
pub mod schedule;
mod session;
mod tier;
mod time;
#[cfg(test)]
mod vectors;

pub use contact::AttemptStatus;
pub use deliver::Deliver;
pub use drops::{DropReason, Drops};
pub use event::{Change, Ending, PeerEvent, PeerState, SendFailure, Silence, Unheard};
pub use host_interface::{Action, Rewrite};
pub use id::{EndpointId, Epoch, LaneId};
pub use node::Node;
pub use outbox::{Batch, Outbox};
pub use packet_worker::{Notice, PacketWorker, Receiver, Update};
pub use peer::{LaneStatus, PeerMemory, PeerStatus, SessionStatus};
pub use received::Received;
pub use session::{Delay, InnerMtu, ShapeStatus, Traffic};
pub use time::{Now, Time};

pub use ipnet;
pub use wire::ecn::Ecn;
pub use wire::virtio_net;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
