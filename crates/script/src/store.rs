//! Views: which bits of a packet or of a byte array a script's object stands for.
//!
//! A script holds numbers, [`Handle`]s, not places: all that is known about a view is here, and every use of a handle is
//! checked against the octets as they are then. When a packet is gone, or its octets have moved, its generation ends,
//! and handles of an earlier one are refused; only that of the whole packet stays until the packet is done with.

mod error;
mod handle;
mod headers;
mod value;
mod within;

pub use error::AccessError;
pub use handle::Handle;
pub use headers::Header;
pub use value::{Given, Got, Written};
use wire::checksum::TransportChecksum;
pub use within::MAX_THROUGH;

use crate::kind::read_bits;
use crate::packet::Packet;
use crate::protocol::{ProtocolId, Protocols};

/// Octets, and the views that there are of them.
#[derive(Debug, Default)]
pub struct Store {
    octets: Packet,
    /// Whether they are a packet, whose checksums are kept right.
    is_packet: bool,
    /// The generation in which this packet came.
    first: usize,
    generation: usize,
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
        let whole = store.start();
        (store, whole)
    }

    /// A packet of its own.
    pub fn of_packet(packet: Packet) -> (Self, Handle) {
        let mut store = Self { octets: packet, is_packet: true, ..Self::default() };
        let whole = store.start();
        (store, whole)
    }

    /// Takes another packet in, and gives a view of the whole of it. Views of what was here before are gone.
    pub fn begin(&mut self, packet: &mut Packet) -> Handle {
        std::mem::swap(&mut self.octets, packet);
        self.is_packet = true;
        self.start()
    }

    /// Gives the packet back. Its views are gone.
    pub fn end(&mut self, packet: &mut Packet) {
        std::mem::swap(&mut self.octets, packet);
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

    /// Makes room of zero octets at `at` (`count` > 0), or takes octets away. All views but that of the whole are gone.
    pub fn resize(&mut self, handle: Handle, at: i64, count: i64) -> Result<(), AccessError> {
        self.view(handle)?;
        if !self.is_packet || !handle.is_whole() {
            return Err(AccessError::Part);
        }
        let (Ok(offset), Ok(amount)) = (usize::try_from(at), isize::try_from(count)) else {
            return Err(self.outside(at, count, Region { start: 0, length: self.bytes().len() * 8 }));
        };
        self.octets.resize(offset, amount)?;
        self.renew();
        Ok(())
    }

    /// The VLAN that the packet has a tag of.
    pub fn vlan_id(&self, handle: Handle) -> Result<Option<u16>, AccessError> {
        self.whole(handle)?;
        Ok(self.octets.vlan_id()?)
    }

    /// Puts a tag of a VLAN beside the packet. All views but that of the whole are gone.
    pub fn push_vlan(&mut self, handle: Handle, id: i64) -> Result<(), AccessError> {
        self.whole(handle)?;
        self.octets.push_vlan(id)?;
        self.renew();
        Ok(())
    }

    /// Takes the first tag of a VLAN: which one that was. All views but that of the whole are gone.
    pub fn pop_vlan(&mut self, handle: Handle) -> Result<Option<u16>, AccessError> {
        self.whole(handle)?;
        let id = self.octets.pop_vlan()?;
        self.renew();
        Ok(id)
    }

    fn whole(&self, handle: Handle) -> Result<(), AccessError> {
        self.view(handle)?;
        if self.is_packet && handle.is_whole() { Ok(()) } else { Err(AccessError::NotWhole) }
    }

    /// Has the packet leave through an interface, if the verdict is that it is stolen.
    pub fn redirect(&mut self, handle: Handle, interface: u32) -> Result<(), AccessError> {
        self.view(handle)?;
        self.octets.redirect(Some(interface));
        Ok(())
    }

    /// Completes a partial transport checksum, for octets that leave the packet: nobody would do it for them later.
    pub fn complete_transport(&mut self) {
        self.octets.complete_transport();
    }

    fn write(&mut self, at: usize, octets: &[u8]) {
        if self.is_packet {
            self.octets.write(at, octets);
        } else {
            self.octets.write_plain(at, octets);
        }
    }

    /// Begins with another packet.
    fn start(&mut self) -> Handle {
        self.first = Handle::next_generation(self.generation);
        self.renew()
    }

    /// Ends a generation; a view of the whole is the first of the next.
    fn renew(&mut self) -> Handle {
        self.generation = Handle::next_generation(self.generation);
        self.views.clear();
        self.changes.clear();
        let length = self.bytes().len() * 8;
        self.views.push(View { protocol: ProtocolId::RAW, start: 0, length, changes: 0 });
        Handle::new(self.generation, 0, 0)
    }

    fn add(&mut self, view: View) -> Result<Handle, AccessError> {
        let at = self.views.len();
        if at >= Handle::MAX_VIEWS {
            return Err(AccessError::TooMany);
        }
        self.views.push(view);
        Ok(Handle::new(self.generation, at, 0))
    }

    fn view(&self, handle: Handle) -> Result<View, AccessError> {
        if handle.generation() != self.generation && !(handle.is_whole() && self.is_of_this_packet(handle)) {
            return Err(if handle.protocol().is_some() { AccessError::Protocol } else { AccessError::Gone });
        }
        self.views.get(handle.view()).copied().ok_or(AccessError::Gone)
    }

    fn is_of_this_packet(&self, handle: Handle) -> bool {
        let (first, last, generation) = (self.first, self.generation, handle.generation());
        if first <= last {
            (first..=last).contains(&generation)
        } else {
            generation != 0 && (generation >= first || generation <= last)
        }
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

    fn integer(&self, protocols: &Protocols, view: View, index: usize) -> Option<u64> {
        let region = self.field(protocols, view, index).ok()?;
        (1..=64).contains(&region.length).then(|| read_bits(self.bytes(), region.start, region.length as u32))
    }

    fn bits(&self, protocols: &Protocols, handle: Handle, region: Region) -> Result<u64, AccessError> {
        match region.length {
            0 => Err(AccessError::Empty(self.describe(protocols, handle))),
            1..=64 => Ok(read_bits(self.bytes(), region.start, region.length as u32)),
            _ => Err(AccessError::Bits { offset: region.start, length: region.length }),
        }
    }

    /// What a handle stands for, in words.
    pub fn describe(&self, protocols: &Protocols, handle: Handle) -> String {
        if let Some(protocol) = handle.protocol() {
            return protocols.name(protocol).to_owned();
        }
        let Ok(view) = self.view(handle) else { return "view of a packet that is gone".into() };
        let name = protocols.name(view.protocol);
        let field = handle.field().checked_sub(1);
        match field.and_then(|field| protocols.get(view.protocol)?.fields.get(field)) {
            Some(field) => format!("field {name}:{}", field.name),
            None => format!("view {name}"),
        }
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

impl Region {
    fn octets(self) -> Result<(usize, usize), AccessError> {
        if !self.start.is_multiple_of(8) || !self.length.is_multiple_of(8) {
            return Err(AccessError::Bits { offset: self.start, length: self.length });
        }
        Ok((self.start / 8, (self.start + self.length) / 8))
    }
}
