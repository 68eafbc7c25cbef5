//! Questions of DNS: how long the name of one is, and what it is with dots, as [`crate::protocol::question_name`] and
//! `dns.name` have it.

use wire::domain_name::{LONGEST_LABEL, LONGEST_NAME};

use super::Lower;
use crate::compile::ir::{Action, BlockId, Condition, End, Operand, Operation, Program, Target};
use crate::compile::logging::DOTS;
use crate::compile::slot::{Look, Shape, Slot, Written};
use crate::protocol::{BEHIND_NAME, Changes, Field, QUESTIONS};

// The state of the loop that goes from label to label: the octets behind it, or -1 if the name cannot be read; where the name
// begins, how many octets there are from there on, and which of its octets are lengths of labels but the first.
const AT: u8 = 0;
const START: u8 = 1;
const AVAILABLE: u8 = 2;
const LENGTHS: u8 = 3;
/// Labels of a name, at most, and the one of length zero.
const MOST_LABELS: u32 = LONGEST_NAME as u32 / 2 + 1;

/// The name of a question.
pub(super) struct Question {
    /// Where it begins.
    start: Operand,
    /// Octets as they are sent; 0 if it cannot be read.
    pub(super) length: Operand,
    /// Which octets behind the first are lengths.
    dots: Vec<Operand>,
}

impl Lower<'_> {
    /// Runs a body until it is over; its state is [`Action::Value`] then.
    pub(super) fn run(&mut self, body: Program, turns: u32, state: Vec<Operand>) {
        let bodies = &mut self.program.bodies;
        let body = bodies.iter().position(|known| *known == body).unwrap_or_else(|| {
            bodies.push(body);
            bodies.len() - 1
        });
        self.emit(Action::Loop { body, turns, state });
    }

    /// Finds the name of a question, which begins at a field of a view.
    pub(super) fn question(&mut self, view: &Slot, name: &Field) -> Question {
        let [message, available] = [view.parts[0], view.parts[1]];
        let begin = i64::from(name.offset / 8);
        let start = self.calculate(Operation::Add, message, begin);
        let count = self.calculate(Operation::Add, message, QUESTIONS as i64);
        let count = self.load(count, 2);
        // Without a question nothing is there.
        let is_there = self.compare(Condition::NotEqual, count, 0);
        let available = self.calculate(Operation::Subtract, available, begin);
        let available = self.calculate(Operation::Multiply, available, is_there);
        let mut state = vec![Operand::Constant(0), start, available];
        state.extend([Operand::Constant(0); DOTS]);
        self.run(labels(), MOST_LABELS, state);
        let mut result = |word: u8| self.emit(Action::Value { word });
        let at = result(AT);
        let dots = (0..DOTS as u8).map(|word| result(LENGTHS + word)).collect();
        self.within_all(at, &[(-1, LONGEST_NAME as i64 - 1)]);
        Question { start, length: self.calculate(Operation::Add, at, 1), dots }
    }

    /// `dns.name(view)`: nil, or the name with dots.
    pub(super) fn dns_name(&mut self, view: &Slot) -> Slot {
        let protocols = self.protocols;
        let protocol = match &view.shape {
            Shape::View(header) => protocols.get(header.protocol),
            _ => None,
        };
        let Some((protocol, Changes::Question(name))) =
            protocol.map(|protocol| (protocol, &protocol.changes))
        else {
            let name = view.shape.name();
            return self.refuse(format!("dns.name takes a view of DNS, not {name}"));
        };
        let written = self.state.as_ref().map_or(Written(0), |state| state.written);
        if written != Written(0) {
            return self.refuse("a name of DNS is read after something was written to the packet");
        }
        let Question { start, length, dots } = self.question(view, &protocol.fields[*name]);
        // Neither the first length nor the last, which is zero, is in it.
        let start = self.calculate(Operation::Add, start, 1);
        let is_there = self.compare(Condition::NotEqual, length, 0);
        let is_long = self.compare(Condition::Less, 1, length);
        let shown = self.calculate(Operation::Subtract, length, 2);
        let shown = self.calculate(Operation::Multiply, shown, is_long);
        self.within_all(shown, &[(0, LONGEST_NAME as i64 - 2)]);
        let look = Look { lower: true, dotted: true };
        let shape = Shape::Optional(Box::new(Shape::PacketText(written, look)));
        Slot::new(shape, [vec![is_there, start, shown], dots].concat())
    }
}

/// A turn of the loop: a label.
fn labels() -> Program {
    let mut body = Program::default();
    let [begin, inside, last, over, label, short, next, wrong] = [(); 8].map(|()| body.block());
    let to = |block| Target { block, arguments: Vec::new() };
    let mut act = |block: BlockId, action| Operand::Value(body.push(block, 0, action));
    let calculate = Action::Calculate;

    let at = act(begin, Action::State { word: AT });
    let available = act(begin, Action::State { word: AVAILABLE });
    let start = act(inside, Action::State { word: START });
    let place = act(inside, calculate(Operation::Add, start, at));
    let length = act(inside, Action::Load { offset: place, bytes: 1 });
    let behind = act(last, calculate(Operation::Add, at, (1 + BEHIND_NAME as i64).into()));
    let end = act(short, calculate(Operation::Add, at, length));
    let end = act(short, calculate(Operation::Add, end, 1.into()));

    act(next, Action::SetState { word: AT, value: end });
    // The name with dots begins behind the first length.
    let dot = act(next, calculate(Operation::Subtract, at, 1.into()));
    let bit = act(next, calculate(Operation::And, dot, 63.into()));
    let bit = act(next, calculate(Operation::ShiftRight, i64::MIN.into(), bit));
    let word = act(next, calculate(Operation::ShiftRight, dot, 6.into()));
    for number in 0..DOTS as u8 {
        let is_it = act(next, Action::Compare(Condition::Equal, word, i64::from(number).into()));
        let more = act(next, calculate(Operation::Multiply, bit, is_it));
        let lengths = act(next, Action::State { word: LENGTHS + number });
        let lengths = act(next, calculate(Operation::Or, lengths, more));
        act(next, Action::SetState { word: LENGTHS + number, value: lengths });
    }
    act(wrong, Action::SetState { word: AT, value: (-1).into() });

    let branch = |condition, left, right: i64, then, otherwise| End::Branch {
        condition,
        left,
        right: right.into(),
        then: to(then),
        otherwise: to(otherwise),
    };
    let less = |left, right, then, otherwise| End::Branch {
        condition: Condition::LessOrEqual,
        left,
        right,
        then: to(then),
        otherwise: to(otherwise),
    };
    let ends = [
        (begin, less(available, at, wrong, inside)),
        (inside, branch(Condition::Equal, length, 0, last, label)),
        (last, less(behind, available, over, wrong)),
        (over, End::Return(1.into())),
        (label, branch(Condition::LessOrEqual, length, LONGEST_LABEL.into(), short, wrong)),
        (short, branch(Condition::Less, end, LONGEST_NAME as i64, next, wrong)),
        (next, End::Return(0.into())),
        (wrong, End::Return(1.into())),
    ];
    for (block, end) in ends {
        body.blocks[block.0].end = Some(end);
    }
    body
}
