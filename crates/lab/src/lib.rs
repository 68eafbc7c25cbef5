//! Sidestep's laboratory.
#![forbid(unsafe_code)]

pub mod bench;
pub mod capture;
mod chart;
pub mod cli;
mod command;
pub mod demo;
mod error;
pub mod gateway;
pub mod impairment;
mod lab;
mod live;
pub mod namespaces;
pub mod observer;
mod port;
pub mod process;
pub mod relay;
pub mod report;
pub mod sixin4;
pub mod status;
pub mod topology;
pub mod traffic;
pub mod udp_stream;
mod wireguard;

pub use error::Error;
pub use gateway::Gateway;
pub use lab::{Builder, Lab, down};
pub use topology::{Node, Site, Topology};
