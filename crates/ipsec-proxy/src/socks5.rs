//! SOCKS version 5 (RFC 1928), as a server: CONNECT and UDP ASSOCIATE, addresses of both IP versions and names, passwords
//! (RFC 1929) or nothing.
//!
//! Each function is given all that has come so far, and says how much of it a message was; `None`: it is not all there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::passwords::Credentials;
use crate::target::Target;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;
/// The version of the messages about passwords.
const PASSWORD_VERSION: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The longest message of a client.
pub const MAX_MESSAGE: usize = 3 + 2 * 255;
/// The longest header of a datagram that goes to a client.
pub const MAX_DATAGRAM_HEADER: usize = 4 + 16 + 2;

/// The answer to a greeting that offers to go without authentication.
pub const WELCOME: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// The answer to one that offers a password.
pub const PASSWORD_PLEASE: [u8; 2] = [VERSION, PASSWORD];
/// The answer to one that offers nothing that will do.
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];
/// The answer to the right password.
pub const ADMITTED: [u8; 2] = [PASSWORD_VERSION, 0];
/// The answer to another password.
pub const NOT_ADMITTED: [u8; 2] = [PASSWORD_VERSION, 1];

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// There is a connection.
    Succeeded = 0,
    /// Something else.
    Failure = 1,
    /// It is not allowed.
    NotAllowed = 2,
    /// There is no tunnel.
    NetworkUnreachable = 3,
    /// The name leads nowhere, or nobody answers.
    HostUnreachable = 4,
    /// The other end refuses.
    Refused = 5,
    /// It takes too long.
    TimedOut = 6,
    /// It is neither CONNECT nor UDP ASSOCIATE.
    CommandNotSupported = 7,
    /// It is an address of a kind that is not known.
    AddressTypeNotSupported = 8,
}

impl Reply {
    /// The message. The address that the connection is from is not told: it is of another host.
    pub const fn message(self) -> [u8; 10] {
        [VERSION, self as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]
    }

    /// The message that says where datagrams are to go to.
    pub fn associated(relay: SocketAddr) -> Vec<u8> {
        let mut message = vec![VERSION, Self::Succeeded as u8, 0];
        put_address(&mut message, relay);
        message
    }
}

/// It is not SOCKS 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message of SOCKS 5")]
pub struct NotSocks;

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// It is none.
    NotSocks,
    /// It is to be answered so.
    Refused(Reply),
}

/// What a client offers to prove who it is by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// Nothing.
    pub nothing: bool,
    /// A password.
    pub password: bool,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A connection.
    Connect(Target),
    /// That datagrams are carried. They come from this port of the client's, if it says so.
    Associate(Option<u16>),
}

/// Reads a greeting: how long it is, and what it offers.
///
/// # Errors
/// [`NotSocks`].
pub fn greeting(bytes: &[u8]) -> Result<Option<(usize, Offers)>, NotSocks> {
    match *bytes {
        [] | [VERSION] => Ok(None),
        [VERSION, count, ref rest @ ..] => {
            let Some(methods) = rest.get(..usize::from(count)) else { return Ok(None) };
            let offers = Offers {
                nothing: methods.contains(&NO_AUTHENTICATION),
                password: methods.contains(&PASSWORD),
            };
            Ok(Some((2 + methods.len(), offers)))
        }
        _ => Err(NotSocks),
    }
}

/// Reads a name and a password: how long the message is, and the two with a colon between.
///
/// # Errors
/// [`NotSocks`].
pub fn password(bytes: &[u8]) -> Result<Option<(usize, Credentials)>, NotSocks> {
    let Some((version, rest)) = bytes.split_first() else { return Ok(None) };
    if *version != PASSWORD_VERSION {
        return Err(NotSocks);
    }
    let field = |bytes: &[u8]| {
        let (length, rest) = bytes.split_first()?;
        Some(rest.get(..usize::from(*length))?.len())
    };
    let Some(name) = field(rest) else { return Ok(None) };
    let Some(word) = field(&rest[1 + name..]) else { return Ok(None) };
    let (name, word) = (&rest[1..1 + name], &rest[2 + name..2 + name + word]);
    let length = 3 + name.len() + word.len();
    Ok(Some((length, Credentials::new([name, b":", word].concat()))))
}

