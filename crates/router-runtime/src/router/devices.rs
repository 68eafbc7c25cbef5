//! Devices of tunnels and of the translator: made before the rest, and made anew where somebody has deleted them.

use std::time::Instant;

use router::site::{Site, Uplink};

use super::Router;
use crate::error::Error;
use crate::{nat64, random, transition};

impl Router {
    /// Has the tunnels' devices there, which the rest needs; those that stay the same go on.
    pub(super) fn make_tunnels(&mut self, site: &Site) -> Result<(), Error> {
        let wanted =
            |interface: &transition::Interface| site.uplinks.iter().any(|uplink| interface.is_of(uplink));
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tunnels).into_iter().partition(wanted);
        self.tunnels = stay;
        for interface in go {
            self.kernel.end_tunnel(interface, &self.poller);
        }
        for uplink in &site.uplinks {
            let Some(tunnel) = uplink
                .tunnel
                .as_ref()
                .filter(|_| !self.tunnels.iter().any(|interface| interface.is_of(uplink)))
            else {
                continue;
            };
            let netlink = &mut self.kernel.netlink;
            let interface =
                transition::Interface::open(uplink, tunnel, &self.poller, netlink, self.next_token)?;
            self.next_token += transition::Interface::tokens();
            self.tunnels.push(interface);
        }
        if !self.tunnels.is_empty() {
            self.monitor.watch_routes()?;
        }
        self.links = self.kernel.netlink.links()?;
        for interface in &mut self.tunnels {
            self.kernel.follow(interface, &self.links, &self.poller)?;
        }
        Ok(())
    }

    /// Has the translator's device there, if there is to be one.
    pub(super) fn make_translator(&mut self, site: &Site) -> Result<(), Error> {
        let Some(nat64) = &site.nat64 else { return Ok(()) };
        let netlink = &mut self.kernel.netlink;
        if let Some(translator) = &mut self.translator {
            translator.follow(site, &self.links, netlink)?;
            return Ok(());
        }
        let mtu = nat64::ipv4_mtu(site, &self.links);
        let secret = random::secret(&self.uuid);
        let token = self.next_token;
        self.translator = Some(nat64::Interface::open(nat64, mtu, secret, &self.poller, netlink, token)?);
        self.next_token += 1;
        self.links = self.kernel.netlink.links()?;
        Ok(())
    }

    pub(super) fn end_translator(&mut self) {
        if let Some(translator) = self.translator.take() {
            translator.close(&self.poller);
        }
    }

    /// Makes devices of tunnels anew that somebody has deleted, and sets again what an interface that was made anew, or
    /// somebody, has otherwise. What could not be done is returned.
    pub(super) fn restore(&mut self, now: Instant) -> Vec<String> {
        let site = self.site.clone();
        let mut problems = Vec::new();
        let is_tunnel = |uplink: &&Uplink| uplink.tunnel.is_some();
        if self.tunnels.len() < site.uplinks.iter().filter(is_tunnel).count() {
            problems.extend(self.make_tunnels(&site).err().map(|error| error.to_string()));
            self.set_links(now);
        }
        // Nothing is translated anew that is not guarded.
        let prepared = self.kernel.prepare(&site, &self.links).map_err(Error::from);
        let prepared = prepared.and_then(|()| self.make_translator(&site));
        problems.extend(prepared.err().map(|error| error.to_string()));
        problems
    }
}
