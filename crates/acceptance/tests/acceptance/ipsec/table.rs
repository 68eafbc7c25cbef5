//! A table that nobody gets round: what is for the tunnel leaves by no other interface, whatever neighbors advertise, and
//! whatever is taken away.

use std::time::Duration;

use lab::patience::wait_until;
use lab::process::Process;

use super::hosts::write_hosts;
use super::scene::{HOPPING, INNER, INNER_V4, OUTER, OUTER_V4, Scene};

/// A router advertisement with a route to one host (RFC 4191), from a neighbor.
const ROGUE: &str = "import socket,struct,sys\n\
    s=socket.socket(socket.AF_INET6,socket.SOCK_RAW,socket.IPPROTO_ICMPV6)\n\
    s.setsockopt(socket.IPPROTO_IPV6,socket.IPV6_MULTICAST_HOPS,255)\n\
    s.setsockopt(socket.IPPROTO_IPV6,socket.IPV6_MULTICAST_IF,socket.if_nametoindex('ex'))\n\
    ra=struct.pack('!BBHBBHII',134,0,0,64,0,0,0,0)\n\
    route=struct.pack('!BBBBI',24,3,128,8,600)+socket.inet_pton(socket.AF_INET6,sys.argv[1])\n\
    s.sendto(ra+route,('ff02::1',0,0,socket.if_nametoindex('ex')))";

fn runs(scene: &Scene, side: usize, script: &str) {
    let output = scene.on(side, &["sh", "-c", script]);
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

fn pings_none(scene: &Scene) {
    for address in [INNER[1], INNER_V4[1]] {
        assert!(!scene.pings(0, address), "no answer from {address}");
    }
}

/// Routes past the tunnel to two hosts behind it: by a router advertisement, and as DHCP clients make them.
fn mislead(scene: &Scene) {
    runs(
        scene,
        0,
        "cd /proc/sys/net/ipv6/conf/ex && echo 2 >accept_ra && echo 128 >accept_ra_rt_info_max_plen",
    );
    wait_until("a route by a router advertisement", || {
        runs(scene, 1, &format!("python3 -c \"{ROGUE}\" {}", INNER[1]));
        let route = scene.on(0, &["ip", "-6", "route", "get", INNER[1]]);
        String::from_utf8_lossy(&route.stdout).contains("dev ex")
    });
    let route = format!("ip route add {} via {} dev ex proto dhcp", INNER_V4[1], OUTER_V4[1]);
    runs(scene, 0, &route);
}

#[test]
fn what_a_neighbor_advertises_takes_nothing_out_of_the_tunnel() {
    let Some(scene) = Scene::new(&["ping", "python3"]) else { return };
    let recorder = scene.record();
    let _ends = scene.tunnel();
    mislead(&scene);
    pings_none(&scene);
    let drops = scene.status(0).expect("a status")["drops"]["past_tunnel"].as_u64();
    assert!(drops >= Some(6), "{drops:?}");
    runs(&scene, 0, &format!("ip -6 route flush proto ra; ip route del {}", INNER_V4[1]));
    wait_until("an answer", || scene.pings(0, INNER[1]) && scene.pings(0, INNER_V4[1]));
    assert_eq!(recorder.in_clear(), []);
}

#[test]
fn nothing_leaves_in_clear_whatever_is_taken_away_of_a_tunnel_that_was_killed() {
    let Some(scene) = Scene::new(&["ping", "python3"]) else { return };
    let recorder = scene.record();
    let [a, _b] = scene.tunnel();
    a.kill();
    mislead(&scene);
    pings_none(&scene);
    runs(&scene, 0, "ip -6 route flush proto 83; ip route flush proto 83");
    runs(
        &scene,
        0,
        &format!(
            "ip route add default via {} dev ex; ip -6 route add default via {} dev ex",
            OUTER_V4[1], OUTER[1]
        ),
    );
    pings_none(&scene);
    runs(&scene, 0, "ip rule flush; ip -6 rule flush; ip rule add lookup main; ip -6 rule add lookup main");
    pings_none(&scene);
    assert_eq!(recorder.in_clear(), []);
}

#[test]
fn a_route_that_is_in_the_way_is_named_and_what_it_leads_to_is_dropped() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let recorder = scene.record();
    scene.write_site(0, true);
    runs(&scene, 0, &format!("ip route add 10.0.2.0/24 via {} dev ex", OUTER_V4[1]));
    let program = std::env::var("SIDESTEP_BIN").expect("the program");
    let [file, socket] = ["a.toml", "a.sock"].map(|name| scene.path(name).display().to_string());
    let refused = scene.on(0, &[&program, "ipsec", "up", &file, "--socket", &socket]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("10.0.2.0/24: there is another route to it"), "{told}");
    assert!(
        told.contains("is refused until it is up: `sidestep ipsec down tunnel-a --open` ends that"),
        "{told}"
    );
    assert!(!scene.pings(0, INNER_V4[1]));
    assert_eq!(recorder.in_clear(), []);
}

