//! Fleets of more sites than a person configures by hand: twenty out of a script, as many agents as the machine has room for, and
//! one without controllers for as long as `SIDESTEP_SOAK` says. Times are told, and no test passes by them.

mod agents;
mod controllers;
mod latency;
mod sites;
mod soak;
mod twenty;
