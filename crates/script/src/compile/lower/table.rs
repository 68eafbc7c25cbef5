//! Tables, counters, histograms and sets of prefixes: maps of the kernel.

use std::sync::Arc;

use super::field::{address, numbers};
use super::text::left_aligned;
use super::{Lower, Results};
use crate::compile::ir::{Action, Condition, Failure, Operand, Operation};
use crate::compile::shared::{Form, Map, MapPart, Part, Shared, words, words_of};
use crate::compile::slot::{Shape, Slot};
use crate::kind::Kind;
use crate::tables;

/// Numbers in a key at most.
const LONGEST_KEY: usize = 6;
/// Numbers in a value at most.
const LONGEST_VALUE: usize = 8;

impl Lower<'_> {
    /// A method of one of them.
    pub(super) fn shared_method(&mut self, shared: &Arc<Shared>, name: &str, arguments: &[Slot]) -> Results {
        // An argument that may be one thing or another is looked at for each.
        if let Some(place) = arguments.iter().position(|slot| matches!(slot.present().shape, Shape::OneOf(_)))
        {
            if name == "set" && place + 1 == arguments.len() {
                return self.refuse("the value is one thing here and another there").into();
            }
            let value = self.unwrap(arguments[place].clone());
            return self.each_of(&value, |lower, variant| {
                let mut arguments = arguments.to_vec();
                arguments[place] = variant.clone();
                lower.shared_method(shared, name, &arguments)
            });
        }
        match (&shared.form, name, arguments) {
            (Form::Table { key, value, shape }, "get" | "set" | "add" | "delete", _) => {
                let table = Table { map: self.map(shared, MapPart::Entries), key, value, shape };
                if value.iter().any(|part| matches!(part, Part::Text(_))) {
                    return self.refuse("values that are strings").into();
                }
                for (what, parts, most) in [("key", key, LONGEST_KEY), ("value", value, LONGEST_VALUE)] {
                    if words_of(parts) > most {
                        return self.refuse(format!("a {what} of more than {} bytes", most * 8)).into();
                    }
                }
                if table.is_record() {
                    self.map_of(shared, MapPart::Locks);
                }
                return self.table_method(&table, name, arguments);
            }
            (Form::Counter, "add" | "get", [] | [_]) => {
                let amount = match (name, arguments) {
                    ("add", [amount]) => self.integer(amount.clone(), "what is added"),
                    ("add", _) => 1.into(),
                    _ => 0.into(),
                };
                if shared.metric.is_some() {
                    self.fail_if(Condition::Less, amount, 0, Failure::Negative);
                }
                let map = self.map(shared, MapPart::Entries);
                Slot::integer(self.emit(Action::Count { map, place: 0.into(), amount }))
            }
            (Form::Histogram { bounds }, "observe", [value]) => self.observe(shared, bounds, value.clone()),
            (Form::Prefixes { .. }, "find", [looked_for]) => self.find(shared, looked_for),
            _ => self.refuse(format!("'{name}' of '{}' is not there in the kernel", shared.name)),
        }
        .into()
    }

    fn table_method(&mut self, table: &Table<'_>, name: &str, arguments: &[Slot]) -> Results {
        let values = if matches!(name, "set" | "add") { table.value.len() } else { 0 };
        if arguments.len() != table.key.len() + values {
            self.fail(Failure::WrongValue);
            return Slot::unclear().into();
        }
        let (key, rest) = arguments.split_at(table.key.len());
        let Some(key) = self.encoded(table.key, key) else { return Slot::unclear().into() };
        match (name, rest) {
            ("get", _) => {
                let there = self.alive(table, &key);
                let mut word = 0;
                let one = |part: &Part| {
                    let mut parts = vec![there];
                    parts.extend((0..words(*part)).map(|_| {
                        word += 1;
                        self.emit(Action::Value { word })
                    }));
                    let shape = match part {
                        Part::Kind(Kind::Bool) => Shape::Boolean,
                        Part::Kind(kind @ (Kind::Mac | Kind::Ipv4 | Kind::Ipv6)) => Shape::Address(*kind),
                        _ => Shape::Integer,
                    };
                    Slot::new(Shape::Optional(Box::new(shape)), parts)
                };
                return Results::of(table.value.iter().map(one).collect());
            }
            ("delete", _) => {
                let there = self.alive(table, &key);
                self.emit(Action::Delete { map: table.map, key });
                Slot::boolean(there)
            }
            ("set", [value]) => self.set_entry(table, key, value),
            ("set", values) => match self.encoded(table.value, values) {
                Some(values) => Slot::boolean(self.set_record(table, key, values)),
                None => Slot::unclear(),
            },
            ("add", amounts) => return self.add(table, key, amounts),
            _ => Slot::unclear(),
        }
        .into()
    }

    fn set_entry(&mut self, table: &Table<'_>, key: Vec<Operand>, value: &Slot) -> Slot {
        let result = self.temporary();
        let (nil, there) = match value.shape {
            Shape::Nil => (self.state.take(), None),
            Shape::Optional(_) => self.branch(Condition::Equal, value.parts[0], 0.into()),
            _ => (None, self.state.take()),
        };
        self.state = nil;
        self.emit(Action::Delete { map: table.map, key: key.clone() });
        self.set(result.clone(), Slot::boolean(1));
        let mut states: Vec<_> = self.state.take().into_iter().collect();
        self.state = there;
        if self.state.is_some()
            && let Some(value) = self.encoded(table.value, &[value.present()])
        {
            let stored = self.update(table, key, value);
            self.set(result.clone(), Slot::boolean(stored));
            states.extend(self.state.take());
        }
        self.join(states);
        self.take(&result)
    }

    /// Writes a record into its place, or else a new one: 1, or 0 if there is no room.
    fn set_record(&mut self, table: &Table<'_>, key: Vec<Operand>, values: Vec<Operand>) -> Operand {
        let now = self.now(table.shape);
        let value = [now].into_iter().chain(values.iter().copied()).collect();
        let there = self.emit(Action::Replace { map: table.map, key: key.clone(), value });
        let result = self.temporary();
        let (there, absent) = self.branch(Condition::NotEqual, there, 0.into());
        self.state = there;
        self.set(result.clone(), Slot::boolean(1));
        let there = self.state.take();
        self.state = absent;
        let stored = self.update(table, key, values);
        self.set(result.clone(), Slot::boolean(stored));
        let absent = self.state.take();
        self.join(there.into_iter().chain(absent));
        // Nothing may lead here any more: then it is nothing's.
        self.take(&result).parts.first().copied().unwrap_or(Operand::Constant(0))
    }

    /// Adds to all numbers of an entry as one: what they are then.
    fn add(&mut self, table: &Table<'_>, key: Vec<Operand>, amounts: &[Slot]) -> Results {
        if table.value.iter().any(|part| *part != Part::Kind(Kind::Int)) {
            self.fail(Failure::WrongValue);
            return Slot::unclear().into();
        }
        let amounts: Vec<_> =
            amounts.iter().map(|amount| self.integer(amount.clone(), "what is added")).collect();
        let keys: Vec<_> = amounts.iter().map(|_| self.temporary()).collect();
        let set = |lower: &mut Self, there: Operand, sums: &[Operand]| {
            for (key, sum) in keys.iter().zip(sums) {
                lower.set(key.clone(), Slot::new(Shape::Optional(Box::new(Shape::Integer)), [there, *sum]));
            }
        };
        let mut ends = Vec::new();
        let there = self.emit(Action::Lookup { map: table.map, key: key.clone(), first: 1, words: 1 });
        let (there, absent) = self.branch(Condition::NotEqual, there, 0.into());
        self.state = there;
        let alive = self.unless_old(table.shape, 1.into());
        let (alive, expired) = self.branch(Condition::NotEqual, alive, 0.into());
        self.state = expired;
        if self.state.is_some() {
            let stored = self.update(table, key.clone(), amounts.clone());
            set(self, stored, &amounts);
            ends.extend(self.state.take());
        }
        self.state = absent;
        // Another processor may have written it since.
        let stored = self.write_entry(table, key.clone(), amounts.clone(), true);
        let (stored, other) = self.branch(Condition::NotEqual, stored, 0.into());
        self.state = stored;
        set(self, 1.into(), &amounts);
        ends.extend(self.state.take());
        self.join(alive.into_iter().chain(other));
        let now = self.now(table.shape);
        let words = 1..=amounts.len() as u8;
        let there = self.emit(Action::Add { map: table.map, key, amounts, now });
        let sums: Vec<_> = words.map(|word| self.emit(Action::Value { word })).collect();
        set(self, there, &sums);
        ends.extend(self.state.take());
        self.join(ends);
        Results::of(keys.iter().map(|key| self.take(key)).collect())
    }

    /// Counts a value in its bucket: the first one whose end is not less.
    fn observe(&mut self, shared: &Arc<Shared>, bounds: &[i64], value: Slot) -> Slot {
        let value = self.integer(value, "what is observed");
        self.fail_if(Condition::Less, value, 0, Failure::Negative);
        let map = self.map(shared, MapPart::Entries);
        let mut place = Operand::Constant(1);
        for bound in bounds {
            let is_above = self.compare(Condition::Less, *bound, value);
            place = self.calculate(Operation::Add, place, is_above);
        }
        self.emit(Action::Count { map, place, amount: 1.into() });
        self.emit(Action::Count { map, place: 0.into(), amount: value });
        Slot::nil()
    }

    /// The value of the longest prefix that holds an address.
    fn find(&mut self, shared: &Arc<Shared>, looked_for: &Slot) -> Slot {
        let looked_for = self.unwrap(looked_for.clone());
        let (kind, key) = match &looked_for.shape {
            Shape::Address(kind @ (Kind::Ipv4 | Kind::Ipv6)) => (*kind, looked_for.parts.clone()),
            Shape::Text(text) => match [Kind::Ipv4, Kind::Ipv6].map(|kind| (kind, address(kind, text))) {
                [(kind, Some(octets)), _] | [_, (kind, Some(octets))] => (kind, numbers(&octets)),
                _ => {
                    self.fail(Failure::WrongValue);
                    return Slot::unclear();
                }
            },
            Shape::Unclear => {
                self.refuse_use("the address");
                return Slot::unclear();
            }
            _ => {
                self.fail(Failure::WrongValue);
                return Slot::unclear();
            }
        };
        let part = if kind == Kind::Ipv6 { MapPart::Ipv6 } else { MapPart::Entries };
        let map = self.map(shared, part);
        let there = self.emit(Action::Find { map, address: key });
        let value = self.emit(Action::Value { word: 1 });
        Slot::new(Shape::Optional(Box::new(Shape::Integer)), [there, value])
    }

    /// 1 if there is an entry that has not expired; its value can be read then.
    fn alive(&mut self, table: &Table<'_>, key: &[Operand]) -> Operand {
        let there = self.emit(Action::Lookup {
            map: table.map,
            key: key.to_vec(),
            first: 1,
            words: words_of(table.value) as u8,
        });
        self.unless_old(table.shape, there)
    }

    /// 1 if what was looked up is there and has not expired.
    pub(super) fn unless_old(&mut self, shape: &tables::Shape, there: Operand) -> Operand {
        let Some(expires) = shape.expires_ms else { return there };
        let written = self.emit(Action::Value { word: 0 });
        let now = self.emit(Action::Time);
        let age = self.calculate(Operation::Subtract, now, written);
        let young = self.compare(Condition::Less, age, i64::try_from(expires).unwrap_or(i64::MAX));
        self.calculate(Operation::And, there, young)
    }

    fn update(&mut self, table: &Table<'_>, key: Vec<Operand>, value: Vec<Operand>) -> Operand {
        self.write_entry(table, key, value, false)
    }

    /// Writes an entry: 1, or 0 if there is no room, or if it is there and has to be fresh.
    fn write_entry(
        &mut self,
        table: &Table<'_>,
        key: Vec<Operand>,
        value: Vec<Operand>,
        fresh: bool,
    ) -> Operand {
        let now = self.now(table.shape);
        let value = [now].into_iter().chain(value).collect();
        self.emit(Action::Update { fresh, map: table.map, key, value })
    }

    /// The time as it is written into an entry.
    pub(super) fn now(&mut self, shape: &tables::Shape) -> Operand {
        match shape.expires_ms {
            Some(_) => self.emit(Action::Time),
            None => 0.into(),
        }
    }

    /// Values as numbers, by their kinds.
    pub(super) fn encoded(&mut self, parts: &[Part], values: &[Slot]) -> Option<Vec<Operand>> {
        let mut words = Vec::new();
        for (part, value) in parts.iter().zip(values) {
            let value = self.unwrap(value.clone());
            match (part, &value.shape) {
                (_, Shape::Unclear) => {
                    self.refuse_use("a part of the key, or the value,");
                    return None;
                }
                (Part::Kind(Kind::Int), Shape::Integer) | (Part::Kind(Kind::Bool), Shape::Boolean) => {
                    words.push(value.parts[0]);
                }
                (Part::Kind(Kind::Int), Shape::Text(_))
                | (Part::Kind(_), Shape::PacketText(..))
                | (Part::Text(_), Shape::Address(_)) => {
                    let name = value.shape.name();
                    self.refuse(format!("{name} stands for what the table has there"));
                    return None;
                }
                (Part::Kind(kind), Shape::Address(given)) if given == kind => words.extend(&value.parts),
                (Part::Kind(kind), Shape::Text(text)) if let Some(octets) = address(*kind, text) => {
                    words.extend(numbers(&octets));
                }
                (Part::Text(longest), Shape::Text(text)) if text.len() <= *longest => {
                    let end = words.len() + crate::compile::shared::words(*part);
                    words.push((text.len() as i64).into());
                    words.extend(left_aligned(text));
                    words.resize(end, Operand::Constant(0));
                }
                (Part::Text(longest), Shape::PacketText(..)) => {
                    words.extend(self.text_key(&value, *longest)?);
                }
                _ => {
                    self.fail(Failure::WrongValue);
                    return None;
                }
            }
        }
        Some(words)
    }

    /// The number of a map in the program.
    pub(super) fn map(&mut self, shared: &Arc<Shared>, part: MapPart) -> usize {
        self.punt_shared(&shared.name);
        self.map_of(shared, part)
    }

    /// The same, whichever tier has what is in it.
    pub(super) fn map_of(&mut self, shared: &Arc<Shared>, part: MapPart) -> usize {
        if self.state.is_none() {
            return 0;
        }
        let map = Map { shared: shared.clone(), part };
        let known = self.program.maps.iter().position(|known| *known == map);
        known.unwrap_or_else(|| {
            self.program.maps.push(map);
            self.program.maps.len() - 1
        })
    }
}

/// A table and its map.
struct Table<'a> {
    map: usize,
    key: &'a [Part],
    value: &'a [Part],
    shape: &'a tables::Shape,
}

impl Table<'_> {
    const fn is_record(&self) -> bool {
        self.value.len() > 1
    }
}
