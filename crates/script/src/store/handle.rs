//! What a script holds in place of a view or a protocol.

use crate::protocol::{MAX_FIELDS, ProtocolId};

const FIELD_BITS: u32 = 7;
const VIEW_BITS: u32 = if usize::BITS >= 64 { 16 } else { 12 };
const GENERATION_BITS: u32 = usize::BITS - VIEW_BITS - FIELD_BITS;
/// Of packets, views and fields in numbers: a handle that is none of a protocol has another generation.
const PROTOCOLS: usize = 0;

/// Stands for a view, for a field of one, or for a protocol: a number of a pointer's size, which Lua holds without
/// allocating anything. It is compared, never followed.
///
/// Generations begin again after 2^41 packets (2^13 where pointers have 32 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// Most views of one packet.
    pub(super) const MAX_VIEWS: usize = 1 << VIEW_BITS;

    /// Of a view; `field` is 0 for the view itself, otherwise one more than the field's position.
    pub(super) const fn new(generation: usize, view: usize, field: usize) -> Self {
        Self(generation << (VIEW_BITS + FIELD_BITS) | view << FIELD_BITS | field)
    }

    /// Of a protocol.
    pub const fn of_protocol(protocol: ProtocolId) -> Self {
        // Not zero even for the first one: that would be a null pointer.
        Self(Self::new(PROTOCOLS, 0, 0).0 + protocol.0 as usize + 1)
    }

    /// The handle that has become this number; any number is one.
    pub const fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// As a number.
    pub const fn number(self) -> usize {
        self.0
    }

    /// The protocol that it stands for, unless it is a view or a field.
    pub fn protocol(self) -> Option<ProtocolId> {
        if self.generation() != PROTOCOLS {
            return None;
        }
        self.0.checked_sub(1).and_then(|number| u16::try_from(number).ok()).map(ProtocolId)
    }

    /// The generation after `generation`; never that of protocols.
    pub(super) const fn next_generation(generation: usize) -> usize {
        let next = generation + 1;
        if next >> GENERATION_BITS == 0 { next } else { 1 }
    }

    pub(super) const fn generation(self) -> usize {
        self.0 >> (VIEW_BITS + FIELD_BITS)
    }

    pub(super) const fn view(self) -> usize {
        self.0 >> FIELD_BITS & (Self::MAX_VIEWS - 1)
    }

    /// 0 for the view itself, otherwise one more than the field's position.
    pub(super) const fn field(self) -> usize {
        self.0 & ((1 << FIELD_BITS) - 1)
    }

    /// Whether it stands for all of a packet or byte array.
    pub(crate) const fn is_whole(self) -> bool {
        self.0 & ((1 << (VIEW_BITS + FIELD_BITS)) - 1) == 0 && self.0 != 0
    }

    /// A field of the view.
    pub(super) const fn with_field(self, position: usize) -> Self {
        Self::new(self.generation(), self.view(), position + 1)
    }
}

const _: () = assert!(MAX_FIELDS < 1 << FIELD_BITS);
// Every protocol has a number below the first generation's.
const _: () = assert!(VIEW_BITS + FIELD_BITS > u16::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_a_protocol_or_of_a_view() {
        for number in [0, 1, u16::MAX] {
            let handle = Handle::of_protocol(ProtocolId(number));
            assert_eq!(handle.protocol(), Some(ProtocolId(number)));
            assert_ne!(handle.number(), 0);
        }
        let last = (1 << GENERATION_BITS) - 1;
        for (generation, view, field) in [(1, 0, 0), (7, 5, 3), (last, Handle::MAX_VIEWS - 1, MAX_FIELDS)] {
            let handle = Handle::from_number(Handle::new(generation, view, field).number());
            assert_eq!((handle.generation(), handle.view(), handle.field()), (generation, view, field));
            assert_eq!(handle.protocol(), None);
        }
        assert_eq!(Handle::next_generation(last), 1);
    }
}
