//! WireGuard whose packets are masked: one command has them travel with a tunnel, nobody who names flows names them, and a
//! restart of either program costs no more than it costs the tunnel.
//!
//! WireGuard in user space is everywhere; the kernel's is in Debian's stock kernel, so that its test runs in
//! `scripts/stock-kernel`, which demands it (`SIDESTEP_XFRM=1`).

use std::path::Path;
use std::process::Command;

use lab::capture::{Packet, Recording};
use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::{Process, tail};
use lab::scale::scaled;
use lab::{Lab, Node, Site};
use nix::sys::signal::Signal;

use crate::promises::scene;
use crate::wireshark;

const PORTS: [u16; 2] = [51_820, 51_821];

/// Whose WireGuard it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Kernel,
    UserSpace,
}

/// WireGuard at both gateways, whose peers are at the gateways' own addresses outside.
struct WireGuard {
    devices: [String; 2],
    keys: [String; 2],
    private: [String; 2],
    processes: Vec<Process>,
}

impl WireGuard {
    fn start(lab: &Lab, kind: Kind) -> Self {
        let sites = [Site::A, Site::B];
        let devices = sites.map(|site| format!("{}w{}", lab.prefix(), site.letter()));
        let private = sites.map(|_| scene::run(lab, Node::GatewayA, &["wg", "genkey"]).trim().to_owned());
        let keys = private.each_ref().map(|key| {
            let command = format!("echo {key} | wg pubkey");
            scene::run(lab, Node::GatewayA, &["sh", "-c", &command]).trim().to_owned()
        });
        let mut wireguard = WireGuard { devices, keys, private, processes: Vec::new() };
        for site in sites {
            wireguard.launch(lab, kind, site);
        }
        wireguard
    }

    /// Makes one end's device, and says what it is to know.
    fn launch(&mut self, lab: &Lab, kind: Kind, site: Site) {
        self.make(lab, kind, site);
        self.configure(lab, site);
    }

    /// Makes one end's device, which knows nothing yet.
    fn make(&mut self, lab: &Lab, kind: Kind, site: Site) {
        let (device, node) = (&self.devices[site as usize], site.gateway());
        match kind {
            Kind::Kernel => {
                let said = scene::run(lab, node, &["ip", "link", "add", device, "type", "wireguard"]);
                assert_eq!(said, "", "{device}");
            }
            Kind::UserSpace => {
                let words = ["env", "WG_PROCESS_FOREGROUND=1", "wireguard-go", "-f", device];
                let start = || lab.spawn(node, words, device).expect("WireGuard");
                let mut process = start();
                wait_until("the device", || {
                    if process.ended().is_some() {
                        eprintln!("{device} has ended, and is started again: {}", tail(process.log()));
                        process = start();
                    }
                    scene::run(lab, node, &["wg", "show", device]).starts_with("interface: ")
                });
                self.processes.push(process);
            }
        }
    }

    fn configure(&self, lab: &Lab, site: Site) {
        let (own, other) = (site as usize, site.other() as usize);
        let (device, node) = (&self.devices[own], site.gateway());
        let outside =
            lab.exec(site.other().gateway(), ["sh", "-c", "ip -6 -o address show dev ex scope global"]);
        let outside = String::from_utf8(outside.expect("addresses").stdout).expect("text");
        let outside = outside.split_whitespace().nth(3).and_then(|word| word.split('/').next()).expect("one");
        let command = format!(
            "echo {} > /run/{device}.key; wg set {device} listen-port {} private-key /run/{device}.key \
             peer {} allowed-ips fd99::{}/128 endpoint [{outside}]:{}; rm /run/{device}.key; \
             ip address add fd99::{}/128 dev {device}; ip link set {device} mtu 1420 up; \
             ip route add fd99::{} dev {device}",
            self.private[own],
            PORTS[own],
            self.keys[other],
            other + 1,
            PORTS[other],
            own + 1,
            other + 1
        );
        assert_eq!(scene::run(lab, node, &["sh", "-c", &command]), "", "{device}");
    }

