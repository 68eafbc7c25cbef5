//! Addresses and names for hosts (`[network.dhcp]`, `[dns]`), with real clients: udhcpc asks for addresses, dig for names.

use std::os::unix::fs::PermissionsExt;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::scene::RouterScene;

const GATEWAY: &str = "192.168.1.1";
const GATEWAY_OF_GUESTS: &str = "192.168.2.1";
/// Of the example.
const PRINTER: &str = "02:00:5e:00:53:01";

/// The example's office: two hosts inside, one guest, and a provider whose servers know some names.
pub(super) struct Office {
    pub(super) scene: RouterScene,
    pub(super) configuration: String,
}

impl Office {
    pub(super) fn new() -> Option<Self> {
        let mut scene = RouterScene::new()?;
        scene.node("guest").create().expect("a namespace");
        let guest = scene.node("guest").name().to_owned();
        scene
            .node("gw")
            .ip(&format!(
                "link add guest type veth peer name eth0 netns {guest}\nlink set guest master guests up\n"
            ))
            .expect("a guest");
        for node in ["host", "rogue", "guest"] {
            scene.node(node).ip("link set eth0 up\n").expect("a host");
        }
        let servers = ["2001:db8:ffff::53", "2001:db8:ffff::54", "203.0.113.53"];
        for server in servers {
            let length = if server.contains(':') { 128 } else { 32 };
            scene.node("net").ip(&format!("addr add {server}/{length} dev lo\n")).expect("an address");
        }
        let mut words =
            vec!["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file"];
        words.extend([
            "--no-hosts",
            "--no-resolv",
            "--bind-interfaces",
            "--except-interface=lo",
            "--cache-size=0",
        ]);
        let listen: Vec<_> = servers.iter().map(|server| format!("--listen-address={server}")).collect();
        words.extend(listen.iter().map(String::as_str));
        words.extend(["--address=/www.example/9.9.9.80", "--address=/evil.example/192.168.1.5"]);
        words.extend(["--address=/site-b.example/10.2.0.7", "--address=/evil6.example/fd00::1"]);
        scene.keep("net", &words);
        wait_until("the provider's server", || scene.run("net", &["ss", "-lnu"]).contains("203.0.113.53:53"));
        let configuration = super::at_our_interfaces(include_str!("../../../../../examples/hosts.toml"))
            .edited("\n[firewall]\naccept_special = [\"2001:db8::/32\"]\n", "")
            .edited(
                "[[firewall.rule]]",
                "[firewall]\naccept_special = [\"2001:db8::/32\"]\n\n[[firewall.rule]]",
            );
        Some(Office { scene, configuration })
    }

    pub(super) fn start(&mut self) {
        let configuration = self.configuration.clone();
        self.scene.start(&configuration);
        self.wait_for_dnsmasqs();
    }

    pub(super) fn wait_for_dnsmasqs(&self) {
        wait_until("a dnsmasq for each network", || (0..2).all(|place| self.dnsmasq(place)["runs"] == true));
    }

    /// What the status says of it.
    fn dnsmasq(&self, network: usize) -> Value {
        self.scene.status().map_or(Value::Null, |status| status["networks"][network]["dnsmasq"].clone())
    }

    /// Asks for an address under this name, takes it, and returns it with the domain and the servers that were told.
    pub(super) fn asks(&self, node: &str, name: &str) -> (String, String) {
        let script = self.scene.folder.path().join("udhcpc");
        let take = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\n\
                    ip address replace $ip/$mask dev $interface && ip route replace default via $router dev $interface\n\
                    echo \"told $ip $domain $dns\"\n";
        std::fs::write(&script, take).expect("a file");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("a script");
        let (script, name) = (script.display().to_string(), format!("hostname:{name}"));
        let words = [
            "busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-t", "20", "-T", "1", "-x", &name, "-s", &script,
        ];
        let said = self.scene.run(node, &words);
        let told =
            said.lines().find_map(|line| line.strip_prefix("told ")).unwrap_or_else(|| panic!("{said}"));
        let (address, rest) = told.split_once(' ').expect("words");
        (address.to_owned(), rest.to_owned())
    }

