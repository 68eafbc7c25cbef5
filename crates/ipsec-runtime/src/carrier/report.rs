//! What there is, for a status.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use config::ipsec::{Shown, encryption_name, integrity_name, protocol_name};
use control::ipsec_status::{Child as ChildStatus, IkeSa, Only, Remote};
use ike::negotiation::ChildSuite;
use ike::random::Random;
use ipsec::association::Usage;
use ipsec::selector::Upper;

use super::Carrier;
use super::child::Child;
use super::event::RemoteIndex;

impl<R: Random> Carrier<R> {
    /// The remotes, in the order of the configuration.
    pub fn report(&self, now: Instant) -> Vec<Remote> {
        let age = |since: Instant| now.saturating_duration_since(since);
        let remotes = self.conversations.iter().enumerate();
        let remotes = remotes.map(|(index, conversation)| {
            let of_it = |child: &&Child| child.remote == RemoteIndex(index) && !child.is_over;
            let mut children: Vec<_> = self.children.values().filter(of_it).collect();
            children.sort_by_key(|child| (child.since, child.inbound_id));
            let ike = conversation.established.iter().map(|sa| IkeSa {
                spi: format!("{:016x}", sa.ike.0),
                identity: Shown(&sa.identity).to_string(),
                initiated: sa.initiated,
                age_s: age(sa.since).as_secs(),
            });
            Remote {
                name: conversation.remote.name.clone(),
                state: conversation.state().to_owned(),
                last_failure: conversation.failure(),
                ike: ike.collect(),
                children: children.into_iter().map(|child| self.report_child(child, age)).collect(),
            }
        });
        remotes.collect()
    }

    /// What was dropped, by reason.
    pub fn report_drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        let own = self.drops.nonzero().map(|(reason, count)| (reason.name(), count));
        let ipsec = self.ipsec_drops.nonzero().map(|(reason, count)| (reason.name(), count));
        for (name, count) in own.chain(ipsec) {
            *drops.entry(name.to_owned()).or_default() += count;
        }
        for (reason, count) in self.ike.drops().nonzero() {
            drops.insert(format!("ike_{}", reason.name()), count);
        }
        drops
    }

    fn report_child(&self, child: &Child, age: impl Fn(Instant) -> Duration) -> ChildStatus {
        let association = |id| self.engine.get(id);
        let usage = |id| association(id).map_or(Usage::default(), ipsec::association::Association::usage);
        let (sent, received) = (usage(child.outbound_id), usage(child.inbound_id));
        let selectors = association(child.outbound_id).map(|found| &found.parameters().selectors);
        let mut only: Vec<Only> = Vec::new();
        for selector in selectors.into_iter().flatten() {
            if let Some(told) = told_upper(&selector.upper).filter(|told| !only.contains(told)) {
                only.push(told);
            }
        }
        ChildStatus {
            number: child.index.0 + 1,
            inbound_spi: format!("{:08x}", child.inbound.spi.0),
            outbound_spi: format!("{:08x}", child.outbound.spi.0),
            algorithm: told_suite(&child.suite),
            remote: child.way.remote,
            local_networks: child.local.clone(),
            remote_networks: child.networks.clone(),
            only,
            replaced: child.is_replaced,
            age_s: age(child.since).as_secs(),
            heard_ms: child.heard.map(|heard| u64::try_from(age(heard).as_millis()).unwrap_or(u64::MAX)),
            tx_packets: sent.packets,
            tx_bytes: sent.bytes,
            rx_packets: received.packets,
            rx_bytes: received.bytes,
        }
    }
}

/// The algorithms, as the configuration names them.
fn told_suite(suite: &ChildSuite) -> String {
    let names = [suite.encryption.map(encryption_name), suite.integrity.map(integrity_name)];
    names.into_iter().flatten().collect::<Vec<_>>().join("-")
}

/// What of packets is carried on their way out, if it is not all.
fn told_upper(upper: &Upper) -> Option<Only> {
    let ports = |ports: &RangeInclusive<u16>| {
        let (first, last) = (*ports.start(), *ports.end());
        match (first, last) {
            (0, u16::MAX) => None,
            _ if first == last => Some(first.to_string()),
            _ => Some(format!("{first}-{last}")),
        }
    };
    let of = |protocol: u8| Only { protocol: protocol_name(protocol), local_ports: None, remote_ports: None };
    match upper {
        Upper::Any => None,
        Upper::Protocol(protocol) | Upper::Icmp { protocol, .. } => Some(of(*protocol)),
        Upper::Ports { protocol, source, destination } => {
            Some(Only { local_ports: ports(source), remote_ports: ports(destination), ..of(*protocol) })
        }
    }
}
