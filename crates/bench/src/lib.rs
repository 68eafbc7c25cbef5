//! The program `sidestep-lab`: labs by hand, the demonstration, and everything that is measured in labs.
//!
//! | module | what it is |
//! |---|---|
//! | [`comparison`] | `bench`: beside no tunnel and other tunnels |
//! | [`experiment`] | `experiment`: the published test plans, repeated |
//! | [`stack`] | `bench stack`: the host stack's TCP beside others', and the seed's section 7 again |
//! | [`shape`] | `bench shape`: what a constant shape costs, and how exactly it keeps its times |
//! | [`bandwidth`] | `bench bandwidth`: latency under load, with `bandwidth` of an uplink and without |
//! | [`wrap`] | `bench wrap`: WireGuard masked and not, between the same gateways |
//! | [`scripts`] | `bench scripts`: packet scripts beside nftables, eBPF in C, Suricata and a proxy |
//! | [`nat`], [`caches`] | packet scripts beside the kernel's NAT; those that cache files |
//! | `adversary` | `adversary`: who follows pairs on the path; what he learns by what he does; whether he can tell that it is Sidestep |
//! | [`many`] | one gateway with many peers |
//! | [`demo`], [`outcome`], [`report`] | half a minute of traffic with a live view, and what is left of it |
//! | `wireguard` | an end of WireGuard in user space |
//! | `page`, `chart` | what the reports' pages have in common |
//! | [`status`] | what `status` prints |
//! | [`helper`] | what labs run on their machines |
//! | [`cli`] | the command line |
//!
//! The labs themselves, and how traffic is made and counted in them, are the crate `lab`. A measurement that is
//! interrupted says so and keeps what it has.
#![forbid(unsafe_code)]

mod adversary;
pub mod bandwidth;
pub mod caches;
mod chart;
pub mod cli;
pub mod comparison;
pub mod demo;
pub mod experiment;
pub mod fleet;
pub mod helper;
mod live;
pub mod many;
pub mod nat;
pub mod outcome;
mod page;
pub mod report;
pub mod scripts;
pub mod shape;
pub mod stack;
pub mod status;
mod wireguard;
pub mod wrap;
