//! Fields of headers: where they are, what they hold, and writing them.

use super::view::{Absent, growing};
use super::write::Piece;
use super::{Key, Lower};
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::known::Known;
use crate::compile::matching;
use crate::compile::slot::{Header, Shape, Slot};
use crate::kind::Kind;
use crate::protocol::{Access, Amount, BEHIND_NAME, Changes, Policy, Protocol, ProtocolId};

/// Bytes that one `set` writes.
const LONGEST: i64 = 64;

/// Where a field is.
struct Region {
    /// Its first byte.
    start: Operand,
    /// Which bit of that it begins with.
    bit: u32,
    length: Length,
}

#[derive(Clone, Copy)]
enum Length {
    Bits(u32),
    Bytes(Operand),
}

impl Lower<'_> {
    /// A method of a view or field.
    pub(super) fn view_method(&mut self, object: &Slot, name: &str, arguments: &[Slot]) -> Slot {
        let (Shape::View(header) | Shape::Field(header, _)) = object.shape else { return Slot::unclear() };
        let is_view = matches!(object.shape, Shape::View(_));
        if !self.is_present(object) {
            return Slot::unclear();
        }
        match (name, arguments) {
            ("raw", [offset, length]) => {
                let offset = self.integer(offset.clone(), "the offset");
                let length = self.integer(length.clone(), "the length");
                let Some([start, available]) = self.octets(object, None) else { return Slot::unclear() };
                let at = self.within([start, available], offset, length);
                let header = Header {
                    protocol: ProtocolId::RAW,
                    moves: 0,
                    certain: false,
                    outermost: false,
                    since: self.resized(),
                };
                Slot::new(Shape::View(header), [at, length])
            }
            ("data", [protocol]) => match &protocol.shape {
                Shape::Known(Known::Protocol(id)) if is_view => self.data(object, header, *id),
                Shape::Known(Known::Protocol(id)) => self.cast(object, *id),
                shape => {
                    let name = shape.name();
                    self.refuse(format!("data: a protocol is wanted, not {name}"))
                }
            },
            (matching::TRANSPORT, protocols) if is_view && self.is_in_rule() => {
                let number = |slot: &Slot| match slot.parts.first() {
                    Some(Operand::Constant(number)) => Some(*number),
                    _ => None,
                };
                let protocols: Vec<i64> = protocols.iter().filter_map(number).collect();
                self.transport_of(object, &protocols)
            }
            ("get", []) => self.get(object),
            ("set", [value]) => {
                let value = self.unwrap(value.clone());
                // Once, whatever the value is.
                self.layout_for(object);
                self.each(&value, |lower, value| {
                    lower.set_field(object, value);
                    Slot::nil()
                });
                Slot::nil()
            }
            ("flow", _) if is_view => self.flow(arguments),
            ("stream", _) if is_view => self.stream(arguments),
            ("redirect", [name]) if is_view => self.redirect(name),
            ("vlan_id", []) if is_view => self.vlan_id(object),
            ("push_vlan", [id]) if is_view => self.push_vlan(object, id),
            ("pop_vlan", []) if is_view => self.pop_vlan(object),
            ("grow", [at, count]) if is_view => self.resize(object, at, count, 1),
            ("shrink", [at, count]) if is_view => self.resize(object, at, count, -1),
            _ => {
                let protocol = self.protocols.get(header.protocol).filter(|_| is_view);
                let index = match (name, arguments) {
                    ("data", []) => protocol.and_then(|protocol| protocol.payload),
                    _ => protocol.and_then(|protocol| protocol.field(name)),
                };
                match index {
                    Some(index) => Slot::new(Shape::Field(header, index), object.parts.clone()),
                    None => self.refuse(format!("there is no method '{name}' with these arguments")),
                }
            }
        }
    }

    fn get(&mut self, object: &Slot) -> Slot {
        match self.kind(object, |field| &field.getter) {
            None => Slot::unclear(),
            Some(Kind::Int) => self.bits(object, None).map_or_else(Slot::unclear, Slot::integer),
            Some(Kind::Bool) => match self.bits(object, None) {
                Some(bits) => Slot::boolean(self.compare(Condition::NotEqual, bits, 0)),
                None => Slot::unclear(),
            },
            Some(Kind::Raw) => match self.octets(object, None) {
                Some(place) => Slot::new(Shape::Bytes(self.resized()), place),
                None => Slot::unclear(),
            },
            Some(Kind::Text) => match self.octets(object, None) {
                Some(place) => self.text_at(place),
                None => Slot::unclear(),
            },
            Some(kind) => {
                let (Some([start, length]), Some(bits)) = (self.octets(object, None), kind.bits()) else {
                    return Slot::unclear();
                };
                if length != Operand::Constant(i64::from(bits / 8)) {
                    return self.refuse("an address that is not there in every packet");
                }
                let parts: Vec<_> = pieces(i64::from(bits / 8))
                    .map(|(at, bytes)| {
                        let offset = self.calculate(Operation::Add, start, at);
                        self.load(offset, bytes)
                    })
                    .collect();
                Slot::new(Shape::Address(kind), parts)
            }
        }
    }

    fn set_field(&mut self, object: &Slot, value: &Slot) {
        let Some(kind) = self.kind(object, |field| &field.setter) else { return };
        let safe = self.is_harmless(object);
        match (kind, &value.shape) {
            (_, Shape::Unclear) => drop(self.refuse_use("the value")),
            (Kind::Int, Shape::Integer) | (Kind::Bool, Shape::Boolean) => {
                self.set_bits(object, value.parts[0], safe);
            }
            (Kind::Mac | Kind::Ipv4 | Kind::Ipv6, Shape::Text(text)) => {
                let mut octets = [0; 16];
                match kind.parse(text, &mut octets) {
                    Ok(count) => self.set_octets(object, &octets[..count], false, safe),
                    Err(_) => self.fail(Failure::WrongValue),
                }
            }
            (Kind::Mac | Kind::Ipv4 | Kind::Ipv6, Shape::Address(given)) if *given == kind => {
                let Some([start, _]) = self.octets(object, None) else { return };
                let pieces: Vec<_> = pieces(i64::from(kind.bits().unwrap_or(0) / 8))
                    .zip(&value.parts)
                    .map(|((_, bytes), value)| Piece { bytes, value: *value })
                    .collect();
                self.write(start, &pieces, safe);
            }
            (Kind::Raw, Shape::Integer) => {
                let Some([start, length]) = self.octets(object, None) else { return };
                let Operand::Constant(length @ 0..=LONGEST) = length else {
                    self.refuse(format!(
                        "only parts of a length that is known, {LONGEST} bytes at most, are filled"
                    ));
                    return;
                };
                self.fail_unless_byte(value.parts[0]);
                let wide = self.calculate(Operation::Multiply, value.parts[0], 0x0101_0101_0101_0101);
                let pieces: Vec<_> = pieces(length).map(|(_, bytes)| Piece { bytes, value: wide }).collect();
                self.write(start, &pieces, safe);
            }
            (Kind::Raw | Kind::Text, Shape::Text(text)) => self.set_octets(object, &text.clone(), true, safe),
            (Kind::Raw | Kind::Text, Shape::Bytes(_) | Shape::PacketText(..) | Shape::Address(_)) => {
                self.refuse("octets are set to a string that the packet decides");
            }
            _ => self.fail(Failure::WrongValue),
        }
    }

    /// Writes octets that are known at the beginning of a part, or `whole` of it.
    fn set_octets(&mut self, object: &Slot, octets: &[u8], whole: bool, safe: bool) {
        if octets.len() as i64 > LONGEST {
            self.refuse(format!("more than {LONGEST} bytes are written at once"));
            return;
        }
        let Some([start, length]) = self.octets(object, None) else { return };
        let condition = if whole { Condition::NotEqual } else { Condition::Below };
        self.fail_if(condition, length, octets.len() as i64, Failure::WrongValue);
        let pieces: Vec<_> = numbers(octets)
            .into_iter()
            .zip(pieces(octets.len() as i64))
            .map(|(value, (_, bytes))| Piece { bytes, value })
            .collect();
        self.write(start, &pieces, safe);
    }

    fn set_bits(&mut self, object: &Slot, value: Operand, safe: bool) {
        let Some(Region { start, bit, length: Length::Bits(bits) }) = self.region(object, None) else {
            self.refuse("a number whose length the packet decides");
            return;
        };
        let bytes = (bit + bits).div_ceil(8);
        if bytes > 8 || bits == 0 {
            self.refuse("a number that lies in more than 8 bytes, or none");
            return;
        }
        if bits < 64 {
            let rest = self.calculate(Operation::ShiftRight, value, i64::from(bits));
            self.fail_if(Condition::NotEqual, rest, 0, Failure::WrongValue);
        }
        let below = bytes * 8 - bit - bits;
        let mut new = self.calculate(Operation::ShiftLeft, value, i64::from(below));
        if bits != bytes * 8 {
            let old = self.load(start, bytes as u8);
            let mask = !(((1_i128 << bits) - 1) << below) as i64;
            let rest = self.calculate(Operation::And, old, mask);
            new = self.calculate(Operation::Or, new, rest);
        }
        self.write(start, &[Piece { bytes: bytes as u8, value: new }], safe);
    }

    pub(super) fn fail_unless_byte(&mut self, value: Operand) {
        let rest = self.calculate(Operation::ShiftRight, value, 8);
        self.fail_if(Condition::NotEqual, rest, 0, Failure::WrongValue);
    }

    /// The number in a field of the kind int or bool.
    pub(super) fn bits(&mut self, field: &Slot, absent: Option<&mut Absent>) -> Option<Operand> {
        let Region { start, bit, length: Length::Bits(bits) } = self.region(field, absent)? else {
            self.refuse("a number whose length the packet decides");
            return None;
        };
        let bytes = (bit + bits).div_ceil(8);
        if bytes > 8 || bits == 0 {
            self.refuse("a number that lies in more than 8 bytes, or none");
            return None;
        }
        let mut value = self.load(start, bytes as u8);
        value = self.calculate(Operation::ShiftRight, value, i64::from(bytes * 8 - bit - bits));
        if bit != 0 {
            value = self.calculate(Operation::And, value, ((1_i128 << bits) - 1) as i64);
        }
        Some(value)
    }

    /// Offset and length of a view or field, in bytes.
    pub(super) fn octets(&mut self, object: &Slot, absent: Option<&mut Absent>) -> Option<[Operand; 2]> {
        if let Shape::View(_) | Shape::Bytes(_) = object.shape {
            return Some([object.parts[0], object.parts[1]]);
        }
        let Region { start, bit, length } = self.region(object, absent)?;
        match length {
            Length::Bits(bits) if bits.is_multiple_of(8) && bit == 0 => {
                Some([start, i64::from(bits / 8).into()])
            }
            Length::Bytes(length) if bit == 0 => Some([start, length]),
            _ => {
                self.refuse("the octets of a field that begins or ends within one");
                None
            }
        }
    }

    /// Where a field is, once it is sure that it is in the view. Where not, that is `absent` or an error.
    fn region(&mut self, object: &Slot, absent: Option<&mut Absent>) -> Option<Region> {
        let Shape::Field(header, index) = object.shape else { return None };
        let (protocol, minimum) = self.protocols.with_minimum(header.protocol)?;
        let field = &protocol.fields[index];
        let [start, available] = [object.parts[0], object.parts[1]];
        let mut offset = Operand::Constant(i64::from(field.offset / 8));
        let mut longer = Operand::Constant(0);
        let mut grows = false;
        for (step, grown) in growing(protocol).into_iter().enumerate() {
            let amount = object.parts[2 + step];
            if grown == index {
                longer = self.calculate(Operation::Add, longer, amount);
                grows = true;
            } else if grown < index {
                offset = self.calculate(Operation::Add, offset, amount);
            }
        }
        if let Changes::Question(name) = protocol.changes
            && name < index
        {
            return self.behind_name([start, offset, available], object.parts[2], index - name, absent);
        }
        let is_rest = field.length == 0 && protocol.payload == Some(index);
        if grows && (is_rest || field.length % 8 != 0 || field.offset % 8 != 0) {
            self.refuse(format!("the field {} grows", field.name));
            return None;
        }
        let known_end = field.offset + field.length;
        // What moves was found to fit when the view was made.
        let stays = matches!(offset, Operand::Constant(_)) && !grows;
        let is_sure = if stays { known_end <= minimum } else { !self.entering };
        if !is_sure {
            let end = self.calculate(Operation::Add, offset, i64::from(field.length.div_ceil(8)));
            match absent {
                Some(absent) => self.leave_if(Condition::Below, available, end, absent),
                None => self.fail_if(Condition::Below, available, end, Failure::OutsidePacket),
            }
        }
        let length = if is_rest {
            Length::Bytes(self.calculate(Operation::Subtract, available, offset))
        } else if grows {
            Length::Bytes(self.calculate(Operation::Add, longer, i64::from(field.length / 8)))
        } else {
            Length::Bits(field.length)
        };
        Some(Region { start: self.calculate(Operation::Add, start, offset), bit: field.offset % 8, length })
    }

    /// Where type, class (1, 2) and what is behind a question (3) are, from where its name ends: all are empty if that is.
    fn behind_name(
        &mut self,
        [start, offset, available]: [Operand; 3],
        name: Operand,
        which: usize,
        absent: Option<&mut Absent>,
    ) -> Option<Region> {
        let at = |lower: &mut Self, more: Operand| lower.calculate(Operation::Add, offset, more);
        let (offset, length) = if which <= 2 {
            match absent {
                Some(absent) => self.leave_if(Condition::Equal, name, 0, absent),
                None => self.fail_if(Condition::Equal, name, 0, Failure::OutsidePacket),
            }
            (at(self, (2 * (which - 1) as i64).into()), Length::Bits(16))
        } else {
            let is_there = self.compare(Condition::NotEqual, name, 0);
            let behind = self.calculate(Operation::Multiply, is_there, BEHIND_NAME as i64);
            let offset = at(self, behind);
            (offset, Length::Bytes(self.calculate(Operation::Subtract, available, offset)))
        };
        Some(Region { start: self.calculate(Operation::Add, start, offset), bit: 0, length })
    }

    /// The kind by which it is read or written.
    fn kind(&mut self, object: &Slot, access: impl Fn(&crate::protocol::Field) -> &Access) -> Option<Kind> {
        let Shape::Field(header, index) = object.shape else { return Some(Kind::Raw) };
        let field = &self.protocols.get(header.protocol)?.fields[index];
        match access(field) {
            Access::Kind(kind) => Some(*kind),
            Access::Function => {
                self.refuse(format!("the field {} is read or written by a function", field.name));
                None
            }
        }
    }

    /// Whether writing a field cannot make the packet's headers others than they are: it is in a header that is what it
    /// was taken for, and nothing in it says what comes next or how long anything is.
    fn is_harmless(&self, object: &Slot) -> bool {
        let Shape::Field(header, index) = object.shape else { return false };
        let intact = self.state.as_ref().is_some_and(|state| state.variables.contains_key(&Key::Intact));
        let Some(protocol) = self.protocols.get(header.protocol).filter(|_| header.certain && intact) else {
            return false;
        };
        let field = &protocol.fields[index];
        let bytes =
            |field: &crate::protocol::Field| field.offset / 8..(field.offset + field.length).div_ceil(8);
        let own = bytes(field);
        // A header's first byte has the version.
        !own.is_empty()
            && own.start > 0
            && growing(protocol).iter().all(|grown| *grown > index)
            && deciding(protocol).iter().all(|other| {
                let other = bytes(&protocol.fields[*other]);
                other.end <= own.start || own.end <= other.start
            })
    }
}

