//! Children of IKE become associations of the key engine, and what the engine wants becomes children.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use config::ipsec::Place;
use ike::config::{ChildConfig, ChildIndex, PeerConfig};
use ike::crypto::encryption::{Encryption as IkeEncryption, Integrity};
use ike::event::{ChildAssociation, ChildKeys, Event as IkeEvent, Nat, Path};
use ike::message::traffic_selector::TrafficSelector;
use ike::negotiation::{ChildIntegrity, ChildProtocol, ChildSuite};
use ike::numbers::{IkeSpi, Spi as IkeChildSpi};
use ike::random::Random;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use ipsec::algorithm::{AhTransform, Authentication, Encryption, EspTransform};
use ipsec::association::{Lifetime, Lifetimes, Mode, Parameters, Spi, Transform, UdpEncapsulation};
use ipsec::key::Key;
use ipsec::key_engine::{Event as EngineEvent, Name};
use ipsec::request::{Request, Service};
use ipsec::selector::{Detail, Selector, Upper};
use wire::protocol;

use super::Carrier;
use super::child::{Child, LATE_FOR, MAX_LATE};
use super::conversation::{Conversation, Established};
use super::event::{Event, RemoteIndex};
use crate::outbox::{Via, Way};

/// Bytes after which keys are replaced, whatever their age: far below what AES-GCM may protect.
const SOFT_BYTES: u64 = 1 << 40;
/// Networks of one child's selectors at most: a selector is a range, and may be many.
const MAX_NETWORKS: usize = 256;

impl<R: Random> Carrier<R> {
    pub(super) fn heard_of_ike(&mut self, event: IkeEvent, now: Instant) {
        match event {
            IkeEvent::IkeUp { ike, peer, identity, initiated, addresses, dns } => {
                let remote = RemoteIndex(peer.0);
                for address in &addresses {
                    if !self.own.contains(address) {
                        self.own.push(*address);
                    }
                }
                let established = Established { ike, identity, initiated, since: now };
                self.ike_is_up(remote, established, now);
                self.events.push_back(Event::Up { remote, addresses, dns });
            }
            IkeEvent::IkeRekeyed { old, new } => self.ike_is_rekeyed(old, new),
            IkeEvent::IkeDown { ike, reason } => self.ike_is_down(ike, reason, now),
            IkeEvent::InitiationFailed { ike, reason, .. } => {
                self.initiation_failed(ike, reason.to_string(), now);
            }
            IkeEvent::AuthenticationFailed { remote, claimed } => {
                let told = self.strangers.tell(remote, claimed.as_ref(), now);
                self.events.extend(told.map(|what| Event::Stranger { what }));
            }
            IkeEvent::ChildUp(child) => {
                let spi = child.inbound_spi;
                self.child_is_up(*child, now);
                self.end_twin(spi, now);
            }
            IkeEvent::ChildRekeyed { old, new } => {
                if let Some(child) = self.children.get_mut(&old.0) {
                    child.is_replaced = true;
                }
                self.child_is_up(*new, now);
            }
            IkeEvent::ChildDown { inbound_spi, .. } => {
                let child = self.children.get(&inbound_spi.0).filter(|child| !child.is_replaced);
                if let Some(child) = child
                    && let Some(conversation) = self.conversations.get_mut(child.remote.0)
                {
                    conversation.child_has_ended(now.saturating_duration_since(child.since), now);
                }
                self.child_is_down(inbound_spi, now);
            }
            IkeEvent::ChildRefused { ike, child, notify } => {
                let remote = self.remote_of(ike);
                if let Some(remote) = remote {
                    self.child_is_refused(remote, child, format!("was refused: {notify}{}", notify.remedy()));
                }
            }
            IkeEvent::Silent { ike } => self.ike_is_silent(ike, now),
            IkeEvent::PathChanged { ike, path, nat } => self.path_changed(ike, path, nat),
        }
    }

    pub(super) fn heard_of_engine(&mut self, event: EngineEvent, now: Instant) {
        if self.tells_keys {
            self.events.push_back(Event::Keys(event.clone()));
        }
        match event {
            EngineEvent::Acquire { acquire, request } => {
                let wanted = self.child_for(&request);
                let begun = wanted.is_some_and(|(remote, child)| self.want(remote, child, now));
                let protocol = request.service.protocol();
                let others_are_asked = self.engine.daemons(protocol).any(|daemon| daemon != super::IKE);
                if !begun && !others_are_asked {
                    for _ in 0..self.engine.give_up(acquire) {
                        self.ipsec_drops.count(ipsec::drops::DropReason::NotKeyed);
                    }
                }
            }
            EngineEvent::SoftExpired(ended) => {
                if let Some((ike, spi)) = self.child_of(&ended.name) {
                    // One that is just being replaced is not asked for twice.
                    let _ = self.ike.rekey_child(now, ike, spi);
                }
            }
            EngineEvent::HardExpired(ended) => {
                if let Some((ike, spi)) = self.child_of(&ended.name) {
                    let _ = self.ike.delete_child(now, ike, spi);
                }
            }
        }
    }

