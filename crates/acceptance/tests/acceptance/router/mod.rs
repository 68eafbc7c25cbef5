//! The gateway as a router, between real providers' servers and real hosts.

mod attacks;
mod bandwidth;
mod dhcp6;
mod dns_over_tls;
mod dslite;
mod firewall;
pub(crate) mod flow_offload;
mod flows;
mod follows;
mod forwards;
mod host_names;
pub(crate) mod hostile_links;
mod hosts;
mod links;
mod others;
mod port_mapping;
pub(crate) mod scene;
mod scripts;
mod small_office;
mod strangers;
mod traffic;

use std::sync::LazyLock;
use std::time::Duration;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;

use scene::{INTERNET, RouterScene, SECOND};

use crate::confined;

/// The examples, at the interfaces of the tests.
pub(crate) static HOME: LazyLock<String> =
    LazyLock::new(|| at_our_interfaces(include_str!("../../../../../examples/home.toml")));
static OFFICE: LazyLock<String> =
    LazyLock::new(|| at_our_interfaces(include_str!("../../../../../examples/office.toml")));

fn at_our_interfaces(example: &str) -> String {
    let interfaces = [("eth0", "wan0"), ("eth1", "lan"), ("eth2", "wan1"), ("eth3", "guests")];
    let text = interfaces.iter().fold(example.to_owned(), |text, (theirs, ours)| {
        text.replace(&format!("\"{theirs}\""), &format!("\"{ours}\""))
    });
    // The networks of the tests have addresses for documentation.
    text + "\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n"
}

#[test]
fn a_host_behind_a_home_gateway_has_addresses_names_and_the_internet() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    let (address, preferred) =
        wait_for("an address of the delegated prefix", || scene.host_address("2001:db8:10"));
    assert!(preferred);
    assert!(scene.host_address("fd12:3456:789a:1:").is_some());
    wait_until("the Internet", || scene.answers("host", INTERNET));
    // The other way round, too: the provider knows the way to the prefix.
    assert!(scene.answers("net", &address));

    let told = scene.run("host", &["rdisc6", "-1", "eth0"]);
    for expected in
        ["2001:db8:ffff::53", "2001:db8:ffff::54", "home.example", "Router preference         :       medium"]
    {
        assert!(told.contains(expected), "{expected}: {told}");
    }

    // What is delegated and not used is unreachable, and does not go to the provider and back until it dies.
    let delegated = address.split(':').take(3).collect::<Vec<_>>().join(":");
    let unused = scene.run("host", &["ping", "-c", "1", "-W", "2", &format!("{delegated}:77::1")]);
    assert!(unused.contains("No route"), "{unused}");

    let status = scene.status().expect("a status");
    assert_eq!(status["uplinks"][0]["works"], true);
    assert_eq!(status["networks"][0]["default_router"], true);
    assert!(status["neighbors"].to_string().contains(&address), "{status}");
    let text = String::from_utf8(scene.sidestep(&["status"]).stdout).expect("text");
    assert!(
        text.contains("uplink fibre at wan0: works") && text.contains("network lan at lan: link up"),
        "{text}"
    );
}

