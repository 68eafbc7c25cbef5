//! Views: which bits of a packet or of a byte array a script's object stands for.
//!
//! A script holds numbers, [`Handle`]s, not places: all that is known about a view is here, and every use of a handle is
//! checked against the octets as they are then. When a packet is gone, or its octets have moved, its generation ends,
//! and handles of an earlier one are refused.

use wire::checksum::TransportChecksum;

use crate::checksum::ResizeError;
use crate::kind::{Kind, Value, ValueError, read_bits, replace_bits};
use crate::packet::Packet;
use crate::protocol::{
    Access, Amount, Changes, Condition, Effect, MAX_FIELDS, Policy, ProtocolId, Protocols,
};

/// Most protocols between a header and the one that is asked for: RFC 8200 knows six extension headers.
pub const MAX_THROUGH: usize = wire::ipv6::MAX_EXTENSION_HEADERS;

const FIELD_BITS: u32 = 8;
const VIEW_BITS: u32 = 20;

/// Stands for a view, or for a field of one: generation, view and field in one integer, which Lua can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(pub i64);

impl Handle {
    const fn new(generation: u64, view: usize, field: usize) -> Self {
        Self((generation << (VIEW_BITS + FIELD_BITS)) as i64 | (view << FIELD_BITS) as i64 | field as i64)
    }

    const fn generation(self) -> u64 {
        self.0.cast_unsigned() >> (VIEW_BITS + FIELD_BITS)
    }

    const fn view(self) -> usize {
        (self.0.cast_unsigned() >> FIELD_BITS) as usize & ((1 << VIEW_BITS) - 1)
    }

    /// 0 for the view itself, otherwise one more than the field's position.
    const fn field(self) -> usize {
        self.0 as usize & ((1 << FIELD_BITS) - 1)
    }
}

/// Why a view cannot be used so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Of an earlier packet, or from before the packet grew or shrank.
    #[error("this packet is gone: a view is good until its packet is done with, grows or shrinks")]
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
    #[error("the field {0} is empty in this packet")]
    Empty(String),
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

/// Octets, and the views that there are of them.
#[derive(Debug, Default)]
pub struct Store {
    octets: Packet,
    /// Whether they are a packet, whose checksums are kept right.
    is_packet: bool,
    generation: u64,
    views: Vec<View>,
    changes: Vec<(i32, i32)>,
}

/// Bits from `start`, of a length, as a protocol.
#[derive(Debug, Clone, Copy)]
struct View {
    protocol: ProtocolId,
    start: usize,
    length: usize,
    /// One more than where this view's offsets and lengths begin in `changes`; 0 if nothing is changed.
    changes: u32,
}

/// Bits of a store, and what kind of value they are.
#[derive(Debug, Clone, Copy)]
struct Region {
    start: usize,
    length: usize,
}

impl Store {
    /// Octets that are no packet: what a script makes byte by byte.
    pub fn of_bytes(bytes: Vec<u8>) -> (Self, Handle) {
        let octets = Packet::of_frame(bytes, TransportChecksum::Complete);
        let mut store = Self { octets, ..Self::default() };
        let whole = store.renew();
        (store, whole)
    }

    /// A packet of its own.
    pub fn of_packet(packet: Packet) -> (Self, Handle) {
        let mut store = Self { octets: packet, is_packet: true, ..Self::default() };
        let whole = store.renew();
        (store, whole)
    }

    /// Takes another packet in, and gives a view of the whole of it. Views of what was here before are gone.
    pub fn begin(&mut self, packet: &mut Packet) -> Handle {
        std::mem::swap(&mut self.octets, packet);
        self.is_packet = true;
        self.renew()
    }

    /// Gives the packet back. Its views are gone.
    pub fn end(&mut self, packet: &mut Packet) {
        std::mem::swap(&mut self.octets, packet);
        self.renew();
        self.views.clear();
    }

    /// The octets.
    pub fn packet(&self) -> &Packet {
        &self.octets
    }

