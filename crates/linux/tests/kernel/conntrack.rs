use linux::conntrack::{self, Connection, Count};
use linux::netns;

use crate::network::{A, B, Pair};

#[test]
fn connections_are_told_with_what_they_carry_once_that_is_counted() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let rules = "table ip6 t { chain c { type filter hook input priority 0; ct state invalid drop; }; }";
    pair.a.must(&format!("nft '{rules}'"));
    let connections = || {
        pair.a.run(|| {
            let mut all: Vec<Connection> = Vec::new();
            conntrack::for_each(|connection| all.push(connection)).unwrap();
            all.retain(|one| one.protocol == 58 && one.original.source == A && one.original.destination == B);
            all
        })
    };
    for (value, expected) in [(0, None), (1, Some(Count { packets: 2, bytes: 2 * 104 }))] {
        pair.a.must(&format!("sysctl -qw net.netfilter.nf_conntrack_acct={value}"));
        assert_eq!(pair.a.run(conntrack::is_counted), Some(value == 1));
        let before = connections().len();
        pair.a.must(&format!("ping -6 -c 2 -i 0.2 {B}"));
        let all = connections();
        assert_eq!(all.len(), before + 1, "{all:?}");
        assert!(all.iter().any(|one| one.sent == expected && one.received == expected), "{all:?}");
    }
}

/// More than one answer holds.
#[test]
fn a_thousand_connections_are_all_told() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.must(
        "nft 'table ip6 t { chain c { type filter hook output priority 0; ct state invalid drop; }; }'",
    );
    let told = pair.a.run(|| {
        for number in 0..1000_u16 {
            let socket = std::net::UdpSocket::bind((A, 20_000 + number)).unwrap();
            socket.send_to(b"x", (B, 9)).unwrap();
        }
        let mut count = 0;
        conntrack::for_each(|connection| count += u32::from(connection.protocol == 17)).unwrap();
        count
    });
    assert_eq!(told, 1000);
}
