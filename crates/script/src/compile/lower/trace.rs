//! Points of a trace: what the variables of a statement have, as far as the kernel can tell that.

use super::{LINK, Lower};
use crate::compile::ir::{Action, Condition, Operand};
use crate::compile::logging::{Form, Line, MOST_NUMBERS, Part};
use crate::compile::slot::{Look, Shape, Slot};
use crate::kind::Kind;
use crate::trace::{SHOWN, UNTOLD, quoted};

pub(super) use crate::vm::traced::FOLLOW;

/// Octets of a packet that are told.
pub(super) const OCTETS: i64 = 128;
/// Numbers of a record: one is that of the packet.
const NUMBERS: usize = MOST_NUMBERS - 1;

/// What a record is made of.
#[derive(Default)]
struct Record {
    names: Vec<String>,
    parts: Vec<Part>,
    numbers: Vec<Operand>,
    strings: Vec<[Operand; 2]>,
}

impl Lower<'_> {
    /// The packet is followed from here on: how long it is, and how it begins.
    pub(super) fn begin_trace(&mut self) -> Slot {
        if self.state.is_none() {
            return Slot::nil();
        }
        self.program.lines.push(Line { form: Form::End, parts: vec![Part::Integer; 3] });
        self.program.follows = Some(self.program.lines.len() - 1);
        self.emit(Action::Follow);
        let length = self.emit(Action::Length);
        let length = self.calculate(crate::compile::ir::Operation::Subtract, length, LINK);
        let length = self.select(Condition::Less, length, 0, [0.into(), length]);
        let shown = self.select(Condition::Less, length, OCTETS, [length, OCTETS.into()]);
        let string = Part::String { lower: false, dotted: false };
        self.tell(
            Form::Begin,
            Record {
                parts: vec![Part::Integer, string],
                numbers: vec![length, shown],
                strings: vec![[LINK.into(), shown]],
                ..Record::default()
            },
        );
        Slot::nil()
    }

    /// A point: the line, then names and values, or how conditions came out.
    pub(super) fn point(&mut self, line: &Slot, told: &[Slot]) -> Slot {
        if let (Shape::Integer, [Operand::Constant(line)]) = (&line.shape, &line.parts[..]) {
            self.tell_all(*line as u32, told);
        }
        Slot::nil()
    }

    fn tell_all(&mut self, line: u32, told: &[Slot]) {
        // One record for each thing that a value may be.
        if let Some(place) = told.iter().position(|value| matches!(value.shape, Shape::OneOf(_))) {
            self.each(&told[place], |lower, one| {
                let mut told = told.to_vec();
                told[place] = one.clone();
                lower.tell_all(line, &told);
                Slot::nil()
            });
            return;
        }
        let is_string = |value: &Slot| match &value.shape {
            Shape::Optional(inner) => matches!(**inner, Shape::PacketText(..) | Shape::OneOf(_)),
            _ => false,
        };
        if let Some(place) = told.iter().position(is_string) {
            let (there, absent) = self.branch(Condition::NotEqual, told[place].parts[0], 0.into());
            let mut ends = Vec::new();
            for (state, value) in [(there, told[place].present()), (absent, Slot::nil())] {
                self.state = state;
                if self.state.is_some() {
                    let mut told = told.to_vec();
                    told[place] = value;
                    self.tell_all(line, &told);
                }
                ends.extend(self.state.take());
            }
            return self.join(ends);
        }
        let mut record = Record::default();
        let mut values = told.iter();
        while let Some(first) = values.next() {
            let (name, value) = match &first.shape {
                Shape::Text(name) => (Some(String::from_utf8_lossy(name).into_owned()), values.next()),
                _ => (None, Some(first)),
            };
            let Some(value) = value else { break };
            let (part, numbers, string) = self.told_value(value);
            if record.numbers.len() + numbers.len() > NUMBERS
                || string.is_some() && !record.strings.is_empty()
            {
                self.tell_point(line, std::mem::take(&mut record));
            }
            record.names.extend(name);
            record.parts.push(part);
            record.numbers.extend(numbers);
            record.strings.extend(string);
        }
        self.tell_point(line, record);
    }

    fn tell_point(&mut self, line: u32, mut record: Record) {
        let names = std::mem::take(&mut record.names);
        self.tell(Form::Point(line, names), record);
    }

    fn tell(&mut self, form: Form, Record { parts, numbers, strings, .. }: Record) {
        if self.state.is_some() {
            self.program.lines.push(Line { form, parts });
            self.emit(Action::Log { line: self.program.lines.len() - 1, numbers, strings });
        }
    }

    /// How a value is told, in which numbers; and where its octets are, if it is a string.
    fn told_value(&mut self, value: &Slot) -> (Part, Vec<Operand>, Option<[Operand; 2]>) {
        let known = |text: String| (Part::Bare(text), Vec::new(), None);
        let all = |part| (part, value.parts.clone(), None);
        match &value.shape {
            Shape::Nil => (Part::Nil, Vec::new(), None),
            Shape::Boolean => all(Part::Boolean),
            Shape::Integer => all(Part::Integer),
            Shape::Address(Kind::Mac) => all(Part::Mac),
            Shape::Address(Kind::Ipv4) => all(Part::Ipv4),
            Shape::Address(Kind::Ipv6) => all(Part::Ipv6),
            Shape::Text(text) => known(quoted(&text[..text.len().min(SHOWN)], text.len())),
            Shape::View(_) | Shape::Field(..) => known(self.described(&value.shape)),
            Shape::Bytes(_) => (Part::Length, vec![value.parts[1]], None),
            // What was written since would be told in its place.
            Shape::PacketText(written, Look { lower, dotted })
                if self.state.as_ref().is_some_and(|state| state.written == *written) =>
            {
                let (lower, dotted, length) = (*lower, *dotted, value.parts[1]);
                let (_, most) = self.range(length);
                if most <= SHOWN as i64 {
                    let string = Some([value.parts[0], length]);
                    return (Part::String { lower, dotted }, value.parts[1..].to_vec(), string);
                }
                let shown =
                    self.select(Condition::Less, length, SHOWN as i64, [length, (SHOWN as i64).into()]);
                let numbers = [&[length, shown], &value.parts[2..]].concat();
                (Part::Beginning { lower, dotted }, numbers, Some([value.parts[0], shown]))
            }
            Shape::Optional(_) => {
                let (part, numbers, _) = self.told_value(&value.present());
                (Part::Optional(Box::new(part)), [&value.parts[..1], &numbers].concat(), None)
            }
            _ => known(UNTOLD.to_owned()),
        }
    }
}
