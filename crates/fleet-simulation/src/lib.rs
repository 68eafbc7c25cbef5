//! A fleet past this machine: many sites and their controllers in virtual time.
//!
//! What decides is what is shipped: [`fleet::agent::Agent`] at each site, [`controller::Controller`] with its HTTP interface, on
//! the store in memory, which answers as late as etcd does. What is not there is what carries it: no TCP, no TLS, no tunnel, no
//! gateway; a message takes its time, and the octets of what is left out are added ([`controllers`]). Time stands while
//! somebody computes, so that an hour of a hundred sites takes seconds; the processor time of a controller is measured, and
//! its answers are as late as one processor makes them.
//!
//! | module | what it is |
//! |---|---|
//! | `story` | what happens, and what has to hold: all enrol within minutes, a site is revoked, nobody answers for a day |
//! | `figures` | what it cost |
//! | `controllers`, `distant` | controllers that come and go, and their store |
//! | `sites`, `event`, `identity` | sites that enrol, and run their agents |
//! | `administrator` | who signs |
//! | `world`, `processor` | what all of them share; processor time |
#![forbid(unsafe_code)]

mod administrator;
mod controllers;
mod distant;
mod event;
mod figures;
mod identity;
mod processor;
mod sites;
mod story;
mod world;

pub use figures::{Figures, table};
pub use story::{Broken, Options, run};