    /// What a name means there, asked by UDP and by TCP, which say the same; empty where there is no answer.
    pub(super) fn resolves(&self, node: &str, server: &str, name: &str) -> String {
        let [udp, tcp] = self.resolves_by_both(node, server, name);
        assert_eq!(udp, tcp, "{name}");
        udp
    }

    /// The same while it may become something else: by UDP, then by TCP.
    fn resolves_by_both(&self, node: &str, server: &str, name: &str) -> [String; 2] {
        let at = format!("@{server}");
        ["+notcp", "+tcp"].map(|how| {
            let words = ["dig", &at, "+short", "+tries=2", "+time=1", how, name];
            let said = self.scene.run(node, &words);
            if said.contains(";;") { String::new() } else { said.trim().to_owned() }
        })
    }

    /// The status of an answer: `NOERROR`, `NXDOMAIN` …
    pub(super) fn answer(&self, node: &str, server: &str, name: &str) -> String {
        let said = self.scene.run(node, &["dig", &format!("@{server}"), "+tries=2", "+time=1", name]);
        let status = said.split("status: ").nth(1).and_then(|rest| rest.split(',').next());
        status.unwrap_or_default().to_owned()
    }

    /// The processes of dnsmasq that the gateway has started.
    pub(super) fn processes(&self) -> Vec<i32> {
        children(self.scene.id(), "dnsmasq")
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let _ = self.scene.node("guest").delete();
    }
}

/// Processes of this name whose parent this is.
pub(super) fn children(parent: u32, name: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let text = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let has = |line: String| text.lines().any(|found| found == line);
        if has(format!("Name:\t{name}")) && has(format!("PPid:\t{parent}")) {
            found.extend(entry.file_name().to_string_lossy().parse::<i32>());
        }
    }
    found
}

pub(super) fn is_there(process: i32) -> bool {
    // One whose parent was killed may wait for somebody who looks after it.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
}

