//! Packets that pass the daemon by: those whose addresses are replaced, and another tunnel's.

use config::TunnelConfig;
use config::run::Feature;
use mt6d::{Action, Rewrite};
use tracing::warn;

use super::Kernel;
use crate::mask::Masker;
use crate::next_hop::Outside;
use crate::obstacles;
use crate::rewrite::Rewriter;

impl Kernel {
    /// Prepares to replace addresses, if that is wanted and the kernel can do it: whether it will.
    pub(in super::super) fn prepare_rewriting(
        &mut self,
        config: &TunnelConfig,
        without: &dyn Fn(Feature) -> bool,
    ) -> bool {
        let peers = config.peers.iter().filter(|peer| peer.rewrite).count();
        if peers == 0 {
            return false;
        }
        let opened = if without(Feature::Rewriting) {
            Err("left out for a test".to_owned())
        } else {
            let tcx = !without(Feature::Tcx);
            Rewriter::open(peers, self.outside(), tcx, &mut self.journal).map_err(|error| error.to_string())
        };
        match opened {
            Ok(rewriter) => self.rewriter = Some(rewriter),
            Err(error) => warn!(
                "addresses cannot be replaced here, peers with carry = \"rewrite\" are reached through the tunnel: {error}"
            ),
        }
        self.rewriter.is_some()
    }

    /// Prepares to mask another tunnel's packets, if the kernel can do it: whether it will.
    pub(in super::super) fn prepare_masking(&mut self, without: &dyn Fn(Feature) -> bool) -> bool {
        let opened = if without(Feature::Masking) {
            Err("left out for a test".to_owned())
        } else if let Some(why) = obstacles::merging(self.link.index, &mut self.netlink) {
            Err(why)
        } else {
            let tcx = !without(Feature::Tcx);
            Masker::open(self.outside(), tcx, &mut self.journal).map_err(|error| error.to_string())
        };
        match opened {
            Ok(masker) => self.masker = Some(masker),
            Err(error) => warn!("packets cannot be masked here, [[wrap]] is carried in the tunnel: {error}"),
        }
        self.masker.is_some()
    }

    /// How packets leave outside, as from the sockets of endpoints.
    fn outside(&self) -> Outside {
        Outside { tun: self.tun_index, external: self.link.clone(), bound: self.sockets.interface.is_some() }
    }

    /// Hears addresses that stand for hosts, and sends with them, or no longer. On a link they are prepared as those of
    /// endpoints are.
    pub(super) fn rewrite(&mut self, action: Action) {
        if let Some(rewriter) = &mut self.rewriter {
            rewriter.act(&action, &mut self.netlink);
        }
        match action {
            Action::AddRewrite(Rewrite { outer, .. }) => {
                if let Some(on_link) = &mut self.on_link {
                    on_link.active.insert(outer.0);
                    self.warm(outer.0, outer.1);
                }
            }
            Action::RemoveRewrite(Rewrite { outer, .. }) => self.forget_neighbor(outer.0, Some(outer.1)),
            Action::AddMask(_) | Action::RemoveMask { .. } | Action::Mask { .. } => {
                if let Some(masker) = &mut self.masker {
                    masker.act(action, &mut self.netlink);
                }
            }
            _ => {}
        }
    }
}
