//! `p:stream()`: a stream that was decided is the kernel's, all others are Lua's.

use std::sync::Arc;

use super::Lower;
use super::layout::FLOW;
use crate::compile::decided;
use crate::compile::ir::{Action, Condition, Operation};
use crate::compile::known::Known;
use crate::compile::shared::MapPart;
use crate::compile::slot::{Shape, Slot};
use crate::streams::AROUND;
use crate::vm::Verdict;
use wire::{protocol, tcp};

/// Flags of segments that begin or end a stream: Lua notes both.
const BEGINS_OR_ENDS: i64 = (tcp::SYN | tcp::FIN | tcp::RST) as i64;
const SEQUENCE: i64 = 4;
const UPPER_HALF: i64 = 1 << 31;
const FLAGS: i64 = 13;

impl Lower<'_> {
    /// `view:stream(streams)`: that of the packet, whatever the view.
    pub(super) fn stream(&mut self, arguments: &[Slot]) -> Slot {
        if !self.may_punt() {
            return self.refuse("streams are Lua's until they are decided");
        }
        let shared = match arguments {
            [] | [Slot { shape: Shape::Nil, .. }] => decided::default(),
            [Slot { shape: Shape::Known(Known::Streams(shared)), .. }] => Arc::clone(shared),
            _ => return self.refuse("stream: what is given is no table of streams"),
        };
        let map = self.map_of(&shared, MapPart::Entries);
        self.optional(|lower, absent| {
            let layout = lower.layout();
            let [_, number, segment] = layout.get(FLOW..)?.try_into().ok()?;
            lower.leave_if(Condition::NotEqual, number, i64::from(protocol::TCP), absent);
            lower.leave_if(Condition::Equal, segment, 0, absent);
            let [sequence, flags] = [(SEQUENCE, 4), (FLAGS, 1)].map(|(at, bytes)| {
                let at = lower.calculate(Operation::Add, segment, at);
                lower.load(at, bytes)
            });
            let mut key = lower.flow_key(absent)?;
            let reversed = key.pop()?;
            let direction = lower.calculate(Operation::ShiftLeft, reversed, i64::from(decided::DIRECTION));
            key[0] = lower.calculate(Operation::Or, key[0], direction);

            let verdict = lower.temporary();
            let flags = lower.calculate(Operation::And, flags, BEGINS_OR_ENDS);
            let (asks, goes_on) = lower.branch(Condition::NotEqual, flags, 0.into());
            let mut asks: Vec<_> = asks.into_iter().collect();
            lower.state = goes_on;
            let there = lower.emit(Action::Lookup { map, key: key.clone(), first: 1, words: 1 });
            let (there, unknown) = lower.branch(Condition::NotEqual, there, 0.into());
            asks.extend(unknown);
            lower.state = there;
            let [upper, value] = [0, 1].map(|word| lower.emit(Action::Value { word }));
            let (refused, accepted) = lower.branch(Condition::Equal, value, 0.into());
            lower.state = refused;
            lower.set(verdict.clone(), Slot::integer(Verdict::Drop.value()));
            let refused = lower.state.take();
            lower.state = accepted;
            let from = lower.calculate(Operation::And, value, 0xffff_ffff);
            let count = lower.calculate(Operation::ShiftRight, value, 32);
            let distance = lower.calculate(Operation::Subtract, sequence, from);
            let distance = lower.calculate(Operation::And, distance, 0xffff_ffff);
            let (examined, free) = lower.branch(Condition::Below, distance, count);
            lower.state = examined;
            let (first, again) = lower.branch(Condition::Below, upper, AROUND.cast_signed().into());
            asks.extend(first);
            lower.state = free;
            let (lower_half, upper_half) = lower.branch(Condition::Below, distance, UPPER_HALF.into());
            lower.state = upper_half;
            let length = lower.packet_length();
            let upper = lower.calculate(Operation::Add, upper, length);
            lower.emit(Action::Put { map, key, word: 0, value: upper, now: upper });
            let accepted = [again, lower_half, lower.state.take()];
            lower.join(accepted.into_iter().flatten());
            lower.set(verdict.clone(), Slot::integer(Verdict::Accept.value()));
            let accepted = lower.state.take();

            lower.join(asks);
            lower.refuse("streams are Lua's until they are decided");
            lower.join(refused.into_iter().chain(accepted));
            lower.state.as_ref()?;
            let verdict = lower.take(&verdict).parts;
            Some(Slot::new(Shape::Stream, verdict))
        })
    }

    /// `stream:decided()`; the rest is asked of streams that are not.
    pub(super) fn stream_method(&mut self, stream: &Slot, name: &str, arguments: &[Slot]) -> Slot {
        match (name, arguments) {
            ("decided", []) => Slot::integer(stream.parts[0]),
            _ => self.refuse(format!("'{name}' of a stream is Lua's")),
        }
    }
}
