//! Ports: whether another program listens at one, and one through which packets cross one interface alone.

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

/// A socket for UDP whose packets leave and come in by this interface alone, at a port that the kernel draws. `address`: where
/// it sends from, which may be that of another interface; an unspecified one is chosen for each destination.
///
/// # Errors
/// What the kernel says: there is no such interface, or no such address.
pub fn udp_by(interface: &str, address: IpAddr) -> std::io::Result<UdpSocket> {
    // A socket of an interface could be bound to addresses of that one only.
    let own = UdpSocket::bind((address, 0))?;
    setsockopt(&own, BindToDevice, &interface.into())?;
    Ok(own)
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

    #[test]
    fn an_interface_that_is_not_there_has_no_socket_and_another_ones_address_is_no_matter() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(udp_by("no-such-link", here).is_err());
        // Where one needs no privilege for it.
        if let Ok(own) = udp_by("lo", here) {
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            own.send_to(b"here", other.local_addr().unwrap()).unwrap();
            assert_eq!(other.recv(&mut [0; 9]).unwrap(), 4);
        }
    }
}
