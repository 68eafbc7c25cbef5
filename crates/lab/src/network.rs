//! The network of a lab: who is linked to whom, with which addresses and routes.
//!
//! Where the gateways are [transparent], others are on the links. The middle link is where an impairment relay is
//! inserted when one is asked for. A middle MTU and a stateful firewall need a second router in the routed network too:
//! only a router that is not an end of the narrow link answers with Packet Too Big in both directions, and two firewalls
//! that each know only their own site need two connection tables.

use std::fmt::Write as _;
use std::process::Command;

use crate::Error;
use crate::builder::{Builder, Gateways, Impairer, Profile};
use crate::command::check_with_input;
use crate::topology::{Node, Site, Topology};
use crate::transparent;

/// The two ends of the 6in4 tunnel in user space: arguments for `sidestep-lab sixin4`.
pub(crate) const SIXIN4: [(Node, &[&str]); 2] = [
    (
        Node::Router,
        &[
            "--inner-mac",
            MAC_T46[0],
            "--outer-mac",
            MAC_MID[1],
            "--local",
            "192.0.2.1",
            "--remote",
            "192.0.2.2",
        ],
    ),
    (
        Node::RouterB,
        &[
            "--inner-mac",
            MAC_T46[1],
            "--outer-mac",
            MAC_MID[0],
            "--local",
            "192.0.2.2",
            "--remote",
            "192.0.2.1",
        ],
    ),
];

/// Fixed Ethernet addresses, so that the user-space tunnel needs no neighbor discovery.
const MAC_MID: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
const MAC_T46: [&str; 2] = ["02:00:00:00:46:01", "02:00:00:00:46:02"];

/// Bytes that 6in4 adds.
const SIXIN4_OVERHEAD: u16 = 20;

/// What the options make necessary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) topology: Topology,
    pub(crate) second_router: bool,
    pub(crate) relay: bool,
    /// A packet script on the router in its place.
    pub(crate) script: bool,
    /// A 6in4 tunnel whose ends are our own processes.
    pub(crate) user_space_tunnel: bool,
    /// The gateways are.
    pub(crate) transparent: bool,
}

impl Layout {
    /// Decides it, or says what cannot be combined.
    pub(crate) fn of(options: &Builder) -> Result<Self, Error> {
        let routed = options.topology != Topology::Switched;
        if options.firewall && !routed {
            return Err(Error::Usage(
                "a firewall needs routers between the gateways: not in the switched lab".into(),
            ));
        }
        if options.middle_mtu.is_some_and(|mtu| mtu < options.minimum_mtu()) {
            let least = options.minimum_mtu();
            return Err(Error::Usage(format!(
                "the middle link's MTU must be at least {least} to carry IPv6"
            )));
        }
        let moving_target_alone = options.lanes > 1
            || options.threads.is_some()
            || options.padding != "none"
            || options.shape != "\"none\""
            || options.preshared;
        if options.profile == Profile::Classic && moving_target_alone {
            return Err(Error::Usage(
                "the classic profile has no lanes, threads, padding, shape or pre-shared keys".into(),
            ));
        }
        let transparent = options.gateways == Gateways::Transparent;
        if transparent {
            transparent::radvd_is_there()?;
        }
        let tunneled = options.topology == Topology::Tunneled;
        let script = options.impaired() && options.impairer == Impairer::Script;
        if script && (transparent || options.topology != Topology::Routed) {
            return Err(Error::Usage(
                "a script impairs what a router forwards: in the routed lab, with routing gateways".into(),
            ));
        }
        Ok(Self {
            topology: options.topology,
            second_router: tunneled || routed && (options.middle_mtu.is_some() || options.firewall),
            relay: options.impaired() && !script,
            script,
            user_space_tunnel: tunneled && !options.sit,
            transparent,
        })
    }

