//! The table of a node's peers. A place that became free is taken again, so numbers stay small.

use std::ops::{Index, IndexMut};

use crate::id::PeerId;
use crate::peer::Peer;

#[derive(Default)]
pub(super) struct Table(Vec<Option<Peer>>);

impl Table {
    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.0.len()
    }

    /// All places.
    pub(super) fn ids(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.0.len()).map(PeerId)
    }

    /// A place more, which is empty.
    pub(super) fn grow(&mut self) -> PeerId {
        self.0.push(None);
        PeerId(self.0.len() - 1)
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.0.get(id.0)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.0.get_mut(id.0)?.as_mut()
    }

    /// The peers that there are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.0.iter().enumerate().filter_map(|(place, peer)| Some((PeerId(place), peer.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.0.iter_mut().flatten()
    }
}

impl Index<PeerId> for Table {
    type Output = Option<Peer>;
    fn index(&self, id: PeerId) -> &Self::Output {
        &self.0[id.0]
    }
}

impl IndexMut<PeerId> for Table {
    fn index_mut(&mut self, id: PeerId) -> &mut Self::Output {
        &mut self.0[id.0]
    }
}
