//! What a protocol is: its fields, which protocols its payload may hold, and how a header's own contents move its
//! fields. Built-in protocols and those of scripts are declared in the same form
//! (`register_dynamic_protbuf`); this is what the declarations become.

pub mod builtin;
pub mod declaration;
mod declaration_error;
pub mod reference;

use rustc_hash::FxHashMap;
use wire::domain_name::{LONGEST_LABEL, LONGEST_NAME};

use crate::kind::Kind;

/// Most fields that a protocol may have.
pub const MAX_FIELDS: usize = 64;
/// Far more than any packet has, so that sums of offsets and lengths cannot overflow.
const MAX_BITS: u32 = 1 << 24;

/// Stands for a protocol in a table of [`Protocols`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtocolId(pub(crate) u16);

impl ProtocolId {
    /// `packet_raw`: octets without fields. Every payload is this too.
    pub const RAW: Self = Self(0);
}

/// One protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocol {
    /// Name of the global variable that stands for it, such as `packet_ip`.
    pub name: String,
    /// What it is and where it is defined, for the reference.
    pub about: String,
    /// The fields, in the order of the declaration.
    pub fields: Vec<Field>,
    /// The field that holds the protocol within.
    pub payload: Option<usize>,
    /// Which protocols that may be.
    pub policy: Policy,
    /// How fields move with the header's contents.
    pub changes: Changes,
}

/// A field, where it is unless something moves it.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name of the method.
    pub name: String,
    /// First bit, from the beginning of the header.
    pub offset: u32,
    /// Length in bits; 0 is an empty field, and in the payload field all up to the end.
    pub length: u32,
    /// How `get` reads it.
    pub getter: Access,
    /// How `set` writes it.
    pub setter: Access,
}

/// How a field is read or written.
#[derive(Debug, Clone, PartialEq)]
pub enum Access {
    /// By its kind.
    Kind(Kind),
    /// By a function of the script.
    Function,
}

impl Field {
    /// The kind that its octets are taken for, also where functions read and write it.
    pub const fn kind(&self) -> Kind {
        match (&self.getter, &self.setter) {
            (Access::Kind(kind), _) | (Access::Function, Access::Kind(kind)) => *kind,
            (Access::Function, Access::Function) => Kind::Raw,
        }
    }
}

/// Which protocols a payload may hold. `packet_raw` is always allowed.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// Any.
    Always,
    /// None.
    Never,
    /// As a field says.
    Table(PolicyTable),
    /// A function of the script decides.
    Function,
}

/// A policy that can be read from a field.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyTable {
    /// The field that tells.
    pub field: usize,
    /// What else must be so.
    pub when: Option<Condition>,
    /// Values of the field, and the protocols that each stands for.
    pub protocols: Vec<(u64, ProtocolId)>,
    /// Protocols that may lie between: extension headers.
    pub through: Vec<ProtocolId>,
}

/// Something that must be so of a field.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The field.
    pub field: usize,
    /// Its values.
    pub values: Vec<u64>,
    /// Whether it must be one of them, or none of them.
    pub is: bool,
}

impl Condition {
    /// Whether it holds for this value of the field.
    pub fn holds(&self, value: u64) -> bool {
        self.values.contains(&value) == self.is
    }
}

/// How fields move.
#[derive(Debug, Clone, PartialEq)]
pub enum Changes {
    /// They do not.
    None,
    /// As these steps say, one after the other; each sees the fields where the ones before it have moved them.
    Steps(Vec<Step>),
    /// From this field on, which the fixed header ends before, they are the first question of DNS (RFC 1035 §4.1.2): its name,
    /// type, class, and what is behind it. All are empty if it cannot be read: see [`question_name`].
    Question(usize),
    /// A function of the script tells offsets and lengths.
    Function,
}

/// Octets of a question behind its name: type and class.
pub const BEHIND_NAME: usize = 4;
/// Where the number of questions stands in a message, 16 bits.
pub const QUESTIONS: usize = 4;

/// Octets of the name of the first question of a message of DNS, in which it begins at `at`; 0 if there is none that can be
/// read: a pointer (RFC 1035 §4.1.4) has no place in it, and type and class are behind it.
#[must_use]
pub fn question_name(message: &[u8], at: usize) -> usize {
    if message.get(QUESTIONS..QUESTIONS + 2).is_none_or(|count| count == [0, 0]) {
        return 0;
    }
    let question = message.get(at..).unwrap_or_default();
    let mut length = 0;
    while length < LONGEST_NAME {
        match question.get(length) {
            Some(0) if length + 1 + BEHIND_NAME <= question.len() => return length + 1,
            Some(label @ 1..=LONGEST_LABEL) => length += 1 + usize::from(*label),
            _ => return 0,
        }
    }
    0
}

