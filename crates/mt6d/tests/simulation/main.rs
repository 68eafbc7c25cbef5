//! Stories of the protocol, told on a simulated network in virtual time.

mod network;
mod steady;
