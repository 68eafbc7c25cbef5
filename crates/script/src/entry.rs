//! Entries of tables as octets, and as they are told outside: as values by the kinds that the script has declared.
//!
//! A key has always as many octets for one table, and so has a value: integers big-endian, a boolean in one, addresses as
//! they are, a text of its length in two and as many as it may have. The tables of Lua keep just that. A prefix is its
//! length in one octet and then the address; the key of a counter is empty, and that of a number of a histogram is its
//! place in four. [`Map`](crate::compile::shared::Map) makes
//! of it what a map of the kernel has.

mod in_map;
mod text;

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::compile::shared::{Form, Part, Shared};
use crate::kind::{Kind, Value};
use crate::store::Given;
use crate::tables::WhenFull;
use text::{shown, unescaped};

/// Longest text in a key or value, in octets.
const MAX_TEXT: usize = 1024;
/// What each integer and address has in a map, in bytes.
const WORD: usize = 8;
/// What is at the first place of a histogram, and at the last.
const SUM: &str = "sum";
const LAST_BUCKET: &str = "+Inf";

/// An entry of a table, a counter or a set of prefixes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// What it is found by.
    pub key: Vec<u8>,
    /// What is found.
    pub value: Vec<u8>,
}

/// Why something is no part of a key, or no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It is of another kind.
    #[error("{part} takes {}, not {got}", .part.takes())]
    Form {
        /// What there has to be.
        part: Part,
        /// What was given.
        got: String,
    },
    /// A part of an address, with which packets may be compared.
    #[error("a table takes whole addresses, not {0:?}")]
    Partial(String),
    /// A string that is too long.
    #[error("the string is longer than the {limit} octets of the table: it has {length}")]
    Long {
        /// What the table takes.
        limit: usize,
        /// What was given.
        length: usize,
    },
    /// What cannot be told in a text.
    #[error("{0:?}: a backslash is written \\\\, and an octet that is no text \\xff")]
    Escape(String),
    /// It is no prefix.
    #[error("{0} is not a prefix, such as 2001:db8::/32")]
    Prefix(String),
    /// The key has more parts, or fewer.
    #[error("{}", key_parts(.wanted, *.given))]
    Parts {
        /// The kinds of its parts.
        wanted: Vec<String>,
        /// How many were given.
        given: usize,
    },
    /// The value has more parts, or fewer.
    #[error("the value is {}, and {given} were given", .wanted.join(" and "))]
    Values {
        /// The kinds of its parts.
        wanted: Vec<String>,
        /// How many were given.
        given: usize,
    },
    /// It is none of a histogram's.
    #[error("{0} is no bucket: there are {1}")]
    Bucket(String, String),
    /// What only packets make.
    #[error(
        "flows are made by packets: from outside they are counted, and forgotten together (`delete --all`)"
    )]
    Flows,
}

fn key_parts(wanted: &[String], given: usize) -> String {
    match wanted {
        [] => format!("a counter has no key, and {given} were given"),
        [one] => format!("the key is one {one}, and {given} were given"),
        many => format!("the key has {} parts ({}), and {given} were given", many.len(), many.join(", ")),
    }
}

