//! Connections as they end.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use super::{Connection, connection};
use crate::error::{Error, Result};
use crate::netlink::messages;
use crate::nfnetlink::{HEADERS, NETLINK_NETFILTER, kind_of};
use crate::sockopt;

/// IPCTNL_MSG_CT_DELETE.
const DELETED: u16 = 1 << 8 | 2;
/// Some ten thousand connections, which may end at once where a firewall is flushed.
const BUFFER: i32 = 8 << 20;
/// In one call: who reads has other things to do.
const MOST_READS: u32 = 256;

/// A socket that hears of connections that the kernel follows no longer, with what they have carried: of those that began
/// after it was opened, as kernels from 5.19 on keep it.
#[derive(Debug)]
pub struct Ends {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Ends {
    /// Hears of connections in the network namespace of this thread from now on. Add it to a [`crate::event::Poller`] as
    /// readable.
    ///
    /// # Errors
    /// Where the kernel does not tell (CONFIG_NF_CT_NETLINK, the module `nf_conntrack_netlink`), or not this process
    /// (CAP_NET_ADMIN).
    pub fn open() -> Result<Self> {
        let what = "hear of connections that end (needs CAP_NET_ADMIN and nf_conntrack_netlink)";
        let socket = sockopt::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_NETFILTER, what)?;
        sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER, what)?;
        let group = libc::NFNLGRP_CONNTRACK_DESTROY;
        sockopt::set(socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group, what)?;
        Ok(Self { socket, buffer: vec![0; 1 << 16] })
    }

    /// Gives those that have ended since the last call, or in a flood the first of them. Returns how often more did than there
    /// was room for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self, mut visit: impl FnMut(Connection)) -> Result<u64> {
        let mut overruns = 0;
        for _ in 0..MOST_READS {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(count) => {
                    let ended = messages(&self.buffer[..count]).filter(|message| kind_of(message) == DELETED);
                    let attributes = ended.filter_map(|message| message.get(HEADERS..));
                    attributes.filter_map(connection).for_each(&mut visit);
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::ENOBUFS) => overruns += 1,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(Error::new("recv of connections that end", error)),
            }
        }
        Ok(overruns)
    }
}

impl AsFd for Ends {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
