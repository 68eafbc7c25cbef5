//! The network of a site with two gateways, and of the site that it talks with.
//!
//! ```text
//!   h ── inside ─┬─ 1 ─┬─ outside ── r ── b
//!                └─ 2 ─┘
//! ```
//!
//! The gateways share `2001:db8:fa::10` outside, to which `2001:db8:a1::/64` is routed, and the first address inside.

use crate::recipes::scene::Scene;

/// Its machines.
pub(crate) const NODES: [&str; 5] = ["h", "1", "2", "r", "b"];

/// Makes it. The host, the gateways and what they share have the addresses 100, 11, 12 and 1 of `inside`, as `fd00:a::`; `far` is
/// the other site's address inside, with the length of its network.
pub(crate) fn make(scene: &Scene, inside: &str, far: &str) {
    for node in ["1", "2", "r", "b"] {
        scene.node(node).sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
    }
    scene.ip("h", "link add name inside type bridge mcast_snooping 0\nlink set dev inside up");
    scene.ip("r", "link add name outside type bridge mcast_snooping 0\nlink set dev outside up");
    for node in ["1", "2"] {
        let port = format!("to-{node}");
        scene.link((node, "eth1"), ("h", &port));
        scene.ip("h", &format!("link set dev {port} master inside"));
        scene.link((node, "eth0"), ("r", &port));
        scene.ip("r", &format!("link set dev {port} master outside"));
        scene.ip(
            node,
            &format!(
                "address add 2001:db8:fa::1{node}/64 dev eth0 nodad\naddress add {inside}1{node}/64 dev eth1 nodad\n\
                 route add default via 2001:db8:fa::1"
            ),
        );
    }
    scene.link(("b", "eth0"), ("r", "to-b"));
    scene.ip("h", &format!("address add {inside}100/64 dev inside nodad\nroute add default via {inside}1"));
    scene.ip(
        "r",
        "address add 2001:db8:fa::1/64 dev outside nodad\naddress add 2001:db8:fb::1/64 dev to-b nodad\n\
         route add 2001:db8:a1::/64 via 2001:db8:fa::10\nroute add 2001:db8:b1::/64 via 2001:db8:fb::2",
    );
    scene.ip(
        "b",
        &format!(
            "address add 2001:db8:fb::2/64 dev eth0 nodad\nroute add default via 2001:db8:fb::1\n\
             address add {far} dev lo"
        ),
    );
}
