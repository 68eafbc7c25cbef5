//! From the tree to the intermediate form: the script is followed statement by statement, with what is known of each
//! variable at hand. Functions are inlined; what cannot be compiled is refused, with its line and why, and the rest is
//! followed nevertheless, so that all of it is told at once.

mod arithmetic;
mod bounds;
mod call;
mod condition;
mod expression;
mod field;
mod flow;
mod flow_table;
mod layout;
mod linear;
mod log;
mod mirror;
mod punt;
mod question;
mod redirect;
mod repeat;
mod resize;
mod roll;
mod search;
mod statement;
mod stream;
mod table;
mod text;
mod trace;
mod transport;
mod union;
mod view;
mod vlan;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use super::attach_type::AttachType;
use super::ir::{
    Action, BlockId, Condition, End, Failure, Operand, Operation, Program, Value, calculate, holds,
};
use super::known::TopLevel;
use super::refusal::Refusal;
use super::slot::{Header, Resized, Shape, Slot, Written};
use crate::protocol::{ProtocolId, Protocols};
use crate::syntax::tree::{Chunk, FunctionId, LocalId, Variable};
use wire::ethernet;

/// Instructions of the intermediate form in one program: more are more than the verifier follows.
const LARGEST: usize = 20_000;

/// Length of the Ethernet header, a true one or one that is made up.
const LINK: i64 = wire::ethernet::HEADER_LEN as i64;

/// The program of a function that is given a packet, and where it hands packets over if it may: why it cannot go on there.
///
/// # Errors
/// What of it cannot be compiled: the whole script is the user tier's then.
pub(super) fn lower(
    chunk: &Chunk,
    function: FunctionId,
    top: &dyn TopLevel,
    attach_type: &AttachType,
    may_punt: bool,
) -> Result<(Program, Vec<Refusal>), Vec<Refusal>> {
    let mut program = Program::default();
    let block = program.block();
    let state = State {
        block,
        variables: BTreeMap::new(),
        narrowed: BTreeMap::new(),
        written: Written(0),
        resized: Resized(0),
        changed: None,
    };
    let mut lower = Lower {
        chunk,
        top,
        protocols: top.protocols(),
        program,
        state: Some(state),
        line: chunk.functions[function.0].lines.0,
        functions: Vec::new(),
        temporaries: 0,
        writes: 0,
        entering: false,
        link: if *attach_type == AttachType::Xdp { Link::Tagged } else { Link::There },
        ranges: HashMap::new(),
        anchors: HashMap::new(),
        sums: HashMap::new(),
        comparisons: HashMap::new(),
        tags: Vec::new(),
        refusals: Vec::new(),
        loops: Vec::new(),
        may_capture: matches!(attach_type, AttachType::Interface { .. }),
        may_mirror: *attach_type == AttachType::Interface { has_link: true },
        punts: may_punt.then(Vec::new),
        reads: Vec::new(),
        followed: BTreeSet::new(),
    };
    if attach_type.has_link() {
        lower.packet(function);
    } else {
        lower.packet_without_link(function);
    }
    let changed = lower.may_have_changed();
    lower.refusals.extend(changed);
    let mut punts = lower.punts.unwrap_or_default();
    for list in [&mut lower.refusals, &mut punts] {
        list.sort();
        list.dedup();
    }
    if lower.refusals.is_empty() { Ok((lower.program, punts)) } else { Err(lower.refusals) }
}

/// What has a value while a packet is handled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Local(LocalId),
    Global(Arc<str>),
    /// What an expression or a function gives.
    Temporary(u32),
    /// Which checksums of the packet cover what, once that has been found out.
    Layout,
    /// The number of the interface that the packet is redirected to if it is stolen, or 0.
    Redirect,
    /// The length of the packet.
    Length,
    /// There while nothing was written that could make the headers others than they were.
    Intact,
}

impl From<&Variable> for Key {
    fn from(variable: &Variable) -> Self {
        match variable {
            Variable::Local(local) => Key::Local(*local),
            Variable::Global(name) => Key::Global(name.clone()),
        }
    }
}

