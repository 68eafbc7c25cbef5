//! Links, addresses, routes and neighbor entries of the kernel (rtnetlink), for the network namespace of the thread
//! that opened the socket.
//!
//! Every route and neighbor entry made here carries [`PROTOCOL`], and only what carries it is removed. Nothing that
//! is there already is replaced: the error then says so (see [`crate::Error::already_exists`]).

mod address;
mod filter;
mod link;
mod monitor;
mod neighbor;
mod route;
mod rule;
mod shaping;

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use address::{Address, Lifetimes};
pub use link::{Link, Port};
pub use monitor::{Change, Monitor};
pub use neighbor::{Neighbor, NeighborState};
pub use route::{NextHop, Route, TableRoute, Via};
pub use rule::{MAIN, Rule, Selects};
pub use shaping::{Cake, Framing, Root, Shaped};

use crate::error::{Context, Error, Result};

/// The routing protocol number (rtm_protocol) on all that Sidestep makes. `ip route` shows it as `proto 83`.
pub const PROTOCOL: u8 = 83;

/// A connection to the kernel's routing tables. Requests block until the kernel has answered.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens a connection to the network namespace that this thread is in. It stays with that namespace.
    pub fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context(|| "socket for rtnetlink")?;
        socket.bind_auto().context(|| "bind the rtnetlink socket")?;
        socket.connect(&SocketAddr::new(0, 0)).context(|| "connect the rtnetlink socket")?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks the kernel to do something, and waits until it has.
    fn change(&mut self, message: RouteNetlinkMessage, flags: u16, what: impl Fn() -> String) -> Result<()> {
        self.exchange(message, NLM_F_ACK | flags, &what).map(drop)
    }

    /// Asks for one object.
    fn get(
        &mut self,
        message: RouteNetlinkMessage,
        what: impl Fn() -> String,
    ) -> Result<RouteNetlinkMessage> {
        let mut answers = self.exchange(message, 0, &what)?;
        answers.pop().ok_or_else(|| Error::other(what(), "the kernel gave no answer that we understand"))
    }

    /// Asks for all objects of a kind.
    fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        what: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, NLM_F_DUMP, &what)
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).context(what)?;

        let many = flags & NLM_F_DUMP == NLM_F_DUMP;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full().context(what)?;
            for part in messages(&bytes) {
                if sequence_number(part) != self.sequence {
                    continue;
                }
                // What a newer kernel says in a form that the decoder does not know is passed over.
                let Ok(answer) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(part) else { continue };
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => {
                        answers.push(inner);
                        if !many && flags & NLM_F_ACK == 0 {
                            return Ok(answers);
                        }
                    }
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(Error::new(what(), error.to_io()));
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// The netlink messages of one receive, each with its header.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const HEADER: usize = 16;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        if length < HEADER {
            return None;
        }
        let message = bytes.get(..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

fn sequence_number(message: &[u8]) -> u32 {
    message.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn splitting_any_bytes_into_messages_ends_and_stays_within(bytes: Vec<u8>) {
            for message in messages(&bytes) {
                prop_assert!(message.len() >= 16);
                sequence_number(message);
            }
        }
    }

    #[test]
    fn two_messages_of_one_receive_are_told_apart() {
        let mut bytes = vec![0; 40];
        bytes[0] = 18; // padded to 20
        bytes[20] = 20;
        assert_eq!(messages(&bytes).map(<[u8]>::len).collect::<Vec<_>>(), [18, 20]);
    }
}
