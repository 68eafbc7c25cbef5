//! Neighbor discovery (RFC 4861): solicitations and advertisements of neighbors and routers.
//!
//! [`parse`] checks a received packet and says what it is. To send one there is a struct for each message, with
//! `to_packet` or `to_frame`. A router advertisement has both forms: [`RouterAdvertisementView`] borrows a received one,
//! [`RouterAdvertisement`] owns what one says, is made from a view, and can be sent.
//!
//! ```
//! use sidestep_wire::ndp::{self, Message, NeighborSolicitation, solicited_node};
//! use sidestep_wire::{ethernet::MacAddress, ipv6};
//!
//! let target = "2001:db8::2".parse()?;
//! let solicitation = NeighborSolicitation {
//!     source: "2001:db8::1".parse()?,
//!     destination: solicited_node(target),
//!     target,
//!     source_link_layer: MacAddress([2, 0, 0, 0, 0, 1]),
//! };
//! let packet = solicitation.to_packet();
//!
//! let Message::NeighborSolicitation { target: asked, .. } = ndp::parse(&ipv6::Packet::parse(&packet)?)? else {
//!     unreachable!()
//! };
//! assert_eq!(asked, target);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `mod` | what has been received: which message, and whether it may be believed |
//! | `neighbor` | neighbor solicitations and advertisements |
//! | `router_solicitation`, `router_advertisement`, `redirect` | those of routers |
//! | `options` | their options |
//! | `packet` | groups, header, checksum and frame of all of them |

mod neighbor;
mod options;
mod packet;
mod redirect;
mod router_advertisement;
mod router_solicitation;

pub use neighbor::{
    DuplicateSolicitation, NEIGHBOR_FRAME_LEN, NEIGHBOR_PACKET_LEN, NeighborAdvertisement,
    NeighborSolicitation, Nonce,
};
pub use options::{AdvertisedOption, Preference, PrefixInformation};
pub use packet::{ALL_NODES, ALL_ROUTERS, multicast_mac, solicited_node};
pub use redirect::Redirect;
pub use router_advertisement::{RouterAdvertisement, RouterAdvertisementView, with_mtu};
pub use router_solicitation::{
    ROUTER_SOLICITATION_FRAME_LEN, ROUTER_SOLICITATION_PACKET_LEN, RouterSolicitation,
};

use std::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::ipv6_at;
use crate::ethernet::MacAddress;
use crate::{icmpv6, ipv6, protocol};
use neighbor::{FLAG_OVERRIDE, FLAG_ROUTER, FLAG_SOLICITED};
use options::{NONCE, SOURCE_LINK_LAYER, TARGET_LINK_LAYER, checked_options, link_layer};
use packet::HOP_LIMIT;

/// A message that passed the checks of RFC 4861 §6.1, §7.1 and §8.1.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Message<'a> {
    /// Router Solicitation.
    RouterSolicitation {
        /// Source link-layer address option.
        source_link_layer: Option<MacAddress>,
    },
    /// Router Advertisement.
    RouterAdvertisement(RouterAdvertisementView<'a>),
    /// Neighbor Solicitation.
    NeighborSolicitation {
        /// Whose link-layer address is asked for.
        target: Ipv6Addr,
        /// Source link-layer address option.
        source_link_layer: Option<MacAddress>,
        /// Nonce option, by which a host knows its own solicitation when it comes back (RFC 7527).
        nonce: Option<Nonce>,
    },
    /// Neighbor Advertisement.
    NeighborAdvertisement {
        /// Whose link-layer address is told.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It replaces what is cached.
        r#override: bool,
        /// Target link-layer address option.
        target_link_layer: Option<MacAddress>,
    },
    /// Redirect.
    Redirect {
        /// Where packets should go instead: a router's link-local address, or the destination itself if it is a neighbor.
        target: Ipv6Addr,
        /// The destination that this is about.
        destination: Ipv6Addr,
        /// Target link-layer address option.
        target_link_layer: Option<MacAddress>,
    },
}

