//! The extensions of messages (RFC 2367 §2.3), each with its layout.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::key::Key;

/// `sadb_sa`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sa {
    /// SPI.
    pub spi: u32,
    /// Size of the replay window, in packets; 0: none.
    pub replay: u8,
    /// One of [`state`](super::message::state).
    pub state: u8,
    /// Authentication algorithm.
    pub authentication: u8,
    /// Encryption algorithm.
    pub encryption: u8,
    /// Flags.
    pub flags: u32,
}

/// `sadb_lifetime`: what is 0 is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Connections; of the current lifetime: packets.
    pub allocations: u32,
    /// Bytes.
    pub bytes: u64,
    /// Seconds since it was added; of the current lifetime: when, in seconds of the Unix epoch.
    pub added: u64,
    /// The same, since it was first used.
    pub used: u64,
}

/// `sadb_address` and the address behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Upper-layer protocol; 0: any.
    pub protocol: u8,
    /// Bits of the address that count.
    pub prefix_length: u8,
    /// The address.
    pub address: IpAddr,
    /// The port; 0: any.
    pub port: u16,
}

/// `sadb_ident`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// 1: prefix, 2: domain name, 3: name of a user at a domain.
    pub kind: u16,
    /// A number instead of a name.
    pub id: u64,
    /// The name, with its end as it came.
    pub name: Vec<u8>,
}

/// `sadb_sens`, without bitmaps of compartments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SensitivityLevels {
    /// Domain that gives the levels their meaning.
    pub domain: u32,
    /// Sensitivity level.
    pub sensitivity: u8,
    /// Integrity level.
    pub integrity: u8,
}

/// `sadb_prop` with its combinations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proposal {
    /// Size of the replay window.
    pub replay: u8,
    /// What would do.
    pub combinations: Vec<Combination>,
}

/// `sadb_comb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Combination {
    /// Authentication algorithm; 0: none.
    pub authentication: u8,
    /// Encryption algorithm; 0: none.
    pub encryption: u8,
    /// Flags.
    pub flags: u16,
    /// Bits of the authentication key.
    pub authentication_bits: (u16, u16),
    /// Bits of the encryption key.
    pub encryption_bits: (u16, u16),
    /// Soft lifetime.
    pub soft: Lifetime,
    /// Hard lifetime.
    pub hard: Lifetime,
}

/// `sadb_alg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Algorithm {
    /// Its number.
    pub id: u8,
    /// Bytes of its IV.
    pub iv_length: u8,
    /// The fewest bits of its key.
    pub min_bits: u16,
    /// The most.
    pub max_bits: u16,
}

/// `sadb_spirange`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpiRange {
    /// The first.
    pub min: u32,
    /// The last.
    pub max: u32,
}

/// `sadb_x_policy` with the requests behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// 0: discard, 1: none, 2: IPsec.
    pub kind: u16,
    /// 1: in, 2: out, 3: forwarded.
    pub direction: u8,
    /// Its number.
    pub id: u32,
    /// Its priority.
    pub priority: u32,
    /// What it asks for, if it is about IPsec.
    pub requests: Vec<PolicyRequest>,
}

/// `sadb_x_ipsecrequest`: a service that a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyRequest {
    /// Protocol of IP: 50 for ESP, 51 for AH.
    pub protocol: u16,
    /// 1: transport, 2: tunnel.
    pub mode: u8,
    /// 0: default, 1: use, 2: require, 3: unique.
    pub level: u8,
    /// For whom.
    pub request_id: u32,
    /// The ends of a tunnel.
    pub ends: Option<(IpAddr, IpAddr)>,
}

/// `sadb_x_sa2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sa2 {
    /// 0: any, 1: transport, 2: tunnel.
    pub mode: u8,
    /// Sequence number.
    pub sequence: u32,
    /// For whom.
    pub request_id: u32,
}

