//! The tables of nftables: those that keep the hopping prefix dark, and the one that keeps what is behind the peers off the
//! external interface.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use linux::nft;
use linux::outside::Outside;
use tracing::warn;

use super::closed::KeptOff;
use super::{Kernel, KernelEvent};

impl Kernel {
    /// Makes the prefix dark, but for the addresses of this host in it, which are returned, unless it is so as it is to be. The
    /// tables are looked at every time: a firewall that is started anew flushes those of others.
    pub(super) fn darken(&mut self, prefix: Ipv6Net, on_link: bool) -> Result<Vec<Ipv6Addr>, linux::Error> {
        let (delivery, own) = if on_link {
            (nft::PrefixDelivery::OnLink, self.own_addresses(prefix)?)
        } else {
            (nft::PrefixDelivery::Routed, Vec::new())
        };
        let dark = nft::DarkPrefix {
            tunnel: &self.tunnel,
            external: &self.link.name,
            prefix,
            delivery,
            own: &own,
            behind: &self.state.behind,
        };
        // Where all may leave, another tunnel's packets go inside all the same.
        let (nothing, strays) = (KeptOff::default(), self.led.strays.as_slice());
        let kept_off = self.state.kept_off.as_ref().or((!strays.is_empty()).then_some(&nothing));
        let outside = kept_off.map(|kept_off| {
            Outside { strays, ..kept_off.outside(&self.tunnel, &self.link.name, prefix) }.render()
        });
        let outside = outside.as_deref();
        let rules = nft::render(&dark, true, true) + outside.unwrap_or_default();
        let before = self.tables.look()?;
        if self.tables.have(&rules, &before) {
            return Ok(own);
        }
        let (journal, closed) = (&mut self.journal, &mut self.closed);
        if outside.is_none() {
            closed.let_out(&mut self.netlink)?;
        }
        let make = || {
            let Some(outside) = outside else { return journal.darken(&dark, "") };
            closed.keep_off(|| journal.darken(&dark, outside)).or_else(|error| {
                // A prefix that cannot be dark is no reason for what is behind the peers to leave in clear.
                closed.keep_off(|| nft::apply(outside))?;
                Err(error)
            })
        };
        let at_ingress = self.tables.make(rules, outside.is_some(), &before, make)?;
        if !at_ingress {
            warn!(
                "this kernel has no ingress hook for nftables: neighbors can have hop-by-hop options answered"
            );
        }
        Ok(own)
    }

    fn own_addresses(&mut self, prefix: Ipv6Net) -> Result<Vec<Ipv6Addr>, linux::Error> {
        let addresses = self.netlink.addresses(self.link.index)?;
        let inside = addresses.iter().filter_map(|a| match a.address.addr() {
            IpAddr::V6(address) if prefix.contains(&address) => Some(address),
            _ => None,
        });
        Ok(inside.collect())
    }

    /// Whether the tables could not be made as they are to be, or changed meanwhile.
    pub(super) fn doubts_tables(&self) -> bool {
        self.state.hop.is_some() && !self.tables.are_known()
    }

    /// Another program may have changed the tables that keep the prefix dark, or removed them, as one that flushes all of
    /// them does; or they could not be made. Returns whether they are there.
    pub(super) fn restore_dark_tables(&mut self, report: &dyn Fn(KernelEvent)) -> bool {
        let Some((prefix, on_link)) = self.state.hop else { return true };
        let found = self.tables.look();
        if found.as_ref().is_ok_and(|found| self.tables.are(found)) {
            return true;
        }
        match found.and_then(|_| self.darken(prefix, on_link)) {
            Ok(own) => {
                if let Some(on_link) = &mut self.on_link {
                    on_link.own = own;
                }
                warn!(
                    event = "rules_restored",
                    "the rules that keep {prefix} dark were not as they are to be, for another program's change or an error: they are restored"
                );
                report(KernelEvent::RulesRestored);
                true
            }
            Err(error) => {
                warn!(event = "rules_lost", "{prefix} is no longer dark: {error}");
                false
            }
        }
    }

    /// The external interface has another name, by which the tables are to know it.
    pub(super) fn renamed(&mut self) {
        let name = &self.link.name;
        warn!(
            "the external interface is called {name} now: have [node] external say so before the next start"
        );
        self.darken_again();
    }

    /// The external interface is not the one that the tables were made for.
    pub(super) fn darken_again(&mut self) {
        let Some((prefix, on_link)) = self.state.hop else { return };
        match self.darken(prefix, on_link) {
            Ok(own) => self.on_link.iter_mut().for_each(|on_link| on_link.own.clone_from(&own)),
            Err(error) => warn!("{error}"),
        }
    }

    /// The external interface may have other addresses in the on-link prefix, which are not to be dark.
    pub(super) fn refresh_own(&mut self) {
        let Some((prefix, true)) = self.state.hop else { return };
        let Ok(own) = self.own_addresses(prefix) else { return };
        let Some(on_link) = self.on_link.as_mut().filter(|o| o.own != own) else { return };
        on_link.own = own;
        if let Err(error) = self.darken(prefix, true) {
            warn!("{error}");
        }
    }
}
