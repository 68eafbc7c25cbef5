//! Another configuration takes the place of the one in force: conversations that are configured as before go on.

use std::net::IpAddr;
use std::time::Instant;

use config::ipsec::{IpsecConfig, Remote};
use ike::config::{ChildConfig, ChildIndex, KeptPeer, PeerConfig, PeerIndex};
use ike::numbers::Spi;
use ike::random::Random;
use ipnet::IpNet;

use super::child::Child;
use super::conversation::Conversation;
use super::event::{Event, RemoteIndex};
use super::{Carrier, child_rules, ike_config, own_rules};
use crate::deliver::Deliver;

/// Which remotes go on under another configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept(Vec<Option<KeptPeer>>);

impl Kept {
    /// Which one a remote is from now on.
    pub fn remote(&self, before: RemoteIndex) -> Option<RemoteIndex> {
        let kept = self.0.get(before.0)?.as_ref()?;
        Some(RemoteIndex(kept.peer.0))
    }

    fn child(&self, child: &Child) -> Option<(RemoteIndex, ChildIndex)> {
        let kept = self.0.get(child.remote.0)?.as_ref()?;
        let index = kept.children.get(child.index.0).copied().flatten()?;
        Some((RemoteIndex(kept.peer.0), index))
    }
}

impl<R: Random> Carrier<R> {
    /// Which conversations would go on under another configuration: those with remotes of the same name that are configured
    /// as before, but for their children and for when they begin.
    pub fn kept(&self, config: &IpsecConfig) -> Kept {
        let new = ike_config(config, self.ports, self.has_raw);
        let same_algorithms = new.algorithms == self.config.algorithms;
        let kept = self.conversations.iter().zip(&self.config.peers).map(|(conversation, before)| {
            let remote = &conversation.remote;
            let index = config.remotes.iter().position(|remote_now| is_same(remote, remote_now))?;
            let now = new.peers.get(index).filter(|now| same_algorithms && is_same_peer(before, now))?;
            let child =
                |child: &ChildConfig| now.children.iter().position(|now| now == child).map(ChildIndex);
            Some(KeptPeer { peer: PeerIndex(index), children: before.children.iter().map(child).collect() })
        });
        Kept(kept.collect())
    }

    /// The networks of the children that go on.
    pub fn networks_of<'a>(&'a self, kept: &'a Kept) -> impl Iterator<Item = IpNet> + 'a {
        let stays = |child: &&Child| kept.child(child).is_some();
        self.children.values().filter(stays).flat_map(|child| child.networks.iter().copied())
    }

    /// Goes on with another configuration, of which `kept` was asked before. What does not go on is ended, and its other ends
    /// are told; what is new begins. Counters stay. `given` are the addresses that remotes have given and that stay.
    pub fn reconfigure(
        &mut self,
        config: &IpsecConfig,
        kept: &Kept,
        given: impl IntoIterator<Item = IpAddr>,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let gone: Vec<u32> = self
            .children
            .iter()
            .filter(|(_, child)| kept.child(child).is_none())
            .map(|(spi, _)| *spi)
            .collect();
        for spi in gone {
            self.child_is_down(Spi(spi), now);
        }
        for child in self.children.values_mut() {
            if let Some((remote, index)) = kept.child(child) {
                (child.remote, child.index) = (remote, index);
            }
        }
        let mut before: Vec<_> = self.conversations.drain(..).map(Some).collect();
        let mut conversations: Vec<Conversation> =
            config.remotes.iter().map(|remote| Conversation::new(remote.clone(), now)).collect();
        for (kept, before) in kept.0.iter().zip(&mut before) {
            let Some((kept, mut before)) = kept.as_ref().zip(before.take()) else { continue };
            let Some(conversation) = conversations.get_mut(kept.peer.0) else { continue };
            before.is_to_begin_as(conversation);
            *conversation = before;
        }
        self.conversations = conversations;
        let new = ike_config(config, self.ports, self.has_raw);
        self.ike.reconfigure(now, new.clone(), &kept.0);
        self.config = new;
        (self.own_rules, self.child_rules) = (own_rules(config), child_rules(config));
        self.policies.set_system_levels(config.levels);
        self.compose_policies();
        self.own = config.addresses.iter().map(IpNet::addr).chain(given).collect();
        self.own.dedup();
        self.recent.clear();
        for remote in (0..self.conversations.len()).map(RemoteIndex) {
            self.ask_for_children(remote, now);
        }
        self.begin_conversations(now);
        self.events.push_back(Event::Mtu);
        self.settle(now, deliver);
    }
}

/// The same remote, whenever it is begun.
fn is_same(before: &Remote, now: &Remote) -> bool {
    let Remote { name, address, ports, start: _, pool, encapsulate } = before;
    (name, address, ports, pool, encapsulate)
        == (&now.name, &now.address, &now.ports, &now.pool, &now.encapsulate)
}

/// The same peer, whatever its children are.
fn is_same_peer(before: &PeerConfig, now: &PeerConfig) -> bool {
    let without = |peer: &PeerConfig| PeerConfig { children: Vec::new(), ..peer.clone() };
    without(before) == without(now)
}
