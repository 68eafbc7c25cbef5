//! The scripts of `examples/scripts` at hooks of a router, between programs that know nothing of them; in each tier in
//! which they can run. That of `nat.lua` is among the hooks' tests, those of the caches and of `synflood.lua` have files
//! of their own.

use lab::process::Process;
use lab::scale::{emulated, scaled};

use super::scene::{SERVER, SERVER_IPV4, ScriptScene, example_path, verifies_long_scripts};

#[test]
fn ssh_opens_for_who_has_knocked() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = example_path("portknock.lua");
    let listener = ["socat", "TCP6-LISTEN:22,fork,reuseaddr", "SYSTEM:echo welcome"];
    let _ssh = scene.start(&scene.server, &listener, "ssh", || scene.listens("tcp", 22));
    let ssh = format!("TCP6:[{SERVER}]:22,connect-timeout=1");
    let enters = || scene.run(&scene.client, &["socat", "-u", &ssh, "-"]) == (true, "welcome\n".into());
    let knock = |ports: [u16; 3]| {
        for port in ports {
            let to = format!("echo | socat -u - UDP6-SENDTO:[{SERVER}]:{port}");
            assert!(scene.run(&scene.client, &["sh", "-c", &to]).0);
        }
    };
    assert!(enters());
    let tiers = scene.tiers(&file, "process_packet", "ingress");
    assert!(tiers.contains(&"kernel"));
    for tier in tiers {
        scene.load(&file, "--hook prerouting --dev lan --tier", &[tier]);
        assert!(!enters(), "before");
        knock([7000, 9000, 8000]);
        assert!(!enters(), "in another order");
        knock([7000, 8000, 9000]);
        assert!(enters(), "{tier}: {}", scene.sidestep(&["list"]));
        assert!(scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 0%"));
        scene.has_served(&[tier]);
        scene.sidestep(&["unload", &file]);
    }
}

/// Those that have a function of their own name are given to it by their own tests.
#[test]
fn each_example_runs_at_a_hook_and_fails_at_no_packet() {
    let Some(scene) = ScriptScene::new(false) else { return };
    // Where `uplinks.lua` sends packets.
    assert!(scene.run(&scene.router, &["ip", "link", "add", "name", "wan1", "type", "bridge"]).0);
    let folder = std::fs::read_dir(example_path("")).expect("the examples");
    let files = folder.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "lua")).collect();
    files.sort_unstable();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a script");
        if !text.contains("function process_packet(") {
            continue;
        }
        let file = file.display().to_string();
        let mut tiers = scene.tiers(&file, "process_packet", "ingress");
        // Lua has no tags.
        tiers.retain(|tier| *tier == "kernel" || !text.contains(":vlan_id("));
        // In quick runs where it is best.
        for &tier in &tiers[scaled(tiers.len() - 1, 0)..] {
            scene.load(&file, "--hook prerouting --dev lan --tier", &[tier]);
            for to in [format!("UDP6-SENDTO:[{SERVER}]:53"), format!("UDP4-SENDTO:{SERVER_IPV4}:123")] {
                assert!(
                    scene.run(&scene.client, &["sh", "-c", &format!("echo 12345678 | socat -u - {to}")]).0
                );
            }
            let words =
                ["sh", "-c", "ping -c 1 -W 0.1 \"$0\"; socat -u TCP6:[$0]:23,connect-timeout=0.1 -", SERVER];
            scene.run(&scene.client, &words);
            scene.has_served(&[tier]);
            // With points it is accepted as well, or too long for this kernel.
            let refused = scene.refusal(&["trace", "1", "--match", "udp dport 9", "--timeout", "1ms"]);
            let is_too_long = refused.contains("too ") || refused.contains("gives up");
            assert!(
                refused.contains("no packet came") || is_too_long && !verifies_long_scripts(),
                "{file} in {tier}: {refused}"
            );
            scene.sidestep(&["unload", &file]);
        }
    }
}

