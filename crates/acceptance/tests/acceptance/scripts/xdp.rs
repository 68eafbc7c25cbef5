//! Scripts at XDP: attached and replaced as elsewhere, with the same packets in them.

use lab::edited::Edited;

use super::scene::{CLIENT, ROUTER, SERVER, ScriptScene, example_path, verifies_long_scripts};

const COUNT: &str = r#"
local seen = nf.counter "seen"
function process_packet(p)
  if seen:add() > 0 then return NF_ACCEPT end
  return NF_DROP
end
"#;

fn is_attached(scene: &ScriptScene, device: &str) -> bool {
    scene.run(&scene.router, &["ip", "link", "show", device]).1.contains("prog/xdp")
}

#[test]
fn a_script_at_xdp_is_replaced_under_a_flood_and_goes_with_its_host() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("count.lua", COUNT);
    let load = ["load", &file, "--hook", "ingress", "--dev", "lan", "--xdp"];
    let host = scene.serve();
    scene.sidestep(&load);
    assert!(is_attached(&scene, "lan"));
    let count = scene.reload_under_a_flood("count.lua", COUNT);
    let status = scene.status(1);
    assert_eq!(
        (&status["tier"], &status["xdp"], &status["xdp_mode"]),
        (&"kernel".into(), &true.into(), &"native".into()),
        "{status}"
    );
    assert!(status["packets"].as_u64() >= Some(count) && status["errors"] == 0, "{status}");
    let list = scene.sidestep(&["list"]);
    assert!(list.contains("in the kernel tier, at XDP (native: in the driver)"), "{list}");
    // Text that knows what was counted before drops what comes.
    scene.script("count.lua", &COUNT.edited("> 0", "< 1000"));
    scene.sidestep(&["reload", &file]);
    let reaches = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]);
    assert!(reaches().ends_with(" 100%"));

    // There is one at an interface, and another at another.
    let second = scene.refusal(&load);
    assert!(second.contains("lan has a program at XDP already, and can have one only"), "{second}");
    scene.sidestep(&["load", &file, "--hook", "prerouting", "--dev", "wan", "--tier", "kernel", "--xdp"]);
    scene.sidestep(&["unload", "1"]);
    assert!(!is_attached(&scene, "lan") && is_attached(&scene, "wan"));
    host.kill();
    assert!(!is_attached(&scene, "wan") && reaches().ends_with(" 0%"));
}

#[test]
fn without_the_driver_it_runs_behind_it() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("drop.lua", "function process_packet(p) return NF_DROP end\n");
    scene.router.ip("link set dev lo up\n").expect("ip");
    let reaches = || scene.ping(&scene.router, ROUTER, &["-c", "3", "-i", "0.01", "-W", "0.2"]);
    assert!(reaches().ends_with(" 0%"));
    scene.sidestep(&[
        "load",
        &file,
        "--hook",
        "ingress",
        "--dev",
        "lo",
        "--xdp",
        "--match",
        "icmpv6 type 128",
    ]);
    assert_eq!(scene.status(1)["xdp_mode"], "generic");
    let list = scene.sidestep(&["list"]);
    assert!(list.contains("at XDP (generic: behind the driver)"), "{list}");
    assert!(reaches().ends_with(" 100%"));
    assert_eq!(scene.status(1)["verdicts"]["NF_DROP"], 3);
    scene.sidestep(&["unload", &file]);
    assert!(reaches().ends_with(" 0%"));
}

/// Sends datagrams in frames with these EtherTypes of tags before that of IPv6.
const TAGGED: &str = r#"
import socket, struct, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
source, target = (socket.inet_pton(socket.AF_INET6, one) for one in sys.argv[1:3])
macs = b"\xff" * 6 + bytes.fromhex("020000000001")
for tags in [b"", b"\x81\0\0\0", b"\x81\0\0\5", b"\x88\xa8\0\5", b"\x88\xa8\0\5\x81\0\0\6"]:
    udp = struct.pack("!4H", 1000, 9, 12, 0) + b"tags"
    ip = struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + source + target
    link.send(macs + tags + b"\x86\xdd" + ip + udp)
