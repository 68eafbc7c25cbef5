//! The intermediate form: blocks of instructions on 64-bit integers, each value assigned once (SSA). What a variable is
//! where ways meet is a parameter of the block there.
//!
//! It knows packets, not Lua: what a script does with views and fields is arithmetic on offsets here, and each way that
//! Lua would end with an error ends in [`End::Fail`].

use std::collections::BTreeSet;
use std::fmt;

use super::logging::Line;
use super::matching::UNMATCHED;
use super::shared::Map;

/// The result of an instruction, or a parameter of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// Which block; execution begins with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub usize);

/// What an instruction works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A number.
    Constant(i64),
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        Operand::Value(value)
    }
}

impl From<i64> for Operand {
    fn from(value: i64) -> Self {
        Operand::Constant(value)
    }
}

/// Arithmetic, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
    And,
    Or,
    Xor,
    /// By 0 to 63.
    ShiftLeft,
    /// By 0 to 63, zeros come in.
    ShiftRight,
    /// Unsigned, by anything but 0.
    Divide,
    /// Unsigned, by anything but 0.
    Modulo,
}

/// Comparisons, signed but for the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Condition {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    /// Unsigned.
    Below,
}

/// An instruction and the line of the script that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The line, from 1 on.
    pub line: u32,
    /// Where the result is; without one its value is never read.
    pub result: Value,
    /// What is done.
    pub action: Action,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Arithmetic.
    Calculate(Operation, Operand, Operand),
    /// 1 if the condition holds, 0 if not.
    Compare(Condition, Operand, Operand),
    /// The length of the packet, its Ethernet header included.
    Length,
    /// 1 to 8 bytes of the packet, as one number in the order of the network. Outside of the packet it fails.
    Load {
        /// From the beginning of the Ethernet header.
        offset: Operand,
        /// How many bytes.
        bytes: u8,
    },
    /// Writes 1 to 8 bytes. Outside of the packet it fails.
    Store {
        /// From the beginning of the Ethernet header.
        offset: Operand,
        /// How many bytes.
        bytes: u8,
        /// The number whose low bytes they are.
        value: Operand,
    },
    /// The VLAN tag that is beside the packet, or at XDP first in the frame, and bit 16: there is one.
    Tag,
    /// The packet is followed, if there are some left that may be: the lines of traces are told of it.
    Follow,
    /// Puts a VLAN tag beside the packet, where there must be none.
    PushTag {
        /// The tag.
        tag: Operand,
    },
    /// Takes the first VLAN tag, which there is; one behind it in the frame is beside the packet then.
    PopTag,
    /// Makes room of octets that may be anything behind the fixed header of IP, or takes octets away.
    Resize {
        /// Where that is, from the beginning of the Ethernet header.
        at: i64,
        /// How many come, or go if there are less than 0.
        count: i64,
    },
    /// Adjusts what hardware has summed up of the packet, if it has, to octets that no checksum makes up for.
    PacketSum {
        /// What to add, as below.
        difference: Operand,
    },
    /// Adjusts the checksum of an IPv4 header.
    HeaderChecksum {
        /// Where it stands.
        offset: Operand,
        /// What to add to the sum that it is the complement of: 16-bit words in the order of the network, not folded; less than
        /// 33 bits.
        difference: Operand,
    },
    /// Adjusts a transport checksum.
    TransportChecksum {
        /// Where it stands.
        offset: Operand,
        /// As above.
        difference: Operand,
        /// Not zero: what has changed is the pseudo-header, which a checksum that is still to be finished covers, too.
        pseudo: Operand,
        /// Not zero: zero stands for no checksum, and stays (UDP).
        optional: Operand,
    },
    /// 1 if an entry is there, 0 if not; what it holds is then read with [`Action::Value`].
    Lookup {
        /// Which of [`Program::maps`].
        map: usize,
        /// The key.
        key: Vec<Operand>,
        /// The first number of the value that is wanted behind the time.
        first: u8,
        /// How many.
        words: u8,
    },
    /// A number of what the last instruction before it found that looks something up; zero if that was nothing. The
    /// first one is when it was written.
    Value {
        /// Which.
        word: u8,
    },
    /// Writes an entry: 1, or 0 if the map is full, or if it is there and must not be.
    Update {
        /// Whether it must not be there yet.
        fresh: bool,
        /// Which of [`Program::maps`].
        map: usize,
        /// The key.
        key: Vec<Operand>,
        /// The time, and the value.
        value: Vec<Operand>,
    },
    /// Writes a record that is there: 1, or 0 if there is none.
    Replace {
        /// Which of [`Program::maps`].
        map: usize,
        /// The key.
        key: Vec<Operand>,
        /// The time, and the value.
        value: Vec<Operand>,
    },
    /// Adds to the first numbers of an entry that is there, several as one; what they are then is found as by
    /// [`Action::Lookup`].
    Add {
        /// Which of [`Program::maps`].
        map: usize,
        /// The key.
        key: Vec<Operand>,
        /// How much to each.
        amounts: Vec<Operand>,
        /// The time.
        now: Operand,
    },
    /// Writes one number of an entry that is there, and the time: 1, or 0 if it is not there.
    Put {
        /// Which of [`Program::maps`].
        map: usize,
        /// The key.
        key: Vec<Operand>,
        /// Which number of the value; 0 is the time itself.
        word: u8,
        /// What it becomes.
        value: Operand,
        /// The time.
        now: Operand,
    },
    /// Removes an entry.
    Delete {
        /// Which of [`Program::maps`].
        map: usize,
        /// The key.
        key: Vec<Operand>,
    },
    /// As [`Action::Lookup`], of the longest prefix that holds an address.
    Find {
        /// Which of [`Program::maps`].
        map: usize,
        /// One number for IPv4, two for IPv6.
        address: Vec<Operand>,
    },
    /// Adds to a number of a counter or histogram: what it is then.
    Count {
        /// Which of [`Program::maps`].
        map: usize,
        /// Which number.
        place: Operand,
        /// How much.
        amount: Operand,
    },
    /// Tells numbers, as those of a line of the log.
    Log {
        /// Which of [`Program::lines`].
        line: usize,
        /// The numbers.
        numbers: Vec<Operand>,
        /// Offset and length of the strings of the packet in it, which have 255 octets at most.
        strings: Vec<[Operand; 2]>,
    },
    /// Tells the packet as it is, for a capture.
    Capture {
        /// Which of [`Program::captures`].
        name: usize,
    },
    /// Sends a copy of the packet as it is out through an interface.
    Mirror {
        /// Which of [`Program::mirrors`].
        interface: usize,
    },
    /// Runs a body again and again, until it returns 1 or so often: what is in its state then is read with
    /// [`Action::Value`], from 0 on.
    Loop {
        /// Which of [`Program::bodies`].
        body: usize,
        /// How often at most.
        turns: u32,
        /// What its state begins with.
        state: Vec<Operand>,
    },
    /// In a body: a number of its state.
    State {
        /// Which.
        word: u8,
    },
    /// In a body: writes a number of its state.
    SetState {
        /// Which.
        word: u8,
        /// What it becomes.
        value: Operand,
    },
    /// 32 random bits.
    Random,
    /// Milliseconds since some time.
    Time,
}

