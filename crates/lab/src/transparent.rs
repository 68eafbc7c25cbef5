//! The network of transparent gateways: hosts that configure themselves by router advertisements, and others beside
//! them.
//!
//! ```text
//! host A ──┐                        ┌── third host outside
//!          ├── gateway A ── switch ─┤
//! third A ─┘                        └── router ══ gateway B ── host B
//! ```
//!
//! In the switched network gateway B is at that switch, too; in the tunneled one a second router is before it. The
//! gateways have no addresses, and hosts and routers none but those that they would have without them.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use crate::Error;
use crate::builder::Builder;
use crate::command::find;
use crate::topology::{Node, Site, Topology};

/// Hardware addresses of the protected hosts.
pub const MACS: [[u8; 6]; 2] = [[2, 0x51, 0xde, 0x57, 0xe9, 0xaa], [2, 0x51, 0xde, 0x57, 0xe9, 0xbb]];
/// What the third hosts have of IPv6, inside and outside; the router's is `::1`.
pub const THIRD: [&str; 2] = ["2001:db8:a::a1", "2001:db8:a::a2"];
/// And of IPv4.
pub const THIRD_IPV4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];

/// Interface, MAC (or the kernel's choice) and machine of both ends of a link.
type Link = ((Node, &'static str, &'static str), (Node, &'static str, &'static str));

/// The links that do not depend on what is between the gateways.
pub(crate) const LINKS: [Link; 7] = [
    ((Node::HostA, "eth", ""), (Node::SwitchInside, "h", "")),
    ((Node::ThirdInside, "eth", ""), (Node::SwitchInside, "t", "")),
    ((Node::GatewayA, "in", ""), (Node::SwitchInside, "g", "")),
    ((Node::GatewayA, "ex", ""), (Node::SwitchOutside, "g", "")),
    ((Node::ThirdOutside, "eth", ""), (Node::SwitchOutside, "t", "")),
    ((Node::Router, "a", ""), (Node::SwitchOutside, "r", "")),
    ((Node::GatewayB, "in", ""), (Node::HostB, "eth", "")),
];

/// The first half of the network that a site's host is in.
fn network(site: Site, topology: Topology) -> [u16; 4] {
    match site {
        Site::B if topology != Topology::Switched => [0x2001, 0xdb8, 0xb, 0],
        _ => [0x2001, 0xdb8, 0xa, 0],
    }
}

/// The address that a protected host gives itself, from its MAC (RFC 4291 appendix A).
pub(crate) fn host(site: Site, topology: Topology) -> IpAddr {
    let [a, b, c, d, e, f] = MACS[site as usize];
    let [w, x, y, z] = network(site, topology);
    let [i, j, k, l] = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
    IpAddr::V6(Ipv6Addr::new(w, x, y, z, i, j, k, l))
}

/// Where a site's gateway hops: a part of its network, another one at each site.
pub(crate) fn hop_prefix(site: Site, topology: Topology) -> String {
    let [w, x, y, z] = network(site, topology);
    let part = match site {
        Site::A => 0xf000,
        Site::B => 0xe000,
    };
    format!("{}/68", Ipv6Addr::new(w, x, y, z, part, 0, 0, 0))
}

/// What a gateway's configuration says of its place in the network.
pub(crate) fn node(site: Site, topology: Topology) -> String {
    format!(
        "mode = \"transparent\"\ninternal = \"in\"\nexternal = \"ex\"\n\
         protect = [{{ address = \"{}\", mac = \"{}\" }}]\n",
        host(site, topology),
        mac(site)
    )
}

fn mac(site: Site) -> String {
    MACS[site as usize].map(|byte| format!("{byte:02x}")).join(":")
}

/// Kernel parameters of a machine, which are set before its addresses.
pub(crate) fn parameters(node: Node) -> &'static [(&'static str, u32)] {
    match node {
        Node::HostA | Node::HostB => &[
            ("ipv6/conf/eth/accept_ra", 1),
            ("ipv6/conf/all/accept_dad", 1),
            ("ipv6/conf/eth/accept_dad", 1),
            ("ipv6/conf/eth/dad_transmits", 1),
            ("ipv6/conf/eth/router_solicitations", 5),
        ],
        Node::ThirdInside | Node::ThirdOutside => {
            &[("ipv6/conf/all/accept_dad", 1), ("ipv6/conf/eth/accept_dad", 1)]
        }
        _ => &[],
    }
}

