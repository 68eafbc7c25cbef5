//! Stories of hosts and routers on one link, in virtual time. Each is named after the rule that it tells of.

mod autoconfiguration;
mod discovery;
mod documents;
mod hostile;
mod hosts;
mod internet_layer;
mod ipsec;
mod ipv4;
mod link;
mod offloads;
mod routers;
mod security;
mod smoltcp;
#[path = "../fixture/smoltcp_wire.rs"]
mod smoltcp_wire;
mod tcp;
mod validation;
