//! An external interface that is deleted and made anew, as pppd or a bridge's program does: for the kernel it is another one, by
//! the same name.

use linux::neighbor::Responder;
use linux::netlink::{Change, Link};
use linux::undo::Step;
use tracing::{info, warn};

use super::tables::Tables;
use super::{Kernel, KernelEvent};

impl Kernel {
    /// Whether this is what the external interface is now, be it another one.
    pub(super) fn is_external(&mut self, link: &Link) -> bool {
        if link.index == self.link.index || link.name != self.link.name || self.has_taken_over() {
            return link.index == self.link.index;
        }
        // What is read now may be of one that is gone, too.
        self.netlink.link_by_name(&link.name).ok().flatten().is_some_and(|now| now.index == link.index)
    }

    /// Whether the interface is no longer the kernel's alone: with the next one, that is for the next start.
    fn has_taken_over(&self) -> bool {
        self.discovery.is_some() || self.transparent.is_some()
    }

    /// What may have been lost among too many changes.
    pub(super) fn lost_among(&mut self, changes: &[Change]) -> Option<Change> {
        let is_overrun = changes.iter().any(|change| matches!(change, Change::Overrun));
        let link = is_overrun.then(|| self.netlink.link_by_name(&self.link.name).ok()).flatten().flatten();
        link.map(Change::Link)
    }

    /// The external interface is gone.
    pub(super) fn external_gone(&self) {
        let name = &self.link.name;
        match self.has_taken_over() {
            true => {
                warn!("{name} is gone: when it is there again, restart the tunnel, which had taken it over");
            }
            false => info!("{name} is gone: the tunnel waits for another interface of that name"),
        }
    }

    /// It is another one now, and the one before had the index `before`: what was bound to that one is bound to this.
    pub(super) fn made_anew(&mut self, before: u32, report: &dyn Fn(KernelEvent)) {
        let Link { index, name, mac, .. } = self.link.clone();
        info!("{name} was made anew");
        if let Some(interface) = &mut self.sockets.interface {
            *interface = index;
            report(KernelEvent::MadeAnew(index));
        }
        let is_lost = |step: &&Step| matches!(step, Step::Neighbor { index, .. } if *index == before);
        let lost: Vec<Step> = self.journal.done().iter().filter(is_lost).cloned().collect();
        for step in lost {
            if let Err(error) = self.journal.undo_step(&mut self.netlink, &step) {
                warn!("{error}");
            }
        }
        if let Some(on_link) = &mut self.on_link {
            match mac.map(|mac| Responder::open(index, mac)) {
                Some(Ok(responder)) => on_link.responder = responder,
                Some(Err(error)) => warn!("nobody is answered on {name}: {error}"),
                None => warn!("nobody is answered on {name}: it has no hardware address any more"),
            }
        }
        // What was at the interface's hook went with it, whatever was made meanwhile.
        self.tables = Tables::of(&self.tunnel);
        self.darken_again();
    }
}
