//! The control socket of a running daemon, `/run/sidestep/<tunnel name>.sock`, of a script host, and of a gateway.
//!
//! A client sends one line of JSON, [`Request`], and gets one JSON document, [`Reply`], to the end of the stream.
//! The socket has mode 0600; its folder is the operator's to protect further. One client is served at a time, each
//! within bounded time and memory, so that a stuck one holds up nobody for long, and the daemon never.

mod client;
pub mod event;
pub mod ipsec_status;
mod message;
mod path;
pub mod router_status;
mod server;
pub mod stack_status;
pub mod tunnel_status;

pub use client::{Error, LONG, ask, ask_within, find, sockets};
pub use message::{ENDING, Reply, Request};
pub use path::{
    FOLDER, key_socket_of, key_sockets, socket_of, socket_of_gateway, socket_of_scripts, socket_of_stack,
};
pub use server::{Call, Server, listen_privately, remove_stale_socket};