/// The least and the greatest that a number can be.
type Range = (i64, i64);

/// What comes before a packet without a link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It has one.
    There,
    /// It has one, and behind the addresses there may be a tag that is not to be seen.
    Tagged,
    /// It is made up: zeros and this EtherType.
    MadeUp(u16),
}

/// A sum, modulo 2^64.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Linear {
    /// In order.
    terms: Vec<Value>,
    constant: i64,
}

/// A place in the program, and what is known there.
#[derive(Clone, Debug)]
struct State {
    block: BlockId,
    variables: BTreeMap<Key, Slot>,
    /// What is known of numbers here.
    narrowed: BTreeMap<Value, Range>,
    /// What was written to the packet on the way here.
    written: Written,
    /// How it came to be as long as it is.
    resized: Resized,
    /// The line at which the packet was changed first, if it was.
    changed: Option<u32>,
}

/// What a list of expressions gives, of which the last may be a call.
#[derive(Clone, Default)]
struct Results {
    /// As many as there are at most; those that there are not are nil.
    values: Vec<Slot>,
    /// How many there are at least.
    least: usize,
}

impl Results {
    /// So many on any way.
    fn of(values: Vec<Slot>) -> Self {
        Self { least: values.len(), values }
    }
}

impl From<Slot> for Results {
    fn from(value: Slot) -> Self {
        Self { values: vec![value], least: 1 }
    }
}

/// A function that we are in.
#[derive(Clone)]
struct Inlined {
    function: FunctionId,
    /// Where it has returned, with its results in temporaries.
    returns: Vec<(State, Results)>,
    /// Where `break` was said, for each loop around.
    breaks: Vec<Vec<State>>,
}

#[derive(Clone)]
struct Lower<'a> {
    chunk: &'a Chunk,
    top: &'a dyn TopLevel,
    protocols: &'a Protocols,
    program: Program,
    /// None: nothing leads here.
    state: Option<State>,
    /// Of the statement or expression that we are at.
    line: u32,
    functions: Vec<Inlined>,
    temporaries: u32,
    /// How often the packet was written to.
    writes: u32,
    /// A view is being made: whether its fields are all within it is not known yet.
    entering: bool,
    link: Link,
    /// What is known of numbers wherever they are.
    ranges: HashMap<Value, Range>,
    /// Numbers that are zero, or so much more than another.
    anchors: HashMap<Value, (Operand, Range)>,
    /// Numbers that are sums.
    sums: HashMap<Value, Linear>,
    /// Numbers that say whether a condition holds.
    comparisons: HashMap<Value, (Condition, Operand, Operand)>,
    /// Shapes that have a number of their own.
    tags: Vec<Shape>,
    refusals: Vec<Refusal>,
    /// Whether a packet can be copied as a whole there.
    may_capture: bool,
    /// Whether a copy can be sent there.
    may_mirror: bool,
    /// Blocks of loops that are compiled once, and how many turns each takes at most.
    loops: Vec<(std::ops::Range<usize>, i64)>,
    /// Where packets are punted, and why; None: nowhere, what cannot be compiled is refused.
    punts: Option<Vec<Refusal>>,
    /// What is read of the top level, and whether that is a table.
    reads: Vec<(bool, Refusal)>,
    /// Functions that it comes to.
    followed: BTreeSet<FunctionId>,
}

