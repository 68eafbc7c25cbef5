//! Numbers as sums of others: what two of them have in common says how far they are apart, and a sum of a sum is one sum.

use super::{Linear, Lower, Range};
use crate::compile::ir::{Action, Operand, Operation, Value};

/// Numbers in a sum that is kept account of.
const MOST_TERMS: usize = 4;

impl Lower<'_> {
    fn linear(&self, operand: Operand) -> Linear {
        match operand {
            Operand::Constant(constant) => Linear { terms: Vec::new(), constant },
            Operand::Value(value) => {
                let known = self.sums.get(&value).cloned();
                known.unwrap_or_else(|| Linear { terms: vec![value], constant: 0 })
            }
        }
    }

    /// A sum or difference in its shortest form: what it is, or the instruction that makes it.
    pub(super) fn shortest(&self, action: &Action) -> Option<Result<Operand, (Action, Linear)>> {
        let Action::Calculate(operation @ (Operation::Add | Operation::Subtract), left, right) = *action
        else {
            return None;
        };
        let (left_sum, right_sum) = (self.linear(left), self.linear(right));
        let sum = match operation {
            Operation::Add => {
                let mut terms = [&left_sum.terms[..], &right_sum.terms].concat();
                terms.sort_unstable();
                Linear { terms, constant: left_sum.constant.wrapping_add(right_sum.constant) }
            }
            _ => {
                let (terms, rest) = apart(&left_sum.terms, &right_sum.terms);
                if !rest.is_empty() {
                    return None;
                }
                Linear { terms, constant: left_sum.constant.wrapping_sub(right_sum.constant) }
            }
        };
        if sum.terms.len() > MOST_TERMS {
            return None;
        }
        Some(match (&sum.terms[..], sum.constant) {
            ([], constant) => Ok(constant.into()),
            ([only], 0) => Ok((*only).into()),
            ([only], constant) => {
                Err((Action::Calculate(Operation::Add, (*only).into(), constant.into()), sum))
            }
            _ => Err((action.clone(), sum)),
        })
    }

    /// The least and the greatest that a number can be more than another, as integers.
    pub(super) fn distance(&self, left: Operand, right: Operand) -> Option<Range> {
        if left == right {
            return Some((0, 0));
        }
        // Both are small, so nothing is lost modulo 2^64.
        self.bounds(left).and(self.bounds(right))?;
        let own = self.distance_of(&self.linear(left), &self.linear(right), (0, 0));
        let (Some((left, more)), Some((right, less))) = (self.anchored(left), self.anchored(right)) else {
            return own;
        };
        let anchored = self.distance_of(&left, &right, (more.0 - less.1, more.1 - less.0));
        match (own, anchored) {
            (Some(own), Some(other)) => Some((own.0.max(other.0), own.1.min(other.1))),
            (own, other) => own.or(other),
        }
    }

    /// The same of sums, of which the first has so much more.
    fn distance_of(&self, left: &Linear, right: &Linear, more: Range) -> Option<Range> {
        let constant = left.constant.checked_sub(right.constant)?;
        let (left, right) = apart(&left.terms, &right.terms);
        let sum = |values: Vec<Value>| {
            values.into_iter().try_fold((0_i64, 0_i64), |(low, high), value| {
                let (least, most) = self.bounds(value.into())?;
                Some((low + least, high + most))
            })
        };
        let ((low, high), (least, most)) = (sum(left)?, sum(right)?);
        let [low, high] = [low - most + more.0, high - least + more.1];
        Some((constant.checked_add(low)?, constant.checked_add(high)?))
    }

    /// A sum with those numbers for its terms that these are so much more than, where they are not zero.
    fn anchored(&self, operand: Operand) -> Option<(Linear, Range)> {
        let Linear { terms, mut constant } = self.linear(operand);
        let (mut all, mut more) = (Vec::new(), (0, 0));
        for term in terms {
            match self.anchors.get(&term) {
                Some((base, (low, high))) if self.range(term.into()).0 > 0 => {
                    let base = self.linear(*base);
                    all.extend(base.terms);
                    constant = constant.checked_add(base.constant)?;
                    more = (more.0 + low, more.1 + high);
                }
                _ => all.push(term),
            }
        }
        all.sort_unstable();
        Some((Linear { terms: all, constant }, more))
    }
}

/// What is in one list and not in the other, and the other way round.
fn apart(one: &[Value], other: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let mut rest = other.to_vec();
    let own = one.iter().filter(|value| match rest.iter().position(|known| known == *value) {
        Some(place) => {
            rest.remove(place);
            false
        }
        None => true,
    });
    let own = own.copied().collect();
    (own, rest)
}