    fn child_is_up(&mut self, child: ChildAssociation, now: Instant) {
        let remote = RemoteIndex(child.peer.0);
        let (ike, spi) = (child.ike, child.inbound_spi);
        let peer = self.config.peers.get(remote.0);
        if peer.is_none_or(|peer| child.child.0 >= peer.children.len()) {
            // It was asked for by a configuration that is not in force any more.
            let _ = self.ike.delete_child(now, ike, spi);
            return;
        }
        match self.make_associations(&child, now) {
            Ok(made) => {
                let address = made.way.remote.ip();
                // Hosts have their way from the beginning.
                let networks = if made.is_tunnel { made.networks.clone() } else { Vec::new() };
                self.by_outbound.insert(made.outbound_id, spi.0);
                self.children.insert(spi.0, made);
                self.recent.clear();
                if let Some(conversation) = self.conversations.get_mut(remote.0) {
                    conversation.child_is_there(child.child);
                }
                self.events.push_back(Event::Child { remote, address, networks });
                self.events.push_back(Event::Mtu);
            }
            Err(why) => {
                let _ = self.ike.delete_child(now, ike, spi);
                self.child_is_refused(remote, child.child, format!("is not carried: {why}"));
            }
        }
    }

    fn child_is_refused(&mut self, remote: RemoteIndex, child: ChildIndex, what: String) {
        let why = format!("child {} {what}", child.0 + 1);
        if let Some(conversation) = self.conversations.get_mut(remote.0) {
            conversation.child_is_refused(child, why.clone());
        }
        self.events.push_back(Event::Failed { remote, why });
    }

    /// Where both ends have asked for the same child at once, one of the two goes: that of the end whose identity comes
    /// first. With another implementation both may stay.
    fn end_twin(&mut self, spi: IkeChildSpi, now: Instant) {
        let Some(new) = self.children.get(&spi.0) else { return };
        let is_like = |child: &&Child| {
            (child.ike, child.index, child.requested) == (new.ike, new.index, !new.requested)
                && (&child.local, &child.networks) == (&new.local, &new.networks)
                && !child.is_replaced
        };
        let Some(old) = self.children.values().find(is_like) else { return };
        let ours = if new.requested { new } else { old };
        let (ike, ours) = (ours.ike, IkeChildSpi(ours.inbound.spi.0));
        let established = self.conversations.iter().flat_map(|conversation| &conversation.established);
        let theirs = established.into_iter().find(|sa| sa.ike == ike).map(|sa| &sa.identity);
        let local = self.config.peers.get(new.remote.0).map(|peer| &peer.local);
        if local.zip(theirs).is_none_or(|(local, theirs)| local >= theirs) {
            return;
        }
        if let Some(child) = self.children.get_mut(&ours.0) {
            child.is_replaced = true;
        }
        // One that is about to end anyway need not be told.
        let _ = self.ike.delete_child(now, ike, ours);
    }

    fn make_associations(&mut self, child: &ChildAssociation, now: Instant) -> Result<Child, String> {
        let is_tunnel = child.mode == ike::config::Mode::Tunnel;
        let in_udp = is_in_udp(child.suite.protocol, child.nat);
        if !self.has_raw {
            if !is_tunnel || child.suite.protocol != ChildProtocol::Esp {
                return Err("a child that is no tunnel of ESP is not carried here".to_owned());
            }
            if !in_udp {
                return Err(
                    "the other end has agreed to ESP outside of UDP, which is not carried here".to_owned()
                );
            }
        }
        let [mut local, mut networks] = [&child.local, &child.remote].map(|selectors| networks_of(selectors));
        // A gateway has thousands, of a network each.
        local.shrink_to_fit();
        networks.shrink_to_fit();
        if local.len().max(networks.len()) > MAX_NETWORKS {
            return Err("its traffic selectors are too many networks".to_owned());
        }
        let outward = selectors(&child.local, &child.remote);
        let inward = selectors(&child.remote, &child.local);
        let (here, there) = (child.path.local, child.path.remote);
        let mut inbound = parameters(child, child.inbound_spi, [there, here], inward, &child.inbound)?;
        inbound.original_addresses = child.original_addresses;
        let outbound = parameters(child, child.outbound_spi, [here, there], outward, &child.outbound)?;
        let [inbound_name, outbound_name] = [&inbound, &outbound].map(name);
        let engine = &mut self.engine;
        let inbound_id = engine.add_receiving(inbound, now).map_err(|error| error.to_string())?;
        let outbound_id = match engine.add(outbound, None, now) {
            Ok(id) => id,
            Err(error) => {
                let _ = engine.delete(&inbound_name);
                return Err(error.to_string());
            }
        };
        Ok(Child {
            ike: child.ike,
            remote: RemoteIndex(child.peer.0),
            index: child.child,
            inbound: inbound_name,
            inbound_id,
            outbound: outbound_name,
            outbound_id,
            way: self.way_of_child(&child.path, in_udp),
            is_tunnel,
            suite: child.suite,
            requested: child.requested,
            local,
            networks,
            since: now,
            heard: None,
            told: None,
            unanswered: None,
            is_replaced: false,
            is_over: false,
        })
    }

