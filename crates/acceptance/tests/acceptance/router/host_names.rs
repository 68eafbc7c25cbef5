//! Names of hosts whose IPv6 addresses the gateway gives (`[[network.dhcp6.host]]`), while prefixes come and go.

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;

use super::follows;
use super::hosts::Office;

const GATEWAY: &str = "192.168.1.1";
const GATEWAY_OF_GUESTS: &str = "192.168.2.1";
const NAS: &str = "02:00:5e:00:53:07";

/// The office with hosts of DHCPv6: one, one that is a host of DHCP, too, one of guests, and one of a network without IPv4.
fn office() -> Option<Office> {
    let mut office = Office::new()?;
    let node = office.scene.node("gw");
    node.ip("link add servers type bridge\nlink set servers up\n").expect("a network");
    let hosts = format!(
        "[network.dhcp6]\nhost = [\n\
         {{ name = \"nas\", mac = \"{NAS}\", address = \"::5\" }},\n\
         {{ name = \"printer\", duid = \"00:04:00:00:01\", address = \"::9\" }},\n]\n\n\
         [[network]]\nname = \"servers\"\ninterface = \"servers\"\nzone = \"lan\"\nsubnet = 3\n\
         prefixes = [\"fd12:3456:789a:5::/64\"]\n\
         dhcp6 = {{ host = [{{ name = \"db\", duid = \"00:04:00:00:02\", address = \"::53\" }}] }}\n\n\
         [[network]]\nname      = \"guests\""
    );
    let camera = "dhcp6     = { host = [{ name = \"camera\", duid = \"00:04:00:00:03\", address = \"::7\" }] }\ndhcp      = {";
    let rule = "[[firewall.rule]]\nfrom = \"wan\"\nto = \"lan\"\ndestination = \"nas\"\nservice = \"tcp/445\"\n\
                action = \"accept\"\ncomment = \"files\"\n\n[[zone]]                                      # what";
    office.configuration = office
        .configuration
        .edited("[[network]]\nname      = \"guests\"", &hosts)
        .edited("dhcp      = {", camera)
        .edited("[[zone]]                                      # what", rule)
        .edited("destination = \"printer\"\n", "destination = \"printer\"\nto = \"lan\"\n");
    Some(office)
}

impl Office {
    fn aaaa(&self, node: &str, server: &str, name: &str) -> Vec<String> {
        let said = self
            .scene
            .run(node, &["dig", &format!("@{server}"), "+short", "+tries=2", "+time=1", "AAAA", name]);
        said.lines().filter(|line| !line.contains(";;")).map(str::to_owned).collect()
    }

    fn backwards(&self, address: &str) -> String {
        self.scene.run("host", &["dig", &format!("@{GATEWAY}"), "+short", "-x", address]).trim().to_owned()
    }

    fn named(&self, name: &str) -> Vec<String> {
        self.aaaa("host", GATEWAY, name)
    }
}