#[test]
fn the_end_leaves_the_kernel_as_it_was_and_hosts_without_a_router() {
    let Some(mut scene) = RouterScene::new() else { return };
    // What somebody else has set up, beside and in the way.
    scene.run("gw", &["ip", "address", "add", "fd12:3456:789a:1::1/64", "dev", "lan", "nodad"]);
    scene.run("gw", &["nft", "add", "table", "inet", "foreign"]);
    // What the kernel changes along when forwarding is switched on, and off.
    let settings = [
        ("ipv4/ip_forward", 0),
        ("ipv4/conf/all/accept_redirects", 0),
        ("ipv4/conf/wan1/forwarding", 1),
        ("ipv4/conf/lan/accept_redirects", 1),
        ("ipv6/conf/wan1/forwarding", 1),
    ];
    scene.node("gw").sysctl(&settings).expect("settings");
    let before = scene.kernel();
    scene.start(
        &HOME
            .edited("subnet    = 1 ", "ipv4 = \"192.168.1.1/24\"\nsubnet    = 1 ")
            .edited("delegation = 56 ", "delegation = 56\nmasquerade = true\nipv4_router = \"192.0.2.1\""),
    );
    wait_for("an address", || scene.host_address("2001:db8:10"));
    wait_until("a router", || scene.run("host", &["ip", "-6", "route"]).contains("default via"));

    // IPv4 leaves with the gateway's address: the provider knows no other.
    scene
        .node("host")
        .ip("addr add 192.168.1.9/24 dev eth0\nroute add default via 192.168.1.1\n")
        .expect("IPv4");
    wait_until("the Internet by IPv4", || scene.answers("host", "203.0.113.1"));

    let running = scene.kernel();
    for interface in ["all", "lan", "wan0"] {
        assert!(running.contains(&format!("{interface} IPv4 accept_redirects 0")), "{running}");
    }

    scene.stop();
    assert_eq!(scene.kernel(), before);
    // The other way round, and by a crash.
    scene.node("gw").sysctl(&[("ipv4/conf/all/accept_redirects", 1)]).expect("a setting");
    let before = scene.kernel();
    scene.start_again();
    scene.kill();
    scene.start_again();
    assert!(scene.kernel().contains("all IPv4 accept_redirects 0"), "{}", scene.kernel());
    scene.stop();
    assert_eq!(scene.kernel(), before);
    wait_until("no router", || !scene.run("host", &["ip", "-6", "route"]).contains("default via"));
}

#[test]
fn hosts_have_ipv4_too_with_dhcp_on_both_sides() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.run("gw", &["ip", "address", "del", "192.0.2.2/24", "dev", "wan0"]);
    let configuration = HOME
        .edited("subnet    = 1 ", "ipv4 = \"192.168.1.1/24\"\nsubnet    = 1 ")
        .edited("delegation = 56 ", "delegation = 56\nmasquerade = true");
    scene.start(&configuration);
    wait_until("an inner address", || {
        scene.run("gw", &["ip", "-4", "address", "show", "dev", "lan"]).contains("192.168.1.1/24")
    });

    scene.serve_ipv4("net", "isp0", "192.0.2.100,192.0.2.199");
    scene.serve_ipv4("gw", "lan", "192.168.1.100,192.168.1.199");
    wait_until("an address for the gateway", || scene.asks_for_ipv4("gw", "wan0"));
    wait_until("an address for the host", || scene.asks_for_ipv4("host", "eth0"));
    wait_until("the Internet by IPv4", || scene.answers("host", "203.0.113.1"));

    // What the client has set up is not the gateway's to take away.
    scene.stop();
    let left = scene.run("gw", &["ip", "-4", "address", "show", "dev", "wan0"]);
    assert!(left.contains("inet 192.0.2.1"), "{left}");
    let left = scene.run("gw", &["ip", "-4", "route"]);
    assert!(left.contains("default via 192.0.2.1 dev wan0"), "{left}");
}

#[test]
fn after_a_power_cut_the_kernel_goes_on_and_the_next_start_repairs_the_rest() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    scene.start(&HOME);
    let (address, _) = wait_for("an address", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    scene.kill();
    assert!(scene.answers("host", INTERNET), "the kernel forwards without the gateway");
    // Meanwhile somebody cleans up a part by hand.
    scene.run("gw", &["ip", "-6", "route", "flush", "proto", "83"]);
    scene.start_again();
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert_eq!(scene.host_address("2001:db8:10").expect("an address").0, address, "the lease is remembered");
    scene.stop();
    assert_eq!(scene.kernel(), before);
}

#[test]
fn a_power_cut_at_any_point_of_an_apply_is_repaired() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    let other = HOME.edited("subnet    = 1", "subnet    = 9");
    scene.start(&HOME);
    wait_until("an address", || scene.host_address("2001:db8:10").is_some());
    let after = [0, 3, 10, 20, 40, 80, 160].map(Duration::from_millis);
    for (round, delay) in after.into_iter().enumerate() {
        // Of a reload, and of a start.
        let (next, subnet) = if round % 2 == 0 { (&other, ":9::1/64") } else { (&*HOME, ":1::1/64") };
        scene.write("gw.toml", next);
        scene.signal(Signal::SIGHUP);
        std::thread::sleep(delay);
        scene.kill();
        let closed = |scene: &RouterScene| {
            let input = scene.run("gw", &["nft", "list", "chain", "inet", "sidestep-firewall", "input"]);
            let forward = scene.run("gw", &["nft", "list", "chain", "inet", "sidestep-firewall", "forward"]);
            [input, forward].iter().all(|chain| chain.contains("policy drop") && chain.contains("vmap"))
        };
        assert!(closed(&scene), "no firewall {delay:?} after a reload");
        scene.begin();
        std::thread::sleep(delay);
        scene.kill();
        assert!(closed(&scene), "no firewall {delay:?} after a start");

        scene.start_again();
        wait_until("the new state", || scene.kernel().contains(subnet));
        wait_until("the Internet", || scene.answers("host", INTERNET));
    }
    scene.stop();
    assert_eq!(scene.kernel(), before);
}

