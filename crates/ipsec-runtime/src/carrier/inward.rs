//! What sockets receive: messages of IKE, and ESP that becomes inner packets where it lies.

use std::ops::Range;
use std::time::Instant;

use ike::numbers::Spi;
use ike::random::Random;
use ipsec::drops::DropReason as IpsecDrop;
use ipsec::marks::Marks;
use ipsec::selector::Traffic;
use ipsec::tunnel_payload;
use ipsec::udp_encapsulation::{Content, classify};
use wire::ipv6;

use super::Carrier;
use super::child::{Child, TELL_EVERY};
use super::received::Received;
use crate::deliver::Deliver;
use crate::drops::DropReason;
use crate::outbox::Via;

impl<R: Random> Carrier<R> {
    /// Takes datagrams that were received together. Inner packets lie in `arena` when they are delivered.
    pub fn receive(
        &mut self,
        arena: &mut [u8],
        received: &Received,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let mut esp = received.clone();
        for at in received.each() {
            let Some(datagram) = arena.get(at.clone()) else { return };
            let content = if received.via == Via::Nat { classify(datagram) } else { Content::Ike };
            if content == Content::Esp {
                continue;
            }
            // What came before it is carried before it.
            esp.at.end = at.start;
            self.open_all(arena, &esp, now, deliver);
            esp.at = at.end..received.at.end;
            if content == Content::Ike
                && let Some(datagram) = arena.get(at)
            {
                let path = self.path(&received.way());
                self.ike.receive(now, path, datagram);
                // What is right behind an answer may be of the child that it has made.
                self.settle(now, deliver);
            }
        }
        self.open_all(arena, &esp, now, deliver);
    }

    /// Opens ESP, one behind the other.
    pub(super) fn open_all(
        &mut self,
        arena: &mut [u8],
        received: &Received,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let mut each = received.each().peekable();
        while let Some(at) = each.peek().cloned() {
            let Some(spi) = arena.get(at.clone()).and_then(|esp| esp.first_chunk::<4>()).copied() else {
                self.drops.count(DropReason::Runt);
                each.next();
                continue;
            };
            let number = u32::from_be_bytes(spi);
            let is_tunnel = self.children.get(&number).map(Child::is_tunnel_of_esp);
            if self.has_raw
                && received.via == Via::Nat
                && (is_tunnel == Some(false)
                    || is_tunnel.is_none() && self.has_by_hand(number, received.local))
                && let Some(at) = each.next()
            {
                self.open_in_udp(arena, at, received, now, deliver);
                continue;
            }
            let Some(child) = self.children.get_mut(&number) else {
                self.ipsec_drops.count(IpsecDrop::NoAssociation);
                let (length, way) = (at.len(), received.way());
                each.next();
                if received.via == Via::Nat {
                    self.ike.saw_unknown_spi(now, self.path(&way), Spi(number), length);
                    self.send_messages();
                }
                continue;
            };
            let Some(association) = self.engine.get_mut(child.inbound_id) else {
                self.ipsec_drops.count(IpsecDrop::NoAssociation);
                each.next();
                continue;
            };
            let mut is_heard = false;
            // All that are of the same association.
            while let Some(at) =
                each.next_if(|at| arena.get(at.clone()).is_some_and(|esp| esp.starts_with(&spi)))
            {
                let start = at.start;
                let opened = match tunnel_payload::open(association, &mut arena[at], received.ecn, now) {
                    Ok(opened) => opened,
                    Err(error) => {
                        self.ipsec_drops.count(error.into());
                        continue;
                    }
                };
                is_heard = true;
                if opened.marks == Marks::NONE {
                    self.drops.count(DropReason::NotSelected);
                    continue;
                }
                let packet = start + opened.packet.start..start + opened.packet.end;
                if self.judges_input {
                    let verdict = Traffic::of(&arena[packet.clone()])
                        .map_err(|_| IpsecDrop::Malformed)
                        .and_then(|traffic| self.policies.input_policy(&traffic, opened.marks, None));
                    if let Err(reason) = verdict {
                        self.ipsec_drops.count(reason);
                        continue;
                    }
                }
                hand_over(arena, packet, deliver);
            }
            if is_heard {
                (child.heard, child.unanswered) = (Some(now), None);
                self.engine.used(child.inbound_id, now);
                if child.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL_EVERY) {
                    child.told = Some(now);
                    self.ike.saw_traffic(now, child.ike);
                }
            }
        }
    }
}

/// Delivers a packet that lies whole in the arena. That it is one of IP was seen when it was opened.
pub(super) fn hand_over(arena: &[u8], packet: Range<usize>, deliver: &mut dyn Deliver) {
    let bytes = &arena[packet.clone()];
    let length = header_length(bytes);
    if let Some(header) = bytes.get(..length) {
        deliver.packet(arena, header, packet.start + length..packet.end);
    }
}

/// Bytes of the header of IP, without extensions; at most as many as there are.
pub(super) fn header_length(packet: &[u8]) -> usize {
    let length = match packet.first() {
        Some(first) if first >> 4 == 6 => ipv6::HEADER_LEN,
        Some(first) => usize::from(first & 15) * 4,
        None => 0,
    };
    length.min(packet.len())
}
