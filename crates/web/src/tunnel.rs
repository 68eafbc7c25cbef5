//! A tunnel, as the page shows it: what `sidestep show` says, without keys and without what only counts seconds, and what
//! follows from one answer and the one before: rates, and when lanes came and went.

use std::collections::{BTreeMap, HashMap, VecDeque};

use control::tunnel_status::{Carry, Peer, State, Status};
use serde_json::{Map, Value, json};

use crate::sample::{Look, Minute, Sample};

/// For how long it is known when lanes came and went, in milliseconds.
const LANES_MS: u64 = 180_000;
/// Lanes of a peer that are remembered at the most.
const LANES: usize = 512;
/// Rates of a peer that are remembered, for the small picture in the table.
const RATES: usize = 60;
/// Moments that are computed from ages differ by as much from one look to the next though they are the same.
const SAME_MS: u64 = 1_500;

/// What is known of a tunnel.
#[derive(Debug, Default)]
pub(crate) struct Tunnel {
    status: Option<Status>,
    /// When that was, in milliseconds since 1970.
    at_ms: u64,
    peers: HashMap<String, Followed>,
}

/// What more than one answer tells of a peer.
#[derive(Debug, Default)]
struct Followed {
    /// Octets in a second.
    tx: f64,
    rx: f64,
    /// Their sum, a number for each look, oldest first.
    rates: VecDeque<f64>,
    lanes: VecDeque<Lane>,
    minute: Minute,
    since_ms: Option<u64>,
    next_ms: Option<u64>,
}

/// When a lane was in use, in milliseconds since 1970. Its addresses are not kept: they are gone when it is.
#[derive(Debug, Clone, Copy)]
struct Lane {
    number: u64,
    first_ms: u64,
    last_ms: u64,
}

impl Tunnel {
    /// Takes an answer in.
    pub(crate) fn take(&mut self, status: Status, now_ms: u64) {
        let seconds = now_ms.saturating_sub(self.at_ms) as f64 / 1000.0;
        let before = self.status.take();
        let restarted = before.as_ref().is_none_or(|before| before.uptime_s > status.uptime_s);
        let mut known: HashMap<&str, &Peer> = HashMap::new();
        if let Some(before) = before.as_ref().filter(|_| !restarted) {
            known.extend(before.peers.iter().map(|peer| (peer.name.as_str(), peer)));
        }
        self.peers.retain(|name, _| status.peers.iter().any(|peer| peer.name == *name));
        for peer in &status.peers {
            let followed = self.peers.entry(peer.name.clone()).or_default();
            followed.follow(known.get(peer.name.as_str()).copied(), peer, seconds, now_ms);
        }
        self.status = Some(status);
        self.at_ms = now_ms;
    }

    /// The samples of the minute that is over, and another minute begins.
    pub(crate) fn take_minute(&mut self) -> Vec<(String, Sample)> {
        let taken = self
            .peers
            .iter_mut()
            .map(|(name, followed)| (name.clone(), std::mem::take(&mut followed.minute)));
        taken.map(|(name, minute)| (name, minute.sample())).collect()
    }

    /// What it said last.
    pub(crate) fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// The tunnel and all its peers, in short.
    pub(crate) fn summary(&self) -> Value {
        let Some(status) = &self.status else { return Value::Null };
        let peers: Map<String, Value> =
            status.peers.iter().map(|peer| (peer.name.clone(), self.in_short(peer))).collect();
        json!({
            "version": status.version,
            "file": status.file,
            "external": status.external,
            "hop_prefix": status.hop_prefix,
            "keylog": status.keylog,
            "dark": status.dark,
            "started_ms": self.at_ms.saturating_sub(status.uptime_s * 1000) / 10_000 * 10_000,
            "drops": status.drops,
            "rules_restored": status.rules_restored,
            "peers": peers,
        })
    }

