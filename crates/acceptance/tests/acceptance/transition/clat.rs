//! A host that has IPv4 alone, behind a gateway whose provider has IPv6 alone, and a server that has IPv4 alone. The provider's
//! translator is a gateway, too.

use lab::patience::wait_until;
use lab::process::Process;
use serde_json::Value;

use super::scene::TransitionScene;
use super::{at_our_interfaces, nat64};

/// Gateway (which loses its IPv4), server, and a stranger.
const ADDRESSES: [&str; 3] = ["198.51.100.7", "192.0.2.1", "203.0.113.9"];
pub(super) const SERVER: &str = "192.0.2.1";
/// Where errors of routers come from that have IPv6 alone (RFC 7600).
const NO_ADDRESS: &str = "192.0.0.8";

pub(super) fn example() -> String {
    at_our_interfaces(include_str!("../../../../../examples/464xlat.toml"))
}

/// A provider with a prefix for its link, and customers' prefixes; `more` is about the link.
pub(super) fn provider(more: &str) -> String {
    format!(
        "[[uplink]]\nname = \"internet\"\ninterface = \"far\"\nrouter = \"point-to-point\"\nmasquerade = true\n\
         prefixes = [\"2001:db8:a000::/36\"]\n\
         [[network]]\nname = \"customers\"\ninterface = \"gw\"\nsubnet = 1\n{more}[nat64]\n"
    )
}

const DELEGATES: &str = "[network.dhcp6]\ndelegate = 56\n";

/// Asks the server at that port of UDP, without checksums (SO_NO_CHECK), and says what comes back.
fn ask(port: u16) -> String {
    format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(socket.SOL_SOCKET, 11, 1)\n\
         s.settimeout(1)\n\
         s.connect(('{SERVER}', {port}))\n\
         for _ in range(5):\n\
         \ttry:\n\
         \t\ts.send(b'once more')\n\
         \t\tif s.recv(2000) == b'once more': print('heard'); break\n\
         \texcept ConnectionRefusedError: print('refused'); break\n\
         \texcept OSError: pass"
    )
}

/// Whether a host that computes no checksums is answered.
fn answered_without_checksum(scene: &TransitionScene) -> bool {
    const SERVE: &str = "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.bind(('0.0.0.0', 5300))\n\
         while True: s.sendto(*s.recvfrom(2000))";
    let mut server = scene.node("far").command("python3").expect("the namespace");
    let server = Process::start(server.args(["-c", SERVE]), &scene.path("udp.log")).expect("a server");
    wait_until("a server", || scene.run("far", &["ss", "-Hlun"]).contains(":5300"));
    let heard = scene.run("host", &["python3", "-c", &ask(5300)]).contains("heard");
    server.kill();
    heard
}

/// How many datagrams of 1440 bytes come to a host that asks for eight of them, which leave the provider as one GSO packet.
/// Each has 1488 bytes as IPv6, more than the CLAT's device takes, and no more than the link.
fn long_segments(scene: &TransitionScene) -> usize {
    const SERVE: &str = "import socket\n\
         s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
         s.setsockopt(17, 103, 1440)\n\
         s.bind(('64:ff9b::c000:2ff', 5300))\n\
         while True: s.sendto(bytes(8 * 1440), s.recvfrom(2000)[1])";
    const ASK: &str = "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.settimeout(1)\n\
         s.connect(('192.0.2.255', 5300))\n\
         s.send(b'more')\n\
         try:\n\
         \twhile s.recv(2000) == bytes(1440): print('heard')\n\
         except OSError: pass";
    scene.run("isp", &["ip", "address", "replace", "64:ff9b::c000:2ff/128", "dev", "lo", "nodad"]);
    let mut server = scene.node("isp").command("python3").expect("the namespace");
    let server = Process::start(server.args(["-c", SERVE]), &scene.path("segments.log")).expect("a server");
    wait_until("a server", || scene.run("isp", &["ss", "-Hlun"]).contains(":5300"));
    let heard = scene.run("host", &["python3", "-c", ASK]);
    server.kill();
    heard.matches("heard").count()
}

/// The network, where the gateway's provider has IPv6 alone and runs, and nothing else does.
pub(super) fn with_provider(more: &str) -> Option<TransitionScene> {
    let mut scene = TransitionScene::new(ADDRESSES)?;
    scene.run("gw", &["ip", "-4", "address", "flush", "dev", "wan"]);
    scene.run("isp", &["ip", "-4", "address", "flush", "dev", "gw"]);
    scene
        .node("host")
        .ip("addr add 192.168.1.9/24 dev eth0\nroute add default via 192.168.1.1\n")
        .expect("IPv4");
    scene.start("isp", &provider(more));
    Some(scene)
}

fn with_clat(more: &str) -> Option<TransitionScene> {
    let mut scene = with_provider(more)?;
    scene.start("gw", &example());
    wait_until("the server", || scene.answers("host", SERVER));
    Some(scene)
}