#[test]
fn hosts_move_to_the_second_uplink_when_the_first_fails_and_back() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&OFFICE);
    wait_until("addresses of both uplinks", || {
        scene.host_address("2001:db8:10").is_some_and(|(_, preferred)| preferred)
            && scene.host_address("2001:db8:2000:1:").is_some_and(|(_, preferred)| !preferred)
    });
    wait_until("the Internet", || scene.answers("host", INTERNET));
    // Each source leaves by its own uplink, as soon as that has a router: the providers take no other.
    for prefix in ["2001:db8:10", "2001:db8:2000:1:"] {
        let (address, _) = scene.host_address(prefix).expect("an address");
        let ping = ["ping", "-c", "2", "-i", "0.2", "-W", "1", "-I", &address, INTERNET];
        wait_until("an answer to this source", || scene.run("host", &ping).contains(" 0% packet loss"));
    }

    // The link stays up, and nothing answers behind it.
    scene.run("net", &["nft", "add table inet dead { chain input { type filter hook prerouting priority -400; iifname isp0 meta l4proto icmpv6 icmpv6 type echo-request drop; }; }"]);
    wait_until("hosts prefer the second uplink", || {
        scene.host_address("2001:db8:2000:1:").is_some_and(|(_, preferred)| preferred)
            && scene.host_address("2001:db8:10").is_none_or(|(_, preferred)| !preferred)
    });
    wait_until("the Internet by the second uplink", || scene.answers("host", INTERNET));
    let status = scene.status().expect("a status");
    assert_eq!(
        (&status["uplinks"][0]["works"], &status["uplinks"][1]["works"]),
        (&false.into(), &true.into())
    );
    assert_eq!(status["uplinks"][0]["probes_answered"], false);

    scene.run("net", &["nft", "delete", "table", "inet", "dead"]);
    wait_until("hosts prefer the first uplink again", || {
        scene.host_address("2001:db8:10").is_some_and(|(_, preferred)| preferred)
            && scene.host_address("2001:db8:2000:1:").is_some_and(|(_, preferred)| !preferred)
    });

    // The cable is pulled.
    scene.run("net", &["ip", "link", "set", "isp0", "down"]);
    wait_until("the Internet by the second uplink", || scene.answers("host", INTERNET));
    let (address, _) = scene.host_address("2001:db8:10").expect("an address");
    let report = scene.run("host", &["ping", "-c", "1", "-W", "1", "-I", &address, INTERNET]);
    assert!(report.contains("unreachable") || report.contains("No route"), "{report}");
    assert_eq!(SECOND, "2001:db8:2000::/56");
}