/// Why a packet is given up: what the user tier has as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages below say it")]
pub enum Failure {
    OutsidePacket,
    NilValue,
    DivisionByZero,
    NoVerdict,
    StepIsZero,
    WrongValue,
    Resize,
    Negative,
    Tagged,
    TooDeep,
    PriorityTag,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::OutsidePacket,
        Self::NilValue,
        Self::DivisionByZero,
        Self::NoVerdict,
        Self::StepIsZero,
        Self::WrongValue,
        Self::Resize,
        Self::Negative,
        Self::Tagged,
        Self::TooDeep,
        Self::PriorityTag,
    ];
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::OutsidePacket => "what is read or written is not within the packet",
            Failure::NilValue => "a value is nil",
            Failure::DivisionByZero => "division by zero",
            Failure::NoVerdict => "the function returned no verdict",
            Failure::WrongValue => "a value is none that the field takes",
            Failure::Resize => "the packet cannot grow or shrink there",
            Failure::StepIsZero => "'for' step is zero",
            Failure::Tagged => "the packet has a VLAN tag already",
            Failure::TooDeep => "more than eight headers lie between: what is behind them is not looked for",
            Failure::PriorityTag => {
                "of two VLAN tags one is of VLAN 0, which the kernel takes off only later: what is behind them was not seen"
            }
            Failure::Negative => "what metrics export takes 0 or more",
        })
    }
}