    fn in_short(&self, peer: &Peer) -> Value {
        let followed = self.peers.get(&peer.name);
        json!({
            "state": peer.state,
            "since_ms": followed.and_then(|followed| followed.since_ms),
            "fault": peer.fault,
            "rtt_ms": peer.rtt_ms.map(|rtt| (rtt * 100.0).round() / 100.0),
            "tx": followed.map(|followed| followed.tx.round()),
            "rx": followed.map(|followed| followed.rx.round()),
            "drops": peer.drops.values().sum::<u64>(),
            "rotations": peer.rotations,
            "lanes": peer.local.len(),
            "next_ms": followed.and_then(|followed| followed.next_ms),
            "classic": peer.is_classic(),
        })
    }

    /// The rates of all peers at the last looks, oldest first.
    pub(crate) fn rates(&self) -> BTreeMap<&str, &VecDeque<f64>> {
        self.peers.iter().map(|(name, followed)| (name.as_str(), &followed.rates)).collect()
    }

    /// All that is known of one peer; nothing if there is none of this name.
    pub(crate) fn peer(&self, name: &str) -> Option<Value> {
        let peer = self.status.as_ref()?.peers.iter().find(|peer| peer.name == name)?;
        let followed = self.peers.get(name)?;
        let mut document = serde_json::to_value(peer).ok()?;
        leave_out_keys(&mut document);
        let fields = document.as_object_mut()?;
        let lanes: Vec<_> =
            followed.lanes.iter().map(|lane| json!([lane.number, lane.first_ms, lane.last_ms])).collect();
        fields.insert("at_ms".to_owned(), self.at_ms.into());
        fields.insert("tx".to_owned(), json!(followed.tx.round()));
        fields.insert("rx".to_owned(), json!(followed.rx.round()));
        fields.insert("next_ms".to_owned(), json!(followed.next_ms));
        fields.insert("lanes_seen".to_owned(), lanes.into());
        fields.insert("rewrites".to_owned(), (peer.carry != Carry::Encapsulate).into());
        Some(document)
    }
}

impl Followed {
    fn follow(&mut self, before: Option<&Peer>, peer: &Peer, seconds: f64, now_ms: u64) {
        let more = |of: fn(&Peer) -> u64| before.map_or(0, |before| of(peer).saturating_sub(of(before)));
        let dropped = |peer: &Peer| peer.drops.values().sum();
        let look = Look {
            up: peer.state == State::Established,
            rtt_ms: peer.rtt_ms,
            tx: more(|peer| peer.tx_bytes),
            rx: more(|peer| peer.rx_bytes),
            drops: more(dropped),
            rotations: more(|peer| peer.rotations),
        };
        self.minute.add(&look);
        (self.tx, self.rx) = (look.tx as f64 / seconds.max(0.1), look.rx as f64 / seconds.max(0.1));
        if self.rates.len() == RATES {
            self.rates.pop_front();
        }
        if before.is_some() {
            self.rates.push_back((self.tx + self.rx).round());
        }

        let since_ms = now_ms.saturating_sub((peer.state_s * 1000.0) as u64);
        self.since_ms = Some(steady(self.since_ms, since_ms, SAME_MS));
        self.next_ms = peer.next_rotation_ms.map(|wait| steady(self.next_ms, now_ms + wait, SAME_MS / 3));
        self.see_lanes(peer, now_ms);
    }

    fn see_lanes(&mut self, peer: &Peer, now_ms: u64) {
        for endpoint in &peer.local {
            match self.lanes.iter_mut().rev().find(|lane| lane.number == endpoint.lane) {
                // Numbers begin anew with a session.
                Some(lane) if lane.last_ms + 10_000 > now_ms => lane.last_ms = now_ms,
                _ => self.lanes.push_back(Lane { number: endpoint.lane, first_ms: now_ms, last_ms: now_ms }),
            }
        }
        let too_old = |lane: &Lane| lane.last_ms + LANES_MS < now_ms;
        while self.lanes.len() > LANES || self.lanes.front().is_some_and(too_old) {
            self.lanes.pop_front();
        }
    }
}

