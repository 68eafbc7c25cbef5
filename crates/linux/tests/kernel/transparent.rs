use std::net::Ipv6Addr;

use linux::netlink::Netlink;
use linux::netns;
use linux::sysctl;
use linux::transparent::{FramePrograms, HoppingEndpoint, Remote, Settings, Tables, TunnelProgram};
use linux::undo::{Journal, Step};
use wire::ethernet::MacAddress;

use crate::network::{A, B, LINK, Node, Pair, eventually};

/// A host behind node A, whose address is in the network of the pair.
const C: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xc);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xc]);

fn ping(from: &Node, to: Ipv6Addr) -> bool {
    from.sh(&format!("ping -6 -c 1 -W 0.3 {to}")).0
}

fn host_behind(node: &Node) -> Node {
    let host = Node::new();
    let name = host.namespace.name();
    node.must(&format!("ip link add in type veth peer name {LINK} netns {name} && ip link set in up"));
    host.must(&format!("echo 0 > /proc/sys/net/ipv6/conf/{LINK}/accept_dad"));
    host.must(&format!("ip link set {LINK} address {MAC} up && ip address add {C}/64 dev {LINK} nodad"));
    host
}

#[test]
fn frames_cross_over_but_for_those_of_protected_hosts() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let host = host_behind(&pair.a);
    let directory = tempfile::tempdir().unwrap();
    assert!(!ping(&host, B));
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let (mut journal, _) = Journal::open(&directory.path().join("undo"), &mut netlink).unwrap();
        let mut end = |name| {
            let link = netlink.link_by_name(name).unwrap().unwrap();
            (link.index, link.mac.unwrap())
        };
        let (inside, outside) = (end("in"), end(LINK));
        for pass_others in [false, true] {
            let settings = Settings { inside, outside, pass_others };
            let tables = Tables::create().unwrap();
            TunnelProgram::load(&settings, &tables).unwrap();
            let frame_programs = FramePrograms::open(&settings, &tables, &mut journal).unwrap();
            eventually(|| ping(&host, B).then_some(()));
            assert!(ping(&pair.b, C));
            assert!(ping(&pair.b, A), "what is for this host arrives");
            tables.protect(C, Some(MAC)).unwrap();
            assert_eq!((ping(&host, B), ping(&pair.b, C)), (pass_others, pass_others));
            // A hopping address of somebody else is nobody's business inside.
            tables.add_hopping(B, HoppingEndpoint::Peer).unwrap();
            assert!(!ping(&host, B));
            assert!(ping(&pair.b, A));
            drop(frame_programs);
            assert!(!ping(&host, B));
        }
        journal.undo_all(&mut netlink).unwrap();
    });
}

#[test]
fn tables_keep_what_they_are_given() {
    if !netns::available_to_tests() {
        return;
    }
    let tables = Tables::create().unwrap();
    let other = MacAddress([2, 0, 0, 0, 0, 0xd]);
    assert_eq!(tables.protected(C).unwrap(), None);
    tables.protect(C, None).unwrap();
    assert_eq!(tables.protected(C).unwrap(), Some(None));
    for mac in [MAC, other] {
        tables.protect(C, Some(mac)).unwrap();
        assert_eq!(tables.protected(C).unwrap(), Some(Some(mac)));
    }
    assert_eq!((tables.is_protected(MAC).unwrap(), tables.is_protected(other).unwrap()), (false, true));

    let remote = Remote { device: 7, same_link: true };
    let network = "2001:db8:b::/64".parse().unwrap();
    tables.add_remote(network, remote).unwrap();
    assert_eq!(tables.remote("2001:db8:b::9".parse().unwrap()).unwrap(), Some(remote));
    assert_eq!(tables.remote("2001:db8:c::9".parse().unwrap()).unwrap(), None);
    tables.remove_remote(network).unwrap();
    assert_eq!(tables.remote("2001:db8:b::9".parse().unwrap()).unwrap(), None);

    for end in [HoppingEndpoint::Socket, HoppingEndpoint::Device(3), HoppingEndpoint::Peer] {
        tables.add_hopping(B, end).unwrap();
        assert_eq!(tables.hopping(B).unwrap(), Some(end));
    }
    tables.remove_hopping(B).unwrap();
    assert_eq!(tables.hopping(B).unwrap(), None);
}

#[test]
fn parameters_are_as_they_were_after_a_crash_unless_somebody_changed_them() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("undo");
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let (mut journal, _) = Journal::open(&path, &mut netlink).unwrap();
        for name in ["autoconf", "accept_ra", "accept_redirects"] {
            journal.set_parameter(LINK, name, "0").unwrap();
            assert_eq!(sysctl::read(LINK, name).unwrap(), "0");
        }
        journal.set_parameter(LINK, "autoconf", "0").unwrap();
        std::mem::forget(journal);
        pair.a.must(&format!("echo 2 > /proc/sys/net/ipv6/conf/{LINK}/accept_ra"));
        let (journal, left) = Journal::open(&path, &mut netlink).unwrap();
        assert!(matches!(left[..], [Step::Parameter { .. }, Step::Parameter { .. }, Step::Parameter { .. }]));
        let values =
            ["autoconf", "accept_ra", "accept_redirects"].map(|name| sysctl::read(LINK, name).unwrap());
        assert_eq!(values, ["1", "2", "1"]);
        journal.undo_all(&mut netlink).unwrap();
    });
}
