//! A host that has IPv6 alone, behind a gateway that translates, and a server that has IPv4 alone.

use lab::patience::{wait_for, wait_until};
use lab::process::Process;
use serde_json::Value;

use super::at_our_interfaces;
use super::scene::TransitionScene;
use crate::router::flow_offload;

/// Gateway and server.
const ADDRESSES: [&str; 3] = ["198.51.100.7", "192.0.2.1", "203.0.113.9"];
/// The server, and the provider's router, as hosts see them.
const SERVER: &str = "64:ff9b::c000:201";
const ROUTER: &str = "64:ff9b::c633:64fe";
const OURS: &str = "fd5a:e8c2:17b1:";

fn example() -> String {
    at_our_interfaces(include_str!("../../../../../examples/nat64.toml"))
}

/// A gateway that translates, and a host that knows the way.
fn with_translator() -> Option<TransitionScene> {
    let mut scene = TransitionScene::new(ADDRESSES)?;
    scene.run("host", &["sysctl", "-w", "net.ipv6.conf.eth0.accept_ra_rt_info_max_plen=96"]);
    scene.start("gw", &example());
    wait_for("an address of our prefix", || scene.address("host", OURS));
    wait_until("the server", || scene.answers("host", SERVER));
    Some(scene)
}

fn nat64(scene: &TransitionScene) -> Value {
    scene.status("gw").expect("a status")["nat64"].clone()
}

/// A device of the gateway, by its number: another one has another.
pub(super) fn device(scene: &TransitionScene, name: &str) -> String {
    let said = scene.run("gw", &["ip", "-o", "link", "show", name]);
    let (index, _) = said.split_once(": ").unwrap_or_else(|| panic!("{said}"));
    index.parse::<u32>().unwrap_or_else(|error| panic!("{error}: {said}")).to_string()
}

/// A connection from the host to the server, which goes on while the gateway is killed and starts again. `crossed`: how many
/// of its packets were translated; `device`: what does that, without which none leave.
pub(super) fn goes_on_over_a_killed_gateway(
    scene: &mut TransitionScene,
    address: &str,
    device: &str,
    crossed: impl Fn(&TransitionScene) -> Option<u64>,
) {
    let mut server = scene.node("far").command("iperf3").expect("the namespace");
    let server = Process::start(server.args(["-s", "-1"]), &scene.path("server.log")).expect("iperf3");
    wait_until("a server", || scene.run("far", &["ss", "-Htln"]).contains(":5201"));
    let mut client = scene.node("host").command("iperf3").expect("the namespace");
    let client = client.args(["-J", "-c", address, "-t", "6"]).stdout(std::process::Stdio::piped());
    let client = client.spawn().expect("iperf3");
    wait_until("traffic", || crossed(scene) > Some(100));
    scene.kill("gw");
    // What the gateway had just begun to run may still have the device, until it has a program of its own.
    let link = || scene.run("gw", &["ip", "link", "show", device]);
    wait_until("no device", || link().contains("does not exist"));
    let asked = scene.run("host", &["ping", "-c", "1", "-W", "1", address]);
    assert!(asked.contains("nreachable") || asked.contains("No route"), "{asked}");
    scene.start_again("gw");
    let output = client.wait_with_output().expect("iperf3");
    server.kill();
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{report}");
}

/// What iperf3 measures between the host and the server.
fn measured(scene: &TransitionScene, words: &[&str]) -> Value {
    measured_at(scene, SERVER, words)
}

/// The same, where the server is known by another address.
pub(super) fn measured_at(scene: &TransitionScene, address: &str, words: &[&str]) -> Value {
    let mut server = scene.node("far").command("iperf3").expect("the namespace");
    let server = Process::start(server.args(["-s", "-1"]), &scene.path("server.log")).expect("iperf3");
    wait_until("a server", || scene.run("far", &["ss", "-Htln"]).contains(":5201"));
    let text = scene.run("host", &[&["iperf3", "-J", "-c", address, "-t", "1"], words].concat());
    server.kill();
    // Warnings are behind it.
    let report = serde_json::Deserializer::from_str(&text).into_iter().next();
    report.and_then(Result::ok).unwrap_or_else(|| panic!("{text}"))
}

