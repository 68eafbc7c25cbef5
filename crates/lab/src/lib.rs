//! Sidestep's laboratory.
#![forbid(unsafe_code)]

pub mod capture;
pub mod cli;
mod command;
mod error;
pub mod gateway;
pub mod impairment;
mod lab;
pub mod namespaces;
mod port;
pub mod process;
pub mod relay;
pub mod sixin4;
pub mod status;
pub mod topology;
pub mod traffic;
pub mod udp_stream;

pub use error::Error;
pub use gateway::Gateway;
pub use lab::{Builder, Lab, down};
pub use topology::{Node, Site, Topology};
