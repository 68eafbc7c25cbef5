//! Which association recent kinds of traffic have.

use ipsec::key_engine::AssociationId;
use ipsec::policy::Bundle;
use ipsec::selector::Traffic;

/// Kinds of traffic whose association is remembered.
const REMEMBERED: usize = 256;

/// What protects a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Protection {
    /// One tunnel of ESP, which is IKE's.
    Tunnel(AssociationId),
    /// These associations, one after the other.
    Whole(Bundle),
}

/// Which association recent kinds of traffic have, so that policy is not asked for each packet. Cleared whenever an
/// association comes or goes.
#[derive(Debug)]
pub(super) struct Recent(Vec<Option<(Traffic, Protection)>>);

impl Default for Recent {
    fn default() -> Self {
        Self(vec![None; REMEMBERED])
    }
}

impl Recent {
    pub(super) fn clear(&mut self) {
        self.0.fill(None);
    }

    pub(super) fn get(&self, hash: u32, traffic: &Traffic) -> Option<Protection> {
        let (remembered, protection) = self.0[hash as usize % REMEMBERED].as_ref()?;
        (remembered == traffic).then_some(*protection)
    }

    pub(super) fn put(&mut self, hash: u32, traffic: &Traffic, protection: Protection) {
        self.0[hash as usize % REMEMBERED] = Some((*traffic, protection));
    }
}
