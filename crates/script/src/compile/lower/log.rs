//! `nf.log`: which words are known, and which numbers are told; and `nf.capture`.

use super::Lower;
use crate::compile::ir::{Action, Operand};
use crate::compile::logging::{Form, LONGEST, Line, MOST_NUMBERS, MOST_STRINGS, Part};
use crate::compile::slot::{Look, Shape, Slot};
use crate::kind::Kind;
use crate::pcap::capture_name;

impl Lower<'_> {
    /// The last values are those of fields with these names.
    pub(super) fn log(&mut self, values: &[Slot], names: &[String]) -> Slot {
        // One call for each thing that a value may be.
        let several = |value: &Slot| matches!(value.shape, Shape::OneOf(_));
        if let Some(place) = values.iter().position(several) {
            return self.each(&values[place], |lower, one| {
                let mut values = values.to_vec();
                values[place] = one.clone();
                lower.log(&values, names)
            });
        }
        let mut parts = Vec::new();
        let mut numbers: Vec<Operand> = Vec::new();
        let mut strings = Vec::new();
        for value in values {
            if !self.is_present(value) {
                return Slot::unclear();
            }
            let (part, own) = match self.logged_octets(value) {
                Some(octets) => octets,
                None if self.is_short_string(value) => {
                    let Some(look) = self.usable(value) else { return Slot::unclear() };
                    strings.push([value.parts[0], value.parts[1]]);
                    let Look { lower, dotted } = look;
                    (Part::String { lower, dotted }, value.parts[1..].to_vec())
                }
                None => match self.logged(&value.shape) {
                    // Where a view is, is not told.
                    Some(part @ (Part::Text(_) | Part::Bare(_) | Part::Nil)) => (part, Vec::new()),
                    Some(part) => (part, value.parts.clone()),
                    None => return Slot::unclear(),
                },
            };
            parts.push(part);
            numbers.extend(own);
        }
        let of_strings = |part: &Part| if part.is_string() { part.numbers() } else { 0 };
        if numbers.len() - parts.iter().map(of_strings).sum::<usize>() > MOST_NUMBERS {
            return self.refuse(format!(
                "more than {MOST_NUMBERS} numbers are logged at once (an IPv6 address counts for two)"
            ));
        }
        if strings.len() > MOST_STRINGS {
            return self.refuse(format!("more than {MOST_STRINGS} strings of the packet are logged at once"));
        }
        if self.state.is_some() {
            self.program.lines.push(Line { form: Form::Log(names.to_vec()), parts });
            self.emit(Action::Log { line: self.program.lines.len() - 1, numbers, strings });
        }
        Slot::nil()
    }

    /// The packet goes into a capture, whose name is known.
    pub(super) fn capture(&mut self, packet: &Slot, name: &Slot) -> Slot {
        let is_whole = matches!(&packet.shape, Shape::View(header) if header.is_whole());
        let (true, Shape::Text(name)) = (is_whole, &name.shape) else {
            return self
                .refuse("a capture takes the packet, as the function gets it, and a name that is known");
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if let Err(error) = capture_name(&name) {
            return self.refuse(error.to_string());
        }
        if !self.may_capture {
            return self.refuse("packets are captured in the kernel at interfaces only, and not at XDP");
        }
        let captures = &mut self.program.captures;
        let place = captures.iter().position(|known| *known == name).unwrap_or_else(|| {
            captures.push(name);
            captures.len() - 1
        });
        self.emit(Action::Capture { name: place });
        Slot::nil()
    }

    /// Octets of the packet, as many as are known to be there.
    fn logged_octets(&mut self, value: &Slot) -> Option<(Part, Vec<Operand>)> {
        let (Shape::Bytes(_) | Shape::PacketText(..), Some(Operand::Constant(count))) =
            (&value.shape, value.parts.get(1))
        else {
            return None;
        };
        let count = usize::try_from(*count).ok().filter(|count| count.div_ceil(8) <= MOST_NUMBERS)?;
        Some((Part::Octets(count), self.words_of(value, count)?))
    }

    /// Octets of the packet whose number is bounded.
    fn is_short_string(&self, value: &Slot) -> bool {
        matches!(value.shape, Shape::Bytes(_) | Shape::PacketText(..)) && {
            let (least, most) = self.range(value.parts[1]);
            least >= 0 && most <= LONGEST as i64
        }
    }

    fn logged(&mut self, shape: &Shape) -> Option<Part> {
        let part = match shape {
            Shape::Nil => Part::Nil,
            Shape::Text(text) => Part::Text(String::from_utf8_lossy(text).into_owned()),
            Shape::View(_) | Shape::Field(..) => Part::Bare(self.described(shape)),
            Shape::Bytes(_) | Shape::PacketText(..) => {
                self.refuse(format!("octets are logged that may be more than {LONGEST}"));
                return None;
            }
            Shape::Boolean => Part::Boolean,
            Shape::Integer => Part::Integer,
            Shape::Address(Kind::Mac) => Part::Mac,
            Shape::Address(Kind::Ipv4) => Part::Ipv4,
            Shape::Address(Kind::Ipv6) => Part::Ipv6,
            Shape::Optional(inner) => match self.logged(inner)? {
                // What is known takes no numbers beside whether it is there.
                part if part.numbers() == inner.parts() => Part::Optional(Box::new(part)),
                _ => return self.not_logged(shape),
            },
            Shape::Unclear => {
                self.refuse_use("what is logged");
                return None;
            }
            _ => return self.not_logged(shape),
        };
        Some(part)
    }

    /// A view or a field.
    pub(super) fn described(&self, shape: &Shape) -> String {
        match shape {
            Shape::View(header) => format!("view {}", self.protocols.name(header.protocol)),
            Shape::Field(header, index) => {
                let field = self.protocols.get(header.protocol).map(|protocol| &protocol.fields[*index].name);
                let name = self.protocols.name(header.protocol);
                format!("field {name}:{}", field.map_or("", String::as_str))
            }
            other => other.name(),
        }
    }

    fn not_logged(&mut self, shape: &Shape) -> Option<Part> {
        self.refuse(format!("{} cannot be logged in the kernel", shape.name()));
        None
    }
}
