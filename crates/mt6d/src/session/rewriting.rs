//! Pairs of hosts whose packets travel as they are, with other addresses (docs/protocol.md, "Replaced addresses").
//!
//! Invariants: packets are taken at an address before its epoch and after it, as at an endpoint; none are sent for a pair
//! before the peer has had time to take them.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use ipnet::Ipv6Net;

use super::contexts::{Pair, addresses};
use super::lane::Overlap;
use crate::endpoint;
use crate::host_interface::{Action, HostInterface, Rewrite};
use crate::id::Epoch;
use crate::kdf::Secret;
use crate::keys::Role;
use crate::schedule::Schedule;
use crate::time::Time;

/// From when the peer knows a pair until packets of it come.
const MARGIN: Duration = Duration::from_secs(1);

/// An epoch in which packets are taken, and the keys that its addresses come from: ours, and the peer's.
struct KeyedEpoch {
    epoch: Epoch,
    start: i64,
    keys: (Secret, Secret),
}

/// Two hosts.
struct Hosts {
    /// Since when we know that the peer takes their packets, if it does.
    known: Option<Time>,
    /// Their addresses outside, in the order of the epochs in which packets are taken.
    outer: VecDeque<(Ipv6Addr, Ipv6Addr)>,
    /// The epoch whose addresses packets have that leave.
    sending: Option<Epoch>,
}

/// The pairs of a session.
pub(super) struct Rewriting {
    role: Role,
    local_prefix: Ipv6Net,
    remote_prefix: Ipv6Net,
    schedule: Schedule,
    epochs: VecDeque<KeyedEpoch>,
    next_epoch: Epoch,
    /// By the address of our host and that of the peer's.
    pairs: HashMap<Pair, Hosts>,
    /// Whether other pairs may be known than before.
    pub(super) changed: bool,
    /// Since when this session carries what we send, if it does.
    in_use: Option<Time>,
}

impl Rewriting {
    pub(super) fn new(role: Role, local_prefix: Ipv6Net, remote_prefix: Ipv6Net, schedule: Schedule) -> Self {
        Rewriting {
            role,
            local_prefix,
            remote_prefix,
            schedule,
            epochs: VecDeque::new(),
            next_epoch: Epoch::FIRST,
            pairs: HashMap::new(),
            changed: true,
            in_use: None,
        }
    }

    /// Begins to take packets in the epochs that are due, and ends it in those that are over. `keys` are those of an epoch that
    /// begins at that time.
    pub(super) fn open(
        &mut self,
        now: i64,
        overlap: Overlap,
        keys: impl Fn(i64) -> (Secret, Secret),
        host: &mut HostInterface,
    ) {
        let Rewriting { schedule, .. } = self;
        let start = |epoch| schedule.start(epoch);
        if start(self.next_epoch).saturating_add(overlap.after) < now {
            // After a sleep: nothing comes any more in epochs that are over.
            self.next_epoch = self.next_epoch.max(schedule.current(now - overlap.after));
        }
        while start(self.next_epoch).saturating_sub(overlap.before) <= now {
            let epoch = self.next_epoch;
            let keyed = KeyedEpoch { epoch, start: start(epoch), keys: keys(start(epoch)) };
            for (pair, hosts) in &mut self.pairs {
                let outer = outer(self.role, self.local_prefix, self.remote_prefix, &keyed, pair);
                hosts.outer.push_back(outer);
                host.act(Action::AddRewrite(rewrite(pair, outer)));
            }
            self.epochs.push_back(keyed);
            self.next_epoch = self.next_epoch.next();
        }
        while self.epochs.get(1).is_some_and(|second| second.start.saturating_add(overlap.after) <= now) {
            let over = self.epochs.pop_front().map(|over| over.epoch);
            for (pair, hosts) in &mut self.pairs {
                if hosts.sending == over {
                    stop(pair, hosts, host);
                }
                if let Some(outer) = hosts.outer.pop_front() {
                    host.act(Action::RemoveRewrite(rewrite(pair, outer)));
                }
            }
        }
    }

