//! Stories in virtual time: of single rules, with segments written by hand; of two connections, or one and smoltcp, over a
//! simulated link. A test is named after its rule.

mod arriving;
mod listening;
mod losses;
mod musts;
mod network;
mod opening_and_closing;
mod properties;
mod sending;
mod smoltcp;
#[path = "../../../tests/fixture/smoltcp_wire.rs"]
mod smoltcp_wire;
mod story;
mod throughput;
mod transfers;
