use std::collections::BTreeSet;
use std::net::IpAddr;

use linux::features;
use linux::netlink::{Change, Lifetimes, Monitor, NeighborState, Netlink, Route, Via};
use linux::netns;
use wire::ethernet::MacAddress;

use crate::network::{A, B, LINK, Pair, eventually};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn what_is_below_an_interface_is_known_and_which_features_it_has() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.must(
        "ip link add bridge type bridge && ip link add port type veth peer name other && \
         ip link set port master bridge && ip link add link bridge name over type macvlan",
    );
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let mut below = |name: &str| {
            let index = netlink.link_by_name(name).unwrap().unwrap().index;
            let links = netlink.link_and_below(index).unwrap().into_iter();
            links.map(|link| link.name).collect::<BTreeSet<_>>()
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(below("over"), names(&["over", "bridge", "port"]));
        assert_eq!(below("port"), names(&["port"]));
        assert_eq!([below("other"), below(LINK)], [names(&["other"]), names(&[LINK])], "a cable's other end");

        let active = || features::active("port", &["no-such-feature", "rx-gro-list"]).unwrap();
        assert_eq!(active(), [""; 0]);
        pair.a.must("ethtool -K port rx-gro-list on");
        assert_eq!(active(), ["rx-gro-list"]);
        assert!(features::active("nowhere", &["rx-gro"]).is_err());
    });
}

#[test]
fn links_and_addresses_of_both_families() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link_by_name(LINK).unwrap().unwrap();
        assert!(link.up && link.running && link.mac.is_some() && link.mtu == 1500);
        assert_eq!(netlink.link_by_index(link.index).unwrap().unwrap(), link);
        assert_eq!(netlink.link_by_name("nothing").unwrap(), None);
        assert_eq!(netlink.link_by_name("a-name-that-is-too-long").unwrap(), None);
        assert_eq!(netlink.link_by_index(999).unwrap(), None);

        for text in ["2001:db8:2::1/64", "192.0.2.1/24"] {
            let address = text.parse().unwrap();
            netlink.add_address(link.index, address, false).unwrap();
            assert!(netlink.add_address(link.index, address, false).unwrap_err().already_exists());
            let all = netlink.addresses(link.index).unwrap();
            let found = all.iter().find(|found| found.address == address).unwrap();
            assert!(found.global && !found.tentative && !found.duplicate && !found.deprecated);
            assert!(netlink.delete_address(link.index, address).unwrap());
            assert!(!netlink.delete_address(link.index, address).unwrap());
        }
        let address = "2001:db8:2::1/64".parse().unwrap();
        let lifetimes = |preferred, valid| Lifetimes { preferred, valid };
        netlink.add_temporary_address(link.index, address, lifetimes(100, 200)).unwrap();
        let of_address = |netlink: &mut Netlink| {
            let all = netlink.addresses(link.index).unwrap();
            let found = all.iter().find(|found| found.address == address).unwrap();
            (found.deprecated, found.permanent)
        };
        assert_eq!(of_address(&mut netlink), (false, false));
        netlink.set_lifetimes(link.index, address, lifetimes(0, 300)).unwrap();
        assert_eq!(of_address(&mut netlink), (true, false));
        assert_eq!(netlink.route_to(ip("2001:db8:2::9")).unwrap(), None, "it comes without a route");
        let end = "fd00::1/128".parse().unwrap();
        netlink.add_deprecated_address(link.index, end).unwrap();
        assert!(netlink.add_deprecated_address(link.index, end).unwrap_err().already_exists());
        let all = netlink.addresses(link.index).unwrap();
        let found = all.iter().find(|found| found.address == end).unwrap();
        assert!(found.deprecated && found.permanent && !found.tentative);
        netlink.set_link_up(link.index, false).unwrap();
        assert!(!netlink.link_by_index(link.index).unwrap().unwrap().up);
    });
}

