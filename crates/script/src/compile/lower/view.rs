//! Headers in the packet: how one leads to the next, as [`crate::store::Store`] has it.

use super::{Lower, State};
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::slot::{Header, Shape, Slot};
use crate::protocol::{Amount, Changes, Effect, Policy, PolicyTable, Protocol, ProtocolId, Step};
use crate::store::MAX_THROUGH;

/// Bytes by which a header may say that it is longer.
const MOST_BYTES: i64 = 1 << 20;

/// Where it is found that there is no such header.
pub(super) type Absent = Vec<State>;

impl<'a> Lower<'a> {
    /// `view:data(protocol)`: nil, or the view.
    pub(super) fn data(&mut self, view: &Slot, header: Header, target: ProtocolId) -> Slot {
        self.optional(|lower, absent| lower.follow(view, header, target, absent))
    }

    /// `field:data(protocol)`: whatever the protocol before it says.
    pub(super) fn cast(&mut self, field: &Slot, target: ProtocolId) -> Slot {
        self.optional(|lower, absent| {
            let [start, length] = lower.octets(field, None)?;
            lower.enter([start, length], target, false, absent)
        })
    }

    /// What is made of this, or nil where that was left.
    pub(super) fn optional(&mut self, make: impl FnOnce(&mut Self, &mut Absent) -> Option<Slot>) -> Slot {
        let (key, mut absent) = (self.temporary(), Vec::new());
        let made = make(self, &mut absent);
        let mut states = Vec::new();
        if let Some(made) = made {
            self.set(key.clone(), made);
            states.extend(self.state.take());
        }
        states.extend(absent.into_iter().map(|mut state| {
            state.variables.insert(key.clone(), Slot::nil());
            state
        }));
        if states.is_empty() {
            return Slot::unclear();
        }
        self.join(states);
        self.take(&key)
    }

    fn follow(
        &mut self,
        view: &Slot,
        header: Header,
        target: ProtocolId,
        absent: &mut Absent,
    ) -> Option<Slot> {
        let protocols = self.protocols;
        let Some(parent) = protocols.get(header.protocol) else { return self.leave(absent) };
        match &parent.policy {
            Policy::Function => {
                self.refuse(format!("what {} holds, a function says", parent.name));
                None
            }
            Policy::Table(table) if target != ProtocolId::RAW => {
                self.follow_table(view, header, parent, table, target, absent)
            }
            Policy::Never if target != ProtocolId::RAW => self.leave(absent),
            _ => {
                let certain = header.certain
                    && header.protocol == ProtocolId::RAW
                    && protocols.name(target) == "packet_eth";
                let payload = self.payload(view, parent, absent)?;
                self.enter(payload, target, certain, absent)
            }
        }
    }

    /// Goes through the headers that may lie between, all of which say in the same way what comes next.
    fn follow_table(
        &mut self,
        view: &Slot,
        header: Header,
        parent: &'a Protocol,
        table: &'a PolicyTable,
        target: ProtocolId,
        absent: &mut Absent,
    ) -> Option<Slot> {
        let (found, keys) = (self.temporary(), [(); 3].map(|()| self.temporary()));
        let mut entered = Vec::new();
        let [mut value, mut start, mut length] = self.next_header(view, parent, table, absent)?;
        for level in 0..=MAX_THROUGH {
            let (this, others) = self.one_of(value, &table.values(target));
            self.state = this;
            if let Some(mut slot) = self.enter([start, length], target, header.certain, absent) {
                if let Shape::View(entered) = &mut slot.shape {
                    entered.outermost = header.certain && parent.name == "packet_eth";
                }
                self.set(found.clone(), slot);
                entered.extend(self.state.take());
            }
            self.state = others;
            let mut next = Vec::new();
            let mut taken = table.values(target);
            for between in &table.through {
                let mut values = table.values(*between);
                values.retain(|value| !taken.contains(value));
                taken.extend(&values);
                let (this, others) = self.one_of(value, &values);
                self.state = this;
                if level == MAX_THROUGH {
                    self.fail(Failure::TooDeep);
                } else if let Some(numbers) = self.pass([start, length], *between, table, absent) {
                    for (key, number) in keys.iter().zip(numbers) {
                        self.set(key.clone(), Slot::integer(number));
                    }
                    next.extend(self.state.take());
                }
                self.state = others;
            }
            absent.extend(self.state.take());
            if next.is_empty() {
                break;
            }
            self.join(next);
            [value, start, length] = keys.each_ref().map(|key| self.take(key).parts[0]);
        }
        absent.extend(self.state.take());
        if entered.is_empty() {
            return None;
        }
        self.join(entered);
        Some(self.take(&found))
    }

