//! `string.find` and `string.sub` of strings of the packet.

use super::text::{LONGEST, dotted, left_aligned, lowered};
use super::{Lower, Results};
use crate::compile::ir::{Action, BlockId, Condition, End, Operand, Operation, Program, Target};
use crate::compile::logging::DOTS;
use crate::compile::slot::{Look, Shape, Slot};

/// Characters that mean something in Lua's patterns.
const SPECIAL: &[u8] = b"^$*+?.([%-";
/// Places at which a string may begin: more than a packet has.
const MOST_PLACES: u32 = 1 << 20;

// The state of a search: the place that is next, from 0 on, or -1 if there is none left; where the string begins that is
// searched, and the last place; which of its octets are dots, from this place on.
const AT: u8 = 0;
const START: u8 = 1;
const LAST: u8 = 2;
const DOTTED: u8 = 3;

impl Lower<'_> {
    /// `text:find(wanted, init, plain)` of a string that is known: where it begins and ends, or nil.
    pub(super) fn find_text(&mut self, text: &Slot, arguments: &[Slot]) -> Results {
        let [wanted, more @ ..] = arguments else { return self.refuse("'string.find' of nothing").into() };
        let (Shape::PacketText(..), Shape::Text(wanted)) = (&text.shape, &wanted.shape) else {
            return self.refuse("'string.find' of a string of the packet takes one that is known").into();
        };
        let is_plain = more.get(1).is_some_and(|plain| plain.truth() == Some(true));
        if !is_plain && wanted.iter().any(|octet| SPECIAL.contains(octet)) {
            return self
                .refuse("'string.find' by a pattern: with `true` as its last argument it is none")
                .into();
        }
        if wanted.is_empty() || wanted.len() > LONGEST {
            let most = format!("'string.find' of an empty string, or one of more than {LONGEST} bytes");
            return self.refuse(most).into();
        }
        let Some(look) = self.usable(text) else { return Slot::unclear().into() };
        let [start, length] = [text.parts[0], text.parts[1]];
        let init = self.integer_or(more.first(), 1, "where a search begins");
        let begin = self.position(init, length);
        let at = self.calculate(Operation::Subtract, begin, 1);
        let size = wanted.len() as i64;
        let last = self.calculate(Operation::Subtract, length, size);
        let mut state = vec![at, start, last];
        if look.dotted {
            state.extend(self.shifted(&text.parts[2..], at));
        }
        self.run(search(wanted, look), MOST_PLACES, state);
        let at = self.emit(Action::Value { word: AT });
        let most = self.range(length).1;
        self.within_all(at, &[(-1, most.max(0))]);
        let is_there = self.compare(Condition::LessOrEqual, 0, at);
        let found = [1, size].map(|more| {
            let place = self.calculate(Operation::Add, at, more);
            Slot::new(Shape::Optional(Box::new(Shape::Integer)), [is_there, place])
        });
        Results { values: found.into(), least: 1 }
    }

    /// `text:sub(from, to)`
    pub(super) fn part_of_text(&mut self, text: &Slot, arguments: &[Slot]) -> Slot {
        let Shape::PacketText(..) = text.shape else {
            let name = text.shape.name();
            return self.refuse(format!("'string.sub' of {name}"));
        };
        let Some(look) = self.usable(text) else { return Slot::unclear() };
        let (from, to) = match arguments {
            [from] => (from, None),
            [from, to] => (from, Some(to)),
            _ => return self.refuse("'string.sub' takes one number or two"),
        };
        let from = self.integer(from.clone(), "where a part begins");
        let to = self.integer_or(to, -1, "where a part ends");
        let [start, length] = [text.parts[0], text.parts[1]];
        let most = self.range(length).1;
        let begin = self.position(from, length);
        let from_end = self.calculate(Operation::Add, length, to);
        let from_end = self.calculate(Operation::Add, from_end, 1);
        let from_end = self.select(Condition::Less, from_end, 0, [0.into(), from_end]);
        let from_start = self.select(Condition::Less, length, to, [length, to]);
        let end = self.select(Condition::Less, to, 0, [from_end, from_start]);
        let before = self.calculate(Operation::Subtract, begin, 1);
        let before = self.select(Condition::Less, length, before, [length, before]);
        self.within_all(before, &[(0, most)]);
        let own = self.calculate(Operation::Subtract, end, before);
        let own = self.select(Condition::Less, own, 0, [0.into(), own]);
        self.within_all(own, &[(0, most)]);
        let mut parts = vec![self.calculate(Operation::Add, start, before), own];
        if look.dotted {
            parts.extend(self.shifted(&text.parts[2..], before));
        }
        Slot::new(text.shape.clone(), parts)
    }

    /// An integer, or what stands for nil.
    fn integer_or(&mut self, value: Option<&Slot>, without: i64, what: &str) -> Operand {
        match value.map(|value| (value, &value.shape)) {
            None | Some((_, Shape::Nil)) => without.into(),
            Some((_, Shape::Optional(_))) => {
                self.refuse(format!("{what} may be nil"));
                0.into()
            }
            Some((value, _)) => self.integer(value.clone(), what),
        }
    }

    /// Where a part begins: counted from the end if it is negative, 1 at least (Lua 5.4, 6.4).
    fn position(&mut self, place: Operand, length: Operand) -> Operand {
        let from_end = self.calculate(Operation::Add, length, place);
        let from_end = self.calculate(Operation::Add, from_end, 1);
        let from_end = self.select(Condition::Less, from_end, 1, [1.into(), from_end]);
        let from_start = self.select(Condition::Less, place, 1, [1.into(), place]);
        self.select(Condition::Less, place, 0, [from_end, from_start])
    }

    /// The dots of a string without its first octets, of which there are less than 256.
    fn shifted(&mut self, dots: &[Operand], octets: Operand) -> Vec<Operand> {
        let mut dots = dots.to_vec();
        let get = |dots: &[Operand], at: usize| dots.get(at).copied().unwrap_or(Operand::Constant(0));
        for (bit, words) in [(7, 2), (6, 1)] {
            let is_set = self.calculate(Operation::ShiftRight, octets, bit);
            let is_set = self.calculate(Operation::And, is_set, 1);
            for at in 0..dots.len() {
                let change = self.calculate(Operation::Subtract, get(&dots, at + words), dots[at]);
                let change = self.calculate(Operation::Multiply, change, is_set);
                dots[at] = self.calculate(Operation::Add, dots[at], change);
            }
        }
        let bits = self.calculate(Operation::And, octets, 63);
        let rest = self.calculate(Operation::Xor, bits, 63);
        for at in 0..dots.len() {
            let own = self.calculate(Operation::ShiftLeft, dots[at], bits);
            // By one and the rest, since a number is not shifted by 64.
            let next = self.calculate(Operation::ShiftRight, get(&dots, at + 1), 1);
            let next = self.calculate(Operation::ShiftRight, next, rest);
            dots[at] = self.calculate(Operation::Or, own, next);
        }
        dots
    }
}