    /// Takes over which pairs there are, each with whether the peer takes its packets.
    pub(super) fn set_pairs(&mut self, pairs: &HashMap<Pair, bool>, now: Time, host: &mut HostInterface) {
        self.changed = false;
        self.pairs.retain(|pair, hosts| {
            let stays = pairs.contains_key(pair);
            if !stays {
                forget(pair, hosts, host);
            }
            stays
        });
        for (pair, known) in pairs {
            let hosts = self.pairs.entry(*pair).or_insert_with(|| {
                let outer_of = |keyed| outer(self.role, self.local_prefix, self.remote_prefix, keyed, pair);
                let outer: VecDeque<_> = self.epochs.iter().map(outer_of).collect();
                outer.iter().for_each(|outer| host.act(Action::AddRewrite(rewrite(pair, *outer))));
                Hosts { known: None, outer, sending: None }
            });
            hosts.known = known.then(|| hosts.known.unwrap_or(now));
        }
    }

    /// Whether packets leave is up to the session: they do while it is `in_use`, with the addresses of the epoch that is
    /// current.
    pub(super) fn send(&mut self, in_use: bool, clock: i64, now: Time, host: &mut HostInterface) {
        self.in_use = in_use.then(|| self.in_use.unwrap_or(now));
        let current = self.schedule.current(clock);
        let at = self.epochs.iter().position(|keyed| keyed.epoch == current);
        for (pair, hosts) in &mut self.pairs {
            let since = self.in_use.zip(hosts.known).map(|(one, other)| one.max(other));
            if since.is_none_or(|since| now < since + MARGIN) {
                stop(pair, hosts, host);
            } else if let Some(at) = at
                && hosts.sending != Some(current)
            {
                hosts.sending = Some(current);
                let Rewrite { inner, outer } = rewrite(pair, hosts.outer[at]);
                host.act(Action::Replace { inner, outer: Some(outer) });
            }
        }
    }

    /// When there is something to do next, on the session clock and by the time.
    pub(super) fn deadline(&self, now: i64, overlap: Overlap) -> (i64, Option<Time>) {
        let opens = self.next_start().saturating_sub(overlap.before);
        let closes = self.epochs.get(1).map(|second| second.start.saturating_add(overlap.after));
        let starts = self.epochs.iter().map(|epoch| epoch.start).find(|start| *start > now);
        let waits = self.pairs.values().filter(|hosts| hosts.sending.is_none());
        let since = waits.filter_map(|hosts| self.in_use.zip(hosts.known));
        let sends = since.map(|(one, other)| one.max(other) + MARGIN).min();
        ([starts, closes].into_iter().flatten().fold(opens, i64::min), sends)
    }

    /// When the next epoch begins whose keys were not asked for yet, on the session clock.
    pub(super) fn next_start(&self) -> i64 {
        self.schedule.start(self.next_epoch)
    }

    /// When the last epoch begins in which packets are taken, or will be.
    pub(super) fn latest_start(&self) -> i64 {
        self.epochs.back().map_or(i64::MIN, |epoch| epoch.start)
    }

    /// Forgets all pairs.
    pub(super) fn close(&mut self, host: &mut HostInterface) {
        self.pairs.drain().for_each(|(pair, mut hosts)| forget(&pair, &mut hosts, host));
    }
}

fn stop(pair: &Pair, hosts: &mut Hosts, host: &mut HostInterface) {
    if hosts.sending.take().is_some() {
        host.act(Action::Replace { inner: addresses(pair), outer: None });
    }
}

fn forget(pair: &Pair, hosts: &mut Hosts, host: &mut HostInterface) {
    stop(pair, hosts, host);
    hosts.outer.drain(..).for_each(|outer| host.act(Action::RemoveRewrite(rewrite(pair, outer))));
}

