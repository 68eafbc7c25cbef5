//! Transition tunnels between gateways, over a network that knows no IPv6.

mod clat;
mod named;
mod nat64;
mod scene;
mod strangers;

use lab::echoes::{self, Echoes};
use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};

use scene::{INTERNET, TransitionScene};

/// Customer and broker of the examples.
const BROKER: [&str; 3] = ["198.51.100.7", "192.0.2.1", "203.0.113.9"];
const IPV4_ONLY: &str = include_str!("../../../../../examples/ipv4-only.toml");
/// Two customers and the border relay.
const SIX_RD: [&str; 3] = ["10.100.100.1", "10.7.0.9", "10.0.0.1"];

/// An example, at the interfaces of the tests.
fn at_our_interfaces(example: &str) -> String {
    example.replace("\"eth0\"", "\"wan\"").replace("\"eth1\"", "\"lan\"")
}

fn broker_example() -> String {
    at_our_interfaces(include_str!("../../../../../examples/broker.toml"))
}

fn six_rd_example() -> String {
    at_our_interfaces(include_str!("../../../../../examples/6rd.toml"))
}

/// The broker's end, for a customer at this address.
fn broker(customer: &str) -> String {
    format!(
        "[[uplink]]\nname = \"customer\"\ninterface = \"cust\"\naddresses = [\"2001:db8:1::1/64\"]\n\
         [uplink.tunnel]\nkind = \"6in4\"\nover = \"wan\"\nremote = \"{customer}\"\n\
         [[route]]\nto = \"2001:db8:100::/48\"\ninterface = \"cust\"\n"
    )
}