link.send(macs + b"\x08\x06" + bytes(46))
"#;

/// The kernel has a tag beside the packet at ingress, and in the frame at XDP.
#[test]
fn a_frame_with_a_tag_is_seen_as_at_ingress() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = "function process_packet(p)
  local eth = p:data(packet_eth)
  nf.log(#p, eth:smac():get(), eth:type():get(), #eth:vlan(), p:get()[16], p:raw(10, 8):get())
  return NF_ACCEPT
end
";
    let [at_xdp, at_ingress] = ["xdp.lua", "tcx.lua"].map(|name| scene.script(name, text));
    let rest = ["--hook", "ingress", "--dev", "lan", "--match", "udp dport 9", "--tier", "kernel"];
    scene.sidestep(&[&["load", &at_xdp, "--xdp"], &rest[..]].concat());
    scene.sidestep(&[&["load", &at_ingress], &rest[..]].concat());
    let sent = scene.run(&scene.client, &["python3", "-c", TAGGED, CLIENT, SERVER]);
    assert_eq!(sent, (true, String::new()));
    let logs = scene.sidestep(&["logs"]);
    let of = |id: &str| -> Vec<String> {
        let own = format!(" script {id}: ");
        logs.lines().filter_map(|line| Some(line.split_once(&own)?.1.to_owned())).collect()
    };
    // Without a tag, and with one; what has two is no IP packet to either.
    assert_eq!((of("1").len(), of("1")), (4, of("2")), "{logs}");
    assert!(of("1").iter().all(|line| line.starts_with("66 02:00:00:00:00:01 34525 0 ")), "{logs}");
    assert_eq!(scene.status(1)["packets"], 4);
}

#[test]
fn what_cannot_be_at_xdp_is_refused_and_told_why() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let refusal = |file: &str, more: &[&str]| {
        scene.refusal(&[&["load", file, "--hook", "ingress", "--dev", "lan", "--xdp"], more].concat())
    };
    let nat = refusal(&example_path("nat.lua"), &["--function", "snat"]);
    assert!(
        nat.contains("line 16: it changes the packet: not at XDP") && nat.contains("load it without --xdp"),
        "{nat}"
    );
    let names = refusal(&example_path("tls_name_filter.lua"), &[]);
    assert!(names.contains("line 37: ") && names.contains("as a whole, or not at all"), "{names}");
    let file = scene.script("pass.lua", "function process_packet(p) return NF_ACCEPT end\n");
    let forward = scene.refusal(&["load", &file, "--hook", "forward", "--dev", "lan", "--xdp"]);
    assert!(forward.contains("xdp: XDP has what comes in through an interface"), "{forward}");
    let all = scene.refusal(&["load", &file, "--hook", "prerouting", "--xdp"]);
    assert!(all.contains("xdp: XDP is of an interface: name it with dev"), "{all}");
    scene.router.ip("tuntap add dev tun9 mode tun\n").expect("ip");
    let tun = scene.refusal(&["load", &file, "--hook", "ingress", "--dev", "tun9", "--xdp"]);
    assert!(tun.contains("packets of tun9 have no link header"), "{tun}");
    assert!(scene.sidestep(&["list"]).contains("no scripts are loaded"));

    // What could run there without changes is told line by line.
    let nat = example_path("nat.lua");
    let explained = scene.try_sidestep(&["explain", &nat, "--function", "snat", "--xdp"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(!explained.status.success() && text.contains("snat does not run at XDP"), "{text}");
    let explained = scene.try_sidestep(&["explain", &example_path("synflood.lua"), "--xdp"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert_eq!(explained.status.success(), verifies_long_scripts(), "{text}");
    assert!(text.contains("runs in the kernel, at XDP (native or generic"), "{text}");
}