#[test]
fn hosts_have_addresses_and_names_and_guests_know_their_own_alone() {
    let Some(mut office) = Office::new() else { return };
    let before = office.scene.kernel();
    office.start();

    // Each gets an address of its network's range, with the domain, and the gateway to ask.
    let (laptop, told) = office.asks("host", "laptop");
    assert!(laptop.starts_with("192.168.1.1"), "{laptop}");
    assert_eq!(told, format!("office.internal {GATEWAY}"));
    let (guest, told) = office.asks("guest", "phone");
    assert!(guest.starts_with("192.168.2."), "{guest}");
    assert_eq!(told, format!("guests.internal {GATEWAY_OF_GUESTS}"));
    // One has its own, by its link-layer address, whatever it says its name is.
    office
        .scene
        .node("rogue")
        .ip(&format!("link set eth0 down address {PRINTER}\nlink set eth0 up\n"))
        .expect("a host");
    assert_eq!(office.asks("rogue", "gateway").0, "192.168.1.5");

    // Names that mean something special are nobody's, in whatever form they are asked for.
    for name in ["wpad", "WPAD.office.internal", "isatap.", "gateway.office.internal", "localhost"] {
        assert_eq!(office.asks("host", name).0, laptop);
        let leases = office.dnsmasq(0)["leases"].to_string().to_lowercase();
        let label = name.split('.').next().unwrap_or_default().to_lowercase();
        assert!(leases.contains(&laptop) && !leases.contains(&label), "{name}: {leases}");
        for special in ["wpad", "isatap"] {
            let name = format!("{special}.office.internal");
            assert_eq!(office.answer("rogue", GATEWAY, &name), "NXDOMAIN", "{name}");
        }
    }
    assert_eq!(office.resolves("rogue", GATEWAY, "gateway.office.internal"), GATEWAY);
    assert_eq!(office.asks("host", "laptop").0, laptop);

    // They find each other by name, and backwards, and the gateway.
    assert_eq!(office.resolves("rogue", GATEWAY, "laptop.office.internal"), laptop);
    assert_eq!(office.resolves("host", GATEWAY, "printer.office.internal"), "192.168.1.5");
    assert_eq!(office.resolves("host", GATEWAY, "gateway.office.internal"), GATEWAY);
    let backwards = office.scene.run("rogue", &["dig", &format!("@{GATEWAY}"), "+short", "-x", &laptop]);
    assert_eq!(backwards.trim(), "laptop.office.internal.");
    assert!(office.scene.answers("host", "192.168.1.5"));
    // By IPv6 as well, where hosts are told of it.
    let inner = wait_for("an address inside", || office.scene.address("gw", "lan", "2001:db8:10"));
    let told = office.scene.run("host", &["rdisc6", "-1", "eth0"]);
    assert!(
        told.contains(&format!("Recursive DNS server     : {inner}")) && told.contains("office.internal"),
        "{told}"
    );

    // A guest neither knows them nor is known, whichever of the gateway's addresses he asks; nor does he reach them.
    assert_eq!(office.resolves("guest", GATEWAY_OF_GUESTS, "phone.guests.internal"), guest);
    for name in ["laptop.office.internal", "laptop", "printer", "printer.office.internal"] {
        assert_eq!(office.answer("guest", GATEWAY_OF_GUESTS, name), "NXDOMAIN", "{name}");
        for other in [GATEWAY, inner.as_str()] {
            assert_eq!(office.resolves("guest", other, name), "", "{name} at {other}");
        }
    }
    assert_eq!(office.answer("host", GATEWAY, "phone.guests.internal"), "NXDOMAIN");
    assert!(!office.scene.answers("guest", &laptop));

    // The rest is asked of the uplink's servers; what would lead back inside is refused.
    wait_until("names elsewhere", || office.resolves("host", GATEWAY, "www.example") == "9.9.9.80");
    assert_eq!(office.resolves("guest", GATEWAY_OF_GUESTS, "www.example"), "9.9.9.80");
    for name in ["evil.example", "site-b.example"] {
        assert_eq!(office.resolves("host", GATEWAY, name), "", "{name}");
    }
    let evil6 = office.scene.run("host", &["dig", &format!("@{GATEWAY}"), "+short", "evil6.example", "AAAA"]);
    assert_eq!(evil6.trim(), "");

    // All of it is in the status and in what `explain` understands.
    let of_office = office.dnsmasq(0);
    let leases = of_office["leases"].as_array().expect("leases").clone();
    let lease = |name: &str| {
        leases.iter().find(|lease| lease["name"] == name).unwrap_or_else(|| panic!("{leases:?}"))
    };
    assert_eq!(lease("laptop.office.internal")["address"], laptop.as_str());
    assert_eq!(lease("printer.office.internal")["fixed"], true);
    assert_eq!((&of_office["addresses"], &of_office["domain"]), (&100.into(), &"office.internal".into()));
    let text = String::from_utf8(office.scene.sidestep(&["status"]).stdout).expect("text");
    assert!(
        text.contains(&format!("lease: {laptop} ")) && text.contains("names: *.office.internal"),
        "{text}"
    );
    let explained = office.scene.sidestep(&[
        "firewall",
        "explain",
        "gw.toml",
        "tcp",
        "from",
        "192.168.2.130",
        "to",
        "printer",
        "port",
        "631",
        "in",
        "guests",
        "out",
        "lan",
    ]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("guests print"), "{explained:?}");

    // It listens inside alone.
    let sockets = office.scene.run("gw", &["ss", "-Hlntu"]);
    for line in sockets.lines().filter(|line| line.contains(":53 ") || line.contains(":67 ")) {
        let inside = [
            "192.168.1.1:53",
            "192.168.2.1:53",
            "%lan:67",
            "%guests:67",
            "%lan:53",
            "%guests:53",
            "2001:db8:1",
            "fd12:",
        ];
        assert!(inside.iter().any(|place| line.contains(place)), "{sockets}");
    }
    // With no more privileges than it needs, and no view of other files.
    for process in office.processes() {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
        let line = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim().to_owned()
        };
        // NET_BIND_SERVICE, NET_ADMIN and NET_RAW.
        assert_eq!(line("CapEff:"), "0000000000003400");
        assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1".to_owned(), "2".to_owned()));
    }

    let (processes, folder) = (office.processes(), run_folder(&office));
    assert_eq!(processes.len(), 2);
    assert!(folder.exists());
    office.scene.stop();
    assert!(!processes.iter().any(|process| is_there(*process)) && !folder.exists());
    assert_eq!(office.scene.kernel(), before);
}

