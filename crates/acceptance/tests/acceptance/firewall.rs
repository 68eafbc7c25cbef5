//! The gateway's own firewall beside ours.

use std::net::Ipv6Addr;
use std::os::unix::process::CommandExt as _;

use lab::capture::{Packet, Recording};
use lab::edited::Edited;
use lab::patience::wait_until;
use lab::{Lab, Node, Site};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::router::hostile_links::ADVERTISE;

/// An address of gateway A's hopping prefix; that it is an endpoint just now is unlikely.
const UNUSED: &str = "2001:db8:a1::1";

fn answers(lab: &Lab) -> bool {
    lab.exec(Node::Router, ["ping", "-n", "-c", "1", "-W", "1", UNUSED]).expect("ping").status.success()
}

/// What programs of others do to all rules, or to ours.
const CHANGES: [&str; 5] = [
    "flush ruleset",
    "delete table netdev TABLE",
    "insert rule ip6 TABLE prerouting accept",
    "flush chain ip6 TABLE dark",
    "flush chain inet TABLE-outside leaving",
];

#[test]
fn the_prefix_is_dark_again_at_once_after_somebody_changed_the_rules() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    lab.start().expect("a session");
    assert!(!answers(&lab));
    let table = format!("sidestep-{}", lab.gateway_a().tunnel());
    let rules = |lab: &Lab| lab.exec(Node::GatewayA, ["nft", "-s", "list", "ruleset"]).expect("nft").stdout;
    let before = rules(&lab);
    for (times, change) in (1..).zip(CHANGES) {
        lab.exec(Node::GatewayA, ["nft", &change.replace("TABLE", &table)]).expect("nft");
        let restored = || lab.show(Site::A).expect("a status")["rules_restored"] == times;
        wait_until(&format!("the rules after {change}"), restored);
        assert_eq!(String::from_utf8_lossy(&rules(&lab)), String::from_utf8_lossy(&before), "{change}");
        assert!(!answers(&lab));
    }
    // Rules of others are theirs, and ours are left alone.
    lab.exec(Node::GatewayA, ["nft", "add table ip6 other"]).expect("nft");
    assert!(
        lab.exec(Node::HostA, ["ping", "-c", "1", &Site::B.host().to_string()])
            .expect("ping")
            .status
            .success()
    );
    assert_eq!(lab.show(Site::A).expect("a status")["rules_restored"], CHANGES.len());
}

#[test]
fn whether_the_prefix_is_dark_is_known() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    // Nothing of IPv6 behind the tunnel: fewer rules, and as dark.
    let file = lab.gateway_a().configuration().to_owned();
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let [network, _] = Site::B.inner_prefixes();
    std::fs::write(&file, text.edited(&format!("\"{network}\""), "\"192.0.2.0/24\""))
        .expect("a configuration");
    lab.gateway_a().start().expect("a gateway");
    let dark = |lab: &Lab| lab.show(Site::A).expect("a status")["dark"].clone();
    assert_eq!(dark(&lab), true);
    // A table in the place of ours that belongs to another program: nobody else can change it, as long as that runs.
    let table = format!("sidestep-{}", lab.gateway_a().tunnel());
    let seized = format!(
        "echo 'delete table ip6 {table}; add table ip6 {table} {{ flags owner; }}; add counter ip6 {table} inner'"
    );
    let script = format!("({seized}; exec sleep 600) | exec nft -i");
    let mut command = lab.command(Node::GatewayA, "sh").expect("a command");
    let mut other = command.args(["-c", &script]).process_group(0).spawn().expect("another program");
    wait_until("a prefix that is not dark", || dark(&lab) == false);
    let group = Pid::from_raw(other.id() as i32);
    killpg(group, Signal::SIGKILL).expect("its end");
    other.wait().expect("its end");
    wait_until("a prefix that is dark again", || dark(&lab) == true);
    assert!(!answers(&lab));
}