/// A turn of a search: whether the string is at this place.
fn search(wanted: &[u8], look: Look) -> Program {
    let mut body = Program::default();
    let begin = body.block();
    let words = wanted.chunks(8).zip(left_aligned(wanted));
    let words: Vec<_> = words.map(|(octets, known)| (octets.len(), known, body.block())).collect();
    let [wrong, other, over] = [(); 3].map(|()| body.block());
    let to = |block| Target { block, arguments: Vec::new() };
    let act = |body: &mut Program, block: BlockId, action| Operand::Value(body.push(block, 0, action));

    let at = act(&mut body, begin, Action::State { word: AT });
    let last = act(&mut body, begin, Action::State { word: LAST });
    let start = act(&mut body, begin, Action::State { word: START });
    let place = act(&mut body, begin, Action::Calculate(Operation::Add, start, at));
    body.blocks[begin.0].end = Some(End::Branch {
        condition: Condition::LessOrEqual,
        left: at,
        right: last,
        then: to(words.first().map_or(over, |(_, _, block)| *block)),
        otherwise: to(wrong),
    });
    for (number, (octets, known, block)) in words.iter().enumerate() {
        let mut calculate =
            |operation, left, right| act(&mut body, *block, Action::Calculate(operation, left, right));
        let offset = calculate(Operation::Add, place, (8 * number as i64).into());
        let word = act(&mut body, *block, Action::Load { offset, bytes: *octets as u8 });
        let dots = look.dotted.then(|| act(&mut body, *block, Action::State { word: DOTTED }));
        let mut calculate =
            |operation, left, right| act(&mut body, *block, Action::Calculate(operation, left, right));
        let mut word = calculate(Operation::ShiftLeft, word, (64 - 8 * *octets as i64).into());
        if let Some(dots) = dots {
            let mask = (0xff00_i64 >> octets) & 0xff;
            word = dotted(word, dots, 56 - 8 * number as i64, mask.into(), &mut calculate);
        }
        if look.lower {
            word = lowered(word, &mut calculate);
        }
        let next = words.get(number + 1).map_or(over, |(_, _, block)| *block);
        body.blocks[block.0].end = Some(End::Branch {
            condition: Condition::Equal,
            left: word,
            right: *known,
            then: to(next),
            otherwise: to(other),
        });
    }
    act(&mut body, wrong, Action::SetState { word: AT, value: (-1).into() });
    body.blocks[wrong.0].end = Some(End::Return(1.into()));
    body.blocks[over.0].end = Some(End::Return(1.into()));

    let next = act(&mut body, other, Action::Calculate(Operation::Add, at, 1.into()));
    act(&mut body, other, Action::SetState { word: AT, value: next });
    if look.dotted {
        let dots: Vec<_> = (0..DOTS as u8)
            .map(|word| act(&mut body, other, Action::State { word: DOTTED + word }))
            .collect();
        for (word, own) in (DOTTED..).zip(&dots) {
            let mut value = act(&mut body, other, Action::Calculate(Operation::ShiftLeft, *own, 1.into()));
            if let Some(next) = dots.get(usize::from(word - DOTTED) + 1) {
                let bit = act(&mut body, other, Action::Calculate(Operation::ShiftRight, *next, 63.into()));
                value = act(&mut body, other, Action::Calculate(Operation::Or, value, bit));
            }
            act(&mut body, other, Action::SetState { word, value });
        }
    }
    body.blocks[other.0].end = Some(End::Return(0.into()));
    body
}