/// Reads an extension; offsets count from its beginning. `None`: it ends before.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    pub(super) fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_ne_bytes)
    }

    pub(super) fn be16(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_be_bytes)
    }

    pub(super) fn u32(self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }

    pub(super) fn u64(self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    pub(super) fn sa(self) -> Option<Sa> {
        Some(Sa {
            spi: u32::from_be_bytes(self.bytes(4)?),
            replay: self.byte(8)?,
            state: self.byte(9)?,
            authentication: self.byte(10)?,
            encryption: self.byte(11)?,
            flags: self.u32(12)?,
        })
    }

    pub(super) fn lifetime(self) -> Option<Lifetime> {
        Some(Lifetime {
            allocations: self.u32(4)?,
            bytes: self.u64(8)?,
            added: self.u64(16)?,
            used: self.u64(24)?,
        })
    }

    pub(super) fn address(self) -> Option<Address> {
        let address = self.socket_address(8)?;
        let longest = if address.is_ipv6() { 128 } else { 32 };
        let prefix_length = self.byte(5).filter(|length| *length <= longest)?;
        Some(Address { protocol: self.byte(4)?, prefix_length, address, port: self.be16(10)? })
    }

    /// The address of a `sockaddr`.
    fn socket_address(self, at: usize) -> Option<IpAddr> {
        match self.u16(at)? {
            AF_INET => Some(Ipv4Addr::from(self.bytes::<4>(at + 4)?).into()),
            AF_INET6 => Some(Ipv6Addr::from(self.bytes::<16>(at + 8)?).into()),
            _ => None,
        }
    }

    pub(super) fn key(self) -> Option<Key> {
        let bits = usize::from(self.u16(4)?);
        if bits == 0 || bits % 8 != 0 {
            return None;
        }
        Some(Key::new(self.0.get(8..8 + bits / 8)?))
    }

    pub(super) fn identity(self) -> Option<Identity> {
        Some(Identity { kind: self.u16(4)?, id: self.u64(8)?, name: self.0.get(16..)?.to_vec() })
    }

    pub(super) fn sensitivity(self) -> Option<SensitivityLevels> {
        Some(SensitivityLevels {
            domain: self.u32(4)?,
            sensitivity: self.byte(8)?,
            integrity: self.byte(10)?,
        })
    }

    pub(super) fn proposal(self) -> Option<Proposal> {
        let (combinations, rest) = self.0.get(8..)?.as_chunks::<72>();
        rest.is_empty().then_some(())?;
        let combinations = combinations.iter().map(|bytes| Reader(bytes).combination());
        Some(Proposal { replay: self.byte(4)?, combinations: combinations.collect::<Option<_>>()? })
    }

    pub(super) fn combination(self) -> Option<Combination> {
        Some(Combination {
            authentication: self.byte(0)?,
            encryption: self.byte(1)?,
            flags: self.u16(2)?,
            authentication_bits: (self.u16(4)?, self.u16(6)?),
            encryption_bits: (self.u16(8)?, self.u16(10)?),
            soft: Lifetime {
                allocations: self.u32(16)?,
                bytes: self.u64(24)?,
                added: self.u64(40)?,
                used: self.u64(56)?,
            },
            hard: Lifetime {
                allocations: self.u32(20)?,
                bytes: self.u64(32)?,
                added: self.u64(48)?,
                used: self.u64(64)?,
            },
        })
    }

    pub(super) fn supported(self) -> Option<Vec<Algorithm>> {
        let (algorithms, _) = self.0.get(8..)?.as_chunks::<8>();
        algorithms
            .iter()
            .map(|bytes| {
                let reader = Reader(bytes);
                Some(Algorithm {
                    id: reader.byte(0)?,
                    iv_length: reader.byte(1)?,
                    min_bits: reader.u16(2)?,
                    max_bits: reader.u16(4)?,
                })
            })
            .collect()
    }

    pub(super) fn spi_range(self) -> Option<SpiRange> {
        Some(SpiRange { min: self.u32(4)?, max: self.u32(8)? })
    }

    pub(super) fn policy(self) -> Option<Policy> {
        Some(Policy {
            kind: self.u16(4)?,
            direction: self.byte(6)?,
            id: self.u32(8)?,
            priority: self.u32(12)?,
            requests: policy_requests(self.0.get(16..)?)?,
        })
    }

    pub(super) fn sa2(self) -> Option<Sa2> {
        Some(Sa2 { mode: self.byte(4)?, sequence: self.u32(8)?, request_id: self.u32(12)? })
    }
}

/// Requests tell their length in bytes, unlike extensions.
fn policy_requests(mut bytes: &[u8]) -> Option<Vec<PolicyRequest>> {
    let mut requests = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(Reader(bytes).u16(0)?);
        let (request, rest) = bytes.split_at_checked(length)?;
        let request = Reader(request);
        let ends = match length {
            REQUEST_LEN => None,
            REQUEST_WITH_IPV4 => Some((request.socket_address(16)?, request.socket_address(16 + 16)?)),
            REQUEST_WITH_IPV6 => Some((request.socket_address(16)?, request.socket_address(16 + 28)?)),
            _ => return None,
        };
        if ends.is_some_and(|(from, to)| {
            from.is_ipv4() != to.is_ipv4() || from.is_ipv4() != (length == REQUEST_WITH_IPV4)
        }) {
            return None;
        }
        requests.push(PolicyRequest {
            protocol: request.u16(2)?,
            mode: request.byte(4)?,
            level: request.byte(5)?,
            request_id: request.u32(8)?,
            ends,
        });
        bytes = rest;
    }
    Some(requests)
}

