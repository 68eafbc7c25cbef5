//! What a configuration needs on this machine: interfaces and programs.

use config::RouterConfig;
use linux::netlink::{Link, Netlink};
use router::site::Site;

use crate::beside::{dnsmasq, stubby};
use crate::error::Error;
use crate::link::index_of;

/// What `up` refuses on this machine as it is now: interfaces and programs that are not there.
///
/// # Errors
/// The first of these, or where the kernel cannot be asked.
pub fn refuse(config: &RouterConfig) -> Result<(), Error> {
    check(&config.site, &Netlink::open()?.links()?)
}

/// Every interface that is named is there, and every program.
pub(crate) fn check(site: &Site, links: &[Link]) -> Result<(), Error> {
    dnsmasq::refuse(site)?;
    stubby::refuse(site)?;
    let uplinks = site.uplinks.iter().map(|uplink| ("uplink", &uplink.name, &uplink.interface));
    let networks = site.networks.iter().map(|network| ("network", &network.name, &network.interface));
    let routes = site.routes.iter().map(|route| ("route", &route.interface, &route.interface));
    let tunnels = site.uplinks.iter().filter_map(|uplink| uplink.tunnel.as_ref().map(|_| &uplink.interface));
    let tunnels: Vec<_> = tunnels.collect();
    for (owner, name, interface) in uplinks.chain(networks).chain(routes) {
        // A tunnel's is made when the rest is there; so may be what carries it.
        if tunnels.contains(&interface) {
            continue;
        }
        if index_of(links, interface).is_none() {
            return Err(Error::NoInterface { owner, name: name.clone(), interface: interface.clone() });
        }
    }
    Ok(())
}
