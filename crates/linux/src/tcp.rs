//! Connections of the kernel's TCP, beyond what the standard library does with them.

use std::net::TcpStream;

use nix::sys::socket::{setsockopt, sockopt};

use crate::error::{Context, Result};

/// Has the connection end with a RST when it is closed, so that the other end does not take what it has for all there is.
///
/// # Errors
/// What the kernel says.
pub fn reset_on_close(stream: &TcpStream) -> Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &linger).context(|| "setsockopt SO_LINGER")
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_can_end_with_a_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        reset_on_close(&server).unwrap();
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