impl Part {
    /// What a declaration calls so: `ipv6`, `text:16`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(length) = name.strip_prefix("text:") {
            let length = length.parse().ok().filter(|length| (1..=MAX_TEXT).contains(length))?;
            return Some(Self::Text(length));
        }
        match Kind::from_name(name)? {
            Kind::Raw | Kind::Text => None,
            kind => Some(Self::Kind(kind)),
        }
    }

    fn takes(self) -> String {
        match self {
            Self::Kind(Kind::Int) => "an integer of 64 bits".to_owned(),
            Self::Kind(kind) => kind.takes().to_owned(),
            Self::Text(longest) => format!("a string of {longest} octets at most"),
        }
    }

    /// How many octets it has.
    const fn octets(self) -> usize {
        match self {
            Self::Kind(Kind::Bool) => 1,
            Self::Kind(kind) => match kind.bits() {
                Some(bits) => bits as usize / 8,
                None => WORD,
            },
            Self::Text(longest) => 2 + longest,
        }
    }

    /// Appends the octets of a value that is of this kind.
    pub(crate) fn encode(self, value: Given<'_>, to: &mut Vec<u8>) -> Result<(), EntryError> {
        match (self, value) {
            (Self::Kind(Kind::Int), Given::Int(value)) => to.extend(value.to_be_bytes()),
            (Self::Kind(Kind::Bool), Given::Bool(value)) => to.push(u8::from(value)),
            (Self::Kind(kind @ (Kind::Mac | Kind::Ipv4 | Kind::Ipv6)), Given::Text(text)) => {
                let mut octets = [0; 16];
                match kind.parse(text, &mut octets) {
                    Ok(count) if count == self.octets() => to.extend(&octets[..count]),
                    Ok(_) => return Err(EntryError::Partial(String::from_utf8_lossy(text).into_owned())),
                    Err(_) => return Err(self.refuses(value)),
                }
            }
            (Self::Text(limit), Given::Text(text)) if text.len() <= limit => {
                // At most MAX_TEXT.
                to.extend((text.len() as u16).to_be_bytes());
                to.extend_from_slice(text);
                to.resize(to.len() + limit - text.len(), 0);
            }
            (Self::Text(limit), Given::Text(text)) => {
                return Err(EntryError::Long { limit, length: text.len() });
            }
            _ => return Err(self.refuses(value)),
        }
        Ok(())
    }

    fn refuses(self, value: Given<'_>) -> EntryError {
        EntryError::Form { part: self, got: value.describe() }
    }

    /// The value that [`encode`](Self::encode) was given.
    pub(crate) fn decode(self, octets: &[u8]) -> Value {
        match self {
            Self::Kind(Kind::Int) => Value::Int(integer(octets)),
            Self::Kind(Kind::Bool) => Value::Bool(octets == [1]),
            Self::Kind(kind) => kind.read(octets),
            Self::Text(_) => {
                let length =
                    octets.first_chunk().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
                Value::Text(octets.get(2..2 + length).unwrap_or_default().to_vec())
            }
        }
    }

    /// The same from outside, where all may be texts, as in a file of commas, and texts have [escapes](shown).
    fn encode_told(self, value: Given<'_>, to: &mut Vec<u8>) -> Result<(), EntryError> {
        let Given::Text(text) = value else { return self.encode(value, to) };
        let trimmed = text.trim_ascii();
        let number = || std::str::from_utf8(trimmed).ok()?.parse().ok();
        match (self, trimmed) {
            (Self::Text(_), _) => {
                let wrong = || EntryError::Escape(String::from_utf8_lossy(text).into_owned());
                self.encode(Given::Text(&unescaped(text).ok_or_else(wrong)?), to)
            }
            (Self::Kind(Kind::Bool), b"true") => self.encode(Given::Bool(true), to),
            (Self::Kind(Kind::Bool), b"false") => self.encode(Given::Bool(false), to),
            (Self::Kind(Kind::Int), _) if let Some(number) = number() => self.encode(Given::Int(number), to),
            _ => self.encode(Given::Text(trimmed), to),
        }
    }

    /// As it is told outside.
    fn told(self, octets: &[u8]) -> Value {
        match self.decode(octets) {
            Value::Text(text) => Value::Text(shown(&text).into_bytes()),
            value => value,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(f),
            Self::Text(longest) => write!(f, "text:{longest}"),
        }
    }
}

impl Shared {
    /// The names of the parts of a key, as the declaration has them.
    #[must_use]
    pub fn key_names(&self) -> Vec<String> {
        match &self.form {
            Form::Table { key, .. } => key.iter().map(ToString::to_string).collect(),
            Form::Prefixes { .. } => vec!["prefix".to_owned()],
            Form::Histogram { .. } => vec!["bucket".to_owned()],
            Form::Counter | Form::Flows { .. } => Vec::new(),
        }
    }

