//! What the compiler knows of a Lua value: its shape, which is fixed, and the numbers in it, which the packet decides.

use std::sync::Arc;

use super::ir::Operand;
use super::known::Known;
use super::logging::DOTS;
use super::shared::{FLOW_KEY, Shared};
use crate::kind::Kind;
use crate::protocol::ProtocolId;

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// nil
    Nil,
    /// true or false: one part, 1 or 0.
    Boolean,
    /// One part.
    Integer,
    /// A string that is known.
    Text(Arc<[u8]>),
    /// A string that stands in the packet: its offset and length, in bytes; of one [with dots](Look) also which octets these
    /// are, a bit for each, from the highest of the first number on.
    PacketText(Written, Look),
    /// What a field of the kind mac, ipv4 or ipv6 has: its octets as one number, an IPv6 address as two.
    Address(Kind),
    /// A header in the packet: see [`Header`].
    View(Header),
    /// A field of such a header, by its number; the same parts.
    Field(Header, usize),
    /// A byte array that is a part of the packet: its offset in the packet and its length, in bytes.
    Bytes(Resized),
    /// nil, or this: one part more before the others, 1 if it is there.
    Optional(Box<Shape>),
    /// One of these: its tag, and the parts of all of them.
    OneOf(Vec<(i64, Shape)>),
    /// A flow in one of the tables: its key, and 1 if this packet goes from the greater end to the lesser.
    Flow(Arc<Shared>),
    /// A stream that was decided: the verdict.
    Stream,
    /// Which checksums of the packet cover what: see [`super::lower`].
    Layout,
    /// What is known before any packet: functions, libraries, protocols.
    Known(Known),
    /// It was refused already, or is one thing on one way and another on another: to use it is refused.
    Unclear,
}

/// A header in the packet. Its parts: offset from the beginning of the Ethernet header and length, both in bytes; and for
/// each step of the protocol's declaration that lengthens a field, by how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// What it is seen as.
    pub(super) protocol: ProtocolId,
    /// How many such steps there are.
    pub(super) moves: usize,
    /// The headers before it say that it is this; of `packet_raw`, it is the whole packet.
    pub(super) certain: bool,
    /// It is what the Ethernet header holds.
    pub(super) outermost: bool,
    /// When it was made.
    pub(super) since: Resized,
}

impl Header {
    /// It is the whole packet.
    pub(super) fn is_whole(&self) -> bool {
        self.certain && self.protocol == ProtocolId::RAW
    }
}

/// How a string of the packet differs from its octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// It is in lower case.
    pub(super) lower: bool,
    /// It is a name of DNS, with dots where the lengths of labels stand.
    pub(super) dotted: bool,
}

/// What was written to the packet before: nothing was between two places that have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written(pub(super) u32);

/// How the packet came to be as long as it is: its octets have not moved between two places that have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resized(pub(super) u32);

/// Parts of [`Shape::Layout`].
pub(super) const LAYOUT: usize = 11;

impl Shape {
    /// How many numbers there are in it.
    pub(super) fn parts(&self) -> usize {
        match self {
            Shape::Nil | Shape::Text(_) | Shape::Known(_) | Shape::Unclear => 0,
            Shape::Boolean | Shape::Integer | Shape::Stream => 1,
            Shape::Address(kind) => 1 + usize::from(*kind == Kind::Ipv6),
            Shape::PacketText(_, Look { dotted: true, .. }) => 2 + DOTS,
            Shape::Bytes(_) | Shape::PacketText(..) => 2,
            Shape::View(header) | Shape::Field(header, _) => 2 + header.moves,
            Shape::Flow(_) => FLOW_KEY + 1,
            Shape::Layout => LAYOUT,
            Shape::Optional(shape) => 1 + shape.parts(),
            Shape::OneOf(shapes) => 1 + shapes.iter().map(|(_, shape)| shape.parts()).sum::<usize>(),
        }
    }

