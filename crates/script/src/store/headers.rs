//! The headers of a packet, as far as its own fields say what is within what.

use std::ops::Range;

use super::{Handle, Store};
use crate::protocol::{Policy, ProtocolId, Protocols};

/// Headers that are followed: more than any packet has that is not made for it.
const MOST: usize = 32;

/// A header of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub protocol: ProtocolId,
    /// Bits of each field, by its position; those that are not there are empty, and so is the payload, where it begins.
    pub fields: Vec<Range<usize>>,
}

impl Store {
    /// The headers from `outermost` in, as long as a field says which protocol comes next: not what ports suggest.
    pub fn headers(&mut self, protocols: &Protocols, outermost: ProtocolId) -> Vec<Header> {
        let mut headers = Vec::new();
        let whole = Handle::new(self.generation, 0, 0);
        let mut next = self.data(protocols, whole, outermost).ok().flatten();
        while let Some(handle) = next.take()
            && headers.len() < MOST
            && let Ok(view) = self.view(handle)
            && let Some(protocol) = protocols.get(view.protocol)
        {
            let bits = |at| {
                let region = self.field(protocols, view, at);
                region.map_or(0..0, |region| match protocol.payload == Some(at) {
                    true => region.start..region.start,
                    false => region.start..region.start + region.length,
                })
            };
            let fields = (0..protocol.fields.len()).map(bits).collect();
            headers.push(Header { protocol: view.protocol, fields });
            if let Policy::Table(table) = &protocol.policy
                && let Some(value) = self.integer(protocols, view, table.field)
            {
                let named = table.protocols.iter().filter(|(known, _)| *known == value).map(|(_, id)| *id);
                next = named.into_iter().find_map(|id| self.data(protocols, handle, id).ok().flatten());
            }
        }
        headers
    }
}
