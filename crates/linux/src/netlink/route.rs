//! Routes.

use std::cmp::Reverse;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use serde::{Deserialize, Serialize};

use super::{Netlink, PROTOCOL, family};
use crate::error::{Error, Result};

const RT_TABLE_LOCAL: u8 = 255;

/// A route that Sidestep makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// Where it leads.
    pub destination: IpNet,
    /// How it gets there.
    pub via: Via,
}

/// How a route gets to its destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Every address of the destination is this host's own: `ip route add local PREFIX dev lo`.
    Local,
    /// Out of an interface.
    Link {
        /// The interface.
        index: u32,
        /// The next router; without one the destination is on the link.
        gateway: Option<IpAddr>,
        /// The MTU of the route, where it is below the interface's.
        mtu: Option<u32>,
        /// Among routes to the same destination the lowest one is taken; the kernel's default without.
        metric: Option<u32>,
        /// Only for packets from there; that goes before the metric (needs CONFIG_IPV6_SUBTREES).
        #[serde(default)]
        source: Option<Ipv6Net>,
    },
    /// Not at all: senders are told that there is no way.
    Unreachable {
        /// As above.
        metric: u32,
        /// As above.
        source: Option<Ipv6Net>,
    },
    /// Not at all, and nobody is told.
    Blackhole {
        /// As above.
        metric: u32,
    },
}

/// What the kernel does with a packet to some address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The interface it leaves through.
    pub index: u32,
    /// The router it is given to; without one it goes to the address itself.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// The path MTU, if a route or an ICMPv6 message set one.
    pub mtu: Option<u32>,
    /// Whether that ends of itself, as what an ICMP message has said.
    pub expires: bool,
    /// The address is this host's own.
    pub local: bool,
}

impl Route {
    /// The whole prefix becomes this host's own.
    #[must_use]
    pub fn local(destination: IpNet) -> Self {
        Self { destination, via: Via::Local }
    }

    /// The destination is behind an interface.
    #[must_use]
    pub fn device(destination: IpNet, index: u32) -> Self {
        Self { destination, via: Via::Link { index, gateway: None, mtu: None, metric: None, source: None } }
    }

    /// The same route, whatever its MTU: what it takes to find it.
    pub(crate) fn without_mtu(&self) -> Self {
        let mut route = self.clone();
        if let Via::Link { mtu, .. } = &mut route.via {
            *mtu = None;
        }
        route
    }
}

/// A route of a table that rules lead to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableRoute {
    /// The table's number.
    pub table: u32,
    /// The route.
    pub route: Route,
    /// The source address of packets that have none yet.
    pub source: Option<IpAddr>,
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let destination = self.destination;
        match &self.via {
            Via::Local => write!(f, "local {destination} dev lo"),
            Via::Unreachable { metric, source } => {
                let source = source.map(|source| format!(" from {source}")).unwrap_or_default();
                write!(f, "unreachable {destination}{source} metric {metric}")
            }
            Via::Blackhole { metric } => write!(f, "blackhole {destination} metric {metric}"),
            Via::Link { index, gateway, mtu, metric, source } => {
                write!(f, "{destination} dev {index}")?;
                let gateway = gateway.map(|gateway| format!(" via {gateway}"));
                let mtu = mtu.map(|mtu| format!(" mtu {mtu}"));
                let metric = metric.map(|metric| format!(" metric {metric}"));
                let source = source.map(|source| format!(" from {source}"));
                [source, gateway, mtu, metric].into_iter().flatten().try_for_each(|part| f.write_str(&part))
            }
        }
    }
}

