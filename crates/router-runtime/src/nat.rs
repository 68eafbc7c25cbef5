//! The table of nftables that translates IPv4: what leaves by an uplink gets its address, and what comes to a forwarded
//! or mapped port gets the host's.
//!
//! No address of an uplink is in the rules for what comes in from outside: the kernel is asked which ones the interface has.
//! Hosts inside send to such an address by another interface, about which the kernel cannot be asked so; for them the
//! addresses are written down, and the table is made anew when they change.
//!
//! With several uplinks, answers leave by the one that the connection came in by: the number of its interface, which stays
//! the same in another configuration, is in the connection's mark, goes into the mark of each answer, and a rule of routing
//! ([`crate::answers`]) has these leave by a table of that uplink.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use router::firewall::TABLE as FIREWALL;
use router::firewall::service::protocol_name;
use router::forward::{Forward, Ports};
use router::pcp::{Internal, Mapping};
use router::site::{Site, Uplink};
use serde_json::Value;

/// The table's name; its family is `ip`.
pub(crate) const TABLE: &str = "sidestep-nat";

/// The bits of marks that say by which uplink a connection came in.
pub(crate) const MARK_BITS: u32 = 0x00ff_ff00;

/// The mark of the uplink whose interface has this index: never none, which all other packets have.
pub(crate) const fn mark(index: u32) -> u32 {
    (index % 0xffff + 1) << 8
}

/// What an uplink is in the kernel now.
#[derive(Clone, Debug, Default)]
pub(crate) struct InKernel {
    /// The index of its interface, if that is there.
    pub(crate) index: Option<u32>,
    /// The IPv4 addresses of that.
    pub(crate) addresses: Vec<Ipv4Addr>,
}

/// Ports that hosts have asked for, and what makes these maps empty: where packets for a port go, by their sender, and which
/// port a host's packets leave from.
const MAPPED: (&str, &str) = (
    "\tmap mapped {
\t\ttype ipv4_addr . inet_service . inet_proto . inet_service : ipv4_addr . inet_service
\t\tflags interval, timeout
\t}
\tmap leaves {
\t\ttype ipv4_addr . inet_proto . inet_service : inet_service
\t\tflags timeout
\t}
",
    "flush map ip sidestep-nat mapped\nflush map ip sidestep-nat leaves\n",
);

/// Uplinks of which answers must be told to leave by them, each with its place: those that hosts are reached by, where IPv4
/// can leave by several.
pub(crate) fn answering(site: &Site) -> Vec<(usize, &Uplink)> {
    if site.uplinks.iter().filter(|uplink| uplink.may_carry_ipv4()).count() < 2 {
        return Vec::new();
    }
    let uplinks = site.uplinks.iter().enumerate();
    uplinks.filter(|(_, uplink)| site.is_entered_by(uplink)).collect()
}

/// Whether it is reached by the uplink.
pub(crate) fn is_through(forward: &Forward, uplink: &Uplink) -> bool {
    forward.uplinks.iter().any(|through| through.name == uplink.name)
}