    /// The configurations say that it travels with the tunnel.
    fn wrap(&self, lab: &mut Lab) {
        for (site, peer) in [(Site::A, "site-b"), (Site::B, "site-a")] {
            let device = &self.devices[site as usize];
            let wrap = format!("[[wrap]]\npeer = \"{peer}\"\ninterface = \"{device}\"\n");
            lab.gateway(site).add_table(&wrap).expect("a configuration");
        }
    }

    /// Ends gateway A's by force, and starts it anew: a device of the same name, which is led into the tunnel again.
    fn relaunch(&mut self, lab: &mut Lab) {
        self.processes.remove(0).kill();
        self.launch(lab, Kind::UserSpace, Site::A);
        let (program, file) = (lab.program().display().to_string(), lab.gateway_a().configuration());
        let file = file.display().to_string();
        scene::run(lab, Node::GatewayA, &[&program, "wrap", &self.devices[0], "--config", &file]);
    }

    /// Whether it sends to where its packets are masked.
    fn is_led(&self, lab: &Lab, site: Site) -> bool {
        scene::peer(lab, site)["masked"]["remote"] == self.endpoint(lab, site)
    }

    fn endpoint(&self, lab: &Lab, site: Site) -> String {
        let text =
            scene::run(lab, site.gateway(), &["wg", "show", &self.devices[site as usize], "endpoints"]);
        text.split_whitespace().nth(1).unwrap_or_default().to_owned()
    }
}

/// A flood of pings to WireGuard's address at the other gateway; what is said of it.
fn ping(lab: &Lab, count: u32) -> String {
    let count = count.to_string();
    let words = ["ping", "-n", "-q", "-f", "-W", "2", "-c", &count, "-s", "372", "fd99::2"];
    scene::run(lab, Node::GatewayA, &words)
}

fn masked(lab: &Lab, site: Site) -> u64 {
    scene::number(lab, site, "tx_rewritten_packets")
}

fn wait_masked(lab: &Lab) {
    let before = [Site::A, Site::B].map(|site| masked(lab, site));
    wait_until("WireGuard's packets are masked", || {
        ping(lab, 5);
        std::thread::sleep(std::time::Duration::from_millis(500));
        [Site::A, Site::B].into_iter().zip(before).all(|(site, before)| masked(lab, site) != before)
    });
}

/// How many datagrams begin as WireGuard's do.
fn with_header(packets: &[Packet]) -> usize {
    let begins = |packet: &&Packet| packet.is_udp() && matches!(packet.payload[..], [1..=4, 0, 0, 0, ..]);
    packets.iter().filter(begins).count()
}

