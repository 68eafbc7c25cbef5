//! What the compiler knows of a Lua value: its shape, which is fixed, and the numbers in it, which the packet decides.

use std::sync::Arc;

use super::ir::Operand;
use super::known::Known;

/// What a value is. Where ways meet, it has to be the same on each: that is what "typed" means here.
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
    /// A part of the packet: its offset from the beginning of the Ethernet header, and its length, both in bytes.
    Raw,
    /// A byte array that is a part of the packet: the same.
    Bytes,
    /// nil, or this: one part more before the others, 1 if it is there.
    Optional(Box<Shape>),
    /// What is known before any packet: functions, libraries, protocols.
    Known(Known),
    /// It was refused already, or is one thing on one way and another on another: to use it is refused.
    Unclear,
}

impl Shape {
    /// How many numbers there are in it.
    pub(super) fn parts(&self) -> usize {
        match self {
            Shape::Nil | Shape::Text(_) | Shape::Known(_) | Shape::Unclear => 0,
            Shape::Boolean | Shape::Integer => 1,
            Shape::Raw | Shape::Bytes => 2,
            Shape::Optional(shape) => 1 + shape.parts(),
        }
    }

    /// What a value is that is one of these.
    pub(super) fn or(&self, other: &Shape) -> Shape {
        let optional = |shape: &Shape| match shape {
            Shape::Optional(_) | Shape::Unclear => shape.clone(),
            shape => Shape::Optional(Box::new(shape.clone())),
        };
        match (self, other) {
            (one, other) if one == other => one.clone(),
            (Shape::Nil, shape) | (shape, Shape::Nil) => optional(shape),
            (Shape::Optional(inner), shape) | (shape, Shape::Optional(inner)) if **inner == *shape => {
                optional(shape)
            }
            _ => Shape::Unclear,
        }
    }

    /// As messages call it.
    pub(super) fn name(&self) -> String {
        match self {
            Shape::Nil => "nil".to_owned(),
            Shape::Boolean => "a boolean".to_owned(),
            Shape::Integer => "an integer".to_owned(),
            Shape::Text(_) => "a string".to_owned(),
            Shape::Raw => "a part of the packet".to_owned(),
            Shape::Bytes => "a byte array".to_owned(),
            Shape::Optional(shape) => format!("nil or {}", shape.name()),
            Shape::Known(known) => known.name(),
            Shape::Unclear => "one thing here and another there".to_owned(),
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

    /// Its parts as those of a shape that it may have by [`Shape::or`].
    pub(super) fn parts_as(&self, shape: &Shape) -> Vec<Operand> {
        match shape {
            Shape::Unclear => Vec::new(),
            shape if *shape == self.shape => self.parts.clone(),
            Shape::Optional(inner) if **inner == self.shape => {
                [Operand::Constant(1)].into_iter().chain(self.parts.iter().copied()).collect()
            }
            shape => vec![Operand::Constant(0); shape.parts()],
        }
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
            (Shape::Nil, _) | (Shape::Known(Known::Nil), _) => Some(false),
            (Shape::Boolean | Shape::Optional(_), Some(Operand::Constant(value))) => Some(*value != 0),
            (Shape::Boolean | Shape::Optional(_) | Shape::Unclear, _) => None,
            _ => Some(true),
        }
    }
}