    /// As messages call it.
    pub(super) fn name(&self) -> String {
        match self {
            Shape::Nil => "nil".to_owned(),
            Shape::Boolean => "a boolean".to_owned(),
            Shape::Integer => "an integer".to_owned(),
            Shape::Text(_) => "a string".to_owned(),
            Shape::PacketText(..) => "a string of the packet".to_owned(),
            Shape::Address(kind) => format!("an address ({kind})"),
            Shape::View(_) => "a view".to_owned(),
            Shape::Field(..) => "a field".to_owned(),
            Shape::Bytes(_) => "a byte array".to_owned(),
            Shape::Flow(_) => "a flow".to_owned(),
            Shape::Stream => "a stream".to_owned(),
            Shape::Optional(shape) => format!("nil or {}", shape.name()),
            Shape::OneOf(shapes) => {
                let names: Vec<_> = shapes.iter().map(|(_, shape)| shape.name()).collect();
                names.join(" or ")
            }
            Shape::Known(known) => known.name(),
            Shape::Layout | Shape::Unclear => "one thing here and another there".to_owned(),
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) shape: Shape,
    pub(super) parts: Vec<Operand>,
}

impl Slot {
    pub(super) fn new(shape: Shape, parts: impl Into<Vec<Operand>>) -> Self {
        Slot { shape, parts: parts.into() }
    }

    pub(super) fn nil() -> Self {
        Slot::new(Shape::Nil, [])
    }

    pub(super) fn unclear() -> Self {
        Slot::new(Shape::Unclear, [])
    }

    pub(super) fn boolean(value: impl Into<Operand>) -> Self {
        Slot::new(Shape::Boolean, [value.into()])
    }

    pub(super) fn integer(value: impl Into<Operand>) -> Self {
        Slot::new(Shape::Integer, [value.into()])
    }

    pub(super) fn text(bytes: &[u8]) -> Self {
        Slot::new(Shape::Text(bytes.into()), [])
    }

    /// What is known of the top level, as what it would be here.
    pub(super) fn known(known: Known) -> Slot {
        match known {
            Known::Nil => Slot::nil(),
            Known::Boolean(value) => Slot::boolean(i64::from(value)),
            Known::Integer(value) => Slot::integer(value),
            Known::String(bytes) => Slot::new(Shape::Text(bytes), []),
            known => Slot::new(Shape::Known(known), []),
        }
    }

    /// Its parts as those of a shape that it may have where ways meet. None: nobody will look at it.
    pub(super) fn parts_as(&self, shape: &Shape) -> Vec<Option<Operand>> {
        let own = |parts: &[Operand]| -> Vec<_> { parts.iter().copied().map(Some).collect() };
        match shape {
            shape if *shape == self.shape => own(&self.parts),
            Shape::Optional(inner) => {
                let (there, rest) = match &self.shape {
                    Shape::Nil => (Operand::Constant(0), vec![None; inner.parts()]),
                    Shape::Optional(own) => {
                        (self.parts[0], Slot::new((**own).clone(), &self.parts[1..]).parts_as(inner))
                    }
                    _ => (Operand::Constant(1), self.parts_as(inner)),
                };
                [Some(there)].into_iter().chain(rest).collect()
            }
            Shape::OneOf(shapes) => {
                let variants = self.variants();
                let tag = match &self.shape {
                    Shape::OneOf(_) => self.parts[0],
                    own => shapes.iter().find(|(_, shape)| shape == own).map_or(0, |(tag, _)| *tag).into(),
                };
                let parts = shapes.iter().flat_map(|(_, shape)| {
                    let variant = variants.iter().find(|slot| slot.shape == *shape);
                    variant.map_or_else(|| vec![None; shape.parts()], |slot| own(&slot.parts))
                });
                [Some(tag)].into_iter().chain(parts).collect()
            }
            shape => vec![None; shape.parts()],
        }
    }

    /// What it may be, one by one.
    pub(super) fn variants(&self) -> Vec<Slot> {
        let Shape::OneOf(shapes) = &self.shape else { return vec![self.clone()] };
        let mut from = 1;
        let mut variants = Vec::new();
        for (_, shape) in shapes {
            variants.push(Slot::new(shape.clone(), &self.parts[from..from + shape.parts()]));
            from += shape.parts();
        }
        variants
    }

    /// What it is if it is not nil.
    pub(super) fn present(&self) -> Slot {
        match &self.shape {
            Shape::Optional(shape) => Slot::new((**shape).clone(), &self.parts[1..]),
            _ => self.clone(),
        }
    }

    /// Whether Lua takes it for true, if that is known.
    pub(super) fn truth(&self) -> Option<bool> {
        match (&self.shape, self.parts.first()) {
            (Shape::Nil, _) => Some(false),
            (Shape::Boolean | Shape::Optional(_), Some(Operand::Constant(value))) => Some(*value != 0),
            (Shape::Boolean | Shape::Optional(_) | Shape::Unclear, _) => None,
            _ => Some(true),
        }
    }
}
