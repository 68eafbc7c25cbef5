//! Packets that grow and shrink behind their IP header, in both tiers: GSO packets, too.

use super::scene::{ROUTER, SERVER, ScriptScene};

/// Puts a header of destination options before the transport header, and takes it away again.
const SCRIPT: &str = r#"
local function header(p) return p:data(packet_eth):data(packet_ip6) end

function put(p)
  local ip = header(p)
  if not ip then return NF_ACCEPT end
  local next = ip:nexthdr():get()
  p:grow(54, 8)
  p:raw(55, 7):set("\0\1\4\0\0\0\0")
  p:get()[54] = next
  header(p):nexthdr():set(60)
  return NF_ACCEPT
end

function take(p)
  local ip = header(p)
  if not ip or ip:nexthdr():get() ~= 60 then return NF_ACCEPT end
  local next = p:get()[54]
  p:shrink(54, 8)
  header(p):nexthdr():set(next)
  return NF_ACCEPT
end
"#;

#[test]
fn a_header_comes_and_goes() {
    let Some(scene) = ScriptScene::new(false) else { return };
    scene
        .router
        .nft(
            "add table ip6 seen\nadd counter ip6 seen options\n\
             add chain ip6 seen forward { type filter hook forward priority 0; }\n\
             add rule ip6 seen forward iifname lan exthdr dst exists counter name options\n",
        )
        .expect("a counter");
    // Room for what comes on the way.
    scene.client.ip(&format!("route add {SERVER} via {ROUTER} mtu 1400\n")).expect("a route");
    let file = scene.script("resized.lua", SCRIPT);
    let rule = format!("ip6 daddr {SERVER}");
    for tier in ["user", "kernel"] {
        let rest = ["--match", &rule, "--tier", tier];
        scene.load(&file, "--hook ingress --dev lan --function put", &rest);
        scene.load(&file, "--hook egress --dev wan --function take", &rest);
        assert!(scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.01"]).ends_with(" 0%"), "{tier}");
        assert!(scene.tcp(SERVER, 1) > 0.01, "{tier}");
        scene.has_served(&[tier]);
        let (_, counter) = scene.run(&scene.router, &["nft", "reset", "counter", "ip6", "seen", "options"]);
        let seen = counter.split_once("packets ").and_then(|(_, text)| text.split(' ').next()?.parse().ok());
        assert!(seen > Some(100_u64), "{tier}: {counter}");
        scene.sidestep(&["unload", &file]);
    }
}
