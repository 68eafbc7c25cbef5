//! What other programs take from the tunnel's interface: network managers, and administrators.

use std::process::Command;
use std::time::Duration;

use lab::patience::wait_until;
use lab::{Lab, Node, Site, Topology};

use super::scene;

/// Addresses and routes as they are to be, in any order, without what changes by itself.
fn there(lab: &Lab, tunnel: &str) -> Vec<String> {
    let ip = |words: &str| scene::run(lab, Node::GatewayA, &["sh", "-c", &format!("ip -6 -o {words}")]);
    let address = ip(&format!("address show dev {tunnel} scope global"));
    let routes = ip(&format!(
        "route show dev {tunnel}; ip -6 -o route show table local proto 83; ip -o route show table all type unreachable; \
         ip -6 -o route show table all proto 83"
    ));
    let routes = routes.lines().filter(|line| !line.starts_with("fe80::"));
    // A route's MTU is found out in time.
    let without_mtu = |line: &str| line.split(" mtu ").next().unwrap_or_default().trim().to_owned();
    let mut lines: Vec<String> = address.lines().map(str::to_owned).chain(routes.map(without_mtu)).collect();
    lines.iter_mut().for_each(|line| *line = line.replace(" pref medium", ""));
    lines.sort();
    lines
}

#[test]
fn what_another_program_takes_from_the_tunnels_interface_comes_back() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    let tunnel = lab.gateway(Site::A).tunnel().to_owned();
    let before = there(&lab, &tunnel);
    let handshakes = scene::number(&lab, Site::A, "handshakes");
    for command in [
        "ip -6 address flush dev TUNNEL",
        "ip -6 route flush dev TUNNEL",
        "ip link set TUNNEL down && ip link set TUNNEL up",
        "ip -6 route flush table local proto 83",
        "ip -6 route flush proto 83",
        "ip route flush table all proto 83",
        "ip -6 route del unreachable 2001:db8:b::/64 proto 83",
    ] {
        let command = command.replace("TUNNEL", &tunnel);
        scene::run(&lab, Node::GatewayA, &["sh", "-c", &command]);
        wait_until(&command, || there(&lab, &tunnel) == before);
        lab.wait_connected(Duration::from_secs(20)).expect(&command);
    }
    assert_eq!(scene::number(&lab, Site::A, "handshakes"), handshakes, "the session was to stay");
    // What keeps it closed is there when nobody puts it back any more.
    scene::run(&lab, Node::GatewayA, &["ip", "-6", "route", "flush", "proto", "83"]);
    wait_until("all of it", || there(&lab, &tunnel) == before);
    lab.gateway_a().kill();
    let way = scene::run(&lab, Node::GatewayA, &["ip", "-6", "route", "get", "2001:db8:b::1"]);
    assert!(way.contains("No route to host"), "{way}");
    lab.gateway_a().start().expect("a start");
    // Who sets it down means it.
    scene::run(&lab, Node::GatewayA, &["ip", "link", "set", &tunnel, "down"]);
    scene::run(&lab, Node::GatewayA, &["ip", "-6", "address", "flush", "dev", &tunnel]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(!scene::run(&lab, Node::GatewayA, &["ip", "link", "show", &tunnel]).contains(",UP"));
}

/// An nft that fails while it is asked for a change: here for an address of the host's own in the prefix, which is not dark.
#[test]
fn rules_that_could_not_be_changed_are_changed_once_they_can_be() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder.topology(Topology::Switched));
    let log = lab.gateway(Site::A).log().to_owned();
    let (nft, folder) = (lab::command::find("nft").expect("nft"), tempfile::tempdir().expect("a folder"));
    let (tool, failing) = (nft.to_str().expect("a path"), folder.path().join("nft"));
    std::fs::write(&failing, "#!/bin/sh\necho not today >&2\nexit 1\n").expect("a file");
    let shell = |line: &str| scene::run(&lab, Node::GatewayA, &["sh", "-c", line]);
    // In this test's mounts alone.
    shell(&format!("chmod 755 {0}", failing.display()));
    let mount =
        |words: &[&str]| lab::command::check(Command::new(words[0]).args(&words[1..])).expect("a mount");
    mount(&["mount", "--bind", failing.to_str().expect("a path"), tool]);
    shell("ip address add 2001:db8:a1::5/64 dev ex nodad");
    let has_failed = || std::fs::read_to_string(&log).expect("a log").contains("not today");
    wait_until("nft has failed", has_failed);
    mount(&["umount", "--lazy", tool]);
    let rules = || shell("nft list ruleset");
    wait_until("the address is known", || rules().contains("2001:db8:a1::5"));
}