/// One command at each end, and what both programs say then.
fn moves_with_one_command(kind: Kind) {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.rotation("1s").lanes(3).whole_packets(true).build().expect("a lab");
    let wireguard = WireGuard::start(&lab, kind);
    let text = ping(&lab, 20);
    assert!(text.contains(" 0% packet loss"), "in clear: {text}");

    let program = lab.program().display().to_string();
    let files = [Site::A, Site::B].map(|site| lab.gateway(site).configuration().display().to_string());
    for site in [Site::A, Site::B] {
        let (file, device) = (&files[site as usize], &wireguard.devices[site as usize]);
        let wrap = |words: &[&str]| {
            let words = [&[&program, "wrap", device, "--config", file], words].concat();
            scene::run(&lab, site.gateway(), &words)
        };
        assert!(wrap(&[]).contains("which peer"), "it is not in the configuration yet");
        assert!(wrap(&["--peer", "site-b"]).contains("includes no folder"));
        let text = std::fs::read_to_string(file).expect("a configuration");
        let folder = file.replace(".toml", ".d");
        std::fs::write(file, format!("include = [\"{folder}/*.toml\"]\n{text}")).expect("a configuration");
        assert!(wrap(&["--peer", "nobody"]).contains("no such peer"));
        let peer = ["site-b", "site-a"][site as usize];
        let said = wrap(&["--peer", peer]);
        assert!(said.contains("is added; ") && said.contains("is not running"), "{said}");
        assert!(wrap(&["--peer", peer]).contains("exists already"));
    }
    lab.start().expect("a tunnel");
    wait_masked(&lab);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let count = scaled(2_000, 200_000);
    let text = ping(&lab, count);
    eprintln!("{text}");
    assert!(text.contains(" 0% packet loss") && !text.contains("duplicates"), "{text}");
    let packets = recording.finish().expect("packets");
    assert_eq!(with_header(&packets), 0, "WireGuard's header");
    assert!(packets.len() as u32 >= 2 * count, "{} packets", packets.len());
    for site in [Site::A, Site::B] {
        let remote = scene::peer(&lab, site)["masked"]["remote"].clone();
        assert_eq!(remote, wireguard.endpoint(&lab, site), "`wg show` and `sidestep show` agree");
    }

    // Somebody leads it elsewhere: it comes back by itself, and with one command at once.
    let (device, key) = (&wireguard.devices[0], &wireguard.keys[1]);
    for command in [None, Some([&program, "wrap", device, "--config", &files[0]])] {
        scene::run(
            &lab,
            Node::GatewayA,
            &["wg", "set", device, "peer", key, "endpoint", "[2001:db8::dead]:1"],
        );
        if let Some(command) = command {
            let said = scene::run(&lab, Node::GatewayA, &command);
            assert!(said.contains("has taken it over"), "{said}");
        }
        wait_until("WireGuard is led back", || wireguard.is_led(&lab, Site::A));
    }
}

#[test]
fn wireguard_in_user_space_moves_with_one_command_and_both_programs_say_the_same() {
    moves_with_one_command(Kind::UserSpace);
}

#[test]
fn the_kernels_wireguard_moves_as_well() {
    if !kernel_has_it() {
        assert!(std::env::var_os("SIDESTEP_XFRM").is_none(), "this kernel was said to have WireGuard");
        return eprintln!(
            "skipped: needs root and a kernel with WireGuard, such as that of scripts/stock-kernel"
        );
    }
    moves_with_one_command(Kind::Kernel);
}

/// Asks by making a device, which also loads the module.
fn kernel_has_it() -> bool {
    let probe = Namespace::named(lab::prefix::unique());
    let there = probe.create().and_then(|()| probe.ip("link add wg type wireguard\n")).is_ok();
    let _ = probe.delete();
    there
}

/// The datagrams of a capture that nDPI and Wireshark take for WireGuard's.
fn named(capture: &Path) -> [usize; 2] {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(capture).output().expect(program);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // By what is in them: without `-d` it names a flow of which it knows nothing after a port of it, and of the tunnel's
    // ports, which are random, one may be WireGuard's usual one.
    let ndpi = said("ndpiReader", &["-d", "-i"]);
    assert!(ndpi.contains("Detected protocols"), "{ndpi}");
    let line = ndpi.lines().find(|line| line.trim_start().to_lowercase().starts_with("wireguard "));
    let ndpi = line.map_or(0, |line| {
        let count = line.split_once("packets:").and_then(|(_, rest)| rest.split_whitespace().next());
        count.and_then(|count| count.parse().ok()).expect("a count")
    });
    [ndpi, said("tshark", &["-n", "-Y", "wg", "-r"]).lines().count()]
}

