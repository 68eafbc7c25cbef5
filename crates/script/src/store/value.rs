//! Reading and writing what a view or a field holds.

use super::{AccessError, Handle, Store, View};
use crate::kind::{Kind, Value, ValueError, replace_bits};
use crate::protocol::{Access, Field, ProtocolId, Protocols};

impl Store {
    /// Number of octets of a view or field; that of a part of one is rounded down.
    pub fn length(&self, protocols: &Protocols, handle: Handle) -> Result<usize, AccessError> {
        Ok(self.region(protocols, handle)?.length / 8)
    }

    /// The octets of a view or field.
    pub fn octets(&self, protocols: &Protocols, handle: Handle) -> Result<&[u8], AccessError> {
        let region = self.region(protocols, handle)?;
        let (start, end) = region.octets()?;
        self.has(start, end)?;
        Ok(&self.bytes()[start..end])
    }

    /// The value of a field by its kind.
    pub fn get(&mut self, protocols: &Protocols, handle: Handle) -> Result<Got, AccessError> {
        let (view, region) = (self.view(handle)?, self.region(protocols, handle)?);
        let kind = match self.declared(protocols, view, handle).map(|field| &field.getter) {
            Some(Access::Function) => return Ok(Got::Function(view.protocol, handle.field())),
            Some(Access::Kind(Kind::Raw)) | None => return Ok(Got::Octets(self.part(handle)?)),
            Some(Access::Kind(kind)) => *kind,
        };
        match kind {
            Kind::Int | Kind::Bool => {
                self.has(region.start / 8, (region.start + region.length).div_ceil(8))?;
                let bits = self.bits(protocols, handle, region)?;
                Ok(Got::Value(if kind == Kind::Int {
                    Value::Int(bits.cast_signed())
                } else {
                    Value::Bool(bits != 0)
                }))
            }
            kind => {
                let (start, end) = region.octets()?;
                self.has(start, end)?;
                Ok(Got::Value(kind.read(&self.bytes()[start..end])))
            }
        }
    }

    /// Writes a field, or for the kind raw a view, by its kind.
    pub fn set(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        value: Given<'_>,
    ) -> Result<Written, AccessError> {
        let (view, region) = (self.view(handle)?, self.region(protocols, handle)?);
        let kind = match self.declared(protocols, view, handle).map(|field| &field.setter) {
            Some(Access::Function) => return Ok(Written::Function(view.protocol, handle.field())),
            Some(Access::Kind(kind)) => *kind,
            None => Kind::Raw,
        };
        match (kind, value) {
            (Kind::Int | Kind::Bool, value) => {
                let bits = self.bits(protocols, handle, region)?;
                let number = match (kind, value) {
                    (Kind::Int, Given::Int(number)) => number,
                    (Kind::Bool, Given::Bool(value)) => i64::from(value),
                    (_, value) => return Err(kind.refuses(value.describe()).into()),
                };
                let length = region.length as u32;
                if length < 64 && number.cast_unsigned() >> length != 0 {
                    return Err(ValueError::TooLarge { value: number, bits: length }.into());
                }
                if bits != number.cast_unsigned() {
                    let (octets, count) =
                        replace_bits(self.bytes(), region.start, length, number.cast_unsigned());
                    self.put(region.start / 8, &octets[..count])?;
                } else {
                    self.octets.write_same();
                }
                Ok(Written::Done)
            }
            (Kind::Mac | Kind::Ipv4 | Kind::Ipv6, Given::Text(text)) => {
                let (start, end) = region.octets()?;
                let mut octets = [0; 16];
                let count = kind.parse(text, &mut octets)?;
                if count > end - start {
                    return Err(ValueError::Length { field: end - start, value: count }.into());
                }
                self.put(start, &octets[..count])?;
                Ok(Written::Done)
            }
            (Kind::Raw, Given::Int(number)) => {
                let byte = u8::try_from(number).map_err(|_| kind.refuses(number))?;
                let (start, end) = region.octets()?;
                self.put(start, &vec![byte; end - start])?;
                Ok(Written::Done)
            }
            (Kind::Raw | Kind::Text, Given::Text(text)) => {
                let (start, end) = region.octets()?;
                if text.len() != end - start {
                    return Err(ValueError::Length { field: end - start, value: text.len() }.into());
                }
                self.put(start, text)?;
                Ok(Written::Done)
            }
            (kind, value) => Err(kind.refuses(value.describe()).into()),
        }
    }

    /// The octet `index` of a view or field.
    pub fn byte(&self, protocols: &Protocols, handle: Handle, index: i64) -> Result<u8, AccessError> {
        let region = self.region(protocols, handle)?;
        let (start, end) = region.octets()?;
        match usize::try_from(index).ok().filter(|index| *index < end - start) {
            Some(index) => {
                self.has(start + index, start + index + 1)?;
                Ok(self.bytes()[start + index])
            }
            None => Err(self.outside(index, 1, region)),
        }
    }

    /// Writes the octet `index` of a view or field.
    pub fn set_byte(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        index: i64,
        value: i64,
    ) -> Result<(), AccessError> {
        let region = self.region(protocols, handle)?;
        let (start, end) = region.octets()?;
        let byte = u8::try_from(value).map_err(|_| Kind::Raw.refuses(value))?;
        match usize::try_from(index).ok().filter(|index| *index < end - start) {
            Some(index) => self.put(start + index, &[byte]),
            None => Err(self.outside(index, 1, region)),
        }
    }

    fn has(&self, start: usize, end: usize) -> Result<(), AccessError> {
        if self.octets.lacks(start, end) { Err(AccessError::NoAddress) } else { Ok(()) }
    }

    fn put(&mut self, at: usize, octets: &[u8]) -> Result<(), AccessError> {
        if self.octets.changes_made_up(at, octets) {
            return Err(AccessError::NoLink);
        }
        self.write(at, octets);
        Ok(())
    }

    /// The declaration of the field that the handle stands for; none for a view.
    fn declared<'a>(&self, protocols: &'a Protocols, view: View, handle: Handle) -> Option<&'a Field> {
        protocols.get(view.protocol)?.fields.get(handle.field().checked_sub(1)?)
    }

    /// Writes all octets of a view as they are: checksums are among them.
    pub fn replace(&mut self, protocols: &Protocols, handle: Handle, new: &[u8]) -> Result<(), AccessError> {
        let (start, end) = self.region(protocols, handle)?.octets()?;
        if new.len() != end - start {
            return Err(ValueError::Length { field: end - start, value: new.len() }.into());
        }
        self.octets.write_plain(start, new);
        Ok(())
    }
}

/// What reading gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// A value of the field's kind.
    Value(Value),
    /// Of the kind raw: a byte array of these octets.
    Octets(Handle),
    /// A function of the script has to be asked: the protocol's, for the field at this position, from 1 on.
    Function(ProtocolId, usize),
}

/// What has become of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is done.
    Done,
    /// A function of the script has to do it.
    Function(ProtocolId, usize),
}

/// A value that a script gives.
#[derive(Debug, Clone, Copy)]
pub enum Given<'a> {
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A string, or the octets of a byte array.
    Text(&'a [u8]),
    /// Something else, of this type.
    Other(&'static str),
}

impl Given<'_> {
    /// As messages name it.
    pub(crate) fn describe(self) -> String {
        match self {
            Given::Int(number) => number.to_string(),
            Given::Bool(value) => value.to_string(),
            Given::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
            Given::Other(name) => format!("a value of the type {name}"),
        }
    }
}
