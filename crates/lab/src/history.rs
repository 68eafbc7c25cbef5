//! Whether what several clients were told at the same time can have happened one after another: a checker of
//! linearizability, after Wing and Gong ("Testing and verifying concurrent objects", 1993), with Lowe's memory of what was
//! tried.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Instant;

/// What a client has done.
#[derive(Clone, Debug)]
pub struct Operation<T> {
    /// What, with what it was told.
    pub what: T,
    /// It has not happened before this.
    pub called: Instant,
    /// It has happened when it was told. None: nobody was told; it may have happened at any time since, or not at all.
    pub returned: Option<Instant>,
}

/// What is linearizable: a thing with a state, and operations on it.
pub trait Object {
    /// Its state.
    type State: Clone + Eq + Hash;
    /// An operation, with what a client was told.
    type Operation;

    /// The state after an operation; none if it could not have told in this state what it has told.
    fn step(state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;
}

/// Whether all operations can have happened one after another, each between its call and its return. Otherwise the longest
/// order that was found, by places in `history`.
///
/// # Errors
/// With that order, if they cannot.
pub fn check<O: Object>(begin: O::State, history: &[Operation<O::Operation>]) -> Result<(), Vec<usize>> {
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|place| history[*place].called);
    let told = history.iter().filter(|operation| operation.returned.is_some()).count();
    let mut tried = HashSet::new();
    let mut best = Vec::new();
    // A way so far: the places that have happened, the state, and which of `order` is to be tried next.
    let mut way = vec![(usize::MAX, begin, 0)];
    let mut happened = vec![false; history.len()];
    let mut happened_and_told = 0;
    while let Some((_, state, next)) = way.last_mut() {
        if happened_and_told == told {
            return Ok(());
        }
        // What was called after another one has returned cannot have happened before that.
        let undone = || order.iter().copied().filter(|place| !happened[*place]);
        let first_return = undone().filter_map(|place| history[place].returned).min();
        let from = *next;
        let step = order.iter().enumerate().skip(from).find_map(|(at, place)| {
            let operation = &history[*place];
            if happened[*place] || first_return.is_some_and(|first| operation.called > first) {
                return None;
            }
            let after = O::step(state, &operation.what)?;
            let mut done = happened.clone();
            done[*place] = true;
            tried.insert((done, after.clone())).then_some((at, *place, after))
        });
        match step {
            Some((at, place, after)) => {
                *next = at + 1;
                happened[place] = true;
                happened_and_told += usize::from(history[place].returned.is_some());
                way.push((place, after, 0));
                if way.len() > best.len() + 1 {
                    best = way.iter().skip(1).map(|(place, _, _)| *place).collect();
                }
            }
            None => {
                let Some((place, _, _)) = way.pop() else { break };
                if place == usize::MAX {
                    break;
                }
                happened[place] = false;
                happened_and_told -= usize::from(history[place].returned.is_some());
            }
        }
    }
    Err(best)
}

/// A register that is read, and replaced where it is what was expected.
#[derive(Debug)]
pub struct Register;

/// An operation on a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnRegister {
    /// This was read.
    Read(Option<u64>),
    /// It was this, and is that now.
    Replaced(Option<u64>, u64),
    /// It was not this.
    Refused(Option<u64>),
}

impl Object for Register {
    type State = Option<u64>;
    type Operation = OnRegister;

