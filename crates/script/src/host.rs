//! What a script needs from the world outside: time, randomness, sending, a log, and its modules.

use crate::packet::Packet;

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
    /// Why not: there is none of this name, but others.
    fn interface(&mut self, name: &str) -> Result<u32, String>;

    /// Writes one line of the script `source` into the log.
    fn log(&mut self, line: &str);

    /// The module that `require` asks for, `name` being words with dots between them; none where there is none.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn module(&mut self, name: &str) -> Result<Option<Module>, String>;
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

    fn interface(&mut self, name: &str) -> Result<u32, String> {
        Err(format!("there is no interface {name}: there are none"))
    }

    fn log(&mut self, _: &str) {}

    fn module(&mut self, _: &str) -> Result<Option<Module>, String> {
        Ok(None)
    }
}