/// Where a block leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which block.
    pub block: BlockId,
    /// Its parameters.
    pub arguments: Vec<Operand>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Goes on there.
    Jump(Target),
    /// Goes on with the one or the other.
    Branch {
        /// Whether the condition holds between these.
        condition: Condition,
        /// The one.
        left: Operand,
        /// The other.
        right: Operand,
        /// Where, if it holds.
        then: Target,
        /// Where, if not.
        otherwise: Target,
    },
    /// The verdict.
    Return(Operand),
    /// The packet leaves through the interface of this number; its verdict is NF_STOLEN.
    Redirect(Operand),
    /// The user tier has the packet, as it came in.
    Punt,
    /// An error, at this line.
    Fail(Failure, u32),
}

/// Instructions that are executed one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// What each way into it brings along.
    pub parameters: Vec<Value>,
    /// What is done.
    pub code: Vec<Instruction>,
    /// None: nothing leads here.
    pub end: Option<End>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Its blocks.
    pub blocks: Vec<Block>,
    /// The maps that it uses.
    pub maps: Vec<Map>,
    /// The calls of `nf.log`, and what traces say.
    pub lines: Vec<Line>,
    /// Of these the one that a packet ends with that is followed, if one may be.
    pub follows: Option<usize>,
    /// The names of captures.
    pub captures: Vec<String>,
    /// The interfaces that packets are copied to.
    pub mirrors: Vec<String>,
    /// Lines of the script at which packets are redirected.
    pub redirects: Vec<u32>,
    /// Numbers of turns, which the verifier has to know: it follows each.
    pub counters: BTreeSet<Value>,
    /// Bodies of loops that a helper of the kernel runs (bpf_loop), so that the verifier follows them once. Each has a state of
    /// numbers, reads the packet, and returns 1 to end the loop, otherwise 0. What it cannot read makes the first number
    /// -1, and ends it.
    pub bodies: Vec<Program>,
    values: u32,
}

impl Program {
    /// A new block.
    pub fn block(&mut self) -> BlockId {
        self.blocks.push(Block::default());
        BlockId(self.blocks.len() - 1)
    }

    /// A new parameter of a block.
    pub fn parameter(&mut self, block: BlockId) -> Value {
        let value = self.value();
        self.blocks[block.0].parameters.push(value);
        value
    }

    /// Appends an instruction.
    pub fn push(&mut self, block: BlockId, line: u32, action: Action) -> Value {
        let result = self.value();
        self.blocks[block.0].code.push(Instruction { line, result, action });
        result
    }

    /// Whether it asks for the time or a random number.
    pub(super) fn asks_for_chance(&self) -> bool {
        let mut code = self.blocks.iter().flat_map(|block| &block.code);
        code.any(|instruction| matches!(instruction.action, Action::Time | Action::Random))
    }

    /// Whether it decides what becomes of any packet of the script's.
    pub(super) fn decides(&self) -> bool {
        let ends = self.blocks.iter().filter_map(|block| block.end.as_ref());
        ends.into_iter().any(|end| match end {
            End::Return(verdict) => *verdict != Operand::Constant(UNMATCHED as i64),
            End::Redirect(_) => true,
            _ => false,
        })
    }

    /// How many values there are.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values as usize
    }

    fn value(&mut self) -> Value {
        self.values += 1;
        Value(self.values - 1)
    }
}

impl Action {
    /// What it works on.
    pub fn operands(&self) -> impl Iterator<Item = Operand> + use<> {
        let operands = match self {
            Action::Calculate(_, left, right) | Action::Compare(_, left, right) => vec![*left, *right],
            Action::Length
            | Action::Random
            | Action::Time
            | Action::Value { .. }
            | Action::Resize { .. }
            | Action::Capture { .. }
            | Action::Mirror { .. }
            | Action::State { .. }
            | Action::Tag
            | Action::PopTag
            | Action::Follow => Vec::new(),
            Action::PushTag { tag: one } | Action::SetState { value: one, .. } => vec![*one],
            Action::Loop { state, .. } => state.clone(),
            Action::Load { offset: one, .. } | Action::PacketSum { difference: one } => vec![*one],
            Action::Store { offset, value, .. } => vec![*offset, *value],
            Action::HeaderChecksum { offset, difference } => vec![*offset, *difference],
            Action::TransportChecksum { offset, difference, pseudo, optional } => {
                vec![*offset, *difference, *pseudo, *optional]
            }
            Action::Lookup { key, .. } | Action::Delete { key, .. } => key.clone(),
            Action::Update { key, value, .. } | Action::Replace { key, value, .. } => {
                [&key[..], value].concat()
            }
            Action::Add { key, amounts, now, .. } => [&key[..], amounts, &[*now]].concat(),
            Action::Put { key, value, now, .. } => [&key[..], &[*value, *now]].concat(),
            Action::Find { address, .. } => address.clone(),
            Action::Count { place, amount, .. } => vec![*place, *amount],
            Action::Log { numbers, strings, .. } => [&numbers[..], strings.as_flattened()].concat(),
        };
        operands.into_iter()
    }

