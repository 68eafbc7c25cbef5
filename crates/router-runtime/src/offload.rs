//! The table of nftables whose flowtable has packets of known connections go past the rest: looked up where they come in,
//! and handed to the interface that they leave by, with their addresses translated.
//!
//! A chain behind all others at the forward hook adds a connection that is answered, so one whose packets rules have let
//! through, of the firewall and of others. The kernel keeps connection tracking right meanwhile, and takes the usual way for
//! what it cannot do so: fragments, options, packets that are too large, the end of a connection, another route.
//!
//! The table goes with the gateway, but not when that is killed. What an earlier run has left goes at the next start, and at
//! each reload it is made anew, so that all connections meet all rules once more.

use std::collections::BTreeMap;

use control::router_status::FlowOffload as Status;
use linux::netlink::{Link, Netlink};
use linux::undo::Journal;
use router::nat64::DEVICE;
use router::site::{FlowOffload, Site};

use crate::nat::{self, MARK_BITS, quoted};

/// The table's name; its family is `inet`.
pub(crate) const TABLE: &str = "sidestep-offload";

/// An interface as the flowtable knows it: by its index, while its MTU, which each connection remembers, is this.
type Members = BTreeMap<String, (u32, u32)>;

/// What became of the table.
#[derive(Default)]
pub(crate) struct Offload {
    /// What it was made for last; none where that is to be tried anew.
    made_for: Option<(FlowOffload, Members)>,
    /// Who carries packets; nobody where the kernel has refused.
    in_force: Option<FlowOffload>,
    problem: Option<String>,
}

impl Offload {
    /// Has the table there as it should be now. Returns what cannot be had, and what mends it.
    ///
    /// # Errors
    /// If a table that is not wanted cannot be removed.
    pub(crate) fn follow(
        &mut self,
        site: &Site,
        links: &[Link],
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) -> linux::Result<Option<String>> {
        let members = members(site, links);
        let wanted = site.flow_offload.filter(|_| !members.is_empty()).map(|who| (who, members));
        let Some((who, members)) = &wanted else {
            journal.delete_table(netlink, "inet", TABLE)?;
            *self = Offload::default();
            return Ok(None);
        };
        if wanted == self.made_for {
            return Ok(self.problem.clone());
        }
        let excepts_marked = !nat::answering(site).is_empty();
        let mut put = |who| journal.set_table("inet", TABLE, &script(who, members, excepts_marked));
        let (mut tried, mut refused) = (*who, None);
        let mut result = put(tried);
        if let (Err(error), FlowOffload::Hardware) = (&result, tried) {
            refused = Some(format!(
                "flow_offload: hardware carries no flows: an interface cannot (`ethtool -k` says `hw-tc-offload: off` or \
                 `off [fixed]`): software does, if it can: {error}"
            ));
            tried = FlowOffload::Software;
            result = put(tried);
        }
        self.in_force = result.is_ok().then_some(tried);
        self.problem = match result {
            Ok(()) => refused,
            Err(error) => {
                // Of interfaces that were there before.
                journal.delete_table(netlink, "inet", TABLE)?;
                Some(format!(
                    "flow_offload: packets of known connections go the usual way: the kernel has no flowtable: it needs the \
                     modules nf_flow_table_inet and nft_flow_offload: {error}"
                ))
            }
        };
        // Refused, it is tried anew: a module may come.
        self.made_for = wanted.filter(|_| self.in_force.is_some());
        Ok(self.problem.clone())
    }

    /// Has it made anew the next time.
    pub(crate) fn forget(&mut self) {
        self.made_for = None;
    }

    /// Whether the table is to be there.
    pub(crate) fn is_in_force(&self) -> bool {
        self.in_force.is_some()
    }

    /// What becomes of known connections; none where the configuration wants nothing.
    pub(crate) fn status(&self, site: &Site) -> Option<Status> {
        let configured = site.flow_offload?;
        let members = self.made_for.iter().filter(|_| self.is_in_force());
        Some(Status {
            configured: configured.name().to_owned(),
            in_force: self.in_force.map(|who| who.name().to_owned()),
            interfaces: members.flat_map(|(_, members)| members.keys().cloned()).collect(),
            // The kernel tells.
            connections: 0,
        })
    }
}

/// The interfaces between which packets are forwarded, as far as they are there.
fn members(site: &Site, links: &[Link]) -> Members {
    let uplinks = site.uplinks.iter().map(|uplink| uplink.interface.as_str());
    let networks = site.networks.iter().map(|network| network.interface.as_str());
    let names: Vec<_> = uplinks.chain(networks).chain(site.nat64.iter().map(|_| DEVICE)).collect();
    let there = links.iter().filter(|link| names.contains(&link.name.as_str()));
    there.map(|link| (link.name.clone(), (link.index, link.mtu))).collect()
}

/// The table as a script of nft, in the place of the one before, in one step.
///
/// A connection whose answers leave by the uplink that it came in by, whatever routes say (`excepts_marked`), goes the usual
/// way: the flowtable would look for their route without the mark that leads there.
fn script(who: FlowOffload, members: &Members, excepts_marked: bool) -> String {
    let names = quoted(members.keys().map(String::as_str).collect());
    let flags = match who {
        FlowOffload::Software => "",
        FlowOffload::Hardware => "\t\tflags offload\n",
    };
    let unmarked = if excepts_marked { format!("ct mark and {MARK_BITS:#x} == 0 ") } else { String::new() };
    format!(
        "add table inet {TABLE}\n\
         delete table inet {TABLE}\n\
         table inet {TABLE} {{\n\
         \tflowtable flows {{\n\
         \t\thook ingress priority filter\n\
         \t\tdevices = {{ {names} }}\n\
         \t\tcounter\n\
         {flags}\
         \t}}\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority 300; policy accept;\n\
         \t\tiifname {{ {names} }} oifname {{ {names} }} meta l4proto {{ tcp, udp }} ct state established {unmarked}\
         flow add @flows\n\
         \t}}\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_between_members_and_not_what_is_marked() {
        let members = Members::from([("lan".to_owned(), (2, 1500)), ("wan".to_owned(), (3, 1500))]);
        let plain = script(FlowOffload::Software, &members, false);
        assert!(plain.contains("iifname { \"lan\", \"wan\" } oifname { \"lan\", \"wan\" }"), "{plain}");
        assert!(!plain.contains("mark") && !plain.contains("offload\n\t}"), "{plain}");
        let hardware = script(FlowOffload::Hardware, &members, true);
        assert!(
            hardware.contains("flags offload") && hardware.contains("ct mark and 0xffff00 == 0 flow add")
        );
    }
}
