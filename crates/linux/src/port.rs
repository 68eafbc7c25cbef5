//! Ports that a program is to listen at: whether another one does.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt::BindToDevice,
};

/// Whether a program listens at this address, or at all of them, by UDP or TCP.
#[must_use]
pub fn is_taken(address: IpAddr, port: u16) -> bool {
    let in_use = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    UdpSocket::bind((address, port)).is_err_and(in_use)
        || TcpListener::bind((address, port)).is_err_and(in_use)
}

/// Whether a program takes IPv4 datagrams at this port, from this interface or from all.
#[must_use]
pub fn is_taken_at(interface: &str, port: u16) -> bool {
    let try_it = || -> nix::Result<()> {
        let own = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&own, BindToDevice, &interface.into())?;
        let everywhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        bind(own.as_raw_fd(), &SockaddrIn::from(everywhere))
    };
    try_it() == Err(Errno::EADDRINUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_while_a_program_has_it_there_or_everywhere() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = udp.local_addr().unwrap().port();
        assert!(is_taken(here, port));
        drop(udp);
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(is_taken(here, tcp.local_addr().unwrap().port()));
        let everywhere = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert!(is_taken_at("lo", port) && is_taken(here, port));
        drop(everywhere);
        assert!(!is_taken_at("lo", port));
    }
}