/// The table as a script of nft; none where no uplink wants it. `now`: what each uplink is in the kernel.
///
/// What has come in from outside keeps its source, forged or not: strangers do not go out as the customer, whether there is
/// a firewall or not. By interface, since networks behind other routers and tunnels are inner ones as well.
pub(crate) fn script(site: &Site, now: &[InKernel]) -> Option<String> {
    let wanting = site.uplinks.iter().filter(|uplink| uplink.masquerade);
    let inner_leave_by: BTreeSet<&str> = wanting.map(|uplink| uplink.interface.as_str()).collect();
    if inner_leave_by.is_empty() {
        return None;
    }
    let is_inner = |name: &&str| site.networks.iter().any(|network| network.interface == *name);
    let carriers = site.uplinks.iter().filter_map(|uplink| Some(uplink.tunnel.as_ref()?.over.as_str()));
    let uplinks = site.uplinks.iter().map(|uplink| uplink.interface.as_str());
    let outer = quoted(uplinks.chain(carriers.filter(|name| !is_inner(name))).collect());
    let mut chains = chain("postrouting", "nat", "postrouting priority srcnat");
    if !site.forwards.is_empty() || site.maps_ports() {
        chains += &chain("prerouting", "nat", "prerouting priority dstnat");
    }
    if !answering(site).is_empty() {
        chains += &chain("came-by", "filter", "forward priority mangle");
        // Behind packet scripts, which tell what the kernel hands over to Lua by a mark that has these bits, too.
        chains += &chain("answers", "filter", "prerouting priority mangle + 1");
    }
    let clats = site.uplinks.iter().filter(|uplink| uplink.is_clat());
    let clats: BTreeSet<&str> = clats.map(|uplink| uplink.interface.as_str()).collect();
    if !clats.is_empty() {
        chains += &chain("segments", "filter", "forward priority mangle");
    }
    let leaves = format!("postrouting iifname != {{ {outer} }} oifname {{ {} }}", quoted(inner_leave_by));
    let (maps, empty) = if site.maps_ports() { MAPPED } else { ("", "") };
    let mut text = format!("table ip {TABLE} {{\n{maps}{chains}}}\nflush table ip {TABLE}\n{empty}");
    if site.maps_ports() {
        // From the port that the host is reached at (RFC 6887 section 11.3).
        let _ = writeln!(
            text,
            "add rule ip {TABLE} {leaves} meta l4proto {{ 6, 17 }} masquerade to :ip saddr . meta l4proto . th sport map @leaves"
        );
    }
    let _ = writeln!(text, "add rule ip {TABLE} {leaves} masquerade");
    if !clats.is_empty() {
        // What servers send grows on its way: segments that would be longer then would all be refused at first.
        let _ = writeln!(
            text,
            "add rule ip {TABLE} segments oifname {{ {} }} tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu",
            quoted(clats)
        );
    }
    for (index, forward) in site.forwards.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write_forward(&mut text, site, now, index, forward);
    }
    let _ = write_mapped(&mut text, site, now);
    let _ = write_hairpin(&mut text, site);
    let _ = write_answers(&mut text, site, now, &outer);
    Some(text)
}

/// A chain at a hook. One that a configuration needs no more stays, without rules, as long as the table does.
fn chain(name: &str, kind: &str, hook: &str) -> String {
    format!("\tchain {name} {{\n\t\ttype {kind} hook {hook}\n\t}}\n")
}

fn write_forward(
    text: &mut String,
    site: &Site,
    now: &[InKernel],
    index: usize,
    forward: &Forward,
) -> std::fmt::Result {
    let sources = match &forward.sources[..] {
        [] => String::new(),
        sources => format!(" ip saddr {{ {} }}", joined(sources)),
    };
    let port = forward.to_port.map(|port| format!(":{port}")).unwrap_or_default();
    for arrives in arrives(site, now, |uplink| is_through(forward, uplink)) {
        for Ports { protocol, first, last } in &forward.ports {
            let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
            writeln!(
                text,
                "add rule ip {TABLE} prerouting {arrives}{sources} {} dport {ports} counter dnat to {}{port} comment \"{index}\"",
                protocol_name(*protocol),
                forward.to,
            )?;
        }
    }
    Ok(())
}

/// What is for ports that hosts have asked for: behind forwards, which go first.
fn write_mapped(text: &mut String, site: &Site, now: &[InKernel]) -> std::fmt::Result {
    if !site.maps_ports() {
        return Ok(());
    }
    for arrives in arrives(site, now, |uplink| uplink.masquerade) {
        writeln!(
            text,
            "add rule ip {TABLE} prerouting {arrives} meta l4proto {{ 6, 17 }} \
             dnat ip to ip saddr . th sport . meta l4proto . th dport map @mapped"
        )?;
    }
    Ok(())
}

