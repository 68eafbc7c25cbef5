//! What a script has made before the first packet: its top level has run in the VM, and what packet functions find there
//! is fixed.

use std::sync::Arc;

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
    /// A float.
    Float(f64),
    /// A string.
    String(Arc<[u8]>),
    /// A function of the chunk.
    Function(FunctionId),
    /// A library, or a function or constant of it: `nf`, `nf.get_time`.
    Library(Arc<str>),
    /// Something else, as messages call it.
    Other(Arc<str>),
}

impl Known {
    pub(super) fn name(&self) -> String {
        match self {
            Known::Nil => "nil".to_owned(),
            Known::Boolean(_) => "a boolean".to_owned(),
            Known::Integer(_) => "an integer".to_owned(),
            Known::Float(_) => "a float".to_owned(),
            Known::String(_) => "a string".to_owned(),
            Known::Function(_) => "a function".to_owned(),
            Known::Library(name) => format!("'{name}'"),
            Known::Other(name) => name.to_string(),
        }
    }
}

/// What the compiler asks of the script as it is after its top level has run.
pub(crate) trait Globals {
    /// A global variable.
    fn global(&self, name: &str) -> Known;
    /// A local variable of the top level, or of a function that has returned.
    fn local(&self, local: LocalId) -> Known;
    /// A field of a library or table: `nf.get_time`.
    fn field(&self, of: &str, name: &str) -> Known;
}