    /// Whether the packet is another one then.
    #[must_use]
    pub fn changes_packet(&self) -> bool {
        matches!(
            self,
            Action::Store { .. }
                | Action::Resize { .. }
                | Action::PushTag { .. }
                | Action::PopTag
                | Action::PacketSum { .. }
                | Action::HeaderChecksum { .. }
                | Action::TransportChecksum { .. }
        )
    }

    /// Whether it only has a result, and may be left out if nobody reads that.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        matches!(self, Action::Calculate(..) | Action::Compare(..) | Action::Length | Action::Time)
    }
}

impl End {
    /// Where it may lead.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        let targets = match self {
            End::Jump(target) => [Some(target), None],
            End::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
            End::Return(_) | End::Redirect(_) | End::Punt | End::Fail(..) => [None, None],
        };
        targets.into_iter().flatten()
    }

    /// What decides where it leads, or the verdict.
    pub fn conditions(&self) -> impl Iterator<Item = Operand> + use<> {
        let conditions = match *self {
            End::Branch { left, right, .. } => [Some(left), Some(right)],
            End::Return(operand) | End::Redirect(operand) => [Some(operand), None],
            End::Jump(_) | End::Punt | End::Fail(..) => [None, None],
        };
        conditions.into_iter().flatten()
    }

    /// What it works on, arguments included.
    pub fn operands(&self) -> impl Iterator<Item = Operand> {
        self.conditions().chain(self.targets().flat_map(|target| target.arguments.iter().copied()))
    }
}

/// What arithmetic gives.
#[must_use]
pub fn calculate(operation: Operation, left: i64, right: i64) -> i64 {
    match operation {
        Operation::Add => left.wrapping_add(right),
        Operation::Subtract => left.wrapping_sub(right),
        Operation::Multiply => left.wrapping_mul(right),
        Operation::And => left & right,
        Operation::Or => left | right,
        Operation::Xor => left ^ right,
        Operation::ShiftLeft => left.wrapping_shl(right as u32),
        Operation::ShiftRight => (left as u64).wrapping_shr(right as u32) as i64,
        // As eBPF has it for zero, which no program that we make divides by.
        Operation::Divide => (left as u64).checked_div(right as u64).unwrap_or(0) as i64,
        Operation::Modulo => (left as u64).checked_rem(right as u64).unwrap_or(left as u64) as i64,
    }
}

/// Whether a condition holds.
#[must_use]
pub fn holds(condition: Condition, left: i64, right: i64) -> bool {
    match condition {
        Condition::Equal => left == right,
        Condition::NotEqual => left != right,
        Condition::Less => left < right,
        Condition::LessOrEqual => left <= right,
        Condition::Below => (left as u64) < right as u64,
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Value(value) => write!(f, "%{}", value.0),
            Operand::Constant(number @ -9..=9) => write!(f, "{number}"),
            Operand::Constant(number) if *number < 0 => write!(f, "-{:#x}", number.unsigned_abs()),
            Operand::Constant(number) => write!(f, "{number:#x}"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Equal => "==",
            Condition::NotEqual => "~=",
            Condition::Less => "<",
            Condition::LessOrEqual => "<=",
            Condition::Below => "<u",
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.block.0)?;
        list(f, &self.arguments)
    }
}