/// What a machine's kernel is told, `ip -batch` lines; nothing where it is the same as with routing gateways.
pub(crate) fn configuration(options: &Builder, node: Node) -> Option<String> {
    let switched = options.topology == Topology::Switched;
    let lines = match node {
        // Hosts boot later: see `Lab::boot_hosts`.
        Node::HostA => format!("link set dev eth address {}\n", mac(Site::A)),
        Node::HostB => format!("link set dev eth address {}\n", mac(Site::B)),
        Node::GatewayA | Node::GatewayB if options.tunnel => {
            "link set dev ex up\nlink set dev in up\n".into()
        }
        // The baseline: a bridge in the same place.
        Node::GatewayA | Node::GatewayB => switch(&["in", "ex"]),
        Node::SwitchInside => switch(&["h", "t", "g"]),
        Node::SwitchOutside if switched => {
            let narrow =
                options.middle_mtu.map_or_else(String::new, |mtu| format!("link set dev b mtu {mtu}\n"));
            switch(&["g", "t", "r", "b"]) + &narrow
        }
        Node::SwitchOutside => switch(&["g", "t", "r"]),
        Node::ThirdInside => third(0),
        Node::ThirdOutside => third(1),
        Node::Router if switched => towards_site(Site::A),
        Node::Router | Node::RouterB | Node::Relay => return None,
    };
    Some(lines)
}

fn switch(ports: &[&str]) -> String {
    let mut lines = String::from("link add name br type bridge mcast_snooping 0\nlink set dev br up\n");
    for port in ports {
        let _ = writeln!(lines, "link set dev {port} master br up");
    }
    lines
}

fn third(number: usize) -> String {
    let (v6, v4) = (THIRD[number], THIRD_IPV4[number]);
    format!(
        "link set dev eth up\naddr add {v6}/64 dev eth nodad\naddr add {v4}/24 dev eth\n\
         route add default via 2001:db8:a::1\n"
    )
}

/// A router's interface towards a site.
pub(crate) fn towards_site(site: Site) -> String {
    let letter = site.letter();
    format!("link set dev {letter} up\naddr add 2001:db8:{letter}::1/64 dev {letter}\n")
}

/// Refuses a lab whose routers could not advertise themselves.
pub(crate) fn radvd_is_there() -> Result<(), Error> {
    if find("radvd").is_some() {
        return Ok(());
    }
    Err(Error::Usage(
        "`radvd` is not installed; it advertises the routers to transparent gateways and their hosts. \
         On Debian: apt install radvd"
            .into(),
    ))
}

/// The commands that advertise the routers.
pub(crate) fn advertisers(options: &Builder, second_router: bool) -> Result<Vec<(Node, Command)>, Error> {
    // One without the MTU option, one with it.
    let interface = |site: Site, more: &str| {
        let letter = site.letter();
        format!(
            "interface {letter} {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; {more}\
             prefix 2001:db8:{letter}::/64 {{ AdvOnLink on; AdvAutonomous on; }}; }};\n"
        )
    };
    let (a, b) = (interface(Site::A, ""), interface(Site::B, "AdvLinkMTU 1500; "));
    let configurations = match options.topology {
        Topology::Switched => vec![(Node::Router, a)],
        _ if second_router => vec![(Node::Router, a), (Node::RouterB, b)],
        _ => vec![(Node::Router, a + &b)],
    };
    let radvd = |(node, text): (Node, String)| {
        let file = |kind: &str| options.directory().join(format!("radvd-{}.{kind}", node.suffix()));
        let path = file("conf");
        std::fs::write(&path, text).map_err(|source| Error::file(&path, source))?;
        let mut command = options.namespace(node).command(find("radvd").unwrap_or_else(|| "radvd".into()))?;
        command.args(["-n", "-m", "stderr", "-C"]).arg(path).arg("-p").arg(file("pid"));
        Ok((node, command))
    };
    configurations.into_iter().map(radvd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_hopping_addresses_are_in_the_network_of_their_link() {
        let host = |site, topology| super::host(site, topology).to_string();
        assert_eq!(host(Site::A, Topology::Routed), "2001:db8:a:0:51:deff:fe57:e9aa");
        assert_eq!(host(Site::B, Topology::Tunneled), "2001:db8:b:0:51:deff:fe57:e9bb");
        assert_eq!(host(Site::B, Topology::Switched), "2001:db8:a:0:51:deff:fe57:e9bb");
        assert_eq!(hop_prefix(Site::A, Topology::Switched), "2001:db8:a:0:f000::/68");
        assert_eq!(hop_prefix(Site::B, Topology::Switched), "2001:db8:a:0:e000::/68");
    }
}
