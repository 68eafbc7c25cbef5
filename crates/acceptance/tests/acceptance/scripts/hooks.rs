//! What scripts see at each hook, and what becomes of what they do to it.

use std::net::UdpSocket;
use std::time::Duration;

use super::scene::{ROUTER, SERVER, SERVER_IPV4, ScriptScene, example};

const PASS: &str = "function process_packet(p) return NF_ACCEPT end\n";

#[test]
fn each_hook_sees_what_it_should() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("pass.lua", PASS);
    let hooks: [(&[&str], u64); 10] = [
        (&["prerouting"], 5),
        (&["input"], 2),
        (&["forward"], 3),
        (&["output"], 1),
        (&["postrouting"], 4),
        (&["ingress", "--dev", "lan"], 5),
        (&["ingress", "--dev", "wan"], 0),
        (&["egress", "--dev", "wan"], 4),
        (&["tunnel-in", "--dev", "lan"], 5),
        (&["tunnel-out", "--dev", "lan"], 0),
    ];
    for (hook, _) in hooks {
        let load = [&["load", &file, "--match", "icmpv6 type 128", "--hook"], hook].concat();
        scene.sidestep(&load);
    }
    let pings = [(&scene.client, SERVER, "3"), (&scene.client, ROUTER, "2"), (&scene.router, SERVER, "1")];
    for (from, to, count) in pings {
        assert!(scene.ping(from, to, &["-i", "0.01", "-c", count]).ends_with(" 0%"), "{to}");
    }
    for (id, (hook, packets)) in (1..).zip(hooks) {
        let status = scene.status(id);
        assert_eq!(
            (&status["packets"], &status["verdicts"]["NF_ACCEPT"]),
            (&packets.into(), &packets.into()),
            "{hook:?}: {status}"
        );
        assert_eq!(status["errors"], 0, "{status}");
    }
    scene.sidestep(&["unload", &file]);
    assert!(scene.sidestep(&["list"]).contains("no scripts"));
}

#[test]
fn addresses_are_translated_in_the_user_tier() {
    if let Some(scene) = ScriptScene::new(true) {
        translate(&scene, "user");
    }
}

#[test]
fn addresses_are_translated_in_the_kernel() {
    if let Some(scene) = ScriptScene::new(true) {
        translate(&scene, "kernel");
    }
}

/// Both directions of both IP versions, with pings and with GSO packets of TCP.
fn translate(scene: &ScriptScene, tier: &str) {
    let file = scene.script("nat.lua", &example("nat.lua"));
    assert!(
        scene.ping(&scene.client, SERVER, &["-c", "1"]).ends_with(" 100%"),
        "the server does not know the client"
    );
    for (hook, function, rule) in [
        ("postrouting", "snat", "ip6 saddr fd00::/64"),
        ("postrouting", "snat", "ip saddr 192.168.0.0/24"),
        ("prerouting", "dnat", "ip6 daddr 2001:db8::1"),
        ("prerouting", "dnat", "ip daddr 10.0.0.1"),
    ] {
        scene.sidestep(&[
            "load",
            &file,
            "--hook",
            hook,
            "--dev",
            "wan",
            "--function",
            function,
            "--match",
            rule,
            "--tier",
            tier,
        ]);
    }
    for to in [SERVER, SERVER_IPV4] {
        let summary = scene.ping(&scene.client, to, &["-c", "20", "-i", "0.01"]);
        assert!(summary.ends_with(" 20 received, 0%"), "{to}: {summary}\n{}", scene.sidestep(&["list"]));
        let rate = scene.tcp(to, 2);
        assert!(rate > 0.0, "{to}");
        eprintln!("TCP to {to}, translated in the {tier} tier: {rate:.2} Gb/s");
    }
    for id in 1..=4 {
        let status = scene.status(id);
        assert_eq!((&status["errors"], &status["tier"]), (&0.into(), &tier.into()), "{status}");
        assert!(status["packets"].as_u64().is_some_and(|packets| packets > 20), "{status}");
        assert!(status["ns_per_packet"].as_u64().is_some_and(|ns| ns > 0), "{status}");
    }
}