/// How packets come to these uplinks' addresses: from outside, and from hosts inside.
fn arrives(site: &Site, now: &[InKernel], is_meant: impl Fn(&Uplink) -> bool) -> Vec<String> {
    let meant: Vec<_> = site.uplinks.iter().zip(now).filter(|(uplink, _)| is_meant(uplink)).collect();
    let interfaces = meant.iter().map(|(uplink, _)| uplink.interface.as_str()).collect();
    let mut arrives = vec![format!("iifname {{ {} }} fib daddr . iif type local", quoted(interfaces))];
    let own: BTreeSet<String> =
        meant.iter().flat_map(|(_, now)| now.addresses.iter().map(ToString::to_string)).collect();
    let inner: BTreeSet<&str> = site.networks.iter().map(|network| network.interface.as_str()).collect();
    if !own.is_empty() && !inner.is_empty() {
        arrives.push(format!("iifname {{ {} }} ip daddr {{ {} }}", quoted(inner), joined(own)));
    }
    arrives
}

/// What fills the sets of ports that hosts have asked for, in place of what was in them: those of this table, and those of the
/// firewall. Each element has the rest of its time, so that the kernel forgets it by itself.
pub(crate) fn mapped<'m>(
    mappings: impl Iterator<Item = (&'m Internal, &'m Mapping)>,
    (translates, filters): (bool, bool),
    now: Instant,
) -> String {
    let [mut into, mut leaves, mut pinholes4, mut pinholes6] = [const { Vec::<String>::new() }; 4];
    for (internal, mapping) in mappings {
        let Internal { address, transport, port } = *internal;
        let (protocol, external) = (transport.number(), mapping.external_port);
        let time = format!("timeout {}s", mapping.seconds(now).max(1));
        let everybody = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let peers = mapping.peers.iter().map(|(net, port)| match port {
            0 => format!("{net} . 0-65535"),
            port => format!("{net} . {port}"),
        });
        let peers =
            if mapping.peers.is_empty() { vec![format!("{everybody} . 0-65535")] } else { peers.collect() };
        match address {
            IpAddr::V4(_) => {
                into.extend(
                    peers.iter().map(|peers| {
                        format!("{peers} . {protocol} . {external} {time} : {address} . {port}")
                    }),
                );
                leaves.push(format!("{address} . {protocol} . {port} {time} : {external}"));
                pinholes4.push(format!("{address} . {protocol} . {port} {time}"));
            }
            IpAddr::V6(_) => pinholes6.extend(
                peers.iter().map(|peers| format!("{peers} . {address} . {protocol} . {port} {time}")),
            ),
        }
    }
    let mut text = String::new();
    for (is_there, kind, table, name, elements) in [
        (translates, "map ip", TABLE, "mapped", into),
        (translates, "map ip", TABLE, "leaves", leaves),
        (filters, "set inet", FIREWALL, "mapped4", pinholes4),
        (filters, "set inet", FIREWALL, "mapped6", pinholes6),
    ] {
        if is_there {
            let _ = writeln!(text, "flush {kind} {table} {name}");
        }
        if is_there && !elements.is_empty() {
            let family = if kind == "map ip" { "ip" } else { "inet" };
            let _ = writeln!(text, "add element {family} {table} {name} {{ {} }}", elements.join(", "));
        }
    }
    text
}