pub(super) fn clat(scene: &TransitionScene) -> Value {
    scene.status("gw").expect("a status")["uplinks"][1]["tunnel"].clone()
}

fn measured(scene: &TransitionScene, words: &[&str]) -> Value {
    nat64::measured_at(scene, SERVER, words)
}

#[test]
fn a_host_of_ipv4_reaches_a_server_of_ipv4_through_ipv6() {
    let Some(mut scene) = with_provider("") else { return };
    let before = scene.kernel("gw");
    scene.start("gw", &example());
    wait_until("the server", || scene.answers("host", SERVER));
    assert!(scene.answers("gw", SERVER), "from the gateway itself");
    // Nothing else leaves than IPv6.
    assert!(!scene.run("gw", &["ip", "-4", "route"]).contains("wan"));

    // An error of a router on the way, which has IPv6 alone, and of the translator.
    let exceeded = |hops: &str| scene.run("host", &["ping", "-c", "1", "-W", "2", "-t", hops, SERVER]);
    assert!(exceeded("1").contains("From 192.168.1.1"), "{}", exceeded("1"));
    let by_provider = exceeded("2");
    assert!(by_provider.contains(&format!("From {NO_ADDRESS}")), "{by_provider}");
    assert!(by_provider.contains("Time to live exceeded"), "{by_provider}");
    // One of the server, translated twice: nobody is at that port.
    assert!(scene.run("host", &["python3", "-c", &ask(9)]).contains("refused"));
    // The program leaves a checksum that is not there to the process, which lets the packet leave once more.
    assert!(answered_without_checksum(&scene), "{:?}", clat(&scene));
    // It leaves GSO packets of UDP to it, too.
    wait_until("all segments", || long_segments(&scene) == 8);
    assert!(!scene.log("gw").contains("Message too long"), "{}", scene.log("gw"));

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

    let tunnel = clat(&scene);
    assert_eq!((&tunnel["kind"], &tunnel["mtu"]), (&"464xlat".into(), &1472.into()), "{tunnel}");
    assert_eq!(tunnel["plat_prefix"], "64:ff9b::/96");
    assert!(tunnel["rx_packets"].as_u64() > Some(0) && tunnel["tx_packets"].as_u64() > Some(0), "{tunnel}");
    let text = String::from_utf8(scene.sidestep("gw", &["status"]).stdout).expect("text");
    assert!(
        text.contains("tunnel: 464xlat over wan") && text.contains("to 64:ff9b::/96, MTU 1472"),
        "{text}"
    );

    scene.stop("gw");
    assert_eq!(scene.kernel("gw"), before);
}

#[test]
fn hosts_are_told_of_narrower_paths_on_both_sides_of_the_translator() {
    let Some(scene) = with_clat("") else { return };
    let told = |size: &str| {
        scene.run("host", &["ping", "-c", "2", "-i", "0.2", "-M", "do", "-s", size, "-W", "2", SERVER])
    };
    // By the gateway itself: what fits there as IPv6, even as a fragment.
    let at_gateway = told("1450");
    assert!(at_gateway.contains("mtu") && at_gateway.contains("1472"), "{at_gateway}");
    // Behind the provider's translator: for this server alone.
    scene.run("isp", &["ip", "link", "set", "far", "mtu", "1400"]);
    scene.run("far", &["ip", "link", "set", "wan", "mtu", "1400"]);
    let behind = told("1430");
    assert!(behind.contains("mtu") && behind.contains("1400"), "{behind}");
    assert!(measured(&scene, &[])["end"]["sum_received"]["bytes"].as_u64() > Some(1_000_000));
    assert_eq!(clat(&scene)["mtu"], 1472);
    // Below: at once.
    scene.run("gw", &["ip", "link", "set", "wan", "mtu", "1350"]);
    wait_until("the MTU below", || clat(&scene)["mtu"] == 1322);
    scene.run("gw", &["ip", "link", "set", "wan", "mtu", "1280"]);
    wait_until("the least", || clat(&scene)["mtu"] == 1252);
    assert!(measured(&scene, &["-R"])["end"]["sum_received"]["bytes"].as_u64() > Some(100_000));
}

