//! What a script says, with its names resolved, or why that cannot be read.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a text has no tree, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub(crate) struct Error {
    /// The line, from 1 on.
    pub(crate) line: u32,
    /// What is wrong.
    pub(crate) message: String,
}

/// What is read, or why not.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Which of a chunk's functions; 0 is the chunk itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FunctionId(pub(crate) usize);

/// Which of a chunk's local variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LocalId(pub(crate) usize);

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// All functions, in the order in which they begin; the first is the chunk.
    pub(crate) functions: Vec<Function>,
    /// All local variables and parameters.
    pub(crate) locals: Vec<Local>,
    /// Names behind a dot in functions, where it is no variable of the top level or library that they are of.
    pub(crate) fields: BTreeSet<Arc<str>>,
    /// The first line of them all from which on tables and global variables of the top level may become others than it left them
    /// without an assignment to a variable: an entry that is set in a function, a function that can do so, a module.
    pub(crate) unsettled: Option<u32>,
    /// Where what names stand for is changed in a way that is not followed, and how.
    pub(crate) renamed: Option<Error>,
    /// Names, in their order.
    pub(crate) mentions: Vec<Mention>,
}

/// A name where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Mention {
    /// What it is there.
    pub(crate) what: Mentioned,
    /// The name.
    pub(crate) name: Arc<str>,
    /// Where.
    pub(crate) line: u32,
    /// In which function.
    pub(crate) function: FunctionId,
}

/// What a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mentioned {
    /// A local variable that is read.
    Local,
    /// A global variable that is read.
    Global,
    /// A global variable that is assigned to, or a protocol's name.
    SetGlobal,
    /// What a global variable of this name has by this one: `nf.log`.
    EntryOf(Arc<str>),
    /// A method that is called.
    Method,
    /// What a table gets by this name.
    Key,
}

/// A function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// As it was declared, for messages: `process_packet`, `Filter:check`, or where it stands if it has no name.
    pub(crate) name: String,
    /// The one around it; of the chunk it is the chunk.
    pub(crate) outer: FunctionId,
    /// The line of `function`, and that of its `end`: what Lua says of a function, too.
    pub(crate) lines: (u32, u32),
    /// Its parameters; with `self`, if it is a method.
    pub(crate) parameters: Vec<LocalId>,
    /// Whether it takes more than these.
    pub(crate) variadic: bool,
    /// The local variable that it is declared as, by `local function`.
    pub(crate) variable: Option<LocalId>,
    /// Whether it may run when there are packets: others are called by the top level alone, or by tests.
    pub(crate) may_run: bool,
    /// The first line from which on it may set an entry of a table of the top level.
    pub(crate) unsettles: Option<u32>,
    /// The first one from which on it may set a global variable without naming it.
    pub(crate) reaches: Option<u32>,
    /// What it does.
    pub(crate) body: Block,
}

/// A local variable.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Where it is declared.
    pub(crate) line: u32,
    /// Whether something is assigned to it after it was declared.
    pub(crate) assigned: bool,
    /// The function that it is of: for the top level, the chunk.
    pub(crate) function: FunctionId,
}

/// Statements with a scope of their own.
pub(crate) type Block = Vec<Statement>;

/// A statement and the line where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// The line, from 1 on.
    pub(crate) line: u32,
    /// Which one.
    pub(crate) kind: StatementKind,
}

/// What a statement may be.
#[derive(Clone, Debug)]
pub(crate) enum StatementKind {
    /// `local a, b = …`
    Local(Vec<LocalId>, Vec<Expression>),
    /// `a, b.c = …`
    Assign(Vec<Target>, Vec<Expression>),
    /// A call whose results are not used.
    Call(Expression),
    /// `do … end`
    Do(Block),
    /// `if … elseif … else … end`: conditions with what they decide, and the rest.
    If(Vec<(Expression, Block)>, Block),
    /// `while … do … end`
    While(Expression, Block),
    /// `repeat … until …`; the condition sees the block's variables.
    Repeat(Block, Expression),
    /// `for i = from, to, step do … end`
    For {
        /// The variable, new in each turn.
        variable: LocalId,
        /// Its first value.
        from: Expression,
        /// Its last one.
        to: Expression,
        /// What is added; 1 if it is not said.
        step: Option<Expression>,
        /// What is done.
        body: Block,
    },
    /// `for k, v in … do … end`
    ForIn(Block),
    /// `return …`
    Return(Vec<Expression>),
    /// `break`
    Break,
    /// `goto name`
    Goto(Arc<str>),
    /// `::name::`
    Label,
}

/// What can be assigned to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A variable.
    Variable(Variable),
    /// `object[key]`, `object.key`
    Index(Expression, Expression),
}

/// A name, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// A local variable, of this function or of one around it.
    Local(LocalId),
    /// A global one.
    Global(Arc<str>),
}

/// An expression and the line where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    /// The line, from 1 on.
    pub(crate) line: u32,
    /// Which one.
    pub(crate) kind: Box<ExpressionKind>,
}

/// What an expression may be.
#[derive(Clone, Debug)]
pub(crate) enum ExpressionKind {
    /// `nil`
    Nil,
    /// `true`, `false`
    Boolean(bool),
    /// A number that is an integer (Lua 5.4, 3.1).
    Integer(i64),
    /// One that is not.
    Float(f64),
    /// Bytes, escapes resolved.
    String(Arc<[u8]>),
    /// `...`
    Rest,
    /// `function … end`
    Function(FunctionId),
    /// A name.
    Variable(Variable),
    /// `object[key]`, `object.key`
    Index(Expression, Expression),
    /// `function(arguments)`
    Call(Expression, Vec<Expression>),
    /// `object:name(arguments)`
    Method(Expression, Arc<str>, Vec<Expression>),
    /// An operator before its operand.
    Unary(Unary, Expression),
    /// An operator between its operands.
    Binary(Binary, Expression, Expression),
    /// `{ … }`: its entries, if all have names
    Table(Option<Vec<(Arc<str>, Expression)>>),
    /// `( … )`, where it matters: one value of what may be several.
    One(Expression),
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    /// `-`
    Negate,
    /// `not`
    Not,
    /// `#`
    Length,
    /// `~`
    Complement,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say it themselves")]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    /// `/`, always a float.
    Divide,
    /// `//`
    FloorDivide,
    /// `%`
    Modulo,
    Power,
    Concatenate,
    ShiftLeft,
    ShiftRight,
    BitAnd,
    BitXor,
    BitOr,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}
