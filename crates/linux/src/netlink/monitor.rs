//! News of changes to links and addresses, whoever made them; to routes and neighbors for who asks: a gateway that hops
//! on-link makes several a second itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::RouteType;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::route::own_route;
use super::{Address, Link, Route, messages};
use crate::error::{Context, Error, Result};

/// Something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An interface is new, or went up or down, or has another name or MTU: this is what it is now.
    Link(Link),
    /// The interface of that index is gone.
    LinkGone(u32),
    /// An address was added, or one of its properties changed.
    Address(Address),
    /// An address was removed.
    AddressGone(Address),
    /// A route to elsewhere came, changed or went, or a rule that says which of them hold.
    Route,
    /// A route that Sidestep made went, whoever took it away.
    RouteGone(Route),
    /// What is known of a neighbor at the interface of that index changed.
    Neighbor(u32),
    /// More changed than the socket has room for (`ENOBUFS`): ask for everything again.
    Overrun,
}

/// A socket that hears of changes in the network namespace it was opened in.
pub struct Monitor {
    socket: Socket,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Monitor {
    /// Hears of changes from now on. Add it to a [`crate::event::Poller`] as readable.
    pub fn open() -> Result<Self> {
        let groups = [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];
        let mut socket = Socket::new(NETLINK_ROUTE).context(|| "socket for rtnetlink")?;
        socket.bind(&SocketAddr::new(0, 0)).context(|| "bind the rtnetlink socket")?;
        socket.set_non_blocking(true).context(|| "fcntl O_NONBLOCK")?;
        let mut monitor = Self { socket };
        monitor.join(&groups)?;
        Ok(monitor)
    }

    /// Watches routes, rules and neighbors, too, from now on: all that decides how packets leave.
    pub fn watch_routes(&mut self) -> Result<()> {
        self.join(&[
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
            libc::RTNLGRP_IPV4_RULE,
            libc::RTNLGRP_IPV6_RULE,
            libc::RTNLGRP_NEIGH,
        ])
    }

    /// Hears of routes, too, from now on: of what Sidestep made and that goes ([`Change::RouteGone`]).
    pub fn watch_own_routes(&mut self) -> Result<()> {
        self.join(&[libc::RTNLGRP_IPV4_ROUTE, libc::RTNLGRP_IPV6_ROUTE])
    }

    fn join(&mut self, groups: &[u32]) -> Result<()> {
        groups.iter().try_for_each(|group| {
            self.socket.add_membership(*group).context(|| format!("join rtnetlink group {group}"))
        })
    }

    /// All changes since the last call; none when nothing changed.
    pub fn read(&self) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => changes.extend(messages(&bytes).flat_map(changes_of)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => return Ok(changes),
                    Some(libc::ENOBUFS) => changes.push(Change::Overrun),
                    _ => return Err(Error::new("recvfrom on the rtnetlink socket", error)),
                },
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket owns the descriptor and lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

fn changes_of(message: &[u8]) -> impl Iterator<Item = Change> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).ok();
    let message = message.and_then(|message| match message.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    });
    let gone = match &message {
        Some(RouteNetlinkMessage::DelRoute(route)) => own_route(route).map(Change::RouteGone),
        _ => None,
    };
    message.and_then(change).into_iter().chain(gone)
}

fn change(message: RouteNetlinkMessage) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewLink(_) => Link::from_message(message).map(Change::Link),
        // A port that leaves its bridge is told so, too, and stays.
        RouteNetlinkMessage::DelLink(link) if link.header.interface_family == AddressFamily::Bridge => None,
        RouteNetlinkMessage::DelLink(link) => Some(Change::LinkGone(link.header.index)),
        RouteNetlinkMessage::NewAddress(_) => Address::from_message(message).map(Change::Address),
        RouteNetlinkMessage::DelAddress(_) => Address::from_message(message).map(Change::AddressGone),
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            use RouteType::{Anycast, Broadcast, Local, Multicast};
            let elsewhere = !matches!(route.header.kind, Local | Broadcast | Anycast | Multicast);
            elsewhere.then_some(Change::Route)
        }
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => Some(Change::Route),
        RouteNetlinkMessage::NewNeighbour(neighbor) | RouteNetlinkMessage::DelNeighbour(neighbor) => {
            Some(Change::Neighbor(neighbor.header.ifindex))
        }
        _ => None,
    }
}