#[test]
fn neither_ndpi_nor_wireshark_names_it() {
    let Some(_) = crate::program(&["ndpiReader", "tshark"]) else { return };
    let Some(builder) = scene::lab() else { return };
    let builder = builder.rotation("1s").lanes(3).whole_packets(true).carry("mask");
    let mut lab = builder.build().expect("a lab");
    let mut wireguard = WireGuard::start(&lab, Kind::UserSpace);
    // What both see of it in clear.
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    assert!(ping(&lab, 50).contains(" 0% packet loss"));
    let file = recording.file().to_owned();
    assert!(with_header(&recording.finish().expect("packets")) > 100);
    assert!(named(&file).into_iter().all(|count| count > 90), "{:?}", named(&file));

    wireguard.wrap(&mut lab);
    let log = lab.directory().join("keys");
    lab.gateway_a().set_arguments(&["--keylog", &log.to_string_lossy()]);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    // Hosts behind the gateways have no part in it.
    lab.gateway_a().start().expect("a gateway");
    lab.gateway_b().start().expect("a gateway");
    wait_masked(&lab);
    // Handshakes, keepalives, small packets and large ones, on lanes of several moments.
    wireguard.relaunch(&mut lab);
    let keepalive =
        ["wg", "set", &wireguard.devices[0], "peer", &wireguard.keys[1], "persistent-keepalive", "1"];
    assert_eq!(scene::run(&lab, Node::GatewayA, &keepalive), "");
    for size in ["8", "372", "1372", "8", "372", "1372"] {
        let words = ["ping", "-n", "-q", "-i", "0.01", "-c", "100", "-s", size, "fd99::2"];
        scene::run(&lab, Node::GatewayA, &words);
    }
    let file = recording.file().to_owned();
    let packets = recording.finish().expect("packets");
    assert!(packets.len() > 1_000, "{}", packets.len());
    assert_eq!((with_header(&packets), named(&file)), (0, [0, 0]));

    // With the keys all of it is there, in Wireshark's own dissector of WireGuard.
    let filters = [
        "udp && !sidestep && !icmpv6",
        "sidestep.masked",
        "wg.type == 1",
        "wg.type == 4",
        "sidestep.verified == 1",
    ];
    let [unopened, masked, handshakes, data, own] = wireshark::counts(&file, Some(&log), filters);
    assert_eq!(unopened, 0);
    assert!(
        handshakes > 0 && data > 1_000 && masked > data && own > 20,
        "{handshakes}, {data}, {masked}, {own}"
    );
    assert_eq!(wireshark::counts(&file, Some(&log), ["sidestep.verified == 0", "_ws.lua.error"]), [0, 0]);
}

/// So many, a hundred a second.
const PINGS: &str = "800";

/// How many of them were not answered, when they have ended.
fn lost(name: &str, mut process: Process) -> u32 {
    process.wait(std::time::Duration::from_secs(60)).unwrap_or_else(|| panic!("{name} does not end"));
    let text = std::fs::read_to_string(process.log()).expect("what pings say");
    let summary =
        text.lines().find(|line| line.contains(" transmitted, ")).unwrap_or_else(|| panic!("{text}"));
    let mut numbers =
        summary.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u32>().ok());
    let [sent, received] = std::array::from_fn(|_| numbers.next().expect("a number"));
    sent - received
}