/// Reads the neighbor discovery message in `packet` and checks all that RFC 4861 wants checked of it.
///
/// # Errors
/// [`ParseError::Type`] when it carries something else; [`ParseError::Value`] for a hop limit other than 255,
/// a code other than 0, a multicast target, or addresses that do not fit the message; [`ParseError::Length`]
/// for an option of length 0; [`ParseError::Checksum`]; [`ParseError::Truncated`].
pub fn parse<'a>(packet: &ipv6::Packet<'a>) -> Result<Message<'a>, ParseError> {
    if packet.next_header() != protocol::ICMPV6 {
        return Err(ParseError::Type);
    }
    let bytes = packet.payload();
    let message = icmpv6::Message::parse(bytes)?;
    let (icmpv6::ROUTER_SOLICITATION
    | icmpv6::ROUTER_ADVERTISEMENT
    | icmpv6::NEIGHBOR_SOLICITATION
    | icmpv6::NEIGHBOR_ADVERTISEMENT
    | icmpv6::REDIRECT) = message.message_type()
    else {
        return Err(ParseError::Type);
    };
    if packet.hop_limit() != HOP_LIMIT || message.code() != 0 {
        return Err(ParseError::Value);
    }
    icmpv6::Message::of_packet(packet)?;
    match message.message_type() {
        icmpv6::ROUTER_SOLICITATION => router_solicitation(packet, bytes),
        icmpv6::ROUTER_ADVERTISEMENT => router_advertisement(packet, bytes),
        icmpv6::NEIGHBOR_SOLICITATION => neighbor_solicitation(packet, bytes),
        icmpv6::REDIRECT => redirect(packet, bytes),
        _ => neighbor_advertisement(packet, bytes),
    }
}

fn router_solicitation<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let source_link_layer = link_layer(checked_options(&bytes[8..])?, SOURCE_LINK_LAYER);
    if packet.source().is_unspecified() && source_link_layer.is_some() {
        return Err(ParseError::Value);
    }
    Ok(Message::RouterSolicitation { source_link_layer })
}

fn router_advertisement<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    if !packet.source().is_unicast_link_local() {
        return Err(ParseError::Value);
    }
    RouterAdvertisementView::parse(bytes).map(Message::RouterAdvertisement)
}

fn neighbor_solicitation<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let (target, options) = target_and_options(bytes)?;
    let source_link_layer = link_layer(options, SOURCE_LINK_LAYER);
    // Duplicate address detection: to the solicited-node address, and without a link-layer address.
    if packet.source().is_unspecified()
        && (source_link_layer.is_some() || packet.destination() != solicited_node(target))
    {
        return Err(ParseError::Value);
    }
    let nonce = link_layer(options, NONCE).map(|MacAddress(octets)| Nonce(octets));
    Ok(Message::NeighborSolicitation { target, source_link_layer, nonce })
}

fn neighbor_advertisement<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let (target, options) = target_and_options(bytes)?;
    let flags = bytes[4];
    let solicited = flags & FLAG_SOLICITED != 0;
    if packet.destination().is_multicast() && solicited {
        return Err(ParseError::Value);
    }
    Ok(Message::NeighborAdvertisement {
        target,
        router: flags & FLAG_ROUTER != 0,
        solicited,
        r#override: flags & FLAG_OVERRIDE != 0,
        target_link_layer: link_layer(options, TARGET_LINK_LAYER),
    })
}

fn redirect<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let (fixed, options) = bytes.split_at_checked(redirect::FIXED_LEN).ok_or(ParseError::Truncated)?;
    let (target, destination) = (ipv6_at(fixed, 8), ipv6_at(fixed, 24));
    let leads_on = target.is_unicast_link_local() || target == destination;
    if !packet.source().is_unicast_link_local() || destination.is_multicast() || !leads_on {
        return Err(ParseError::Value);
    }
    let target_link_layer = link_layer(checked_options(options)?, TARGET_LINK_LAYER);
    Ok(Message::Redirect { target, destination, target_link_layer })
}

fn target_and_options(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), ParseError> {
    if bytes.len() < 24 {
        return Err(ParseError::Truncated);
    }
    let target = ipv6_at(bytes, 8);
    if target.is_multicast() {
        return Err(ParseError::Value);
    }
    Ok((target, checked_options(&bytes[24..])?))
}