#[test]
fn what_comes_from_behind_the_tunnel_by_another_interface_is_dropped() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let [_a, b] = scene.tunnel();
    b.kill();
    let clear = format!(
        "nft flush ruleset; ip -6 route flush proto 83; ip addr add {}/128 dev lo; ip route add {}/128 via {} dev ex",
        INNER[1], INNER[0], OUTER[0]
    );
    runs(&scene, 1, &clear);
    // Until its device is gone, the address is not the other end's to send from.
    wait_until("a packet that is dropped", || {
        let ping = scene.on(1, &["ping", "-n", "-c", "1", "-W", "1", "-I", INNER[1], INNER[0]]);
        assert!(!ping.status.success());
        scene.status(0).expect("a status")["drops"]["outside_tunnel"].as_u64() >= Some(1)
    });
}

#[test]
fn a_table_that_somebody_flushes_comes_back() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let listed = || {
        let table =
            scene.on(0, &["nft", "--stateless", "list", "table", "inet", "sidestep-tunnel-a-outside"]);
        String::from_utf8_lossy(&table.stdout).into_owned()
    };
    let before = listed();
    assert!(before.contains("fd00:b::/64"), "{before}");
    let restored = || scene.status(0).expect("a status")["drops"]["rules_restored"].as_u64();
    for (time, flush) in
        (1..).zip(["nft flush ruleset", "nft flush chain inet sidestep-tunnel-a-outside leaving"])
    {
        runs(&scene, 0, flush);
        wait_until("the table", || listed() == before);
        // Said once it is done: what is flushed while it is made is mended without another word.
        wait_until("the status to say so", || restored() == Some(time));
    }
    assert!(scene.pings(0, INNER[1]));
}

#[test]
fn the_table_of_protected_hosts_comes_back_when_somebody_flushes_it() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    write_hosts(&scene, OUTER, "");
    let _b = scene.up(1);
    let _a = scene.up(0);
    wait_until("an answer", || scene.pings(0, OUTER[1]));
    let listed = || {
        let table = scene.on(0, &["nft", "--stateless", "list", "table", "inet", "sidestep-tunnel-a-hosts"]);
        String::from_utf8_lossy(&table.stdout).into_owned()
    };
    let before = listed();
    assert!(before.contains(OUTER[1]), "{before}");
    for flush in ["nft flush ruleset", "nft flush chain inet sidestep-tunnel-a-hosts output"] {
        runs(&scene, 0, flush);
        wait_until("the table", || listed() == before);
    }
    let restored = || scene.status(0).expect("a status")["drops"]["rules_restored"].as_u64();
    wait_until("the status to say so", || restored() >= Some(2));
    assert!(scene.pings(0, OUTER[1]));
}

#[test]
fn tables_of_a_moving_tunnel_are_there_whenever_they_were_flushed_while_they_were_made() {
    let Some(scene) = Scene::new(&["nft"]) else { return };
    scene.write_moving();
    scene.own_prefix();
    let flush = "for i in $(seq 50); do nft flush ruleset; sleep 0.02; done";
    let mut command = scene.namespaces[1].command("sh").expect("the namespace");
    let mut flusher = Process::start(command.args(["-c", flush]), &scene.path("flush.log")).expect("sh");
    let _gateway = scene.up_moving();
    assert!(flusher.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));
    wait_until("a dark prefix", || {
        let listed = scene.on(1, &["nft", "list", "ruleset"]);
        String::from_utf8_lossy(&listed.stdout).contains(&format!("ip6 daddr {}", HOPPING[1]))
    });
}