#[test]
fn the_prefix_of_the_provider_comes_changes_and_goes() {
    let Some(scene) = with_clat(DELEGATES) else { return };
    // What is delegated goes before the prefix of the link.
    let own = || clat(&scene)["local"].as_str().unwrap_or_default().to_owned();
    let is_delegated = || own().starts_with("2001:db8:a") && !own().starts_with("2001:db8:a000:1:");
    wait_until("an address of what is delegated", is_delegated);
    wait_until("the server", || scene.answers("host", SERVER));

    let other = "2001:db8:afff::/48";
    let with_other = provider(DELEGATES).replace("[nat64]\n", &format!("[nat64]\nprefix = \"{other}\"\n"));
    scene.reload("isp", &with_other);
    wait_until("the other prefix", || clat(&scene)["plat_prefix"] == other);
    wait_until("the server", || scene.answers("host", SERVER));

    // The provider translates no more: IPv4 leads nowhere, and the status says why.
    scene.reload("isp", &provider(DELEGATES).replace("[nat64]\n", ""));
    wait_until("no way", || scene.status("gw").expect("a status")["uplinks"][1]["works"] == false);
    let told = scene.status("gw").expect("a status")["problems"].to_string();
    assert!(told.contains("no router at wan names a prefix for NAT64"), "{told}");
    let asked = scene.run("host", &["ping", "-c", "1", "-W", "2", SERVER]);
    assert!(asked.contains("nreachable"), "{asked}");
    assert_eq!(clat(&scene)["local"], Value::Null);
    scene.reload("isp", &provider(DELEGATES));
    wait_until("the server", || scene.answers("host", SERVER));
}

/// The gateway leads what hosts send to the well-known prefix to its own translator, and what leaves that by the CLAT to the
/// provider's, which has the same prefix.
#[test]
fn hosts_of_ipv6_are_translated_for_before_the_provider_does_it_again() {
    let Some(mut scene) = with_provider(DELEGATES) else { return };
    scene.run("host", &["sysctl", "-w", "net.ipv6.conf.eth0.accept_ra_rt_info_max_plen=96"]);
    scene.start("gw", &format!("{}[nat64]\n", example()));
    wait_until("the server", || scene.answers("host", SERVER));
    assert_eq!(clat(&scene)["plat_prefix"], "64:ff9b::/96");
    wait_until("an address", || scene.address("host", "2001:db8:a").is_some());
    wait_until("the server by IPv6", || scene.answers("host", "64:ff9b::c000:201"));
    let translated = || scene.status("gw").expect("a status")["nat64"]["to_ipv4_packets"].as_u64();
    assert!(translated() > Some(0), "by the gateway's own translator");
    scene.reload("gw", &example());
    wait_until("the server without it", || scene.answers("host", SERVER));
}

#[test]
fn a_connection_outlives_reloads_and_a_killed_gateway() {
    let Some(mut scene) = with_clat("") else { return };
    let (before, own) = (nat64::device(&scene, "clat"), clat(&scene)["local"].clone());
    scene.reload("gw", &example());
    assert_eq!(nat64::device(&scene, "clat"), before, "the same device");

    // A second copy is refused, and takes nothing away.
    let path = scene.path("gw.toml").to_string_lossy().into_owned();
    let second = scene.sidestep("gw", &["up", &path, "--state-dir", "second"]);
    assert!(!second.status.success());
    assert!(scene.answers("host", SERVER));

    nat64::goes_on_over_a_killed_gateway(&mut scene, SERVER, "clat", |scene| {
        clat(scene)["tx_packets"].as_u64()
    });
    assert_eq!(clat(&scene)["local"], own, "the provider knows the connections by it");

    // Somebody deletes the device, and flushes all rules: they are back.
    scene.run("gw", &["ip", "link", "delete", "clat"]);
    scene.run("gw", &["nft", "flush", "ruleset"]);
    let rules = || scene.run("gw", &["nft", "list", "table", "ip", "sidestep-nat"]);
    wait_until("the rules", || rules().contains("masquerade") && rules().contains("maxseg"));
    wait_until("the server", || scene.answers("host", SERVER));
    scene.stop("gw");
    let left = scene.kernel("gw");
    assert!(!left.contains("clat") && !left.contains("sidestep"), "{left}");
}

#[test]
fn strangers_get_nothing_through_a_clat() {
    let Some(scene) = with_clat("") else { return };
    let own = clat(&scene)["local"].as_str().expect("an address").to_owned();
    let received = || clat(&scene)["rx_packets"].as_u64();
    // Whoever is not the provider's translator does not reach it, and what is translated is for 192.0.0.1 alone.
    let before = received();
    scene.run("isp", &["ping", "-c", "2", "-i", "0.2", "-W", "1", &own]);
    assert_eq!(received(), before);
    // As the translator it does, and the firewall decides about it as about any IPv4 from outside.
    scene.run("isp", &["ip", "addr", "add", "64:ff9b::c000:2ff/128", "dev", "lo", "nodad"]);
    let forged =
        scene.run("isp", &["ping", "-c", "2", "-i", "0.2", "-W", "1", "-I", "64:ff9b::c000:2ff", &own]);
    assert!(received() >= before.map(|before| before + 2), "{forged}");
    // Private addresses of others are not looked for at the provider's.
    let drops = || clat(&scene)["drops"]["destination"].as_u64().expect("a number");
    let before = drops();
    let private = scene.run("host", &["ping", "-c", "1", "-W", "1", "10.9.9.9"]);
    assert!(private.contains("100% packet loss") && drops() > before, "{private}");
}
