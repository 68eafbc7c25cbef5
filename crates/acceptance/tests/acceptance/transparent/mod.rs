//! Transparent gateways: hosts that know nothing of them, routers that know nothing of them, and who else is on the link.

mod frames;
mod link;
mod scene;
mod speed;

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use frames::{Capture, holds, ipv6};
use lab::echoes::{self, Echoes};
use lab::patience::wait_until;
use lab::{Profile, Topology};
use scene::{MACS, THIRD, THIRD_IPV4, TransparentScene};

/// From the hosts' boot on: they get addresses and a lower MTU, reach each other across rotations without a loss, and
/// nobody sees what is not for him; third hosts are left alone.
fn story(topology: Topology, profile: Profile) {
    let Some(mut scene) = TransparentScene::new(topology, profile) else { return };
    let captures = (Capture::start(&scene, "xa", "g"), Capture::start(&scene, "sa", "h"));
    scene.start_gateways();
    scene.boot_hosts();
    let (a, b) = (scene.host(0), scene.host(1));

    let mtu = scene.run("ha", &["cat", "/proc/sys/net/ipv6/conf/eth/mtu"]);
    let expected = match profile {
        Profile::MovingTarget => 1461,
        Profile::Classic => 1472,
    };
    assert_eq!(mtu.trim().parse(), Ok(expected));

    // Pings in both directions, TCP, and the third hosts, all at once.
    let ping = ["ping", "-6", "-q", "-i", "0.002", "-W", "2", "-c", "4000"];
    let counters = |node: &str| scene.run(node, &[&["cat"], &echoes::FILES[..]].concat());
    let pings = [("ha", &b), ("hb", &a)].map(|(from, to)| {
        let words: Vec<&str> = ping.iter().copied().chain([to.as_str()]).collect();
        let before = Echoes::parse(&counters(from));
        (scene.start(from, &words, &format!("ping-{from}")), from, before)
    });
    let third = ["ping", "-q", "-i", "0.05", "-W", "2", "-c", "100"];
    let thirds = [("ta", THIRD[1]), ("to", THIRD[0]), ("ta", THIRD_IPV4[1]), ("ta", "2001:db8:a::1")];
    let thirds = thirds.map(|(from, to)| {
        let words: Vec<&str> = third.iter().copied().chain([to]).collect();
        let log = format!("ping-{from}-{to}");
        (scene.start(from, &words, &log), log)
    });
    let server = scene.start("hb", &["iperf3", "-s", "-1"], "iperf3-server");
    std::thread::sleep(Duration::from_millis(500));
    let tcp = scene.run("ha", &["iperf3", "-c", &b, "-t", "4", "-b", "100M"]);
    server.stop(Duration::from_secs(2));
    assert!(tcp.contains("receiver"), "{tcp}\n{}", scene.logs());
    for (mut ping, from, before) in pings {
        assert!(ping.wait(Duration::from_secs(60)).is_some(), "ping does not end");
        let report = scene.output(&format!("ping-{from}"));
        assert!(before.all_answered(&report, || counters(from)), "{report}\n{}", scene.logs());
    }
    for (mut ping, log) in thirds {
        assert!(ping.wait(Duration::from_secs(60)).is_some(), "ping does not end");
        assert!(scene.output(&log).contains(" 0% packet loss"), "{log}: {}", scene.output(&log));
    }
    if topology == Topology::Tunneled {
        // What fits the host's link and not the tunnel between the routers: it is told, with the inner MTU.
        let report = scene.run("ha", &["ping", "-6", "-M", "do", "-s", "1412", "-c", "4", "-W", "1", &b]);
        // By an error, or by the host itself where TCP has had one: `mtu=1456`, `mtu: 1456`.
        let mtu = report.split("mtu").nth(1).map(|rest| rest.trim_start_matches(['=', ':', ' ']));
        let mtu = mtu.and_then(|rest| rest.split_whitespace().next());
        let fits = match profile {
            Profile::MovingTarget => 1441..=1444,
            Profile::Classic => 1456..=1456,
        };
        assert!(mtu.and_then(|mtu| mtu.parse().ok()).is_some_and(|mtu: u32| fits.contains(&mtu)), "{report}");
    }
    let peer = scene.peer(0);
    assert!(peer["rotations"].as_u64() > Some(2), "{peer}");
    let (public, private) = (captures.0.finish(), captures.1.finish());

    public_side(&public, [&a, &b].map(|address| address.parse().expect("an address")));
    private_side(&public, &private);

    // Somebody outside tries to take the host's address, and finds it taken.
    scene.node("to").sysctl(&[("ipv6/conf/eth/dad_transmits", 1)]).expect("sysctl");
    scene.node("to").ip(&format!("addr add {a}/64 dev eth\n")).expect("an address");
    let taken = || scene.run("to", &["ip", "-6", "addr", "show", "dev", "eth"]).contains("dadfailed");
    wait_until("a duplicate is detected", taken);

    scene.stop_gateways();
    assert_eq!(scene.run("ga", &["cat", "/proc/sys/net/ipv6/conf/in/disable_ipv6"]).trim(), "0");
    assert_eq!(scene.run("ga", &["ip", "-6", "route", "show", "proto", "83"]).trim(), "");
    assert!(
        !scene.run("ta", &["ping", "-c1", "-W1", THIRD[1]]).contains(" 0% packet loss"),
        "it fails closed"
    );
}