impl Lower<'_> {
    /// Follows a function with a packet.
    fn packet(&mut self, function: FunctionId) {
        let length = self.emit(Action::Length);
        let header = Header {
            protocol: ProtocolId::RAW,
            moves: 0,
            certain: true,
            outermost: false,
            since: self.resized(),
        };
        let packet = Slot::new(Shape::View(header), [Operand::Constant(0), length]);
        self.set(Key::Length, Slot::integer(length));
        self.set(Key::Intact, Slot::nil());
        self.set(Key::Redirect, Slot::integer(0));
        let results = self.inline(function, vec![packet]);
        self.verdict(results.values.into_iter().next().unwrap_or_else(Slot::nil));
    }

    /// The same for each EtherType that a link header can have that is made up from the IP version, so that what is in it
    /// is known.
    fn packet_without_link(&mut self, function: FunctionId) {
        let length = self.emit(Action::Length);
        let mut other = Vec::new();
        self.leave_if(Condition::LessOrEqual, length, LINK, &mut other);
        let first = self.emit(Action::Load { offset: LINK.into(), bytes: 1 });
        let version = self.calculate(Operation::ShiftRight, first, 4);
        for (number, ethertype) in [(4, ethernet::ETHERTYPE_IPV4), (6, ethernet::ETHERTYPE_IPV6)] {
            let (this, rest) = self.branch(Condition::Equal, version, number.into());
            self.state = this;
            self.link = Link::MadeUp(ethertype);
            self.packet(function);
            self.state = rest;
        }
        let rest = self.state.take();
        self.join(other.into_iter().chain(rest));
        self.link = Link::MadeUp(0);
        self.packet(function);
    }

    /// Notes what cannot be compiled, if something leads to it: the user tier has the packet from here on, or else what
    /// stands for it may be anything.
    fn refuse(&mut self, reason: impl Into<String>) -> Slot {
        let Some(state) = &self.state else { return Slot::unclear() };
        let mut refusal = Refusal { line: self.line, reason: reason.into() };
        match (&mut self.punts, state.changed) {
            (Some(punts), None) => {
                punts.push(refusal);
                self.end(End::Punt);
            }
            (Some(_), Some(line)) => {
                // The function would find the packet changed when it runs again.
                let _ = write!(
                    refusal.reason,
                    " (and line {line} has changed the packet before: too late to hand it over)"
                );
                self.refusals.push(refusal);
            }
            (None, _) => self.refusals.push(refusal),
        }
        Slot::unclear()
    }

    /// Appends an instruction, unless its result is known.
    fn emit(&mut self, action: Action) -> Operand {
        match action {
            Action::Calculate(operation, Operand::Constant(left), Operand::Constant(right)) => {
                return calculate(operation, left, right).into();
            }
            Action::Calculate(
                Operation::Add | Operation::Or | Operation::Xor,
                operand,
                Operand::Constant(0),
            )
            | Action::Calculate(
                Operation::Add | Operation::Or | Operation::Xor,
                Operand::Constant(0),
                operand,
            )
            | Action::Calculate(
                Operation::Subtract | Operation::ShiftLeft | Operation::ShiftRight,
                operand,
                Operand::Constant(0),
            )
            | Action::Calculate(Operation::Multiply, operand, Operand::Constant(1))
            | Action::Calculate(Operation::And, operand, Operand::Constant(-1)) => return operand,
            Action::Calculate(Operation::And | Operation::Multiply, _, Operand::Constant(0)) => {
                return 0.into();
            }
            Action::Calculate(Operation::And, operand, Operand::Constant(mask))
                if self.is_within(operand, mask) =>
            {
                return operand;
            }
            Action::Compare(condition, Operand::Constant(left), Operand::Constant(right)) => {
                return i64::from(holds(condition, left, right)).into();
            }
            _ => {}
        }
        let (action, sum) = match self.shortest(&action) {
            Some(Ok(operand)) => return operand,
            Some(Err((action, sum))) => (action, Some(sum)),
            None => (action, None),
        };
        let Some(state) = &self.state else { return Operand::Constant(0) };
        let (block, line) = (state.block, self.line);
        if self.program.values() > LARGEST {
            if self.program.values() == LARGEST + 1 || self.may_punt() {
                self.refuse(format!("the program is too long: more than {LARGEST} instructions"));
            }
            self.state = None;
            return Operand::Constant(0);
        }
        let noted = action.clone();
        let result = self.program.push(block, line, action);
        if noted.changes_packet()
            && let Some(state) = &mut self.state
        {
            state.changed.get_or_insert(line);
        }
        self.note_range(result, &noted);
        if let Some(sum) = sum {
            self.sums.insert(result, sum);
        }
        result.into()
    }

    fn calculate(
        &mut self,
        operation: Operation,
        left: impl Into<Operand>,
        right: impl Into<Operand>,
    ) -> Operand {
        self.emit(Action::Calculate(operation, left.into(), right.into()))
    }

    fn compare(
        &mut self,
        condition: Condition,
        left: impl Into<Operand>,
        right: impl Into<Operand>,
    ) -> Operand {
        let (left, right) = (left.into(), right.into());
        let possible = [true, false].map(|holds| self.ranges_if(condition, [left, right], holds).is_some());
        if possible != [true, true] {
            return i64::from(possible[0]).into();
        }
        let result = match condition {
            // Of two bits that are the same, none is left.
            Condition::Equal | Condition::NotEqual if self.are_small(left, right) => {
                let differing = self.calculate(Operation::Xor, left, right);
                let sign = self.sign(differing, 1.into());
                self.calculate(Operation::Xor, sign, i64::from(condition == Condition::NotEqual))
            }
            // The sign of the difference says it.
            Condition::Below | Condition::Less if self.are_small(left, right) => self.sign(left, right),
            Condition::LessOrEqual if self.are_small(left, right) => {
                let sign = self.sign(right, left);
                self.calculate(Operation::Xor, sign, 1)
            }
            _ => self.emit(Action::Compare(condition, left, right)),
        };
        if let Operand::Value(value) = result {
            self.comparisons.insert(value, (condition, left, right));
        }
        result
    }

    /// 1 if one small number is less than another.
    fn sign(&mut self, less: Operand, more: Operand) -> Operand {
        let difference = self.calculate(Operation::Subtract, less, more);
        self.calculate(Operation::ShiftRight, difference, 63)
    }

    /// Ends the block that we are in.
    fn end(&mut self, end: End) {
        if let Some(state) = self.state.take() {
            self.program.blocks[state.block.0].end = Some(end);
        }
    }

    /// Gives the packet up.
    fn fail(&mut self, failure: Failure) {
        let line = self.line;
        self.end(End::Fail(failure, line));
    }

    /// Gives the packet up if the condition holds.
    fn fail_if(
        &mut self,
        condition: Condition,
        left: impl Into<Operand>,
        right: impl Into<Operand>,
        failure: Failure,
    ) {
        let (then, otherwise) = self.branch(condition, left.into(), right.into());
        self.state = then;
        self.fail(failure);
        self.state = otherwise;
    }

    /// Takes a value for what it is unless it is nil, which is an error of the script.
    fn unwrap(&mut self, slot: Slot) -> Slot {
        match slot.shape {
            Shape::Nil => {
                self.fail(Failure::NilValue);
                return Slot::unclear();
            }
            Shape::Optional(_) => self.fail_if(Condition::Equal, slot.parts[0], 0, Failure::NilValue),
            _ => {}
        }
        slot.present()
    }

    /// An integer, or a refusal.
    fn integer(&mut self, slot: Slot, what: &str) -> Operand {
        let slot = self.unwrap(slot);
        match slot.shape {
            Shape::Integer => slot.parts[0],
            Shape::Unclear => self.refuse_use(what),
            shape => {
                let name = shape.name();
                self.refuse(format!("{what} is {name}, and has to be an integer"));
                Operand::Constant(0)
            }
        }
    }

    fn refuse_use(&mut self, what: &str) -> Operand {
        if self.state.is_none() {
            return Operand::Constant(0);
        }
        // What made it unclear was mostly told already, unless the way ended there.
        if self.refusals.is_empty() || self.may_punt() {
            self.refuse(format!("{what} is one thing on one way here, and another on another"));
        }
        Operand::Constant(0)
    }

    /// Returns what a packet function returned.
    fn verdict(&mut self, slot: Slot) {
        if self.state.is_none() {
            return;
        }
        match slot.shape {
            Shape::Nil => self.fail(Failure::NoVerdict),
            Shape::Optional(_) => {
                self.fail_if(Condition::Equal, slot.parts[0], 0, Failure::NoVerdict);
                self.verdict(slot.present());
            }
            _ => {
                let verdict = self.integer(slot, "the verdict");
                self.redirected(verdict);
                self.end(End::Return(verdict));
            }
        }
    }
}