    /// The octets, all of them.
    pub fn bytes(&self) -> &[u8] {
        self.octets.bytes()
    }

    /// The raw view of `length` octets from `offset` on within the view.
    pub fn raw(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        offset: i64,
        length: i64,
    ) -> Result<Handle, AccessError> {
        let region = self.region(protocols, handle)?;
        let inside = |value: i64| usize::try_from(value).ok().filter(|value| *value <= region.length / 8);
        match (inside(offset), inside(length)) {
            (Some(at), Some(count)) if at + count <= region.length / 8 => {
                let start = region.start + at * 8;
                self.add(View { protocol: ProtocolId::RAW, start, length: count * 8, changes: 0 })
            }
            _ => Err(self.outside(offset, length, region)),
        }
    }

    /// The view of what is within, as `protocol`; none if the policy refuses, or it is not all there.
    ///
    /// Policies that are functions have been asked before.
    pub fn data(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        protocol: ProtocolId,
    ) -> Result<Option<Handle>, AccessError> {
        let mut view = self.view(handle)?;
        if handle.field() != 0 {
            return self.cast(protocols, handle, protocol);
        }
        for _ in 0..=MAX_THROUGH {
            let Some((parent, _)) = protocols.with_minimum(view.protocol) else { return Ok(None) };
            let mut next = protocol;
            match &parent.policy {
                Policy::Always | Policy::Function => {}
                _ if protocol == ProtocolId::RAW => {}
                Policy::Never => return Ok(None),
                Policy::Table(table) => {
                    if !self.holds(protocols, view, table.when.as_ref()) {
                        return Ok(None);
                    }
                    let Some(value) = self.integer(protocols, view, table.field) else { return Ok(None) };
                    let named = |id| table.protocols.contains(&(value, id));
                    if !named(protocol) {
                        let Some(&between) = table.through.iter().find(|id| named(**id)) else {
                            return Ok(None);
                        };
                        next = between;
                    }
                }
            }
            let region = match parent.payload {
                Some(payload) => match self.field(protocols, view, payload) {
                    Ok(region) => region,
                    Err(_) => return Ok(None),
                },
                None if view.protocol == ProtocolId::RAW => Region { start: view.start, length: view.length },
                None => return Ok(None),
            };
            let Some(entered) = self.enter(protocols, region, next)? else { return Ok(None) };
            if next == protocol {
                return Ok(Some(entered));
            }
            view = self.view(entered)?;
        }
        Ok(None)
    }

    /// A view of `region` as `protocol`, if its header is there.
    fn enter(
        &mut self,
        protocols: &Protocols,
        region: Region,
        protocol: ProtocolId,
    ) -> Result<Option<Handle>, AccessError> {
        let Some((declared, minimum)) = protocols.with_minimum(protocol) else { return Ok(None) };
        if region.length < minimum as usize {
            return Ok(None);
        }
        let mut view = View { protocol, start: region.start, length: region.length, changes: 0 };
        if let Changes::Steps(steps) = &declared.changes {
            let mark = self.changes.len();
            for step in steps {
                if !self.holds(protocols, view, step.when.as_ref()) {
                    continue;
                }
                let Some(amount) = self.amount(protocols, view, step.amount, step.effect) else {
                    continue;
                };
                let Some(amount) = amount.filter(|amount| (0..=i64::from(i32::MAX >> 8)).contains(amount))
                else {
                    self.changes.truncate(mark);
                    return Ok(None);
                };
                match step.effect {
                    Effect::End => {
                        view.length = view.length.min(amount as usize);
                        if view.length < minimum as usize {
                            self.changes.truncate(mark);
                            return Ok(None);
                        }
                    }
                    Effect::Grow(field) if amount > 0 => {
                        if view.changes == 0 {
                            view.changes = mark as u32 + 1;
                            self.changes.resize(mark + declared.fields.len(), (0, 0));
                        }
                        // The range was checked above, and a declaration has few steps.
                        let amount = amount as i32;
                        self.changes[mark + field].1 += amount;
                        for (offset, _) in &mut self.changes[mark + field + 1..] {
                            *offset += amount;
                        }
                    }
                    Effect::Grow(_) => {}
                }
            }
            // Fields that nothing has moved are within the minimum.
            let fits = |store: &Self| {
                (0..declared.fields.len()).all(|field| store.field(protocols, view, field).is_ok())
            };
            if view.changes != 0 && !fits(self) {
                self.changes.truncate(mark);
                return Ok(None);
            }
        }
        self.add(view).map(Some)
    }

