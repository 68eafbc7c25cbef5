//! Rules that say which table of routes decides (`ip rule`).

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, route::RouteProtocol};
use serde::{Deserialize, Serialize};

use super::{Netlink, PROTOCOL, family};
use crate::error::Result;

/// A rule that Sidestep makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The lowest goes first; the main table's is 32766.
    pub priority: u32,
    /// For which packets.
    pub selects: Selects,
    /// The table that decides.
    pub table: u32,
}

/// For which packets a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selects {
    /// Those with a mark.
    Marked {
        /// The mark.
        mark: u32,
        /// The bits of it that count.
        #[serde(default = "all_bits")]
        mask: u32,
        /// Of IPv6, or else IPv4.
        is_ipv6: bool,
    },
    /// Those of this machine itself that go there.
    OwnTo(IpNet),
}

const fn all_bits() -> u32 {
    u32::MAX
}

/// The main table.
pub const MAIN: u32 = 254;

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.action = RuleAction::ToTable;
        message.attributes.push(RuleAttribute::Priority(self.priority));
        message.attributes.push(RuleAttribute::Table(self.table));
        message.attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
        match self.selects {
            Selects::Marked { mark, mask, is_ipv6 } => {
                message.header.family = if is_ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
                message.attributes.push(RuleAttribute::FwMark(mark));
                message.attributes.push(RuleAttribute::FwMask(mask));
            }
            Selects::OwnTo(network) => {
                message.header.family = family(network.addr());
                message.header.dst_len = network.prefix_len();
                message.attributes.push(RuleAttribute::Destination(network.network()));
                // What this machine itself sends comes in by its loopback interface, as rules see it.
                message.attributes.push(RuleAttribute::Iifname("lo".to_owned()));
            }
        }
        message
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.selects {
            Selects::Marked { mark, .. } => write!(f, "fwmark {mark:#x} lookup {}", self.table),
            Selects::OwnTo(network) => write!(f, "to {network} iif lo lookup {}", self.table),
        }
    }
}

impl Netlink {
    /// Adds a rule, marked as ours. If the same one is there already, the error
    /// [already exists](crate::Error::already_exists).
    pub fn add_rule(&mut self, rule: &Rule) -> Result<()> {
        let message = RouteNetlinkMessage::NewRule(rule.message());
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add rule {rule}"))
    }

    /// Removes a rule, if it is there. Returns whether it was.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<bool> {
        let message = RouteNetlinkMessage::DelRule(rule.message());
        match self.change(message, 0, || format!("delete rule {rule}")) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
