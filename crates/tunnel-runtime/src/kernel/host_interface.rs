//! The external interface of a host (`mode = "host"`): taken over from the kernel, with the ways out of whatever network it
//! leads to.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use linux::netlink::{NeighborState, Route, Via};
use tracing::{debug, info, warn};

use super::network_detection::{Network, RouterDiscovery};
use super::{Kernel, KernelEvent};
use crate::error::Error;
use config::{Mode, TunnelConfig};

impl Kernel {
    /// Takes the external interface over, if that is what the configuration asks for: the kernel is silent there from
    /// now on, and the prefix to hop in is that of the link.
    pub(in super::super) fn take_over_link(&mut self, config: &TunnelConfig) -> Result<(), Error> {
        if config.node.mode != Mode::Host {
            return Ok(());
        }
        let name = self.link.name.clone();
        let Some(mac) = self.link.mac else {
            return Err(Error::Limit(format!(
                "[node] mode: a host needs a hardware address, and {name} has none"
            )));
        };
        let addresses = self.netlink.addresses(self.link.index)?;
        if let Some(given) = addresses.iter().find(|a| a.permanent && a.global && a.address.addr().is_ipv6())
        {
            return Err(Error::Limit(format!(
                "[node] mode: {name} has the address {}, which would identify this machine: remove it first (`ip address \
                 del {} dev {name}`); those from routers or DHCPv6 are removed by sidestep, and return at the end",
                given.address, given.address
            )));
        }
        self.journal.disable_autoconf(&name)?;
        self.discovery = Some(RouterDiscovery::open(self.link.index, mac)?);
        Ok(())
    }

    /// Sets up the way out of the network that the link leads to now, and takes back that of the last one.
    fn enter(&mut self, network: Network) -> linux::Result<()> {
        self.leave()?;
        let index = self.link.index;
        self.network = Some(network);
        if let Some(router) = network.router {
            let state = NeighborState::PermanentReplacing;
            self.journal.add_neighbor(&mut self.netlink, index, router.address, router.mac, state)?;
        }
        for route in routes_of(&network, index) {
            match self.journal.add_route(&mut self.netlink, route) {
                Err(error) if !error.already_exists() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn leave(&mut self) -> linux::Result<()> {
        let Some(left) = self.network.take() else { return Ok(()) };
        for route in routes_of(&left, self.link.index) {
            self.journal.delete_route(&mut self.netlink, &route)?;
        }
        if let Some(router) = left.router {
            self.journal.delete_neighbor(&mut self.netlink, self.link.index, router.address)?;
        }
        Ok(())
    }

    /// Hears what the link's routers have to say, and asks them.
    pub(super) fn look_for_routers(&mut self, report: &dyn Fn(KernelEvent)) {
        let Some(discovery) = &mut self.discovery else { return };
        let network = match discovery.handle() {
            Ok(Some(network)) => network,
            Ok(None) => return,
            Err(error) => return debug!("{error}"),
        };
        let (prefix, name) = (network.prefix, &self.link.name);
        match network.router {
            Some(router) => {
                info!(event = "own_prefix", "{name} is in {prefix} now, the router is {}", router.address);
            }
            None => info!(event = "own_prefix", "{name} is in {prefix} now, without a router"),
        }
        if let Err(error) = self.enter(network) {
            warn!("{error}");
        }
        report(KernelEvent::LinkMtu(self.link_mtu()));
        report(KernelEvent::PrefixChanged(prefix));
    }

    /// The link is lost, or there again and may lead somewhere else: until a router tells where, nothing is sent from
    /// addresses of the last network.
    pub(super) fn carrier_changed(&mut self) {
        let Some(discovery) = &mut self.discovery else { return };
        if self.link.running {
            discovery.handle_link_up();
        }
        if let Err(error) = self.leave() {
            debug!("{error}");
        }
    }
}

/// The ways that lead into a network and out of it, for addresses of that network only: what would still be sent from the
/// last one's stays here.
fn routes_of(network: &Network, index: u32) -> impl Iterator<Item = Route> {
    let source = Some(network.prefix);
    let route = move |destination: Ipv6Net, gateway: Option<IpAddr>| Route {
        destination: IpNet::V6(destination),
        via: Via::Link { index, gateway, mtu: None, metric: None, source },
    };
    let default = network.router.map(|router| route(Ipv6Net::default(), Some(router.address.into())));
    std::iter::once(route(network.prefix, None)).chain(default)
}
