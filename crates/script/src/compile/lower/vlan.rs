//! VLAN tags: `p:vlan_id()`, `p:push_vlan(id)`, `p:pop_vlan()`, as [`crate::vlan`] has them.

use super::view::Absent;
use super::{Link, Lower};
use crate::compile::attach_type::ADDRESSES;
use crate::compile::ir::{Action, Condition, Failure, Operand, Operation};
use crate::compile::slot::{Shape, Slot};
use crate::vlan::{LARGEST, TAGS};

/// Octets up to the end of a tag in a frame and of the EtherType behind it.
const TAGGED: i64 = 18;

impl Lower<'_> {
    /// `p:vlan_id()`: an integer, or nil.
    pub(super) fn vlan_id(&mut self, view: &Slot) -> Slot {
        if !self.has_tags(view) {
            return Slot::unclear();
        }
        self.optional(Self::tag)
    }

    fn tag(&mut self, absent: &mut Absent) -> Option<Slot> {
        let key = self.temporary();
        let tag = self.emit(Action::Tag);
        let there = self.calculate(Operation::ShiftRight, tag, 16);
        let (beside, others) = self.branch(Condition::NotEqual, there, 0.into());
        self.state = beside;
        self.set(key.clone(), Slot::integer(tag));
        let mut found: Vec<_> = self.state.take().into_iter().collect();
        self.state = others;
        // At XDP the first tag is found as if it were beside the packet.
        if self.link == Link::There && self.state.is_some() {
            let length = self.emit(Action::Length);
            self.leave_if(Condition::Below, length, TAGGED, absent);
            let kind = self.load(ADDRESSES, 2);
            let (tagged, others) = self.one_of(kind, &TAGS.map(u64::from));
            absent.extend(others);
            self.state = tagged;
            let tag = self.load(ADDRESSES + 2, 2);
            self.set(key.clone(), Slot::integer(tag));
            found.extend(self.state.take());
        }
        absent.extend(self.state.take());
        if found.is_empty() {
            return None;
        }
        self.join(found);
        let tag = self.take(&key).parts.first().copied()?;
        Some(Slot::integer(self.calculate(Operation::And, tag, i64::from(LARGEST))))
    }

    /// `p:push_vlan(id)`
    pub(super) fn push_vlan(&mut self, view: &Slot, id: &Slot) -> Slot {
        if !self.has_tags(view) {
            return Slot::unclear();
        }
        let tag = self.integer(id.clone(), "the VLAN");
        self.fail_if(Condition::Below, i64::from(LARGEST), tag, Failure::WrongValue);
        self.emit(Action::PushTag { tag });
        self.moved();
        Slot::nil()
    }

    /// `p:pop_vlan()`: what it was.
    pub(super) fn pop_vlan(&mut self, view: &Slot) -> Slot {
        if !self.has_tags(view) {
            return Slot::unclear();
        }
        let id = self.optional(Self::tag);
        let there = match (&id.shape, id.parts.first()) {
            (Shape::Optional(_), Some(there)) => *there,
            (Shape::Integer, _) => Operand::Constant(1),
            _ => Operand::Constant(0),
        };
        let (tagged, others) = self.branch(Condition::NotEqual, there, 0.into());
        self.state = tagged;
        self.emit(Action::PopTag);
        let taken = self.state.take();
        self.join(taken.into_iter().chain(others));
        self.moved();
        id
    }

    fn moved(&mut self) {
        if self.state.is_some() {
            let length = self.emit(Action::Length);
            self.has_resized(length);
        }
    }

    fn has_tags(&mut self, view: &Slot) -> bool {
        let is_whole = matches!(view.shape, Shape::View(header) if header.is_whole());
        let has_link = !matches!(self.link, Link::MadeUp(_));
        if !is_whole {
            self.refuse("only the packet itself has a VLAN tag");
        } else if !has_link {
            self.refuse("VLAN tags are there at interfaces whose packets have a link header");
        }
        is_whole && has_link
    }
}