    /// Nothing is sent by a child any more. One that was replaced is received from a while longer.
    pub(super) fn child_is_down(&mut self, spi: IkeChildSpi, now: Instant) {
        let Some(child) = self.children.get_mut(&spi.0) else { return };
        self.by_outbound.remove(&child.outbound_id);
        // What has expired is gone already.
        let _ = self.engine.delete(&child.outbound);
        self.recent.clear();
        if !child.is_replaced || child.is_over {
            return self.forget(spi.0);
        }
        child.is_over = true;
        self.late.push_back((now + LATE_FOR, spi.0));
        if self.late.len() > MAX_LATE {
            self.forget_first();
        }
    }

    /// Forgets the children that nothing can come from any more.
    pub(super) fn forget_late(&mut self, now: Instant) {
        while self.late.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, spi)) = self.late.pop_front()
            && self.children.get(&spi).is_some_and(|child| child.is_over)
        {
            self.forget(spi);
        }
    }

    fn forget(&mut self, spi: u32) {
        if let Some(child) = self.children.remove(&spi) {
            let _ = self.engine.delete(&child.inbound);
        }
    }

    /// The way of a child's packets.
    fn way_of_child(&self, path: &Path, in_udp: bool) -> Way {
        if in_udp {
            return self.way(path);
        }
        Way { via: Via::Raw, local: path.local.ip(), remote: SocketAddr::new(path.remote.ip(), 0) }
    }

    pub(super) fn path_changed(&mut self, ike: IkeSpi, path: Path, nat: Nat) {
        // What cannot go outside of UDP stays in it.
        let in_udp = nat.is_between() || !self.has_raw;
        let way = self.way_of_child(&path, in_udp);
        let (here, there) = (path.local, path.remote);
        // Transport mode and AH are for their ends: they do not move.
        let its = |child: &&mut Child| child.ike == ike && child.is_tunnel_of_esp();
        for child in self.children.values_mut().filter(its) {
            child.way = way;
            for (name, [from, to]) in
                [(&mut child.inbound, [there, here]), (&mut child.outbound, [here, there])]
            {
                // Two of one name would have to be of one SPI, 32 random bits: it keeps its old name, and works.
                let ports = in_udp.then_some(udp_ports(from, to));
                if let Ok(moved) = self.engine.move_to(name, (from.ip(), to.ip()), ports) {
                    *name = moved;
                }
            }
        }
        self.recent.clear();
        self.events.push_back(Event::Mtu);
    }

    /// Which child of the configuration is for these packets.
    fn child_for(&self, request: &Request) -> Option<(RemoteIndex, ChildIndex)> {
        let traffic = &request.traffic;
        let [from, to] = match traffic.detail {
            Detail::Ports { source, destination } => [source, destination].map(Some),
            _ => [None; 2],
        };
        let covers = |selectors: &[TrafficSelector], address: IpAddr, port: Option<u16>| {
            let within = |selector: &TrafficSelector| {
                let (first, last) = selector.addresses();
                let (lowest, highest) = selector.ports;
                let is_all = selector.protocol == 0 || (lowest, highest) == (0, u16::MAX);
                first.is_ipv4() == address.is_ipv4()
                    && (first..=last).contains(&address)
                    && (selector.protocol == 0 || selector.protocol == traffic.protocol)
                    // Where there is no port to be seen, there is none that does not fit.
                    && (is_all || port.is_none_or(|port| (lowest..=highest).contains(&port)))
            };
            selectors.is_empty() || selectors.iter().any(within)
        };
        // Without networks of its own, what is behind a remote is that remote, unless it is given addresses.
        let is_elsewhere = |child: &ChildConfig, peer: &PeerConfig, remote: &config::ipsec::Remote| {
            let is_itself = child.remote.is_empty()
                && peer.assigned.addresses.is_empty()
                && peer.assigned.pools.is_empty();
            match remote.address {
                Some(Place::Address(address)) => is_itself && address != traffic.destination,
                _ => false,
            }
        };
        let peers = self.config.peers.iter().zip(&self.conversations);
        peers.enumerate().find_map(|(index, (peer, conversation))| {
            let is_for = |child: &ChildConfig| {
                service(child) == request.service
                    && covers(&child.local, traffic.source, from)
                    && covers(&child.remote, traffic.destination, to)
                    && !is_elsewhere(child, peer, &conversation.remote)
            };
            let child = peer.children.iter().position(is_for)?;
            Some((RemoteIndex(index), ChildIndex(child)))
        })
    }

    fn child_of(&self, name: &Name) -> Option<(IkeSpi, IkeChildSpi)> {
        let is_it = |child: &&Child| child.inbound == *name || child.outbound == *name;
        let child = self.children.values().find(is_it)?;
        Some((child.ike, IkeChildSpi(child.inbound.spi.0)))
    }

    fn remote_of(&self, ike: IkeSpi) -> Option<RemoteIndex> {
        let has = |conversation: &Conversation| conversation.established.iter().any(|sa| sa.ike == ike);
        self.conversations.iter().position(has).map(RemoteIndex)
    }
}