    /// The names of the parts of a value: one, or those of a record.
    #[must_use]
    pub fn value_names(&self) -> Vec<String> {
        self.value_parts().iter().map(ToString::to_string).collect()
    }

    fn value_parts(&self) -> &[Part] {
        match &self.form {
            Form::Table { value, .. } => value,
            Form::Prefixes { .. } | Form::Counter | Form::Histogram { .. } | Form::Flows { .. } => {
                &[Part::Kind(Kind::Int)]
            }
        }
    }

    /// How many entries it takes.
    #[must_use]
    pub fn limit(&self) -> usize {
        match &self.form {
            Form::Table { shape, .. } | Form::Flows { shape, .. } => shape.limit,
            Form::Prefixes { limit, .. } => *limit,
            Form::Counter => 1,
            // The sum, and one more for what is larger than all bounds.
            Form::Histogram { bounds } => bounds.len() + 2,
        }
    }

    /// Keys of what always is there; none where entries come and go.
    #[must_use]
    pub fn places(&self) -> Option<Vec<Vec<u8>>> {
        match &self.form {
            Form::Counter => Some(vec![Vec::new()]),
            Form::Histogram { .. } => Some((0..self.limit()).map(place_key).collect()),
            Form::Table { .. } | Form::Flows { .. } | Form::Prefixes { .. } => None,
        }
    }

    /// The names of a histogram's numbers, in their places.
    fn buckets(bounds: &[i64]) -> impl Iterator<Item = String> {
        let ends = bounds.iter().map(ToString::to_string);
        [SUM.to_owned()].into_iter().chain(ends).chain([LAST_BUCKET.to_owned()])
    }

    /// Whether it forgets old entries when it is full, and so takes any.
    #[must_use]
    pub fn evicts(&self) -> bool {
        matches!(&self.form, Form::Table { shape, .. } | Form::Flows { shape, .. } if shape.when_full == WhenFull::Oldest)
    }