/// A neighbor advertises the network behind the peer as one that is on the link. The kernel believes it, and its route goes
/// before the tunnel's: while the tunnel is up, after a crash, and after its end.
#[test]
fn a_route_that_a_neighbor_advertises_leads_nothing_around_the_tunnel() {
    let [network, _] = Site::B.inner_prefixes();
    for allowed in [network, "2001:db8:b::/48"] {
        let Some(program) = crate::program(&["python3"]) else { return };
        let mut lab = Lab::builder(program).build().expect("a lab");
        let file = lab.gateway_a().configuration().to_owned();
        let configuration = std::fs::read_to_string(&file).expect("a configuration");
        let allowed = configuration.edited(&format!("\"{network}\""), &format!("\"{allowed}\""));
        std::fs::write(&file, allowed).expect("a configuration");
        no_neighbor_leads_around(lab);
    }
}

fn no_neighbor_leads_around(mut lab: Lab) {
    let table = format!("sidestep-{}-outside", lab.gateway_a().tunnel());
    lab.start().expect("a session");
    let settings = "for s in accept_ra=2 accept_ra_pinfo=1; do \
                    echo ${s#*=} > /proc/sys/net/ipv6/conf/ex/${s%%=*}; done";
    lab.exec(Node::GatewayA, ["sh", "-c", settings]).expect("a gateway that believes routers");
    let host = Site::B.host().to_string();
    let leads = |lab: &Lab, where_to: &str| {
        let route = lab.exec(Node::GatewayA, ["ip", "-6", "route", "get", &host]).expect("a route").stdout;
        String::from_utf8_lossy(&route).contains(where_to)
    };
    assert!(!leads(&lab, "dev ex "));
    let [network, _] = Site::B.inner_prefixes();
    let liar = ["python3", "-c", ADVERTISE, "a", "fe80::bad", "high", "0", network];
    lab.exec(Node::Router, liar).expect("an advertisement");
    wait_until("a route of the neighbor's", || leads(&lab, "dev ex "));
    // There is a host of that name, which would answer, and could ask.
    let there = format!(
        "ip address add {host}/64 dev a nodad; ip -6 route replace {} via {}",
        Site::A.inner_prefixes()[0],
        Site::A.outer(lab.topology())
    );
    lab.exec(Node::Router, ["sh", "-c", &there]).expect("an address");

    let uplink = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let speaks = |lab: &Lab, node: Node, words: &[&str]| {
        let ping = [&["ping", "-n", "-c", "3", "-i", "0.1", "-W", "1"], words].concat();
        lab.exec(node, ping).expect("ping").status.success()
    };
    let other = Site::A.host().to_string();
    let nothing_passes = |lab: &Lab| {
        assert!(!speaks(lab, Node::HostA, &[&host]), "out");
        assert!(!speaks(lab, Node::Router, &["-I", &host, &other]), "in");
    };
    nothing_passes(&lab);
    assert!(lab.show(Site::A).expect("a status")["drops"]["outside_tunnel"].as_u64() >= Some(3));
    lab.gateway_a().kill();
    nothing_passes(&lab);
    lab.gateway_a().start().expect("a start after a kill");
    assert!(lab.gateway_a().stop(), "a clean end");
    nothing_passes(&lab);
    let inner = |address: Ipv6Addr| matches!(address.segments()[..4], [0x2001, 0xdb8, 0xb, 0]);
    let from_us = |packet: &&Packet| inner(packet.destination);
    let packets = uplink.finish().expect("packets");
    assert_eq!(packets.iter().filter(from_us).collect::<Vec<_>>(), Vec::<&Packet>::new());

    // Until somebody says so.
    let rules = |lab: &Lab| {
        let rules = lab.exec(Node::GatewayA, ["nft", "list", "tables"]).expect("nft").stdout;
        String::from_utf8_lossy(&rules).into_owned()
    };
    assert!(rules(&lab).contains(&table));
    let down = [lab.program().to_string_lossy().into_owned(), "down".into(), "--open".into()];
    let down = [&down[..], &[lab.gateway_a().tunnel().to_owned()]].concat();
    lab.exec(Node::GatewayA, down).expect("a command");
    assert!(!rules(&lab).contains(&table), "{}", rules(&lab));
    assert!(speaks(&lab, Node::HostA, &[&host]), "in clear, as asked for");
}

