//! What a daemon says, as samples.

mod gateway;
mod ipsec;
mod scripts;
mod tunnel;

pub(crate) use gateway::{firewall, gateway};
pub(crate) use ipsec::ipsec;
pub(crate) use scripts::scripts;
pub(crate) use tunnel::tunnel;
