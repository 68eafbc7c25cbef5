//! What outlives a packet: tables of the library, as plain data.

use crate::kind::Kind;
use crate::tables::Shape;

/// A table, counter or set of prefixes of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Its name: the same one in all scripts.
    pub name: String,
    /// What it is.
    pub form: Form,
}

/// What there is.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// `nf.table`
    Table {
        /// Kinds of the parts of a key. None: strings.
        key: Vec<Option<Kind>>,
        /// Kind of the values. None: strings.
        value: Option<Kind>,
        /// Its limit, expiry, and what happens when it is full.
        shape: Shape,
    },
    /// `nf.counter`
    Counter,
    /// `nf.prefixes`
    Prefixes {
        /// Prefixes at most.
        limit: usize,
        /// Those that the top level has put there, with their integers.
        entries: Vec<(ipnet::IpNet, i64)>,
    },
}