    /// The key that is told so.
    ///
    /// # Errors
    /// What it has to be.
    pub fn key(&self, parts: &[Given<'_>]) -> Result<Vec<u8>, EntryError> {
        let names = self.key_names();
        if parts.len() != names.len() && !matches!(self.form, Form::Flows { .. }) {
            return Err(EntryError::Parts { wanted: names, given: parts.len() });
        }
        match &self.form {
            Form::Table { key, .. } => encode_all(key, parts),
            Form::Prefixes { .. } => {
                let told = parts.first().map_or_else(String::new, |told| told.describe());
                match parts.first() {
                    Some(Given::Text(text)) => std::str::from_utf8(text.trim_ascii()).ok().and_then(prefix),
                    _ => None,
                }
                .map(prefix_key)
                .ok_or(EntryError::Prefix(told))
            }
            Form::Counter => Ok(Vec::new()),
            Form::Histogram { bounds } => {
                let told = match parts.first() {
                    Some(Given::Text(text)) => String::from_utf8_lossy(text.trim_ascii()).into_owned(),
                    told => told.map_or_else(String::new, |told| told.describe()),
                };
                let place = Self::buckets(bounds).position(|name| name == told);
                let there = || Self::buckets(bounds).collect::<Vec<_>>().join(", ");
                place.map(place_key).ok_or_else(|| EntryError::Bucket(told, there()))
            }
            Form::Flows { .. } => Err(EntryError::Flows),
        }
    }

    /// The value that is told so, by its parts.
    ///
    /// # Errors
    /// What it has to be.
    pub fn value(&self, told: &[Given<'_>]) -> Result<Vec<u8>, EntryError> {
        let parts = self.value_parts();
        if parts.len() != told.len() {
            return Err(EntryError::Values { wanted: self.value_names(), given: told.len() });
        }
        encode_all(parts, told)
    }

    /// A key as it is told: [`Shared::key`] takes it back.
    #[must_use]
    pub fn key_told(&self, octets: &[u8]) -> Vec<Value> {
        match &self.form {
            Form::Table { key, .. } => split(key, octets).map(|(part, own)| part.told(own)).collect(),
            Form::Prefixes { .. } => key_prefix(octets)
                .map(|prefix| Value::Text(prefix.to_string().into_bytes()))
                .into_iter()
                .collect(),
            Form::Histogram { bounds } => key_place(octets)
                .and_then(|place| Self::buckets(bounds).nth(place))
                .map(|name| Value::Text(name.into_bytes()))
                .into_iter()
                .collect(),
            Form::Counter | Form::Flows { .. } => Vec::new(),
        }
    }

    /// The parts of a value as they are told: [`Shared::value`] takes them back.
    #[must_use]
    pub fn value_told(&self, octets: &[u8]) -> Vec<Value> {
        split(self.value_parts(), octets).map(|(part, own)| part.told(own)).collect()
    }
}

/// The octets of parts, one behind the other.
fn encode_all(parts: &[Part], values: &[Given<'_>]) -> Result<Vec<u8>, EntryError> {
    let mut octets = Vec::new();
    for (part, value) in parts.iter().zip(values) {
        part.encode_told(*value, &mut octets)?;
    }
    Ok(octets)
}

/// Parts with the octets of each.
pub(crate) fn split<'a>(parts: &'a [Part], octets: &'a [u8]) -> impl Iterator<Item = (Part, &'a [u8])> {
    let mut left = octets;
    parts.iter().map(move |part| {
        let (own, rest) = left.split_at_checked(part.octets()).unwrap_or_default();
        left = rest;
        (*part, own)
    })
}

/// A place in a histogram as a key: there are few.
pub(crate) fn place_key(place: usize) -> Vec<u8> {
    (place as u32).to_be_bytes().to_vec()
}

/// The place of a key.
pub(crate) fn key_place(key: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(key.try_into().ok()?) as usize)
}

/// A prefix as a key.
pub(crate) fn prefix_key(prefix: IpNet) -> Vec<u8> {
    let mut key = vec![prefix.prefix_len()];
    match prefix.trunc() {
        IpNet::V4(prefix) => key.extend(prefix.addr().octets()),
        IpNet::V6(prefix) => key.extend(prefix.addr().octets()),
    }
    key
}

/// The prefix of a key.
#[must_use]
pub fn key_prefix(key: &[u8]) -> Option<IpNet> {
    let (length, address) = key.split_first()?;
    if let Ok(octets) = <[u8; 4]>::try_from(address) {
        return Ipv4Net::new(octets.into(), *length).ok().map(IpNet::V4);
    }
    Ipv6Net::new(<[u8; 16]>::try_from(address).ok()?.into(), *length).ok().map(IpNet::V6)
}

/// The prefix that a text means: an address alone is the prefix that holds just it.
pub(crate) fn prefix(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from)).map(|net| net.trunc())
}

