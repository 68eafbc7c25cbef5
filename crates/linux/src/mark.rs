//! Marks of sockets: what rules of routing and of nftables tell this process's own packets by.

use std::os::fd::AsFd;

use crate::error::Result;
use crate::sockopt;

/// Marks all that a socket sends from now on; 0 takes the mark away. Needs CAP_NET_ADMIN.
///
/// # Errors
/// Without privileges.
pub fn set(socket: impl AsFd, mark: u32) -> Result<()> {
    let what = "setsockopt SO_MARK (needs CAP_NET_ADMIN)";
    sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark, what)
}
