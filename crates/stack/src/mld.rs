//! Multicast listener discovery, the listener's side (RFC 3810; version 1: RFC 2710): which groups are listened to, and when
//! that is reported.
//!
//! A host here listens to all sources of a group, so that a group's state is one bit, and all records are of a filter mode
//! without sources. A query for certain sources is answered as one for the group.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use wire::mld::{self, Query, RecordType, Version};
use wire::ndp::ALL_NODES;

use crate::random::Random;
use crate::soonest::Soonest;

/// Groups that are listened to: those of the addresses, and what the caller joins.
pub const MAX_GROUPS: usize = 128;
/// How often a change is reported (RFC 3810 §9.1).
const ROBUSTNESS: u8 = 2;
/// Within which the repetition of a change is sent (RFC 3810 §9.11).
const UNSOLICITED_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a router of version 1 counts after its query, beside the response delay: the robustness variable times the
/// default query interval (RFC 3810 §9.12).
const OLDER_VERSION_QUERIER: Duration = Duration::from_secs(250);

#[derive(Debug, Default)]
struct Group {
    /// How many have joined; with 0 it is kept until its end is reported.
    members: usize,
    /// Reports of the change still to send, and when.
    change: Option<(u8, Instant)>,
    /// When a query is to be answered.
    response: Option<Instant>,
}

/// The groups that an interface listens to.
#[derive(Debug, Default)]
pub struct Listener {
    groups: BTreeMap<Ipv6Addr, Group>,
    soonest: Soonest,
    version_1_until: Option<Instant>,
}

impl Listener {
    /// Listens to a group, which is reported from `from` on; each time counts. Returns whether there was room.
    pub fn join(&mut self, from: Instant, group: Ipv6Addr) -> bool {
        if !self.groups.contains_key(&group) && self.groups.len() >= MAX_GROUPS {
            return false;
        }
        let entry = self.groups.entry(group).or_default();
        entry.members += 1;
        if entry.members == 1 && is_reported(group) {
            entry.change = Some((ROBUSTNESS, from));
            self.soonest.note(Some(from));
        }
        true
    }

    /// Takes one [`Listener::join`] back.
    pub fn leave(&mut self, now: Instant, group: Ipv6Addr) {
        let Some(entry) = self.groups.get_mut(&group) else { return };
        entry.members = entry.members.saturating_sub(1);
        if entry.members > 0 {
            return;
        }
        if is_reported(group) {
            entry.change = Some((ROBUSTNESS, now));
            entry.response = None;
            self.soonest.note(Some(now));
        } else {
            self.groups.remove(&group);
        }
    }

    /// Whether packets to this group are taken.
    pub fn listens_to(&self, group: Ipv6Addr) -> bool {
        group == ALL_NODES || self.groups.get(&group).is_some_and(|entry| entry.members > 0)
    }

    /// A router asks (RFC 3810 §6.2, §8.2.1).
    pub fn asked(&mut self, now: Instant, query: &Query<'_>, random: &mut Random) {
        let most = query.maximum_response_delay;
        if query.version == Version::V1 {
            self.version_1_until = Some(now + OLDER_VERSION_QUERIER + most);
        }
        let listened =
            self.groups.iter_mut().filter(|(group, entry)| entry.members > 0 && is_reported(**group));
        for (group, entry) in listened {
            if query.group.is_none_or(|wanted| wanted == *group) {
                let at = now + random.between(Duration::ZERO, most);
                entry.response = Some(entry.response.map_or(at, |earlier| earlier.min(at)));
                self.soonest.note(Some(at));
            }
        }
    }

    /// Somebody else has reported a group in version 1: that is enough (RFC 2710 §4).
    pub fn heard(&mut self, now: Instant, group: Ipv6Addr) {
        if self.version_1_until.is_some_and(|until| until > now)
            && let Some(entry) = self.groups.get_mut(&group)
        {
            entry.response = None;
        }
    }

    /// When [`Listener::handle_timeout`] may have something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.soonest.get()
    }

    /// The reports that are due, as whole packets from `source`: the link-local address, or the unspecified one.
    pub fn handle_timeout(&mut self, now: Instant, source: Ipv6Addr, random: &mut Random) -> Vec<Vec<u8>> {
        let version_1 = self.version_1_until.is_some_and(|until| until > now);
        let (mut records, mut packets) = (Vec::new(), Vec::new());
        self.groups.retain(|group, entry| {
            let listens = entry.members > 0;
            if entry.response.is_some_and(|at| at <= now) {
                entry.response = None;
                records.push((RecordType::IsExclude, *group));
            }
            if let Some((left, at)) = entry.change
                && at <= now
            {
                records.push((if listens { RecordType::ToExclude } else { RecordType::ToInclude }, *group));
                let again = now + random.between(Duration::ZERO, UNSOLICITED_REPORT_INTERVAL);
                // The end is told once in version 1 (RFC 2710 §4).
                let left = if version_1 && !listens { 0 } else { left - 1 };
                entry.change = (left > 0).then_some((left, again));
            }
            listens || entry.change.is_some()
        });
        let of = |entry: &Group| entry.change.map(|(_, at)| at).into_iter().chain(entry.response).min();
        self.soonest = Soonest::of(self.groups.values().filter_map(of));
        if version_1 {
            packets.extend(records.iter().map(|(kind, group)| match kind {
                RecordType::ToInclude => mld::done_v1(source, *group),
                RecordType::IsExclude | RecordType::ToExclude => mld::report_v1(source, *group),
            }));
        } else {
            packets.extend(records.chunks(mld::MAX_RECORDS).map(|records| mld::report(source, records)));
        }
        packets
    }
}

