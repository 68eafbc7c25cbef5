//! A site behind a mobile router: one /64, a firewall that forgets, a narrow path, IPv4 by NAT64 only.
//!
//! ```text
//!   gateway ── mobile router ── core, NAT64 ── other site
//! ```

use lab::patience::wait_until;
use serde_json::Value;

use super::scene::Scene;

const EXAMPLE: &str = include_str!("../../../../../examples/mobile.toml");
/// What `examples/mobile.toml` has as the peer's key.
const EXAMPLE_KEY: &str = "fbfKS0GINA6MTVDKONBvvsmMK4eoYvB5ZRNp88sI+mI=";
/// A machine that has IPv4 only, as NAT64 shows it.
const IPV4_ONLY: &str = "2001:db8:64::192.0.2.10";

fn mobile_network() -> Option<Scene> {
    let mut scene = Scene::new(&["g", "m", "c", "b"], &["radvd", "tayga"])?;
    for node in ["m", "c", "b"] {
        scene.node(node).sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
    }
    scene.node("c").sysctl(&[("ipv4/ip_forward", 1)]).expect("a router");
    scene.link(("g", "eth0"), ("m", "lan"));
    scene.link(("m", "radio"), ("c", "radio"));
    scene.link(("c", "out"), ("b", "eth0"));
    scene.ip(
        "m",
        "address add 2001:db8:5:1::1/64 dev lan nodad\naddress add 2001:db8:5::2/64 dev radio nodad\n\
         link set dev radio mtu 1400\nroute add default via 2001:db8:5::1",
    );
    scene.ip(
        "c",
        "address add 2001:db8:5::1/64 dev radio nodad\nlink set dev radio mtu 1400\n\
         route add 2001:db8:5:1::/64 via 2001:db8:5::2\n\
         address add 2001:db8:fb::1/64 dev out nodad\nroute add 2001:db8:b1::/64 via 2001:db8:fb::2\n\
         address add 192.0.2.10/32 dev lo",
    );
    scene.ip(
        "b",
        "address add 2001:db8:fb::2/64 dev eth0 nodad\nroute add default via 2001:db8:fb::1\n\
         address add 2001:db8:b::1/128 dev lo\naddress add 10.0.2.1/32 dev lo",
    );
    // Nobody out there begins; what says nothing for three seconds is forgotten; no error comes back.
    scene
        .node("m")
        .nft(
            "table ip6 filter { chain forward { type filter hook forward priority 0; policy drop;\n\
             iifname radio icmpv6 type packet-too-big drop\n\
             ct state established,related accept\niifname lan accept\n}\n}\n",
        )
        .expect("a firewall");
    scene
        .node("m")
        .sysctl(&[
            ("netfilter/nf_conntrack_udp_timeout", 3),
            ("netfilter/nf_conntrack_udp_timeout_stream", 3),
        ])
        .expect("a firewall that forgets");
    nat64(&mut scene);

    scene
        .node("g")
        .sysctl(&[("ipv6/conf/eth0/accept_ra", 1), ("ipv6/conf/eth0/autoconf", 1)])
        .expect("a host");
    let radvd = scene.write(
        "radvd.conf",
        "interface lan { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; prefix 2001:db8:5:1::/64 { }; };\n",
    );
    let pid = scene.path("radvd.pid").display().to_string();
    scene.start("m", &["radvd", "-n", "-m", "stderr", "-C", &radvd.display().to_string(), "-p", &pid]);

    let [ours, theirs] = ["mobile.key", "b.key"].map(|name| scene.key(name));
    let mobile = EXAMPLE
        .replace(EXAMPLE_KEY, &theirs)
        .replace("\"mt6d0\"", &format!("\"{}\"", scene.tunnel("g")))
        .replace("\"20s\"", "\"2s\"");
    scene.write("g.toml", &mobile);
    let other = format!(
        "[node]\nprivate_key_file = \"b.key\"\nexternal = \"eth0\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
         [tunnel]\nname = \"{}\"\n[[peer]]\nname = \"mobile\"\npublic_key = \"{ours}\"\n\
         hop_prefix = \"2001:db8:5:1::/64\"\nallowed_ips = [\"2001:db8:a::/64\", \"10.0.1.0/24\"]\n",
        scene.tunnel("b")
    );
    scene.write("b.toml", &other);
    wait_until("an address and a router", || scene.run("g", &["ip", "-6", "route"]).contains("default via"));
    scene.up("b");
    scene.up("g");
    Some(scene)
}

/// Translates IPv6 to IPv4 at the core.
fn nat64(scene: &mut Scene) {
    let data = scene.path("tayga");
    std::fs::create_dir(&data).expect("a folder");
    let file = scene.write(
        "tayga.conf",
        &format!(
            "tun-device nat64\nipv4-addr 192.168.255.1\nprefix 2001:db8:64::/96\ndynamic-pool 192.168.255.0/24\n\
             data-dir {}\n",
            data.display()
        ),
    );
    let file = file.display().to_string();
    scene.run("c", &["tayga", "-c", &file, "--mktun"]);
    scene.ip(
        "c",
        "link set dev nat64 up\nroute add 2001:db8:64::/96 dev nat64\nroute add 192.168.255.0/24 dev nat64",
    );
    scene.start("c", &["tayga", "-d", "-c", &file]);
}

#[test]
fn a_site_behind_a_mobile_router_has_both_ip_versions() {
    let Some(scene) = mobile_network() else { return };
    wait_until("the other site", || scene.answers("g", "2001:db8:b::1"));
    assert_eq!(scene.run("g", &["ip", "-4", "address", "show", "dev", "eth0"]), "", "no IPv4 outside");
    wait_until("its IPv4 network", || scene.answers("g", "10.0.2.1"));
    wait_until("what has IPv4 only, beside the tunnel", || scene.answers("g", IPV4_ONLY));

    // A whole packet of the smallest MTU crosses, and the path's is found although nobody tells.
    wait_until("a packet of 1280 bytes", || {
        scene
            .run("g", &["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1232", "2001:db8:b::1"])
            .contains(" 0% packet loss")
    });
    let path_mtu = || {
        let shown = scene.run("g", &[&scene.program(), "show", &scene.tunnel("g"), "--json"]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["peers"][0]["path_mtu"].as_u64().expect("a number")
    };
    wait_until("the path's MTU", || (1280..=1400).contains(&path_mtu()));

    // Longer than the firewall remembers: the other end can still begin.
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert!(scene.answers("b", "2001:db8:a::1"), "the keepalive does not keep it open");
}