/// Where the gateway has what dnsmasq reads.
pub(super) fn run_folder(office: &Office) -> std::path::PathBuf {
    let number = office.scene.run("gw", &["stat", "-L", "-c", "%i", "/proc/self/ns/net"]);
    format!("/run/sidestep/gateway-{}.dnsmasq", number.trim()).into()
}

/// RFC 7050: its addresses of IPv6 tell a host the prefix, without DNS64.
#[test]
fn hosts_that_ask_for_the_prefix_of_nat64_by_name_are_told() {
    let Some(mut office) = Office::new() else { return };
    office.start();
    let asked = |office: &Office, kind| {
        let at = format!("@{GATEWAY}");
        office.scene.run("host", &["dig", &at, "+short", "+tries=2", "+time=1", kind, "ipv4only.arpa"])
    };
    office.asks("host", "laptop");
    assert_eq!(asked(&office, "AAAA"), "", "nobody translates");
    office.configuration.push_str("\n[nat64]\n");
    office.scene.write("gw.toml", &office.configuration);
    office.scene.signal(Signal::SIGHUP);
    wait_until("an answer", || asked(&office, "AAAA").contains("64:ff9b::c000:aa"));
    assert!(asked(&office, "AAAA").contains("64:ff9b::c000:ab"));
    assert!(asked(&office, "A").contains("192.0.0.170"));
}

#[test]
fn a_lease_outlives_reloads_restarts_and_crashes() {
    let Some(mut office) = Office::new() else { return };
    office.start();
    let (laptop, _) = office.asks("host", "laptop");
    let has_it = |office: &Office| {
        let leases = office.dnsmasq(0)["leases"].as_array().cloned().unwrap_or_default();
        leases.iter().any(|lease| lease["address"] == laptop.as_str())
    };
    let is_known = |office: &Office| office.resolves("rogue", GATEWAY, "laptop.office.internal") == laptop;
    assert!(has_it(&office));
    office.scene.node("rogue").ip("addr add 192.168.1.7/24 dev eth0\n").expect("an address");
    wait_until("its name", || is_known(&office));

    // Where nothing of theirs changes, they go on as they are.
    let first = office.processes();
    office.scene.write(
        "gw.toml",
        &office.configuration.edited("tcp/631", "tcp/9100").edited("port 631", "port 9100"),
    );
    office.scene.signal(Signal::SIGHUP);
    wait_until("another rule", || office.scene.log().contains("configuration read again"));
    assert_eq!(office.processes(), first);
    // Where it does, one is another, and knows what the one before knew.
    let changed = office.configuration.edited("192.168.1.199\"", "192.168.1.198\"");
    office.scene.write("gw.toml", &changed);
    office.scene.signal(Signal::SIGHUP);
    wait_until("another range", || office.dnsmasq(0)["range"] == "192.168.1.100-192.168.1.198");
    wait_until("another process", || office.processes() != first && office.processes().len() == 2);
    wait_until("its name, after a reload", || is_known(&office));
    assert!(has_it(&office));

    // One that is refused changes nothing.
    let now = office.processes();
    office.scene.write("gw.toml", &changed.edited("\"lan\"\nzone", "\"nowhere\"\nzone"));
    office.scene.signal(Signal::SIGHUP);
    wait_until("a refusal", || office.scene.log().contains("the configuration stays as it was"));
    assert_eq!(office.processes(), now);

    office.scene.stop();
    office.scene.start(&changed);
    wait_until("its name, after a restart", || is_known(&office));
    assert!(has_it(&office));

    // Killed, the gateway takes them along; the next one has its leases.
    let processes = office.processes();
    office.scene.kill();
    wait_until("their end", || !processes.iter().any(|process| is_there(*process)));
    office.scene.start_again();
    wait_until("its name, after a crash", || is_known(&office));
    assert!(has_it(&office));
    assert_eq!(office.asks("host", "laptop").0, laptop);
}

