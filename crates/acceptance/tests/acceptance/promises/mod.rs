//! What Sidestep promises, on this machine's kernel: two gateways that run the program as built for release, in the
//! lab's networks. No condition is about speed, so that a slow machine passes too; what is measured is printed.
//!
//! The program is named by the environment variable `SIDESTEP_BIN`, as `make test` does.

mod alone;
mod classic;
mod clocks;
mod closed;
mod endurance;
pub(crate) mod finding;
mod kills;
mod mask;
mod network;
mod offloads;
mod one_of_many;
mod packet_sizes;
mod reload;
mod rewrite;
pub(crate) mod scene;
mod shape;
mod taken_away;
mod unlinkable;
