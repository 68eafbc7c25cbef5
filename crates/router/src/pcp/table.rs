//! What is mapped: each host's ports, until when, and who may use them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::Limits;
use super::message::{Filter, Nonce, ResultCode};
use crate::firewall::service::protocol;

/// So many mappings a network has at most, each of several filters as one: whoever is on its link can have any number of
/// addresses there.
const MOST: usize = 1_024;
/// So many filters a mapping has at most.
const MOST_PEERS: usize = 8;

/// What has ports that can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// That of a number of the IP header.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        match number {
            protocol::TCP => Some(Transport::Tcp),
            protocol::UDP => Some(Transport::Udp),
            _ => None,
        }
    }

    /// Its number in the IP header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Transport::Tcp => protocol::TCP,
            Transport::Udp => protocol::UDP,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        })
    }
}

/// A host's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Internal {
    /// The host, which has asked itself.
    pub address: IpAddr,
    /// Of its ports,
    pub transport: Transport,
    /// this one.
    pub port: u16,
}

/// What leads to a host's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The network that it was asked for from, by name.
    pub network: String,
    /// At the gateway's address; of IPv6, at the host's own.
    pub external_port: u16,
    /// By which its client is known; none of NAT-PMP's have one.
    pub nonce: Option<Nonce>,
    /// Who may use it, from which port (0: any); everybody where empty. No two of these have a sender in common.
    pub peers: Vec<(IpNet, u16)>,
    /// When it ends.
    pub until: Instant,
}

impl Mapping {
    /// What is left of it, in whole seconds.
    #[must_use]
    pub fn seconds(&self, now: Instant) -> u32 {
        let left = self.until.saturating_duration_since(now);
        // Not one less for the moment since it was asked for.
        u32::try_from((left + Duration::from_millis(999)).as_secs()).unwrap_or(u32::MAX)
    }
}

/// What a host asks for.
pub(super) struct Wish<'w> {
    pub(super) internal: Internal,
    /// In seconds, 1 or more.
    pub(super) lifetime: u32,
    pub(super) nonce: Option<Nonce>,
    /// The external port; 0: any.
    pub(super) port: u16,
    /// No other port will do.
    pub(super) exact: bool,
    pub(super) filters: &'w [Filter],
}

/// All mappings.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(pub(super) BTreeMap<Internal, Mapping>);

impl Table {
    /// Makes a mapping, or has it last longer. `taken`: ports at the gateway's address that lead elsewhere.
    pub(super) fn grant(
        &mut self,
        wish: &Wish<'_>,
        (network, limits): (&str, &Limits),
        taken: &dyn Fn(Transport, u16) -> bool,
        now: Instant,
    ) -> Result<&Mapping, ResultCode> {
        let Internal { address, port, .. } = wish.internal;
        let known = self.0.get(&wish.internal);
        if known.is_some_and(|known| known.nonce != wish.nonce) || port < limits.lowest_port.max(1) {
            return Err(ResultCode::NotAuthorized);
        }
        if known.is_none()
            && self.0.keys().filter(|internal| internal.address == address).count() >= limits.per_host
        {
            return Err(ResultCode::UserExQuota);
        }
        let others = self.0.iter().filter(|(other, of)| of.network == network && **other != wish.internal);
        let others: usize = others.map(|(_, mapping)| mapping.peers.len().max(1)).sum();
        if others >= MOST {
            return Err(ResultCode::NoResources);
        }
        let external_port = match known {
            Some(known) => known.external_port,
            None if address.is_ipv6() => port,
            None => self.free_port(wish, limits, taken)?,
        };
        if wish.exact && wish.port != 0 && wish.port != external_port {
            return Err(ResultCode::CannotProvideExternal);
        }
        let peers = with_filters(known.map_or(&[], |known| &known.peers), wish.filters)?;
        if others + peers.len().max(1) > MOST {
            return Err(ResultCode::NoResources);
        }
        let lifetime = Duration::from_secs(wish.lifetime.into()).min(limits.longest);
        let network = network.to_owned();
        let mapping = Mapping { network, external_port, nonce: wish.nonce, peers, until: now + lifetime };
        Ok(self.0.entry(wish.internal).insert_entry(mapping).into_mut())
    }