/// Nothing tells who is protected, and router solicitations tell nothing at all.
fn public_side(frames: &[Vec<u8>], hosts: [Ipv6Addr; 2]) {
    let mut solicitations = 0;
    for frame in frames {
        for mac in MACS {
            assert!(!holds(frame, &mac), "the MAC of a protected host: {frame:02x?}");
        }
        for host in hosts {
            let octets = host.octets();
            assert!(!holds(frame, &octets), "the address of a protected host: {frame:02x?}");
            // With its link-local address it has the interface identifier in common.
            assert!(!holds(frame, &octets[8..]), "the identifier of a protected host: {frame:02x?}");
        }
        if let Some((source, _, 58, [133, _, _, _, _, _, _, _, options @ ..])) = ipv6(frame) {
            solicitations += 1;
            assert!(source.is_unspecified() && options.is_empty() && frame[6] & 3 == 2, "{frame:02x?}");
        }
    }
    assert!(solicitations > 0);
}

/// No hopping address is seen: none of those that carry the tunnel outside.
fn private_side(public: &[Vec<u8>], private: &[Vec<u8>]) {
    let tunnel = public.iter().filter_map(|frame| ipv6(frame)).filter(|(source, destination, next, _)| {
        matches!(next, 17 | 60) && !source.is_multicast() && !destination.is_multicast()
    });
    let hopping: HashSet<Ipv6Addr> =
        tunnel.flat_map(|(source, destination, ..)| [source, destination]).collect();
    assert!(hopping.len() > 12, "{}", hopping.len());
    let mut ours = 0;
    for frame in private {
        ours += usize::from(holds(frame, &MACS[0]));
        for window in frame.windows(16).take(100) {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(window).expect("16 bytes"));
            assert!(!hopping.contains(&address), "a hopping address: {frame:02x?}");
        }
    }
    assert!(ours > 8_000, "{ours}");
}

#[test]
fn moving_target_across_a_router() {
    story(Topology::Routed, Profile::MovingTarget);
}

#[test]
fn moving_target_across_a_6in4_tunnel() {
    story(Topology::Tunneled, Profile::MovingTarget);
}

#[test]
fn classic_across_a_router() {
    story(Topology::Routed, Profile::Classic);
}

mod alone {
    use super::{Profile, Topology, story};

    // Each new address of the other gateway is asked for on the link, and its daemon answers, on the thread that changes
    // routes: the kernel has one lock for those of all namespaces, which tests beside these hold for seconds.

    #[test]
    fn moving_target_on_one_link() {
        story(Topology::Switched, Profile::MovingTarget);
    }

    #[test]
    fn classic_on_one_link() {
        story(Topology::Switched, Profile::Classic);
    }
}

#[test]
fn classic_across_a_6in4_tunnel() {
    story(Topology::Tunneled, Profile::Classic);
}