    fn step(state: &Option<u64>, operation: &OnRegister) -> Option<Option<u64>> {
        match operation {
            OnRegister::Read(value) => (state == value).then_some(*state),
            OnRegister::Replaced(expected, value) => (state == expected).then_some(Some(*value)),
            OnRegister::Refused(expected) => (state != expected).then_some(*state),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    /// Operations with the times of call and return, `None` for one that nobody was told of.
    fn verdict(operations: &[(OnRegister, u64, Option<u64>)]) -> bool {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let history: Vec<Operation<OnRegister>> = operations
            .iter()
            .map(|(what, called, returned)| Operation {
                what: what.clone(),
                called: at(*called),
                returned: returned.map(at),
            })
            .collect();
        check::<Register>(None, &history).is_ok()
    }

    use OnRegister::{Read, Refused, Replaced};

    #[test]
    fn one_after_another_each_is_told_what_was_before() {
        assert!(verdict(&[
            (Replaced(None, 1), 0, Some(1)),
            (Read(Some(1)), 2, Some(3)),
            (Refused(None), 4, Some(5))
        ]));
    }

    #[test]
    fn an_old_value_is_not_read_after_a_new_one() {
        assert!(!verdict(&[(Replaced(None, 1), 0, Some(1)), (Read(None), 2, Some(3))]));
        // Not even where both are read while it is being written.
        let both = [(Replaced(None, 1), 0, Some(9)), (Read(Some(1)), 1, Some(2)), (Read(None), 3, Some(4))];
        assert!(!verdict(&both));
        let other = [(Replaced(None, 1), 0, Some(9)), (Read(None), 1, Some(2)), (Read(Some(1)), 3, Some(4))];
        assert!(verdict(&other));
    }

    #[test]
    fn what_was_acknowledged_is_not_lost() {
        assert!(!verdict(&[
            (Replaced(None, 1), 0, Some(1)),
            (Replaced(Some(1), 2), 2, Some(3)),
            (Replaced(Some(1), 3), 4, Some(5)),
        ]));
    }

    #[test]
    fn of_two_at_the_same_time_one_is_first() {
        let two = |a, b| [(a, 0, Some(5)), (b, 0, Some(5))];
        assert!(verdict(&two(Replaced(None, 1), Replaced(Some(1), 2))));
        assert!(!verdict(&two(Replaced(None, 1), Replaced(None, 2))));
        assert!(verdict(&two(Replaced(None, 1), Refused(None))));
    }

    #[test]
    fn what_nobody_was_told_may_happen_once_or_never_or_late() {
        let unknown = (Replaced(None, 1), 0, None);
        assert!(verdict(std::slice::from_ref(&unknown)));
        assert!(verdict(&[unknown.clone(), (Read(None), 1, Some(2)), (Read(Some(1)), 3, Some(4))]));
        assert!(!verdict(&[unknown.clone(), (Read(Some(1)), 1, Some(2)), (Read(None), 3, Some(4))]));
        assert!(!verdict(&[(Read(Some(1)), 0, Some(1)), (Replaced(None, 1), 2, None)]));
    }

    /// A register that really is one, asked by five at the same time, some of whom never hear; then one answer is changed.
    #[test]
    fn a_true_history_passes_and_a_false_one_does_not() {
        let mut random = rand_chacha::ChaCha8Rng::from_seed([7; 32]);
        let mut below = |limit: u64| u64::from(random.next_u32()) % limit;
        for _ in 0..50 {
            let (mut state, mut operations, mut free) = (None, Vec::new(), [0_u64; 5]);
            for number in 1..=200_u64 {
                let client = below(5) as usize;
                let happens = (number * 10).max(free[client]) + below(3);
                let called = free[client].max(happens.saturating_sub(below(30)));
                let returned = happens + below(30);
                free[client] = returned + 1;
                // They happen in the order of their numbers only if the times do: one at a time decides.
                if operations.last().is_some_and(|(_, _, _, before)| *before >= happens) {
                    continue;
                }
                let what = match below(3) {
                    0 => Read(state),
                    1 => {
                        let before = state.replace(number);
                        Replaced(before, number)
                    }
                    _ => Refused(Some(number + 1000)),
                };
                // Who was refused, or has read, was told.
                let told = (below(5) > 0 || !matches!(what, Replaced(..))).then_some(returned);
                operations.push((what, called, told, happens));
            }
            let mut history: Vec<_> =
                operations.into_iter().map(|(what, called, returned, _)| (what, called, returned)).collect();
            assert!(verdict(&history), "{history:?}");
            let read = history.iter().rposition(|(what, _, _)| matches!(what, Read(Some(_))));
            if let Some(read) = read {
                history[read].0 = Read(Some(1_000_000));
                assert!(!verdict(&history));
            }
        }
    }
}
