//! What a script needs from the world outside: time, randomness, sending, a log, and its modules.

use std::{error, io};

use crate::logged::Logged;
use crate::packet::Packet;
use crate::streams::{Decided, StreamKey};

/// The world outside of the scripts. Nothing in this crate reads a clock or opens a file but through it.
pub trait Host {
    /// Milliseconds since a moment that stays the same; never less than before.
    fn now_ms(&mut self) -> u64;

    /// 32 random bits.
    fn random(&mut self) -> u32;

    /// Sends `packet`, which begins with an IP header. `like` is the packet that it was made for, if the script told
    /// one: it goes where that came from or went to.
    fn send(&mut self, packet: &[u8], like: Option<&Packet>);

    /// The number of the interface that packets are redirected to by this name.
    ///
    /// # Errors
    /// There is none of this name, or packets cannot be sent through it.
    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError>;

    /// Notes what was decided of a stream, of the table of this name, so that who has its packets first need not ask for
    /// each of them; none: one begins anew, and has to be asked for.
    fn decided(&mut self, _streams: &str, _stream: &StreamKey, _decided: Option<&Decided>) {}

    /// What was noted so of a stream, and is still known there.
    fn was_decided(&mut self, _streams: &str, _stream: &StreamKey) -> Option<Decided> {
        None
    }

    /// Writes one line into the log.
    fn log(&mut self, line: &str);

    /// Writes a line of `nf.log`, which may have fields, into the log.
    fn log_fields(&mut self, logged: &Logged) {
        self.log(&logged.to_string());
    }

    /// Writes a packet, which begins with an IP header, into the capture of this name, one that
    /// [`pcap::capture_name`](crate::pcap::capture_name) takes.
    fn capture(&mut self, name: &str, packet: &[u8]) {
        let _ = (name, packet);
    }

    /// Sends a copy of a packet, which begins with an Ethernet header, a true one or one that is made up, out through the
    /// interface of this name, one that [`mirror::interface_name`](crate::mirror::interface_name) takes. If it cannot be
    /// sent, there is no copy: nobody waits for it.
    fn mirror(&mut self, interface: &str, frame: &[u8]) {
        let _ = (interface, frame);
    }

    /// The module that `require` asks for, `name` being words with dots between them; none where there is none.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError>;
}

/// Why packets cannot be redirected to an interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// There is none of this name.
    #[error("there is no interface {name}: there are {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// What the host says.
    #[error("{0}")]
    Host(Box<dyn error::Error + Send + Sync>),
}

/// Why a file beside a script cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// What the system says.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The name of a capture leads out of the script's folder.
    #[error("a capture lies beside the script, or in a folder beside it")]
    Outside,
}

/// A module in Lua.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its text.
    pub source: String,
    /// Where it came from, for messages.
    pub path: String,
}

/// A world of nothing, for scripts that ask for nothing: its clock stands at zero, and what is sent or logged is gone.
#[derive(Debug, Clone, Copy)]
pub struct NoHost;

impl Host for NoHost {
    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self) -> u32 {
        0
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        Err(InterfaceError::Unknown { name: name.to_owned(), known: Vec::new() })
    }

    fn log(&mut self, _: &str) {}

    fn module(&mut self, _: &str) -> Result<Option<Module>, FileError> {
        Ok(None)
    }
}