#[test]
fn routes_are_made_found_and_removed() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        netlink.add_address(index, "192.0.2.1/24".parse().unwrap(), false).unwrap();
        let through = |destination: &str, gateway: Option<IpAddr>, mtu| Route {
            destination: destination.parse().unwrap(),
            via: Via::Link { index, gateway, mtu, metric: None, source: None },
        };
        let unreachable = |destination: &str, source: Option<&str>| {
            let source = source.map(|source| source.parse().unwrap());
            Route {
                destination: destination.parse().unwrap(),
                via: Via::Unreachable { metric: 4_000, source },
            }
        };
        let routes = [
            through("2001:db8:b::/48", None, Some(1400)),
            through("2001:db8:c::/48", Some(B.into()), None),
            through("198.51.100.0/24", None, None),
            through("203.0.113.0/24", Some(ip("192.0.2.2")), Some(1300)),
            Route::local("2001:db8:a1::/64".parse().unwrap()),
            Route::local("2001:db8:1::77/128".parse().unwrap()),
            unreachable("2001:db8:d::/56", None),
            unreachable("::/0", Some("2001:db8:d::/56")),
        ];
        for route in &routes {
            netlink.add_route(route).unwrap();
            assert!(netlink.add_route(route).unwrap_err().already_exists(), "{route}");
        }
        let hop = netlink.route_to(ip("2001:db8:b::1")).unwrap().unwrap();
        assert_eq!((hop.index, hop.gateway, hop.mtu, hop.local), (index, None, Some(1400), false));
        assert_eq!(hop.source, Some(A.into()));
        let hop = netlink.route_to(ip("203.0.113.9")).unwrap().unwrap();
        assert_eq!((hop.gateway, hop.mtu), (Some(ip("192.0.2.2")), Some(1300)));
        assert_eq!(netlink.route_to(ip("2001:db8:c::1")).unwrap().unwrap().gateway, Some(B.into()));
        assert!(netlink.route_to(ip("2001:db8:a1::5")).unwrap().unwrap().local);
        assert_eq!(netlink.route_to(ip("2001:db8:ffff::1")).unwrap(), None);
        for (source, destination, gateway) in [
            ("192.0.2.1", "203.0.113.9", Some(ip("192.0.2.2"))),
            (&A.to_string(), "2001:db8:c::1", Some(B.into())),
        ] {
            let hop = netlink.route_by(index, ip(source), ip(destination)).unwrap().unwrap();
            assert_eq!((hop.index, hop.gateway), (index, gateway));
            // Only for this source. IPv4 takes what has no route by an interface for its neighbor.
            let rule = if destination.contains(':') { "ip -6 rule" } else { "ip rule" };
            pair.a.must(&format!("{rule} add from {source} to {destination} prohibit"));
            let hop = netlink.route_by(index, ip(source), ip(destination)).ok().flatten();
            assert_eq!(hop.and_then(|hop| hop.gateway), None, "{rule}");
            assert!(netlink.route_to(ip(destination)).unwrap().is_some());
            pair.a.must(&format!("{rule} del from {source} to {destination} prohibit"));
        }

        let mut route = routes[0].clone();
        netlink.set_route_mtu(&mut route, Some(1350)).unwrap();
        assert_eq!(netlink.route_to(ip("2001:db8:b::1")).unwrap().unwrap().mtu, Some(1350));

        let own = netlink.own_routes().unwrap();
        assert_eq!(own.len(), routes.len(), "{own:?}");
        for route in &routes {
            assert!(netlink.delete_route(route).unwrap(), "{route}");
            assert!(!netlink.delete_route(route).unwrap(), "{route}");
        }
        assert_eq!(netlink.own_routes().unwrap(), []);
    });
}

#[test]
fn routes_of_others_are_neither_replaced_nor_removed() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.must(&format!(
        "ip route add 2001:db8:b::/48 dev {LINK}; ip route add local 2001:db8:a1::/64 dev lo"
    ));
    pair.a.must(&format!("ip route add 198.51.100.0/24 dev {LINK}"));
    let before = pair.a.must("ip -6 route show table all; ip -4 route show table all");
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        for route in [
            Route::device("2001:db8:b::/48".parse().unwrap(), index),
            Route::device("198.51.100.0/24".parse().unwrap(), index),
            Route::local("2001:db8:a1::/64".parse().unwrap()),
        ] {
            assert!(netlink.add_route(&route).unwrap_err().already_exists(), "{route}");
            assert!(!netlink.delete_route(&route).unwrap(), "{route}");
        }
    });
    assert_eq!(pair.a.must("ip -6 route show table all; ip -4 route show table all"), before);
}

