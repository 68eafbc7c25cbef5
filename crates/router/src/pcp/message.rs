//! Messages of PCP (RFC 6887 sections 7, 11, 13).

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// The version that RFC 6887 describes.
pub const VERSION: u8 = 2;
/// The longest message, in octets (section 7).
pub const MAX: usize = 1100;
/// What a request and a response begin with, and what MAP adds.
const HEADER: usize = 24;
const MAP: usize = 36;
/// Set in the opcode of a response.
pub const RESPONSE: u8 = 0x80;

const ANNOUNCE_OPCODE: u8 = 0;
const MAP_OPCODE: u8 = 1;
const PREFER_FAILURE: u8 = 2;
const FILTER: u8 = 3;
const FILTER_LENGTH: u16 = 20;
/// Options from here on may be passed over.
const OPTIONAL: u8 = 128;

/// A random number by which the client of a mapping is known.
pub type Nonce = [u8; 12];

/// What became of a request (section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultCode {
    /// It was done.
    Success = 0,
    /// Of another version.
    UnsuppVersion = 1,
    /// Not for this client, or not for anybody here.
    NotAuthorized = 2,
    /// Too short, too long, or not a multiple of four octets.
    MalformedRequest = 3,
    /// Another opcode than ANNOUNCE and MAP.
    UnsuppOpcode = 4,
    /// An option that must not be passed over, and is not known.
    UnsuppOption = 5,
    /// An option that says nothing, or comes too often.
    MalformedOption = 6,
    /// There is no external address now.
    NetworkFailure = 7,
    /// There is no room for one more mapping.
    NoResources = 8,
    /// Neither TCP nor UDP.
    UnsuppProtocol = 9,
    /// This client has enough mappings.
    UserExQuota = 10,
    /// Another port or address would be assigned than the client insists on.
    CannotProvideExternal = 11,
    /// The client's address in the message is not the datagram's source.
    AddressMismatch = 12,
    /// More filters than one mapping may have.
    ExcessiveRemotePeers = 13,
}

impl ResultCode {
    /// For how many seconds an error is to be believed: it goes away by itself, or by changes of a configuration.
    #[must_use]
    pub fn lifetime(self) -> u32 {
        use ResultCode::{CannotProvideExternal, NetworkFailure, NoResources, UserExQuota};
        match self {
            NetworkFailure | NoResources | UserExQuota | CannotProvideExternal => 30,
            _ => 1_800,
        }
    }
}

/// A request that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks, as the message says.
    pub client: IpAddr,
    /// How long the mapping is wanted, in seconds; 0: no longer.
    pub lifetime: u32,
    /// What is asked for.
    pub operation: Operation,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Whether this server is still the same.
    Announce,
    /// A mapping.
    Map(Map),
}

/// A mapping, as it is asked for, and as it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The client's nonce.
    pub nonce: Nonce,
    /// By the number of the IP header; 0 is all.
    pub protocol: u8,
    /// The host's port; 0 is all.
    pub internal_port: u16,
    /// The port outside: wished for, 0 is any; or assigned.
    pub external_port: u16,
    /// The address outside: wished for, unspecified is any; or assigned.
    pub external_address: IpAddr,
    /// Whether another port or address is worse than none.
    pub prefer_failure: bool,
    /// Who may use it, in the order of the message.
    pub filters: Vec<Filter>,
}

/// Who may use a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All that was said before holds no more.
    Everybody,
    /// These, from this port or, with 0, from any.
    Peers(IpNet, u16),
}

/// Reads a request of this version.
///
/// # Errors
/// What to answer it with.
pub fn parse(datagram: &[u8]) -> Result<Request, ResultCode> {
    let header = datagram.first_chunk::<HEADER>().ok_or(ResultCode::MalformedRequest)?;
    if datagram.len() > MAX || !datagram.len().is_multiple_of(4) {
        return Err(ResultCode::MalformedRequest);
    }
    let client = address(header, 8);
    let rest = &datagram[HEADER..];
    let operation = match header[1] {
        ANNOUNCE_OPCODE => {
            options(rest, |_, _| Ok(false))?;
            Operation::Announce
        }
        MAP_OPCODE => Operation::Map(map(rest, client)?),
        _ => return Err(ResultCode::UnsuppOpcode),
    };
    Ok(Request { client, lifetime: number(header, 4), operation })
}

