//! The local route of a routed hopping prefix, and whose it is: the kernel has one for each prefix, whoever asks for it.

use ipnet::{IpNet, Ipv6Net};
use linux::netlink::{Netlink, Route};
use linux::nft;
use linux::ruleset::{self, Family};
use linux::undo::Step;

use super::Kernel;
use crate::error::Error;

impl Kernel {
    /// Makes a routed prefix local. A route that the machine's administrator made serves, and stays; one that a tunnel has
    /// left which did not end cleanly becomes ours.
    ///
    /// # Errors
    /// Where another tunnel hops in it: its end would take the route away.
    pub(super) fn add_prefix(&mut self, prefix: Ipv6Net) -> Result<(), Error> {
        let route = Route::local(IpNet::V6(prefix));
        match self.journal.add_route(&mut self.netlink, route.clone()) {
            Err(error) if error.already_exists() => {}
            result => return Ok(result?),
        }
        if self.journal.done().contains(&Step::Route(route.clone())) {
            return Ok(());
        }
        if let Some(other) = who_hops_in(prefix, &self.tunnel, &mut self.netlink)? {
            return Err(Error::HopsAlready(prefix, other));
        }
        // Only a route that a tunnel made is deleted.
        if self.netlink.delete_route(&route)? {
            self.journal.add_route(&mut self.netlink, route)?;
        }
        Ok(())
    }
}

/// The tunnel other than `tunnel` that is up and hops in this very prefix, which is routed to the machine: it has made the
/// local route, and its table names the prefix. Who has ended has no device, and leaves the prefix to others.
///
/// # Errors
/// Where the kernel cannot be asked.
pub(crate) fn who_hops_in(
    prefix: Ipv6Net,
    tunnel: &str,
    netlink: &mut Netlink,
) -> linux::Result<Option<String>> {
    let prefix = prefix.trunc();
    if !netlink.own_routes()?.contains(&Route::local(IpNet::V6(prefix))) {
        return Ok(None);
    }
    // A tunnel's device has no hardware address.
    let devices = netlink.links()?.into_iter().filter(|link| link.mac.is_none() && link.name != tunnel);
    for device in devices {
        let table = nft::table_name(&device.name);
        if !ruleset::has_table(Family::Ip6, &table)? {
            continue;
        }
        if nft::listed("ip6", &table)?.contains(&format!("ip6 daddr {prefix} ip6 daddr != @own")) {
            return Ok(Some(device.name));
        }
    }
    Ok(None)
}
