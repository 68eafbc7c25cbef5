//! What `nf.log` says: words, and fields with names.
//!
//! Both tiers make the same of the same values: what a line is cut to, and what stands for octets that are no text, is said
//! here once. Fields become JSON with the types that they have in the script, whatever octets a packet put into them.

use std::fmt;

/// Fields of a line, at most.
pub const MOST_FIELDS: usize = 16;
/// Characters of a field's name.
const LONGEST_NAME: usize = 32;
/// Octets of a field's value that are kept.
const LONGEST_VALUE: usize = 255;

/// A value that can be logged.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// nil
    Nil,
    /// true or false
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
    /// A string: octets that need not be text.
    Text(Vec<u8>),
    /// The beginning of a string, and how many octets all of it has.
    Beginning(Vec<u8>, usize),
    /// Something else, in words.
    Other(String),
}

/// One call of `nf.log`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logged {
    /// Its words, with a blank between them.
    pub words: String,
    /// Its fields, by their names, in their order.
    pub fields: Vec<(String, Scalar)>,
}

/// Why a field cannot have a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no field: a name has up to {LONGEST_NAME} of a-z, A-Z, 0-9 and _, and begins with no digit"
)]
pub struct NoFieldName(String);

/// Whether a field can have this name.
///
/// # Errors
/// Why not.
pub fn field_name(name: &str) -> Result<(), NoFieldName> {
    let is_right = name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_right { Ok(()) } else { Err(NoFieldName(name.to_owned())) }
}

impl Logged {
    /// What values say, the last of which are fields with these names. A field that is nil is not there, as in a table.
    pub fn new(mut values: Vec<Scalar>, names: &[String]) -> Self {
        let of_fields = values.split_off(values.len().saturating_sub(names.len()));
        let words: Vec<String> = values.iter().map(Scalar::to_string).collect();
        let fields = names.iter().cloned().zip(of_fields);
        let mut fields: Vec<_> = fields.filter(|(_, value)| *value != Scalar::Nil).collect();
        fields.iter_mut().for_each(|(_, value)| value.cut());
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self { words: words.join(" "), fields }
    }
}

#[cfg(test)]
impl Logged {
    /// The line with its fields, and of which types these are.
    pub(crate) fn shown(&self) -> String {
        if self.fields.is_empty() { self.words.clone() } else { format!("{self} {:?}", self.fields) }
    }
}

impl Scalar {
    fn cut(&mut self) {
        if let Self::Text(octets) = self
            && octets.len() > LONGEST_VALUE
        {
            // Not within a character, if it is text.
            let starts = |at: &usize| octets[*at] & 0xc0 != 0x80;
            let end = (LONGEST_VALUE - 3..=LONGEST_VALUE).rev().find(starts).unwrap_or(LONGEST_VALUE);
            octets.truncate(end);
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Boolean(value) => value.fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(octets) | Self::Beginning(octets, _) => f.write_str(&String::from_utf8_lossy(octets)),
            Self::Other(words) => f.write_str(words),
        }
    }
}

/// Words, then `name=value`; a value with blanks or the like in quotation marks.
impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        for (place, (name, value)) in self.fields.iter().enumerate() {
            let text = value.to_string();
            let is_plain =
                |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'=' && byte != b'\\';
            let blank = if place > 0 || !self.words.is_empty() { " " } else { "" };
            match !text.is_empty() && text.bytes().all(is_plain) {
                true => write!(f, "{blank}{name}={text}")?,
                false => write!(f, "{blank}{name}={text:?}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_order_and_bounded() {
        let text = |octets: &[u8]| Scalar::Text(octets.to_vec());
        let values = vec![text(b"odd"), Scalar::Integer(-1), text(b"a \"b\"\xff"), Scalar::Nil, text(b"")];
        let logged = Logged::new(values, &["b", "a", "none", "c"].map(str::to_owned));
        assert_eq!(logged.to_string(), "odd a=\"a \\\"b\\\"\u{fffd}\" b=-1 c=\"\"");
        let long = Logged::new(vec![text("aé".repeat(200).as_bytes())], &["x".to_owned()]);
        assert_eq!(long.fields[0].1, text("aé".repeat(85).as_bytes()));
        let octets = Logged::new(vec![text(&[0x80; 300])], &["x".to_owned()]);
        assert_eq!(octets.fields[0].1, text(&[0x80; 255]));
        assert_eq!(Logged::default().to_string(), "");
    }

    #[test]
    fn names_are_words() {
        for right in ["a", "_", "srcPort_2"] {
            assert_eq!(field_name(right), Ok(()), "{right}");
        }
        for wrong in ["", "1", "a b", "é", "a-b", &"x".repeat(33)] {
            assert!(field_name(wrong).is_err(), "{wrong}");
        }
    }
}