/// The integer of a value.
pub(crate) fn integer(octets: &[u8]) -> i64 {
    octets.try_into().map_or(0, i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compile::shared::{Map, MapPart};
    use crate::tables::Shape;
    use proptest::prelude::*;

    fn table(key: &[&str], value: &[&str], expires_ms: Option<u64>) -> Shared {
        let part = |name: &str| Part::from_name(name).expect("a kind");
        let shape = Shape { limit: 10, expires_ms, when_full: WhenFull::Refuse };
        let parts = |names: &[&str]| names.iter().map(|name| part(name)).collect();
        let form = Form::Table { key: parts(key), value: parts(value), shape };
        Shared { name: "it".to_owned(), form, persistent: false, metric: None }
    }

    fn set() -> Shared {
        let form = Form::Prefixes { limit: 1, entries: Vec::new() };
        Shared { name: "it".to_owned(), form, persistent: false, metric: None }
    }

    fn told(value: &Value) -> Given<'_> {
        match value {
            Value::Int(value) => Given::Int(*value),
            Value::Bool(value) => Given::Bool(*value),
            Value::Text(text) => Given::Text(text),
        }
    }

    #[test]
    fn what_is_given_has_to_be_what_was_declared() {
        let table = table(&["ipv6", "int"], &["text:4"], None);
        let refused = |parts: &[&str]| {
            let given: Vec<Given<'_>> = parts.iter().map(|part| Given::Text(part.as_bytes())).collect();
            table.key(&given).unwrap_err().to_string()
        };
        assert_eq!(refused(&["::1"]), "the key has 2 parts (ipv6, int), and 1 were given");
        assert_eq!(refused(&["10.0.0.1", "5"]), "ipv6 takes \"2001:db8::1\", not \"10.0.0.1\"");
        assert_eq!(refused(&["::1", "five"]), "int takes an integer of 64 bits, not \"five\"");
        assert_eq!(
            refused(&["::1", "9223372036854775808"]).split(',').next(),
            Some("int takes an integer of 64 bits")
        );
        let long = table.value(&[Given::Text(b"12345")]).unwrap_err().to_string();
        assert_eq!(long, "the string is longer than the 4 octets of the table: it has 5");
        assert_eq!(
            table.value(&[Given::Int(5)]).unwrap_err().to_string(),
            "text:4 takes a string of 4 octets at most, not 5"
        );
        assert!(table.value(&[Given::Text(b"\\q")]).is_err());
        let set = set();
        let wrong = set.key(&[Given::Text(b"2001:db8::/129")]).unwrap_err().to_string();
        assert_eq!(wrong, "\"2001:db8::/129\" is not a prefix, such as 2001:db8::/32");
        assert!(set.key(&[Given::Int(5)]).is_err());
    }

    #[test]
    fn numbers_of_a_histogram_are_found_by_the_ends_of_their_buckets() {
        let form = Form::Histogram { bounds: [64, 1500].into() };
        let shared = Shared { name: "it".to_owned(), form, persistent: false, metric: None };
        let map = Map { shared: Arc::new(shared.clone()), part: MapPart::Entries };
        let names = ["sum", "64", "1500", "+Inf"];
        for (place, (name, key)) in names.iter().zip(shared.places().expect("places")).enumerate() {
            assert_eq!(shared.key(&[Given::Text(name.as_bytes())]), Ok(key.clone()));
            assert_eq!(shared.key_told(&key), [Value::Text((*name).into())]);
            let octets = map.key(&key);
            assert_eq!(octets, (place as u32).to_ne_bytes());
            let entry = Entry { key, value: 7_i64.to_be_bytes().to_vec() };
            assert_eq!(map.entry(&octets, &map.pair(&entry, 5).1, 9), Some(entry));
        }
        assert_eq!(shared.key(&[Given::Int(64)]), Ok(place_key(1)));
        let wrong = shared.key(&[Given::Text(b"65")]).unwrap_err().to_string();
        assert_eq!(wrong, "65 is no bucket: there are sum, 64, 1500, +Inf");
        assert_eq!(map.measures(), (crate::compile::shared::MapKind::Array, 4, 8, 4));
    }

    #[test]
    fn bits_behind_a_prefix_do_not_count() {
        let set = set();
        let key = |text: &str| set.key(&[Given::Text(text.as_bytes())]).expect("a prefix");
        assert_eq!(key("10.1.2.3/8"), key("10.0.0.0/8"));
        assert_eq!(set.key_told(&key("2001:db8::1")), [Value::Text(b"2001:db8::1/128".into())]);
    }

    #[test]
    fn an_entry_that_has_expired_is_none() {
        let map = Map { shared: Arc::new(table(&["int"], &["int"], Some(100))), part: MapPart::Entries };
        let [key, value] = [3_i64, 7].map(|number| number.to_be_bytes().to_vec());
        let (key, value) = map.pair(&Entry { key, value }, 1000);
        assert!(map.entry(&key, &value, 1099).is_some());
        assert_eq!(map.entry(&key, &value, 1100), None);
    }

    #[test]
    fn what_a_packet_had_is_told_in_a_way_that_a_terminal_is_not_told_anything() {
        assert_eq!(shown(b"a\x1b[2J\xff\\"), "a\\x1b[2J\\xff\\\\");
    }

    fn kinds() -> impl Strategy<Value = String> {
        let fixed = ["int", "bool", "mac", "ipv4", "ipv6"].map(str::to_owned).to_vec();
        prop_oneof![
            proptest::sample::select(fixed),
            (1_usize..40).prop_map(|length| format!("text:{length}"))
        ]
    }

    /// A value of a part, from random octets.
    fn any_octets(part: Part, random: &[u8]) -> Vec<u8> {
        let mut to = Vec::new();
        let whole: Vec<u8> = random.iter().copied().chain(std::iter::repeat(0)).take(part.octets()).collect();
        match part {
            Part::Kind(Kind::Bool) => to.push(whole[0] & 1),
            Part::Kind(_) => to = whole,
            Part::Text(longest) => {
                let text = &random[..random.len().min(longest)];
                part.encode(Given::Text(text), &mut to).expect("a text");
            }
        }
        to
    }

    proptest! {
        /// What is told is taken back as the same; so is what a map has, and what a file of commas has.
        #[test]
        fn an_entry_is_the_same_in_both_tiers_and_outside(
            key in proptest::collection::vec((kinds(), proptest::collection::vec(any::<u8>(), 0..48)), 1..4),
            value in proptest::collection::vec((kinds(), proptest::collection::vec(any::<u8>(), 0..48)), 1..4),
        ) {
            let names: Vec<&str> = key.iter().map(|(name, _)| name.as_str()).collect();
            let values: Vec<&str> = value.iter().map(|(name, _)| name.as_str()).collect();
            let table = table(&names, &values, None);
            let part = |name: &str| Part::from_name(name).expect("a kind");
            let octets = |parts: &[(String, Vec<u8>)]| -> Vec<u8> {
                parts.iter().flat_map(|(name, random)| any_octets(part(name), random)).collect()
            };
            let entry = Entry { key: octets(&key), value: octets(&value) };

            let parts = table.key_told(&entry.key);
            let given: Vec<Given<'_>> = parts.iter().map(told).collect();
            prop_assert_eq!(&table.key(&given).unwrap(), &entry.key);
            let values = table.value_told(&entry.value);
            let values: Vec<Given<'_>> = values.iter().map(told).collect();
            prop_assert_eq!(&table.value(&values).unwrap(), &entry.value);
            let texts: Vec<String> = parts.iter().map(|value| match value {
                Value::Int(value) => value.to_string(),
                Value::Bool(value) => value.to_string(),
                Value::Text(text) => String::from_utf8(text.clone()).expect("text"),
            }).collect();
            let given: Vec<Given<'_>> = texts.iter().map(|text| Given::Text(text.as_bytes())).collect();
            prop_assert_eq!(&table.key(&given).unwrap(), &entry.key);

            let map = Map { shared: Arc::new(table), part: MapPart::Entries };
            let (key, value) = map.pair(&entry, 5);
            prop_assert!(map.is_whole(&key, &value));
            prop_assert_eq!((key.len(), value.len()), (map.measures().1, map.measures().2));
            prop_assert_eq!(map.entry(&key, &value, 5), Some(entry));
        }

        #[test]
        fn no_text_is_too_odd(text: String) {
            let table = table(&["text:8"], &["mac"], None);
            for part in ["int", "bool", "mac", "ipv4", "ipv6", "text:8"] {
                let mut to = Vec::new();
                let _ = Part::from_name(part).unwrap().encode_told(Given::Text(text.as_bytes()), &mut to);
            }
            let _ = prefix(&text);
            let _ = table.key(&[Given::Text(text.as_bytes())]);
        }
    }
}
