//! Routes for answers to what was forwarded, where there are several uplinks: each leaves by the uplink that its connection
//! came in by, whichever is the first now. A provider would drop it from the other one, or give it another source.
//!
//! The router of an uplink is that of the default route that its DHCP client, or `ipv4_router`, has set in the main table.

use ipnet::{IpNet, Ipv4Net};
use linux::netlink::{Netlink, Route, Rule, Selects, TableRoute, Via};
use linux::undo::{Journal, Step};
use router::site::Site;

use crate::nat;

/// Before the main table's rule, 32766.
const PRIORITY: u32 = 8_300;
/// The number of the first uplink's table.
const FIRST_TABLE: u32 = 8_300;

/// What was set up for answers.
#[derive(Default)]
pub(crate) struct Answers(Vec<Step>);

impl Answers {
    /// Has rules and routes there as they should be now, also those that somebody has taken away. Returns what cannot be had.
    pub(crate) fn follow(
        &mut self,
        site: &Site,
        index_of: impl Fn(&str) -> Option<u32>,
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) -> linux::Result<Vec<String>> {
        let (mut wanted, mut problems) = (Vec::new(), Vec::new());
        for (place, uplink) in nat::answering(site) {
            // Without the interface nothing comes in by it.
            let Some(index) = index_of(&uplink.interface) else { continue };
            let table = FIRST_TABLE + place as u32;
            let route = |route| Step::TableRoute(TableRoute { table, route, source: None });
            let default = netlink.default_ipv4_route_by(index)?.map(|route| route.via);
            let Some(Via::Link { gateway, .. }) = default else {
                if !ipv4_addresses(netlink, index)?.is_empty() {
                    problems.push(format!(
                        "uplink {}: answers to what is forwarded may leave by another uplink: there is no IPv4 default \
                         route at {}, which a DHCP client or `ipv4_router` sets",
                        uplink.name, uplink.interface
                    ));
                }
                continue;
            };
            for net in ipv4_addresses(netlink, index)?.into_iter().filter(|net| net.prefix_len() < 32) {
                wanted.push(route(Route::device(IpNet::V4(net.trunc()), index)));
            }
            let via = Via::Link { index, gateway, mtu: None, metric: None, source: None };
            wanted.push(route(Route { destination: IpNet::V4(Ipv4Net::default()), via }));
            let selects = Selects::Marked { mark: nat::mark(index), mask: nat::MARK_BITS, is_ipv6: false };
            wanted.push(Step::Rule(Rule { priority: PRIORITY, selects, table }));
        }
        for step in self.0.iter().filter(|step| !wanted.contains(step)) {
            journal.undo_step(netlink, step)?;
        }
        self.0.retain(|step| wanted.contains(step));
        for step in wanted {
            let done = match &step {
                Step::TableRoute(route) => journal.add_table_route(netlink, route.clone()),
                Step::Rule(rule) => journal.add_rule(netlink, *rule),
                _ => Ok(()),
            };
            match done {
                Err(error) if !error.already_exists() => return Err(error),
                // Somebody else's is left alone, and does the same.
                Err(_) => {}
                Ok(()) if self.0.contains(&step) => {}
                Ok(()) => self.0.push(step),
            }
        }
        Ok(problems)
    }
}

/// The IPv4 addresses that an interface has now, with their networks.
pub(crate) fn ipv4_addresses(netlink: &mut Netlink, index: u32) -> linux::Result<Vec<Ipv4Net>> {
    let found = netlink.addresses(index)?.into_iter().filter_map(|found| match found.address {
        IpNet::V4(net) => Some(net),
        IpNet::V6(_) => None,
    });
    Ok(found.collect())
}