/// Not the group of all nodes, nor what does not leave the host (RFC 3810 §6).
fn is_reported(group: Ipv6Addr) -> bool {
    group != ALL_NODES && group.octets()[1] & 0xf > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ipv6::Packet;
    use wire::mld::QueryPacket;

    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 2);
    const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    struct Host {
        listener: Listener,
        random: Random,
        now: Instant,
    }

    impl Host {
        fn new() -> Self {
            Host { listener: Listener::default(), random: Random::new([1; 32]), now: Instant::now() }
        }

        /// Type of the message, and of the first record, of each packet until the time has passed.
        fn reports(&mut self, time: Duration) -> Vec<(u8, u8)> {
            let end = self.now + time;
            let mut reports = Vec::new();
            while let Some(next) = self.listener.deadline()
                && next <= end
            {
                self.now = next.max(self.now);
                let packets = self.listener.handle_timeout(self.now, US, &mut self.random);
                reports.extend(packets.iter().map(|packet| (packet[48], packet[56])));
            }
            self.now = end;
            reports
        }

        fn ask(&mut self, version: Version, group: Option<Ipv6Addr>) {
            let source = "fe80::1".parse().unwrap();
            let query = QueryPacket { source, version, group, maximum_response_delay: 10_000 };
            let packet = query.to_packet();
            let view = Packet::parse(&packet).unwrap();
            let query = Query::parse(&view, &packet[48..]).unwrap();
            self.listener.asked(self.now, &query, &mut self.random);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rfc_3810_5_1_10_a_query_for_certain_sources_is_answered_as_one_for_the_group() {
        let mut host = Host::new();
        host.listener.join(host.now, GROUP);
        host.reports(SECOND * 60);
        let source = "fe80::1".parse().unwrap();
        let query =
            QueryPacket { source, version: Version::V2, group: Some(GROUP), maximum_response_delay: 1000 };
        // One source follows, which lengths and checksum of the packet do not matter for here.
        let mut message = query.to_packet()[48..].to_vec();
        message[26..28].copy_from_slice(&1u16.to_be_bytes());
        message.extend([0x20; 16]);
        let packet = query.to_packet();
        let query = Query::parse(&Packet::parse(&packet).unwrap(), &message).unwrap();
        assert_eq!(query.sources().count(), 1);
        host.listener.asked(host.now, &query, &mut host.random);
        assert_eq!(host.reports(SECOND), [(wire::icmpv6::MULTICAST_LISTENER_REPORT, 2)]);
    }

    #[test]
    fn rfc_3810_6_1_a_change_is_reported_twice() {
        let mut host = Host::new();
        host.listener.join(host.now, GROUP);
        assert_eq!(host.reports(SECOND * 2), [(143, 4), (143, 4)]);
        host.listener.join(host.now, GROUP);
        host.listener.leave(host.now, GROUP);
        assert_eq!(host.reports(SECOND), []);
        host.listener.leave(host.now, GROUP);
        assert!(!host.listener.listens_to(GROUP));
        assert_eq!(host.reports(SECOND * 2), [(143, 3), (143, 3)]);
        assert!(host.listener.groups.is_empty());
    }

    #[test]
    fn rfc_3810_6_2_a_query_is_answered_in_its_time() {
        let mut host = Host::new();
        host.listener.join(host.now, GROUP);
        host.reports(SECOND * 2);
        host.ask(Version::V2, None);
        host.ask(Version::V2, Some(GROUP));
        assert_eq!(host.reports(SECOND * 10), [(143, 2)]);
        host.ask(Version::V2, Some("ff02::1:ff00:3".parse().unwrap()));
        assert_eq!(host.reports(SECOND * 10), []);
    }

    #[test]
    fn rfc_3810_8_a_router_of_version_1_is_answered_in_its_version() {
        let mut host = Host::new();
        host.listener.join(host.now, GROUP);
        host.reports(SECOND * 2);
        host.ask(Version::V1, None);
        assert_eq!(host.reports(SECOND * 10).iter().map(|report| report.0).collect::<Vec<_>>(), [131]);
        host.ask(Version::V1, None);
        host.listener.heard(host.now, GROUP);
        assert_eq!(host.reports(SECOND * 10), [], "somebody else has answered");
        host.listener.leave(host.now, GROUP);
        assert_eq!(host.reports(SECOND * 2)[0].0, 132);
        host.listener.join(host.now, GROUP);
        host.now += Duration::from_secs(300);
        assert_eq!(host.reports(SECOND * 2), [(143, 4), (143, 4)], "in time version 2 is back");
    }

    #[test]
    fn rfc_3810_6_the_group_of_all_nodes_is_never_reported() {
        let mut host = Host::new();
        host.listener.join(host.now, ALL_NODES);
        assert_eq!(host.reports(SECOND * 2), []);
        assert!(host.listener.listens_to(ALL_NODES));
    }
}