/// Whether a server that computes no checksums (SO_NO_CHECK) is heard.
fn answered_without_checksum(scene: &TransitionScene) -> bool {
    const SERVE: &str = "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(socket.SOL_SOCKET, 11, 1)\n\
         s.bind(('0.0.0.0', 5300))\n\
         while True: s.sendto(*s.recvfrom(2000))";
    let ask = format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
         s.settimeout(1)\n\
         s.connect(('{SERVER}', 5300))\n\
         for _ in range(5):\n\
         \ts.send(b'once more')\n\
         \ttry:\n\
         \t\tif s.recv(2000) == b'once more': print('heard'); break\n\
         \texcept OSError: pass"
    );
    let mut server = scene.node("far").command("python3").expect("the namespace");
    let server = Process::start(server.args(["-c", SERVE]), &scene.path("udp.log")).expect("a server");
    wait_until("a server", || scene.run("far", &["ss", "-Hlun"]).contains(":5300"));
    let heard = scene.run("host", &["python3", "-c", &ask]).contains("heard");
    server.kill();
    heard
}

#[test]
fn a_host_of_ipv6_reaches_a_server_of_ipv4() {
    let Some(mut scene) = TransitionScene::new(ADDRESSES) else { return };
    scene.run("host", &["sysctl", "-w", "net.ipv6.conf.eth0.accept_ra_rt_info_max_plen=96"]);
    let before = scene.kernel("gw");
    scene.start("gw", &example());
    wait_for("an address of our prefix", || scene.address("host", OURS));
    wait_until("the server", || scene.answers("host", SERVER));
    assert!(scene.answers("gw", SERVER), "from the gateway itself");

    // In fragments, both ways: checksums of ICMPv6 cover what a fragment does not tell.
    let large = scene.run("host", &["ping", "-c", "3", "-i", "0.2", "-W", "2", "-s", "3000", SERVER]);
    assert!(large.contains(" 0% packet loss"), "{large}");
    // Two hops are the gateway's.
    let exceeded = scene.run("host", &["ping", "-c", "1", "-W", "2", "-t", "3", SERVER]);
    assert!(exceeded.contains(&format!("From {ROUTER}")) && exceeded.contains("Time exceeded"), "{exceeded}");

    let before_transfer = scene.sent("gw", "wan");
    let sent = measured(&scene, &[])["end"]["sum_received"]["bytes"].as_u64().expect("bytes");
    let whole = scene.sent("gw", "wan") - before_transfer;
    assert!(sent > 1_000_000 && whole < sent / 1_440 / 4, "{sent} bytes in {whole} packets on the link");
    let received = measured(&scene, &["-R"]);
    assert!(received["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{received}");
    for (words, what) in [(&["-l", "1000"], "whole"), (&["-l", "3000"], "in fragments")] {
        for way in [&[][..], &["-R"]] {
            let udp = measured(&scene, &[&["-u", "-b", "5M"], &words[..], way].concat());
            let lost = udp["end"]["sum"]["lost_percent"].as_f64().expect("a number");
            assert!(lost < 50.0, "{what}: {udp}");
        }
    }

    // The program leaves a checksum that is not there to the process, which puts the packet back; also past a strict filter.
    let strict = [("ipv4/conf/all/rp_filter", 1)];
    scene.node("gw").sysctl(&strict).expect("a setting");
    assert!(answered_without_checksum(&scene), "{:?}", nat64(&scene));
    scene.node("gw").sysctl(&[("ipv4/conf/all/rp_filter", 0)]).expect("a setting");

    let status = nat64(&scene);
    assert_eq!((&status["works"], &status["prefix"]), (&true.into(), &"64:ff9b::/96".into()), "{status}");
    for counted in ["hosts", "to_ipv4_packets", "to_ipv6_packets"] {
        assert!(status[counted].as_u64() > Some(0), "{counted}: {status}");
    }
    let text = String::from_utf8(scene.sidestep("gw", &["status"]).stdout).expect("text");
    assert!(text.contains("NAT64 at 64:ff9b::/96, hosts in 198.18.0.0/16"), "{text}");

    // What somebody takes from the device is back.
    scene.run("gw", &["ip", "address", "flush", "dev", "nat64"]);
    let shown = || scene.run("gw", &["sh", "-c", "ip -4 -o address show dev nat64; ip route"]);
    wait_until("address and route", || shown().contains("192.0.0.8/32") && shown().contains("198.18.0.0/16"));
    scene.node("gw").sysctl(&[("ipv4/conf/nat64/rp_filter", 1)]).expect("a setting");
    let filter = || scene.run("gw", &["cat", "/proc/sys/net/ipv4/conf/nat64/rp_filter"]);
    wait_until("the setting", || filter().trim() == "2");
    wait_until("the server", || scene.answers("host", SERVER));

    scene.stop("gw");
    assert_eq!(scene.kernel("gw"), before);
}

#[test]
fn hosts_are_told_of_a_narrower_path_behind_the_translator() {
    let Some(scene) = with_translator() else { return };
    scene.run("isp", &["ip", "link", "set", "far", "mtu", "1400"]);
    scene.run("far", &["ip", "link", "set", "wan", "mtu", "1400"]);
    let told =
        scene.run("host", &["ping", "-c", "2", "-i", "0.2", "-M", "do", "-s", "1430", "-W", "2", SERVER]);
    assert!(told.contains("mtu") && told.contains("1420"), "{told}");
    let sent = measured(&scene, &[])["end"]["sum_received"]["bytes"].as_u64();
    assert!(sent > Some(1_000_000), "{sent:?}");
}

#[test]
fn nobody_outside_begins_anything_and_nothing_private_is_reached() {
    let Some(scene) = with_translator() else { return };
    // A stranger who knows the pool, and has a route to it.
    scene.run("isp", &["ip", "route", "add", "198.18.0.0/16", "via", "198.51.100.7"]);
    scene.run("isp", &["ip", "addr", "add", "2001:db8:f::1/64", "dev", "gw", "nodad"]);
    scene.run("gw", &["ip", "addr", "add", "2001:db8:f::2/64", "dev", "wan", "nodad"]);
    scene.run("isp", &["ip", "route", "add", "64:ff9b::/96", "via", "2001:db8:f::2"]);
    let counted = || nat64(&scene)["to_ipv6_packets"].as_u64();
    let before = counted();
    // The host's address, as connection tracking has it.
    let tracked = scene.run("gw", &["cat", "/proc/net/nf_conntrack"]);
    let pool = tracked.split_whitespace().find_map(|word| word.strip_prefix("src=198.18."));
    let pool = pool.map_or("198.18.0.1".to_owned(), |rest| format!("198.18.{rest}"));
    let to_pool = scene.run("far", &["ping", "-c", "3", "-i", "0.2", "-W", "1", &pool]);
    assert!(to_pool.contains("100% packet loss"), "{to_pool}");
    assert_eq!(counted(), before);
    let before = nat64(&scene)["to_ipv4_packets"].clone();
    let through = scene.run("isp", &["ping", "-c", "3", "-i", "0.2", "-W", "1", SERVER]);
    assert!(through.contains("100% packet loss"), "{through}");
    assert_eq!(nat64(&scene)["to_ipv4_packets"], before);

    let destination = || nat64(&scene)["drops"]["destination"].as_u64().expect("a number");
    let before = destination();
    for private in ["64:ff9b::10.0.0.1", "64:ff9b::192.168.1.1", "64:ff9b::198.18.0.1", "64:ff9b::224.0.0.1"]
    {
        let asked = scene.run("host", &["ping", "-c", "1", "-W", "1", private]);
        assert!(asked.contains("100% packet loss"), "{asked}");
    }
    assert!(destination() >= before + 4);
}

#[test]
fn a_rule_about_servers_of_ipv4_holds_for_hosts_of_ipv6() {
    let Some(scene) = with_translator() else { return };
    let rule = "[[firewall.rule]]\nto = \"wan\"\ndestination = \"192.0.2.0/24\"\naction = \"drop\"\n";
    scene.reload_with_rules("gw", &example(), rule);
    assert!(!scene.answers("host", SERVER), "{}", scene.kernel("gw"));
    scene.reload("gw", &example());
    assert!(scene.answers("host", SERVER));
}

/// RFC 6052 section 2.2: 192.0.2.1 in prefixes of all lengths, one after the other in the same gateway.
#[test]
fn prefixes_of_all_lengths_lead_to_servers_and_rules_hold_in_them() {
    let Some(mut scene) = TransitionScene::new(ADDRESSES) else { return };
    scene.run("host", &["sysctl", "-w", "net.ipv6.conf.eth0.accept_ra_rt_info_max_plen=96"]);
    scene.start("gw", &example());
    wait_for("an address of our prefix", || scene.address("host", OURS));
    let rule = "[[firewall.rule]]\nto = \"wan\"\ndestination = \"192.0.2.0/24\"\naction = \"drop\"\n";
    for (prefix, server, beside) in [
        ("2001:db8::/32", "2001:db8:c000:201::", "2001:db8:c000:201::1"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:1::", "2001:db8:1c0:2:8000::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:100::", "2001:db8:122:c000:2:180::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:201::", "2001:db8:122:3c0:0:201:8000:0"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:100:0", "2001:db8:122:344:c0:2:100:1"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::c000:201", "2001:db8:122:344:0:1:c000:201"),
    ] {
        let with_prefix = example().replace("[nat64]", &format!("[nat64]\nprefix = \"{prefix}\""));
        scene.reload("gw", &with_prefix);
        wait_until(prefix, || scene.answers("host", server));
        let tcp = measured_at(&scene, server, &[]);
        assert!(tcp["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{prefix}: {tcp}");
        assert!(!scene.answers("host", beside), "{beside} is none of {prefix}");
        scene.reload_with_rules("gw", &with_prefix, rule);
        assert!(!scene.answers("host", server), "{prefix}: {}", scene.kernel("gw"));
        let routes = scene.run("gw", &["ip", "-6", "route", "show", prefix]);
        assert!(routes.contains("dev nat64"), "{routes}");
    }
    scene.stop("gw");
    assert!(!scene.kernel("gw").contains("2001:db8:"), "{}", scene.kernel("gw"));
}

#[test]
fn a_connection_outlives_reloads_and_a_killed_gateway() {
    let Some(mut scene) = with_translator() else { return };
    let before = device(&scene, "nat64");
    scene.reload("gw", &example());
    assert_eq!(device(&scene, "nat64"), before, "the same device");

    goes_on_over_a_killed_gateway(&mut scene, SERVER, "nat64", |scene| {
        nat64(scene)["to_ipv4_packets"].as_u64()
    });

    // While nothing translates, nothing leaves as it is.
    scene.kill("gw");
    assert!(scene.run("gw", &["ip", "route", "show", "198.18.0.0/16"]).contains("unreachable"));
    scene.start_again("gw");

    // Somebody deletes the device: it is made anew.
    wait_until("the device", || {
        !scene.run("gw", &["ip", "link", "show", "nat64"]).contains("does not exist")
    });
    scene.run("gw", &["ip", "link", "delete", "nat64"]);
    wait_until("the server", || scene.answers("host", SERVER));
    scene.stop("gw");
    assert!(!scene.kernel("gw").contains("nat64"), "{}", scene.kernel("gw"));
}

#[test]
fn known_connections_cross_the_translator_on_the_short_way() {
    let Some(mut scene) = TransitionScene::new(ADDRESSES) else { return };
    if !flow_offload::is_there(|words| scene.run("host", words)) {
        eprintln!("skipped: needs a kernel with flowtables, such as that of scripts/stock-kernel");
        return;
    }
    scene.run("host", &["sysctl", "-w", "net.ipv6.conf.eth0.accept_ra_rt_info_max_plen=96"]);
    let before = scene.kernel("gw");
    scene.start("gw", &example());
    scene.reload_with_rules("gw", &example(), "flow_offload = \"software\"\n");
    wait_for("an address of our prefix", || scene.address("host", OURS));
    wait_until("the server", || scene.answers("host", SERVER));
    let interfaces = || scene.status("gw").map(|status| status["flow_offload"]["interfaces"].to_string());
    wait_until("the translator in the flowtable", || {
        interfaces().is_some_and(|interfaces| interfaces.contains("nat64"))
    });

    // Neither pass meets the hooks, but for a connection's first packets, and what has to.
    let probe = "add table inet probe; add counter inet probe slow; \
                 add chain inet probe f { type filter hook forward priority -10; }; \
                 add rule inet probe f meta l4proto udp counter name slow";
    assert_eq!(scene.run("gw", &["nft", probe]), "");
    let slow = || {
        let counted = scene.run("gw", &["nft", "list", "counter", "inet", "probe", "slow"]);
        let packets = counted.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        packets.and_then(|packets| packets.parse::<u64>().ok()).unwrap_or_else(|| panic!("{counted}"))
    };
    for way in [&[][..], &["-R"]] {
        let first = slow();
        let udp = measured(&scene, &[&["-u", "-b", "1M", "-l", "1000"], way].concat());
        let sum = &udp["end"]["sum"];
        let sent = sum["packets"].as_u64().expect("a number");
        assert!(sum["lost_percent"].as_f64() < Some(50.0) && sent > 50, "{udp}");
        let passed = slow() - first;
        assert!(passed < sent / 2, "{passed} of {sent} datagrams, twice each");
        let fragments = measured(&scene, &[&["-u", "-b", "1M", "-l", "3000"], way].concat());
        assert!(fragments["end"]["sum"]["lost_percent"].as_f64() < Some(50.0), "{fragments}");
        let tcp = measured(&scene, way);
        assert!(tcp["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{tcp}");
    }
    assert!(answered_without_checksum(&scene), "{:?}", nat64(&scene));
    assert_eq!(scene.run("gw", &["nft", "delete", "table", "inet", "probe"]), "");

    // With another device after a crash.
    scene.kill("gw");
    scene.start_again("gw");
    wait_until("the server", || scene.answers("host", SERVER));
    let received = measured(&scene, &["-R"]);
    assert!(received["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000), "{received}");
    scene.stop("gw");
    assert_eq!(scene.kernel("gw"), before);
}