    /// Moves the fields of a view by offsets and lengths in bits, as a function of the script told them.
    pub fn change(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        offsets: &[i64],
        lengths: &[i64],
    ) -> Result<(), AccessError> {
        let mut view = self.view(handle)?;
        let count = protocols.get(view.protocol).map_or(0, |protocol| protocol.fields.len());
        let error = || AccessError::Changes { protocol: protocols.name(view.protocol).into(), fields: count };
        if offsets.len() < count || lengths.len() < count {
            return Err(error());
        }
        let start = self.changes.len();
        for (&offset, &length) in offsets.iter().zip(lengths).take(count) {
            let (Ok(offset), Ok(length)) = (i32::try_from(offset), i32::try_from(length)) else {
                self.changes.truncate(start);
                return Err(error());
            };
            self.changes.push((offset, length));
        }
        view.changes = start as u32 + 1;
        self.views[handle.view()] = view;
        Ok(())
    }

    /// Number of octets of a view or field; that of a part of one is rounded down.
    pub fn length(&self, protocols: &Protocols, handle: Handle) -> Result<usize, AccessError> {
        Ok(self.region(protocols, handle)?.length / 8)
    }

    /// The octets of a view or field.
    pub fn octets(&self, protocols: &Protocols, handle: Handle) -> Result<&[u8], AccessError> {
        let region = self.region(protocols, handle)?;
        let (start, end) = region.octets()?;
        Ok(&self.bytes()[start..end])
    }

    /// The value of a field by its kind.
    pub fn get(&self, protocols: &Protocols, handle: Handle) -> Result<Value, AccessError> {
        let region = self.region(protocols, handle)?;
        match self.kind(protocols, handle, |field| &field.getter)? {
            Kind::Int => Ok(Value::Int(self.bits(protocols, handle, region)?.cast_signed())),
            Kind::Bool => Ok(Value::Bool(self.bits(protocols, handle, region)? != 0)),
            kind => {
                let (start, end) = region.octets()?;
                Ok(kind.read(&self.bytes()[start..end]))
            }
        }
    }

