//! Whose socket is at the other end of a connection within this host (sock_diag(7)): the kernel tells anybody.
//!
//! Ports come free and are taken by others, so an answer is about the moment. It is about a connection of ours if that is
//! still there afterwards: as long as it is, nobody else has its other end.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use netlink_sys::{Socket, SocketAddr as Port, protocols::NETLINK_SOCK_DIAG};

use crate::error::{Context, Error, Result};

/// linux/sock_diag.h and linux/netlink.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// States of TCP (include/net/tcp_states.h) in which an end has a connection: established, and closing from either side.
const CONNECTED: [u8; 6] = [1, 4, 5, 8, 9, 11];

/// A user, as this process has its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User(pub u32);

impl User {
    /// The user who may do everything.
    pub const ROOT: Self = Self(0);

    /// The one that this process acts for.
    #[must_use]
    pub fn own() -> Self {
        Self(nix::unistd::geteuid().as_raw())
    }
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // By number: whoever knows names may be asked over a network.
        write!(f, "user {}", self.0)
    }
}

/// Asks the kernel.
pub struct Owners {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}

impl Owners {
    /// Opens it, and tries it with a connection of its own.
    ///
    /// # Errors
    /// Where the kernel does not tell, or cannot tell users apart.
    pub fn open() -> Result<Self> {
        const WHAT: &str = "ask whose a connection is";
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).context(|| "socket for sock_diag")?;
        socket.bind_auto().context(|| "bind the socket for sock_diag")?;
        socket.set_non_blocking(true).context(|| "fcntl O_NONBLOCK")?;
        let mut owners = Self { socket, sequence: 0 };
        // In a user namespace that has not all users, those that it lacks look like one.
        let users = std::fs::read_to_string("/proc/self/uid_map").context(|| "read /proc/self/uid_map")?;
        let has_all = users.split_whitespace().eq(["0", "0", "4294967295"]);
        let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        if !has_all && overflow.trim().parse() == Ok(User::own().0) {
            return Err(Error::other(WHAT, "in this user namespace, users look alike"));
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).context(|| "bind 127.0.0.1")?;
        let address = listener.local_addr().context(|| "getsockname")?;
        let client = TcpStream::connect(address).context(|| "connect to 127.0.0.1")?;
        let local = client.local_addr().context(|| "getsockname")?;
        if owners.of_tcp(local, address)? != Some(User::own()) {
            let why = "it does not say: are there the modules inet_diag, tcp_diag and udp_diag?";
            return Err(Error::other(WHAT, why));
        }
        Ok(owners)
    }

    /// Whose the end `local` of a connection with `remote` is. `None`: nobody's, or nobody's any more.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_tcp(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<User>> {
        let answer = self.ask(libc::IPPROTO_TCP as u8, local, remote)?;
        Ok(answer
            .filter(|found| CONNECTED.contains(&found.state) && found.remote == Some(remote.port()))
            .and_then(|found| (found.local == local.port() && found.has_file).then_some(found.user)))
    }

    /// Whose the socket of UDP is that receives at `local` what `remote` sends.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_udp(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<User>> {
        // Of UDP, the kernel takes the two ends the other way round (udp_dump_one).
        let answer = self.ask(libc::IPPROTO_UDP as u8, remote, local)?;
        Ok(answer.and_then(|found| (found.local == local.port() && found.has_file).then_some(found.user)))
    }

    fn ask(&mut self, protocol: u8, from: SocketAddr, to: SocketAddr) -> Result<Option<Found>> {
        const WHAT: &str = "ask sock_diag";
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(protocol, from, to, self.sequence);
        let kernel = Port::new(0, 0);
        self.socket.send_to(&request, &kernel, 0).context(|| WHAT)?;
        loop {
            // The kernel has answered by now, or has not had the room to.
            let (bytes, sender) = self.socket.recv_from_full().context(|| WHAT)?;
            if sender.port_number() != 0 {
                continue;
            }
            match parse(&bytes, self.sequence) {
                Parsed::Found(found) => return Ok(Some(found)),
                Parsed::Refused(libc::ENOENT) => return Ok(None),
                Parsed::Refused(number) => {
                    return Err(Error::new(WHAT, std::io::Error::from_raw_os_error(number)));
                }
                Parsed::Another => {}
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    state: u8,
    local: u16,
    remote: Option<u16>,
    user: User,
    /// A socket that its process has closed has no owner any more, and is said to be root's.
    has_file: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Found(Found),
    Refused(i32),
    /// An answer to something else.
    Another,
}

fn request(protocol: u8, from: SocketAddr, to: SocketAddr, sequence: u32) -> Vec<u8> {
    let (from_ip, to_ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if from_ip.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family as u8, protocol, 0, 0]);
    // All states.
    bytes.extend([0xff; 4]);
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(octets(from_ip));
    bytes.extend(octets(to_ip));
    // Any interface, any cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut octets = Ipv6Addr::UNSPECIFIED.octets();
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
    }
}

fn parse(bytes: &[u8], sequence: u32) -> Parsed {
    let word =
        |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_ne_bytes(*word));
    let half = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk());
    let kind = half(4).map(|half: &[u8; 2]| u16::from_ne_bytes(*half));
    if word(8) != Some(sequence) {
        return Parsed::Another;
    }
    match kind {
        Some(NLMSG_ERROR) => {
            Parsed::Refused(word(HEADER).map_or(libc::EINVAL, |number| (number as i32).wrapping_neg()))
        }
        Some(SOCK_DIAG_BY_FAMILY) if bytes.len() >= HEADER + ANSWER => {
            let port = |at| half(HEADER + at).map(|half: &[u8; 2]| u16::from_be_bytes(*half));
            Parsed::Found(Found {
                state: bytes[HEADER + 1],
                local: port(4).unwrap_or(0),
                remote: port(6),
                user: User(word(HEADER + 64).unwrap_or(u32::MAX)),
                has_file: word(HEADER + 68).is_some_and(|inode| inode != 0),
            })
        }
        _ => Parsed::Another,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn connections_and_sockets_of_this_process_are_its_users() {
        let mut owners = Owners::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (here, there) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
            assert_eq!(owners.of_tcp(here, there).unwrap(), Some(User::own()), "{address}");
            // One that is closed is nobody's, although the kernel keeps it for a while.
            drop(client);
            assert_eq!(owners.of_tcp(here, there).unwrap(), None, "{address}");
            // Where somebody listens there is no connection.
            assert_eq!(owners.of_tcp(there, here).unwrap(), None, "{address}");

            let (a, b) = (UdpSocket::bind(address).unwrap(), UdpSocket::bind(address).unwrap());
            let (here, there) = (a.local_addr().unwrap(), b.local_addr().unwrap());
            assert_eq!(owners.of_udp(here, there).unwrap(), Some(User::own()), "{address}");
            drop(a);
            assert_eq!(owners.of_udp(here, there).unwrap(), None, "{address}");
        }
    }

    #[test]
    fn a_mapped_address_is_that_of_ipv4() {
        let mut owners = Owners::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
            IpAddr::V6(_) => address,
        };
        let (here, there) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
        assert_eq!(owners.of_tcp(mapped(here), mapped(there)).unwrap(), Some(User::own()));
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..30u16) {
            let mut bytes = bytes;
            if let Some(half) = bytes.get_mut(4..6) {
                half.copy_from_slice(&kind.to_ne_bytes());
            }
            if let Some(sequence) = bytes.get_mut(8..12) {
                sequence.copy_from_slice(&7u32.to_ne_bytes());
            }
            let _ = parse(&bytes, 7);
        }
    }
}