#[test]
fn what_keeps_it_from_answering_is_told_and_it_answers_once_that_is_gone() {
    let Some(mut office) = Office::new() else { return };
    // Another program has the port.
    let words = ["socat", "UDP4-RECVFROM:53,fork", "SYSTEM:true"];
    let mut other = office.scene.node("gw").command(words[0]).expect("the namespace");
    let mut other = other.args(&words[1..]).spawn().expect("socat");
    wait_until("another program", || office.scene.run("gw", &["ss", "-Hlnu"]).contains(":53 "));
    office.scene.start(&office.configuration.clone());
    wait_until("the reason", || {
        office.dnsmasq(0)["why"]
            .as_str()
            .is_some_and(|why| why.contains("port 53 at 192.168.1.1 is taken by another program"))
    });
    wait_until("a problem", || {
        let status = office.scene.status().expect("a status");
        status["problems"].to_string().contains("network \\\"office\\\": hosts get no answers from dnsmasq")
    });
    let again = office.scene.sidestep(&["up", "gw.toml", "--state-dir", "other"]);
    assert!(!again.status.success(), "a second copy");
    other.kill().expect("a process");
    other.wait().expect("a process");
    office.wait_for_dnsmasqs();

    // One that ends is started anew, and that is told.
    let before = office.processes();
    kill(Pid::from_raw(before[0]), Signal::SIGKILL).expect("a process");
    wait_until("another process", || {
        let now = office.processes();
        now.len() == 2 && now != before
    });
    let restarts = (0..2).filter_map(|place| office.dnsmasq(place)["restarts"].as_u64()).sum::<u64>();
    assert_eq!(restarts, 1);
    let events = String::from_utf8(office.scene.sidestep(&["events", "--json"]).stdout).expect("text");
    assert!(events.contains("program_ended") && events.contains("program_started"), "{events}");

    // Without the program the file is refused, with what to install.
    let check = "mount --bind /dev/null \"$(command -v dnsmasq)\" && exec \"$0\" check gw.toml";
    let mut command = office.scene.node("gw").command("unshare").expect("the namespace");
    command.args(["-m", "sh", "-c", check, &office.scene.program()]).current_dir(office.scene.folder.path());
    let output = command.output().expect("a command");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("apt install dnsmasq-base"), "{said}");
}

#[test]
fn a_forwarder_of_the_machine_and_names_of_another_site_are_asked_where_they_are_named() {
    let Some(mut office) = Office::new() else { return };
    office.scene.keep(
        "gw",
        &[
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
            "--pid-file",
            "--no-resolv",
            "--no-hosts",
            "--port=5353",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--address=/www.example/9.9.9.81",
            "--address=/site-b.example/10.2.0.7",
        ],
    );
    let dns = "[dns]\nupstream = [\"127.0.0.1:5353\"]\nprivate_domains = [\"site-b.example\"]\ndomain = \"corp.example\"\n";
    office.configuration = office.configuration.edited("[dns]", dns);
    office.scene.node("host").ip("addr add 192.168.1.7/24 dev eth0\n").expect("an address");
    office.start();
    wait_until("the forwarder's answer", || office.resolves("host", GATEWAY, "www.example") == "9.9.9.81");
    assert_eq!(office.resolves("host", GATEWAY, "site-b.example"), "10.2.0.7");
    assert_eq!(office.resolves("host", GATEWAY, "printer.office.corp.example"), "192.168.1.5");
    // Other servers are read by the one that runs.
    let before = office.processes();
    office.scene.write("gw.toml", &office.configuration.edited("127.0.0.1:5353", "203.0.113.53"));
    office.scene.node("gw").ip("route add 203.0.113.53 via 192.0.2.1\n").expect("a route");
    office.scene.signal(Signal::SIGHUP);
    let answers = || office.resolves_by_both("host", GATEWAY, "www.example");
    wait_until("another server's answer", || answers() == ["9.9.9.80", "9.9.9.80"]);
    assert_eq!(office.processes(), before);
}