#[test]
fn a_restart_of_either_program_costs_no_more_than_it_costs_the_tunnel() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.rotation("1s").lanes(3).whole_packets(true).build().expect("a lab");
    let mut wireguard = WireGuard::start(&lab, Kind::UserSpace);
    wireguard.wrap(&mut lab);
    lab.start().expect("a tunnel");
    wait_masked(&lab);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    // In the tunnel and in WireGuard at the same time, so many pings for each second.
    let host = Site::B.host().to_string();
    for site in [Site::A, Site::B] {
        let pings = [(Node::HostA, host.as_str(), "tunnel"), (Node::GatewayA, "fd99::2", "masked")];
        let pings = pings.map(|(node, address, name)| {
            let words = ["ping", "-n", "-q", "-i", "0.01", "-W", "1", "-c", PINGS, address];
            (name, lab.spawn(node, words, name).expect("pings"))
        });
        std::thread::sleep(std::time::Duration::from_secs(2));
        lab.gateway(site).restart().expect("a gateway");
        let lost = pings.map(|(name, process)| lost(name, process));
        eprintln!("a restart at {site:?}: {} lost in the tunnel, {} masked", lost[0], lost[1]);
        assert!(lost[0] > 0, "{lost:?}: it was not restarted");
        // One second of both: until the other end's WireGuard has heard of this one.
        assert!(lost[1] <= lost[0] + 100, "{lost:?}");
    }
    // The same configuration again: nothing changes.
    let pings =
        lab.spawn(Node::GatewayA, ["ping", "-n", "-q", "-i", "0.01", "-c", "200", "fd99::2"], "reload");
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        lab.gateway_a().signal(Signal::SIGHUP);
    }
    assert_eq!(lost("reload", pings.expect("pings")), 0);
    assert_eq!(with_header(&recording.finish().expect("packets")), 0, "WireGuard's header");

    // WireGuard itself, by force: its device comes back with another socket, and is led to the tunnel again.
    wireguard.relaunch(&mut lab);
    wait_masked(&lab);
    assert!(ping(&lab, 100).contains(" 0% packet loss"));
}

/// Echoes, a hundred a second, from both gateways' WireGuard to the other's until they are ended.
fn flows(lab: &Lab) -> [Process; 2] {
    [(Node::GatewayA, "fd99::2"), (Node::GatewayB, "fd99::1")].map(|(node, address)| {
        lab.spawn(node, ["ping", "-n", "-q", "-i", "0.01", "-W", "1", address], "flows").expect("pings")
    })
}

/// WireGuard sends to wherever the last packet came from, so that each end keeps the other where that is.
#[test]
fn it_is_wrapped_while_packets_flow_and_one_end_that_begins_in_clear_leads_nobody_out() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.rotation("1s").lanes(3).whole_packets(true).build().expect("a lab");
    let mut wireguard = WireGuard::start(&lab, Kind::UserSpace);
    wireguard.wrap(&mut lab);
    let flows = flows(&lab);
    for site in [Site::A, Site::B] {
        // One after the other, as two people would.
        std::thread::sleep(std::time::Duration::from_secs(2));
        lab.gateway(site).start().expect("a gateway");
    }
    let sites = [Site::A, Site::B];
    wait_until("both are led", || sites.iter().all(|site| wireguard.is_led(&lab, *site)));
    wait_masked(&lab);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    // As after a start of the machine: it has the endpoint that its configuration says.
    wireguard.processes.remove(0).kill();
    let problem = || scene::peer(&lab, Site::A)["wrapped"]["problem"].as_str().map(str::to_owned);
    wait_until("that is told", || problem().is_some());
    // WireGuard in user space listens at some port before it is told which: that is not its port.
    wireguard.make(&lab, Kind::UserSpace, Site::A);
    wait_until("it is looked at", || problem().is_some_and(|problem| problem.contains("no peer yet")));
    wireguard.configure(&lab, Site::A);
    wait_until("both are led again", || sites.iter().all(|site| wireguard.is_led(&lab, *site)));
    wait_masked(&lab);
    for site in sites {
        let wrapped = scene::peer(&lab, site)["wrapped"].clone();
        assert_eq!(wrapped["interface"], wireguard.devices[site as usize].as_str());
        wait_until("no problem", || scene::peer(&lab, site)["wrapped"]["problem"].is_null());
        wait_until("the endpoint is told", || {
            scene::peer(&lab, site)["wrapped"]["endpoint"] == wireguard.endpoint(&lab, site)
        });
    }
    let text = ping(&lab, 100);
    assert!(text.contains(" 0% packet loss"), "{text}");
    assert_eq!(with_header(&recording.finish().expect("packets")), 0, "packets in clear");
    for process in flows {
        process.kill();
    }

    // What is not wrapped any more goes as it did.
    for site in sites {
        let gateway = lab.gateway(site);
        let text = std::fs::read_to_string(gateway.configuration()).expect("a configuration");
        let (text, _) = text.split_once("[[wrap]]").expect("a table");
        std::fs::write(gateway.configuration(), text).expect("a configuration");
        gateway.signal(Signal::SIGHUP);
    }
    let tables = |site: Site| {
        let words = ["nft", "list", "ruleset"];
        scene::run(&lab, site.gateway(), &words)
    };
    wait_until("nothing is dropped", || sites.iter().all(|site| !tables(*site).contains("udp sport . ")));
}

