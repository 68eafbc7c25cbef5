//! SOCKS version 5 (RFC 1928), as a server: no authentication, since it listens where only this machine's users are;
//! CONNECT to addresses of both IP versions and to names.
//!
//! Each function is given all that has come so far, and says how much of it a message was; `None`: it is not all there.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::target::Target;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The longest message of a client.
pub const MAX_MESSAGE: usize = 4 + 1 + 255 + 2;

/// The answer to a greeting that offers to go without authentication.
pub const WELCOME: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// The answer to one that does not.
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

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
    /// Only CONNECT is served.
    CommandNotSupported = 7,
    /// It is an address of a kind that is not known.
    AddressTypeNotSupported = 8,
}

impl Reply {
    /// The message. The address that the connection is from is not told: it is of another host.
    pub const fn message(self) -> [u8; 10] {
        [VERSION, self as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]
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

/// Reads a greeting: how long it is, and whether it offers to go without authentication.
///
/// # Errors
/// [`NotSocks`].
pub fn greeting(bytes: &[u8]) -> Result<Option<(usize, bool)>, NotSocks> {
    match *bytes {
        [] | [VERSION] => Ok(None),
        [VERSION, count, ref rest @ ..] => {
            let Some(methods) = rest.get(..usize::from(count)) else { return Ok(None) };
            Ok(Some((2 + methods.len(), methods.contains(&NO_AUTHENTICATION))))
        }
        _ => Err(NotSocks),
    }
}

/// Reads a request.
///
/// # Errors
/// [`RequestError`].
pub fn request(bytes: &[u8]) -> Result<Option<(usize, Target)>, RequestError> {
    let (&[version, command, _, kind], rest) = match bytes.split_first_chunk::<4>() {
        Some(split) => split,
        None if bytes.first().is_none_or(|version| *version == VERSION) => return Ok(None),
        None => return Err(RequestError::NotSocks),
    };
    if version != VERSION {
        return Err(RequestError::NotSocks);
    }
    if command != CONNECT {
        return Err(RequestError::Refused(Reply::CommandNotSupported));
    }
    let (from, length) = match kind {
        IPV4 => (0, 4),
        IPV6 => (0, 16),
        NAME => match rest.first() {
            Some(length) => (1, usize::from(*length)),
            None => return Ok(None),
        },
        _ => return Err(RequestError::Refused(Reply::AddressTypeNotSupported)),
    };
    let Some(host) = rest.get(from..from + length) else { return Ok(None) };
    let Some((port, _)) = rest[from + length..].split_first_chunk::<2>() else { return Ok(None) };
    let port = u16::from_be_bytes(*port);
    let target = match (kind, host.first_chunk::<4>(), host.first_chunk::<16>()) {
        (IPV4, Some(octets), _) => Target::at(Ipv4Addr::from(*octets).into(), port),
        (IPV6, _, Some(octets)) => Target::at(Ipv6Addr::from(*octets).into(), port),
        _ => Target::named(std::str::from_utf8(host).unwrap_or_default(), port),
    };
    let target = target.map_err(|_| RequestError::Refused(Reply::Failure))?;
    Ok(Some((4 + from + length + 2, target)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_greets_and_asks() {
        assert_eq!(greeting(&[5, 2, 2, 0, 99]), Ok(Some((4, true))));
        assert_eq!(greeting(&[5, 1, 2]), Ok(Some((3, false))));
        assert_eq!(greeting(&[5, 0]), Ok(Some((2, false))));
        assert_eq!(greeting(&[4, 1]), Err(NotSocks));
        assert_eq!(greeting(b"GET / HTTP/1.1"), Err(NotSocks));
        let target =
            |bytes: &[u8]| request(bytes).unwrap().map(|(length, target)| (length, target.to_string()));
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
        refused(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0], Reply::CommandNotSupported);
        refused(&[5, 1, 0, 2, 1], Reply::AddressTypeNotSupported);
        refused(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 0], Reply::Failure);
        refused(b"\x05\x01\x00\x03\x00\x00\x50", Reply::Failure);
        refused(b"\x05\x01\x00\x03\x02\xff\xfe\x00\x50", Reply::Failure);
        assert_eq!(request(&[4, 1]), Err(RequestError::NotSocks));
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
            let _ = greeting(&bytes);
            if let Ok(Some((length, target))) = request(&bytes) {
                prop_assert!(length <= bytes.len().min(MAX_MESSAGE));
                prop_assert_eq!(request(&bytes[..length]), Ok(Some((length, target))));
                for shorter in 0..length {
                    prop_assert_eq!(request(&bytes[..shorter]), Ok(None));
                }
            }
        }
    }
}