/// Reads a request.
///
/// # Errors
/// [`RequestError`].
pub fn request(bytes: &[u8]) -> Result<Option<(usize, Request)>, RequestError> {
    let (&[version, command, _, kind], rest) = match bytes.split_first_chunk::<4>() {
        Some(split) => split,
        None if bytes.first().is_none_or(|version| *version == VERSION) => return Ok(None),
        None => return Err(RequestError::NotSocks),
    };
    if version != VERSION {
        return Err(RequestError::NotSocks);
    }
    if !matches!(command, CONNECT | UDP_ASSOCIATE) {
        return Err(RequestError::Refused(Reply::CommandNotSupported));
    }
    let (host, port, length) = match address(kind, rest) {
        Ok(Some(address)) => address,
        Ok(None) => return Ok(None),
        Err(UnknownKind) => return Err(RequestError::Refused(Reply::AddressTypeNotSupported)),
    };
    let request = if command == UDP_ASSOCIATE {
        Request::Associate((port != 0).then_some(port))
    } else {
        Request::Connect(host.at(port).map_err(|_| RequestError::Refused(Reply::Failure))?)
    };
    Ok(Some((4 + length, request)))
}

/// What is wrong with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramError {
    /// It is a part of one, which nobody has to put together (RFC 1928 §7).
    Fragment,
    /// It is none.
    Malformed,
}

/// Reads the header of a client's datagram: where it is to go, and where its data begin.
///
/// # Errors
/// [`DatagramError`].
pub fn datagram(bytes: &[u8]) -> Result<(Target, usize), DatagramError> {
    let Some((&[0, 0, fragment, kind], rest)) = bytes.split_first_chunk::<4>() else {
        return Err(DatagramError::Malformed);
    };
    if fragment != 0 {
        return Err(DatagramError::Fragment);
    }
    let Ok(Some((host, port, length))) = address(kind, rest) else { return Err(DatagramError::Malformed) };
    let target = host.at(port).map_err(|_| DatagramError::Malformed)?;
    Ok((target, 4 + length))
}

/// Writes the header of a datagram that comes from there.
pub fn put_datagram_header(out: &mut Vec<u8>, from: SocketAddr) {
    out.extend([0, 0, 0]);
    put_address(out, from);
}

enum Host<'a> {
    Address(IpAddr),
    Name(&'a [u8]),
}

impl Host<'_> {
    fn at(&self, port: u16) -> Result<Target, crate::target::TargetError> {
        match self {
            Self::Address(address) => Target::at(*address, port),
            Self::Name(name) => Target::named(std::str::from_utf8(name).unwrap_or_default(), port),
        }
    }
}

struct UnknownKind;

