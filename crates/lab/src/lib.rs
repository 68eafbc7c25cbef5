//! Sidestep's laboratory: two gateways, two hosts and the network between them on one machine, in network
//! namespaces; traffic between the hosts and an account of what became of it; an observer between the gateways.
//! The tests on a real kernel and the measurements (the crates `acceptance` and `bench`) are made in it.
//!
//! A lab is built from options and is taken down when the value is dropped:
//!
//! ```no_run
//! use lab::{Lab, Node, Topology, traffic};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut lab = Lab::builder("/usr/bin/sidestep")
//!     .prefix("t1")
//!     .topology(Topology::Routed)
//!     .rotation("1s")
//!     .impairment("delay=20ms,loss=2%".parse()?)
//!     .build()?;
//! lab.start()?;
//! let pings = traffic::ping(&lab, traffic::PingOptions::default())?;
//! lab.gateway_a().restart()?;
//! let output = lab.exec(Node::Router, ["ip", "-6", "route"])?;
//! # let _ = (pings, output);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`topology`] | machines, sites, and the three networks between them |
//! | `builder`, `lab` | what a lab is to be like; one that is up |
//! | `network` | its links, addresses, routes, filters |
//! | [`transparent`] | what is otherwise in them where the gateways are transparent |
//! | [`namespaces`], [`process`], [`prefix`] | what they are made of, and named by |
//! | [`helper`] | where the program is whose commands some of these are |
//! | [`impairment`], [`relay`] | a bad network on the middle link, since the kernel may lack netem |
//! | [`impair_script`] | the same by a packet script |
//! | [`sixin4`] | a 6in4 tunnel, since the kernel may lack sit |
//! | [`machines`] | machines for the sites of a fleet, each with folders of its own |
//! | [`etcd`] | a cluster of etcd, whose members are killed, stopped, slowed and cut off |
//! | [`history`] | whether what several clients were told can have happened one after another |
//! | [`gateway`] | configuration and process of a gateway |
//! | [`traffic`], [`udp_stream`] | UDP streams, TCP, ping, between the hosts |
//! | [`echoes`] | what `ping` reports, and the kernel counts |
//! | [`patience`], [`edited`] | waiting, and changing examples, in tests |
//! | [`capture`], [`observer`] | what passed the router, and what that tells an attacker |
//! | [`command`], [`accounting`] | programs that are waited for; what processes use |
//!
//! Invariants:
//! - A lab touches only namespaces that carry its prefix, and the directory `/run/sidestep-lab/PREFIX`. It ends
//!   only processes that it started or that run inside these namespaces.
//! - Helpers (relay, tunnel ends, senders, receivers, captures) are processes of the program `sidestep-lab`, so that a lab can outlive the command that built it.
//! - A measurement never repairs anything: streams have no retransmission and receivers never answer.
#![forbid(unsafe_code)]

pub mod accounting;
mod builder;
pub mod capture;
pub mod classic;
pub mod command;
pub mod echoes;
pub mod edited;
mod error;
pub mod etcd;
mod frame_socket;
pub mod gateway;
pub mod helper;
pub mod history;
pub mod impair_script;
pub mod impairment;
mod lab;
pub mod machines;
pub mod namespaces;
mod network;
pub mod observer;
pub mod patience;
pub mod prefix;
pub mod process;
pub mod queue;
pub mod relay;
pub mod scale;
pub mod sixin4;
pub mod topology;
pub mod traffic;
pub mod transparent;
pub mod udp_stream;

pub use builder::{Builder, Gateways, Impairer, Profile};
pub use error::Error;
pub use gateway::Gateway;
pub use lab::{Lab, down};
pub use topology::{Node, Site, Topology};