    /// The machines that it has.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> {
        let layout = *self;
        Node::ALL.into_iter().filter(move |node| match node {
            Node::RouterB => layout.second_router,
            Node::Relay => layout.relay,
            Node::SwitchInside | Node::ThirdInside | Node::SwitchOutside | Node::ThirdOutside => {
                layout.transparent
            }
            _ => true,
        })
    }

    /// The router's end of the middle link.
    pub(crate) fn middle_of_router(&self) -> (Node, &'static str) {
        (Node::Router, if self.second_router { "mid" } else { "b" })
    }

    /// The end of the middle link on the side of site A, where there is one router.
    fn middle(&self) -> (Node, &'static str) {
        let switch = self.transparent && self.topology == Topology::Switched;
        (if switch { Node::SwitchOutside } else { Node::Router }, "b")
    }
}

/// Makes the namespaces, links, addresses, routes and filters.
pub(crate) fn build(options: &Builder, layout: &Layout) -> Result<(), Error> {
    for node in layout.nodes() {
        options.namespace(node).create()?;
    }
    // Nothing but the frames that they carry may leave these namespaces.
    let switches = [Node::Relay, Node::SwitchInside, Node::SwitchOutside];
    for node in layout.nodes().filter(|node| switches.contains(node)) {
        let quiet = [("ipv6/conf/all/disable_ipv6", 1), ("ipv6/conf/default/disable_ipv6", 1)];
        options.namespace(node).sysctl(&quiet)?;
    }
    check_with_input(Command::new("ip").args(["-batch", "-"]), &links(options, layout))?;
    for node in layout.nodes() {
        let namespace = options.namespace(node);
        if layout.transparent {
            namespace.sysctl(transparent::parameters(node))?;
        }
        namespace.ip(&configuration(options, layout, node))?;
        let gateway = matches!(node, Node::GatewayA | Node::GatewayB) && !layout.transparent;
        if gateway || matches!(node, Node::Router | Node::RouterB) {
            namespace.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
            if gateway || !options.tunnel {
                namespace.sysctl(&[("ipv4/ip_forward", 1)])?;
            }
        }
        if let Some(ruleset) = filters(options, node) {
            namespace.nft(&ruleset)?;
        }
    }
    for (node, interface) in honest_interfaces(options, layout) {
        options.namespace(node).offloads_off(interface)?;
    }
    if !options.offloads {
        for node in layout.nodes() {
            let namespace = options.namespace(node);
            for interface in namespace.ethernet_interfaces()? {
                namespace.offloads_off(&interface)?;
            }
        }
    }
    Ok(())
}

/// The veth pairs, each made right where its ends belong.
fn links(options: &Builder, layout: &Layout) -> String {
    let mut links = if layout.transparent {
        transparent::LINKS.to_vec()
    } else {
        vec![
            ((Node::HostA, "eth", ""), (Node::GatewayA, "in", "")),
            ((Node::GatewayA, "ex", ""), (Node::Router, "a", "")),
            ((Node::GatewayB, "in", ""), (Node::HostB, "eth", "")),
        ]
    };
    let (left, right) = if layout.second_router {
        links.push(((Node::RouterB, "b", ""), (Node::GatewayB, "ex", "")));
        ((Node::Router, "mid", MAC_MID[0]), (Node::RouterB, "mid", MAC_MID[1]))
    } else {
        let (node, port) = layout.middle();
        ((node, port, ""), (Node::GatewayB, "ex", ""))
    };
    if layout.relay {
        links.push((left, (Node::Relay, "left", "")));
        links.push(((Node::Relay, "right", ""), right));
    } else {
        links.push((left, right));
    }
    if layout.user_space_tunnel {
        links.push(((Node::Router, "t46", MAC_T46[0]), (Node::Router, "t46-peer", "")));
        links.push(((Node::RouterB, "t46", MAC_T46[1]), (Node::RouterB, "t46-peer", "")));
    }
    let end = |(node, interface, mac): (Node, &str, &str)| {
        let address = if mac.is_empty() { String::new() } else { format!(" address {mac}") };
        format!("name {interface}{address} netns {}", options.namespace(node).name())
    };
    links.into_iter().fold(String::new(), |mut lines, (one, other)| {
        let _ = writeln!(lines, "link add {} type veth peer {}", end(one), end(other));
        lines
    })
}