/// Fields that say what comes next, or how long something is.
fn deciding(protocol: &Protocol) -> Vec<usize> {
    let mut fields = Vec::new();
    if let Policy::Table(table) = &protocol.policy {
        fields.push(table.field);
        fields.extend(table.when.as_ref().map(|when| when.field));
    }
    if let Changes::Steps(steps) = &protocol.changes {
        for step in steps {
            fields.extend(step.when.as_ref().map(|when| when.field));
            if let Amount::Field { field, .. } = step.amount {
                fields.push(field);
            }
        }
    }
    fields
}

/// A number of bytes in pieces of 8 at most: where each begins, and how many it has.
pub(super) fn pieces(length: i64) -> impl Iterator<Item = (i64, u8)> {
    (0..length).step_by(8).map(move |at| (at, (length - at).min(8) as u8))
}

/// Octets as the numbers in such pieces.
pub(super) fn numbers(octets: &[u8]) -> Vec<Operand> {
    let number = |piece: &[u8]| piece.iter().fold(0, |value, byte| value << 8 | i64::from(*byte));
    octets.chunks(8).map(|piece| number(piece).into()).collect()
}

/// The octets of a whole address, if the text is one.
pub(super) fn address(kind: Kind, text: &[u8]) -> Option<Vec<u8>> {
    let mut octets = [0; 16];
    let whole = kind.bits()? as usize / 8;
    let count = kind.parse(text, &mut octets).ok()?;
    (count == whole).then(|| octets[..whole].to_vec())
}
