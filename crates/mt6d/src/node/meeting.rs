//! Peers that meet through a third (docs/protocol.md, "Places that others tell"): what concerns several peers.
//!
//! All three have to want it: the two name the third in [`PeerConfig::meet_through`](crate::config::PeerConfig::meet_through),
//! and the third has both in [`PeerConfig::introduce`](crate::config::PeerConfig::introduce).

use ipnet::Ipv6Net;

use super::Node;
use crate::control::Control;
use crate::deliver::Deliver;
use crate::env::Env;
use crate::host_interface::Meeting;
use crate::id::PeerId;
use crate::keys::PublicKey;
use crate::outbox::Outbox;
use crate::record::RecordError;
use crate::time::Now;

impl Node {
    /// Somebody who need not be right says that a peer, by its configured name, hops here: it is tried there, at a bounded
    /// rate, while it is to be reached anyway. False if there is none of that name.
    pub fn told_place(&mut self, name: &str, place: Ipv6Net, now: Now) -> bool {
        let Some(index) = self.named(name) else { return false };
        self.tell_place(index, place, now);
        true
    }

    /// A record that a peer of this name may have published for this node says where it hops, which is tried as by
    /// [`Node::told_place`]. Where that is.
    ///
    /// # Errors
    /// If it tells nothing.
    pub fn told_record(&mut self, name: &str, text: &str, now: Now) -> Result<Ipv6Net, RecordError> {
        let index = self.named(name).ok_or(RecordError::Foreign)?;
        let own = self.own.hop_prefix;
        let peer = self.peers.get_mut(index).ok_or(RecordError::Foreign)?;
        let place = peer.told_record(text, own, now)?;
        self.wake(index);
        Ok(place)
    }

    /// Does what meetings ask for.
    pub(super) fn meet(&mut self, now: Now, outbox: &mut Outbox, deliver: &mut dyn Deliver) {
        while let Some(meeting) = self.host.next_meeting() {
            match meeting {
                Meeting::Sought(index, asked) => self.ask_thirds(index, asked, now, outbox, deliver),
                Meeting::Asked { by, key } => self.introduce(by, key, now, outbox, deliver),
                Meeting::Told { by, key, place } => self.told_by(by, key, place, now),
                Meeting::Settled(index) => {
                    let Some(peer) = self.peers.get(index) else { continue };
                    for other in peer.wishes(now.boot).collect::<Vec<_>>() {
                        self.tell_both(index, other, now, outbox, deliver);
                    }
                }
            }
        }
    }

    /// Asks for the peer by each of its keys, as a third may know one alone. Where only one of several questions finds room, as
    /// in a shape, they take turns.
    fn ask_thirds(
        &mut self,
        index: PeerId,
        asked: u32,
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Some(peer) = self.peers.get(index) else { return };
        let mut keys: Vec<_> = peer.config.keys().collect();
        let first = asked as usize % keys.len();
        keys.rotate_left(first);
        for name in peer.config.meet_through.clone() {
            let Some(third) = self.named(&name) else { continue };
            for key in &keys {
                self.say(third, &Control::Meet(*key), now, outbox, deliver);
            }
        }
    }

    /// As the third: a peer wants to meet another. If that does, too, both are told.
    fn introduce(
        &mut self,
        by: PeerId,
        key: PublicKey,
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Some(asker) = self.peers.get(by).map(|asker| &asker.config) else { return };
        // Whoever is not introduced learns nothing, not even whether there is such a peer.
        let other = self.keyed(key).and_then(|other| self.peers.get(other)).map(|other| &other.config);
        if !other.is_some_and(|other| asker.introduce.to(&other.name) && other.introduce.to(&asker.name)) {
            return;
        }
        if self.peers.get_mut(by).is_some_and(|asker| asker.wishes_to_meet(key, now.boot)) {
            self.tell_both(by, key, now, outbox, deliver);
        }
    }

    /// Tells two that want to meet each other where the other is, as far as that is certain.
    fn tell_both(
        &mut self,
        one: PeerId,
        other: PublicKey,
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Some(other) = self.keyed(other) else { return };
        let [Some(first), Some(second)] = [one, other].map(|index| self.peers.get(index)) else { return };
        let (first, second) = (&first.config, &second.config);
        if !first.introduce.to(&second.name) || !second.introduce.to(&first.name) {
            return;
        }
        // By the key that each has for the other: it may have been changed.
        let (Some(of_second), Some(of_first)) = (self.wished(one, other, now), self.wished(other, one, now))
        else {
            return;
        };
        for (index, about, key) in [(one, other, of_second), (other, one, of_first)] {
            if let Some(place) = self.peers.get(about).and_then(|about| about.certain_place(now.boot)) {
                self.say(index, &Control::Met(key, place), now, outbox, deliver);
            }
        }
    }

    /// The key by which a peer wants to meet another, if it does.
    fn wished(&self, by: PeerId, other: PeerId, now: Now) -> Option<PublicKey> {
        self.peers.get(by)?.wishes(now.boot).find(|key| self.keyed(*key) == Some(other))
    }

    /// A third says where a peer is: heard if that peer is to be met through it.
    fn told_by(&mut self, by: PeerId, key: PublicKey, place: Ipv6Net, now: Now) {
        let Some(third) = self.peers.get(by).map(|third| third.config.name.clone()) else { return };
        let Some(index) = self.keyed(key) else { return };
        if self.peers.get(index).is_some_and(|peer| peer.config.meet_through.contains(&third)) {
            self.tell_place(index, place, now);
        }
    }

    fn tell_place(&mut self, index: PeerId, place: Ipv6Net, now: Now) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.told_place(place, self.own.hop_prefix, now.boot);
            self.wake(index);
        }
    }

    fn say(
        &mut self,
        index: PeerId,
        message: &Control<'_>,
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        let mut env =
            Env { own: &self.own, routes: &self.routes, now, host: &mut self.host, outbox, deliver };
        peer.say(message, &mut env);
        self.wake(index);
    }

    fn named(&self, name: &str) -> Option<PeerId> {
        self.peers.iter().find(|(_, peer)| peer.config.name == name).map(|(index, _)| index)
    }

    /// The peer with this key, if it has to do with meetings.
    fn keyed(&self, key: PublicKey) -> Option<PeerId> {
        self.meeting.get(&key).copied()
    }
}
