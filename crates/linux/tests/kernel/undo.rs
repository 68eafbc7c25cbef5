use std::net::Ipv6Addr;
use std::path::Path;

use linux::forwarding::IpVersion;
use linux::netlink::{NeighborState, Netlink, Route, Via};
use linux::netns;
use linux::nft::PrefixDelivery;
use linux::undo::Journal;
use wire::ethernet::MacAddress;

use crate::network::{LINK, Node, Pair, dark};

const TUNNEL: &str = "mt6d0";
const COMING: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x77);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

/// All that the program would find or leave in the kernel.
fn state(node: &Node) -> String {
    // The kernel makes link-local addresses by itself, a moment after the link is up.
    node.must("(ip -6 route show table all; ip -4 route show table all; ip neighbor; ip -6 -o address) | grep -v fe80:; nft list ruleset; cat /proc/sys/net/ipv6/conf/all/forwarding")
}

fn set_up(netlink: &mut Netlink, path: &Path) -> Journal {
    let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
    let (mut journal, _) = Journal::open(path, netlink).unwrap();
    let prefix = "2001:db8:a1::/64";
    journal.add_route(netlink, Route::local(prefix.parse().unwrap())).unwrap();
    journal.add_route(netlink, Route::device("2001:db8:b::/48".parse().unwrap(), index)).unwrap();
    journal.add_route(netlink, Route::device("198.51.100.0/24".parse().unwrap(), index)).unwrap();
    journal.add_neighbor(netlink, index, COMING, MAC, NeighborState::Permanent).unwrap();
    journal.darken(&dark(TUNNEL, prefix, PrefixDelivery::Routed, &[]), "").unwrap();
    journal.add_address(netlink, index, "2001:db8:e::1/64".parse().unwrap(), None).unwrap();
    journal.set_table("ip", "sidestep-test", "table ip sidestep-test { }").unwrap();
    journal.set_global("ipv6/conf/all/forwarding", "1").unwrap();
    journal
}

#[test]
fn a_clean_end_leaves_the_kernel_as_it_was_and_no_file() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/mt6d0.undo");
    let before = state(&pair.a);
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let mut journal = set_up(&mut netlink, &path);
        assert_eq!(journal.done().len(), 8);
        assert_ne!(state(&pair.a), before);
        journal.delete_route(&mut netlink, &Route::local("2001:db8:a1::/64".parse().unwrap())).unwrap();
        assert_eq!(journal.done().len(), 7);
        journal.undo_all(&mut netlink).unwrap();
    });
    assert_eq!(state(&pair.a), before);
    assert!(!path.exists());
}

#[test]
fn what_a_crash_leaves_is_taken_back_at_the_next_start() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mt6d0.undo");
    let before = state(&pair.a);
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        std::mem::forget(set_up(&mut netlink, &path));
        // Somebody cleaned up a part by hand meanwhile.
        pair.a.must("ip route delete local 2001:db8:a1::/64 dev lo");
        let (journal, left) = Journal::open(&path, &mut netlink).unwrap();
        assert_eq!((left.len(), journal.done().len()), (8, 0));
        assert_eq!(state(&pair.a), before);
        assert_eq!(Journal::open(&path, &mut netlink).unwrap().1, []);
    });
}

#[test]
fn what_others_made_is_not_taken_back() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mt6d0.undo");
    pair.a.must(&format!(
        "ip route add local 2001:db8:a1::/64 dev lo; ip route add 2001:db8:b::/48 dev {LINK}; \
         ip neighbor add {COMING} lladdr 02:00:00:00:00:05 dev {LINK}; nft add table ip6 foreign"
    ));
    let before = state(&pair.a);
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        let routes = [
            Route::local("2001:db8:a1::/64".parse().unwrap()),
            Route::device("2001:db8:b::/48".parse().unwrap(), index),
        ];
        let (mut journal, _) = Journal::open(&path, &mut netlink).unwrap();
        for route in routes {
            assert!(journal.add_route(&mut netlink, route).unwrap_err().already_exists());
        }
        let added = journal.add_neighbor(&mut netlink, index, COMING, MAC, NeighborState::Permanent);
        assert!(added.unwrap_err().already_exists());
        assert_eq!(journal.done(), []);
        journal.undo_all(&mut netlink).unwrap();

        // A journal that a crash left between writing a step down and finding that it is somebody else's.
        std::fs::write(
            &path,
            "{\"did\":{\"route\":{\"destination\":\"2001:db8:a1::/64\",\"via\":\"local\"}}}\n\
             {\"did\":{\"neighbor\":{\"index\":2,\"address\":\"2001:db8:1::77\"}}}\n",
        )
        .unwrap();
        assert_eq!(Journal::open(&path, &mut netlink).unwrap().1.len(), 2);
    });
    assert_eq!(state(&pair.a), before);
}