#[test]
fn when_the_provider_renumbers_hosts_drop_the_old_addresses() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    let (old, _) =
        wait_for("an address", || scene.host_address("2001:db8:10").filter(|(_, preferred)| *preferred));
    // Another server with other prefixes, which knows nothing of the lease.
    scene.start_provider("2001:db8:3000::");
    let (new, _) = wait_for("an address of the new prefix", || {
        scene.host_address("2001:db8:30").filter(|(_, preferred)| *preferred)
    });
    wait_until("the old one is not used any more", || {
        scene.host_addresses().iter().all(|(address, preferred)| *address != old || !preferred)
    });
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert!(scene.answers("net", &new));
    wait_until("the old prefix is gone from the gateway", || {
        let status = scene.status().expect("a status");
        !status["addresses"].to_string().contains("2001:db8:10")
    });
    // Whoever still sends from it is told (RFC 7084, L-14).
    scene.run("host", &["ip", "-6", "address", "replace", &format!("{old}/64"), "dev", "eth0", "nodad"]);
    let told = scene.run("host", &["ping", "-c", "1", "-W", "2", "-I", &old, INTERNET]);
    assert!(told.contains("No route"), "{told}");

    // What is withdrawn while its lease goes on takes its route along, in a reload and in the end.
    let network = |address: &str| address.split(':').take(4).collect::<Vec<_>>().join(":") + "::/64";
    let routes = || scene.run("gw", &["ip", "-6", "route", "show", "dev", "lan"]);
    assert!(routes().contains(&network(&new)), "{}", routes());
    scene.write("gw.toml", &HOME.edited("subnet    = 1 ", "subnet    = 3 "));
    assert!(scene.sidestep(&["reload"]).status.success(), "{}", scene.log());
    let moved = wait_for("an address of the other subnet", || scene.address("gw", "lan", "2001:db8:30"));
    assert!(!routes().contains(&network(&new)), "{}", routes());
    assert!(routes().contains(&network(&moved)), "{}", routes());
    scene.stop();
    let left = scene.run("gw", &["ip", "-6", "route", "show", "dev", "lan"]);
    assert!(!left.contains("2001:db8:30"), "{left}");
}

#[test]
fn a_gateway_with_a_tunnel_is_one_configuration_all_of_it_or_none() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    // The peer is nobody: only that both run, and change together, matters here.
    let key = String::from_utf8(scene.sidestep(&["genkey"]).stdout).expect("a key");
    let public = scene.run("gw", &["sh", "-c", &format!("{0} genkey | {0} pubkey", scene.program())]);
    let both = format!(
        "[node]\nprivate_key = \"{}\"\nexternal = \"wan0\"\nhop_prefix = \"2001:db8:a1::/64\"\n\
         [tunnel]\nname = \"rt-mt6d\"\nopen_when_down = true\n\
         [[peer]]\nname = \"b\"\npublic_key = \"{}\"\nhop_prefix = \"2001:db8:b1::/64\"\nallowed_ips = [\"2001:db8:b::/64\"]\n{}",
        key.trim(),
        public.trim(),
        *HOME
    );
    scene.start(&both);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert!(scene.run("gw", &["ip", "link", "show", "rt-mt6d"]).contains("UP"));
    confined::assert_confined(scene.id(), confined::GATEWAY);
    let running = scene.kernel();
    let status = scene.status().expect("a status");
    let peer = &status["peers"][0];
    assert!(peer["tunnel"] == "rt-mt6d" && peer["name"] == "b" && peer["state"] != "established", "{peer}");

    // The gateway's part would do, the tunnel's does not.
    scene.write("gw.toml", &both.edited("subnet    = 1", "subnet    = 9").edited("rt-mt6d", "other"));
    scene.signal(Signal::SIGHUP);
    wait_until("a refusal", || scene.log().contains("the configuration stays as it was"));
    wait_until("all is as before", || scene.kernel() == running);

    scene.write("gw.toml", &both.edited("subnet    = 1", "subnet    = 9"));
    scene.signal(Signal::SIGHUP);
    wait_until("the other subnet", || scene.kernel().contains(":9::1/64"));
    scene.stop();
    assert_eq!(scene.kernel(), before);
}

#[test]
fn a_rogue_router_is_reported() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    scene.node("rogue").ip("link set eth0 up\n").expect("a link");
    scene.node("rogue").sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
    scene.write(
        "rogue.conf",
        "interface eth0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; prefix 2001:db8:bad::/64 { }; };\n",
    );
    let folder = scene.folder.path().display().to_string();
    let (configuration, pid) = (format!("{folder}/rogue.conf"), format!("{folder}/rogue.pid"));
    scene.keep("rogue", &["radvd", "-n", "-m", "stderr", "-C", &configuration, "-p", &pid]);
    let rogue = wait_for("a report", || {
        let status = scene.status()?;
        status["networks"][0]["rogue_routers"].get(0).cloned()
    });
    assert_eq!(rogue["prefixes"][0], "2001:db8:bad::/64");
    assert_eq!(rogue["default_router"], true);
    assert!(scene.log().contains("advertises itself as a router"), "{}", scene.log());
}