fn rewrite(pair: &Pair, outer: (Ipv6Addr, Ipv6Addr)) -> Rewrite {
    Rewrite { inner: addresses(pair), outer }
}

/// The addresses of a pair in an epoch, ours first.
fn outer(
    role: Role,
    local: Ipv6Net,
    remote: Ipv6Net,
    keyed: &KeyedEpoch,
    pair: &Pair,
) -> (Ipv6Addr, Ipv6Addr) {
    let (ours, theirs) = addresses(pair);
    let hosts = if role == Role::L { [ours, theirs] } else { [theirs, ours] };
    let at = |key: &Secret, prefix| endpoint::derive_replaced(key, prefix, keyed.epoch, hosts);
    (at(&keyed.keys.0, local), at(&keyed.keys.1, remote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::contexts::pair;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const OVERLAP: Overlap = Overlap { before: 1_000, after: 3_000 };

    /// One end, and what it has asked of its host.
    struct End {
        rewriting: Rewriting,
        host: HostInterface,
        taken: HashSet<(Ipv6Addr, Ipv6Addr)>,
        sent: HashMap<(Ipv6Addr, Ipv6Addr), (Ipv6Addr, Ipv6Addr)>,
    }

    impl End {
        fn new(role: Role, schedule: &Schedule) -> Self {
            let prefixes = ["2001:db8:a1::/64", "2001:db8:b1::/64"].map(|text| text.parse().unwrap());
            let [local, remote] = if role == Role::L { prefixes } else { [prefixes[1], prefixes[0]] };
            End {
                rewriting: Rewriting::new(role, local, remote, schedule.clone()),
                host: HostInterface::new(|| [0; 32]),
                taken: HashSet::new(),
                sent: HashMap::new(),
            }
        }

        fn poll(&mut self, now: i64, pairs: &HashMap<Pair, bool>) {
            let keys = [1, 2].map(|n| Secret::new([n; 32]));
            let own = usize::from(self.rewriting.role == Role::H);
            let keys = |_| (keys[own].clone(), keys[1 - own].clone());
            let time = Time::from_micros(now as u64 * 1_000);
            self.rewriting.open(now, OVERLAP, keys, &mut self.host);
            self.rewriting.set_pairs(pairs, time, &mut self.host);
            self.rewriting.send(true, now, time, &mut self.host);
            while let Some(action) = self.host.next_action() {
                match action {
                    Action::AddRewrite(Rewrite { outer, .. }) => assert!(self.taken.insert(outer)),
                    Action::RemoveRewrite(Rewrite { outer, .. }) => assert!(self.taken.remove(&outer)),
                    Action::Replace { inner, outer: Some(outer) } => drop(self.sent.insert(inner, outer)),
                    Action::Replace { inner, outer: None } => assert!(self.sent.remove(&inner).is_some()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_one_end_sends_the_other_takes(key: [u8; 32], interval in 1_000u64..20_000, skew in 0i64..900) {
            let schedule = Schedule::new(key, interval);
            let (mut one, mut other) = (End::new(Role::L, &schedule), End::new(Role::H, &schedule));
            let hosts = ("fd00:a::1".parse().unwrap(), "fd00:b::1".parse().unwrap());
            let at_one = HashMap::from([(pair(hosts.0, hosts.1), true)]);
            let at_other = HashMap::from([(pair(hosts.1, hosts.0), true)]);
            let mut used = HashSet::new();
            for now in (1_000..60_000).step_by(50) {
                one.poll(now, &at_one);
                other.poll(now + skew, &at_other);
                for (from, to) in [(&one, &other), (&other, &one)] {
                    for (local, remote) in from.sent.values() {
                        prop_assert!(to.taken.contains(&(*remote, *local)), "{now}");
                        used.insert(*local);
                    }
                }
            }
            prop_assert!(used.len() as u64 >= 60_000 / interval);
            one.poll(60_000, &HashMap::new());
            prop_assert!(one.sent.is_empty() && one.taken.is_empty());
        }
    }
}