#[test]
fn hosts_of_dhcp6_have_names_in_the_prefixes_of_now() {
    let Some(mut office) = office() else { return };
    office.scene.node("host").ip("addr add 192.168.1.7/24 dev eth0\n").expect("an address");
    office.start();
    let address = wait_for("the provider's prefix", || {
        let found = office.named("nas.office.internal");
        found.into_iter().find(|address| address.starts_with("2001:db8:10"))
    });
    assert!(address.ends_with("::5"), "{address}");
    assert_eq!(office.named("nas.office.internal"), [address.as_str()]);
    assert_eq!(office.named("NAS").last(), Some(&address));
    assert_eq!(office.named("printer").len(), 1);
    assert_eq!(office.backwards(&address), "nas.office.internal.");
    let status = office.scene.status().expect("a status");
    assert_eq!(status["networks"][0]["dhcp6"]["hosts"][0]["addresses"][0], address.as_str());

    // It has no IPv4 address, which is no error; one that DHCP knows, too, has both.
    assert_eq!(office.resolves("host", GATEWAY, "nas.office.internal"), "");
    assert_eq!(office.answer("host", GATEWAY, "nas.office.internal"), "NOERROR");
    assert_eq!(office.resolves("host", GATEWAY, "printer.office.internal"), "192.168.1.5");
    let printer = address.replace("::5", "::9");
    assert_eq!(office.named("printer.office.internal"), [printer.as_str()]);
    assert_eq!(office.backwards(&printer), "printer.office.internal.");

    // Networks inside know each other, also one without IPv4; guests know their own alone, and nobody knows theirs.
    let mut found = office.named("db.servers.internal");
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("2001:db8:10") && found[1] == "fd12:3456:789a:5::53", "{found:?}");
    assert_eq!(office.backwards("fd12:3456:789a:5::53"), "db.servers.internal.");
    office.scene.node("guest").ip("addr add 192.168.2.7/24 dev eth0\n").expect("an address");
    assert_eq!(office.aaaa("guest", GATEWAY_OF_GUESTS, "camera.guests.internal").len(), 1);
    for name in ["nas", "nas.office.internal", "db.servers.internal", "printer.office.internal"] {
        assert_eq!(office.aaaa("guest", GATEWAY_OF_GUESTS, name), [""; 0], "{name}");
        assert_eq!(office.answer("guest", GATEWAY_OF_GUESTS, name), "NXDOMAIN", "{name}");
    }
    assert_eq!(office.answer("host", GATEWAY, "camera.guests.internal"), "NXDOMAIN");

    // Rules name it, and `firewall explain` knows the addresses that the file gives.
    let explain = |words: &str| {
        let words =
            ["firewall", "explain", "gw.toml"].into_iter().chain(words.split(' ')).collect::<Vec<_>>();
        String::from_utf8_lossy(&office.scene.sidestep(&words).stdout).into_owned()
    };
    let to_nas = format!("tcp from 2001:db8:ffff::1 to {address} port 445 in wan out lan");
    assert!(explain(&to_nas).contains("files"), "{}", explain(&to_nas));
    let elsewhere = to_nas.replace("out lan", "out guests");
    assert!(!explain(&elsewhere).contains("files"), "{}", explain(&elsewhere));
    let to_db = explain("tcp from 2001:db8:ffff::1 to db port 22 in wan out lan");
    assert!(to_db.contains("its destination is never outside"), "{to_db}");

    // The gateway that runs knows those in the provider's prefix, too.
    let live = follows::explained(&office.scene, "tcp from 2001:db8:ffff::1 to nas port 445 in wan out lan");
    assert!(live.to_string().contains("files"), "{live}");

    // The provider renumbers: the name is where the host is now, and nothing is started anew.
    let processes = office.processes();
    office.scene.start_provider("2001:db8:3000::");
    let moved = wait_for("the other prefix alone", || {
        let found = office.named("nas.office.internal");
        (found.len() == 1 && found[0].starts_with("2001:db8:30")).then(|| found[0].clone())
    });
    assert!(moved.ends_with("::5"), "{moved}");
    assert_eq!(office.backwards(&moved), "nas.office.internal.");
    assert_eq!(office.backwards(&address), "", "the old one is nobody's");
    assert_eq!(office.processes(), processes);

    // Killed and started again, it knows the same; without the host in the file, nothing.
    office.scene.kill();
    office.scene.start_again();
    wait_until("the name, after a crash", || office.named("nas.office.internal") == [moved.as_str()]);
    let without = office
        .configuration
        .edited(&format!("{{ name = \"nas\", mac = \"{NAS}\", address = \"::5\" }},\n"), "");
    let without = without.edited("destination = \"nas\"", "destination = \"printer\"");
    office.scene.write("gw.toml", &without);
    office.scene.signal(Signal::SIGHUP);
    wait_until("no name", || office.answer("host", GATEWAY, "nas.office.internal") == "NXDOMAIN");
    assert_eq!(office.backwards(&moved), "");
    assert_eq!(office.named("printer.office.internal").len(), 1);
}

#[test]
fn the_name_of_a_host_of_dhcp6_is_nobodys_else() {
    let Some(mut office) = office() else { return };
    let hosts = format!("{{ name = \"nas\", mac = \"{NAS}\", address = \"::5\" }},\n");
    let with = office.configuration.clone();
    let without = with.edited(&hosts, "").edited("destination = \"nas\"", "destination = \"printer\"");
    office.configuration.clone_from(&without);
    office.start();
    // Somebody is called so, until the file gives the name away.
    let (stranger, _) = office.asks("host", "nas");
    assert_eq!(office.resolves("host", GATEWAY, "nas.office.internal"), stranger);
    office.scene.write("gw.toml", &with);
    office.scene.signal(Signal::SIGHUP);
    wait_until("the host's address", || !office.named("nas.office.internal").is_empty());
    assert_eq!(office.resolves("host", GATEWAY, "nas.office.internal"), "", "no stranger's");
    for name in ["nas", "NAS", "nas.office.internal", "Nas."] {
        assert_eq!(office.asks("host", name).0, stranger, "the lease stays");
        assert_eq!(office.resolves("host", GATEWAY, "nas.office.internal"), "", "{name}");
    }
    // The host itself has it in both versions, whatever it calls itself.
    office
        .scene
        .node("rogue")
        .ip(&format!("link set eth0 down address {NAS}\nlink set eth0 up\n"))
        .expect("a host");
    let (nas, _) = office.asks("rogue", "diskstation");
    assert_eq!(office.resolves("host", GATEWAY, "nas.office.internal"), nas);
    assert!(office.named("nas.office.internal")[0].ends_with("::5"));
    assert_eq!(office.backwards(&nas), "nas.office.internal.");
    let short = office.resolves("host", GATEWAY, "nas");
    assert!(short.ends_with(&nas), "{short}");
}
