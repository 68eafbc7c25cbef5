//! This end gets another address, or another way to its remotes (MOBIKE, RFC 4555).

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ike::event::{Nat, Path};
use ike::numbers::IkeSpi;
use ike::random::Random;

use super::Carrier;
use super::conversation::{AGAIN_AFTER, Conversation};
use crate::deliver::Deliver;
use crate::outbox::Via;

impl<R: Random> Carrier<R> {
    /// Looks for the address that each remote is reached from now, where this end may choose it, and goes on from there. `None`
    /// of `source`: there is no way now; what there is stays until there is one again.
    ///
    /// What is sent goes along the new path at once; the other end is told, and then sends there, too.
    pub fn move_where(
        &mut self,
        mut source: impl FnMut(IpAddr) -> Option<IpAddr>,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let initiated = |conversation: &Conversation| {
            conversation.established.iter().filter(|sa| sa.initiated).map(|sa| sa.ike).collect::<Vec<_>>()
        };
        let all: Vec<IkeSpi> = self.conversations.iter().flat_map(initiated).collect();
        for ike in all {
            let Some(path) = self.ike.path(ike) else { continue };
            let Some(local) = source(path.remote.ip()).filter(|local| *local != path.local.ip()) else {
                continue;
            };
            let path = Path { local: SocketAddr::new(local, path.local.port()), ..path };
            // Without MOBIKE the other end would not follow: it is asked whether it is there, so that a conversation that
            // has come to its end begins anew soon.
            match self.ike.move_to(now, ike, path) {
                Ok(()) => self.goes_along(ike, path),
                Err(_) => drop(self.ike.check_liveness(now, ike)),
            }
        }
        // What has not come about so far begins anew from there, or soon, as there may be a way now.
        for conversation in &mut self.conversations {
            if let Some(attempt) = conversation.attempt {
                let path = self.ike.path(attempt);
                let is_elsewhere =
                    |path: Path| source(path.remote.ip()).is_some_and(|local| local != path.local.ip());
                if path.is_some_and(is_elsewhere) {
                    conversation.attempt = None;
                    conversation.begin_at = Some(now);
                    // It is given up; nothing is left of it to be told.
                    let _ = self.ike.delete_ike(now, attempt);
                }
            } else if let Some(at) = conversation.begin_at {
                conversation.begin_at = Some(at.min(now + AGAIN_AFTER));
            }
        }
        self.begin_conversations(now);
        self.settle(now, deliver);
    }

    /// What is sent goes along this path from now on, in UDP if it does so already: the answer says whether it must.
    fn goes_along(&mut self, ike: IkeSpi, path: Path) {
        let in_udp = self.children.values().any(|child| child.ike == ike && child.way.via != Via::Raw);
        self.path_changed(ike, path, Nat { claimed: in_udp, ..Nat::default() });
    }
}
