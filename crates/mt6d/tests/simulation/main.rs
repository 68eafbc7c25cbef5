//! Stories of the protocol, told on a simulated network in virtual time.

mod addresses;
mod any;
mod attacker;
mod finding;
mod first_contact;
mod impaired;
mod interruptions;
mod key_log;
mod keys;
mod liveness;
mod many;
mod masked;
mod network;
mod rewritten;
mod shape;
mod sizes;
mod steady;
mod turns;
