//! Values that are one thing on one way and another on another: all that is done with them is done for each.

use super::{Lower, Results};
use crate::compile::ir::{Condition, Operand};
use crate::compile::slot::{Shape, Slot};

/// What one value may be.
const MOST_VARIANTS: usize = 8;

impl Lower<'_> {
    /// What a value is that is one of these.
    pub(super) fn common(&mut self, one: &Shape, other: &Shape) -> Shape {
        if one == other {
            return one.clone();
        }
        let (one_nil, one) = without_nil(one);
        let (other_nil, other) = without_nil(other);
        let shape = match (one, other) {
            (None, None) => return Shape::Nil,
            (Some(shape), None) | (None, Some(shape)) => shape.clone(),
            (Some(one), Some(other)) => self.either(one, other),
        };
        match shape {
            Shape::Unclear => Shape::Unclear,
            shape if one_nil || other_nil => Shape::Optional(Box::new(shape)),
            shape => shape,
        }
    }

    fn either(&mut self, one: &Shape, other: &Shape) -> Shape {
        if one == other {
            return one.clone();
        }
        let mut shapes: Vec<(i64, Shape)> = Vec::new();
        for shape in [one, other] {
            match shape {
                Shape::Boolean | Shape::Layout | Shape::Unclear => return Shape::Unclear,
                Shape::OneOf(more) => shapes.extend(more.iter().cloned()),
                shape => {
                    let tag = self.tags.iter().position(|known| known == shape).unwrap_or_else(|| {
                        self.tags.push(shape.clone());
                        self.tags.len() - 1
                    });
                    shapes.push((tag as i64, shape.clone()));
                }
            }
        }
        shapes.sort_by_key(|(tag, _)| *tag);
        shapes.dedup_by_key(|(tag, _)| *tag);
        if shapes.len() > MOST_VARIANTS { Shape::Unclear } else { Shape::OneOf(shapes) }
    }

    /// Does something with what a value is, whatever that is.
    pub(super) fn each(&mut self, slot: &Slot, mut act: impl FnMut(&mut Self, &Slot) -> Slot) -> Slot {
        let results = self.each_of(slot, |lower, slot| act(lower, slot).into());
        results.values.into_iter().next().unwrap_or_else(Slot::unclear)
    }

    /// The same of what may give several values.
    pub(super) fn each_of(
        &mut self,
        slot: &Slot,
        mut act: impl FnMut(&mut Self, &Slot) -> Results,
    ) -> Results {
        let Shape::OneOf(shapes) = &slot.shape else { return act(self, slot) };
        let mut ends = Vec::new();
        let line = self.line;
        let variants = slot.variants();
        for (number, ((tag, _), variant)) in shapes.iter().zip(&variants).enumerate() {
            let mut others = None;
            if number + 1 < variants.len() {
                let (this, rest) = self.branch(Condition::Equal, slot.parts[0], Operand::Constant(*tag));
                self.state = this;
                others = rest;
            }
            if self.state.is_some() {
                self.line = line;
                let results = act(self, variant);
                ends.extend(self.state.take().map(|state| (state, results)));
            }
            self.state = others;
        }
        self.line = line;
        self.join_results(ends)
    }
}

/// Whether it may be nil, and what else.
fn without_nil(shape: &Shape) -> (bool, Option<&Shape>) {
    match shape {
        Shape::Nil => (true, None),
        Shape::Optional(inner) => (true, Some(inner)),
        shape => (false, Some(shape)),
    }
}
