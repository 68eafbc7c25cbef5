//! Messages of neighbor discovery (RFC 4861 §6.3, §7.2, §8.3), and what neighbors, addresses and groups want done.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;
use wire::ipv6::{MIN_MTU, Packet};
use wire::ndp::{
    self, AdvertisedOption, Message, NeighborAdvertisement, NeighborSolicitation, Nonce, RouterAdvertisement,
    solicited_node,
};

use super::upper::Upper;
use super::{Event, Interface, Medium};
use crate::DropReason;
use crate::autoconf::{self, Advertiser};
use crate::neighbor::{self, Advertisement};
use crate::route::Lifetime;
use crate::security::Security;

/// The longest reachable time that a router may set (RFC 4861 §6.2.1).
const MAX_REACHABLE_TIME: Duration = Duration::from_secs(3600);
/// The longest time between questions that a router may set: else the search for a neighbor never ends.
const MAX_RETRANS_TIMER: Duration = Duration::from_secs(60);
/// The shortest: else a router makes us flood the link.
const MIN_RETRANS_TIMER: Duration = Duration::from_millis(100);

impl<S: Security> Interface<S> {
    pub(super) fn receive_discovery(&mut self, now: Instant, packet: &Packet<'_>) {
        let Ok(message) = ndp::parse(packet) else { return self.drop(DropReason::InvalidDiscovery) };
        let source = packet.source();
        // What ARP has to say is not said here.
        let is_mapped = match message {
            Message::NeighborAdvertisement { target, .. } => target.to_ipv4_mapped().is_some(),
            Message::Redirect { destination, .. } => destination.to_ipv4_mapped().is_some(),
            _ => false,
        };
        if is_mapped {
            return self.drop(DropReason::InvalidDiscovery);
        }
        match message {
            Message::NeighborSolicitation { target, source_link_layer, nonce } => {
                self.solicited(now, source, target, source_link_layer, nonce);
            }
            Message::NeighborAdvertisement { target, router, solicited, r#override, target_link_layer } => {
                let is_tentative = self.addresses.claimed(now, target, &mut self.random);
                if !is_tentative && !self.addresses.is_assigned(target) {
                    let link_layer = target_link_layer;
                    let said = Advertisement { target, router, solicited, r#override, link_layer };
                    self.neighbors.advertised(now, said);
                    self.note_router(target);
                }
            }
            Message::RouterAdvertisement(view) if self.routers => {
                match view.source_link_layer() {
                    Some(link_layer) => self.neighbors.learn(now, source, link_layer, Some(true)),
                    None => self.neighbors.mark_router(source),
                }
                self.router_advertised(now, source, &view.into());
            }
            Message::Redirect { target, destination, target_link_layer } if self.routers => {
                self.redirected(now, source, target, destination, target_link_layer);
            }
            // Hosts do not answer router solicitations (RFC 4861 §6.2.6), nor learn from them.
            _ => {}
        }
    }

    /// RFC 4861 §7.2.3, §7.2.4; RFC 4862 §5.4.3.
    fn solicited(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        target: Ipv6Addr,
        source_link_layer: Option<MacAddress>,
        nonce: Option<Nonce>,
    ) {
        if source.is_unspecified() && self.addresses.asked_for(now, target, nonce, &mut self.random) {
            return;
        }
        let Medium::Ethernet(own) = self.medium else { return };
        if !self.addresses.is_assigned(target) {
            return;
        }
        // An answer to a group would be more than was asked for.
        let source_link_layer = source_link_layer.filter(|link_layer| !link_layer.is_multicast());
        if let Some(link_layer) = source_link_layer {
            self.neighbors.learn(now, source, link_layer, None);
        }
        let answer = NeighborAdvertisement::answer(source, target, own, false).to_packet();
        if source.is_unspecified() {
            return self.send_on_link(&answer, None);
        }
        // Where the answer goes is known; that it is given says nothing of whether we have traffic with who asks.
        if let Some(to) = source_link_layer.or_else(|| self.neighbors.link_layer(source)) {
            return self.send_on_link(&answer, Some(to));
        }
        match self.neighbors.resolve(now, source, &answer, false) {
            neighbor::Resolution::Dropped(reason) => self.drop(reason),
            neighbor::Resolution::Displaced => self.drop(DropReason::QueueFull),
            neighbor::Resolution::Queued | neighbor::Resolution::Known(_) => {}
        }
    }

    /// RFC 4861 §6.3.4, RFC 4191 §3.1, RFC 4862 §5.5.3, RFC 8106 §5.3.
    fn router_advertised(&mut self, now: Instant, router: Ipv6Addr, said: &RouterAdvertisement) {
        if said.hop_limit != 0 {
            self.hop_limit = said.hop_limit;
        }
        let time = |ms: u32| (ms != 0).then(|| Duration::from_millis(ms.into()));
        let reachable = time(said.reachable_time).filter(|time| *time <= MAX_REACHABLE_TIME);
        let retrans =
            time(said.retransmission_timer).map(|time| time.clamp(MIN_RETRANS_TIMER, MAX_RETRANS_TIMER));
        self.neighbors.set_times(reachable, retrans, &mut self.random);
        let lifetime = Lifetime::Finite(Duration::from_secs(said.router_lifetime.into()));
        self.table.advertise_route(now, Ipv6Net::default(), router, said.preference, lifetime);
        if !lifetime.is_zero() {
            self.solicitation.stop();
        }
        for option in &said.options {
            match option {
                AdvertisedOption::Mtu(mtu) => {
                    let fits =
                        usize::try_from(*mtu).ok().filter(|mtu| (MIN_MTU..=self.device_mtu).contains(mtu));
                    self.link_mtu = fits.unwrap_or(self.link_mtu);
                }
                AdvertisedOption::Prefix(prefix) => {
                    if let Ok(net) = Ipv6Net::new(prefix.prefix, prefix.prefix_length)
                        && prefix.on_link
                    {
                        let lifetime = Lifetime::from_seconds(prefix.valid_lifetime);
                        self.table.advertise_on_link(now, net, router, lifetime);
                    }
                    let by = Advertiser { router, reachable: self.table.confirmed() };
                    self.addresses.advertised(now, prefix, by, &mut self.random);
                }
                AdvertisedOption::Route { prefix, prefix_length, preference, lifetime } => {
                    if let Ok(net) = Ipv6Net::new(*prefix, *prefix_length) {
                        let lifetime = Lifetime::from_seconds(*lifetime);
                        self.table.advertise_route(now, net, router, *preference, lifetime);
                    }
                }
                AdvertisedOption::DnsServers { lifetime, servers } => {
                    for server in servers {
                        let by = Advertiser { router, reachable: self.table.confirmed() };
                        self.dns.advertised(now, *server, by, Lifetime::from_seconds(*lifetime));
                    }
                }
                _ => {}
            }
        }
        self.forget_gone_routers();
        self.note_router(router);
        // Who has gone since he was reachable is found out, too, though nothing is sent to him.
        if self.medium != Medium::Ip && self.table.is_full() {
            for router in self.table.advertisers() {
                self.neighbors.verify(now, router);
            }
        }
    }

    /// What routers that are reachable have advertised stays, and so do they among the neighbors.
    fn note_router(&mut self, router: Ipv6Addr) {
        let is_reachable = matches!(self.neighbors.state(router), Some(neighbor::State::Reachable { .. }));
        if is_reachable && self.table.reached(router) {
            self.neighbors.keep(router);
        }
    }

    /// RFC 4861 §8.1, §8.3: only the router that packets to the destination go to may send it elsewhere.
    fn redirected(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        target: Ipv6Addr,
        destination: Ipv6Addr,
        link_layer: Option<MacAddress>,
    ) {
        if self.first_hop(now, destination) != Some(source) || self.addresses.is_assigned(target) {
            return self.drop(DropReason::ForeignRedirect);
        }
        self.destinations.redirect(now, destination, target);
        if let Some(link_layer) = link_layer {
            let is_router = (target != destination).then_some(true);
            self.neighbors.learn(now, target, link_layer, is_router);
        }
    }

    /// What leads through routers that are default routers no longer is looked for anew (RFC 4861 §6.3.5).
    pub(super) fn forget_gone_routers(&mut self) {
        while let Some(router) = self.table.take_gone() {
            self.destinations.forget_first_hop(router);
        }
    }

    /// Does what neighbors, addresses and groups want done.
    pub(super) fn act(&mut self, now: Instant, upper: &mut impl Upper) {
        loop {
            if let Some(action) = self.addresses.next_action() {
                self.act_for_address(now, action);
            } else if self.listener.deadline().is_some_and(|deadline| deadline <= now) {
                self.report_groups(now);
            } else if let Some(action) = self.neighbors.next_action() {
                self.act_for_neighbor(now, action, upper);
            } else {
                return;
            }
        }
    }

    fn act_for_address(&mut self, now: Instant, action: autoconf::Action) {
        match action {
            autoconf::Action::Search(question) => {
                // The report of the group goes first (RFC 4862 §5.4.2).
                self.report_groups(now);
                self.send_on_link(&question.to_packet(), None);
            }
            autoconf::Action::Join(group, from) => {
                self.listener.join(from, group);
            }
            autoconf::Action::Leave(group) => self.listener.leave(now, group),
            autoconf::Action::Event(event) => self.event(Event::Address(event)),
        }
    }

    fn report_groups(&mut self, now: Instant) {
        let source = self.addresses.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let reports = self.listener.handle_timeout(now, source, &mut self.random);
        if self.medium == Medium::Ip {
            return;
        }
        for report in reports {
            self.send_on_link(&report, None);
        }
    }

    fn act_for_neighbor(&mut self, now: Instant, action: neighbor::Action, upper: &mut impl Upper) {
        match action {
            neighbor::Action::Solicit { target, at, source } => {
                if let Some(target) = target.to_ipv4_mapped() {
                    return self.ask_by_arp(target, at);
                }
                let Medium::Ethernet(own) = self.medium else { return };
                let usable = source.filter(|source| self.addresses.is_assigned(*source));
                let Some(source) = usable.or_else(|| self.source_for(now, target)) else { return };
                let destination = if at.is_some() { target } else { solicited_node(target) };
                let question = NeighborSolicitation { source, destination, target, source_link_layer: own };
                self.send_on_link(&question.to_packet(), at);
            }
            neighbor::Action::Send { to, packet } => {
                if !self.frame(to, &packet) {
                    self.drop(DropReason::QueueFull);
                }
            }
            neighbor::Action::Unreachable { neighbor, packet } => {
                // What went there is routed anew (RFC 4861 §7.3.3).
                self.destinations.forget_first_hop(neighbor);
                self.table.unreached(neighbor);
                if self.table.is_router(neighbor) {
                    self.table.next_turn();
                }
                if let Some(packet) = packet {
                    self.address_unreachable(now, &packet, upper);
                }
            }
            neighbor::Action::NoRouter(neighbor) => {
                self.table.remove_router(neighbor);
                self.destinations.forget_first_hop(neighbor);
            }
        }
    }
}
