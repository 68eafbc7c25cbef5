//! Messages of nfnetlink, written and read: a header, nfgenmsg, attributes (linux/netlink.h, nfnetlink.h).

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{MsgFlags, recv, send};

use crate::error::{Context as _, Error, Result};
use crate::netlink::messages;
use crate::sockopt;

/// The protocol of the socket.
pub(crate) const NETLINK_NETFILTER: i32 = 12;
/// An error, or that all went well; the end of what was asked for.
pub(crate) const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST and NLM_F_ACK: one object, and word that this was all.
pub(crate) const ASK_FOR_ONE: u16 = 1 | 4;
/// NLM_F_REQUEST and NLM_F_DUMP.
pub(crate) const ASK_FOR_ALL: u16 = 1 | 0x300;
/// Header of netlink, then nfgenmsg.
pub(crate) const HEADERS: usize = 16 + 4;

const ATTRIBUTE_HEADER: usize = 4;
/// Of an attribute's type; the two upper bits say how its content is to be read.
const TYPE_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// A socket that asks the kernel. It answers at once: nobody waits.
pub(crate) struct Client {
    socket: OwnedFd,
    buffer: Vec<u8>,
    what: &'static str,
}

impl Client {
    /// In the network namespace of this thread; `what` says in errors what is being done.
    pub(crate) fn open(what: &'static str) -> Result<Self> {
        let socket = sockopt::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_NETFILTER, what)?;
        // The kernel fills at most 32 KiB at once.
        Ok(Self { socket, buffer: vec![0; 1 << 16], what })
    }

    /// Sends a request, with the flags [`ASK_FOR_ONE`] or [`ASK_FOR_ALL`], and gives the type and the attributes of each message
    /// that answers it.
    ///
    /// # Errors
    /// The kernel's, by its number: `ENOENT` where what was asked for is not there.
    pub(crate) fn ask(&mut self, request: &[u8], mut visit: impl FnMut(u16, &[u8])) -> Result<()> {
        let fd = self.socket.as_raw_fd();
        send(fd, request, MsgFlags::empty()).context(|| self.what)?;
        loop {
            let count = recv(fd, &mut self.buffer, MsgFlags::empty()).context(|| self.what)?;
            for message in messages(&self.buffer[..count]) {
                let (kind, behind) = (kind_of(message), message.get(16..).unwrap_or_default());
                if let NLMSG_DONE | NLMSG_ERROR = kind {
                    return match behind.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number)) {
                        0 => Ok(()),
                        number => {
                            let error = std::io::Error::from_raw_os_error(number.saturating_neg());
                            Err(Error::new(self.what, error))
                        }
                    };
                }
                visit(kind, message.get(HEADERS..).unwrap_or_default());
            }
        }
    }
}

/// The type of a message.
pub(crate) fn kind_of(message: &[u8]) -> u16 {
    message.get(4..6).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]))
}

/// A message that is being written at the end of a buffer. [`end`](Self::end) it.
pub(crate) struct Message<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Message<'a> {
    pub(crate) fn begin(
        bytes: &'a mut Vec<u8>,
        kind: u16,
        flags: u16,
        sequence: u32,
        family: u8,
        resource: u16,
    ) -> Self {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        // Version 0.
        bytes.extend_from_slice(&[family, 0]);
        bytes.extend_from_slice(&resource.to_be_bytes());
        Self { bytes, start }
    }

    /// An attribute; `value` has at most 65,531 octets.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    /// An attribute that holds others, which `fill` writes.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        fill(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn end(self) {
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn pad(&mut self) {
        let length = (self.bytes.len() - self.start).next_multiple_of(4);
        self.bytes.resize(self.start + length, 0);
    }
}

/// The value of an attribute.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Types and values of attributes, as far as they are whole.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_first_chunk::<ATTRIBUTE_HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