/// One step of [`Changes::Steps`].
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The step is left out unless this holds.
    pub when: Option<Condition>,
    /// What it does.
    pub effect: Effect,
    /// By how much.
    pub amount: Amount,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// This field is longer, and those declared behind it lie further behind.
    Grow(usize),
    /// The whole is this long, if that is not more than there is.
    End,
}

/// A number of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Always the same.
    Bits(u32),
    /// As a field says: its value times `unit`, and `plus`. A value of zero in [`Effect::End`] says nothing.
    Field {
        /// The field.
        field: usize,
        /// Bits that one of its value stands for.
        unit: u32,
        /// Bits to be added, or taken off: a header that is too short is refused.
        plus: i64,
    },
}

impl Protocol {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The bits that must be there: those of all fields that have a length.
    pub fn minimum(&self) -> u32 {
        self.fields
            .iter()
            .filter(|field| field.length > 0)
            .map(|field| field.offset + field.length)
            .max()
            .unwrap_or(0)
    }
}

/// Stands for the name of a field, which fields of several protocols may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldName(u16);

/// All protocols of a state, by number and by name.
#[derive(Debug, Clone)]
pub struct Protocols {
    entries: Vec<Entry>,
    ids: FxHashMap<String, ProtocolId>,
    field_names: Vec<String>,
}

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    declared: Option<Declared>,
}

#[derive(Debug, Clone)]
struct Declared {
    protocol: Protocol,
    minimum: u32,
    /// Of each field name, by its number, one more than the field's position; 0 where there is no such field.
    positions: Vec<u8>,
}

impl Default for Protocols {
    fn default() -> Self {
        let mut protocols = Self { entries: Vec::new(), ids: FxHashMap::default(), field_names: Vec::new() };
        let raw = protocols.id("packet_raw");
        debug_assert_eq!(raw, Some(ProtocolId::RAW));
        protocols
    }
}

impl Protocols {
    /// The number of a name, which need not be declared yet: policies name protocols that come later. None when
    /// there are too many.
    pub fn id(&mut self, name: &str) -> Option<ProtocolId> {
        if let Some(&id) = self.ids.get(name) {
            return Some(id);
        }
        let id = ProtocolId(u16::try_from(self.entries.len()).ok()?);
        self.entries.push(Entry { name: name.to_owned(), declared: None });
        self.ids.insert(name.to_owned(), id);
        Some(id)
    }

    /// The number of a name that is known.
    pub fn known(&self, name: &str) -> Option<ProtocolId> {
        self.ids.get(name).copied()
    }

    /// Adds a protocol, or replaces the one of its name. None when there are too many, of them or of names of fields.
    pub fn insert(&mut self, protocol: Protocol) -> Option<ProtocolId> {
        let id = self.id(&protocol.name)?;
        let minimum = protocol.minimum();
        let mut positions = Vec::new();
        for (position, field) in (1..).zip(&protocol.fields) {
            let name = usize::from(self.named(&field.name)?.0);
            if positions.len() <= name {
                positions.resize(name + 1, 0);
            }
            positions[name] = position;
        }
        self.entries[usize::from(id.0)].declared = Some(Declared { protocol, minimum, positions });
        Some(id)
    }

    /// The number of a field's name.
    pub(crate) fn named(&mut self, name: &str) -> Option<FieldName> {
        let at = self.field_names.iter().position(|known| known == name);
        let number = u16::try_from(at.unwrap_or(self.field_names.len())).ok()?;
        if at.is_none() {
            self.field_names.push(name.to_owned());
        }
        Some(FieldName(number))
    }

    /// The name of this number.
    pub(crate) fn field_name(&self, name: FieldName) -> &str {
        self.field_names.get(usize::from(name.0)).map_or("?", |name| name)
    }

    /// Where in the protocol the field of this name is.
    pub(crate) fn position(&self, id: ProtocolId, name: FieldName) -> Option<usize> {
        let position = *self.declared(id)?.positions.get(usize::from(name.0))?;
        usize::from(position).checked_sub(1)
    }

    /// The protocol of this number, if it is declared.
    pub fn get(&self, id: ProtocolId) -> Option<&Protocol> {
        Some(&self.declared(id)?.protocol)
    }

    /// The protocol and the bits that it needs at least.
    pub(crate) fn with_minimum(&self, id: ProtocolId) -> Option<(&Protocol, u32)> {
        let declared = self.declared(id)?;
        Some((&declared.protocol, declared.minimum))
    }

    fn declared(&self, id: ProtocolId) -> Option<&Declared> {
        self.entries.get(usize::from(id.0))?.declared.as_ref()
    }

    /// The name of this number.
    pub fn name(&self, id: ProtocolId) -> &str {
        self.entries.get(usize::from(id.0)).map_or("?", |entry| &entry.name)
    }

    /// Those that are declared, in the order in which they were first named.
    pub fn iter(&self) -> impl Iterator<Item = &Protocol> {
        self.entries.iter().filter_map(|entry| entry.declared.as_ref().map(|declared| &declared.protocol))
    }
}