impl Netlink {
    /// Adds a route, marked as ours. If the same one is there already, whosever it is, the error
    /// [already exists](crate::Error::already_exists).
    pub fn add_route(&mut self, route: &Route) -> Result<()> {
        let message = route_message(route);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewRoute(message), flags, || format!("add route {route}"))
    }

    /// Removes a route if it is there and ours. Returns whether it was.
    pub fn delete_route(&mut self, route: &Route) -> Result<bool> {
        // The kernel compares rtm_protocol, so a route of somebody else's is not found. For IPv4 it compares the MTU
        // too, if there is one in the request; but that may have changed since.
        let message = route_message(&route.without_mtu());
        match self.change(RouteNetlinkMessage::DelRoute(message), 0, || format!("delete route {route}")) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV | libc::ENOENT)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a route to another table than the main one, marked as ours; errors as of [`Netlink::add_route`].
    pub fn add_table_route(&mut self, wanted: &TableRoute) -> Result<()> {
        let what = || format!("add route {} table {}", wanted.route, wanted.table);
        let message = table_route_message(wanted);
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL, what)
    }

    /// Removes a route from another table than the main one, if it is there and ours. Returns whether it was.
    pub fn delete_table_route(&mut self, unwanted: &TableRoute) -> Result<bool> {
        let what = || format!("delete route {} table {}", unwanted.route, unwanted.table);
        let message = table_route_message(&TableRoute { source: None, ..unwanted.clone() });
        match self.change(RouteNetlinkMessage::DelRoute(message), 0, what) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV | libc::ENOENT)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// As [`Netlink::route_to`], with a packet of a socket that has this mark.
    pub fn marked_route_to(&mut self, destination: IpAddr, mark: u32) -> Result<Option<NextHop>> {
        self.next_hop(destination, &[RouteAttribute::Mark(mark)])
    }

    /// Changes the MTU of a route of ours that is there; `None` lets it follow the interface's again.
    pub fn set_route_mtu(&mut self, route: &mut Route, new_mtu: Option<u32>) -> Result<()> {
        self.set_route(route, new_mtu, None)
    }

    /// The same, and has packets that have no source address yet get this one, which is to be this host's: `None` leaves the
    /// choice to the kernel.
    pub fn set_route(
        &mut self,
        route: &mut Route,
        new_mtu: Option<u32>,
        source: Option<IpAddr>,
    ) -> Result<()> {
        let Via::Link { mtu, .. } = &mut route.via else {
            return Err(Error::other(format!("set mtu of route {route}"), "it leads to no link"));
        };
        *mtu = new_mtu;
        let mut message = route_message(route);
        message.attributes.extend(source.map(|source| RouteAttribute::PrefSource(source.into())));
        self.change(RouteNetlinkMessage::NewRoute(message), netlink_packet_core::NLM_F_REPLACE, || {
            format!("replace route {route}")
        })
    }

    /// What the kernel would do with a packet to `destination` that is not forwarded.
    /// `None` when there is no route.
    pub fn route_to(&mut self, destination: IpAddr) -> Result<Option<NextHop>> {
        self.next_hop(destination, &[])
    }

    /// The same with a packet from this address of this host.
    pub fn route_from(&mut self, source: IpAddr, destination: IpAddr) -> Result<Option<NextHop>> {
        self.next_hop(destination, &[RouteAttribute::Source(source.into())])
    }

    /// The same with a packet of a socket that is bound to the interface of this index.
    pub fn route_through(&mut self, index: u32, destination: IpAddr) -> Result<Option<NextHop>> {
        self.next_hop(destination, &[RouteAttribute::Oif(index)])
    }

    /// The same with both.
    pub fn route_by(&mut self, index: u32, source: IpAddr, destination: IpAddr) -> Result<Option<NextHop>> {
        self.next_hop(destination, &[RouteAttribute::Source(source.into()), RouteAttribute::Oif(index)])
    }

    /// How long the prefix of the route is that a packet to `destination` takes. `None` when there is no route.
    pub fn matched_length(&mut self, destination: IpAddr) -> Result<Option<u8>> {
        let mut message = route_request(destination);
        message.header.flags = RouteFlags::FibMatch;
        match self.get(RouteNetlinkMessage::GetRoute(message), || format!("RTM_GETROUTE {destination}")) {
            Ok(RouteNetlinkMessage::NewRoute(answer)) => Ok(Some(answer.header.destination_prefix_length)),
            Ok(_) => Ok(None),
            Err(error) if is_without_route(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_hop(&mut self, destination: IpAddr, more: &[RouteAttribute]) -> Result<Option<NextHop>> {
        let mut message = route_request(destination);
        if more.iter().any(|attribute| matches!(attribute, RouteAttribute::Source(_))) {
            message.header.source_prefix_length = message.header.destination_prefix_length;
        }
        message.attributes.extend_from_slice(more);
        match self.get(RouteNetlinkMessage::GetRoute(message), || format!("RTM_GETROUTE {destination}")) {
            Ok(answer) => Ok(NextHop::from_message(answer)),
            Err(error) if is_without_route(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All routes that carry our mark, of both families.
    pub fn own_routes(&mut self) -> Result<Vec<Route>> {
        self.routes_made_by(|protocol| protocol == RouteProtocol::Other(PROTOCOL))
    }

    /// What is reached by an interface because somebody on this machine has said so: neither the kernel, nor a neighbor by a
    /// router advertisement, a redirect, or DHCP, nor we.
    pub fn destinations_by(&mut self, index: u32) -> Result<Vec<IpNet>> {
        const OF_NEIGHBORS: [RouteProtocol; 5] = [
            RouteProtocol::Kernel,
            RouteProtocol::Ra,
            RouteProtocol::IcmpRedirect,
            RouteProtocol::Dhcp,
            RouteProtocol::Other(PROTOCOL),
        ];
        let routes = self.routes_made_by(|protocol| !OF_NEIGHBORS.contains(&protocol))?;
        let through = |route: &Route| matches!(route.via, Via::Link { index: found, .. } if found == index);
        Ok(routes.into_iter().filter(through).map(|route| route.destination).collect())
    }

    /// The route of the main table that leads to an address if there were none of ours, and none through the interface of
    /// this index: that with the longest prefix, and of these the one with the lowest metric.
    pub fn route_past(&mut self, index: u32, destination: IpAddr) -> Result<Option<Route>> {
        let is_meant = |header: &RouteHeader| {
            header.table == RouteHeader::RT_TABLE_MAIN && header.protocol != RouteProtocol::Other(PROTOCOL)
        };
        let routes = self.routes_of(is_meant)?;
        let order = |route: &Route| match route.via {
            Via::Link { index: found, metric, source: None, .. } if found != index && found != 0 => {
                let contains = route.destination.contains(&destination);
                contains.then(|| (route.destination.prefix_len(), Reverse(metric.unwrap_or(0))))
            }
            _ => None,
        };
        Ok(routes.into_iter().filter(|route| order(route).is_some()).max_by_key(order))
    }

    /// The default IPv4 route of the main table that leads through the interface of this index: that with the lowest metric.
    pub fn default_ipv4_route_by(&mut self, index: u32) -> Result<Option<Route>> {
        let is_meant = |header: &RouteHeader| {
            header.table == RouteHeader::RT_TABLE_MAIN
                && header.address_family == netlink_packet_route::AddressFamily::Inet
                && header.destination_prefix_length == 0
        };
        let metric = |route: &Route| match route.via {
            Via::Link { index: found, metric, .. } if found == index => Some(metric.unwrap_or(0)),
            _ => None,
        };
        let routes = self.routes_of(is_meant)?;
        Ok(routes.into_iter().filter(|route| metric(route).is_some()).min_by_key(metric))
    }

    fn routes_made_by(&mut self, is_meant: impl Fn(RouteProtocol) -> bool) -> Result<Vec<Route>> {
        self.routes_of(|header| is_meant(header.protocol))
    }

    fn routes_of(&mut self, is_meant: impl Fn(&RouteHeader) -> bool) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [netlink_packet_route::AddressFamily::Inet6, netlink_packet_route::AddressFamily::Inet]
        {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let answers = self.dump(RouteNetlinkMessage::GetRoute(message), || "RTM_GETROUTE".into())?;
            routes.extend(answers.into_iter().filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(message) if is_meant(&message.header) => route_of(&message),
                _ => None,
            }));
        }
        Ok(routes)
    }
}

fn route_request(destination: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = if destination.is_ipv6() { 128 } else { 32 };
    message.attributes.push(RouteAttribute::Destination(destination.into()));
    message
}

fn is_without_route(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH))
}

