//! One configuration after another: each is taken as a whole, or the one from before stays.

use std::time::{Duration, Instant};

use config::RouterConfig;
use router::site::Uplink;
use tracing::warn;

use super::{Retired, Router};
use crate::error::Error;
use crate::firewall::refuse_while_pending;
use crate::needs::check;
use crate::{nat, network, uplink};

impl Router {
    /// Has this configuration in force: interfaces, settings, and what is planned for what is known now.
    pub(super) fn take(&mut self, config: RouterConfig) -> Result<(), Error> {
        let (clock, contents) = (self.state_file.clock(), self.state_file.contents().clone());
        let RouterConfig { site, probing, firewall, .. } = config;
        // Before anything is forwarded.
        self.kernel.set_firewall(firewall.as_ref()).map_err(Error::Firewall)?;
        self.make_tunnels(&site)?;
        // The table that guards the translator goes after it, and comes before it.
        if self.translator.as_ref().is_some_and(|translator| !translator.is_of(&site)) {
            self.end_translator();
        }
        self.kernel.prepare(&site, &self.links)?;
        self.make_translator(&site)?;
        // What stays the same goes on as it is, with all that it has heard.
        let Retired { mut uplinks, mut networks } = std::mem::take(&mut self.retired);
        uplinks.append(&mut self.uplinks);
        networks.append(&mut self.networks);
        for (uplink, probing) in site.uplinks.iter().zip(probing) {
            // What its link carries concerns nothing that it hears.
            let is_same = |known: &Uplink| Uplink { bandwidth: uplink.bandwidth, ..known.clone() } == *uplink;
            let same = uplinks
                .iter()
                .position(|interface| is_same(&interface.uplink) && interface.probing() == probing);
            self.uplinks.push(match same {
                Some(place) => {
                    let mut same = uplinks.remove(place);
                    same.uplink.bandwidth = uplink.bandwidth;
                    same
                }
                None => {
                    let remembered =
                        (contents.lease(&uplink.name, clock), contents.routers.get(&uplink.name).copied());
                    let mut new = uplink::Interface::new(
                        uplink.clone(),
                        probing,
                        remembered,
                        self.next_token,
                        self.uuid,
                        clock.now,
                    );
                    uplinks.iter().for_each(|before| new.hear_as(before));
                    new
                }
            });
            self.next_token += uplink::Interface::tokens();
        }
        for network in &site.networks {
            let same = networks.iter().position(|interface| interface.network == *network);
            self.networks.push(match same {
                Some(place) => networks.remove(place),
                None => {
                    let formerly = contents.prefixes.get(&network.interface).cloned().unwrap_or_default();
                    network::Interface::new(network.clone(), formerly, self.next_token)
                }
            });
            self.next_token += 1;
        }
        self.retired = Retired { uplinks, networks };
        if !nat::answering(&site).is_empty() {
            self.monitor.watch_routes()?;
        }
        self.site = site;
        self.kernel.offload.forget();
        self.set_links(clock.now);
        // What waits for an address is tried again, and logged, as later on.
        self.changed = true;
        let refused = self.renew_plan(clock.now).into_iter().filter(|problem| !problem.waits);
        let refused: Vec<_> = refused.map(|problem| problem.text).collect();
        if refused.is_empty() { Ok(()) } else { Err(Error::Refused(refused)) }
    }

    /// What is not wanted any more ends. Hosts of a network that is gone look for another router.
    pub(super) fn close_retired(&mut self) {
        let Retired { uplinks, networks } = std::mem::take(&mut self.retired);
        for mut interface in uplinks {
            interface.close(&self.poller);
        }
        for mut interface in networks {
            if !self.networks.iter().any(|other| other.network.interface == interface.network.interface) {
                interface.cease(&mut self.kernel.netlink, Instant::now());
            }
            interface.close(&self.poller);
        }
    }

    /// Another configuration, all of it, or the one from before.
    pub(super) fn reload(&mut self, config: RouterConfig) -> Result<Box<RouterConfig>, Error> {
        check(&config.site, &self.links)?;
        if config.firewall.is_some() {
            refuse_while_pending().map_err(Error::Firewall)?;
        }
        let before = RouterConfig {
            site: self.site.clone(),
            probing: self.uplinks.iter().map(uplink::Interface::probing).collect(),
            firewall: self.kernel.firewall().cloned(),
            scripts: Vec::new(),
        };
        self.remember(Duration::ZERO);
        let result = match self.take(config) {
            Ok(()) => Ok(Box::new(before)),
            Err(why) => {
                if let Err(error) = self.take(before) {
                    warn!("the previous configuration is restored only in part: {error}");
                }
                Err(why)
            }
        };
        match self.kernel.release_settings(&self.site) {
            // What is still wanted may have changed along.
            Ok(released) => self.changed |= released,
            Err(error) => warn!("not everything could be restored: {error}"),
        }
        self.close_retired();
        result
    }
}