fn parameters(
    child: &ChildAssociation,
    spi: IkeChildSpi,
    [from, to]: [SocketAddr; 2],
    selectors: Vec<Selector>,
    keys: &ChildKeys,
) -> Result<Parameters, String> {
    let transform = match child.suite.protocol {
        ChildProtocol::Esp => Transform::Esp(transform(&child.suite, keys)?),
        ChildProtocol::Ah => Transform::Ah(ah_transform(&child.suite, keys)?),
    };
    let mode = match child.mode {
        ike::config::Mode::Tunnel => Mode::Tunnel,
        ike::config::Mode::Transport => Mode::Transport,
    };
    let soft = Lifetime { bytes: Some(SOFT_BYTES), ..Lifetime::UNLIMITED };
    Ok(Parameters {
        encapsulation: is_in_udp(child.suite.protocol, child.nat).then(|| udp_ports(from, to)),
        extended_sequence: child.suite.extended_sequence_numbers,
        lifetimes: Lifetimes { soft, hard: Lifetime::UNLIMITED },
        selectors,
        ..Parameters::new(Spi(spi.0), from.ip(), to.ip(), mode, transform)
    })
}

/// AH goes without UDP (RFC 3948 §1), whatever an end that wants UDP has said of a NAT.
fn is_in_udp(protocol: ChildProtocol, nat: Nat) -> bool {
    protocol == ChildProtocol::Esp && nat.is_between()
}

/// What a child does for packets.
fn service(child: &ChildConfig) -> Service {
    match (child.algorithms.protocol, child.mode) {
        (ChildProtocol::Ah, _) => Service::Authentication,
        (ChildProtocol::Esp, ike::config::Mode::Transport) => Service::TransportEncryption,
        (ChildProtocol::Esp, ike::config::Mode::Tunnel) => Service::TunnelEncryption,
    }
}

fn udp_ports(from: SocketAddr, to: SocketAddr) -> UdpEncapsulation {
    UdpEncapsulation { source_port: from.port(), destination_port: to.port() }
}

fn name(parameters: &Parameters) -> Name {
    Name {
        destination: parameters.destination,
        protocol: parameters.transform.protocol(),
        spi: parameters.spi,
    }
}

fn transform(suite: &ChildSuite, keys: &ChildKeys) -> Result<EspTransform, String> {
    let encryption = match suite.encryption {
        Some(IkeEncryption::Aes128Gcm) => Encryption::AesGcm128,
        Some(IkeEncryption::Aes256Gcm) => Encryption::AesGcm256,
        Some(IkeEncryption::ChaCha20Poly1305) => Encryption::ChaCha20Poly1305,
        Some(IkeEncryption::Aes128Cbc) => Encryption::AesCbc128,
        Some(IkeEncryption::Aes256Cbc) => Encryption::AesCbc256,
        None => Encryption::Null,
    };
    let authentication = authentication(suite);
    let [encryption_key, integrity_key] =
        [&keys.encryption, &keys.integrity].map(|key| Key::new(key.as_bytes()));
    EspTransform::new(encryption, &encryption_key, authentication, &integrity_key)
        .map_err(|error| error.to_string())
}