/// The page shows no keys, not even those that are public: neither those that there are now nor those that may come to a status.
fn leave_out_keys(document: &mut Value) {
    if let Value::Object(fields) = document {
        fields.retain(|name, _| !name.ends_with("key"));
        fields.values_mut().for_each(leave_out_keys);
    }
}

/// The moment that was known, if the new one is the same but for how it was measured.
fn steady(known: Option<u64>, new: u64, same: u64) -> u64 {
    known.filter(|known| known.abs_diff(new) < same).unwrap_or(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::tunnel_status::{Endpoint, example};

    #[test]
    fn rates_and_samples_follow_from_two_answers() {
        let mut tunnel = Tunnel::default();
        let mut status = example();
        tunnel.take(status.clone(), 1_000_000);
        assert_eq!(tunnel.summary()["peers"]["site-b"]["tx"], 0.0, "what was before is nobody's rate");
        status.peers[0].tx_bytes += 3_000;
        status.peers[0].rotations += 2;
        status.peers[0].drops.insert("replay".into(), 8);
        status.uptime_s += 2;
        tunnel.take(status.clone(), 1_002_000);
        let summary = tunnel.summary();
        assert_eq!(summary["peers"]["site-b"]["tx"], 1500.0);
        assert_eq!(summary["peers"]["site-b"]["drops"], 8);
        let samples = tunnel.take_minute();
        let (_, sample) = samples.iter().find(|(name, _)| name == "site-b").unwrap();
        assert_eq!((sample.tx, sample.drops, sample.rotations, sample.up), (50.0, 5.0, 2.0, 1.0));

        // Another run counts from nought.
        status.peers[0].tx_bytes = 7;
        status.uptime_s = 1;
        tunnel.take(status, 1_004_000);
        assert_eq!(tunnel.summary()["peers"]["site-b"]["tx"], 0.0);
    }

    #[test]
    fn lanes_are_remembered_without_their_addresses() {
        let mut tunnel = Tunnel::default();
        let mut status = example();
        for second in 0..4 {
            let lanes = [second, second + 1];
            let address = "2001:db8:a1::1".parse().unwrap();
            status.peers[0].local = lanes.map(|lane| Endpoint { lane, address, port: 1 }).into();
            tunnel.take(status.clone(), 1_000_000 + second * 1000);
        }
        let peer = tunnel.peer("site-b").unwrap();
        let seen = json!([
            [0, 1_000_000, 1_000_000],
            [1, 1_000_000, 1_001_000],
            [2, 1_001_000, 1_002_000],
            [3, 1_002_000, 1_003_000],
            [4, 1_003_000, 1_003_000]
        ]);
        assert_eq!(peer["lanes_seen"], seen);
        assert!(tunnel.peer("nobody").is_none());
    }

    #[test]
    fn no_key_is_shown() {
        let mut tunnel = Tunnel::default();
        tunnel.take(example(), 0);
        let shown = format!("{} {}", tunnel.summary(), tunnel.peer("site-b").unwrap());
        let status = example();
        for key in [&status.public_key, &status.peers[0].public_key] {
            assert!(!shown.contains(key.as_str()));
        }
        assert!(!shown.contains("key\""), "{shown}");
        // Addresses that hop are in the peer's own answer, as in `show`, not in what is sent all the time.
        assert!(!tunnel.summary().to_string().contains("2001:db8:a1::1234"));
    }

    #[test]
    fn what_only_counts_seconds_does_not_change() {
        let mut tunnel = Tunnel::default();
        let mut status = example();
        tunnel.take(status.clone(), 1_000_000_000);
        tunnel.take(status.clone(), 1_000_001_000);
        let before = tunnel.summary();
        status.uptime_s += 1;
        status.peers.iter_mut().for_each(|peer| peer.state_s += 1.2);
        status.peers[0].next_rotation_ms = Some(3_150);
        tunnel.take(status, 1_000_002_000);
        let mut after = tunnel.summary();
        after["peers"]["site-b"]["next_ms"] = before["peers"]["site-b"]["next_ms"].clone();
        assert_eq!(before, after);
    }
}
