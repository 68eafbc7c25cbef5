//! The way of a received packet: frame, addresses, header chain; reassembly and security, after each of which what they
//! leave is looked at as if it had just come; then the upper layer.

use ipsec::selector::Traffic;
use std::net::SocketAddrV6;
use std::time::Instant;
use wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress};
use wire::icmp_error::Reason;
use wire::ipv6::{HEADER_LEN, Packet};
use wire::protocol;

use super::arrival::{Arrival, Arrived, Evidence};
use super::upper::{Received, Upper, Verdict};
use super::{Interface, Medium};
use crate::DropReason;
use crate::ipv6::input::{self, Chain, Next};
use crate::ipv6::{Refusal, reassembly, unknown};
use crate::security::{Datagram, Security};
use crate::udp::Metadata;

/// Layers of a packet: fragments of tunnels of fragments. Nobody means more than two of each.
const MAX_LAYERS: usize = 4;

impl<S: Security> Interface<S> {
    /// Takes what the device has received: a frame or an IP packet, as the medium has it.
    pub fn receive(&mut self, now: Instant, bytes: &[u8], upper: &mut impl Upper) {
        match self.medium {
            Medium::Ip => self.receive_packet(now, bytes, Arrived::OtherEnd, false, upper),
            Medium::Ethernet(own) => match self.open_frame(bytes, own) {
                Ok((ETHERTYPE_ARP, _, payload)) => self.receive_arp(now, payload),
                Ok((_, from, packet)) => self.receive_packet(now, packet, from, false, upper),
                Err(reason) => return self.drop(reason),
            },
        }
        self.act(now, upper);
    }