/// What one machine's kernel is told: `ip -batch` lines.
fn configuration(options: &Builder, layout: &Layout, node: Node) -> String {
    if let Some(lines) = transparent::configuration(options, node).filter(|_| layout.transparent) {
        return lines;
    }
    let plain = routes_hosts(options);
    match node {
        Node::HostA => host("2001:db8:a::", "10.0.1."),
        Node::HostB => host("2001:db8:b::", "10.0.2."),
        Node::GatewayA => gateway(layout.topology, Site::A, plain),
        Node::GatewayB => gateway(layout.topology, Site::B, plain),
        Node::Relay => "link set dev left up\nlink set dev right up\n".into(),
        Node::Router if layout.topology == Topology::Switched => bridge(options.middle_mtu),
        Node::Router if layout.second_router => edge_router(options, layout, Site::A),
        Node::RouterB => edge_router(options, layout, Site::B),
        Node::Router => [Site::A, Site::B].map(|site| towards_site(options, site)).concat(),
        // These are in networks of transparent gateways alone.
        Node::SwitchInside | Node::ThirdInside | Node::SwitchOutside | Node::ThirdOutside => String::new(),
    }
}

/// Whether routers know the networks of the hosts: without a tunnel, and for the classic profile, which hops in them.
fn routes_hosts(options: &Builder) -> bool {
    !options.tunnel || options.profile == Profile::Classic
}

fn host(v6: &str, v4: &str) -> String {
    format!(
        "link set dev eth up\naddr add {v6}2/64 dev eth\naddr add {v4}2/24 dev eth\n\
         route add default via {v6}1\nroute add default via {v4}1\n"
    )
}

fn gateway(topology: Topology, site: Site, plain: bool) -> String {
    let letter = site.letter();
    let (v6, v4) = match site {
        Site::A => ("2001:db8:a::1/64", "10.0.1.1/24"),
        Site::B => ("2001:db8:b::1/64", "10.0.2.1/24"),
    };
    let mut lines =
        format!("link set dev in up\nlink set dev ex up\naddr add {v6} dev in\naddr add {v4} dev in\n");
    let towards_peer = if topology == Topology::Switched {
        let _ = writeln!(lines, "addr add 2001:db8:f0::{letter}/64 dev ex");
        for site in [Site::A, Site::B] {
            let _ = writeln!(lines, "route add {} dev ex", site.hop_prefix());
        }
        lines.push_str("route add default via 2001:db8:f0::1\n");
        format!("2001:db8:f0::{}", site.other().letter())
    } else {
        let _ = writeln!(lines, "addr add 2001:db8:f{letter}::2/64 dev ex");
        let _ = writeln!(lines, "route add default via 2001:db8:f{letter}::1");
        format!("2001:db8:f{letter}::1")
    };
    if plain {
        let [v6, v4] = site.other().inner_prefixes();
        let _ = writeln!(lines, "route add {v6} via {towards_peer}\nroute add {v4} via inet6 {towards_peer}");
    }
    lines
}

/// The router of the switched lab: a bridge that it has an address on.
fn bridge(mtu: Option<u16>) -> String {
    let mut lines = String::from("link add name br type bridge mcast_snooping 0\n");
    for port in ["a", "b"] {
        let mtu = mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
        let _ = writeln!(lines, "link set dev {port} master br up{mtu}");
    }
    lines.push_str("link set dev br up\naddr add 2001:db8:f0::1/64 dev br\n");
    for site in [Site::A, Site::B] {
        let _ = writeln!(lines, "route add {} dev br", site.hop_prefix());
    }
    lines
}

/// A router's interface and routes towards the gateway of a site.
fn towards_site(options: &Builder, site: Site) -> String {
    if options.gateways == Gateways::Transparent {
        return transparent::towards_site(site);
    }
    let letter = site.letter();
    let hop = site.hop_prefix();
    let mut lines = format!(
        "link set dev {letter} up\naddr add 2001:db8:f{letter}::1/64 dev {letter}\n\
         route add {hop} via 2001:db8:f{letter}::2\n"
    );
    if routes_hosts(options) {
        let [v6, v4] = site.inner_prefixes();
        let _ = writeln!(lines, "route add {v6} via 2001:db8:f{letter}::2");
        let _ = writeln!(lines, "route add {v4} via inet6 2001:db8:f{letter}::2");
    }
    lines
}

