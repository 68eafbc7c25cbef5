//! Stories in virtual time: two connections, or one and smoltcp, over a simulated link.

mod network;
mod properties;
mod rules;
mod smoltcp;
mod throughput;
mod transfers;