/// The answer comes from the script; what it makes does not come to it again.
#[test]
fn packets_are_made_and_put_off() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script(
        "make.lua",
        r#"
        function process_packet(p)
          nf.schedule(nil, "later", 7, 50, p:data(packet_eth):data(packet_ip6), packet_ip6)
          return NF_DROP
        end
        function later(id, packet)
          local udp = packet:data(packet_udp)
          local from, to = packet:saddr():get(), packet:daddr():get()
          packet:saddr():set(to)
          packet:daddr():set(from)
          local sport, dport = udp:sport():get(), udp:dport():get()
          udp:sport():set(dport)
          udp:dport():set(sport)
          nf.log("answer", id, IS_INTERRUPT)
          nf.create_packet(nil, packet)
        end
        "#,
    );
    scene.sidestep(&["load", &file, "--hook", "forward", "--match", "udp dport 7777"]);
    let echo = scene.script(
        "echo.lua",
        "function process_packet(p)\n  nf.create_packet(p, p:data(packet_eth):data(packet_ip6))\n  return NF_ACCEPT\nend\n",
    );
    scene.sidestep(&["load", &echo, "--hook", "output"]);
    ScriptScene::within(&scene.client, || {
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time limit");
        socket.connect((SERVER, 7777)).expect("a connection");
        socket.send(b"anybody there?").expect("a datagram");
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).expect("an answer");
        assert_eq!(&buffer[..length], b"anybody there?");
    });
    assert!(scene.sidestep(&["logs"]).contains("script 1: answer 7 nil"), "{}", scene.sidestep(&["logs"]));
    assert_eq!(scene.status(1)["sent"], 1);
    assert!(scene.ping(&scene.router, SERVER, &["-c", "3", "-i", "0.01"]).contains("duplicates"));
    let status = scene.status(2);
    assert_eq!(status["sent"], status["packets"], "{status}");
}

/// A guard that knows who may send: in both tiers it judges by the address in the frame, or is not loaded.
#[test]
fn the_source_address_of_frames_is_there_in_both_tiers() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let (_, link) = scene.run(&scene.client, &["ip", "-o", "link", "show", "eth0"]);
    let client = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).expect("an address");
    let client = client.to_uppercase();
    let guard = |known: &str| {
        format!(
            "function process_packet(p)\n  local eth = p:data(packet_eth)\n\
             \x20 return eth:smac():get() == \"{known}\" and NF_ACCEPT or NF_DROP\nend\n"
        )
    };
    for tier in ["kernel", "user"] {
        for (known, lost) in [(&*client, " 0%"), ("02:00:00:00:00:01", " 100%")] {
            let file = scene.script("guard.lua", &guard(known));
            scene.load(&file, "--hook ingress --dev lan --match", &["icmpv6 type 128", "--tier", tier]);
            let summary = scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]);
            assert!(summary.ends_with(lost), "{tier}: {summary}");
            scene.sidestep(&["unload", &file]);
        }
    }
    let file = scene.script("guard.lua", &guard(&client));
    let refused = scene.refusal(&["load", &file, "--hook", "egress", "--dev", "wan", "--tier", "user"]);
    assert!(refused.contains("line 3: 'smac': Lua gets packets without their link header"), "{refused}");
    // What the text does not show is an error at the packet.
    let hidden = scene.script(
        "hidden.lua",
        "function process_packet(p)\n  return p:raw(0, 6):get()[0] == 0 and NF_ACCEPT or NF_DROP\nend\n",
    );
    scene.load(&hidden, "--hook ingress --dev lan --match", &["icmpv6 type 128", "--tier", "user"]);
    assert!(scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.01"]).ends_with(" 100%"));
    let status = scene.only_status();
    assert_eq!(status["errors"], 2, "{status}");
    let said = status["last_error"]["message"].as_str().expect("a message");
    assert!(said.contains("hidden.lua:2: there is no link header here to read"), "{said}");
}
