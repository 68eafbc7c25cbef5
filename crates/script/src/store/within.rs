//! What is within a view: parts of it, its fields, and the protocols that its payload holds.

use super::{AccessError, Handle, Region, Store, View};
use crate::protocol::{
    Amount, Changes, Condition, Effect, FieldName, Policy, ProtocolId, Protocols, question_name,
};

/// Most protocols between a header and the one that is asked for: RFC 8200 knows six extension headers, and nodes may refuse
/// more than eight (RFC 8504 section 5.3).
pub const MAX_THROUGH: usize = wire::ipv6::MAX_EXTENSION_HEADERS;

impl Store {
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

    /// The field of this name.
    pub(crate) fn named(
        &self,
        protocols: &Protocols,
        handle: Handle,
        name: FieldName,
    ) -> Result<Handle, AccessError> {
        let view = self.view(handle)?;
        match protocols.position(view.protocol, name) {
            Some(position) if handle.field() == 0 => Ok(handle.with_field(position)),
            _ => {
                let field = protocols.field_name(name).to_owned();
                Err(AccessError::NoField { view: self.describe(protocols, handle), field })
            }
        }
    }

    /// The payload field of a view.
    pub fn payload(&self, protocols: &Protocols, handle: Handle) -> Result<Handle, AccessError> {
        let view = self.view(handle)?;
        match protocols.get(view.protocol).and_then(|protocol| protocol.payload) {
            Some(position) if handle.field() == 0 => Ok(handle.with_field(position)),
            _ => {
                let view = self.describe(protocols, handle);
                Err(AccessError::NoField { view, field: "payload field, which data() is".into() })
            }
        }
    }

    /// A view of the same octets that goes when the packet grows or shrinks, also where `handle` stays.
    pub fn part(&mut self, handle: Handle) -> Result<Handle, AccessError> {
        let view = self.view(handle)?;
        if handle.is_whole() { self.add(view) } else { Ok(handle) }
    }

    /// The protocol whose policy is a function that has to be asked before [`data`](Self::data), if it is one.
    pub fn asks(&self, protocols: &Protocols, handle: Handle) -> Result<Option<ProtocolId>, AccessError> {
        let view = self.view(handle)?;
        let policy = protocols.get(view.protocol).map(|protocol| &protocol.policy);
        Ok((handle.field() == 0 && policy == Some(&Policy::Function)).then_some(view.protocol))
    }

    /// The view of what is within, as `protocol`; none if the policy refuses, or it is not all there.
    ///
    /// Policies that are functions have been asked before. What lies behind too many other headers is an error, not none: a
    /// filter would take that for another packet, and receivers do not.
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
        for level in 0..=MAX_THROUGH {
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
                        if level == MAX_THROUGH {
                            return Err(AccessError::TooDeep);
                        }
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
        if let Changes::Question(name) = declared.changes {
            let octets = region.octets().ok().and_then(|(start, end)| self.bytes().get(start..end));
            let at = declared.fields[name].offset as usize / 8;
            let length = question_name(octets.unwrap_or_default(), at) as i32 * 8;
            if length > 0 {
                view.changes = self.changes.len() as u32 + 1;
                let unmoved = std::iter::repeat_n((0, 0), name);
                let moved = [(0, length), (length, 16), (length + 16, 16), (length + 32, 0)];
                self.changes.extend(unmoved.chain(moved));
            }
        }
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
}
