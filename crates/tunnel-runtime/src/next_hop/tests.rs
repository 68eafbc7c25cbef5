//! Ways out as the kernel has them, in a namespace with several.

use std::process::Command;
use std::time::Duration;

use linux::netns;

use super::*;

/// Two uplinks, between which sources decide, and a device that stands for the TUN device.
const NETWORK: &str = "\
link add one type veth peer name far
link add other type veth peer name farther
link add tunnel type veth peer name inside
link set one up
link set far up
link set other up
link set farther up
link set tunnel up
link set inside up
neigh add fe80::1 lladdr 02:00:00:00:00:01 dev one nud permanent
neigh add fe80::2 lladdr 02:00:00:00:00:02 dev other nud permanent
route add default via fe80::1 dev one mtu 1300
route add default via fe80::2 dev other table 7
rule add from 2001:db8:2::/64 lookup 7
";
/// Where the tunnel takes everything.
const EVERYTHING: &str = "\
route add ::/1 dev tunnel
route add 8000::/1 dev tunnel
";

fn ip(batch: &str) {
    for line in batch.lines() {
        let status = Command::new("ip").arg("-6").args(line.split(' ')).status().unwrap();
        assert!(status.success(), "{line}");
    }
}

/// The interface, once it has a carrier.
fn running(name: &str, netlink: &mut Netlink) -> Link {
    for _ in 0..3_000 {
        let link = netlink.link_by_name(name).unwrap().unwrap();
        if link.running {
            return link;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{name} has no carrier")
}

#[test]
fn packets_leave_by_the_way_of_their_source_whatever_the_path_is_said_to_carry() {
    if !netns::available_to_tests() {
        return;
    }
    netns::enter_new().unwrap();
    ip(NETWORK);
    let mut netlink = Netlink::open().unwrap();
    let [one, other, tunnel] = ["one", "other", "tunnel"].map(|name| running(name, &mut netlink));
    let [of_one, of_other] = ["2001:db8:1::a", "2001:db8:2::a"].map(|text| text.parse().unwrap());
    let mut outside = Outside { tun: tunnel.index, external: one.clone(), bound: false };
    let mut leaves = |outside: &Outside, source| {
        let hop = outside.next_hop(source, "2001:db8:3::a".parse().unwrap(), &mut netlink);
        hop.map(|hop| (hop.interface, hop.neighbor.map(|neighbor| neighbor.segments()[7]), hop.mtu))
    };
    assert_eq!(leaves(&outside, of_one), Some((one.index, Some(1), 1500)));
    assert_eq!(leaves(&outside, of_other), Some((other.index, Some(2), 1500)));
    // As the sockets beside them.
    outside.bound = true;
    assert_eq!(leaves(&outside, of_other), Some((one.index, Some(1), 1500)));

    ip(EVERYTHING);
    assert_eq!(leaves(&outside, of_one), Some((one.index, Some(1), 1500)));
    outside.bound = false;
    assert_eq!(leaves(&outside, of_one), Some((one.index, None, 1500)), "the kernel finds the router");
    assert_eq!(leaves(&outside, of_other), Some((other.index, Some(2), 1500)));
    outside.external.running = false;
    assert_eq!(leaves(&outside, of_one), None);
}
