//! Scripts at `tunnel-in` and `tunnel-out` of two gateways whose tunnel carries traffic: those of gateway A are its
//! configuration's, those of gateway B are loaded by hand.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use lab::scale::emulated;
use lab::traffic::{UdpOptions, UdpStream};
use lab::{Builder, Lab, Node, Site};
use serde_json::Value;

/// Hop limits tell which scripts a packet has met, in which order; long pings go nowhere. Datagrams may come together, as
/// a GSO packet.
const SCRIPT: &str = r#"
local passed = nf.counter "passed"

local function relabel(p, from, to)
  local ip = p:data(packet_eth):data(packet_ip6)
  local icmp = ip and ip:data(packet_icmp6)
  if not icmp and not (ip and ip:data(packet_udp)) then return NF_ACCEPT end
  if from and ip:hop_limit():get() ~= from then return NF_DROP end
  if icmp and #p > 1000 then return NF_DROP end
  ip:hop_limit():set(to)
  passed:add()
  return NF_ACCEPT
end

function out_of_a(p) return relabel(p, false, 60) end
function into_b(p) return relabel(p, 60, 50) end
function out_of_b(p) return relabel(p, false, 40) end
function into_a(p) return relabel(p, 40, 30) end
"#;

#[test]
fn scripts_at_a_tunnels_ends_in_the_user_tier() {
    if let Some(program) = crate::program(&[]) {
        story(Lab::builder(program), "user");
    }
}

#[test]
fn scripts_at_a_tunnels_ends_in_the_kernel() {
    if let Some(program) = crate::program(&[]) {
        story(Lab::builder(program), "kernel");
    }
}

fn story(builder: Builder, tier: &str) {
    let mut lab = builder.rotation("1s").build().expect("a lab");
    let file = lab.directory().join("hops.lua");
    std::fs::write(&file, SCRIPT).expect("a script");
    configure(&mut lab, &file, tier);
    let device = lab.gateway_b().tunnel().to_owned();
    lab.gateway_a().start().expect("gateway A");
    lab.gateway_b().start().expect("gateway B");
    let path = file.display().to_string();
    for (hook, function) in [("tunnel-in", "into_b"), ("tunnel-out", "out_of_b")] {
        let load = ["load", &path, "--hook", hook, "--dev", &device, "--function", function, "--tier", tier];
        succeed(&script(&lab, Node::GatewayB, &load));
    }
    lab.start().expect("a tunnel");

    // What left A with 60 left B with 50 towards its host, and so on.
    lab.namespace(Node::HostB)
        .nft(
            "add table ip6 count\nadd chain ip6 count input { type filter hook input priority 0; }\n\
             add rule ip6 count input ip6 hoplimit 49 icmpv6 type echo-request counter\n",
        )
        .expect("a counter");
    let target = lab.host(Site::B).to_string();
    let ping = |size: &str| {
        let words = ["ping", "-6", "-n", "-c", "5", "-i", "0.1", "-W", "1", "-s", size, &target];
        String::from_utf8_lossy(&lab.exec(Node::HostA, words).expect("ping").stdout).into_owned()
    };
    let said = ping("500");
    assert_eq!(said.matches(" ttl=29 ").count(), 5, "{said}");
    assert!(ping("1200").contains(" 100% packet loss"));
    let counted = lab.exec(Node::HostB, ["nft", "list", "table", "ip6", "count"]).expect("nft").stdout;
    assert!(String::from_utf8_lossy(&counted).contains("packets 5 "), "{counted:?}");

    // Rotations and new texts while both directions carry a stream.
    let first = rotations(&lab);
    let rate = if emulated() { 50 } else { 1_000 };
    let options = UdpOptions { rate, duration: Duration::from_secs(6), ..UdpOptions::default() };
    let back = UdpOptions { from: Site::B, port: 4243, ..options };
    let streams = [options, back].map(|options| UdpStream::start(&lab, options).expect("a stream"));
    for number in 0..6 {
        std::fs::write(&file, format!("{SCRIPT}\n-- {number}\n")).expect("a script");
        let socket = format!("/run/sidestep/{}.sock", lab.gateway_a().tunnel());
        let mut reload = std::process::Command::new(lab.program());
        reload.args(["reload", "--socket", &socket]).stdin(Stdio::null());
        succeed(&reload.output().expect("the program"));
        succeed(&script(&lab, Node::GatewayB, &["reload", &path]));
        std::thread::sleep(Duration::from_millis(500));
    }
    for stream in streams {
        let report = stream.finish(Duration::from_secs(2)).expect("a report");
        assert_eq!((report.lost, report.received.duplicated), (0, 0), "{report:?}");
    }
    assert!(rotations(&lab) - first >= 1, "it was to rotate meanwhile");

    for node in [Node::GatewayA, Node::GatewayB] {
        let list: Value =
            serde_json::from_slice(&script(&lab, node, &["list", "--json"]).stdout).expect("JSON");
        let scripts = list["scripts"].as_array().expect("scripts");
        assert_eq!(scripts.len(), 2, "{list}");
        for script in scripts {
            assert_eq!((&script["tier"], &script["errors"]), (&tier.into(), &0.into()), "{script}");
            assert!(script["packets"].as_u64() > Some(100), "{script}");
        }
    }
    assert!(lab.gateway_a().stop() && lab.gateway_b().stop());
}

/// Gives gateway A its scripts.
fn configure(lab: &mut Lab, file: &Path, tier: &str) {
    let path = lab.gateway_a().configuration().to_owned();
    let mut text = std::fs::read_to_string(&path).expect("a configuration");
    for (hook, function) in [("tunnel-in", "into_a"), ("tunnel-out", "out_of_a")] {
        let file = file.display();
        let _ = write!(
            text,
            "\n[[script]]\nfile = \"{file}\"\nhook = \"{hook}\"\nfunction = \"{function}\"\ntier = \"{tier}\"\n"
        );
    }
    std::fs::write(&path, text).expect("a configuration");
}

fn script(lab: &Lab, node: Node, words: &[&str]) -> Output {
    let mut command = lab.command(node, lab.program()).expect("the namespace");
    command.arg("script").args(words).stdin(Stdio::null()).output().expect("the program")
}

fn succeed(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn rotations(lab: &Lab) -> u64 {
    lab.show(Site::A).expect("a status")["peers"][0]["rotations"].as_u64().expect("a number")
}
