//! Which checksums cover what, as [`crate::checksum::Layout`] has it for the user tier.
//!
//! The parts of the result: the IPv4 header from and to; the addresses of the pseudo-header from and to; the transport
//! header and payload from and to; where the transport checksum is; whether it may be none (UDP); where the addresses are;
//! which protocol a flow is of; where its ports are. Zeros for what there is not.

use super::view::Absent;
use super::{Key, Lower, Range, State};
use crate::compile::ir::{Condition, Operand, Operation};
use crate::compile::slot::{LAYOUT, Shape, Slot};
use wire::{ethernet, ipv4, ipv6, protocol, tcp, udp};

/// From which part on is what a flow is told by: where the addresses are, the protocol, where the ports are.
pub(super) const FLOW: usize = 8;
const VLAN: [u16; 2] = [0x8100, 0x88a8];
const MAX_VLAN_TAGS: usize = 2;
/// Where the parts of the result that are not zero lie, counted from an IP header that is there: from a field's least place
/// to its greatest. An extension header may move what is behind it by anything.
const IPV4: [Range; 7] = [(0, 0), (20, 60), (12, 12), (20, 20), (20, 60), (20, FAR), (22, FAR)];
const IPV6: [Range; 7] = [(0, 0), (0, 0), (8, 8), (24, 40), (40, FAR), (40, FAR), (42, FAR)];
const FAR: i64 = 1 << 24;
/// Headers of IPv6 behind which the transport is looked for, as bits: those below 64, and those from 128 on. All of them have
/// eight octets at least.
const PASSED: u64 = bit(protocol::HOP_BY_HOP)
    | bit(protocol::ROUTING)
    | bit(protocol::DESTINATION_OPTIONS)
    | bit(protocol::AUTHENTICATION)
    | bit(protocol::FRAGMENT);
const PASSED_FROM_128: u64 = bit(protocol::MOBILITY) | bit(protocol::HIP) | bit(protocol::SHIM6);

const fn bit(number: u8) -> u64 {
    1 << (number % 64)
}

