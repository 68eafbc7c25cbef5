//! DS-Lite: IPv4 through the tunnel to an AFTR that the provider names by DHCPv6 (RFC 6334), and DNS knows.

use lab::patience::wait_until;
use serde_json::Value;

use super::scene::RouterScene;

/// What is reached by IPv4.
const SERVER: &str = "203.0.113.1";
const AFTR: &str = "2001:db8:ffff::6";
const OTHER: &str = "2001:db8:ffff::7";

const DSLITE: &str = "[[uplink]]\nname = \"fibre\"\ninterface = \"wan0\"\ndelegation = 56\n\
     [[uplink]]\nname = \"ipv4\"\ninterface = \"dslite\"\naddresses = [\"192.0.0.2/29\"]\n\
     [uplink.tunnel]\nkind = \"4in6\"\nover = \"wan0\"\n\
     [[network]]\ninterface = \"lan\"\nsubnet = 1\nipv4 = \"192.168.7.1/24\"\n\
     [firewall]\naccept_special = [\"2001:db8::/32\"]\n";

/// The option that names an AFTR, as octets.
fn names(name: &str) -> String {
    let octets: Vec<u8> = name
        .split('.')
        .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
        .chain([0])
        .collect();
    let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    format!(r#", {{ "code": 64, "csv-format": false, "data": "{hex}", "always-send": false }}"#)
}

fn tunnel(scene: &RouterScene) -> Value {
    scene.status().expect("a status")["uplinks"][1]["tunnel"].clone()
}

fn problems(scene: &RouterScene) -> String {
    scene.status().expect("a status")["problems"].to_string()
}

#[test]
fn the_aftr_is_the_one_that_dhcpv6_names_and_dns_knows() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.node("gw").ip("address flush dev wan0 scope global\n").expect("no IPv4");
    scene.node("host").ip("addr add 192.168.7.9/24 dev eth0\n").expect("an address");
    for address in [AFTR, OTHER, "2001:db8:ffff::53", "2001:db8:ffff::54"] {
        scene.node("net").ip(&format!("addr add {address}/128 dev lo nodad\n")).expect("an address");
    }
    // The provider names nobody yet.
    scene.start(DSLITE);
    wait_until("a reason", || {
        problems(&scene).contains("no AFTR is known: DHCPv6 at wan0 has brought no name")
    });
    assert_eq!(scene.status().expect("a status")["uplinks"][1]["works"], false);

    // It does, and its resolver does not know the name: that is told, too.
    scene.start_provider_with("2001:db8:1000::", &names("aftr.example"));
    wait_until("a lookup that fails", || {
        problems(&scene).contains("the AFTR aftr.example cannot be looked up")
    });
    let records = [AFTR, OTHER].iter().zip(["aftr.example", "other.example"]);
    let records: Vec<String> =
        records.map(|(address, name)| format!("--host-record={name},{address}")).collect();
    let resolver = ["dnsmasq", "-k", "-C", "/dev/null", "-R", "-h", "--user=root", "--pid-file="];
    let resolver: Vec<&str> = resolver.into_iter().chain(records.iter().map(String::as_str)).collect();
    scene.keep("net", &resolver);
    wait_until("the other end", || tunnel(&scene)["remote"] == AFTR);

    // The AFTR, and IPv4 through it.
    let local = tunnel(&scene)["local"].as_str().expect("an address").to_owned();
    scene.write(
        "aftr.toml",
        &format!(
            "[[uplink]]\nname = \"customer\"\ninterface = \"customer\"\naddresses = [\"192.0.0.1/29\"]\n\
             [uplink.tunnel]\nkind = \"4in6\"\nover = \"isp0\"\nlocal = \"{AFTR}\"\nremote = \"{local}\"\n\
             [[route]]\nto = \"192.168.7.0/24\"\ninterface = \"customer\"\n[firewall]\nenabled = false\n"
        ),
    );
    let at = |name: &str| scene.folder.path().join(name).display().to_string();
    let words = [scene.program(), "up".to_owned(), at("aftr.toml"), "--state-dir".to_owned(), at("aftr")];
    scene.start_peer(&words.each_ref().map(String::as_str));
    scene.run("host", &["ip", "route", "replace", "default", "via", "192.168.7.1"]);
    wait_until("IPv4", || scene.answers("host", SERVER));

    // The name is remembered over a crash, as the prefix is.
    scene.kill();
    assert!(!scene.answers("host", SERVER));
    scene.start_again();
    wait_until("IPv4", || scene.answers("host", SERVER));

    // Another name: the tunnel leads there when the lease is renewed, and no sooner.
    scene.start_provider_with("2001:db8:1000::", &names("other.example"));
    scene.keep("net", &resolver);
    wait_until("the other AFTR", || tunnel(&scene)["remote"] == OTHER);
    scene.stop();
    assert!(!scene.kernel().contains("dslite"), "{}", scene.kernel());
}
