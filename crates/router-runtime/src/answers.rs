//! Routes for answers to what was forwarded, where there are several uplinks: each leaves by the uplink that its connection
//! came in by, whichever is the first now. A provider would drop it from the other one, or give it another source.
//!
//! The router of an uplink is that of the default route that its DHCP client, or `ipv4_router`, has set in the main table.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use linux::netlink::{Netlink, Route, Rule, Selects, TableRoute, Via};
use linux::undo::{Journal, Step};
use router::site::Site;

use crate::nat;
use crate::problem::Problem;

/// Before the main table's rule, 32766.
const PRIORITY: u32 = 8_300;
/// The number of the first uplink's table.
const FIRST_TABLE: u32 = 8_300;

/// What was set up for answers.
#[derive(Default)]
pub(crate) struct Answers(Vec<Step>);

impl Answers {
    /// Has rules and routes there as they should be now, also those that somebody has taken away. Returns what cannot be had:
    /// what is wrong with one uplink does not concern the others.
    pub(crate) fn follow(
        &mut self,
        site: &Site,
        index_of: impl Fn(&str) -> Option<u32>,
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) -> Vec<Problem> {
        let (mut wanted, mut problems) = (Vec::new(), Vec::new());
        for (place, uplink) in nat::answering(site) {
            // Without the interface nothing comes in by it.
            let Some(index) = index_of(&uplink.interface) else { continue };
            match steps(FIRST_TABLE + place as u32, index, netlink) {
                Ok(Wanted::Steps(steps)) => wanted.push((uplink, steps)),
                Ok(Wanted::Nothing) => {}
                Ok(Wanted::Router) => problems.push(Problem {
                    text: format!(
                        "uplink {}: answers to what is forwarded may leave by another uplink: there is no IPv4 default \
                         route at {}, which a DHCP client or `ipv4_router` sets",
                        uplink.name, uplink.interface
                    ),
                    waits: true,
                }),
                // What there is stays.
                Err(error) => return vec![error.into()],
            }
        }
        self.0.retain(|step| {
            let is_wanted = wanted.iter().any(|(_, steps)| steps.contains(step));
            if is_wanted {
                return true;
            }
            let undone = journal.undo_step(netlink, step);
            let failed = undone.is_err();
            problems.extend(undone.err().map(Problem::from));
            failed
        });
        for (uplink, steps) in wanted {
            for step in steps {
                let done = match &step {
                    Step::TableRoute(route) => journal.add_table_route(netlink, route.clone()),
                    Step::Rule(rule) => journal.add_rule(netlink, *rule),
                    _ => Ok(()),
                };
                match done {
                    Err(error) if !error.already_exists() => {
                        problems.push(Problem {
                            text: format!(
                                "uplink {}: answers to what is forwarded may leave by another uplink: {error}",
                                uplink.name
                            ),
                            waits: error.unreachable(),
                        });
                        break;
                    }
                    // Somebody else's is left alone, and does the same.
                    Err(_) => {}
                    Ok(()) if self.0.contains(&step) => {}
                    Ok(()) => self.0.push(step),
                }
            }
        }
        problems
    }
}

/// What an uplink's table takes.
enum Wanted {
    /// Each of these, in this order.
    Steps(Vec<Step>),
    /// A router, before anything else.
    Router,
    /// Nothing yet: it has no address either.
    Nothing,
}

fn steps(table: u32, index: u32, netlink: &mut Netlink) -> linux::Result<Wanted> {
    let addresses = ipv4_addresses(netlink, index)?;
    let Some(Via::Link { gateway, .. }) = netlink.default_ipv4_route_by(index)?.map(|route| route.via) else {
        return Ok(if addresses.is_empty() { Wanted::Nothing } else { Wanted::Router });
    };
    let mut networks: Vec<_> = addresses.into_iter().filter(|net| net.prefix_len() < 32).collect();
    // A router outside of them, as with an address of 32 bits, is on the link all the same: DHCP clients set `onlink`, PPP the
    // address of the other end.
    if let Some(IpAddr::V4(router)) = gateway
        && !networks.iter().any(|net| net.contains(&router))
    {
        networks.push(router.into());
    }
    let route = |route| Step::TableRoute(TableRoute { table, route, source: None });
    let mut steps: Vec<_> =
        networks.iter().map(|net| route(Route::device(IpNet::V4(net.trunc()), index))).collect();
    let via = Via::Link { index, gateway, mtu: None, metric: None, source: None };
    steps.push(route(Route { destination: IpNet::V4(Ipv4Net::default()), via }));
    let selects = Selects::Marked { mark: nat::mark(index), mask: nat::MARK_BITS, is_ipv6: false };
    steps.push(Step::Rule(Rule { priority: PRIORITY, selects, table }));
    Ok(Wanted::Steps(steps))
}

/// The IPv4 addresses that an interface has now, with their networks.
pub(crate) fn ipv4_addresses(netlink: &mut Netlink, index: u32) -> linux::Result<Vec<Ipv4Net>> {
    let found = netlink.addresses(index)?.into_iter().filter_map(|found| match found.address {
        IpNet::V4(net) => Some(net),
        IpNet::V6(_) => None,
    });
    Ok(found.collect())
}