fn map(payload: &[u8], client: IpAddr) -> Result<Map, ResultCode> {
    let (fixed, rest) = payload.split_first_chunk::<MAP>().ok_or(ResultCode::MalformedRequest)?;
    let mut map = Map {
        nonce: *fixed.first_chunk().ok_or(ResultCode::MalformedRequest)?,
        protocol: fixed[12],
        internal_port: port(fixed, 16),
        external_port: port(fixed, 18),
        external_address: address(fixed, 20),
        prefer_failure: false,
        filters: Vec::new(),
    };
    options(rest, |code, data| {
        match code {
            PREFER_FAILURE if data.is_empty() && !map.prefer_failure => map.prefer_failure = true,
            FILTER => map.filters.push(filter(data, client).ok_or(ResultCode::MalformedOption)?),
            PREFER_FAILURE => return Err(ResultCode::MalformedOption),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // "All protocols" are all ports (section 11.1).
    if map.protocol == 0 && map.internal_port != 0 {
        return Err(ResultCode::MalformedRequest);
    }
    Ok(map)
}

/// Hands each option over, which says whether it is known.
fn options(
    mut rest: &[u8],
    mut take: impl FnMut(u8, &[u8]) -> Result<bool, ResultCode>,
) -> Result<(), ResultCode> {
    while let Some((&[code, _, high, low], behind)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let data = behind.get(..length).ok_or(ResultCode::MalformedOption)?;
        rest = behind.get(length.next_multiple_of(4)..).ok_or(ResultCode::MalformedOption)?;
        if !take(code, data)? && code < OPTIONAL {
            return Err(ResultCode::UnsuppOption);
        }
    }
    Ok(())
}

fn filter(data: &[u8], client: IpAddr) -> Option<Filter> {
    let data = data.first_chunk::<20>().filter(|_| data.len() == usize::from(FILTER_LENGTH))?;
    let (length, port, peers) = (data[1], port(data, 2), address(data, 4));
    if length == 0 {
        return Some(Filter::Everybody);
    }
    // Lengths count in the mapped form, too.
    let length = if peers.is_ipv4() { length.checked_sub(96)? } else { length };
    let peers = IpNet::new(peers, length).ok().filter(|_| peers.is_ipv4() == client.is_ipv4())?;
    Some(Filter::Peers(peers.trunc(), port))
}

impl Request {
    /// The request as a client writes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, ANNOUNCE_OPCODE, 0, 0];
        bytes.extend(self.lifetime.to_be_bytes());
        bytes.extend(mapped(self.client));
        if let Operation::Map(map) = &self.operation {
            bytes[1] = MAP_OPCODE;
            map.write(&mut bytes);
        }
        bytes
    }
}

impl Map {
    /// The answer that it was done: `lifetime` and `epoch` in seconds.
    #[must_use]
    pub fn success(&self, lifetime: u32, epoch: u32) -> Vec<u8> {
        let mut bytes = success(MAP_OPCODE, lifetime, epoch);
        self.write(&mut bytes);
        bytes
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.nonce);
        bytes.extend([self.protocol, 0, 0, 0]);
        bytes.extend(self.internal_port.to_be_bytes());
        bytes.extend(self.external_port.to_be_bytes());
        bytes.extend(mapped(self.external_address));
        if self.prefer_failure {
            bytes.extend([PREFER_FAILURE, 0, 0, 0]);
        }
        for filter in &self.filters {
            let (length, port, address) = match filter {
                Filter::Everybody => (0, 0, [0; 16]),
                Filter::Peers(peers, port) => {
                    let above = if peers.addr().is_ipv4() { 96 } else { 0 };
                    (peers.prefix_len() + above, *port, mapped(peers.addr()))
                }
            };
            bytes.extend([FILTER, 0, 0, FILTER_LENGTH as u8, 0, length]);
            bytes.extend(port.to_be_bytes());
            bytes.extend(address);
        }
    }
}

/// The answer to ANNOUNCE.
#[must_use]
pub fn announce(epoch: u32) -> Vec<u8> {
    success(ANNOUNCE_OPCODE, 0, epoch)
}

fn success(opcode: u8, lifetime: u32, epoch: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[1] = opcode;
    finish(&mut bytes, ResultCode::Success, lifetime, epoch);
    bytes
}

/// The answer to a request that is refused: a copy of it, with what became of it (section 8.3).
#[must_use]
pub fn refusal(request: &[u8], result: ResultCode, lifetime: u32, epoch: u32) -> Vec<u8> {
    let mut bytes = request[..request.len().min(MAX)].to_vec();
    bytes.resize(bytes.len().next_multiple_of(4).max(HEADER), 0);
    finish(&mut bytes, result, lifetime, epoch);
    bytes
}

fn finish(bytes: &mut [u8], result: ResultCode, lifetime: u32, epoch: u32) {
    bytes[0] = VERSION;
    bytes[1] |= RESPONSE;
    bytes[2..4].copy_from_slice(&[0, result as u8]);
    bytes[4..8].copy_from_slice(&lifetime.to_be_bytes());
    bytes[8..12].copy_from_slice(&epoch.to_be_bytes());
    bytes[12..HEADER].fill(0);
}

// Of arrays whose lengths are known, at places that are within them.

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |octets| u32::from_be_bytes(*octets))
}

