//! What a script has made before the first packet: its top level has run in the VM, and what packet functions find there
//! is fixed.

use std::sync::Arc;

use super::shared::Shared;
use crate::host::InterfaceError;
use crate::protocol::{ProtocolId, Protocols};
use crate::syntax::tree::{FunctionId, LocalId};

/// A value of the script's top level.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Known {
    /// nil
    Nil,
    /// true or false
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A string.
    String(Arc<[u8]>),
    /// A function of the chunk.
    Function(FunctionId),
    /// A library, or a function of it: `nf`, `nf.get_time`.
    Library(Arc<str>),
    /// A protocol.
    Protocol(ProtocolId),
    /// A table, as it is after the top level.
    Table(Arc<[(Known, Known)]>),
    /// A table of the library, or its like.
    Shared(Arc<Shared>),
    /// A table of streams.
    Streams(Arc<Shared>),
    /// Something else, as messages call it.
    Other(Arc<str>),
}

impl Known {
    pub(super) fn name(&self) -> String {
        match self {
            Known::Nil => "nil".to_owned(),
            Known::Boolean(_) => "a boolean".to_owned(),
            Known::Integer(_) => "an integer".to_owned(),
            Known::String(_) => "a string".to_owned(),
            Known::Function(_) => "a function".to_owned(),
            Known::Library(name) => format!("'{name}'"),
            Known::Protocol(_) => "a protocol".to_owned(),
            Known::Table(_) => "a table".to_owned(),
            Known::Shared(shared) | Known::Streams(shared) => format!("'{}'", shared.name),
            Known::Other(name) => name.to_string(),
        }
    }
}

/// What the compiler asks of the script as it is after its top level has run.
pub(crate) trait TopLevel {
    /// A global variable.
    fn global(&self, name: &str) -> Known;
    /// A local variable of the top level, if it is in scope at its end.
    fn local(&self, local: LocalId) -> Option<Known>;
    /// A field of a library: `nf.get_time`.
    fn field(&self, of: &str, name: &str) -> Known;
    /// What strings have as a method of this name.
    fn of_strings(&self, name: &str) -> Known;
    /// The number of an interface.
    fn interface(&self, name: &str) -> Result<u32, InterfaceError>;
    /// The protocols that it knows.
    fn protocols(&self) -> &Protocols;
}