impl NextHop {
    fn from_message(message: RouteNetlinkMessage) -> Option<NextHop> {
        let RouteNetlinkMessage::NewRoute(message) = message else { return None };
        let mut hop = NextHop {
            index: 0,
            gateway: None,
            source: None,
            mtu: None,
            expires: false,
            local: message.header.kind == RouteType::Local,
        };
        if !matches!(message.header.kind, RouteType::Unicast | RouteType::Local) {
            return None;
        }
        for attribute in message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => hop.index = index,
                RouteAttribute::Gateway(gateway) => hop.gateway = ip_address(&gateway),
                RouteAttribute::PrefSource(source) => hop.source = ip_address(&source),
                RouteAttribute::Metrics(metrics) => hop.mtu = mtu_of(&metrics),
                RouteAttribute::CacheInfo(cache) => hop.expires = cache.expires != 0,
                _ => {}
            }
        }
        Some(hop)
    }
}

fn route_message(route: &Route) -> RouteMessage {
    let destination = route.destination.trunc();
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(destination.addr());
    header.destination_prefix_length = destination.prefix_len();
    header.protocol = RouteProtocol::Other(PROTOCOL);
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(destination.addr().into()));
    match &route.via {
        Via::Local => {
            header.kind = RouteType::Local;
            header.table = RT_TABLE_LOCAL;
            header.scope = RouteScope::Host;
            attributes.push(RouteAttribute::Oif(LOOPBACK));
        }
        Via::Unreachable { metric, source } => {
            leads_nowhere(header, attributes, RouteType::Unreachable, *metric);
            only_from(header, attributes, source.as_ref());
        }
        Via::Blackhole { metric } => leads_nowhere(header, attributes, RouteType::BlackHole, *metric),
        Via::Link { index, gateway, mtu, metric, source } => {
            only_from(header, attributes, source.as_ref());
            header.kind = RouteType::Unicast;
            header.table = RouteHeader::RT_TABLE_MAIN;
            header.scope = match gateway {
                None if destination.addr().is_ipv4() => RouteScope::Link,
                _ => RouteScope::Universe,
            };
            attributes.push(RouteAttribute::Oif(*index));
            attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
            attributes.extend(mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
            attributes.extend(metric.map(RouteAttribute::Priority));
        }
    }
    message
}