/// An address of a kind, a port, and how long they are together. `None`: they are not all there.
fn address(kind: u8, bytes: &[u8]) -> Result<Option<(Host<'_>, u16, usize)>, UnknownKind> {
    let (from, length) = match kind {
        IPV4 => (0, 4),
        IPV6 => (0, 16),
        NAME => match bytes.first() {
            Some(length) => (1, usize::from(*length)),
            None => return Ok(None),
        },
        _ => return Err(UnknownKind),
    };
    let Some(host) = bytes.get(from..from + length) else { return Ok(None) };
    let Some((port, _)) = bytes[from + length..].split_first_chunk::<2>() else { return Ok(None) };
    let host = match (kind, host.first_chunk::<4>(), host.first_chunk::<16>()) {
        (IPV4, Some(octets), _) => Host::Address(Ipv4Addr::from(*octets).into()),
        (IPV6, _, Some(octets)) => Host::Address(Ipv6Addr::from(*octets).into()),
        _ => Host::Name(host),
    };
    Ok(Some((host, u16::from_be_bytes(*port), from + length + 2)))
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => {
            out.push(IPV4);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(IPV6);
            out.extend(v6.octets());
        }
    }
    out.extend(address.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_greets_and_asks() {
        let offers = |nothing, password| Offers { nothing, password };
        assert_eq!(greeting(&[5, 2, 2, 0, 99]), Ok(Some((4, offers(true, true)))));
        assert_eq!(greeting(&[5, 1, 2]), Ok(Some((3, offers(false, true)))));
        assert_eq!(greeting(&[5, 0]), Ok(Some((2, offers(false, false)))));
        assert_eq!(greeting(&[4, 1]), Err(NotSocks));
        assert_eq!(greeting(b"GET / HTTP/1.1"), Err(NotSocks));
        let target = |bytes: &[u8]| match request(bytes).unwrap() {
            Some((length, Request::Connect(target))) => Some((length, target.to_string())),
            other => panic!("{other:?}"),
        };
        assert_eq!(target(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80]), Some((10, "192.0.2.1:80".into())));
        let name = b"\x05\x01\x00\x03\x0bwww.example\x01\xbbrest";
        assert_eq!(target(name), Some((18, "www.example:443".into())));
        let mut v6 = vec![5, 1, 0, 4];
        v6.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend([0, 22]);
        assert_eq!(target(&v6), Some((22, "[2001:db8::1]:22".into())));
        assert_eq!(target(b"\x05\x01\x00\x03\x09192.0.2.1\x00\x50"), Some((16, "192.0.2.1:80".into())));
    }

    #[test]
    fn what_is_not_served_is_refused_as_the_rfc_says() {
        let refused = |bytes: &[u8], reply| assert_eq!(request(bytes), Err(RequestError::Refused(reply)));
        refused(&[5, 2, 0, 1, 1, 2, 3, 4, 0, 80], Reply::CommandNotSupported);
        refused(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0], Reply::CommandNotSupported);
        refused(&[5, 1, 0, 2, 1], Reply::AddressTypeNotSupported);
        refused(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 0], Reply::Failure);
        refused(b"\x05\x01\x00\x03\x00\x00\x50", Reply::Failure);
        refused(b"\x05\x01\x00\x03\x02\xff\xfe\x00\x50", Reply::Failure);
        assert_eq!(request(&[4, 1]), Err(RequestError::NotSocks));
    }

    #[test]
    fn a_password_stands_behind_a_name() {
        let message = b"\x01\x03ann\x06secretrest";
        let (length, credentials) = password(message).unwrap().unwrap();
        assert_eq!((length, &credentials[..]), (12, &b"ann:secret"[..]));
        for shorter in 0..length {
            assert_eq!(password(&message[..shorter]), Ok(None));
        }
        assert_eq!(password(b"\x05\x01\x00"), Err(NotSocks));
    }

    #[test]
    fn datagrams_have_a_header_and_no_fragments() {
        assert_eq!(request(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]), Ok(Some((10, Request::Associate(None)))));
        assert_eq!(request(&[5, 3, 0, 1, 127, 0, 0, 1, 0, 9]), Ok(Some((10, Request::Associate(Some(9))))));
        let (target, start) = datagram(b"\0\0\0\x03\x0bwww.example\0\x35data").unwrap();
        assert_eq!((target.to_string(), start), ("www.example:53".into(), 18));
        assert_eq!(datagram(&[0, 0, 1, 1, 192, 0, 2, 1, 0, 53]), Err(DatagramError::Fragment));
        for wrong in
            [&[][..], &[0, 0, 0], &[0, 1, 0, 1, 192, 0, 2, 1, 0, 53], &[0, 0, 0, 1, 192, 0, 2, 1, 0, 0]]
        {
            assert_eq!(datagram(wrong), Err(DatagramError::Malformed), "{wrong:?}");
        }
        for from in ["192.0.2.1:53", "[2001:db8::1]:53"] {
            let (mut bytes, from) = (Vec::new(), from.parse::<SocketAddr>().unwrap());
            put_datagram_header(&mut bytes, from);
            assert!(bytes.len() <= MAX_DATAGRAM_HEADER);
            assert_eq!(datagram(&bytes), Ok((Target::at(from.ip(), 53).unwrap(), bytes.len())));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_a_beginning_is_never_wrong(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            for (at, value) in [(0, VERSION), (1, CONNECT)] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = (greeting(&bytes), password(&bytes));
            if let Ok((_, start)) = datagram(&bytes) {
                prop_assert!(start <= bytes.len());
            }
            if let Ok(Some((length, asked))) = request(&bytes) {
                prop_assert!(length <= bytes.len().min(MAX_MESSAGE));
                prop_assert_eq!(request(&bytes[..length]), Ok(Some((length, asked))));
                for shorter in 0..length {
                    prop_assert_eq!(request(&bytes[..shorter]), Ok(None));
                }
            }
        }
    }
}