#[test]
fn names_of_a_list_are_not_resolved() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = example_path("dns_blocklist.lua");
    let _resolver = resolver(&scene);
    let query = |server: &str, over: &str, name: &str| {
        let at = format!("@{server}");
        scene.run(&scene.client, &["dig", "+tries=1", "+timeout=1", "+short", over, &at, "AAAA", name])
    };
    let known = (true, "2001:db8::53\n".into());
    assert_eq!(query(SERVER, "+notcp", "unblocked.ads.example"), known);
    for tier in scene.tiers(&file, "process_packet", "ingress") {
        scene.load(&file, "--hook prerouting --dev lan --tier", &[tier]);
        scene.client.nft("add table inet quiet\ndelete table inet quiet\n").expect("nft");
        for (server, over) in [(SERVER, "+notcp"), (SERVER_IPV4, "+notcp"), (SERVER, "+tcp")] {
            for name in ["ads.example", "cdn.ADS.example", "a.b.tracker.example.net"] {
                let (answered, said) = query(server, over, name);
                assert!(!answered && said.contains("timed out"), "{name}: {said}");
            }
            for name in ["www.example", "badads.example", "example.net"] {
                assert_eq!(query(server, over, name), known, "{name}");
            }
        }
        scene.has_served(&[tier]);
        scene.keeps_streams_in_the_kernel(tier);
        // Connections that were refused are tried again, also while no script is loaded.
        let quiet = "add table inet quiet\nadd chain inet quiet out { type filter hook output priority 0; }\n\
                     add rule inet quiet out tcp dport 53 drop\n";
        scene.client.nft(quiet).expect("nft");
        scene.sidestep(&["unload", &file]);
    }
    let queries = scene.said("resolver");
    assert!(queries.contains("] badads.example from"), "{queries}");
    assert!(!queries.contains("] ads.example from") && !queries.contains("tracker"), "{queries}");
}

/// dnsmasq, which knows every name below `example` and `example.net`.
fn resolver(scene: &ScriptScene) -> Process {
    let words = [
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--user=root",
        "--pid-file",
        "--no-resolv",
        "--no-hosts",
        "--log-queries",
        "--log-facility=-",
        "--address=/example/example.net/2001:db8::53",
    ];
    scene.start(&scene.server, &words, "resolver", || scene.listens("udp", 53))
}

#[test]
fn tls_to_a_name_is_ended() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = example_path("tls_name_filter.lua");
    let [key, certificate] = ["key.pem", "cert.pem"].map(|name| scene.folder.path().join(name));
    let [key, certificate] = [&key, &certificate].map(|path| path.display().to_string());
    let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=test";
    let make: Vec<&str> = make.split(' ').chain(["-keyout", &key, "-out", &certificate]).collect();
    let (made, said) = scene.run(&scene.server, &make);
    assert!(made, "{said}");
    // A process for each connection: those that are ended are never heard of again.
    let listen = format!("OPENSSL-LISTEN:443,pf=ip6,fork,reuseaddr,verify=0,key={key},cert={certificate}");
    let server = ["socat", &listen, "SYSTEM:echo welcome"];
    let _server = scene.start(&scene.server, &server, "tls", || scene.listens("tcp", 443));
    let connect = |server: &str, name: &str, seconds: &str| {
        let at = format!("{server}:443");
        let client = ["timeout", seconds, "openssl", "s_client", "-connect", &at, "-servername", name];
        scene.run(&scene.client, &client).1.contains("Cipher is TLS_AES")
    };
    // Who is let through ends by itself, however late; who is not is waited for as long as that mostly takes.
    let passes = |server: &str, name: &str| connect(server, name, "120");
    let is_ended = |server: &str, name: &str| !connect(server, name, if emulated() { "20" } else { "2" });
    let server = format!("[{SERVER}]");
    assert!(passes(&server, "forbidden.example"));
    for tier in scene.tiers(&file, "process_packet", "ingress") {
        scene.load(&file, "--hook prerouting --dev lan --tier", &[tier]);
        for server in [server.as_str(), SERVER_IPV4] {
            assert!(passes(server, "allowed.example"), "{tier}: {}", scene.sidestep(&["list"]));
            assert!(is_ended(server, "forbidden.example") && is_ended(server, "Forbidden.Example"));
        }
        scene.has_served(&[tier]);
        scene.keeps_streams_in_the_kernel(tier);
        scene.sidestep(&["unload", &file]);
    }
}