/// A customer and his broker, who leads to the Internet.
fn with_broker() -> Option<TransitionScene> {
    let mut scene = TransitionScene::new(BROKER)?;
    scene.internet();
    scene.start("far", &broker("198.51.100.7"));
    scene.start("gw", &broker_example());
    wait_for("an address of the broker's prefix", || scene.address("host", "2001:db8:100:"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    Some(scene)
}

#[test]
fn a_host_behind_a_broker_tunnel_has_the_internet() {
    let Some(mut scene) = TransitionScene::new(BROKER) else { return };
    let before = scene.kernel("gw");
    scene.internet();
    scene.start("far", &broker("198.51.100.7"));
    scene.start("gw", &broker_example());
    let address = wait_for("an address of the broker's prefix", || scene.address("host", "2001:db8:100:"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert!(scene.answers("inet", &address), "the other way round");
    assert!(scene.answers("gw", INTERNET), "from the gateway itself");
    // Larger than the tunnel takes: the kernel says so, with its MTU.
    let large = scene.run("host", &["ping", "-c", "1", "-M", "do", "-s", "1452", "-W", "2", INTERNET]);
    assert!(large.contains("mtu") && large.contains("1480"), "{large}");

    let before_transfer = scene.sent("gw", "wan");
    let bytes = scene.transfer("host", ("inet", INTERNET), 1, || {});
    let tunnel = scene.tunnel("gw");
    assert!(tunnel["tx_bytes"].as_u64() > Some(bytes), "{bytes} bytes: {tunnel}");
    // GSO packets cross whole: the tunnel counts the segments that they stand for, the link counts them.
    let packets = tunnel["tx_packets"].as_u64().expect("a number");
    let whole = scene.sent("gw", "wan") - before_transfer;
    assert!(packets > bytes / 1480 && whole < packets / 4, "{whole} on the link: {tunnel}");
    let facts =
        [&tunnel["kind"], &tunnel["over"], &tunnel["local"], &tunnel["remote"]].map(|fact| fact.as_str());
    assert_eq!(facts, [Some("6in4"), Some("wan"), Some("198.51.100.7"), Some("192.0.2.1")]);
    assert_eq!(tunnel["mtu"], 1480);
    let text = String::from_utf8(scene.sidestep("gw", &["status"]).stdout).expect("text");
    assert!(text.contains("tunnel: 6in4 over wan, 198.51.100.7 to 192.0.2.1, MTU 1480"), "{text}");

    scene.stop("gw");
    assert_eq!(scene.kernel("gw"), before);
}

#[test]
fn a_connection_goes_on_when_the_outer_address_changes() {
    let Some(scene) = with_broker() else { return };
    let bytes = scene.transfer("host", ("inet", INTERNET), 6, || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        scene.run("gw", &["ip", "address", "flush", "dev", "wan"]);
        scene.give("gw", "198.51.101.9");
        // Who runs the tunnel tells the broker, as by the address that brokers have for it.
        scene.reload("far", &broker("198.51.101.9"));
        wait_until("the other address", || scene.tunnel("gw")["local"] == "198.51.101.9");
        wait_until("the Internet", || scene.answers("host", INTERNET));
    });
    assert!(bytes > 0);
    let status = scene.status("gw").expect("a status");
    assert_eq!(status["uplinks"][0]["works"], true);
    assert!(scene.address("host", "2001:db8:100:").is_some(), "the prefix is the same");
}

#[test]
fn packets_take_the_way_that_routes_and_neighbors_say_now() {
    let Some(scene) = with_broker() else { return };
    // The kernel asks soon whether neighbors are still there.
    for (name, value) in
        [("base_reachable_time_ms", 500), ("delay_first_probe_time", 1), ("ucast_solicit", 1)]
    {
        scene.run("gw", &["sysctl", "-w", &format!("net.ipv4.neigh.wan.{name}={value}")]);
    }
    // The provider has another router, at another hardware address; the one from before is no more.
    scene.run(
        "gw",
        &["ip", "neighbor", "replace", "198.51.100.254", "dev", "wan", "lladdr", "02:00:00:00:00:99"],
    );
    wait_until("no way", || !scene.answers("host", INTERNET));
    scene.run("isp", &["ip", "address", "add", "198.51.100.253/24", "dev", "gw"]);
    scene.run("gw", &["ip", "route", "replace", "default", "via", "198.51.100.253"]);
    wait_until("the other router", || scene.answers("host", INTERNET));
    // It is replaced by one of the same address.
    scene.run("isp", &["ip", "link", "set", "gw", "address", "02:00:00:00:00:aa"]);
    wait_until("the router in its place", || scene.answers("host", INTERNET));
}

#[test]
fn without_an_outer_address_the_uplink_is_down_and_says_why() {
    let Some(scene) = with_broker() else { return };
    scene.run("gw", &["ip", "address", "flush", "dev", "wan"]);
    wait_until("no way", || scene.status("gw").expect("a status")["uplinks"][0]["works"] == false);
    let told = || scene.status("gw").expect("a status")["problems"].to_string();
    wait_until("a reason", || told().contains("wan has no address of IPv4 that 6in4 can use"));
    let report = scene.run("host", &["ping", "-c", "1", "-W", "2", INTERNET]);
    assert!(report.contains("unreachable") || report.contains("No route"), "{report}");
    scene.give("gw", "198.51.100.7");
    wait_until("the Internet", || scene.answers("host", INTERNET));
}

/// The recipe of `docs/recipes.md` for a site that has IPv4 only: a moving tunnel whose packets cross the broker's, and
/// whose outer addresses are of the prefix that comes with it.
#[test]
fn a_moving_tunnel_crosses_the_brokers() {
    let Some(mut scene) = TransitionScene::new(BROKER) else { return };
    scene.internet();
    scene.run("far", &["ip", "route", "add", "2001:db8:b1::/64", "via", INTERNET]);
    scene.run("inet", &["ip", "address", "add", "2001:db8:b::1/64", "dev", "lo"]);
    scene.start("far", &broker("198.51.100.7"));
    let (ours, theirs) = (scene.key("gw"), scene.key("inet"));
    let gw = at_our_interfaces(IPV4_ONLY)
        .replace("ipv4-only.key", "gw.key")
        .replace("fbfKS0GINA6MTVDKONBvvsmMK4eoYvB5ZRNp88sI+mI=", &theirs)
        .replace("\"mt6d0\"", &format!("\"{}\"", scene.tunnel_name("gw")))
        .replace("\"25s\"", "\"25s\"\nrotation = \"1s\"");
    let inet = format!(
        "[node]\nprivate_key_file = \"inet.key\"\nexternal = \"eth0\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
         [tunnel]\nname = \"{}\"\n[[peer]]\nname = \"other\"\npublic_key = \"{ours}\"\n\
         hop_prefix = \"2001:db8:100:a1::/64\"\nallowed_ips = [\"2001:db8:100::/64\"]\nrotation = \"1s\"\n",
        scene.tunnel_name("inet")
    );
    scene.write("inet.toml", &inet);
    scene.start_tunnel("inet");
    // What the file makes itself is not missing before.
    scene.write("gw.toml", &gw);
    let checked = scene.sidestep("gw", &["check", &scene.path("gw.toml").to_string_lossy()]);
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && text.contains("path MTU of 1480"), "{text}");
    scene.start("gw", &gw);
    wait_for("an address of the broker's prefix", || scene.address("host", "2001:db8:100:"));
    wait_until("the other site", || scene.answers("host", "2001:db8:b::1"));

    let rotations = || {
        let shown = scene.sidestep("gw", &["show", &scene.tunnel_name("gw"), "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        shown["peers"][0]["rotations"].as_u64().expect("a number")
    };
    let (begin, crossed) = (rotations(), scene.tunnel("gw")["tx_packets"].as_u64());
    let count = "400";
    let counters = || scene.run("host", &[&["cat"], &echoes::FILES[..]].concat());
    let before = Echoes::parse(&counters());
    // Many at once at first: they leave as a GSO packet.
    let report = scene.run("host", &["ping", "-q", "-c", count, "-l", "30", "-i", "0.01", "2001:db8:b::1"]);
    let ends = || {
        ["gw", "inet"].map(|node| {
            let shown = scene.sidestep(node, &["show", &scene.tunnel_name(node), "--json"]);
            String::from_utf8_lossy(&shown.stdout).into_owned()
        })
    };
    assert!(before.all_answered(&report, counters), "{report}{:#?}", ends());
    wait_until("rotations", || rotations() >= begin + 3);
    assert!(scene.tunnel("gw")["tx_packets"].as_u64() >= crossed.map(|packets| packets + 400));

    // Somebody starts it once more, in another namespace: refused, and it goes on.
    let second = scene.sidestep("host", &["up", "inet.toml", "--state-dir", "second"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && !said.contains("an earlier run"), "{said}");
    let begin = rotations();
    wait_until("rotations", || rotations() >= begin + 3);
    assert!(scene.answers("host", "2001:db8:b::1"));
}

#[test]
fn a_narrow_link_below_narrows_the_tunnel() {
    let Some(scene) = with_broker() else { return };
    // In the middle: the provider's router refuses what is too large, and says so.
    scene.run("isp", &["ip", "link", "set", "far", "mtu", "1400"]);
    let bytes = scene.transfer("host", ("inet", INTERNET), 2, || {});
    assert!(bytes > 1_000_000, "{bytes}");
    wait_until("the path's MTU", || scene.tunnel("gw")["mtu"] == 1380);
    let large =
        scene.run("host", &["ping", "-c", "2", "-i", "0.2", "-M", "do", "-s", "1400", "-W", "2", INTERNET]);
    assert!(large.contains("mtu=1380") || large.contains("mtu: 1380"), "{large}");

    // Below: at once.
    scene.run("gw", &["ip", "link", "set", "wan", "mtu", "1350"]);
    wait_until("the MTU below", || scene.tunnel("gw")["mtu"] == 1330);
    // IPv6 needs 1280 bytes: what is smaller outside is cut there.
    scene.run("isp", &["ip", "link", "set", "far", "mtu", "1000"]);
    scene.run("far", &["ip", "link", "set", "wan", "mtu", "1000"]);
    wait_until("a transfer over less than IPv6 needs", || {
        scene.transfer("host", ("inet", INTERNET), 2, || {}) > 100_000
    });
    assert_eq!(scene.tunnel("gw")["mtu"], 1280);
}

#[test]
fn after_a_crash_the_tunnel_is_gone_and_the_next_start_makes_it_anew() {
    let Some(mut scene) = with_broker() else { return };
    let address = scene.address("host", "2001:db8:100:").expect("an address");
    // As of another uplink, whose provider takes nothing from the broker's prefix.
    scene.run(
        "gw",
        &["ip", "-6", "route", "add", "default", "via", "fe80::99", "dev", "wan", "metric", "600"],
    );
    scene.kill("gw");
    assert!(!scene.run("gw", &["ip", "link"]).contains("he6"));
    let way = scene.run("gw", &["ip", "-6", "route", "get", INTERNET, "from", &address, "iif", "lan"]);
    assert!(!way.contains("dev wan"), "{way}");
    let told = scene.run("host", &["ping", "-c", "1", "-W", "2", INTERNET]);
    assert!(told.contains("unreachable") || told.contains("No route"), "{told}");
    scene.run(
        "gw",
        &["ip", "-6", "route", "del", "default", "via", "fe80::99", "dev", "wan", "metric", "600"],
    );
    scene.start_again("gw");
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert!(scene.answers("inet", &address));
    // A reload that leaves the tunnel alone keeps it, and what it has counted.
    let before = scene.tunnel("gw")["tx_packets"].as_u64();
    scene.reload("gw", &broker_example().edited("interface = \"lan\"", "interface = \"lan\"\nsubnet = 5"));
    wait_for("an address of the other subnet", || scene.address("host", "2001:db8:100:5:"));
    assert!(before > Some(0) && scene.tunnel("gw")["tx_packets"].as_u64() >= before);
    // One that changes it makes another.
    scene.reload("gw", &broker_example().edited("\"6in4\"", "\"6in4\"\nmtu = 1400"));
    wait_until("the other MTU", || scene.tunnel("gw")["mtu"] == 1400);
    wait_until("the Internet", || scene.answers("host", INTERNET));
}

#[test]
fn customers_of_6rd_reach_each_other_and_the_internet_through_the_relay() {
    let Some(mut scene) = TransitionScene::new(SIX_RD) else { return };
    let example = six_rd_example();
    scene.start("gw", &example);
    scene.start("far", &example);
    // The provider's relay is an end of the domain whose address is the relay's.
    let relay = example.split("[[network]]").next().expect("a part");
    scene.node("relay").ip("addr add 2001:500::1/128 dev lo\n").expect("an address");
    scene.start("relay", relay);
    let one = wait_for("an address", || scene.address("host", "2001:db8:6464:100:"));
    let other = wait_for("an address", || scene.address("inet", "2001:db8:700:900:"));
    wait_until("each other", || scene.answers("host", &other));
    wait_until("the Internet", || {
        scene.answers("host", "2001:500::1") && scene.answers("inet", "2001:500::1")
    });
    assert!(scene.answers("relay", &one));
    assert_eq!(scene.tunnel("gw")["kind"], "6rd");

    // The provider gives another address, and with it another prefix: hosts are renumbered.
    scene.run("gw", &["ip", "address", "flush", "dev", "wan"]);
    scene.give("gw", "10.20.30.40");
    let new = wait_for("an address of the other prefix", || scene.address("host", "2001:db8:141e:2800:"));
    wait_until("the Internet", || scene.answers("host", "2001:500::1"));
    wait_until("the old address is not used", || scene.address("host", "2001:db8:6464:100:").is_none());
    assert!(scene.answers("inet", &new));
}

#[test]
fn a_device_that_somebody_deletes_is_made_anew() {
    let Some(mut scene) = with_broker() else { return };
    scene.run("gw", &["ip", "link", "delete", "he6"]);
    wait_until("the device", || scene.run("gw", &["ip", "link"]).contains("he6"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let told = scene.log("gw").matches("he6 is gone").count();
    assert_eq!(told, 1, "{}", scene.log("gw"));
    let setting = scene.run("gw", &["cat", "/proc/sys/net/ipv6/conf/he6/accept_ra"]);
    assert_eq!(setting.trim(), "0", "it has the settings of an uplink");
    scene.stop("gw");
}

fn six_to_four(more: &str) -> String {
    format!(
        "[[uplink]]\nname = \"sixtofour\"\ninterface = \"tun6to4\"\n[uplink.tunnel]\nkind = \"6to4\"\nover = \"wan\"\n{more}\
         [[network]]\ninterface = \"lan\"\n"
    )
}

#[test]
fn hosts_of_6to4_reach_each_other_and_nobody_else() {
    let Some(mut scene) = TransitionScene::new(BROKER) else { return };
    let six_to_four = six_to_four("");
    scene.start("gw", &six_to_four);
    scene.start("far", &six_to_four);
    wait_for("an address", || scene.address("host", "2002:c633:6407:"));
    let other = wait_for("an address", || scene.address("inet", "2002:c000:201:"));
    wait_until("each other", || scene.answers("host", &other));
    let status = scene.status("gw").expect("a status");
    assert_eq!(status["uplinks"][0]["works"], false, "it does not lead to the Internet");
    assert!(!scene.answers("host", INTERNET));
}

#[test]
fn a_relay_that_is_named_leads_6to4_to_the_internet() {
    let Some(mut scene) = TransitionScene::new(BROKER) else { return };
    let configuration = six_to_four(&format!("relay = \"{}\"\n", BROKER[2]));
    scene.node("relay").ip("addr add 2001:500::1/128 dev lo\n").expect("an address");
    scene.start("relay", configuration.split("[[network]]").next().expect("a part"));
    scene.start("gw", &configuration);
    scene.start("far", &configuration);
    let one = wait_for("an address", || scene.address("host", "2002:c633:6407:"));
    let other = wait_for("an address", || scene.address("inet", "2002:c000:201:"));
    wait_until("the Internet", || scene.answers("host", "2001:500::1"));
    assert!(scene.answers("relay", &one));
    assert_eq!(scene.status("gw").expect("a status")["uplinks"][0]["works"], true);
    // Ends of 6to4 need no relay between them.
    let relayed = || scene.tunnel("relay")["rx_packets"].as_u64();
    let before = relayed();
    wait_until("each other", || scene.answers("host", &other));
    assert_eq!(relayed(), before);
}

#[test]
fn ipv4_crosses_a_network_of_ipv6() {
    let Some(mut scene) = TransitionScene::new(BROKER) else { return };
    for (node, address, other) in
        [("gw", "2001:db8:a::2", "2001:db8:a::1"), ("far", "2001:db8:b::2", "2001:db8:b::1")]
    {
        scene.run(node, &["ip", "address", "flush", "dev", "wan", "scope", "global"]);
        scene
            .node(node)
            .ip(&format!("addr add {address}/64 dev wan nodad\nroute add default via {other}\n"))
            .expect("IPv6");
        scene.node("isp").ip(&format!("addr add {other}/64 dev {node} nodad\n")).expect("a router");
    }
    scene.node("isp").sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
    let configuration = |remote: &str, own: &str, network: &str| {
        format!(
            "[[uplink]]\nname = \"dslite\"\ninterface = \"dslite\"\naddresses = [\"{own}/29\"]\n\
             [uplink.tunnel]\nkind = \"4in6\"\nover = \"wan\"\nremote = \"{remote}\"\n\
             [[network]]\ninterface = \"lan\"\nipv4 = \"{network}.1/24\"\n"
        )
    };
    scene.start("gw", &configuration("2001:db8:b::2", "192.0.0.2", "192.168.1"));
    scene.start("far", &configuration("2001:db8:a::2", "192.0.0.1", "192.168.2"));
    for (node, network) in [("host", "192.168.1"), ("inet", "192.168.2")] {
        scene
            .node(node)
            .ip(&format!("addr add {network}.9/24 dev eth0\nroute add default via {network}.1\n"))
            .expect("IPv4");
    }
    wait_until("the other side", || scene.answers("host", "192.168.2.9"));
    assert!(scene.transfer("host", ("inet", "192.168.2.9"), 1, || {}) > 1_000_000);
    let tunnel = scene.tunnel("gw");
    assert_eq!((&tunnel["kind"], &tunnel["mtu"]), (&"4in6".into(), &1460.into()));
    assert_eq!(scene.status("gw").expect("a status")["uplinks"][0]["works"], true);
    // What must not be cut is answered with the tunnel's MTU; what may be is cut inside.
    let large = |how: &str| {
        scene.run("host", &["ping", "-c", "1", "-M", how, "-s", "1472", "-W", "2", "192.168.2.9"])
    };
    let refused = large("do");
    assert!(refused.contains("mtu") && refused.contains("1460"), "{refused}");
    assert!(large("dont").contains(" 0% packet loss"));
    // Where the path outside is narrower, its errors are told inside.
    scene.run("isp", &["ip", "link", "set", "far", "mtu", "1400"]);
    assert!(scene.transfer("host", ("inet", "192.168.2.9"), 2, || {}) > 1_000_000);
    wait_until("the path's MTU", || scene.tunnel("gw")["mtu"] == 1360);
}
