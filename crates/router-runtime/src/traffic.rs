//! What the kernel has counted of a gateway's packets, by rule of the firewall and by host; and the tunnel's peers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use linux::conntrack::{self, Connection};

use crate::firewall::{Count, Counts};
use crate::nat;
use control::router_status::{Fallback, Firewall, Pair, Peer, Rule, Status, Talker};
use control::{Reply, Request};

/// So many rules, and hosts, are told.
const MOST_RULES: usize = 50;
const MOST_TALKERS: usize = 10;

/// Whom to ask, beside the gateway's own thread.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    /// Networks of the gateway's hosts, each with the gateway's own address in it.
    pub(super) networks: Vec<IpNet>,
    /// The tunnel's control socket.
    pub(super) tunnel: Option<PathBuf>,
    /// Of the firewall's rules the lines, and what each is for.
    pub(super) rules: Vec<(usize, String)>,
}

impl Sources {
    /// Adds what they say. That takes as long as `nft` lists the firewall, so it is no work for the gateway's thread.
    pub(super) fn add_to(&self, status: &mut Status) {
        match Counts::read() {
            Ok(counts) => {
                status.firewall = counts.as_ref().map(|counts| firewall(counts, &self.rules, MOST_RULES));
            }
            Err(error) => {
                status.problems.push(format!("the firewall's counters cannot be read: {error}"));
            }
        }
        match nat::counted(status.forwards.len()) {
            Ok(counts) => {
                for (forward, count) in status.forwards.iter_mut().zip(counts) {
                    forward.connections = count;
                }
            }
            Err(error) => status.problems.push(format!("what is forwarded cannot be counted: {error}")),
        }
        let mut talkers = Talkers { networks: &self.networks, connections: 0, hosts: HashMap::new() };
        let mut offloaded = 0;
        let counted = conntrack::is_counted();
        status.talkers_incomplete = match counted {
            None => Some("the kernel tracks no connections (nf_conntrack)".to_owned()),
            Some(_) => {
                let asked = conntrack::for_each(|connection| {
                    offloaded += u64::from(connection.is_offloaded);
                    talkers.add(&connection);
                });
                asked.err().map(|error| error.to_string())
            }
        };
        if counted == Some(false) && status.talkers_incomplete.is_none() {
            status.talkers_incomplete = Some(
                "bytes are not counted: `sysctl net.netfilter.nf_conntrack_acct=1` turns that on for new connections"
                    .to_owned(),
            );
        }
        if let Some(offload) = &mut status.flow_offload {
            offload.connections = offloaded;
        }
        status.connections = talkers.connections;
        status.talkers = talkers.first();
        // A daemon that does not answer is about to start, or to end.
        let tunnel = self.tunnel.as_deref().and_then(|socket| control::ask(socket, &Request::Show).ok());
        if let Some(tunnel) =
            tunnel.and_then(|value| serde_json::from_value::<control::tunnel_status::Status>(value).ok())
        {
            status.peers = peers(&tunnel);
            if tunnel.keylog {
                let tunnel = &tunnel.tunnel;
                status.problems.push(format!(
                    "the keys of {tunnel} are logged (up --keylog): whoever has the file reads the recorded traffic"
                ));
            }
        }
    }
}

/// What the firewall has counted, of all rules that have counted something.
pub(super) fn firewall_in_full(named: &[(usize, String)]) -> Reply {
    match Counts::read() {
        Ok(counts) => Reply::of(&counts.as_ref().map(|counts| firewall(counts, named, usize::MAX))),
        Err(error) => Reply::Error(format!("the firewall's counters cannot be read: {error}")),
    }
}