/// The inside has fd01:203:405::/48, and the world knows it as 2001:db8:1::/48: RFC 6296, section 3.6.
#[test]
fn prefixes_are_translated() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let (inside, outside) = ("fd01:203:405:1::1234", "2001:db8:1:d550::1234");
    scene
        .client
        .ip(&format!(
            "addr add {inside}/64 dev eth0 nodad\nroute replace default via {CLIENT_ROUTER} src {inside}\n"
        ))
        .expect("the client");
    scene.router.ip(&format!("addr add {CLIENT_ROUTER}/64 dev lan nodad\n")).expect("the router");
    scene.server.ip("route add 2001:db8:1::/48 via 2001:db8:f::1\n").expect("the server");
    // What comes in is routed by the address that it has then.
    scene.router.ip("route add unreachable 2001:db8:1::/48\n").expect("the router");
    let file = example_path("nptv6.lua");
    let serve = |on, log| {
        let listener = ["socat", "TCP6-LISTEN:80,fork,reuseaddr", "SYSTEM:echo $SOCAT_PEERADDR"];
        let there = || scene.run(on, &["ss", "-Hln", "-A", "tcp", "sport", "=", "80"]).1.contains(":80");
        scene.start(on, &listener, log, there)
    };
    let (_server, _client) = (serve(&scene.server, "server"), serve(&scene.client, "client"));
    let asks = |on, to: &str| {
        let to = format!("TCP6:[{to}]:80,connect-timeout=2");
        scene.run(on, &["socat", "-u", &to, "-"]).1
    };
    let expanded = |address: &str| {
        let address: std::net::Ipv6Addr = address.parse().expect("an address");
        let parts = address.segments().map(|part| format!("{part:04x}")).join(":");
        format!("[{parts}]\n")
    };
    let (out, back) = (scene.tiers(&file, "outbound", "egress"), scene.tiers(&file, "inbound", "ingress"));
    for tier in back {
        // What leaves is handed over to none.
        let other = if tier == "both" { "user" } else { tier };
        if !out.contains(&other) {
            continue;
        }
        let out = "--hook postrouting --dev wan --function outbound --tier";
        scene.load(&file, out, &[other, "--match", "ip6 saddr fd01:203:405::/48"]);
        let back = "--hook prerouting --dev wan --function inbound --tier";
        scene.load(&file, back, &[tier, "--match", "ip6 daddr 2001:db8:1::/48"]);
        for (from, to) in [(&scene.client, SERVER), (&scene.server, outside)] {
            let pings = scene.ping(from, to, &["-c", "20", "-i", "0.01"]);
            assert!(pings.ends_with(" 20 received, 0%"), "{tier}: {pings}");
        }
        assert_eq!(asks(&scene.client, SERVER), expanded(outside));
        assert_eq!(asks(&scene.server, outside), expanded(SERVER));
        // The error is about a packet that had another source.
        let (_, said) = scene.run(&scene.client, &["dig", "+tries=1", &format!("@{SERVER}"), "-p", "9", "x"]);
        assert!(said.contains("connection refused"), "{said}");
        scene.has_served(&[tier, other]);
        scene.sidestep(&["unload", &file]);
    }
}

const CLIENT_ROUTER: &str = "fd01:203:405:1::1";
