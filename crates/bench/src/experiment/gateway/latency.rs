//! Round trips one after the other, timed here to the nanosecond: a few µs are too little for ping(8), which knows whole
//! ones.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use wire::checksum::Sum;

use lab::Error;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
const HEADER_LEN: usize = 8;
const IPV4_HEADER_LEN: usize = 20;
/// A port that nobody listens at.
const CLOSED: u16 = 9;

/// How long echoes of so many bytes behind the header of ICMP took, microseconds. To be called in the network namespace of
/// the host that asks. What is not answered has no time.
pub(super) fn echoes(target: IpAddr, payload: usize, count: u32) -> Result<Vec<f64>, Error> {
    let failed = |errno| Error::system("raw ICMP socket", errno);
    let (family, protocol) = match target {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).map_err(failed)?;
    let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience).map_err(failed)?;
    let to = SockaddrStorage::from(SocketAddr::new(target, 0));
    let mut times = Vec::new();
    for sequence in 0..count {
        let request = request(target, sequence, payload);
        let begun = Instant::now();
        sendto(socket.as_raw_fd(), &request, &to, MsgFlags::empty()).map_err(failed)?;
        if is_answered(&socket, target, &request) {
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

/// Waits for the reply to a request.
fn is_answered(socket: &OwnedFd, target: IpAddr, request: &[u8]) -> bool {
    let mut buffer = [0; 2_048];
    loop {
        let Ok(length) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) else { return false };
        // A raw socket of IPv4 sees the IP header, and both see other messages.
        let begin = if target.is_ipv4() { IPV4_HEADER_LEN } else { 0 };
        let reply = buffer[..length].get(begin..).unwrap_or_default();
        let kind = if target.is_ipv4() { 0 } else { 129 };
        if reply.first() == Some(&kind) && reply.get(4..HEADER_LEN) == request.get(4..HEADER_LEN) {
            return true;
        }
    }
}

fn request(target: IpAddr, sequence: u32, payload: usize) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN + payload];
    message[0] = if target.is_ipv4() { 8 } else { 128 };
    // Identifier and sequence number.
    message[4..HEADER_LEN].copy_from_slice(&sequence.to_be_bytes());
    // Of ICMPv6 the kernel computes it.
    if target.is_ipv4() {
        let checksum = Sum::of(&message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    message
}

/// How long it takes until a closed port has refused a connection, each time with another port of ours, microseconds. To be
/// called in the network namespace of the host that asks.
pub(super) fn connections(target: IpAddr, count: u32) -> Vec<f64> {
    let target = SocketAddr::new(target, CLOSED);
    let once = |_| {
        let begun = Instant::now();
        let refused = TcpStream::connect_timeout(&target, PATIENCE);
        let answered = refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        answered.then(|| begun.elapsed().as_secs_f64() * 1e6)
    };
    (0..count).filter_map(once).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_and_those_of_ipv4_have_a_checksum() {
        let v4 = request(IpAddr::V4([192, 0, 2, 1].into()), 0x0001_0002, 21);
        assert_eq!((v4.len(), v4[0], &v4[4..8]), (29, 8, &[0, 1, 0, 2][..]));
        assert!(Sum::of(&v4).is_valid());
        let v6 = request(IpAddr::V6([0; 16].into()), 7, 0);
        assert_eq!((v6.len(), v6[0], v6[7]), (8, 128, 7));
    }
}