/// A host that is asked from its own network would answer past the gateway: it sees the gateway's address.
fn write_hairpin(text: &mut String, site: &Site) -> std::fmt::Result {
    let towards: BTreeSet<&str> = site.forwards.iter().map(|forward| forward.towards.as_str()).collect();
    for interface in towards {
        let hosts = site.forwards.iter().filter(|forward| forward.towards == interface);
        let hosts: BTreeSet<Ipv4Addr> = hosts.map(|forward| forward.to).collect();
        writeln!(
            text,
            "add rule ip {TABLE} postrouting iifname \"{interface}\" oifname \"{interface}\" ct status dnat ip daddr {{ {} }} masquerade",
            joined(hosts)
        )?;
    }
    for network in site.networks.iter().filter(|network| network.port_mapping.is_some()) {
        let interface = &network.interface;
        writeln!(
            text,
            "add rule ip {TABLE} postrouting iifname \"{interface}\" oifname \"{interface}\" ct status dnat masquerade"
        )?;
    }
    Ok(())
}

fn write_answers(text: &mut String, site: &Site, now: &[InKernel], outer: &str) -> std::fmt::Result {
    let others = !MARK_BITS;
    for (place, uplink) in answering(site) {
        let Some(mark) = now.get(place).and_then(|now| now.index).map(mark) else { continue };
        writeln!(
            text,
            "add rule ip {TABLE} came-by iifname \"{}\" ct status dnat ct state new ct mark set ct mark & {others:#x} | {mark:#x}\n\
             add rule ip {TABLE} answers iifname != {{ {outer} }} ct direction reply ct mark & {MARK_BITS:#x} == {mark:#x} \
             meta mark set meta mark & {others:#x} | {mark:#x}",
            uplink.interface
        )?;
    }
    Ok(())
}

