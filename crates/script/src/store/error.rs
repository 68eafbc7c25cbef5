//! Why a view cannot be used.

use crate::checksum::ResizeError;
use crate::kind::ValueError;
use crate::vlan::VlanError;

/// Why a view cannot be used so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Of an earlier packet, or from before the packet grew or shrank.
    #[error(
        "this packet is gone: a view is good until its packet is done with, grows or shrinks, or its VLAN tag comes or goes"
    )]
    Gone,
    /// Octets that the view does not have.
    #[error("offset {offset}, length {length}: the {whole} has {available} octets")]
    Outside {
        /// First octet, or bit where there is a fraction.
        offset: String,
        /// How many.
        length: String,
        /// What it is a part of.
        whole: &'static str,
        /// How many it has.
        available: usize,
    },
    /// Addresses of a link header that there is not.
    #[error(
        "there is no link header here to read an address of: Lua has the source of packets that come in alone, and a \
         script that is compiled has all of it at an interface"
    )]
    NoAddress,
    /// A link header that there is not.
    #[error("there is no link header here to write: a script that is compiled has one at an interface")]
    NoLink,
    /// Neither does what is done to a packet.
    #[error("only the packet itself has a VLAN tag, not a part of it or a byte array")]
    NotWhole,
    /// What is wrong with a VLAN tag.
    #[error("{0}")]
    Vlan(#[from] VlanError),
    /// A byte array of a field that begins or ends within an octet.
    #[error(
        "bit {offset}, {length} bits: only fields of the kind int or bool may begin or end within an octet"
    )]
    Bits {
        /// First bit.
        offset: usize,
        /// How many.
        length: usize,
    },
    /// A field that has no bits here.
    #[error("the {0} is empty in this packet")]
    Empty(String),
    /// A protocol in place of a view.
    #[error("a view is wanted, not a protocol: view:data(protocol), with a colon")]
    Protocol,
    /// A part of a packet, or a byte array.
    #[error("only the whole packet can grow and shrink")]
    Part,
    /// A field that the view's protocol does not have.
    #[error("a {view} has no {field}")]
    NoField {
        /// What has been asked.
        view: String,
        /// For what.
        field: String,
    },
    /// More headers between a header and the one that is asked for than are followed: what is behind them is not known.
    #[error("more than eight headers lie between: what is behind them is not looked for")]
    TooDeep,
    /// More views than a handle can tell apart.
    #[error("too many views of one packet")]
    TooMany,
    /// A value that the field does not take.
    #[error("{0}")]
    Value(#[from] ValueError),
    /// A function for field changes did not tell what it must.
    #[error("{protocol}: get_field_changes must return two lists of {fields} integers, in bits")]
    Changes {
        /// Whose function it is.
        protocol: String,
        /// How many fields it has.
        fields: usize,
    },
    /// Growing or shrinking.
    #[error("{0}")]
    Resize(#[from] ResizeError),
}