impl Lower<'_> {
    /// The layout of the packet as it is here.
    pub(super) fn layout(&mut self) -> Vec<Operand> {
        self.layout_from(None)
    }

    /// Finds it out before a field is written: from the IP header on, if that is one of it.
    pub(super) fn layout_for(&mut self, field: &Slot) {
        let Shape::Field(header, _) = field.shape else { return };
        let name = self.protocols.name(header.protocol);
        if name == "packet_eth" {
            return;
        }
        let intact = self.state.as_ref().is_some_and(|state| state.variables.contains_key(&Key::Intact));
        let version = ["packet_ip", "packet_ip6"].iter().position(|known| *known == name);
        let known = version.filter(|_| intact && header.outermost);
        self.layout_from(known.map(|version| (field.parts[0], version == 0)));
    }

    fn layout_from(&mut self, network: Option<(Operand, bool)>) -> Vec<Operand> {
        if let Some(state) = &self.state
            && let Some(slot) = state.variables.get(&Key::Layout)
        {
            return slot.parts.clone();
        }
        let (mut ends, mut none) = (Vec::new(), Vec::new());
        let length = self.packet_length();
        match network {
            Some((network, true)) => self.ipv4_layout(network, length, &mut ends, &mut none),
            Some((network, false)) => self.ipv6_layout(network, length, &mut ends, &mut none),
            None => self.find_layout(&mut ends, &mut none),
        }
        none.extend(self.state.take());
        ends.extend(none.into_iter().map(|state| laid_out(state, vec![Operand::Constant(0); LAYOUT])));
        self.join(ends);
        let slot = self.state.as_ref().and_then(|state| state.variables.get(&Key::Layout));
        let parts = slot.map_or_else(|| vec![Operand::Constant(0); LAYOUT], |slot| slot.parts.clone());
        if let Some((network, is_ipv4)) = network {
            for (part, range) in parts.iter().zip(if is_ipv4 { IPV4 } else { IPV6 }) {
                if let Operand::Value(value) = part {
                    self.anchors.insert(*value, (network, range));
                }
            }
        }
        parts
    }

    fn find_layout(&mut self, ends: &mut Vec<State>, none: &mut Absent) {
        let length = self.packet_length();
        let keys = [self.temporary(), self.temporary()];
        self.leave_if(Condition::Below, length, ethernet::HEADER_LEN as i64, none);
        let mut network = Operand::Constant(ethernet::HEADER_LEN as i64);
        let mut kind = self.load(12, 2);
        for _ in 0..MAX_VLAN_TAGS {
            let (tagged, others) = self.any(kind, &VLAN.map(i64::from));
            self.state = tagged;
            let inner = self.calculate(Operation::Add, network, 4);
            self.leave_if(Condition::Below, length, inner, none);
            let at = self.calculate(Operation::Subtract, inner, 2);
            let inner_kind = self.load(at, 2);
            [network, kind] = self.merge(&keys, [inner, inner_kind], others, [network, kind]);
        }
        let (this, others) = self.any(kind, &[i64::from(ethernet::ETHERTYPE_IPV4)]);
        self.state = this;
        self.ipv4_layout(network, length, ends, none);
        self.state = others;
        let (this, others) = self.any(kind, &[i64::from(ethernet::ETHERTYPE_IPV6)]);
        self.state = this;
        self.ipv6_layout(network, length, ends, none);
        self.state = others;
    }

    fn ipv4_layout(&mut self, network: Operand, length: Operand, ends: &mut Vec<State>, none: &mut Absent) {
        let left = self.calculate(Operation::Subtract, length, network);
        self.leave_if(Condition::Below, left, ipv4::HEADER_LEN as i64, none);
        let first = self.load(network, 8);
        let version = self.calculate(Operation::ShiftRight, first, 60);
        self.leave_if(Condition::NotEqual, version, 4, none);
        let words = self.part(first, 56, 0xf);
        let header = self.calculate(Operation::Multiply, words, 4);
        self.leave_if(Condition::Below, header, ipv4::HEADER_LEN as i64, none);
        self.leave_if(Condition::Below, left, header, none);
        let said = self.part(first, 32, 0xffff);
        let total = self.select(Condition::Below, said, header, [header, said]);
        // Zero in GSO packets that are larger than the field can say.
        let total = self.select(Condition::Equal, said, 0, [left, total]);
        let total = self.select(Condition::Below, left, total, [left, total]);
        let end = self.calculate(Operation::Add, network, total);
        let start = self.calculate(Operation::Add, network, header);
        let offset = self.calculate(Operation::And, first, 0x1fff);
        let number_at = self.calculate(Operation::Add, network, 9);
        let number = self.load(number_at, 1);
        let [from, to] = [12, 20].map(|at| self.calculate(Operation::Add, network, at));
        let (first, later) = self.branch(Condition::Equal, offset, 0.into());
        let without = without_transport([network, start], from, number);
        ends.extend(later.map(|state| laid_out(state, without.clone())));
        self.state = first;
        self.transport(without, [from, to], number, [start, end], protocol::ICMPV4, ends);
    }

    fn ipv6_layout(&mut self, network: Operand, length: Operand, ends: &mut Vec<State>, none: &mut Absent) {
        let left = self.calculate(Operation::Subtract, length, network);
        self.leave_if(Condition::Below, left, ipv6::HEADER_LEN as i64, none);
        let words = self.load(network, 8);
        let version = self.calculate(Operation::ShiftRight, words, 60);
        self.leave_if(Condition::NotEqual, version, 6, none);
        let payload = self.part(words, 16, 0xffff);
        let total = self.calculate(Operation::Add, payload, ipv6::HEADER_LEN as i64);
        let total = self.select(Condition::Equal, payload, 0, [left, total]);
        let total = self.select(Condition::Below, left, total, [left, total]);
        let end = self.calculate(Operation::Add, network, total);
        let first = self.part(words, 8, 0xff);
        let from = self.calculate(Operation::Add, network, 8);
        let without = without_transport([0.into(); 2], from, first);
        let mut none = Vec::new();
        let mut next = first;
        let mut at = self.calculate(Operation::Add, network, ipv6::HEADER_LEN as i64);
        // Not zero: a routing header has segments left.
        let mut segments = Operand::Constant(0);
        let keys = [(); 3].map(|()| self.temporary());
        let mut found = Vec::new();
        for level in 0..=ipv6::MAX_EXTENSION_HEADERS {
            // Mostly there is no extension header.
            let is_passed = self.is_passed(next);
            let (passed, others) = self.branch(Condition::NotEqual, is_passed, 0.into());
            self.state = others;
            self.set_all(&keys, [next, at, segments]);
            found.extend(self.state.take());
            self.state = passed;
            if level == ipv6::MAX_EXTENSION_HEADERS || self.state.is_none() {
                break;
            }
            [next, at, segments] = self.behind_extension([next, at, segments], end, &mut none);
        }
        none.extend(self.state.take());
        ends.extend(none.into_iter().map(|state| laid_out(state, without.clone())));
        self.join(found);
        if self.state.is_none() {
            return;
        }
        [next, at, segments] = keys.each_ref().map(|key| self.take(key).parts[0]);
        // With segments left the destination is not that of the pseudo-header (RFC 8200 section 8.1).
        let both = self.select(Condition::Equal, segments, 0, [40.into(), 24.into()]);
        let to = self.calculate(Operation::Add, network, both);
        self.transport(without, [from, to], next, [at, end], protocol::ICMPV6, ends);
    }

    /// 1 if this number of a next header is one of those that are passed.
    fn is_passed(&mut self, next: Operand) -> Operand {
        let place = self.calculate(Operation::And, next, 63);
        let part = self.calculate(Operation::ShiftRight, next, 6);
        let low = self.calculate(Operation::ShiftRight, PASSED.cast_signed(), place);
        let is_low = self.compare(Condition::Equal, part, 0);
        let low = self.calculate(Operation::And, low, is_low);
        let high = self.calculate(Operation::ShiftRight, PASSED_FROM_128.cast_signed(), place);
        let is_high = self.compare(Condition::Equal, part, 2);
        let high = self.calculate(Operation::And, high, is_high);
        self.calculate(Operation::Or, low, high)
    }

    /// What comes behind an extension header that is passed, where that is, and whether segments of a route are left.
    fn behind_extension(
        &mut self,
        [next, at, segments]: [Operand; 3],
        end: Operand,
        none: &mut Absent,
    ) -> [Operand; 3] {
        let left = self.calculate(Operation::Subtract, end, at);
        self.leave_if(Condition::Below, left, 8, none);
        let first = self.load(at, 4);
        let is_fragment = self.compare(Condition::Equal, next, i64::from(protocol::FRAGMENT));
        // What follows a later fragment is the middle of something.
        let offset = self.calculate(Operation::And, first, 0xfff8);
        let later = self.calculate(Operation::Multiply, offset, is_fragment);
        self.leave_if(Condition::NotEqual, later, 0, none);
        let units = self.part(first, 16, 0xff);
        let more = self.calculate(Operation::Add, units, 1);
        let size = self.calculate(Operation::Multiply, more, 8);
        let more = self.calculate(Operation::Add, units, 2);
        let short = self.calculate(Operation::Multiply, more, 4);
        let size = self.select(Condition::Equal, next, i64::from(protocol::AUTHENTICATION), [short, size]);
        let size = self.select(Condition::NotEqual, is_fragment, 0, [8.into(), size]);
        self.leave_if(Condition::Below, left, size, none);
        let routing = self.compare(Condition::Equal, next, i64::from(protocol::ROUTING));
        let here = self.calculate(Operation::And, first, 0xff);
        let here = self.calculate(Operation::Multiply, here, routing);
        let segments = self.calculate(Operation::Or, segments, here);
        let then = self.calculate(Operation::ShiftRight, first, 24);
        let behind = self.calculate(Operation::Add, at, size);
        [then, behind, segments]
    }

    /// Bits of a number.
    fn part(&mut self, number: Operand, behind: i64, mask: i64) -> Operand {
        let shifted = self.calculate(Operation::ShiftRight, number, behind);
        self.calculate(Operation::And, shifted, mask)
    }

    /// The transport checksum, if there is one; what there is `without` it.
    fn transport(
        &mut self,
        without: Vec<Operand>,
        addresses: [Operand; 2],
        number: Operand,
        [start, end]: [Operand; 2],
        icmp: u8,
        ends: &mut Vec<State>,
    ) {
        let left = self.calculate(Operation::Subtract, end, start);
        for (wanted, offset) in
            [(protocol::TCP, tcp::CHECKSUM_OFFSET), (protocol::UDP, udp::CHECKSUM_OFFSET), (icmp, 2)]
        {
            let (this, others) = self.any(number, &[i64::from(wanted)]);
            self.state = this;
            let mut short = Vec::new();
            self.leave_if(Condition::Below, left, offset as i64 + 2, &mut short);
            let field = self.calculate(Operation::Add, start, offset as i64);
            // ICMP of IPv4 has no pseudo-header.
            let [from, to] = if wanted == protocol::ICMPV4 { [0.into(); 2] } else { addresses };
            let udp = Operand::Constant(i64::from(wanted == protocol::UDP));
            let ports = if wanted == icmp { 0.into() } else { start };
            let own = [from, to, start, end, field, udp, without[8], i64::from(wanted).into(), ports];
            let parts = without[..2].iter().copied().chain(own).collect();
            ends.extend(self.state.take().map(|state| laid_out(state, parts)));
            ends.extend(short.into_iter().map(|state| laid_out(state, without.clone())));
            self.state = others;
        }
        ends.extend(self.state.take().map(|state| laid_out(state, without.clone())));
    }

    /// Two bytes in the packet, where it is known that they are there.
    pub(super) fn word(&mut self, from: Operand, offset: i64) -> Operand {
        let offset = self.calculate(Operation::Add, from, offset);
        self.load(offset, 2)
    }

    /// The one number or the other.
    pub(super) fn select(
        &mut self,
        condition: Condition,
        left: Operand,
        right: impl Into<Operand>,
        [then, otherwise]: [Operand; 2],
    ) -> Operand {
        let right = right.into();
        let holds = self.compare(condition, left, right);
        if let Operand::Constant(holds) = holds {
            return if holds != 0 { then } else { otherwise };
        }
        let difference = self.calculate(Operation::Subtract, then, otherwise);
        let difference = self.calculate(Operation::Multiply, difference, holds);
        let chosen = self.calculate(Operation::Add, otherwise, difference);
        let ranges = [(then, true), (otherwise, false)].map(|(chosen, holds)| {
            let [is_left, is_right] = [left, right].map(|one| one == chosen);
            match self.ranges_if(condition, [left, right], holds) {
                Some([range, _]) if is_left => range,
                Some([_, range]) if is_right => range,
                _ => self.range(chosen),
            }
        });
        if chosen != then && chosen != otherwise {
            self.within_all(chosen, &ranges);
        }
        chosen
    }

    /// Parts ways by whether a number is one of these.
    pub(super) fn any(&mut self, value: Operand, numbers: &[i64]) -> (Option<State>, Option<State>) {
        let mut found = Vec::new();
        for number in numbers {
            let (this, others) = self.branch(Condition::Equal, value, Operand::Constant(*number));
            found.extend(this);
            self.state = others;
        }
        let others = self.state.take();
        self.join(found);
        (self.state.take(), others)
    }

    /// Has this way meet another, each with its numbers.
    pub(super) fn merge<const N: usize>(
        &mut self,
        keys: &[Key; N],
        here: [Operand; N],
        other: Option<State>,
        there: [Operand; N],
    ) -> [Operand; N] {
        for (key, value) in keys.iter().zip(here) {
            self.set(key.clone(), Slot::integer(value));
        }
        let other = other.map(|mut state| {
            state.variables.extend(keys.iter().cloned().zip(there.map(Slot::integer)));
            state
        });
        let here = self.state.take();
        self.join(here.into_iter().chain(other));
        keys.each_ref().map(|key| self.take(key).parts.first().copied().unwrap_or(Operand::Constant(0)))
    }
}

fn laid_out(mut state: State, parts: Vec<Operand>) -> State {
    state.variables.insert(Key::Layout, Slot::new(Shape::Layout, parts));
    state
}

fn without_transport([from, to]: [Operand; 2], addresses: Operand, number: Operand) -> Vec<Operand> {
    let none = Operand::Constant(0);
    vec![from, to, none, none, none, none, none, none, addresses, number, none]
}