/// One of two routers: a site on one hand, the middle link or the 6in4 tunnel over it on the other.
fn edge_router(options: &Builder, layout: &Layout, site: Site) -> String {
    let (own, peer) = match site {
        Site::A => (1, 2),
        Site::B => (2, 1),
    };
    let mtu = options.middle_mtu.unwrap_or(1500);
    let mut lines = towards_site(options, site);
    let _ = writeln!(lines, "link set dev mid mtu {mtu} up");
    let interface = if layout.topology == Topology::Tunneled { "t46" } else { "mid" };
    if layout.user_space_tunnel {
        let _ = writeln!(
            lines,
            "link set dev t46 arp off mtu {} up\nlink set dev t46-peer up",
            mtu - SIXIN4_OVERHEAD
        );
    } else if interface == "t46" {
        let _ = writeln!(lines, "addr add 192.0.2.{own}/30 dev mid");
        let _ =
            writeln!(lines, "tunnel add name t46 mode sit local 192.0.2.{own} remote 192.0.2.{peer} ttl 64");
        let _ = writeln!(lines, "link set dev t46 mtu {} up", mtu - SIXIN4_OVERHEAD);
    }
    let _ = writeln!(lines, "addr add 2001:db8:ff::{own}/64 dev {interface}");
    let via = if interface == "mid" { format!("via 2001:db8:ff::{peer} ") } else { String::new() };
    let far = site.other();
    let [v6, v4] = far.inner_prefixes();
    if layout.transparent {
        let _ = writeln!(lines, "route add {v6} {via}dev {interface}");
        return lines;
    }
    let _ = writeln!(lines, "route add {} {via}dev {interface}", far.hop_prefix());
    let _ = writeln!(lines, "route add 2001:db8:f{}::/64 {via}dev {interface}", far.letter());
    if routes_hosts(options) {
        let _ = writeln!(lines, "route add {v6} {via}dev {interface}");
        if interface == "mid" {
            let _ = writeln!(lines, "route add {v4} via inet6 2001:db8:ff::{peer} dev mid");
        }
    }
    lines
}

/// The packet filters of a machine, if it has any.
fn filters(options: &Builder, node: Node) -> Option<String> {
    let inside = match node {
        Node::Router => "a",
        Node::RouterB => "b",
        _ => return None,
    };
    let mut ruleset = String::new();
    if options.firewall {
        let _ = writeln!(
            ruleset,
            "table inet lab_firewall {{
                chain forward {{
                    type filter hook forward priority 0; policy drop;
                    ct state established,related accept
                    iifname \"{inside}\" accept
                }}
            }}"
        );
    }
    if options.filter_too_big {
        ruleset.push_str(
            "table inet lab_too_big {
                chain output {
                    type filter hook output priority 0;
                    icmpv6 type packet-too-big drop
                }
            }
            ",
        );
    }
    if ruleset.is_empty() { None } else { Some(ruleset) }
}

/// Interfaces that must send each packet as it would be on a cable, because a process reads it there.
fn honest_interfaces(options: &Builder, layout: &Layout) -> Vec<(Node, &'static str)> {
    let mut interfaces = Vec::new();
    if options.whole_packets {
        interfaces.extend([(Node::GatewayA, "ex"), (Node::GatewayB, "ex"), (Node::Router, "a")]);
        interfaces.push(if layout.second_router { (Node::RouterB, "b") } else { layout.middle() });
    }
    if layout.relay || options.whole_packets || layout.user_space_tunnel {
        if layout.second_router {
            interfaces.extend([(Node::Router, "mid"), (Node::RouterB, "mid")]);
        } else {
            interfaces.extend([layout.middle(), (Node::GatewayB, "ex")]);
        }
    }
    if layout.user_space_tunnel {
        interfaces.extend([(Node::Router, "t46"), (Node::RouterB, "t46")]);
    }
    interfaces.sort_by_key(|(node, interface)| (node.suffix(), *interface));
    interfaces.dedup();
    interfaces
}