#[test]
fn neighbor_entries_are_ours_or_left_alone() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let mac = MacAddress([2, 0, 0, 0, 0, 9]);
    pair.a.must(&format!("ping -6 -c 1 -W 2 {B}"));
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        let learnt = netlink.neighbor(index, B.into()).unwrap().unwrap();
        assert_eq!(learnt.mac, pair.b.link().mac);
        assert!(learnt.usable && !learnt.own);
        assert!(netlink.add_neighbor(index, B, mac, NeighborState::Permanent).unwrap_err().already_exists());
        assert!(!netlink.delete_neighbor(index, B).unwrap());
        assert_eq!(netlink.neighbor(index, B.into()).unwrap().unwrap().mac, learnt.mac);

        let coming = "2001:db8:1::77".parse().unwrap();
        assert_eq!(netlink.neighbor(index, IpAddr::V6(coming)).unwrap(), None);
        for state in [NeighborState::Reachable, NeighborState::Permanent] {
            netlink.add_neighbor(index, coming, mac, state).unwrap();
            let entry = netlink.neighbor(index, coming.into()).unwrap().unwrap();
            assert!(entry.usable && entry.own && entry.mac == Some(mac));
            assert!(netlink.delete_neighbor(index, coming).unwrap());
            assert!(!netlink.delete_neighbor(index, coming).unwrap());
        }
        assert!(!netlink.delete_neighbor(999, coming).unwrap());
    });
}

#[test]
fn changes_are_told() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.run(|| {
        let mut monitor = Monitor::open().unwrap();
        let way = |change: &Change| matches!(change, Change::Route | Change::Neighbor(_));
        pair.a.must(&format!(
            "ip route add 2001:db8:77::/48 via {B} && ip neighbor add {B} lladdr 02:00:00:00:00:08 dev {LINK}"
        ));
        assert!(!monitor.read().unwrap().iter().any(way), "of ways hears only who asks");
        monitor.watch_routes().unwrap();
        assert!(!monitor.read().unwrap().iter().any(way));
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link_by_name(LINK).unwrap().unwrap().index;
        let address = "2001:db8:2::1/64".parse().unwrap();
        let told = |wanted: fn(&Change) -> bool| {
            eventually(|| monitor.read().unwrap().into_iter().find(wanted));
        };
        for line in [
            "ip route replace 2001:db8:77::/48 dev veth0",
            "ip route del 2001:db8:77::/48",
            "ip route add unreachable 2001:db8:79::/48",
            "ip rule add to 192.0.2.0/24 lookup 100",
            "ip -6 rule add to 2001:db8:79::/48 lookup 100",
            "ip -6 rule del to 2001:db8:79::/48 lookup 100",
        ] {
            pair.a.must(line);
            told(|change| matches!(change, Change::Route));
        }
        pair.a.must(&format!("ip neighbor replace {B} lladdr 02:00:00:00:00:09 dev {LINK}"));
        told(|change| matches!(change, Change::Neighbor(_)));
        // What hopping makes by the dozen is not told.
        pair.a.must("ip route add local 2001:db8:78::1/128 dev lo");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!monitor.read().unwrap().contains(&Change::Route));
        netlink.add_address(index, address, false).unwrap();
        told(|change| matches!(change, Change::Address(_)));
        netlink.delete_address(index, address).unwrap();
        told(|change| matches!(change, Change::AddressGone(_)));
        netlink.set_link_mtu(index, 1400).unwrap();
        told(|change| matches!(change, Change::Link(link) if link.mtu == 1400));
        netlink.set_link_up(index, false).unwrap();
        told(|change| matches!(change, Change::Link(link) if !link.up));
        // A port that leaves its bridge stays; the bridge is gone after that.
        pair.a.must(&format!(
            "ip link add bridge type bridge && ip link set {LINK} master bridge && ip link set {LINK} nomaster && \
             ip link delete bridge"
        ));
        let is_gone = |change: &Change| matches!(change, Change::LinkGone(_));
        let gone = eventually(|| monitor.read().unwrap().into_iter().find(is_gone));
        assert_ne!(gone, Change::LinkGone(index));
        pair.a.must(&format!("ip link delete {LINK}"));
        told(|change| matches!(change, Change::LinkGone(_)));
    });
}