fn table_route_message(wanted: &TableRoute) -> RouteMessage {
    let mut message = route_message(&wanted.route);
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes.push(RouteAttribute::Table(wanted.table));
    message.attributes.extend(wanted.source.map(|source| RouteAttribute::PrefSource(source.into())));
    message
}

fn leads_nowhere(
    header: &mut RouteHeader,
    attributes: &mut Vec<RouteAttribute>,
    kind: RouteType,
    metric: u32,
) {
    header.kind = kind;
    header.table = RouteHeader::RT_TABLE_MAIN;
    header.scope = RouteScope::Universe;
    // IPv4 takes no interface here; IPv6 needs one to find the route again.
    if header.address_family == netlink_packet_route::AddressFamily::Inet6 {
        attributes.push(RouteAttribute::Oif(LOOPBACK));
    }
    attributes.push(RouteAttribute::Priority(metric));
}

fn only_from(header: &mut RouteHeader, attributes: &mut Vec<RouteAttribute>, source: Option<&Ipv6Net>) {
    if let Some(source) = source {
        header.source_prefix_length = source.prefix_len();
        attributes.push(RouteAttribute::Source(source.network().into()));
    }
}

/// The loopback interface is the first of every network namespace.
const LOOPBACK: u32 = 1;

/// The route that a message is about, if we made it.
pub(super) fn own_route(message: &RouteMessage) -> Option<Route> {
    (message.header.protocol == RouteProtocol::Other(PROTOCOL)).then(|| route_of(message)).flatten()
}

fn route_of(message: &RouteMessage) -> Option<Route> {
    let (mut index, mut gateway, mut mtu, mut metric, mut source) = (0, None, None, None, None);
    let mut destination = if message.header.address_family == netlink_packet_route::AddressFamily::Inet6 {
        IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip_address(address)?,
            RouteAttribute::Oif(found) => index = *found,
            RouteAttribute::Gateway(address) => gateway = ip_address(address),
            RouteAttribute::Metrics(metrics) => mtu = mtu_of(metrics),
            RouteAttribute::Priority(priority) => metric = Some(*priority),
            RouteAttribute::Source(RouteAddress::Inet6(from)) => {
                source = Ipv6Net::new(*from, message.header.source_prefix_length).ok();
            }
            _ => {}
        }
    }
    let destination = IpNet::new(destination, message.header.destination_prefix_length).ok()?;
    let via = match message.header.kind {
        RouteType::Local => Via::Local,
        RouteType::Unicast => Via::Link { index, gateway, mtu, metric, source },
        RouteType::Unreachable => Via::Unreachable { metric: metric.unwrap_or(0), source },
        RouteType::BlackHole => Via::Blackhole { metric: metric.unwrap_or(0) },
        _ => return None,
    };
    Some(Route { destination, via })
}

fn ip_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn mtu_of(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}
