//! The control socket of a running daemon, `/run/sidestep/<tunnel name>.sock`, of a script host, and of a gateway.
//!
//! A client sends one line of JSON, [`Request`], and gets one JSON document, [`Reply`], to the end of the stream.
//! The socket has mode 0600; its folder is the operator's to protect further. Where there is a folder for those who may only
//! look (`/run/sidestep-read`, whose group is theirs), a second socket in it answers what changes nothing ([`Ask`]), and where
//! there is one for agents of a fleet (`/run/sidestep-agent`), a third also reloads: the kernel decides who comes to which, and
//! the daemon needs no privilege for it. At each socket one client is served at a time,
//! within bounded time and memory, so that a stuck one holds up nobody for long, those at the other socket not at all, and
//! the daemon never; the daemon is asked one thing at a time.

mod client;
pub mod event;
pub mod ipsec_status;
mod listen;
mod message;
mod path;
pub mod place;
pub mod router_status;
mod server;
pub mod stack_status;
pub mod standby;
pub mod tunnel_status;

pub use client::{Error, LONG, all_sockets, ask, ask_for, ask_within, find, reload, sockets};
pub use listen::{listen_privately, listen_to_group, lock_beside, remove_stale_socket};
pub use message::{Ask, ENDING, Effect, Reply, Request, SHORT};
pub use path::{
    FOLDER, Others, folders_of, is_of_gateway, is_of_scripts, is_there, key_socket_of, key_sockets,
    network_namespace, socket_of, socket_of_gateway, socket_of_scripts, socket_of_stack,
};
pub use server::{Call, Server};
