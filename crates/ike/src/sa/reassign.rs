//! Another configuration is in force: an IKE SA goes on with what is left of its peer there.

use super::{IkeSa, InFlight, Request, State, Task};
use crate::config::{ChildIndex, KeptPeer, PeerIndex};
use crate::output::Context;

impl IkeSa {
    /// It belongs to another peer of the configuration from now on, which is what it was under another number; or to none, so
    /// that it ends. Nothing is begun before the other configuration is in force.
    pub(crate) fn reassign(&mut self, kept: Option<&KeptPeer>, context: &mut Context<'_>) {
        let Some(kept) = kept else {
            self.peer = PeerIndex::NONE;
            self.tasks.clear();
            self.later.clear();
            self.ask(Task::DeleteIke, context);
            return;
        };
        self.peer = kept.peer;
        let renumber = |index: &mut ChildIndex| {
            *index = kept.child(*index).unwrap_or(ChildIndex::NONE);
        };
        let mut gone = Vec::new();
        for child in &mut self.children {
            renumber(&mut child.index);
            if child.index == ChildIndex::NONE && !std::mem::replace(&mut child.closing, true) {
                child.rekey_at = None;
                gone.push(Task::DeleteChild { protocol: child.protocol, spi: child.inbound_spi });
            }
        }
        if let Some(InFlight { request: Request::CreateChild { offer, .. }, .. }) = &mut self.in_flight {
            renumber(&mut offer.index);
        }
        let later = self.later.iter_mut().map(|(_, task)| task);
        for task in self.tasks.iter_mut().chain(later) {
            if let Task::CreateChild { index, .. } = task {
                renumber(index);
            }
        }
        if matches!(self.state, State::Up) {
            self.tasks.extend(gone);
        }
    }
}
