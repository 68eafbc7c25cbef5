//! Stories of the protocol, told on a simulated network in virtual time.

mod first_contact;
mod interruptions;
mod network;
mod steady;