const REQUEST_LEN: usize = 16;
const REQUEST_WITH_IPV4: usize = REQUEST_LEN + 2 * 16;
const REQUEST_WITH_IPV6: usize = REQUEST_LEN + 2 * 28;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub(super) fn port_body(port: u16) -> Vec<u8> {
    [port.to_be_bytes(), [0, 0]].concat()
}

pub(super) fn key_body(key: &Key) -> Vec<u8> {
    let bits = (key.reveal().len() * 8) as u16;
    [&bits.to_ne_bytes()[..], &[0, 0], key.reveal()].concat()
}

pub(super) fn supported_body(algorithms: &[Algorithm]) -> Vec<u8> {
    let mut body = vec![0; 4];
    for algorithm in algorithms {
        body.extend([algorithm.id, algorithm.iv_length]);
        body.extend(algorithm.min_bits.to_ne_bytes());
        body.extend(algorithm.max_bits.to_ne_bytes());
        body.extend([0, 0]);
    }
    body
}

impl Sa {
    pub(super) fn body(self) -> Vec<u8> {
        let mut body = self.spi.to_be_bytes().to_vec();
        body.extend([self.replay, self.state, self.authentication, self.encryption]);
        body.extend(self.flags.to_ne_bytes());
        body
    }
}

impl Lifetime {
    pub(super) fn body(self) -> Vec<u8> {
        [words(&[self.allocations]), longs(&[self.bytes, self.added, self.used])].concat()
    }
}

impl Address {
    pub(super) fn body(self) -> Vec<u8> {
        let mut body = vec![self.protocol, self.prefix_length, 0, 0];
        put_socket_address(&mut body, self.address, self.port);
        body
    }
}

fn put_socket_address(body: &mut Vec<u8>, address: IpAddr, port: u16) {
    match address {
        IpAddr::V4(address) => {
            body.extend(AF_INET.to_ne_bytes());
            body.extend(port.to_be_bytes());
            body.extend(address.octets());
            body.extend([0; 8]);
        }
        IpAddr::V6(address) => {
            body.extend(AF_INET6.to_ne_bytes());
            body.extend(port.to_be_bytes());
            body.extend([0; 4]);
            body.extend(address.octets());
            body.extend([0; 4]);
        }
    }
}

impl Identity {
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.kind.to_ne_bytes().to_vec();
        body.extend([0, 0]);
        body.extend(self.id.to_ne_bytes());
        body.extend(&self.name);
        body
    }
}

impl SensitivityLevels {
    pub(super) fn body(self) -> Vec<u8> {
        let mut body = words(&[self.domain]);
        body.extend([self.sensitivity, 0, self.integrity, 0]);
        body.extend([0; 4]);
        body
    }
}

impl Proposal {
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = vec![self.replay, 0, 0, 0];
        for combination in &self.combinations {
            let Combination { authentication_bits, encryption_bits, soft, hard, .. } = combination;
            body.extend([combination.authentication, combination.encryption]);
            for short in [
                combination.flags,
                authentication_bits.0,
                authentication_bits.1,
                encryption_bits.0,
                encryption_bits.1,
            ] {
                body.extend(short.to_ne_bytes());
            }
            body.extend(words(&[0, soft.allocations, hard.allocations]));
            body.extend(longs(&[soft.bytes, hard.bytes, soft.added, hard.added, soft.used, hard.used]));
        }
        body
    }
}

impl Policy {
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.kind.to_ne_bytes().to_vec();
        body.extend([self.direction, 0]);
        body.extend(words(&[self.id, self.priority]));
        for request in &self.requests {
            let length = match request.ends {
                None => REQUEST_LEN,
                Some((IpAddr::V4(_), _)) => REQUEST_WITH_IPV4,
                Some((IpAddr::V6(_), _)) => REQUEST_WITH_IPV6,
            };
            body.extend((length as u16).to_ne_bytes());
            body.extend(request.protocol.to_ne_bytes());
            body.extend([request.mode, request.level, 0, 0]);
            body.extend(words(&[request.request_id, 0]));
            if let Some((from, to)) = request.ends {
                put_socket_address(&mut body, from, 0);
                put_socket_address(&mut body, to, 0);
            }
        }
        body
    }
}

impl SpiRange {
    pub(super) fn body(self) -> Vec<u8> {
        words(&[self.min, self.max, 0])
    }
}

impl Sa2 {
    pub(super) fn body(self) -> Vec<u8> {
        let mut body = vec![self.mode, 0, 0, 0];
        body.extend(words(&[self.sequence, self.request_id]));
        body
    }
}