fn ah_transform(suite: &ChildSuite, keys: &ChildKeys) -> Result<AhTransform, String> {
    AhTransform::new(authentication(suite), &Key::new(keys.integrity.as_bytes()))
        .map_err(|error| error.to_string())
}

fn authentication(suite: &ChildSuite) -> Authentication {
    match suite.integrity {
        Some(ChildIntegrity::Hmac(Integrity::HmacSha256)) => Authentication::HmacSha256,
        Some(ChildIntegrity::Hmac(Integrity::HmacSha384)) => Authentication::HmacSha384,
        Some(ChildIntegrity::Hmac(Integrity::HmacSha512)) => Authentication::HmacSha512,
        Some(ChildIntegrity::AesGmac128) => Authentication::AesGmac128,
        Some(ChildIntegrity::AesGmac256) => Authentication::AesGmac256,
        None => Authentication::None,
    }
}

/// Every pair of what is at either end.
fn selectors(from: &[TrafficSelector], to: &[TrafficSelector]) -> Vec<Selector> {
    let mut selectors = Vec::new();
    for (source, destination) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
        let Some(upper) = upper(source, destination) else { continue };
        for from in networks_of(std::slice::from_ref(source)) {
            for to in networks_of(std::slice::from_ref(destination)) {
                if from.addr().is_ipv4() == to.addr().is_ipv4() && selectors.len() < MAX_NETWORKS {
                    selectors.push(Selector { source: from, destination: to, upper: upper.clone() });
                }
            }
        }
    }
    selectors
}

/// What both ends' selectors say of protocol and ports; none if they contradict each other.
fn upper(source: &TrafficSelector, destination: &TrafficSelector) -> Option<Upper> {
    let protocol = match (source.protocol, destination.protocol) {
        (0, protocol) | (protocol, 0) => protocol,
        (a, b) if a == b => a,
        _ => return None,
    };
    let all = (0, u16::MAX);
    Some(match protocol {
        0 => Upper::Any,
        protocol if source.ports == all && destination.ports == all => Upper::Protocol(protocol),
        // RFC 7296 §3.13.1: type in the high byte, code in the low one, on the side that has them.
        protocol::ICMPV4 | protocol::ICMPV6 => {
            let (first, last) = if destination.ports == all { source.ports } else { destination.ports };
            let ([type_first, code_first], [type_last, code_last]) =
                (first.to_be_bytes(), last.to_be_bytes());
            Upper::Icmp { protocol, types: type_first..=type_last, codes: code_first..=code_last }
        }
        protocol => Upper::Ports {
            protocol,
            source: source.ports.0..=source.ports.1,
            destination: destination.ports.0..=destination.ports.1,
        },
    })
}

/// The networks that ranges of addresses are made of, one more than are allowed at most.
fn networks_of(selectors: &[TrafficSelector]) -> Vec<IpNet> {
    let of = |selector: &TrafficSelector| match selector.addresses() {
        (IpAddr::V4(first), IpAddr::V4(last)) => Some(IpSubnets::V4(Ipv4Subnets::new(first, last, 0))),
        (IpAddr::V6(first), IpAddr::V6(last)) => Some(IpSubnets::V6(Ipv6Subnets::new(first, last, 0))),
        _ => None,
    };
    selectors.iter().filter_map(of).flatten().take(MAX_NETWORKS + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_becomes_networks_and_ports_stay() {
        let range = |first: &str, last: &str| {
            TrafficSelector::range(first.parse().unwrap()..=last.parse().unwrap()).unwrap()
        };
        let here = range("192.0.2.1", "192.0.2.6");
        let there = range("198.51.100.0", "198.51.100.255").of_protocol(6, 443..=443);
        let made = selectors(&[here], &[there]);
        let sources: Vec<_> = made.iter().map(|selector| selector.source.to_string()).collect();
        assert_eq!(sources, ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"]);
        let web = Upper::Ports { protocol: 6, source: 0..=65535, destination: 443..=443 };
        assert!(made.iter().all(|selector| selector.upper == web));
    }

    #[test]
    fn a_selector_of_very_many_networks_is_cut_off_and_so_refused() {
        let odd = TrafficSelector::range("::1".parse().unwrap()..="ffff::fffe".parse().unwrap()).unwrap();
        let many = vec![odd; 10];
        assert_eq!(networks_of(&many).len(), MAX_NETWORKS + 1);
    }
}