#[test]
fn what_changes_along_with_forwarding_is_taken_back_too() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.journal");
    let set = |setting: &str, value: &str| pair.a.must(&format!("echo {value} > /proc/sys/net/{setting}"));
    let state = || {
        pair.a.must(
            "cd /proc/sys/net; for f in ipv[46]/conf/*/forwarding ipv4/conf/*/accept_redirects; do echo $f $(cat $f); done",
        )
    };
    let lan = format!("ipv4/conf/{LINK}/forwarding");
    for (setting, value) in [
        ("ipv4/ip_forward", "0"),
        ("ipv6/conf/all/forwarding", "0"),
        ("ipv4/conf/all/accept_redirects", "0"),
        (lan.as_str(), "1"),
        (&lan.replace("ipv4", "ipv6"), "1"),
    ] {
        set(setting, value);
    }
    let before = state();
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let forward = |netlink: &mut Netlink| {
            let (mut journal, left) = Journal::open(&path, netlink).unwrap();
            for version in [IpVersion::Ipv4, IpVersion::Ipv6] {
                for _ in 0..2 {
                    journal.forward(version, [LINK, "lo", "gone"].into_iter()).unwrap();
                }
            }
            assert_eq!(journal.done().len(), 2);
            (journal, left.len())
        };
        let (journal, _) = forward(&mut netlink);
        assert!(state().contains("ipv4/conf/default/forwarding 1"));
        journal.undo_all(&mut netlink).unwrap();
        assert_eq!(state(), before);
        // By a crash, after which somebody has a wish.
        std::mem::forget(forward(&mut netlink));
        let (journal, left) = forward(&mut netlink);
        assert_eq!(left, 2);
        set(&lan, "0");
        journal.undo_all(&mut netlink).unwrap();
        assert_eq!(state(), before.replace(&format!("{lan} 1"), &format!("{lan} 0")));
    });
}

#[test]
fn a_route_is_found_again_after_its_mtu_has_changed() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mt6d0.undo");
    let before = state(&pair.a);
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        let (mut journal, _) = Journal::open(&path, &mut netlink).unwrap();
        for destination in ["198.51.100.0/24", "203.0.113.0/24", "2001:db8:b::/48", "2001:db8:c::/48"] {
            let via = Via::Link { index, gateway: None, mtu: Some(1400), metric: None, source: None };
            let mut route = Route { destination: destination.parse().unwrap(), via };
            journal.add_route(&mut netlink, route.clone()).unwrap();
            netlink.set_route_mtu(&mut route, Some(1300)).unwrap();
            if destination.starts_with("198") || destination.ends_with("b::/48") {
                journal.delete_route(&mut netlink, &route).unwrap();
            }
        }
        assert_eq!(netlink.own_routes().unwrap().len(), 2);
        journal.undo_all(&mut netlink).unwrap();
    });
    assert_eq!(state(&pair.a), before);
}

#[test]
fn a_long_life_does_not_make_a_long_file() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mt6d0.undo");
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let (mut journal, _) = Journal::open(&path, &mut netlink).unwrap();
        journal.add_route(&mut netlink, Route::local("2001:db8:a1::/64".parse().unwrap())).unwrap();
        let passing = Route::local("2001:db8:1::77/128".parse().unwrap());
        for _ in 0..5_000 {
            journal.add_route(&mut netlink, passing.clone()).unwrap();
            journal.delete_route(&mut netlink, &passing).unwrap();
        }
        assert!(std::fs::read(&path).unwrap().split(|&byte| byte == b'\n').count() < 9_000);
        drop(journal);
        let (_, left) = Journal::open(&path, &mut netlink).unwrap();
        assert_eq!(left.len(), 1);
    });
}

#[test]
fn an_address_that_is_there_is_left_alone() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        let (mut journal, _) = Journal::open(&directory.path().join("journal"), &mut netlink).unwrap();
        let address = "2001:db8:e::1/64".parse().unwrap();
        netlink.add_address(index, address, false).unwrap();
        assert!(journal.add_address(&mut netlink, index, address, None).unwrap_err().already_exists());
        journal.undo_all(&mut netlink).unwrap();
        assert!(netlink.addresses(index).unwrap().iter().any(|found| found.address == address));
    });
}
