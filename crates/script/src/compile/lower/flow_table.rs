//! `p:flow()`: what is kept of a flow, in a map of the kernel, as [`crate::packet::Packet::flow`] tells flows apart.

use std::sync::Arc;

use super::Lower;
use super::arithmetic::MAPPED;
use super::layout::FLOW;
use crate::compile::ir::{Action, Condition, Operand, Operation};
use crate::compile::known::Known;
use crate::compile::shared::{FLOW_KEY, Form, MapPart, Part, Shared};
use crate::compile::slot::{Shape, Slot};
use crate::kind::Kind;
use crate::tables;
use crate::vm::tables::{DEFAULT_FLOWS, MAX_FLOW_FIELDS};

/// Numbers of an entry: when it was written, the direction of the first packet, and then those with names.
const TIME: u8 = 0;
const DIRECTION: u8 = 1;
const NAMED: u8 = 2;

impl Lower<'_> {
    /// `view:flow(flows)`: that of the packet, whatever the view.
    pub(super) fn flow(&mut self, arguments: &[Slot]) -> Slot {
        let (name, shape) = match arguments {
            [] | [Slot { shape: Shape::Nil, .. }] => (String::new(), DEFAULT_FLOWS),
            [Slot { shape: Shape::Known(Known::Shared(shared)), .. }]
                if let Form::Flows { shape, .. } = &shared.form =>
            {
                (shared.name.clone(), *shape)
            }
            _ => return self.refuse("flow: what is given is no table of flows"),
        };
        let names: Vec<_> = self.chunk.fields.iter().cloned().collect();
        if names.len() > MAX_FLOW_FIELDS {
            return self.refuse(format!("flow: the file names more than {MAX_FLOW_FIELDS} fields"));
        }
        let count = names.len();
        let shared =
            Arc::new(Shared { name, form: Form::Flows { shape, names }, persistent: false, metric: None });
        let map = self.map(&shared, MapPart::Entries);
        self.optional(|lower, absent| {
            let mut key = lower.flow_key(absent)?;
            let reversed = key.pop()?;
            let there = lower.alive_flow(map, &shape, &key, DIRECTION);
            let (there, new) = lower.branch(Condition::NotEqual, there, 0.into());
            lower.state = there;
            let now = lower.now(&shape);
            lower.emit(Action::Put { map, key: key.clone(), word: TIME, value: now, now });
            let there = lower.state.take();
            lower.state = new;
            let stored = lower.new_flow(map, &shape, key.clone(), reversed, vec![0.into(); count]);
            lower.leave_if(Condition::Equal, stored, 0, absent);
            let new = lower.state.take();
            lower.join(there.into_iter().chain(new));
            key.push(reversed);
            Some(Slot::new(Shape::Flow(shared.clone()), key))
        })
    }

    /// The key of the packet's flow, and whether it goes from the greater end to the lesser.
    pub(super) fn flow_key(&mut self, absent: &mut super::view::Absent) -> Option<Vec<Operand>> {
        let layout = self.layout();
        let [addresses, protocol, ports_at] = layout.get(FLOW..)?.try_into().ok()?;
        let header = layout[0];
        self.leave_if(Condition::Equal, addresses, 0, absent);
        let keys = [(); 5].map(|()| self.temporary());
        let (ipv4, ipv6) = self.branch(Condition::NotEqual, header, 0.into());
        self.state = ipv6;
        let own = [0, 8, 16, 24].map(|at| {
            let at = self.calculate(Operation::Add, addresses, at);
            self.load(at, 8)
        });
        self.set_all(&keys[..4], own);
        let ipv6 = self.state.take();
        self.state = ipv4;
        let [source, destination] = [0, 4].map(|at| {
            let at = self.calculate(Operation::Add, addresses, at);
            let address = self.load(at, 4);
            self.calculate(Operation::Or, address, MAPPED)
        });
        self.set_all(&keys[..4], [0.into(), source, 0.into(), destination]);
        let ipv4 = self.state.take();
        self.join(ipv4.into_iter().chain(ipv6));
        let (none, some) = self.branch(Condition::Equal, ports_at, 0.into());
        self.state = some;
        let ports = self.load(ports_at, 4);
        self.set_all(&keys[4..], [ports]);
        let some = self.state.take();
        self.state = none;
        self.set_all(&keys[4..], [0.into()]);
        let none = self.state.take();
        self.join(none.into_iter().chain(some));
        self.state.as_ref()?;
        let [source_high, source_low, destination_high, destination_low, ports] =
            keys.each_ref().map(|key| self.take(key).parts.first().copied().unwrap_or(0.into()));

        let source_port = self.calculate(Operation::ShiftRight, ports, 16);
        let destination_port = self.calculate(Operation::And, ports, 0xffff);
        // Whether the source is the greater: by the first number in which they differ.
        let mut reversed = self.compare(Condition::Below, destination_port, source_port);
        for (from, to) in [(source_low, destination_low), (source_high, destination_high)] {
            let same = self.compare(Condition::Equal, from, to);
            let greater = self.compare(Condition::Below, to, from);
            let reversed_so = self.calculate(Operation::And, same, reversed);
            reversed = self.calculate(Operation::Or, reversed_so, greater);
        }
        let mask = self.calculate(Operation::Subtract, 0, reversed);
        let mut ordered = |one: Operand, other: Operand| {
            let differ = self.calculate(Operation::Xor, one, other);
            let differ = self.calculate(Operation::And, differ, mask);
            [self.calculate(Operation::Xor, one, differ), self.calculate(Operation::Xor, other, differ)]
        };
        let [low_high, high_high] = ordered(source_high, destination_high);
        let [low_low, high_low] = ordered(source_low, destination_low);
        let [low_port, high_port] = ordered(source_port, destination_port);
        let mut first = self.calculate(Operation::ShiftLeft, protocol, 32);
        for (port, by) in [(low_port, 16), (high_port, 0)] {
            let port = self.calculate(Operation::ShiftLeft, port, by);
            first = self.calculate(Operation::Or, first, port);
        }
        Some(vec![first, low_high, low_low, high_high, high_low, reversed])
    }

    pub(super) fn set_all<const N: usize>(&mut self, keys: &[super::Key], values: [Operand; N]) {
        for (key, value) in keys.iter().zip(values) {
            self.set(key.clone(), Slot::integer(value));
        }
    }

    /// 1 if there is such a flow that has not expired; this number of it can be read then.
    fn alive_flow(&mut self, map: usize, shape: &tables::Shape, key: &[Operand], word: u8) -> Operand {
        let there = self.emit(Action::Lookup { map, key: key.to_vec(), first: word, words: 1 });
        self.unless_old(shape, there)
    }

    /// Begins a flow with these integers: 1, or 0 if the table is full.
    fn new_flow(
        &mut self,
        map: usize,
        shape: &tables::Shape,
        key: Vec<Operand>,
        reversed: Operand,
        integers: Vec<Operand>,
    ) -> Operand {
        let now = self.now(shape);
        let value = [now, reversed].into_iter().chain(integers).collect();
        self.emit(Action::Update { fresh: false, map, key, value })
    }

    /// `flow:is_reply()`, `flow:forget()`
    pub(super) fn flow_method(
        &mut self,
        shared: &Arc<Shared>,
        flow: &Slot,
        name: &str,
        arguments: &[Slot],
    ) -> Slot {
        let Form::Flows { shape, .. } = &shared.form else { return Slot::unclear() };
        let (map, (key, reversed)) = (self.map(shared, MapPart::Entries), flow.parts.split_at(FLOW_KEY));
        let there = self.alive_flow(map, shape, key, DIRECTION);
        match (name, arguments) {
            ("is_reply", []) => {
                let first = self.emit(Action::Value { word: 1 });
                let other = self.calculate(Operation::Xor, first, reversed[0]);
                Slot::boolean(self.calculate(Operation::And, there, other))
            }
            ("forget", []) => {
                self.emit(Action::Delete { map, key: key.to_vec() });
                Slot::boolean(there)
            }
            _ => self.refuse(format!("a flow has no method '{name}' with these arguments")),
        }
    }

    /// `flow.name`
    pub(super) fn flow_field(&mut self, shared: &Arc<Shared>, flow: &Slot, name: &[u8]) -> Slot {
        let Some((map, shape, word)) = self.flow_place(shared, name) else { return Slot::unclear() };
        let there = self.alive_flow(map, &shape, &flow.parts[..FLOW_KEY], word);
        let value = self.emit(Action::Value { word: 1 });
        Slot::integer(self.calculate(Operation::Multiply, value, there))
    }

    /// `flow.name = value`
    pub(super) fn set_flow_field(&mut self, shared: &Arc<Shared>, flow: &Slot, name: &[u8], value: Slot) {
        let Some((map, shape, word)) = self.flow_place(shared, name) else { return };
        let Form::Flows { names, .. } = &shared.form else { return };
        let Some(value) = self.encoded(&[Part::Kind(Kind::Int)], &[value]) else { return };
        let (key, reversed) = flow.parts.split_at(FLOW_KEY);
        let there = self.alive_flow(map, &shape, key, word);
        let (there, gone) = self.branch(Condition::NotEqual, there, 0.into());
        self.state = there;
        let now = self.now(&shape);
        self.emit(Action::Put { map, key: key.to_vec(), word, value: value[0], now });
        let there = self.state.take();
        // It was forgotten since.
        self.state = gone;
        let mut integers = vec![Operand::Constant(0); names.len()];
        integers[usize::from(word - NAMED)] = value[0];
        self.new_flow(map, &shape, key.to_vec(), reversed[0], integers);
        let gone = self.state.take();
        self.join(there.into_iter().chain(gone));
    }

    /// The map of a table of flows, its shape, and which number of an entry has this name.
    fn flow_place(&mut self, shared: &Arc<Shared>, name: &[u8]) -> Option<(usize, tables::Shape, u8)> {
        let Form::Flows { shape, names } = &shared.form else { return None };
        let Some(place) = names.iter().position(|known| known.as_bytes() == name) else {
            self.refuse("a field of a flow whose name does not stand behind a dot");
            return None;
        };
        Some((self.map(shared, MapPart::Entries), *shape, NAMED + place as u8))
    }
}
