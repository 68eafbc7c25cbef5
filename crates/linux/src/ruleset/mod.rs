//! Tables of nftables, as the kernel has them, and news of their changes, whoever made them. No program is run for that.

mod contents;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr};

use crate::error::{Context, Error, Result};
use crate::netlink::messages;
use crate::nfnetlink::{HEADERS, NETLINK_NETFILTER, attributes, kind_of};

pub(crate) use contents::counted_packets;
pub use contents::{
    Contents, Family, Names, Snapshot, chains_of_rules, count_rules, has_chain, has_table, last_transaction,
    make_and_look, names,
};

/// linux/netfilter/nfnetlink.h
const NFNLGRP_NFTABLES: u32 = 7;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// linux/netfilter/nf_tables.h: the first attribute of a table, and of all that a table has, is the table's name.
const TABLE_NAME: u16 = 1;
/// Likewise: the end of a transaction, whose first attribute is its number.
const NFT_MSG_NEWGEN: u16 = 15;

/// A socket that hears of changes in the network namespace it was opened in.
pub struct RulesetMonitor {
    socket: Socket,
}

impl std::fmt::Debug for RulesetMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesetMonitor").finish_non_exhaustive()
    }
}

impl RulesetMonitor {
    /// Hears of changes from now on. Add it to a [`crate::event::Poller`] as readable.
    pub fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER as isize).context(|| "socket for nfnetlink")?;
        socket.bind(&SocketAddr::new(0, 0)).context(|| "bind the nfnetlink socket")?;
        socket.set_non_blocking(true).context(|| "fcntl O_NONBLOCK")?;
        socket.add_membership(NFNLGRP_NFTABLES).context(|| "join the group of nftables")?;
        Ok(Self { socket })
    }

    /// Whether something of a table of one of these names changed since the last call, or may have: more changed than the socket
    /// has room for (`ENOBUFS`).
    pub fn changed(&self, tables: &[String]) -> Result<bool> {
        let mut changed = false;
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => {
                    let concerns = |message| tables.iter().any(|table| concerns(message, table));
                    changed |= messages(&bytes).any(concerns);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => return Ok(changed),
                    Some(libc::ENOBUFS) => changed = true,
                    _ => return Err(Error::new("recvfrom on the nfnetlink socket", error)),
                },
            }
        }
    }
}

impl AsFd for RulesetMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket owns the descriptor and lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

/// Whether a message is about a table of this name, of any family, or something in it.
fn concerns(message: &[u8], table: &str) -> bool {
    let kind = kind_of(message);
    if kind >> 8 != NFNL_SUBSYS_NFTABLES || kind & 0xff == NFT_MSG_NEWGEN {
        return false;
    }
    attributes(message.get(HEADERS..).unwrap_or_default())
        .any(|(kind, value)| kind == TABLE_NAME && value.strip_suffix(&[0]) == Some(table.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfnetlink::Message;

    fn message(kind: u16, name: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut message = Message::begin(&mut bytes, kind, 0, 1, 10, 0);
        message.attribute(TABLE_NAME, name);
        message.end();
        bytes
    }

    #[test]
    fn only_what_is_about_the_table_is() {
        const NFT_MSG_DELTABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 2;
        let ours = message(NFT_MSG_DELTABLE, b"sidestep-mt6d0\0");
        assert!(concerns(&ours, "sidestep-mt6d0"));
        assert!(!concerns(&ours, "sidestep-mt6d1"));
        assert!(!concerns(&message(NFT_MSG_DELTABLE, b"sidestep-mt6d0"), "sidestep-mt6d0"));
        assert!(!concerns(&message(1 << 8 | 2, b"sidestep-mt6d0\0"), "sidestep-mt6d0"));
        assert!(!concerns(&message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN, b"t\0"), "t"));
        for length in 0..ours.len() {
            concerns(&ours[..length], "sidestep-mt6d0");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            concerns(&bytes, "t");
        }
    }
}
