//! What there is, for a status.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::ipsec_status::{Child as ChildStatus, IkeSa, Remote};
use ike::random::Random;
use ipsec::association::{Transform, Usage};

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
                identity: sa.identity.clone(),
                initiated: sa.initiated,
                age_s: age(sa.since).as_secs(),
            });
            Remote {
                name: conversation.remote.name.clone(),
                state: conversation.state().to_owned(),
                last_failure: conversation.last_failure.clone(),
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
        let algorithm =
            association(child.outbound_id).map_or(String::new(), |association| {
                match &association.parameters().transform {
                    Transform::Esp(transform) => format!("{:?}", transform.encryption()),
                    Transform::Ah(transform) => format!("{:?}", transform.authentication()),
                }
            });
        ChildStatus {
            number: child.index.0 + 1,
            inbound_spi: format!("{:08x}", child.inbound.spi.0),
            outbound_spi: format!("{:08x}", child.outbound.spi.0),
            algorithm,
            remote: child.way.remote,
            local_networks: child.local.clone(),
            remote_networks: child.networks.clone(),
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
