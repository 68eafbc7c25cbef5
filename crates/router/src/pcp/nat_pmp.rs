//! Messages of NAT-PMP (RFC 6886 section 3).

use std::net::Ipv4Addr;

use super::table::Transport;

/// The version that RFC 6886 describes.
pub const VERSION: u8 = 0;

/// What became of a request (section 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultCode {
    /// It was done.
    Success = 0,
    /// Not for this client, or not for anybody here.
    NotAuthorized = 2,
    /// There is no external address now.
    NetworkFailure = 3,
    /// There is no room for one more mapping.
    OutOfResources = 4,
    /// Another opcode.
    UnsupportedOpcode = 5,
}

/// A request that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// For the gateway's external address.
    ExternalAddress,
    /// For a mapping.
    Map(Map),
}

/// A mapping, as it is asked for, and as it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// TCP or UDP.
    pub transport: Transport,
    /// The host's port; 0 is all.
    pub internal_port: u16,
    /// The port outside: wished for, 0 is any; or assigned.
    pub external_port: u16,
    /// In seconds; 0: no longer.
    pub lifetime: u32,
}

/// Reads a request of this version. None: not to be answered.
///
/// # Errors
/// What to answer it with.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<Result<Request, ResultCode>> {
    let transport = match *datagram.get(1)? {
        0 => return Some(Ok(Request::ExternalAddress)),
        1 => Transport::Udp,
        2 => Transport::Tcp,
        3..128 => return Some(Err(ResultCode::UnsupportedOpcode)),
        128.. => return None,
    };
    let &[_, _, _, _, a, b, c, d, lifetime @ ..] = datagram.first_chunk::<12>()?;
    Some(Ok(Request::Map(Map {
        transport,
        internal_port: u16::from_be_bytes([a, b]),
        external_port: u16::from_be_bytes([c, d]),
        lifetime: u32::from_be_bytes(lifetime),
    })))
}

impl Map {
    /// The request as a client writes it.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.opcode(), 0, 0];
        self.write(&mut bytes);
        bytes
    }

    /// The answer: `epoch` in seconds.
    #[must_use]
    pub fn answer(self, result: ResultCode, epoch: u32) -> Vec<u8> {
        let mut bytes = refusal(self.opcode(), result, epoch);
        self.write(&mut bytes);
        bytes
    }

    fn opcode(self) -> u8 {
        match self.transport {
            Transport::Udp => 1,
            Transport::Tcp => 2,
        }
    }

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.internal_port.to_be_bytes());
        bytes.extend(self.external_port.to_be_bytes());
        bytes.extend(self.lifetime.to_be_bytes());
    }
}

/// The answer about the external address; all zero where there is none.
#[must_use]
pub fn external_address(address: Option<Ipv4Addr>, epoch: u32) -> Vec<u8> {
    let result = if address.is_some() { ResultCode::Success } else { ResultCode::NetworkFailure };
    let mut bytes = refusal(0, result, epoch);
    bytes.extend(address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    bytes
}

/// The answer to a request that is not understood, and what every other begins with.
#[must_use]
pub fn refusal(opcode: u8, result: ResultCode, epoch: u32) -> Vec<u8> {
    let mut bytes = vec![VERSION, opcode | 0x80, 0, result as u8];
    bytes.extend(epoch.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(udp: bool, internal_port: u16, external_port: u16, lifetime: u32) {
            let transport = if udp { Transport::Udp } else { Transport::Tcp };
            let map = Map { transport, internal_port, external_port, lifetime };
            prop_assert_eq!(parse(&map.to_bytes()), Some(Ok(Request::Map(map))));
        }

        #[test]
        fn any_octets_are_read(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn answers_are_those_of_the_rfc() {
        let map = Map { transport: Transport::Udp, internal_port: 1, external_port: 2, lifetime: 3 };
        assert_eq!(map.answer(ResultCode::Success, 9), [0, 129, 0, 0, 0, 0, 0, 9, 0, 1, 0, 2, 0, 0, 0, 3]);
        assert_eq!(external_address(None, 9), [0, 128, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0]);
    }
}
