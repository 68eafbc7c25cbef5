//! What can be wrong with a declaration.

use super::{MAX_BITS, MAX_FIELDS};
use crate::kind::Kind;

/// What is wrong with the declaration of a protocol.
#[derive(Debug, thiserror::Error)]
#[error("protocol {name}: {fault}")]
pub struct DeclarationError {
    /// The protocol's name, `?` if it has none.
    pub(super) name: String,
    pub(super) fault: Fault,
}

/// What is wrong with a declaration, or with a table in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// A value that its key does not take.
    #[error("`{key}` must be {wanted}")]
    Value { key: &'static str, wanted: &'static str },
    /// A value of another type than there can be.
    #[error("{wanted}, not a {got}")]
    Type { wanted: &'static str, got: &'static str },
    /// A number that is too large, or negative.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// A key that has to be there.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A key that means nothing here; `known` are those that do, if they can be listed.
    #[error("unknown key {key}{}", if known.is_empty() { String::new() } else { format!(" (known are {})", known.join(", ")) })]
    UnknownKey { key: String, known: &'static [&'static str] },
    /// Keys that belong together, or exclude each other.
    #[error("{0}")]
    Combination(&'static str),
    /// What is wrong is in the table that a key has.
    #[error("{key}: {fault}")]
    In { key: &'static str, fault: Box<Fault> },
    /// An entry of `protocol_fields` that is no field.
    #[error("protocol_fields: entry {0} is not a table")]
    NotATable(usize),
    /// A step of `get_field_changes` that is none.
    #[error("a step must be a table")]
    StepNotATable,
    /// An entry of `protocol_fields` that is no field that there can be.
    #[error("protocol_fields: entry {entry}: {fault}")]
    Field { entry: usize, fault: FieldFault },
    /// Two fields of one name.
    #[error("protocol_fields: {0} is there twice")]
    Twice(String),
    /// A field that would hide a method.
    #[error("field {0}: every view has a method of this name")]
    MethodName(String),
    /// More fields than a handle can tell apart.
    #[error("{0} fields: at most {MAX_FIELDS}")]
    TooManyFields(usize),
    /// A field that the protocol does not have.
    #[error("`{key}`: there is no field {field}")]
    NoField { key: &'static str, field: String },
    /// A field that has no integer to decide by.
    #[error("`{key}`: {field} must be of the kind int or bool")]
    NoInteger { key: &'static str, field: String },
    /// What stands behind a number in a policy is no name of a protocol.
    #[error("[{number}] must be {wanted}")]
    Next { number: u64, wanted: &'static str },
    /// More protocols than have numbers.
    #[error("too many protocols")]
    TooManyProtocols,
    /// Lua cannot read a table.
    #[error("{0}")]
    Lua(#[from] mlua::Error),
}

impl Fault {
    /// The same, in the table that `key` has.
    pub(super) fn inside(self, key: &'static str) -> Self {
        Self::In { key, fault: Box::new(self) }
    }
}

/// What is wrong with a field; `part` is its offset, length, getter or setter.
#[derive(Debug, thiserror::Error)]
pub(super) enum FieldFault {
    /// It has no name.
    #[error("the name must be a string")]
    NoName,
    /// Its name cannot be that of a method.
    #[error("{0:?} is not an identifier: a method gets this name")]
    Name(String),
    /// No number of bits.
    #[error("{field}: the {part} must be an integer, in bits")]
    NoBits { field: String, part: &'static str },
    /// More bits than there can be, or less than none.
    #[error("{field}: the {part} {bits} must be between 0 and {MAX_BITS} bits")]
    Bits { field: String, part: &'static str, bits: i64 },
    /// Nothing that reads or writes it.
    #[error("{field}: the {part} must be a kind, a function or its name, not a {got}")]
    Access { field: String, part: &'static str, got: &'static str },
    /// A kind of another length.
    #[error("{field}: a field of the kind {kind} has {bits} bits")]
    Length { field: String, kind: Kind, bits: u32 },
    /// An integer that Lua's do not hold.
    #[error("{0}: an int has at most 64 bits")]
    LongInt(String),
    /// A kind of whole octets that begins or ends within one.
    #[error("{field}: a field of the kind {kind} begins and ends with an octet")]
    WithinOctet { field: String, kind: Kind },
    /// Lua cannot read its entry.
    #[error("{0}")]
    Lua(#[from] mlua::Error),
}