    /// The type of a frame that is for us, how it came, and what is in it.
    pub(super) fn open_frame<'a>(
        &self,
        bytes: &'a [u8],
        own: MacAddress,
    ) -> Result<(u16, Arrived, &'a [u8]), DropReason> {
        let frame = ethernet::Frame::parse(bytes).map_err(|_| DropReason::Malformed)?;
        let to = frame.destination();
        if to != own && !to.is_multicast() {
            return Err(DropReason::NotForUs);
        }
        let from = if to.is_multicast() { Arrived::LinkToMany } else { Arrived::OtherEnd };
        match frame.ethertype() {
            kind @ (ETHERTYPE_IPV6 | ETHERTYPE_IPV4 | ETHERTYPE_ARP) => Ok((kind, from, frame.payload())),
            _ => Err(DropReason::NotForUs),
        }
    }

    pub(super) fn receive_packet(
        &mut self,
        now: Instant,
        bytes: &[u8],
        from: Arrived,
        verified: bool,
        upper: &mut impl Upper,
    ) {
        let mut arrival = Arrival {
            from,
            verified,
            fragmented: false,
            opened: false,
            protection: S::Protection::default(),
            secret: false,
        };
        let mut again = self.examine(now, bytes, &mut arrival, upper);
        for _ in 0..MAX_LAYERS {
            if !again {
                return;
            }
            let packet = std::mem::replace(&mut self.inner, std::mem::take(&mut self.spare));
            let inner = packet.get(self.inner_at.clone()).unwrap_or_default();
            again = self.examine(now, inner, &mut arrival, upper);
            self.spare = packet;
        }
        if again {
            self.drop(DropReason::TooManyHeaders);
        }
    }

    /// Looks at a packet as far as it goes. Returns whether something came out of it that is to be looked at again, which
    /// is in `inner` then.
    fn examine(
        &mut self,
        now: Instant,
        bytes: &[u8],
        arrival: &mut Arrival<S::Protection>,
        upper: &mut impl Upper,
    ) -> bool {
        if bytes.first().is_some_and(|first| first >> 4 == 4) {
            return self.examine_ipv4(now, bytes, arrival, upper);
        }
        let Ok(packet) = Packet::parse(bytes) else {
            self.drop(DropReason::Malformed);
            return false;
        };
        // What lies behind the packet is padding of the link.
        let bytes = &bytes[..HEADER_LEN + packet.payload().len()];
        if let Err(reason) = self.is_for_us(&packet, arrival.from) {
            self.drop(reason);
            return false;
        }
        let chain = match input::parse(&packet) {
            Ok(chain) => chain,
            Err(refusal) => {
                self.refuse(now, refusal, bytes, arrival);
                return false;
            }
        };
        arrival.fragmented |= chain.fragmented;
        match chain.next {
            Next::Upper(protocol) => {
                if protocol == protocol::UDP {
                    match self.security.datagram(&bytes[chain.offset..]) {
                        Datagram::Plain => {}
                        Datagram::Protected => return self.open(now, bytes, protocol::ESP, arrival),
                        Datagram::Keepalive => return false,
                    }
                }
                self.dispatch(now, bytes, &packet, &chain, protocol, arrival, upper);
                false
            }
            Next::Fragment(fragment) => {
                let protection = self.way(arrival);
                let mut whole = std::mem::take(&mut self.inner);
                let inserted = reassembly::insert(
                    &mut self.fragments,
                    now,
                    &packet,
                    &chain,
                    fragment,
                    protection,
                    &mut whole,
                );
                self.inner = whole;
                self.inner_at = 0..self.inner.len();
                inserted.unwrap_or_else(|refusal| {
                    self.refuse(now, refusal, bytes, arrival);
                    false
                })
            }
            Next::Security(kind) => self.open(now, bytes, kind, arrival),
        }
    }

    /// Opens the first security header of a packet, into `inner`, and those that are right behind it. Returns whether it
    /// could.
    pub(super) fn open(
        &mut self,
        now: Instant,
        bytes: &[u8],
        mut kind: u8,
        arrival: &mut Arrival<S::Protection>,
    ) -> bool {
        self.inner.clear();
        self.inner.extend_from_slice(bytes);
        self.inner_at = 0..bytes.len();
        loop {
            let start = self.inner_at.start;
            let packet = self.inner.get_mut(self.inner_at.clone()).unwrap_or_default();
            let Ok(place) = self.security.open(now, packet, &mut arrival.protection) else {
                self.drop(DropReason::Security);
                return false;
            };
            self.inner_at = start + place.start..start + place.end;
            arrival.opened = true;
            arrival.secret |= kind == protocol::ESP;
            match next_security_header(bytes, self.inner.get(self.inner_at.clone()).unwrap_or_default()) {
                Some(next) => kind = next,
                None => return true,
            }
        }
    }

    /// What tells fragments apart that came by different ways: 0 for those that came as they are.
    pub(super) fn way(&self, arrival: &Arrival<S::Protection>) -> u8 {
        u8::from(arrival.opened) << 7 | self.security.class(&arrival.protection)
    }

    /// Whether a packet may have these addresses, and is for us.
    fn is_for_us(&self, packet: &Packet<'_>, from: Arrived) -> Result<(), DropReason> {
        let (source, destination) = (packet.source(), packet.destination());
        let forged = from != Arrived::Ourselves && self.addresses.is_assigned(source);
        if forged
            || source.is_multicast()
            || destination.is_unspecified()
            || source.is_loopback()
            // What has come in IPv4 has not come in this (RFC 4942 §2.2).
            || source.to_ipv4_mapped().is_some()
            || destination.is_loopback()
            || destination.is_multicast() && destination.octets()[1] & 0xf <= 1
        {
            return Err(DropReason::ImpossibleAddress);
        }
        let ours = if destination.is_multicast() {
            self.listener.listens_to(destination)
        } else {
            self.addresses.is_assigned(destination)
        };
        if ours { Ok(()) } else { Err(DropReason::NotForUs) }
    }

    #[expect(clippy::too_many_arguments, reason = "all of them are of the one packet that is on its way")]
    fn dispatch(
        &mut self,
        now: Instant,
        bytes: &[u8],
        packet: &Packet<'_>,
        chain: &Chain,
        protocol: u8,
        arrival: &Arrival<S::Protection>,
        upper: &mut impl Upper,
    ) {
        let payload = &bytes[chain.offset..];
        let (source, destination) = (packet.source().into(), packet.destination().into());
        let traffic = Traffic::of_upper(source, destination, protocol, payload);
        let evidence = Evidence { traffic, arrival };
        match protocol {
            protocol::ICMPV6 => {
                if !super::icmpv6::bypasses_security(payload) && !evidence.suffices(&mut self.security, None)
                {
                    return self.drop(DropReason::Security);
                }
                self.receive_icmpv6(now, packet, payload, &evidence, upper);
            }
            protocol::UDP => {
                let metadata = Metadata {
                    from: SocketAddrV6::new(packet.source(), 0, 0, 0),
                    to: packet.destination(),
                    hop_limit: packet.hop_limit(),
                    traffic_class: packet.traffic_class(),
                };
                let security = &mut self.security;
                match self.udp.deliver(metadata, payload, |socket| evidence.suffices(security, socket)) {
                    Ok(()) => {}
                    Err(DropReason::NoSocket) => {
                        let refusal = Refusal::Answered(DropReason::NoSocket, Reason::PortUnreachable);
                        self.refuse(now, refusal, bytes, arrival);
                    }
                    Err(reason) => self.drop(reason),
                }
            }
            _ => {
                let received = Received {
                    source,
                    destination,
                    hop_limit: packet.hop_limit(),
                    traffic_class: packet.traffic_class(),
                    to_many: arrival.from == Arrived::LinkToMany || packet.destination().is_multicast(),
                    protocol,
                    verified: arrival.is_verified(),
                    payload,
                };
                let socket = if S::HAS_POLICY { upper.socket(&received) } else { None };
                if !evidence.suffices(&mut self.security, socket.as_ref()) {
                    return self.drop(DropReason::Security);
                }
                match upper.receive(now, &received) {
                    Verdict::Taken => {}
                    Verdict::Unknown => self.refuse(now, unknown(chain.pointer), bytes, arrival),
                    Verdict::Dropped(reason) => self.drop(reason),
                }
            }
        }
    }

    /// Drops a packet, and tells its sender if that is wanted and allowed (RFC 4443 §2.4 e).
    fn refuse(&mut self, now: Instant, refusal: Refusal, bytes: &[u8], arrival: &Arrival<S::Protection>) {
        let (drop, reason) = match refusal {
            Refusal::Silent(drop) => return self.drop(drop),
            Refusal::Answered(drop, reason) => (drop, reason),
        };
        self.drop(drop);
        let even_to_many = matches!(reason, Reason::UnrecognizedOption { even_if_multicast: true, .. });
        if arrival.from != Arrived::LinkToMany || even_to_many {
            self.send_error(now, reason, bytes, arrival.secret);
        }
    }
}

/// The security header right behind the IP header of what was opened, if it goes the way of the packet that it came in: then
/// all that would be looked at first was looked at.
fn next_security_header(outer: &[u8], inner: &[u8]) -> Option<u8> {
    let is_ipv6 = |packet: &[u8]| packet.first().is_some_and(|first| first >> 4 == 6);
    let addresses = |packet: &[u8]| packet.get(8..HEADER_LEN).and_then(|both| both.try_into().ok());
    let same: [Option<[u8; 32]>; 2] = [addresses(outer), addresses(inner)];
    if !is_ipv6(outer) || !is_ipv6(inner) || same[0].is_none() || same[0] != same[1] {
        return None;
    }
    let next = *inner.get(6)?;
    matches!(next, protocol::ESP | protocol::AUTHENTICATION).then_some(next)
}