fn firewall(counts: &Counts, named: &[(usize, String)], most_rules: usize) -> Firewall {
    use router::firewall::Verdict;
    let with = |verdict| move |count: &&Count| count.verdict == Some(verdict);
    let all = || counts.rules.values().chain(counts.defaults.values());
    let packets = |verdict| all().filter(with(verdict)).map(|count| count.packets).sum();
    let refused = |count: &&Count| with(Verdict::Drop)(count) || with(Verdict::Reject)(count);
    let text = |count: &Count| count.verdict.map(|verdict| verdict.to_string());
    let mut rules: Vec<_> = counts.rules.iter().filter(|(_, count)| count.packets > 0).collect();
    rules.sort_by_key(|(number, count)| (std::cmp::Reverse(count.packets), **number));
    let rules = rules.into_iter().take(most_rules).map(|(number, count)| {
        let named = number.checked_sub(1).and_then(|index| named.get(index));
        Rule {
            number: *number,
            verdict: text(count),
            comment: named.map_or_else(String::new, |(_, comment)| comment.clone()),
            line: named.map(|(line, _)| *line),
            packets: count.packets,
            bytes: count.bytes,
        }
    });
    let mut defaults: Vec<_> = counts.defaults.iter().filter(|(_, count)| count.packets > 0).collect();
    defaults.sort_by_key(|(reason, count)| (std::cmp::Reverse(count.packets), *reason));
    let defaults = defaults.into_iter().map(|(reason, count)| Fallback {
        reason: reason.clone(),
        verdict: text(count),
        packets: count.packets,
        bytes: count.bytes,
    });
    let mut pairs: Vec<_> = counts.pairs.iter().filter(|(_, count)| count.packets > 0).collect();
    pairs.sort_by_key(|(pair, count)| (std::cmp::Reverse(count.packets), *pair));
    let pairs = pairs.into_iter().map(|((from, to), count)| Pair {
        from: from.clone(),
        to: to.clone(),
        packets: count.packets,
        bytes: count.bytes,
    });
    Firewall {
        pairs: pairs.collect(),
        dropped_packets: packets(Verdict::Drop),
        rejected_packets: packets(Verdict::Reject),
        refused_by_default_packets: counts.defaults.values().filter(refused).map(|count| count.packets).sum(),
        rules: rules.collect(),
        defaults: defaults.collect(),
    }
}

/// Whether a host behind the gateway has this address. `networks`: as in [`Sources`].
pub(crate) fn is_behind(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address) && network.addr() != address)
}

/// Connections by the hosts behind the gateway that have them.
struct Talkers<'a> {
    networks: &'a [IpNet],
    connections: u64,
    hosts: HashMap<IpAddr, Talker>,
}

impl Talkers<'_> {
    fn add(&mut self, connection: &Connection) {
        self.connections += 1;
        let Connection { original, sent, received, .. } = *connection;
        for (address, sent, received) in
            [(original.source, sent, received), (original.destination, received, sent)]
        {
            if !is_behind(self.networks, address) {
                continue;
            }
            let host = self.hosts.entry(address).or_insert(Talker {
                address,
                connections: 0,
                sent_bytes: None,
                sent_packets: None,
                received_bytes: None,
                received_packets: None,
            });
            host.connections += 1;
            for (sum, more) in [
                (&mut host.sent_bytes, sent.map(|count| count.bytes)),
                (&mut host.sent_packets, sent.map(|count| count.packets)),
                (&mut host.received_bytes, received.map(|count| count.bytes)),
                (&mut host.received_packets, received.map(|count| count.packets)),
            ] {
                if let Some(more) = more {
                    *sum = Some(sum.unwrap_or(0).saturating_add(more));
                }
            }
        }
    }

    /// Those with the most octets; of equal ones, with the most connections.
    fn first(self) -> Vec<Talker> {
        let mut hosts: Vec<_> = self.hosts.into_values().collect();
        let octets =
            |host: &Talker| host.sent_bytes.unwrap_or(0).saturating_add(host.received_bytes.unwrap_or(0));
        hosts.sort_by_key(|host| (std::cmp::Reverse((octets(host), host.connections)), host.address));
        hosts.truncate(MOST_TALKERS);
        hosts
    }
}