    /// Enters a header that lies between, and tells what comes behind it: its number, and where.
    fn pass(
        &mut self,
        at: [Operand; 2],
        between: ProtocolId,
        table: &PolicyTable,
        absent: &mut Absent,
    ) -> Option<[Operand; 3]> {
        let protocols = self.protocols;
        let view = self.enter(at, between, true, absent)?;
        let parent = protocols.get(between)?;
        match &parent.policy {
            Policy::Table(own) if own.protocols == table.protocols && own.through == table.through => {
                self.next_header(&view, parent, own, absent)
            }
            _ => {
                self.refuse(format!("behind {} other protocols may come than before it", parent.name));
                None
            }
        }
    }

    /// The number of what comes next, and where that is.
    fn next_header(
        &mut self,
        view: &Slot,
        parent: &Protocol,
        table: &PolicyTable,
        absent: &mut Absent,
    ) -> Option<[Operand; 3]> {
        if let Some(when) = &table.when {
            let value = self.told(view, when.field, absent)?;
            let (this, others) = self.one_of(value, &when.values);
            let (this, others) = if when.is { (this, others) } else { (others, this) };
            self.state = this;
            absent.extend(others);
        }
        let value = self.told(view, table.field, absent)?;
        let [start, length] = self.payload(view, parent, absent)?;
        Some([value, start, length])
    }

    /// Where the payload is.
    pub(super) fn payload(
        &mut self,
        view: &Slot,
        parent: &Protocol,
        absent: &mut Absent,
    ) -> Option<[Operand; 2]> {
        let Shape::View(header) = view.shape else { return None };
        match parent.payload {
            Some(payload) => {
                let field = Slot::new(Shape::Field(header, payload), view.parts.clone());
                self.octets(&field, Some(absent))
            }
            None if header.protocol == ProtocolId::RAW => Some([view.parts[0], view.parts[1]]),
            None => self.leave(absent),
        }
    }

    /// A view of so many bytes there, as a protocol.
    fn enter(
        &mut self,
        [start, length]: [Operand; 2],
        id: ProtocolId,
        certain: bool,
        absent: &mut Absent,
    ) -> Option<Slot> {
        let protocols = self.protocols;
        let Some((protocol, minimum)) = protocols.with_minimum(id) else { return self.leave(absent) };
        let bytes = i64::from(minimum.div_ceil(8));
        self.leave_if(Condition::Below, length, bytes, absent);
        let steps: &[Step] = match &protocol.changes {
            Changes::None => &[],
            Changes::Steps(steps) => steps,
            Changes::Question(_) => &[],
            Changes::Function => {
                self.refuse(format!("where the fields of {} are, a function says", protocol.name));
                return None;
            }
        };
        let moves = growing(protocol).len();
        let header = Header { protocol: id, moves, certain, outermost: false, since: self.resized() };
        let mut parts = vec![start, length];
        parts.resize(2 + moves, Operand::Constant(0));
        let mut view = Slot::new(Shape::View(header), parts);
        let mut moved = 0;
        for step in steps {
            self.entering = true;
            let amount = self.amount(&view, protocol, step, absent);
            self.entering = false;
            let amount = amount?;
            match step.effect {
                Effect::Grow(_) => {
                    view.parts[2 + moved] = amount;
                    moved += 1;
                }
                Effect::End => {
                    let less = self.compare(Condition::Below, amount, view.parts[1]);
                    let said = self.compare(Condition::NotEqual, amount, 0);
                    let shorter = self.calculate(Operation::And, less, said);
                    let by = self.calculate(Operation::Subtract, view.parts[1], amount);
                    let by = self.calculate(Operation::Multiply, by, shorter);
                    let length = self.calculate(Operation::Subtract, view.parts[1], by);
                    if length != view.parts[1] {
                        let ranges = [view.parts[1], amount].map(|operand| self.range(operand));
                        self.within_all(length, &ranges);
                    }
                    view.parts[1] = length;
                    self.leave_if(Condition::Below, view.parts[1], bytes, absent);
                }
            }
        }
        if let Changes::Question(name) = protocol.changes {
            view.parts[2] = self.question(&view, &protocol.fields[name]).length;
            return Some(view);
        }
        self.leave_unless_all_fit(&view, protocol, absent);
        Some(view)
    }

