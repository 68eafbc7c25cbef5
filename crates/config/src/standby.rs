//! `[standby]`: this machine is one of the two gateways of a site.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use toml::Spanned;

use crate::converter::Converter;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::node::{Mode, Node};
use crate::report::{Finding, Report};
use crate::section::{Period, section};
use crate::value::{self, Problem, problem};

section! {
    /// `[standby]`, as it stands in the file.
    StandbyTable = "[standby]" {
        /// Addresses of both machines, by which the two [hear each other](fleet.md#two-gateways-of-one-site): those that each has
        /// to itself, on every link that both are on. The file may be the same on both.
        gateways: Vec<Spanned<String>> = Required(r#"addresses of both machines, like ["2001:db8:a::11", "2001:db8:a::12"]"#);
        /// Addresses that the active one of the two has, each with its interface: `"eth1 2001:db8:a::1/64"`. The hopping prefix is
        /// routed to one of them, and hosts or routers inside send to another. IPv6 alone.
        addresses: Vec<Spanned<String>> = Otherwise("none");
        /// After how long without a sign of life the other one is doubted, `"100ms"` to `"10s"`. A shorter time fails over sooner,
        /// and also when a machine is only busy.
        silence: Period = Default(r#""200ms""#);
    }
}

/// This machine is one of the two gateways of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    /// Addresses of both machines.
    pub gateways: Vec<IpAddr>,
    /// What the active one has.
    pub addresses: Vec<MovingAddress>,
    /// After how long without a sign of life the other one is doubted.
    pub silence: Duration,
    /// What the active one hops in. (The node's, which is the same here, is another while it is not this one's turn.)
    pub hop_prefix: Ipv6Net,
}

/// An address that the active one of two gateways has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovingAddress {
    /// The interface.
    pub interface: String,
    /// The address, with the length of its network's prefix.
    pub address: Ipv6Net,
}

impl Converter<'_> {
    pub(crate) fn standby(&mut self, table: &StandbyTable, hop_prefix: Ipv6Net) -> Option<Standby> {
        let gateways = self.each(&table.gateways, gateway);
        let addresses = self.each(&table.addresses, moving_address);
        let silence = self.value(&table.silence, silence);
        Some(Standby { gateways: gateways?, addresses: addresses?, silence: silence?, hop_prefix })
    }
}

/// What two gateways cannot share.
pub(crate) fn check(table: &StandbyTable, node: &Node, report: &mut Report) {
    if node.mode != Mode::Routed || node.on_link || node.follows.is_some() {
        report.add(Finding::error(
            table.gateways.span(),
            "two gateways cannot share this hopping prefix",
            "only one that is written down, and routed to the site",
            r#"choose mode = "routed" with such a prefix, or leave [standby] out"#,
        ));
    }
}

fn gateway(text: &str) -> Result<IpAddr, Problem> {
    match text.parse::<IpAddr>() {
        Ok(address) if !address.is_multicast() && !address.is_unspecified() && !address.is_loopback() => {
            Ok(address)
        }
        _ => problem(
            "not an address of a machine",
            r#"write an address that one of the two has to itself, like "2001:db8:a::11""#,
        ),
    }
}

fn moving_address(text: &str) -> Result<MovingAddress, Problem> {
    let Some((interface, address)) = text.split_once(' ') else {
        return problem("no interface", r#"write both, like "eth1 2001:db8:a::1/64""#);
    };
    let interface = value::interface(interface)?;
    match value::interface_address(address.trim_start())? {
        IpNet::V6(address) => Ok(MovingAddress { interface, address }),
        IpNet::V4(_) => problem("not IPv6", "give an IPv4 address by VRRP, or to both machines"),
    }
}

fn silence(text: &str) -> Result<Duration, Problem> {
    value::duration(text, Duration::from_millis(100)..=Duration::from_secs(10), "write 100ms to 10s")
}
