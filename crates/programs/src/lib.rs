//! The eBPF programs that are built in, written by hand: what becomes of a packet in the kernel. Nothing here asks the
//! kernel for anything; `linux` loads and attaches what comes out.
//!
//! | module | the program runs | what it does |
//! |---|---|---|
//! | [`steering`] | at a TUN device | chooses the queue that a packet waits in, by its flow |
//! | [`sk_lookup`] | in the lookup of sockets | gives what is for a rendezvous endpoint to the socket of all of them |
//! | [`icmp_tap`] | where packets come in by an interface | copies router discovery and ICMP errors to a ring |
//! | [`transparent`] | at both interfaces of a transparent gateway, and its TUN devices | lets frames cross, or not |
//! | [`classic`] | at the TUN device and the external interface | carries packets of the classic profile's streams |
//! | [`rewrite`] | likewise | replaces addresses of the moving tunnel's packets (`carry = "rewrite"`) |
//! | [`mask`] | at the TUN device and the external interface | masks the packets of another tunnel, which move with this one (`carry = "mask"`) |
//! | [`transition`] | at a transition tunnel's device and the interface below | does what `router::transition` says |
//! | [`nat64`] | at the translator's device | makes IPv4 packets of IPv6 packets, and the other way round |
//!
//! [`pair`] is what `classic` and `rewrite` have in common. `snippet` is the layer that all are written on, `refusals` what counts refused packets.
//!
//! Invariants:
//! - The shape of a map, and where things are in its values, is declared beside the program that reads it.
//! - A program drops nothing silently that user space could count: it leaves packets alone, counts a refusal, or has
//!   changed the packet already.
#![forbid(unsafe_code)]

pub mod classic;
pub mod icmp_tap;
pub mod mask;
pub mod nat64;
pub mod pair;
mod refusals;
pub mod rewrite;
pub mod sk_lookup;
mod snippet;
pub mod steering;
pub mod transition;
pub mod transparent;