    /// Writes a field, or for the kind raw a view, by its kind.
    pub fn set(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        value: Given<'_>,
    ) -> Result<(), AccessError> {
        let kind = self.kind(protocols, handle, |field| &field.setter)?;
        let region = self.region(protocols, handle)?;
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
                    self.write(region.start / 8, &octets[..count]);
                }
                Ok(())
            }
            (Kind::Mac | Kind::Ipv4 | Kind::Ipv6, Given::Text(text)) => {
                let (start, end) = region.octets()?;
                let mut octets = [0; 16];
                let count = kind.parse(text, &mut octets)?;
                if count > end - start {
                    return Err(ValueError::Length { field: end - start, value: count }.into());
                }
                self.write(start, &octets[..count]);
                Ok(())
            }
            (Kind::Raw, Given::Int(number)) => {
                let byte = u8::try_from(number).map_err(|_| kind.refuses(number))?;
                let (start, end) = region.octets()?;
                self.write(start, &vec![byte; end - start]);
                Ok(())
            }
            (Kind::Raw | Kind::Text, Given::Text(text)) => {
                let (start, end) = region.octets()?;
                if text.len() != end - start {
                    return Err(ValueError::Length { field: end - start, value: text.len() }.into());
                }
                self.write(start, text);
                Ok(())
            }
            (kind, value) => Err(kind.refuses(value.describe()).into()),
        }
    }

    /// The octet `index` of a view or field.
    pub fn byte(&self, protocols: &Protocols, handle: Handle, index: i64) -> Result<u8, AccessError> {
        let region = self.region(protocols, handle)?;
        let (start, end) = region.octets()?;
        let octet = usize::try_from(index).ok().and_then(|index| self.bytes()[start..end].get(index));
        octet.copied().ok_or_else(|| self.outside(index, 1, region))
    }

    /// What is in a view or field as `protocol`, whatever a policy says; none if it is not all there.
    pub fn cast(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        protocol: ProtocolId,
    ) -> Result<Option<Handle>, AccessError> {
        let region = self.region(protocols, handle)?;
        self.enter(protocols, region, protocol)
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
            Some(index) => {
                self.write(start + index, &[byte]);
                Ok(())
            }
            None => Err(self.outside(index, 1, region)),
        }
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

    /// Makes room of zero octets at `at` (`count` > 0), or takes octets away; a new view of the whole. All earlier
    /// ones are gone.
    pub fn resize(
        &mut self,
        protocols: &Protocols,
        handle: Handle,
        at: i64,
        count: i64,
    ) -> Result<Handle, AccessError> {
        let region = self.region(protocols, handle)?;
        let (Ok(offset), Ok(amount)) = (usize::try_from(at), isize::try_from(count)) else {
            return Err(self.outside(at, count, region));
        };
        self.octets.resize(region.start / 8 + offset, amount)?;
        Ok(self.renew())
    }

    /// Whether the view is of a whole packet.
    pub fn is_whole_packet(&self, handle: Handle) -> Result<bool, AccessError> {
        let view = self.view(handle)?;
        let whole = view.start == 0 && view.length == self.bytes().len() * 8;
        Ok(self.is_packet && handle.field() == 0 && whole)
    }

    fn write(&mut self, at: usize, octets: &[u8]) {
        if self.is_packet {
            self.octets.write(at, octets);
        } else {
            self.octets.write_plain(at, octets);
        }
    }

    /// Ends a generation; a view of the whole is the first of the next.
    fn renew(&mut self) -> Handle {
        self.generation += 1;
        self.views.clear();
        self.changes.clear();
        let length = self.bytes().len() * 8;
        self.views.push(View { protocol: ProtocolId::RAW, start: 0, length, changes: 0 });
        Handle::new(self.generation, 0, 0)
    }

    fn add(&mut self, view: View) -> Result<Handle, AccessError> {
        let at = self.views.len();
        if at >> VIEW_BITS != 0 {
            return Err(AccessError::TooMany);
        }
        self.views.push(view);
        Ok(Handle::new(self.generation, at, 0))
    }

    fn view(&self, handle: Handle) -> Result<View, AccessError> {
        if handle.generation() != self.generation {
            return Err(AccessError::Gone);
        }
        self.views.get(handle.view()).copied().ok_or(AccessError::Gone)
    }

    fn region(&self, protocols: &Protocols, handle: Handle) -> Result<Region, AccessError> {
        let view = self.view(handle)?;
        match handle.field() {
            0 => Ok(Region { start: view.start, length: view.length }),
            field => self.field(protocols, view, field - 1),
        }
    }

    /// Where a field of the view is in this packet.
    fn field(&self, protocols: &Protocols, view: View, index: usize) -> Result<Region, AccessError> {
        let protocol = protocols.get(view.protocol).ok_or(AccessError::Gone)?;
        let field = protocol.fields.get(index).ok_or(AccessError::Gone)?;
        let (moved, longer) = match view.changes {
            0 => (0, 0),
            start => self.changes[start as usize - 1 + index],
        };
        let offset = i64::from(field.offset) + i64::from(moved);
        let mut length = i64::from(field.length) + i64::from(longer);
        if length == 0 && protocol.payload == Some(index) {
            length = (view.length as i64 - offset).max(0);
        }
        if offset < 0 || length < 0 || offset + length > view.length as i64 {
            let octets = |bits: i64| {
                if bits % 8 == 0 { (bits / 8).to_string() } else { format!("{bits} bits") }
            };
            return Err(AccessError::Outside {
                offset: octets(view.start as i64 + offset),
                length: octets(length),
                whole: self.whole_name(),
                available: self.bytes().len(),
            });
        }
        Ok(Region { start: view.start + offset as usize, length: length as usize })
    }

    fn holds(&self, protocols: &Protocols, view: View, condition: Option<&Condition>) -> bool {
        condition.is_none_or(|condition| {
            self.integer(protocols, view, condition.field).is_some_and(|value| condition.holds(value))
        })
    }

    /// Bits that a step is about: nothing where the field says nothing, `Some(None)` where it is not there.
    fn amount(
        &self,
        protocols: &Protocols,
        view: View,
        amount: Amount,
        effect: Effect,
    ) -> Option<Option<i64>> {
        match amount {
            Amount::Bits(bits) => Some(Some(i64::from(bits))),
            Amount::Field { field, unit, plus } => {
                let Some(value) = self.integer(protocols, view, field) else { return Some(None) };
                if value == 0 && effect == Effect::End {
                    return None;
                }
                Some(
                    i64::try_from(value)
                        .ok()
                        .and_then(|value| value.checked_mul(i64::from(unit))?.checked_add(plus)),
                )
            }
        }
    }

    fn integer(&self, protocols: &Protocols, view: View, index: usize) -> Option<u64> {
        let region = self.field(protocols, view, index).ok()?;
        (1..=64).contains(&region.length).then(|| read_bits(self.bytes(), region.start, region.length as u32))
    }

    fn bits(&self, protocols: &Protocols, handle: Handle, region: Region) -> Result<u64, AccessError> {
        match region.length {
            0 => Err(AccessError::Empty(self.field_name(protocols, handle))),
            1..=64 => Ok(read_bits(self.bytes(), region.start, region.length as u32)),
            _ => Err(AccessError::Bits { offset: region.start, length: region.length }),
        }
    }

    fn kind(
        &self,
        protocols: &Protocols,
        handle: Handle,
        access: impl Fn(&crate::protocol::Field) -> &Access,
    ) -> Result<Kind, AccessError> {
        let view = self.view(handle)?;
        let field = match handle.field() {
            0 => None,
            field => protocols.get(view.protocol).and_then(|protocol| protocol.fields.get(field - 1)),
        };
        Ok(match field.map(access) {
            Some(Access::Kind(kind)) => *kind,
            Some(Access::Function) | None => Kind::Raw,
        })
    }

    fn field_name(&self, protocols: &Protocols, handle: Handle) -> String {
        let name = self.view(handle).ok().and_then(|view| {
            let protocol = protocols.get(view.protocol)?;
            let field = protocol.fields.get(handle.field().checked_sub(1)?)?;
            Some(format!("{}:{}", protocol.name, field.name))
        });
        name.unwrap_or_else(|| "?".into())
    }

    fn outside(&self, offset: i64, length: i64, region: Region) -> AccessError {
        let whole_view = region.start == 0 && region.length == self.bytes().len() * 8;
        AccessError::Outside {
            offset: offset.to_string(),
            length: length.to_string(),
            whole: if whole_view { self.whole_name() } else { "view" },
            available: region.length / 8,
        }
    }

    const fn whole_name(&self) -> &'static str {
        if self.is_packet { "packet" } else { "byte array" }
    }
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
    fn describe(self) -> String {
        match self {
            Given::Int(number) => number.to_string(),
            Given::Bool(value) => value.to_string(),
            Given::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
            Given::Other(name) => format!("a value of the type {name}"),
        }
    }
}

impl Region {
    fn octets(self) -> Result<(usize, usize), AccessError> {
        if !self.start.is_multiple_of(8) || !self.length.is_multiple_of(8) {
            return Err(AccessError::Bits { offset: self.start, length: self.length });
        }
        Ok((self.start / 8, (self.start + self.length) / 8))
    }
}

const _: () = assert!(MAX_FIELDS < 1 << FIELD_BITS);