fn port(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |octets| u16::from_be_bytes(*octets))
}

fn address(bytes: &[u8], at: usize) -> IpAddr {
    let octets = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()).copied().unwrap_or_default();
    // IPv4 is written as mapped, also the unspecified address (section 5).
    IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(|octets| IpAddr::from(octets).to_canonical())
        ]
    }

    prop_compose! {
        fn any_map(is_ipv4: bool)(
            nonce: Nonce, protocol in 1u8.., internal_port: u16, external_port: u16,
            external_address in any_address(), prefer_failure: bool,
            filters in prop::collection::vec((any::<[u8; 16]>(), 0u8..=128, any::<u16>()), 0..9)
        ) -> Map {
            let filters = filters.into_iter().map(|(octets, length, port)| {
                let [a, b, c, d, ..] = octets;
                let net = if is_ipv4 {
                    IpNet::new([a, b, c, d].into(), length % 33).unwrap()
                } else {
                    // Not a mapped one.
                    IpNet::new(Ipv6Addr::from_bits(u128::from_be_bytes(octets) | 1 << 127).into(), length).unwrap()
                };
                match net.prefix_len() {
                    0 if !is_ipv4 => Filter::Everybody,
                    _ => Filter::Peers(net.trunc(), port),
                }
            });
            let filters = filters.collect();
            Map { nonce, protocol, internal_port, external_port, external_address, prefer_failure, filters }
        }
    }

    fn any_request() -> impl Strategy<Value = Request> {
        (any_address(), any::<u32>(), any::<bool>()).prop_flat_map(|(client, lifetime, is_map)| {
            any_map(client.is_ipv4()).prop_map(move |map| Request {
                client,
                lifetime,
                operation: if is_map { Operation::Map(map) } else { Operation::Announce },
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(request in any_request()) {
            prop_assert_eq!(parse(&request.to_bytes()), Ok(request));
        }

        #[test]
        fn any_octets_are_a_request_or_answered(
            request in any_request(), cut in 0usize..200, more in prop::collection::vec(any::<u8>(), 0..1200)
        ) {
            let whole = request.to_bytes();
            for bytes in [&more[..], &[&whole[..cut.min(whole.len())], &more].concat()] {
                if let Err(result) = parse(bytes) {
                    let answer = refusal(bytes, result, result.lifetime(), 7);
                    prop_assert!((HEADER..=MAX).contains(&answer.len()) && answer.len().is_multiple_of(4));
                    prop_assert_eq!((answer[0], answer[1] & RESPONSE, answer[3]), (VERSION, RESPONSE, result as u8));
                }
            }
        }
    }

    #[test]
    fn options_are_known_or_passed_over_or_refused() {
        let map = Map {
            nonce: [7; 12],
            protocol: 6,
            internal_port: 80,
            external_port: 0,
            external_address: [0, 0, 0, 0].into(),
            prefer_failure: false,
            filters: Vec::new(),
        };
        let request = Request { client: [192, 0, 2, 1].into(), lifetime: 1, operation: Operation::Map(map) };
        let with = |options: &[u8]| parse(&[&request.to_bytes(), options].concat());
        assert!(with(&[200, 0, 0, 3, 1, 2, 3, 0]).is_ok(), "one that may be passed over");
        let of_ipv6 = [&[3, 0, 0, 20, 0, 64, 0, 0][..], &[0x20; 16]].concat();
        for (options, result) in [
            // THIRD_PARTY, and one that nobody knows.
            (&[&[1, 0, 0, 16][..], &[0; 16]].concat()[..], ResultCode::UnsuppOption),
            (&[99, 0, 0, 0], ResultCode::UnsuppOption),
            (&[2, 0, 0, 0, 2, 0, 0, 0], ResultCode::MalformedOption),
            (&[2, 0, 0, 4, 0, 0, 0, 0], ResultCode::MalformedOption),
            (&[200, 0, 0, 9, 0, 0, 0, 0], ResultCode::MalformedOption),
            (&of_ipv6, ResultCode::MalformedOption),
        ] {
            assert_eq!(with(options), Err(result), "{options:?}");
        }
        let announce = Request { operation: Operation::Announce, ..request };
        assert_eq!(parse(&[&announce.to_bytes()[..], &[2, 0, 0, 0]].concat()), Err(ResultCode::UnsuppOption));
    }
}