fn list(f: &mut fmt::Formatter<'_>, operands: &[Operand]) -> fmt::Result {
    if operands.is_empty() {
        return Ok(());
    }
    let operands: Vec<_> = operands.iter().map(ToString::to_string).collect();
    write!(f, "({})", operands.join(", "))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Calculate(operation, left, right) => {
                let sign = match operation {
                    Operation::Add => "+",
                    Operation::Subtract => "-",
                    Operation::Multiply => "*",
                    Operation::And => "&",
                    Operation::Or => "|",
                    Operation::Xor => "^",
                    Operation::ShiftLeft => "<<",
                    Operation::ShiftRight => ">>",
                    Operation::Divide => "/",
                    Operation::Modulo => "%",
                };
                write!(f, "{left} {sign} {right}")
            }
            Action::Compare(condition, left, right) => write!(f, "{left} {condition} {right}"),
            Action::Length => f.write_str("length"),
            Action::Load { offset, bytes } => write!(f, "load {bytes} at {offset}"),
            Action::Store { offset, bytes, value } => write!(f, "store {bytes} at {offset}: {value}"),
            Action::PacketSum { difference } => write!(f, "packet's sum: {difference}"),
            Action::Resize { at, count } => write!(f, "resize by {count} at {at}"),
            Action::HeaderChecksum { offset, difference } => {
                write!(f, "header checksum at {offset}: {difference}")
            }
            Action::TransportChecksum { offset, difference, pseudo, optional } => {
                write!(
                    f,
                    "transport checksum at {offset}: {difference}, pseudo-header {pseudo}, optional {optional}"
                )
            }
            Action::Lookup { map, key, .. } => {
                write!(f, "look up in map {map}: ")?;
                list(f, key)
            }
            Action::Value { word } => write!(f, "number {word} of what was found"),
            Action::Update { fresh, map, key, value } => {
                write!(f, "{} map {map}: ", if *fresh { "insert into" } else { "update" })?;
                list(f, key)?;
                f.write_str(" = ")?;
                list(f, value)
            }
            Action::Replace { map, key, value } => {
                write!(f, "replace in map {map}: ")?;
                list(f, key)?;
                f.write_str(" = ")?;
                list(f, value)
            }
            Action::Add { map, key, amounts, .. } => {
                f.write_str("add ")?;
                list(f, amounts)?;
                write!(f, " in map {map}: ")?;
                list(f, key)
            }
            Action::Put { map, key, word, value, .. } => {
                write!(f, "number {word} in map {map}: ")?;
                list(f, key)?;
                write!(f, " = {value}")
            }
            Action::Delete { map, key } => {
                write!(f, "delete from map {map}: ")?;
                list(f, key)
            }
            Action::Find { map, address } => {
                write!(f, "find in map {map}: ")?;
                list(f, address)
            }
            Action::Count { map, place: Operand::Constant(0), amount } => {
                write!(f, "count {amount} in map {map}")
            }
            Action::Count { map, place, amount } => write!(f, "count {amount} in map {map} at {place}"),
            Action::Log { line, numbers, strings } => {
                let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                write!(f, "log line {line}: {}", numbers.join(", "))?;
                strings.iter().try_for_each(|[start, length]| write!(f, "; {length} octets at {start}"))
            }
            Action::Loop { body, turns, state } => {
                write!(f, "loop {body}, {turns} turns at most: ")?;
                list(f, state)
            }
            Action::State { word } => write!(f, "state {word}"),
            Action::SetState { word, value } => write!(f, "state {word} = {value}"),
            Action::Capture { name } => write!(f, "capture {name}"),
            Action::Mirror { interface } => write!(f, "copy to interface {interface}"),
            Action::Tag => f.write_str("VLAN tag"),
            Action::PushTag { tag } => write!(f, "push VLAN tag {tag}"),
            Action::PopTag => f.write_str("pop VLAN tag"),
            Action::Follow => f.write_str("follow the packet"),
            Action::Random => f.write_str("random"),
            Action::Time => f.write_str("time"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, block) in self.blocks.iter().enumerate() {
            let Some(end) = &block.end else { continue };
            write!(f, "block {number}")?;
            let parameters: Vec<_> = block.parameters.iter().map(|value| Operand::Value(*value)).collect();
            list(f, &parameters)?;
            writeln!(f, ":")?;
            for Instruction { line, result, action } in &block.code {
                // Bodies of loops are no line's.
                let place = if *line == 0 { " ".repeat(5) } else { format!("{line:5}") };
                if action.has_result() {
                    writeln!(f, "{place}    %{} = {action}", result.0)?;
                } else {
                    writeln!(f, "{place}    {action}")?;
                }
            }
            match end {
                End::Jump(target) => writeln!(f, "         {target}")?,
                End::Branch { condition, left, right, then, otherwise } => {
                    writeln!(f, "         if {left} {condition} {right} then {then} else {otherwise}")?;
                }
                End::Return(verdict) => writeln!(f, "         return {verdict}")?,
                End::Redirect(interface) => writeln!(f, "         redirect to interface {interface}")?,
                End::Punt => writeln!(f, "         hand over")?,
                End::Fail(failure, line) => writeln!(f, "{line:5}    fail: {failure}")?,
            }
        }
        for (number, body) in self.bodies.iter().enumerate() {
            write!(f, "loop {number}:\n{body}")?;
        }
        Ok(())
    }
}

impl Action {
    fn has_result(&self) -> bool {
        !self.changes_packet() && !matches!(self, Action::SetState { .. })
    }
}
