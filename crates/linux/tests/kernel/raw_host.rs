use std::net::IpAddr;

use linux::netlink::{MAIN, Netlink, Route, Rule, Selects, TableRoute, Via};
use linux::netns;
use linux::raw_host::{HostRawSocket, SLOT};
use linux::undo::{Journal, Step};
use wire::{ipv4, ipv6, protocol};

use crate::network::{A, B, LINK, Node, Pair, eventually};

fn packet(from: IpAddr, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    let header = match (from, to) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
            traffic_class: 1,
            flow_label: 0,
            payload_length: payload.len() as u16,
            next_header: protocol::ESP,
            hop_limit: 33,
            source,
            destination,
        }
        .to_bytes()
        .to_vec(),
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Header {
            type_of_service: 1,
            total_length: (ipv4::HEADER_LEN + payload.len()) as u16,
            identification: 7,
            dont_fragment: true,
            time_to_live: 33,
            protocol: protocol::ESP,
            source,
            destination,
        }
        .to_bytes()
        .to_vec(),
        _ => Vec::new(),
    };
    [header, payload.to_vec()].concat()
}

#[test]
fn esp_goes_whole_and_in_batches_and_nobody_is_told_that_it_is_unreachable() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.must(&format!("ip address add 192.0.2.1/24 dev {LINK}"));
    pair.b.must(&format!("ip address add 192.0.2.2/24 dev {LINK}"));
    let ends: [[IpAddr; 2]; 2] =
        [[A.into(), B.into()], ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap())];
    for [from, to] in ends {
        let open = || HostRawSocket::open(protocol::ESP, from.is_ipv6(), None, 1 << 20).unwrap();
        let (sender, receiver) = (pair.a.run(open), pair.b.run(open));
        let packets: Vec<u8> = (0..40).flat_map(|number| packet(from, to, &[number; 100])).collect();
        let size = packets.len() / 40;
        assert_eq!(sender.send(&packets, size, from, to).unwrap(), 40);
        let (mut arrived, mut buffer, mut received) = (Vec::new(), vec![0; 4 * SLOT], Vec::new());
        eventually(|| {
            receiver.recv(&mut buffer, &mut received).unwrap();
            arrived.extend(received.iter().map(|one| buffer[one.at.clone()].to_vec()));
            (arrived.len() == 40).then_some(())
        });
        assert_eq!(received.last().unwrap().interface, pair.b.link().index);
        // The kernel writes the checksum of IPv4, as we do.
        assert_eq!(arrived.concat(), packets);
        assert_eq!(sender.send(&packet(from, to, &[0; 2000]), 2100, from, to).unwrap(), 0);
        let too_big = eventually(|| sender.recv_too_big().unwrap());
        assert_eq!((too_big.destination, too_big.mtu), (to, 1500));
        assert_eq!(refusals(&pair.b, from), 0);
        drop(receiver);
        sender.send(&packet(from, to, &[0; 100]), 200, from, to).unwrap();
        eventually(|| (refusals(&pair.b, from) > 0).then_some(()));
    }
}

/// How often a node has told somebody that a protocol is not there.
fn refusals(node: &Node, version: IpAddr) -> u64 {
    let [file, name] =
        if version.is_ipv6() { ["snmp6", "Icmp6OutParmProblems"] } else { ["snmp", "OutDestUnreachs"] };
    let text = node.must(&format!("cat /proc/net/{file}"));
    if version.is_ipv6() {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        return line.split_whitespace().next_back().unwrap().parse().unwrap();
    }
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp: ")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(found, _)| *found == name).unwrap().1.parse().unwrap()
}

#[test]
fn a_rule_leads_to_a_table_and_past_it_by_a_mark_until_the_journal_is_undone() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.must(&format!("ip route add default via {B} dev {LINK}"));
    let folder = tempfile::tempdir().unwrap();
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let (mut journal, _) = Journal::open(&folder.path().join("journal"), &mut netlink).unwrap();
        let there: IpAddr = "2001:db8:5::1".parse().unwrap();
        let (table, mark) = (0x7300_0001, 0x7300_0001);
        let via = Via::Unreachable { metric: 0xf000_0000, source: None };
        let route = TableRoute { table, route: Route { destination: there.into(), via }, source: None };
        let marked = Rule {
            priority: 5300,
            selects: Selects::Marked { mark, mask: u32::MAX, is_ipv6: true },
            table: MAIN,
        };
        let to = Rule { priority: 5301, selects: Selects::OwnTo(there.into()), table };
        journal.add_table_route(&mut netlink, route.clone()).unwrap();
        for rule in [marked, to] {
            journal.add_rule(&mut netlink, rule).unwrap();
            assert!(netlink.add_rule(&rule).unwrap_err().already_exists());
        }
        assert_eq!(netlink.route_to(there).unwrap(), None);
        assert!(netlink.marked_route_to(there, mark).unwrap().is_some());
        let into = TableRoute { table, route: Route::device(there.into(), 1), source: Some(A.into()) };
        netlink.add_table_route(&into).unwrap();
        let hop = netlink.route_to(there).unwrap().unwrap();
        assert_eq!((hop.index, hop.source), (1, Some(A.into())));
        assert!(netlink.delete_table_route(&into).unwrap());
        assert!(journal.done().contains(&Step::Rule(to)));
        journal.undo_all(&mut netlink).unwrap();
        assert!(netlink.route_to(there).unwrap().is_some());
        assert!(!netlink.delete_rule(&to).unwrap() && !netlink.delete_table_route(&route).unwrap());
    });
}