#[test]
fn a_tunnel_that_takes_the_ssh_client_along_is_refused() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    let file = lab.gateway_a().configuration().display().to_string();
    let up = |lab: &Lab, client: &str, more: &str| {
        let (program, here) = (lab.program().display(), Site::A.outer(lab.topology()));
        let words = format!(
            "SSH_CONNECTION='{client} 50000 {here} 22' sh -c 'timeout 2 {program} up {file} {more} 2>&1; true'"
        );
        let said = lab.exec(Node::GatewayA, ["sh", "-c", &words]).expect("a command").stdout;
        String::from_utf8_lossy(&said).into_owned()
    };
    let behind = Site::B.host().to_string();
    let refused = up(&lab, &behind, "");
    assert!(refused.contains("closes the SSH connection") && !refused.contains("is up"), "{refused}");
    let told = up(&lab, &behind, "--confirm 60s");
    assert!(told.contains("closes the SSH connection") && told.contains("is up"), "{told}");
    let neighbor = up(&lab, "2001:db8:fa::1", "");
    assert!(!neighbor.contains("SSH") && neighbor.contains("is up"), "{neighbor}");
    // As the message says.
    let route = format!("ip -6 route add {behind} via 2001:db8:fa::1");
    lab.exec(Node::GatewayA, ["sh", "-c", &route]).expect("a route");
    let routed = up(&lab, &behind, "");
    assert!(!routed.contains("SSH") && routed.contains("is up"), "{routed}");
    // A neighbor, on a network of which this machine has an address that a router has told it: the network's route is the more
    // specific one, and the table keeps it off all the same.
    let text =
        std::fs::read_to_string(&file).expect("a configuration").edited("2001:db8:b::/64", "2001:db8::/32");
    std::fs::write(&file, text).expect("a configuration");
    let address = |lab: &Lab, lifetime: &str| {
        let words = format!("ip -6 address replace 2001:db8:77::5/64 dev ex nodad {lifetime}");
        assert!(lab.exec(Node::GatewayA, ["sh", "-c", &words]).expect("a command").status.success());
        up(lab, "2001:db8:77::9", "")
    };
    let refused = address(&lab, "valid_lft 3600 preferred_lft 3600");
    let why = "allowed_ips has 2001:db8::/32, which neither leaves by ex";
    assert!(refused.contains("closes the SSH connection") && refused.contains(why), "{refused}");
    assert!(!refused.contains("is up"), "{refused}");
    let permanent = address(&lab, "valid_lft forever preferred_lft forever");
    assert!(!permanent.contains("SSH") && permanent.contains("is up"), "{permanent}");
}

/// Somebody outside says that it is a host behind the peer.
#[test]
fn what_is_behind_the_tunnel_comes_through_it_alone() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    lab.start().expect("a session");
    let (host, claimed) = (Site::A.host().to_string(), "2001:db8:b::99");
    let way = format!(
        "ip -6 address add {claimed}/128 dev lo; ip -6 route replace {} via {}",
        Site::A.inner_prefixes()[0],
        Site::A.outer(lab.topology())
    );
    lab.exec(Node::Router, ["sh", "-c", &way]).expect("a route");
    let asked = |lab: &Lab| {
        let counters = lab.exec(Node::HostA, ["cat", "/proc/net/snmp6"]).expect("counters").stdout;
        let counters = String::from_utf8_lossy(&counters).into_owned();
        let line = counters.lines().find(|line| line.starts_with("Icmp6InEchos")).expect("a counter");
        line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number")
    };
    let dropped = |lab: &Lab| lab.show(Site::A).expect("a status")["drops"]["outside_tunnel"].as_u64();
    let ping = |lab: &Lab, from: &str| {
        let words = ["ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", "-I", from, &host];
        lab.exec(Node::Router, words).expect("ping").status.success()
    };
    let before = asked(&lab);
    assert!(!ping(&lab, claimed));
    assert_eq!((asked(&lab), dropped(&lab)), (before, Some(3)));
    // Others still come in.
    assert!(ping(&lab, "2001:db8:fa::1"), "the router itself");
    assert_eq!(dropped(&lab), Some(3));
    // After a crash, too.
    lab.gateway_a().kill();
    assert!(!ping(&lab, claimed));
    assert_eq!(asked(&lab), before + 3);
}