    /// Bytes that a step is about; 0 if it does nothing.
    fn amount(
        &mut self,
        view: &Slot,
        protocol: &Protocol,
        step: &Step,
        absent: &mut Absent,
    ) -> Option<Operand> {
        let key = self.temporary();
        let mut without = Vec::new();
        if let Some(when) = &step.when {
            // A field that is not there has none of the values, and not others either.
            let value = self.told(view, when.field, &mut without)?;
            let (this, others) = self.one_of(value, &when.values);
            let (this, others) = if when.is { (this, others) } else { (others, this) };
            self.state = this;
            without.extend(others);
        }
        let whole = |bits: i64| (bits % 8 == 0).then_some(bits / 8);
        let amount = match step.amount {
            Amount::Bits(bits) => whole(bits.into()).map(Operand::Constant),
            Amount::Field { field, unit, plus } => match (whole(unit.into()), whole(plus)) {
                (Some(unit), Some(plus)) if protocol.fields[field].length <= 32 => {
                    let value = self.told(view, field, absent)?;
                    let product = self.calculate(Operation::Multiply, value, unit);
                    let amount = self.calculate(Operation::Add, product, plus);
                    if step.effect == Effect::End {
                        // Zero says nothing, and what is not there cannot be longer.
                        let said = self.compare(Condition::NotEqual, value, 0);
                        Some(self.calculate(Operation::Multiply, amount, said))
                    } else {
                        let most = ((1 << protocol.fields[field].length) - 1) * unit + plus;
                        if plus < 0 || most >= MOST_BYTES {
                            self.leave_unless(Condition::Below, amount, MOST_BYTES, absent);
                        }
                        Some(amount)
                    }
                }
                _ => None,
            },
        };
        let Some(amount) = amount else {
            self.refuse(format!("fields of {} move by less than a byte", protocol.name));
            return None;
        };
        if without.is_empty() {
            return Some(amount);
        }
        self.set(key.clone(), Slot::integer(amount));
        let states = without.into_iter().map(|mut state| {
            state.variables.insert(key.clone(), Slot::integer(0));
            state
        });
        let states: Vec<_> = states.chain(self.state.take()).collect();
        self.join(states);
        self.take(&key).parts.first().copied()
    }

    /// All fields that have moved are within the view, or there is none.
    fn leave_unless_all_fit(&mut self, view: &Slot, protocol: &Protocol, absent: &mut Absent) {
        let growing = growing(protocol);
        if growing.is_empty() {
            return;
        }
        // Where each ends, if nothing moves, and what moves that. One is enough of those that the same things move.
        let mut ends: Vec<(i64, Vec<usize>)> = Vec::new();
        for (index, field) in protocol.fields.iter().enumerate() {
            let end = i64::from((field.offset + field.length).div_ceil(8));
            let is_payload = protocol.payload == Some(index);
            let by = (0..growing.len())
                .filter(|step| growing[*step] < index || growing[*step] == index && !is_payload);
            ends.push((end, by.collect()));
        }
        for (number, (end, by)) in ends.iter().enumerate() {
            let covered = ends.iter().enumerate().any(|(other, (further, more))| {
                let same = further == end && more == by;
                further >= end
                    && by.iter().all(|step| more.contains(step))
                    && (!same || other > number)
                    && other != number
            });
            if covered || by.is_empty() {
                continue;
            }
            let mut sum = Operand::Constant(*end);
            for step in by {
                sum = self.calculate(Operation::Add, sum, view.parts[2 + step]);
            }
            self.leave_if(Condition::Below, view.parts[1], sum, absent);
        }
    }

    /// The integer in a field of a header, which decides what comes next.
    fn told(&mut self, view: &Slot, field: usize, absent: &mut Absent) -> Option<Operand> {
        let Shape::View(header) = view.shape else { return None };
        let field = Slot::new(Shape::Field(header, field), view.parts.clone());
        self.bits(&field, Some(absent))
    }

    /// Parts ways by whether a number is one of these.
    pub(super) fn one_of(&mut self, value: Operand, values: &[u64]) -> (Option<State>, Option<State>) {
        let mut found = Vec::new();
        for wanted in values {
            let (this, others) =
                self.branch(Condition::Equal, value, Operand::Constant(wanted.cast_signed()));
            found.extend(this);
            self.state = others;
        }
        let others = self.state.take();
        self.join(found);
        (self.state.take(), others)
    }

    fn leave_unless(&mut self, condition: Condition, left: Operand, right: i64, absent: &mut Absent) {
        let (this, others) = self.branch(condition, left, right.into());
        absent.extend(others);
        self.state = this;
    }

    /// Goes on only if the condition does not hold.
    pub(super) fn leave_if(
        &mut self,
        condition: Condition,
        left: Operand,
        right: impl Into<Operand>,
        absent: &mut Absent,
    ) {
        let (this, others) = self.branch(condition, left, right.into());
        absent.extend(this);
        self.state = others;
    }

    fn leave<T>(&mut self, absent: &mut Absent) -> Option<T> {
        absent.extend(self.state.take());
        None
    }
}

/// For each step that lengthens a field, which field; of a question its name.
pub(super) fn growing(protocol: &Protocol) -> Vec<usize> {
    let steps = match &protocol.changes {
        Changes::Steps(steps) => steps,
        Changes::Question(name) => return vec![*name],
        Changes::None | Changes::Function => return Vec::new(),
    };
    let fields = steps.iter().filter_map(|step| match step.effect {
        Effect::Grow(field) => Some(field),
        Effect::End => None,
    });
    fields.collect()
}

impl PolicyTable {
    /// The values that stand for a protocol.
    fn values(&self, id: ProtocolId) -> Vec<u64> {
        self.protocols.iter().filter(|(_, named)| *named == id).map(|(value, _)| *value).collect()
    }
}