/// A process that does not answer, and has `wg` wait for ever.
#[test]
fn a_wireguard_that_hangs_has_nobody_wait() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.rotation("1s").lanes(3).build().expect("a lab");
    let wireguard = WireGuard::start(&lab, Kind::UserSpace);
    wireguard.wrap(&mut lab);
    lab.start().expect("a tunnel");
    let problem = |lab: &Lab| scene::peer(lab, Site::A)["wrapped"]["problem"].clone();
    wait_until("it is looked after", || problem(&lab).is_null() && wireguard.is_led(&lab, Site::A));
    wireguard.processes[0].signal(Signal::SIGSTOP);
    let host = Site::B.host().to_string();
    let words = ["ping", "-n", "-q", "-i", "0.01", "-W", "1", "-c", PINGS, &host];
    let pings = lab.spawn(Node::HostA, words, "tunnel").expect("pings");
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        lab.gateway_a().signal(Signal::SIGHUP);
    }
    wait_until("that is told", || {
        problem(&lab).as_str().is_some_and(|text| text.contains("does not answer"))
    });
    assert_eq!(lost("tunnel", pings), 0);
    lab.gateway_a().restart().expect("a start beside it");
    wireguard.processes[0].signal(Signal::SIGCONT);
    wait_until("it is led again", || problem(&lab).is_null() && wireguard.is_led(&lab, Site::A));
    wait_masked(&lab);
}