/// Names of interfaces as a set of nft has them.
pub(crate) fn quoted(names: BTreeSet<&str>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

fn joined(values: impl IntoIterator<Item: ToString>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}

/// Connections that each forward has taken since the table was made, by its index.
///
/// # Errors
/// If the kernel cannot be asked.
pub(crate) fn counted(forwards: usize) -> linux::Result<Vec<u64>> {
    let mut counts = vec![0; forwards];
    if forwards == 0 {
        return Ok(counts);
    }
    let listing = linux::nft::list_json("ip", TABLE)?.unwrap_or_default();
    // What nft writes is JSON; of anything else nothing is known.
    let listing: Value = serde_json::from_str(&listing).unwrap_or(Value::Null);
    for rule in listing["nftables"].as_array().into_iter().flatten().map(|object| &object["rule"]) {
        let index = rule["comment"].as_str().and_then(|comment| comment.parse::<usize>().ok());
        let Some(count) = index.and_then(|index| counts.get_mut(index)) else { continue };
        let parts = rule["expr"].as_array().into_iter().flatten();
        *count += parts.filter_map(|part| part["counter"]["packets"].as_u64()).sum::<u64>();
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use router::forward::Through;
    use router::site::RouterFrom;

    fn site(uplinks: &[&str]) -> Site {
        let uplink = |name: &&str| Uplink {
            name: (*name).to_owned(),
            interface: format!("{name}0"),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: Vec::new(),
            delegation: None,
            probes: Vec::new(),
            ipv4_router: None,
            masquerade: true,
            tunnel: None,
            bandwidth: None,
        };
        let through = |name: &&str| Through { name: (*name).to_owned(), interface: format!("{name}0") };
        let forward = Forward {
            name: "web".to_owned(),
            uplinks: uplinks.iter().map(through).collect(),
            ports: vec![Ports { protocol: 6, first: 443, last: 443 }],
            to: Ipv4Addr::new(192, 168, 1, 5),
            to_port: None,
            towards: "lan".to_owned(),
            sources: Vec::new(),
            log: false,
        };
        Site { uplinks: uplinks.iter().map(uplink).collect(), forwards: vec![forward], ..Site::default() }
    }

    #[test]
    fn connections_are_marked_where_answers_can_leave_by_several_uplinks() {
        let now = [3, 7].map(|index| InKernel { index: Some(index), addresses: Vec::new() });
        let one = script(&site(&["fibre"]), &now[..1]).expect("a table");
        assert!(!one.contains("mark") && one.contains("tcp dport 443 counter dnat to 192.168.1.5 "), "{one}");
        let two = script(&site(&["fibre", "cable"]), &now).expect("a table");
        assert!(two.contains("iifname \"cable0\" ct status dnat ct state new ct mark set"), "{two}");
        let mut without = site(&["fibre", "cable"]);
        without.forwards.clear();
        let without = script(&without, &now).expect("a table");
        assert!(!without.contains("mark") && !without.contains("dstnat"), "{without}");
    }

    #[test]
    fn ports_that_hosts_have_opened_are_elements_with_a_time() {
        use router::pcp::Transport;
        use std::time::Duration;
        let now = Instant::now();
        let internal = |address: &str| Internal {
            address: address.parse().unwrap(),
            transport: Transport::Tcp,
            port: 5_000,
        };
        let mapping = |peers: &[(&str, u16)]| Mapping {
            network: "lan".to_owned(),
            external_port: 6_000,
            nonce: None,
            peers: peers.iter().map(|(net, port)| (net.parse().unwrap(), *port)).collect(),
            until: now + Duration::from_secs(60),
        };
        let all = [
            (internal("192.168.1.5"), mapping(&[])),
            (internal("192.168.1.7"), mapping(&[("198.51.100.0/24", 0), ("203.0.113.9/32", 7)])),
            (internal("2001:db8::5"), mapping(&[])),
        ];
        let script =
            |is_there| mapped(all.iter().map(|(internal, mapping)| (internal, mapping)), is_there, now);
        let whole = script((true, true));
        for expected in [
            "flush map ip sidestep-nat mapped\nadd element ip sidestep-nat mapped { \
             0.0.0.0/0 . 0-65535 . 6 . 6000 timeout 60s : 192.168.1.5 . 5000, \
             198.51.100.0/24 . 0-65535 . 6 . 6000 timeout 60s : 192.168.1.7 . 5000, \
             203.0.113.9/32 . 7 . 6 . 6000 timeout 60s : 192.168.1.7 . 5000 }",
            "add element ip sidestep-nat leaves { 192.168.1.5 . 6 . 5000 timeout 60s : 6000, ",
            "add element inet sidestep-firewall mapped4 { 192.168.1.5 . 6 . 5000 timeout 60s, ",
            "mapped6 { ::/0 . 0-65535 . 2001:db8::5 . 6 . 5000 timeout 60s }",
        ] {
            assert!(whole.contains(expected), "{expected}: {whole}");
        }
        assert!(script((false, false)).is_empty());
        let none = mapped([].into_iter(), (true, false), now);
        assert_eq!(none, "flush map ip sidestep-nat mapped\nflush map ip sidestep-nat leaves\n");
    }

    #[test]
    fn no_uplink_has_the_mark_of_packets_that_have_none() {
        for index in [1, 2, 0xfffe, 0xffff, 0x1_0000, 0x2_0000, u32::MAX] {
            let mark = mark(index);
            assert!(mark != 0 && mark & MARK_BITS == mark, "{index}: {mark:#x}");
        }
        assert_ne!(mark(1), mark(2));
    }

    #[test]
    fn an_uplink_without_an_address_is_reached_from_outside_alone() {
        let mut site = site(&["fibre"]);
        let network = router::site::Network {
            name: "lan".to_owned(),
            interface: "lan".to_owned(),
            subnet: None,
            host: 1,
            prefixes: Vec::new(),
            ipv4: None,
            advertise: None,
            resolves: false,
            dhcp: None,
            dhcp6: None,
            port_mapping: None,
        };
        site.networks.push(network);
        let with = |addresses| script(&site, &[InKernel { index: Some(3), addresses }]).expect("a table");
        assert!(!with(Vec::new()).contains("ip daddr {  }"));
        let there = with(vec![Ipv4Addr::new(198, 51, 100, 2)]);
        assert!(there.contains("iifname { \"lan\" } ip daddr { 198.51.100.2 } tcp dport 443 "), "{there}");
    }
}