#[test]
fn what_cannot_be_applied_changes_nothing() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    scene.write("gw.toml", &HOME.edited("\"wan0\"", "\"wan9\""));
    let output = scene.sidestep(&["up", "gw.toml", "--state-dir", "state"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("uplink \"fibre\": there is no interface wan9"), "{said}");
    assert_eq!(scene.kernel(), before);

    // Half of it could be done: a route of somebody else's is in the way.
    let with_route = format!("{}\n[[route]]\nto = \"2001:db8:5::/48\"\ninterface = \"lan\"\n", *HOME);
    scene.run("gw", &["ip", "-6", "route", "add", "2001:db8:5::/48", "dev", "lan", "metric", "512"]);
    let before = scene.kernel();
    scene.write("gw.toml", &with_route);
    let output = scene.sidestep(&["up", "gw.toml", "--state-dir", "state"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("2001:db8:5::/48"), "{said}");
    assert_eq!(scene.kernel(), before);

    // A running gateway keeps what it has, also of an uplink that would be another.
    scene.start(&HOME);
    wait_for("an address", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let running = scene.kernel();
    let leased = |scene: &RouterScene| scene.status().expect("a status")["uplinks"][0]["prefixes"].clone();
    let lease = leased(&scene);
    assert!(lease.to_string().contains("2001:db8:10"), "{lease}");
    for refused in [&with_route, &with_route.edited("\"fibre\"", "\"cable\"")] {
        scene.write("gw.toml", refused);
        let output = scene.sidestep(&["reload"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("2001:db8:5::/48"), "{said}");
        assert!(scene.log().contains("the configuration stays as it was"));
        assert_eq!(scene.kernel(), running);
        assert_eq!(leased(&scene)[0]["prefix"], lease[0]["prefix"]);
    }
}

#[test]
fn a_reload_leaves_no_stale_addresses() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    wait_for("an address", || scene.host_address("2001:db8:10"));
    // Another number, and another name: hosts get other addresses, and use the old ones no more.
    let preferred = |scene: &RouterScene| {
        let addresses = scene.host_addresses().into_iter().filter(|(_, preferred)| *preferred);
        addresses.map(|(address, _)| address).filter(|address| address.starts_with("2001:db8:10")).collect()
    };
    let other = HOME.edited("subnet    = 1", "subnet    = 9");
    scene.write("gw.toml", &other.edited("name      = \"lan\"", "name      = \"house\""));
    assert!(scene.sidestep(&["reload"]).status.success(), "{}", scene.log());
    wait_until("addresses of the other subnet only", || {
        let addresses: Vec<String> = preferred(&scene);
        !addresses.is_empty() && addresses.iter().all(|address| address.split(':').nth(3) == Some("9"))
    });
    // No network at all.
    let uplink = HOME.split("[[network]]").next().expect("a part");
    scene.write("gw.toml", uplink);
    assert!(scene.sidestep(&["reload"]).status.success(), "{}", scene.log());
    wait_until("no address", || preferred(&scene).is_empty());
}

/// The kernel forgets addresses and routes of an interface that goes down, and makes no route of an address with a lifetime
/// that has come meanwhile.
#[test]
fn a_network_is_back_when_its_link_is() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    wait_for("an address", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let running = scene.kernel();
    scene.run("gw", &["ip", "link", "set", "lan", "down"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(scene.address("gw", "lan", "2001:db8:10"), None);
    scene.run("gw", &["ip", "link", "set", "lan", "up"]);
    wait_until("all of it", || scene.kernel() == running);
    let routes = || scene.run("gw", &["ip", "-6", "route", "show", "dev", "lan"]);
    wait_until("the connected route", || routes().contains("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
}

#[test]
fn a_router_that_is_on_no_network_yet_is_waited_for() {
    let Some(mut scene) = RouterScene::new() else { return };
    let before = scene.kernel();
    let route = "\n[[route]]\nto = \"2001:db8:5::/48\"\nvia = \"2001:db8:77::1\"\ninterface = \"lan\"\n";
    let waiting = HOME.edited("delegation = 56 ", "delegation = 56\nipv4_router = \"198.51.100.1\"") + route;
    scene.start(&waiting);
    let problems = || scene.status().expect("a status")["problems"].to_string();
    let told =
        ["uplink fibre: add route 0.0.0.0/0 via 198.51.100.1 dev wan0: ", "add route 2001:db8:5::/48 via "];
    wait_until("both problems", || told.iter().all(|problem| problems().contains(problem)));
    assert!(told.iter().all(|problem| scene.log().contains(problem)), "{}", scene.log());
    wait_until("the rest works", || scene.answers("host", INTERNET));

    scene.run("gw", &["ip", "address", "add", "198.51.100.9/24", "dev", "wan0"]);
    scene.run("gw", &["ip", "address", "add", "2001:db8:77::9/64", "dev", "lan", "nodad"]);
    wait_until("no problem", || !problems().contains("add route"));
    let routes = || scene.run("gw", &["sh", "-c", "ip route; ip -6 route"]);
    let there = ["default via 198.51.100.1 dev wan0", "2001:db8:5::/48 via 2001:db8:77::1 dev lan"];
    assert!(there.iter().all(|route| routes().contains(route)), "{}", routes());

    // A reload is as a start.
    scene.write("gw.toml", &waiting.edited("2001:db8:77::1", "2001:db8:78::1"));
    scene.signal(Signal::SIGHUP);
    wait_until("the problem", || problems().contains("2001:db8:78::1"));
    scene.run("gw", &["ip", "address", "del", "198.51.100.9/24", "dev", "wan0"]);
    scene.run("gw", &["ip", "address", "del", "2001:db8:77::9/64", "dev", "lan"]);
    scene.stop();
    assert_eq!(scene.kernel(), before);
}

fn setting(scene: &RouterScene, path: &str) -> String {
    scene.run("gw", &["cat", &format!("/proc/sys/net/{path}")]).trim().to_owned()
}

#[test]
fn settings_are_set_again_and_go_with_the_router() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.node("gw").sysctl(&[("ipv4/ip_forward", 0)]).expect("no router");
    let of_lan =
        ["ipv6/conf/lan/accept_ra", "ipv6/conf/lan/accept_redirects", "ipv4/conf/lan/accept_redirects"];
    let before = of_lan.map(|path| setting(&scene, path));
    let masquerading = HOME
        .edited("subnet    = 1 ", "ipv4 = \"192.168.1.1/24\"\nsubnet    = 1 ")
        .edited("delegation = 56 ", "delegation = 56\nmasquerade = true");
    scene.start(&masquerading);
    let setting = |path: &str| setting(&scene, path);
    let tables = || scene.run("gw", &["nft", "list", "tables"]);
    assert!(tables().contains("sidestep-nat"), "{}", tables());
    assert_eq!(
        (of_lan.map(setting), setting("ipv4/ip_forward")),
        (["0"; 3].map(str::to_owned), "1".to_owned())
    );
    // As `sysctl --system` does it.
    for (path, wanted, other) in [
        ("ipv6/conf/wan0/accept_ra", "2", 1),
        ("ipv4/conf/lan/forwarding", "1", 0),
        ("ipv4/ip_forward", "1", 0),
        ("ipv6/conf/lan/forwarding", "1", 0),
        ("ipv4/conf/all/accept_redirects", "0", 1),
    ] {
        assert_eq!(setting(path), wanted, "{path}");
        scene.node("gw").sysctl(&[(path, other)]).expect("a setting");
        wait_until(path, || setting(path) == wanted);
    }

    // What another file does not want is as it was.
    let reload = |text: &str| {
        let times = || scene.log().matches("configuration read again").count();
        let before = times();
        scene.write("gw.toml", text);
        scene.signal(Signal::SIGHUP);
        wait_until("another file", || times() > before);
    };
    reload(&HOME.edited("interface = \"lan\"", "interface = \"guests\""));
    assert_eq!((of_lan.map(setting), setting("ipv4/ip_forward")), (before, "0".to_owned()));
    wait_until("it is still no matter who redirects", || setting("ipv4/conf/all/accept_redirects") == "0");
    assert_eq!(setting("ipv6/conf/guests/accept_ra"), "0");

    // A file with a firewall alone.
    reload("[[zone]]\nname = \"wan\"\ntrust = \"outside\"\ninterfaces = [\"wan0\"]\n[firewall]\n");
    assert!(!tables().contains("sidestep-nat"), "{}", tables());
    assert_eq!(setting("ipv6/conf/wan0/accept_ra"), "1", "as somebody else had it last");
    assert_eq!(setting("ipv6/conf/all/forwarding"), "0");
    scene.stop();
}
