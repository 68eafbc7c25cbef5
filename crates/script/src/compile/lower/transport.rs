//! The transport protocol as nft(8) has it, for rules (`nft_set_pktinfo_ipv6`, `ipv6_find_hdr` in Linux): a header need not be
//! there as a whole, and a later fragment has the protocol that its fragment header says, but nothing of its header.

use super::view::Absent;
use super::{Key, Lower};
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::matching;
use crate::compile::slot::{Shape, Slot};
use crate::store::MAX_THROUGH;
use wire::protocol;

/// Headers of IPv6 behind which the protocol is looked for.
const BETWEEN: [i64; 5] = [
    protocol::HOP_BY_HOP as i64,
    protocol::ROUTING as i64,
    protocol::FRAGMENT as i64,
    protocol::AUTHENTICATION as i64,
    protocol::DESTINATION_OPTIONS as i64,
];
/// Units of eight octets that are not counted in a fragment offset.
const FLAGS: i64 = 7;

impl Lower<'_> {
    /// `ip:sidestep_transport(protocol, …)`: the octets that are there of a header of one of these, none in a later fragment; nil
    /// if the packet has none.
    pub(super) fn transport_of(&mut self, ip: &Slot, protocols: &[i64]) -> Slot {
        let Shape::View(header) = ip.shape else { return Slot::unclear() };
        let is_ipv6 = self.protocols.name(header.protocol) == "packet_ip6";
        self.optional(|lower, absent| {
            let known = lower.protocols;
            let parent = known.get(header.protocol)?;
            let payload = lower.payload(ip, parent, absent)?;
            let [number, at, left] = match is_ipv6 {
                true => lower.behind_ipv6(ip.parts[0], payload, absent),
                false => lower.behind_ipv4(ip.parts[0], payload),
            };
            let (this, others) = lower.any(number, protocols);
            absent.extend(others);
            lower.state = this;
            Some(Slot::new(Shape::Bytes(lower.resized()), [at, left]))
        })
    }

    fn behind_ipv4(&mut self, header: Operand, [start, length]: [Operand; 2]) -> [Operand; 3] {
        let at = self.calculate(Operation::Add, header, 9);
        let number = self.load(at, 1);
        let fragment = self.word(header, 6);
        let offset = self.calculate(Operation::And, fragment, 0x1fff);
        let left = self.select(Condition::Equal, offset, 0, [length, 0.into()]);
        [number, start, left]
    }

    fn behind_ipv6(
        &mut self,
        header: Operand,
        [mut at, mut left]: [Operand; 2],
        absent: &mut Absent,
    ) -> [Operand; 3] {
        let next_at = self.calculate(Operation::Add, header, 6);
        let mut next = self.load(next_at, 1);
        let keys: [Key; 3] = std::array::from_fn(|_| self.temporary());
        let mut found = Vec::new();
        for level in 0..=MAX_THROUGH {
            let (between, others) = self.any(next, &BETWEEN);
            self.state = others;
            self.set_all(&keys, [next, at, left]);
            found.extend(self.state.take());
            self.state = between;
            if level == MAX_THROUGH && self.is_in(matching::NAME) {
                // nft(8) would look on. If the rule did not hold here, the script would be passed by.
                self.fail(Failure::TooDeep);
            } else if level == MAX_THROUGH {
                absent.extend(self.state.take());
            }
            if self.state.is_none() {
                break;
            }
            let mut passed = Vec::new();
            self.leave_if(Condition::Below, left, 2, absent);
            let then = self.load(at, 1);
            let (fragment, others) =
                self.branch(Condition::Equal, next, i64::from(protocol::FRAGMENT).into());
            self.state = fragment;
            if self.state.is_some() {
                self.leave_if(Condition::Below, left, 4, absent);
                let field = self.word(at, 2);
                let offset = self.calculate(Operation::And, field, !FLAGS);
                let (first, later) = self.branch(Condition::Equal, offset, 0.into());
                self.state = later;
                let (between, transport) = self.any(then, &BETWEEN);
                absent.extend(between);
                self.state = transport;
                self.set_all(&keys, [then, at, 0.into()]);
                found.extend(self.state.take());
                self.state = first;
                self.behind(&keys, then, [at, left], 8.into());
                passed.extend(self.state.take());
            }
            self.state = others;
            if self.state.is_some() {
                let units_at = self.calculate(Operation::Add, at, 1);
                let units = self.load(units_at, 1);
                let eights = self.calculate(Operation::Multiply, units, 8);
                let fours = self.calculate(Operation::Multiply, units, 4);
                let is_auth = i64::from(protocol::AUTHENTICATION);
                let size = self.select(Condition::Equal, next, is_auth, [fours, eights]);
                let size = self.calculate(Operation::Add, size, 8);
                self.behind(&keys, then, [at, left], size);
                passed.extend(self.state.take());
            }
            self.join(passed);
            [next, at, left] = keys.each_ref().map(|key| self.take(key).parts[0]);
        }
        self.join(found);
        keys.each_ref().map(|key| self.take(key).parts.first().copied().unwrap_or(Operand::Constant(0)))
    }

    /// What comes behind a header of so many octets, of which the end need not be there.
    fn behind(&mut self, keys: &[Key; 3], next: Operand, [at, left]: [Operand; 2], size: Operand) {
        let rest = self.calculate(Operation::Subtract, left, size);
        let rest = self.select(Condition::Below, left, size, [0.into(), rest]);
        let behind = self.calculate(Operation::Add, at, size);
        self.set_all(keys, [next, behind, rest]);
    }
}