fn peers(tunnel: &control::tunnel_status::Status) -> Vec<Peer> {
    let peer = |peer: &control::tunnel_status::Peer| Peer {
        tunnel: tunnel.tunnel.clone(),
        name: peer.name.clone(),
        state: peer.state,
        rtt_ms: peer.rtt_ms,
        next_rotation_ms: peer.next_rotation_ms,
        sent_bytes: peer.tx_bytes,
        received_bytes: peer.rx_bytes,
    };
    tunnel.peers.iter().map(peer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::conntrack::{Count as Carried, Direction};
    use router::firewall::Verdict;

    #[test]
    fn hosts_behind_the_gateway_are_told_by_what_they_carry() {
        let networks = ["2001:db8:5::1/64".parse().unwrap(), "192.168.5.1/24".parse().unwrap()];
        let mut talkers = Talkers { networks: &networks, connections: 0, hosts: HashMap::new() };
        let connection = |source: &str, destination: &str, sent: Option<u64>, received: Option<u64>| {
            let carried = |bytes| Carried { packets: 1, bytes };
            let direction = |source: &str, destination: &str| Direction {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                source_port: 0,
                destination_port: 0,
                icmp: [0; 2],
            };
            Connection {
                protocol: 6,
                id: 0,
                original: direction(source, destination),
                reply: direction(destination, source),
                sent: sent.map(carried),
                received: received.map(carried),
                began_ms: None,
                is_closed: false,
                is_offloaded: false,
            }
        };
        for one in [
            connection("2001:db8:5::a", "2001:db8:ffff::1", Some(100), Some(1_000)),
            connection("2001:db8:ffff::1", "2001:db8:5::a", Some(30), None),
            connection("192.168.5.7", "192.0.2.1", Some(5_000), Some(1)),
            connection("2001:db8:5::b", "2001:db8:5::a", None, None),
            // The gateway's own.
            connection("2001:db8:1::1", "2001:db8:ffff::1", Some(9_999), Some(9_999)),
            connection("2001:db8:5::1", "2001:db8:ffff::1", Some(9_999), Some(9_999)),
        ] {
            talkers.add(&one);
        }
        assert_eq!(talkers.connections, 6);
        let first = talkers.first();
        let told = |host: &Talker| {
            (host.address.to_string(), host.connections, host.sent_bytes, host.received_bytes)
        };
        assert_eq!(
            first.iter().map(told).collect::<Vec<_>>(),
            [
                ("192.168.5.7".to_owned(), 1, Some(5_000), Some(1)),
                ("2001:db8:5::a".to_owned(), 3, Some(100), Some(1_030)),
                ("2001:db8:5::b".to_owned(), 1, None, None),
            ]
        );
    }

    #[test]
    fn what_the_firewall_refuses_by_rule_and_by_default_is_told_apart() {
        let count = |packets, verdict| Count { packets, bytes: packets * 100, verdict: Some(verdict) };
        let mut counts = Counts::default();
        for number in 1..=9 {
            counts.rules.insert(number, count(number as u64, Verdict::Accept));
        }
        counts.rules.insert(10, count(20, Verdict::Drop));
        counts.defaults.insert("refused".to_owned(), count(7, Verdict::Reject));
        counts.defaults.insert("it is told nothing".to_owned(), count(0, Verdict::Drop));
        counts.defaults.insert("an error message".to_owned(), count(3, Verdict::Accept));
        let told = firewall(&counts, &[], 5);
        assert_eq!(
            (told.dropped_packets, told.rejected_packets, told.refused_by_default_packets),
            (20, 7, 7)
        );
        assert_eq!(told.rules.iter().map(|rule| rule.number).collect::<Vec<_>>(), [10, 9, 8, 7, 6]);
        assert_eq!(told.rules[0].verdict.as_deref(), Some("drop"));
        assert_eq!(told.defaults.len(), 2);
        assert_eq!((told.defaults[0].reason.as_str(), told.defaults[0].bytes), ("refused", 700));
    }
}