    /// The port that is wished for, or the host's own, or one that is free of those behind it and of some elsewhere: whether
    /// one is taken costs, so that not all are looked at.
    fn free_port(
        &self,
        wish: &Wish<'_>,
        limits: &Limits,
        taken: &dyn Fn(Transport, u16) -> bool,
    ) -> Result<u16, ResultCode> {
        const BEHIND: usize = 16;
        const ELSEWHERE: u32 = 48;
        let transport = wish.internal.transport;
        let mapped = self
            .0
            .iter()
            .filter(|(internal, _)| internal.address.is_ipv4() && internal.transport == transport);
        let mapped: HashSet<u16> = mapped.map(|(_, mapping)| mapping.external_port).collect();
        let lowest = limits.lowest_port.max(1);
        let may_be = |port: &u16| *port >= lowest && !mapped.contains(port);
        let is_free = |port: &u16| may_be(port) && !taken(transport, *port);
        let first = if wish.port == 0 { wish.internal.port } else { wish.port };
        if wish.exact && wish.port != 0 {
            return Some(first).filter(is_free).ok_or(ResultCode::CannotProvideExternal);
        }
        let behind = (first..=u16::MAX).filter(may_be).take(BEHIND);
        let all = u32::from(u16::MAX - lowest) + 1;
        let elsewhere = (1..=ELSEWHERE).map(|n| (u32::from(first) + n * (all / ELSEWHERE)) % all);
        let elsewhere = elsewhere.filter_map(|port| (lowest..=u16::MAX).nth(port as usize));
        let mut candidates = [first, wish.internal.port].into_iter().chain(behind).chain(elsewhere);
        candidates.find(is_free).ok_or(ResultCode::NoResources)
    }

    /// Ends mappings of a host: with one port that one, without all that have the nonce.
    pub(super) fn remove(
        &mut self,
        host: IpAddr,
        transport: Option<Transport>,
        port: u16,
        nonce: Option<Nonce>,
    ) -> Result<(), ResultCode> {
        let is_meant = |internal: &Internal| {
            internal.address == host
                && transport.is_none_or(|transport| transport == internal.transport)
                && (port == 0 || port == internal.port)
        };
        let before = self.0.len();
        self.0.retain(|internal, mapping| !is_meant(internal) || mapping.nonce != nonce);
        let is_anothers = port != 0 && before == self.0.len() && self.0.keys().any(is_meant);
        if is_anothers { Err(ResultCode::NotAuthorized) } else { Ok(()) }
    }
}

/// Who may use a mapping when filters are added. Two that overlap, and neither contains the other, the kernel does not take.
fn with_filters(known: &[(IpNet, u16)], filters: &[Filter]) -> Result<Vec<(IpNet, u16)>, ResultCode> {
    let contains = |(all, all_ports): &(IpNet, u16), (net, port): &(IpNet, u16)| {
        all.contains(net) && (*all_ports == 0 || all_ports == port)
    };
    let overlap = |(net, port): &(IpNet, u16), (other, other_port): &(IpNet, u16)| {
        (net.contains(other) || other.contains(net)) && (*port == 0 || *other_port == 0 || port == other_port)
    };
    let mut peers = known.to_vec();
    for filter in filters {
        let Filter::Peers(net, port) = filter else {
            peers.clear();
            continue;
        };
        let more = (*net, *port);
        if peers.iter().any(|peer| contains(peer, &more)) {
            continue;
        }
        peers.retain(|peer| !contains(&more, peer));
        if peers.len() == MOST_PEERS || peers.iter().any(|peer| overlap(peer, &more)) {
            return Err(ResultCode::ExcessiveRemotePeers);
        }
        peers.push(more);
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_add_up_and_never_overlap() {
        let peers = |net: &str, port| Filter::Peers(net.parse().unwrap(), port);
        let of = |filters: &[Filter]| {
            let peers = with_filters(&[], filters)?;
            Ok(peers.iter().map(|(net, port)| format!("{net}:{port}")).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(&[]), Ok(String::new()));
        assert_eq!(of(&[peers("10.0.0.0/8", 0), peers("10.1.0.0/16", 5)]), Ok("10.0.0.0/8:0".to_owned()));
        assert_eq!(of(&[peers("10.1.0.0/16", 5), peers("10.0.0.0/8", 0)]), Ok("10.0.0.0/8:0".to_owned()));
        let crossing = of(&[peers("10.1.0.0/16", 0), peers("10.0.0.0/8", 5)]);
        assert_eq!(crossing, Err(ResultCode::ExcessiveRemotePeers));
        let again = of(&[peers("10.0.0.0/8", 0), Filter::Everybody, peers("192.0.2.1/32", 7)]);
        assert_eq!(again, Ok("192.0.2.1/32:7".to_owned()));
        let many: Vec<_> = (0..9).map(|n| peers(&format!("10.0.0.{n}/32"), 0)).collect();
        assert_eq!(of(&many), Err(ResultCode::ExcessiveRemotePeers));
        assert!(of(&many[..8]).is_ok());
    }
}
