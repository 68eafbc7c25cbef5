//! Interfaces that scripts of a thread redirect packets to.

use linux::queue::raw::Sender;
use script::host::InterfaceError;

use crate::attach_point::MARK;
use crate::interface;

/// Why a packet did not leave through an interface.
#[derive(Debug, thiserror::Error)]
#[error("redirect to {interface}: {source}")]
pub(super) struct RedirectError {
    interface: String,
    source: linux::Error,
}

/// Sockets for each interface that a packet was redirected to.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<Target>);

#[derive(Debug)]
struct Target {
    name: String,
    number: u32,
    sender: Sender,
}

impl Targets {
    /// The number of an interface. Its sockets are opened the first time.
    pub(super) fn number(&mut self, name: &str) -> Result<u32, InterfaceError> {
        if let Some(target) = self.0.iter().find(|target| target.name == name) {
            return Ok(target.number);
        }
        let number = interface::number(name)?;
        let sender = Sender::through(MARK, number).map_err(|error| InterfaceError::Host(error.into()))?;
        self.0.push(Target { name: name.to_owned(), number, sender });
        Ok(number)
    }

    /// Sends a packet that begins with its IP header through an interface.
    ///
    /// # Errors
    /// Why it did not leave. Another interface may have that name by now, so it is looked for again at the next packet.
    pub(super) fn send(&mut self, packet: &[u8], number: u32) -> Result<(), RedirectError> {
        let Some(at) = self.0.iter().position(|target| target.number == number) else { return Ok(()) };
        let sent = self.0[at].sender.send(packet, number);
        sent.map_err(|source| RedirectError { interface: self.0.swap_remove(at).name, source })
    }
}