#[test]
fn a_gateway_changes_its_key_and_no_packet_of_wireguards_is_lost_or_leaves_in_clear() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.rotation("1s").lanes(3).whole_packets(true).build().expect("a lab");
    let wireguard = WireGuard::start(&lab, Kind::UserSpace);
    wireguard.wrap(&mut lab);
    lab.start().expect("a tunnel");
    wait_masked(&lab);
    let program = lab.program().display().to_string();
    let new = scene::run(&lab, Node::GatewayA, &[&program, "genkey"]).trim().to_owned();
    let command = format!("echo {new} | {program} pubkey");
    let public = scene::run(&lab, Node::GatewayA, &["sh", "-c", &command]).trim().to_owned();
    let change = |lab: &mut Lab, site: Site, change: &dyn Fn(&str) -> String| {
        let gateway = lab.gateway(site);
        let text = std::fs::read_to_string(gateway.configuration()).expect("a configuration");
        std::fs::write(gateway.configuration(), change(&text)).expect("a configuration");
        gateway.signal(Signal::SIGHUP);
    };
    let remote = |lab: &Lab, site| scene::peer(lab, site)["masked"]["remote"].clone();
    let before = remote(&lab, Site::B);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let words = ["ping", "-n", "-q", "-i", "0.01", "-W", "1", "-c", "1500", "-s", "1372", "fd99::2"];
    let pings = lab.spawn(Node::GatewayA, words, "keys").expect("pings");
    let handshakes = scene::number(&lab, Site::A, "handshakes");
    change(&mut lab, Site::A, &|text| {
        let (start, rest) = text.split_once("private_key = \"").expect("a key");
        let (old, after) = rest.split_once('"').expect("its end");
        format!("{start}private_key = \"{new}\"\nprevious_private_key = \"{old}\"{after}")
    });
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(lab.show(Site::A).expect("a status")["public_key"], public.as_str());
    assert_eq!(scene::number(&lab, Site::A, "handshakes"), handshakes, "the session goes on");
    assert_eq!(remote(&lab, Site::B), before);
    change(&mut lab, Site::B, &|text| {
        text.replace("\npublic_key = ", &format!("\nnext_public_key = \"{public}\"\npublic_key = "))
    });
    let uses_it = |lab: &Lab, site, key: &str| scene::peer(lab, site)["session"][key] == public.as_str();
    wait_until("B uses it", || uses_it(&lab, Site::B, "peer_key"));
    wait_until("A uses it", || uses_it(&lab, Site::A, "own_key"));
    assert_ne!(remote(&lab, Site::B), before);
    wait_until("WireGuard is led to the other end", || wireguard.is_led(&lab, Site::B));
    let masked_before = masked(&lab, Site::B);
    // What was forgotten is not needed any more.
    change(&mut lab, Site::B, &|text| {
        let lines = text.lines().filter(|line| !line.starts_with("public_key"));
        lines.map(|line| format!("{line}\n")).collect::<String>().replace("next_public_key", "public_key")
    });
    change(&mut lab, Site::A, &|text| {
        let lines = text.lines().filter(|line| !line.starts_with("previous_private_key"));
        lines.map(|line| format!("{line}\n")).collect()
    });
    assert_eq!(lost("keys", pings), 0);
    wait_masked(&lab);
    assert!(masked(&lab, Site::B) > masked_before);
    assert!([Site::A, Site::B].iter().all(|site| wireguard.is_led(&lab, *site)));
    assert_eq!(with_header(&recording.finish().expect("packets")), 0, "packets in clear");

    // Another key in the place of the one before, while packets flow to that one's end.
    let command = format!("{program} genkey | {program} pubkey");
    let other = scene::run(&lab, Node::GatewayA, &["sh", "-c", &command]).trim().to_owned();
    let recording = Recording::start(&lab, Node::Router, "b").expect("a recording");
    let words = ["ping", "-n", "-q", "-i", "0.001", "-W", "1", "-c", "1500", "fd99::1"];
    let pings = lab.spawn(Node::GatewayB, words, "replaced").expect("pings");
    let before = wireguard.endpoint(&lab, Site::B);
    change(&mut lab, Site::B, &|text| text.replace(&public, &other));
    wait_until("WireGuard is led to the other's end", || wireguard.endpoint(&lab, Site::B) != before);
    assert!(lost("replaced", pings) > 0, "it was not replaced");
    assert_eq!(with_header(&recording.finish().expect("packets")), 0, "packets in clear");
}

/// Where all is to go through WireGuard, wg-quick has a rule that takes what is not WireGuard's own: what it travels in, too.
#[test]
fn a_wireguard_that_takes_everything_does_not_take_what_it_travels_in() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.rotation("1s").lanes(3).whole_packets(true).build().expect("a lab");
    let wireguard = WireGuard::start(&lab, Kind::UserSpace);
    wireguard.wrap(&mut lab);
    for site in [Site::A, Site::B] {
        let (device, key) = (&wireguard.devices[site as usize], &wireguard.keys[site.other() as usize]);
        let command = format!(
            "wg set {device} fwmark 51820 peer {key} allowed-ips ::/0; \
             ip -6 route add ::/0 dev {device} table 51820; \
             ip -6 rule add not fwmark 51820 table 51820; \
             ip -6 rule add table main suppress_prefixlength 0"
        );
        assert_eq!(scene::run(&lab, site.gateway(), &["sh", "-c", &command]), "");
    }
    lab.start().expect("a tunnel");
    wait_masked(&lab);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    lab.gateway_a().restart().expect("a gateway");
    lab.wait_connected(std::time::Duration::from_secs(30)).expect("a tunnel");
    wait_masked(&lab);
    let text = ping(&lab, 200);
    assert!(text.contains(" 0% packet loss"), "{text}");
    assert_eq!(with_header(&recording.finish().expect("packets")), 0, "packets in clear");
}
