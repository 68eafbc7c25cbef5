//! Tunnel mode: the outer header (RFC 4301 §5.1.2), and what is inside when it is gone (§5.2), with congestion carried
//! over (RFC 6040).
//!
//! | field | outer header |
//! |---|---|
//! | DSCP | as inside |
//! | ECN | as inside |
//! | hop limit | [`HOP_LIMIT`]; the inner one is the business of whoever forwards |
//! | flow label | 0: a label from the inner one, or from inner ports, would tell what is hidden |
//! | identification | the low bits of the sequence number, which is another one each time |
//! | don't fragment | the association's [`DontFragment`] |

use std::net::IpAddr;

use wire::{ecn, ipv4, ipv6, protocol};

use crate::association::{DontFragment, Mode, Parameters};
use crate::headers::{self, HeaderError, Place};
use crate::outcome::OpenError;
use crate::packet_buffer::PacketBuffer;

/// Hop limit and time to live of outer headers.
pub const HOP_LIMIT: u8 = 64;

/// Where an association puts its header in a packet.
pub(crate) struct Placement {
    /// Where, in the packet with its outer header if it gets one.
    pub(crate) place: Place,
    /// The bytes that stay in front: all before the header in transport mode, none in tunnel mode.
    pub(crate) kept: usize,
    /// The version of the packet that it becomes.
    pub(crate) is_ipv6: bool,
}

impl Placement {
    pub(crate) fn new(parameters: &Parameters, packet: &[u8]) -> Result<Self, HeaderError> {
        if parameters.mode == Mode::Transport {
            let place = headers::transport_place(packet)?;
            return Ok(Self { place, kept: place.offset, is_ipv6: headers::is_ipv6(packet) });
        }
        let is_ipv6 = parameters.destination.is_ipv6();
        let place = Place {
            offset: headers::fixed_length(is_ipv6),
            type_at: if is_ipv6 { 6 } else { 9 },
            protocol: if headers::is_ipv6(packet) { protocol::IPV6 } else { protocol::IPV4 },
        };
        Ok(Self { place, kept: 0, is_ipv6 })
    }

    /// Bytes of the outer header; 0 in transport mode.
    pub(crate) fn outer_length(&self) -> usize {
        self.place.offset - self.kept
    }
}

/// An outer header, in the order of its version, yet without length and next header.
pub(crate) enum Outer {
    V4([u8; ipv4::HEADER_LEN]),
    V6([u8; ipv6::HEADER_LEN]),
}

impl Outer {
    /// Around a packet that begins as `inner` does. `None` in transport mode.
    pub(crate) fn around(inner: &[u8], parameters: &Parameters, identification: u16) -> Option<Self> {
        if parameters.mode == Mode::Transport {
            return None;
        }
        let is_ipv6 = headers::is_ipv6(inner);
        let traffic_class = match inner {
            [first, second, ..] if is_ipv6 => first << 4 | second >> 4,
            [_, second, ..] => *second,
            _ => 0,
        };
        let inner_ecn = ecn::Ecn::from_bits(traffic_class);
        let traffic_class = traffic_class & !3 | ecn::encapsulate(inner_ecn).bits();
        Some(match (parameters.source, parameters.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => Self::V6(
                ipv6::Header {
                    traffic_class,
                    flow_label: 0,
                    payload_length: 0,
                    next_header: protocol::NO_NEXT_HEADER,
                    hop_limit: HOP_LIMIT,
                    source,
                    destination,
                }
                .to_bytes(),
            ),
            (source, destination) => Self::V4(
                ipv4::Header {
                    type_of_service: traffic_class,
                    total_length: 0,
                    identification,
                    dont_fragment: match parameters.dont_fragment {
                        DontFragment::Set => true,
                        DontFragment::Clear => false,
                        DontFragment::Copy => is_ipv6 || inner.get(6).is_some_and(|flags| flags & 0x40 != 0),
                    },
                    time_to_live: HOP_LIMIT,
                    protocol: 0,
                    source: as_ipv4(source),
                    destination: as_ipv4(destination),
                }
                .to_bytes(),
            ),
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::V4(bytes) => bytes,
            Self::V6(bytes) => bytes,
        }
    }
}

/// An association has two addresses of one version: here both are IPv4.
fn as_ipv4(address: IpAddr) -> std::net::Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => std::net::Ipv4Addr::UNSPECIFIED,
    }
}

/// Takes away the `front` bytes before the inner packet, which is of the version that `next_header` says, and what is
/// behind its end: padding for traffic flow confidentiality (RFC 4303 §2.7).
pub(crate) fn decapsulate(
    packet: &mut PacketBuffer<'_>,
    front: usize,
    next_header: u8,
) -> Result<(), OpenError> {
    let outer = ecn::get(packet.packet()).ok_or(OpenError::Inner)?;
    packet.close_gap(0, front);
    let version = packet.packet().first().map(|first| first >> 4);
    if !matches!((next_header, version), (protocol::IPV6, Some(6)) | (protocol::IPV4, Some(4))) {
        return Err(OpenError::Inner);
    }
    headers::trim(packet).map_err(|_| OpenError::Inner)?;
    let inner = ecn::get(packet.packet()).ok_or(OpenError::Inner)?;
    let inner = ecn::decapsulate(outer, inner).map_err(|_| OpenError::Congestion)?;
    ecn::set(packet.packet_mut(), inner);
    Ok(())
}
