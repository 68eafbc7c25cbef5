//! A fleet: a hub, with the controller, and spokes that enrol with one string each.
//!
//! ```text
//!   h (hub, controller) ──┐
//!   1 (spoke) ────────────┼── router
//!   2 (spoke) ────────────┤
//!   3 (spoke, later) ─────┘
//! ```

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lab::patience::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::recipes::scene::Scene;

/// The sites, in the order of their numbers: where a site is, hops and has its hosts.
const SITES: [&str; 4] = ["h", "1", "2", "3"];
/// Where daemons listen to agents.
const AGENTS: &str = "/run/sidestep-agent";

struct Fleet {
    scene: Scene,
}

fn number(node: &str) -> usize {
    SITES.iter().position(|site| *site == node).expect("a site") + 1
}

/// A site's address inside.
fn inside(node: &str) -> String {
    format!("fd00:{}::1", number(node))
}

impl Fleet {
    /// Machines with prefixes that lead to them, and a controller at the hub.
    fn new() -> Option<Self> {
        let mut scene = Scene::new(&["r", "h", "1", "2", "3"], &[])?;
        std::fs::create_dir_all(AGENTS).expect("a folder");
        std::fs::set_permissions(AGENTS, Permissions::from_mode(0o2750)).expect("its mode");
        for node in SITES {
            let (n, port) = (number(node), format!("to-{node}"));
            scene.link((node, "eth0"), ("r", &port));
            scene.ip(
                "r",
                &format!(
                    "address add 2001:db8:f{n}::1/64 dev {port} nodad\n\
                     route add 2001:db8:a{n}::/64 via 2001:db8:f{n}::2"
                ),
            );
            scene.ip(
                node,
                &format!(
                    "address add 2001:db8:f{n}::2/64 dev eth0 nodad\nroute add default via 2001:db8:f{n}::1\n\
                     address add {}/64 dev lo",
                    inside(node)
                ),
            );
        }
        for node in ["r", "h", "1", "2", "3"] {
            scene.node(node).sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
        }
        let [folder, key] = ["control", "admin.key"].map(|name| scene.path(name).display().to_string());
        let init = ["init", "--dir", &folder, "--key", &key, "--outside", "[2001:db8:f1::2]:4160"];
        let program = scene.program();
        scene.run(
            "h",
            &[&[program.as_str(), "control"], &init[..], &["--inside", "[fd00:1::1]:4160"]].concat(),
        );
        scene.start("h", &[&program, "control", "up", "--dir", &folder]);
        let fleet = Fleet { scene };
        wait_until("a controller", || fleet.control(&["sites"]).contains("document 1"));
        Some(fleet)
    }

    /// Something that the administrator does.
    fn control(&self, words: &[&str]) -> String {
        let (program, folder) = (self.scene.program(), self.scene.path("control").display().to_string());
        self.scene.run("h", &[&[program.as_str(), "control"], words, &["--dir", &folder]].concat())
    }

    fn sign(&self, words: &[&str]) -> String {
        let key = self.scene.path("admin.key").display().to_string();
        self.control(&[words, &["--yes", "--key", &key]].concat())
    }

    /// A site enrols: it applies, and waits.
    fn enroll(&mut self, node: &str) {
        self.enroll_as(node, &[]);
    }

    /// The same of a site that is invited with more words.
    fn enroll_as(&mut self, node: &str, terms: &[&str]) {
        let (n, role) = (number(node), if node == "h" { "hub" } else { "spoke" });
        let invite = [&["invite", "--site", node, "--role", role, "--expires", "1h"], terms].concat();
        let invitation = self.control(&invite);
        let invitation = invitation.split_whitespace().find(|word| word.starts_with("sidestep-fleet1-"));
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let [folder, state] = ["etc", "state"].map(|name| self.scene.path(name).display().to_string());
        let [hops, network] = [format!("2001:db8:a{n}::/64"), format!("fd00:{n}::/64")];
        let words = [
            &program,
            "enroll",
            invitation.expect("an invitation"),
            "--tunnel",
            &tunnel,
            "--folder",
            &folder,
            "--state-dir",
            &state,
            "--hop-prefix",
            &hops,
            "--network",
            &network,
            "--may-take",
            &format!("fd00:{n}:9::/48"),
            "--address",
            &inside(node),
            "--external",
            "eth0",
        ];
        self.scene.start(node, &words);
        wait_until("an application", || self.control(&["applications"]).contains(&network));
    }

    /// Its ports are free for the next one then.
    fn kill_controller(&self) {
        let host = self.scene.node("h");
        for process in host.processes() {
            let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            if line.contains("\0control\0up\0") {
                kill(Pid::from_raw(process.as_raw()), Signal::SIGKILL).expect("a controller");
            }
        }
        wait_until("nobody listens", || {
            let listening =
                host.command("ss").expect("a namespace").args(["-Hltn", "sport = :4160"]).output();
            listening.expect("ss").stdout.is_empty()
        });
    }

    /// Gateway and agent of a site that was let in; both at once.
    fn start(&mut self, node: &str) {
        self.start_by(node, &self.scene.program());
    }

    fn start_by(&mut self, node: &str, program: &str) {
        wait_until("a member", || self.scene.log(node).contains("is a site of the fleet now"));
        let tunnel = self.scene.tunnel(node);
        let path = |name: &str| self.scene.path(name).display().to_string();
        let (file, memory, state) =
            (path(&format!("etc/{tunnel}.toml")), path(&format!("{node}.state")), path("state"));
        self.scene.start(node, &[program, "up", &file, "--state-dir", &memory]);
        self.scene.start(node, &[program, "agent", &tunnel, "--state-dir", &state]);
    }

    /// The peers that an agent has written.
    fn peers(&self, node: &str) -> String {
        let file = self.scene.path(&format!("state/{}/peers.toml", self.scene.tunnel(node)));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// Another key for a gateway; what was said.
    fn rotate(&self, node: &str, words: &[&str]) -> String {
        let file = self.scene.path(&format!("etc/{}.toml", self.scene.tunnel(node))).display().to_string();
        self.scene.run(node, &[&[self.scene.program().as_str(), "rotate-key", &file], words].concat())
    }

    /// A field of the session that a gateway has with its first peer.
    fn session(&self, node: &str, field: &str) -> Option<String> {
        self.status(node)["peers"][0]["session"][field].as_str().map(str::to_owned)
    }

    fn status(&self, node: &str) -> serde_json::Value {
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let shown = self.scene.run(node, &[&program, "show", &tunnel, "--json"]);
        serde_json::from_str(&shown).expect("a status")
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        self.scene.answers(from, &inside(to))
    }

    /// Whether a gateway has a peer.
    fn has(&self, node: &str, peer: &str) -> bool {
        let status = self.status(node);
        status["peers"].as_array().expect("peers").iter().any(|found| found["name"] == peer)
    }
}

#[test]
fn sites_come_and_go_and_the_others_lose_nothing() {
    let Some(mut fleet) = Fleet::new() else { return };
    for node in ["h", "1", "2"] {
        fleet.enroll(node);
    }
    let said = fleet.sign(&["approve", "--all"]);
    assert!(said.contains("published"), "{said}");
    for node in ["h", "1", "2"] {
        fleet.start(node);
    }
    wait_until("a spoke reaches the hub", || fleet.reaches("1", "h"));
    wait_until("one spoke reaches the other", || fleet.reaches("1", "2"));
    // Each spoke knows where the hub is, and not where the other is.
    let peers = fleet.peers("1");
    assert!(peers.contains("2001:db8:a1::/64") && !peers.contains("2001:db8:a3::/64"), "{peers}");
    let known =
        std::fs::read_to_string(fleet.scene.path(&format!("state/{}/fleet.json", fleet.scene.tunnel("1"))));
    assert!(!known.expect("what it knows").contains("2001:db8:a3::/64"));

    // One comes, and one goes.
    fleet.enroll("3");
    let (mut said, mut gone) = (String::new(), false);
    let (lost, _) = fleet.scene.ping_while("1", &inside("h"), 10, || {
        said = fleet.sign(&["approve", "--all"]) + &fleet.sign(&["revoke", "2"]);
        wait_until("the hub has no peer 2", || !fleet.has("h", "2"));
        wait_until("site 2 has no peer", || !fleet.has("2", "h"));
        gone = !fleet.reaches("2", "h");
    });
    assert_eq!(lost, 0, "{said}");
    assert!(gone);
    fleet.start("3");
    wait_until("the new spoke reaches the first", || fleet.reaches("3", "1"));

    // A hub that passes something on from one spoke to another tells neither of a shorter way on its tunnel's device.
    let drops = fleet.status("1")["peers"][0]["drops"].clone();
    assert!(drops["source_not_allowed"].is_null(), "{drops}");

    // Without any controller nothing changes, also over a restart of an agent.
    fleet.kill_controller();
    let (lost, _) = fleet.scene.ping_while("1", &inside("3"), 5, || {
        let (program, tunnel) = (fleet.scene.program(), fleet.scene.tunnel("3"));
        let _ = fleet.scene.run("3", &[&program, "reload", &tunnel]);
        std::thread::sleep(Duration::from_secs(2));
    });
    assert_eq!(lost, 0, "without a controller");
    assert!(fleet.has("h", "3") && fleet.has("h", "1"));
}

#[test]
fn a_site_changes_its_key_and_its_networks_and_nobody_is_asked() {
    let Some(mut fleet) = Fleet::new() else { return };
    for node in ["h", "1"] {
        fleet.enroll(node);
    }
    fleet.sign(&["approve", "--all"]);
    for node in ["h", "1"] {
        fleet.start(node);
    }
    wait_until("a spoke reaches the hub", || fleet.reaches("1", "h"));
    let old = fleet.session("1", "own_key").expect("a session");
    let mut new = String::new();
    let (lost, _) = fleet.scene.ping_while("1", &inside("h"), 20, || {
        let said = fleet.rotate("1", &[]);
        assert!(said.contains("the one before is kept") && !said.contains("next_public_key"), "{said}");
        new = fleet.status("1")["public_key"].as_str().expect("a key").to_owned();
        assert_ne!(new, old);
        // Its peers hear of both, and have a session with the new one.
        wait_until("the hub knows both keys", || {
            fleet.peers("h").contains(&format!("public_key  = \"{old}\"\nnext_public_key = \"{new}\""))
        });
        wait_until("sessions with the new key", || {
            fleet.session("1", "own_key").as_ref() == Some(&new)
                && fleet.session("h", "peer_key").as_ref() == Some(&new)
        });
        let again = fleet.rotate("1", &[]);
        assert!(again.contains("the last change is not over"), "{again}");
        let said = fleet.rotate("1", &["--every", "1s"]);
        assert!(said.contains("the key before is forgotten"), "{said}");
        wait_until("the hub knows the new key alone", || {
            let peers = fleet.peers("h");
            peers.contains(&format!("public_key  = \"{new}\"")) && !peers.contains(&old)
        });
    });
    assert_eq!(lost, 0, "from {old} to {new}");
    assert_eq!(fleet.session("h", "peer_key"), Some(new));

    // Its provider gives it another network, which it may take, and then one more, which it may not.
    let lan = "link add lan type veth peer name lan-host\nlink set lan up\nlink set lan-host up\n";
    fleet.scene.ip("1", &format!("{lan}address add fd00:2:9:1::1/64 dev lan nodad"));
    wait_until("the hub has the network", || fleet.peers("h").contains("fd00:2:9:1::/64"));
    fleet
        .scene
        .ip("1", "address add fd00:8:9:1::1/64 dev lan nodad\naddress add fd00:2:9:2::1/64 dev lan nodad");
    wait_until("the hub has one more", || fleet.peers("h").contains("fd00:2:9:2::/64"));
    assert!(!fleet.peers("h").contains("fd00:8:9:1::/64"), "{}", fleet.peers("h"));
    wait_until("it is reached there", || fleet.scene.answers("h", "fd00:2:9:1::1"));
    fleet.scene.ip("1", "address del fd00:2:9:1::1/64 dev lan");
    wait_until("the hub has it no more", || !fleet.peers("h").contains("fd00:2:9:1::/64"));
}

/// What a gateway's file says of its firewall: a zone for each of the fleet's, and one for the rest of the tunnel.
fn firewall(tunnel: &str, more: &str) -> String {
    format!(
        "\n[firewall]\naccept_special = [\"2001:db8::/32\", \"fc00::/7\"]\n\
         [[zone]]\nname = \"wan\"\ntrust = \"outside\"\ninterfaces = [\"eth0\"]\n\
         [[zone]]\nname = \"sites\"\ntrust = \"inside\"\ninterfaces = [\"{tunnel}\"]\n{more}"
    )
}

#[test]
fn a_fleets_zones_and_directions_hold_in_firewalls() {
    let Some(mut fleet) = Fleet::new() else { return };
    fleet.enroll("h");
    fleet.enroll_as("1", &["--zone", "office"]);
    fleet.enroll_as("2", &["--zone", "sensors"]);
    fleet.sign(&["approve", "--all"]);
    let add = |fleet: &Fleet, node: &str, text: &str| {
        let path = fleet.scene.path(&format!("etc/{}.toml", fleet.scene.tunnel(node)));
        let before = std::fs::read_to_string(&path).expect("a configuration");
        std::fs::write(&path, before + text).expect("a configuration");
    };
    // One end has a firewall, and the hub, which lets all pass; the other end has none.
    for node in ["h", "1", "2"] {
        wait_until("a member", || fleet.scene.log(node).contains("is a site of the fleet now"));
    }
    for node in ["h", "1"] {
        add(&fleet, node, &firewall(&fleet.scene.tunnel(node), ""));
    }
    for node in ["h", "1", "2"] {
        fleet.start(node);
    }
    wait_until("both ways", || fleet.reaches("1", "2") && fleet.reaches("2", "1") && fleet.reaches("h", "1"));
    let rules = "link = [{ between = { roles = [\"hub\"] }, and = { roles = [\"hub\", \"spoke\"] } }]\n\
                 relay = [{ roles = [\"hub\"] }]\n\
                 reach = [{ from = { zones = [\"office\"] }, to = {} }, { from = { zones = [\"sensors\"] }, to = { roles = [\"hub\"] } }]\n";
    let controllers = fleet.control(&["policy"]);
    let controllers = &controllers[controllers.find("[[controller]]").expect("a controller")..];
    let file = fleet.scene.write("rules.toml", &format!("{rules}{controllers}")).display().to_string();
    let said = fleet.sign(&["policy", &file]);
    wait_until("what was asked first asks no more", || !fleet.reaches("2", "1") && !fleet.reaches("h", "1"));
    assert!(fleet.reaches("1", "2") && fleet.reaches("1", "h") && fleet.reaches("2", "h"), "{said}");
    // Its agent is still heard by the hub, and hears.
    let asked = fleet.scene.run("h", &["bash", "-c", &format!("exec 3<>/dev/tcp/{}/4161", inside("1"))]);
    assert_eq!(asked, "", "an agent that is not heard");

    // The hub names the fleet's zones, and says what passes.
    let zones =
        "[[zone]]\nname = \"office\"\ntrust = \"guest\"\n[[zone]]\nname = \"sensors\"\ntrust = \"guest\"\n";
    let (program, tunnel) = (fleet.scene.program(), fleet.scene.tunnel("h"));
    add(&fleet, "h", zones);
    fleet.scene.run("h", &[&program, "reload", &tunnel]);
    wait_until("nothing passes the hub", || !fleet.reaches("1", "2"));
    let pass = "[[firewall.rule]]\nfrom = \"office\"\nto = \"sensors\"\naction = \"accept\"\n";
    add(&fleet, "h", pass);
    fleet.scene.run("h", &[&program, "reload", &tunnel]);
    wait_until("what the hub lets pass", || fleet.reaches("1", "2"));
    assert!(!fleet.reaches("2", "1"));
}

/// A clock of its own for what is started with these words: what is in the file is added to the time.
fn with_clock(file: &str) -> [String; 5] {
    [
        "env".to_owned(),
        "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1".to_owned(),
        // It steps in the midst of everything, and what counts from a start goes on.
        format!("FAKETIME_TIMESTAMP_FILE={file}"),
        "FAKETIME_NO_CACHE=1".to_owned(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ]
}

/// No clock is asked for what is in force: invitations alone expire, by the clock of the controller.
#[test]
fn clocks_step_by_a_year_and_only_invitations_notice() {
    if crate::program(&["faketime"]).is_none() {
        return;
    }
    let Some(mut fleet) = Fleet::new() else { return };
    let clock = |fleet: &Fleet, whose: &str, step: &str| fleet.scene.write(whose, step).display().to_string();
    let (program, folder) = (fleet.scene.program(), fleet.scene.path("control").display().to_string());
    let start = |fleet: &mut Fleet, node: &str, clock: &str, words: &[&str]| {
        let clock = with_clock(clock);
        let words: Vec<&str> = clock.iter().map(String::as_str).chain(words.iter().copied()).collect();
        fleet.scene.start(node, &words);
    };
    fleet.kill_controller();
    let controllers = clock(&fleet, "clock-of-control", "+0");
    start(&mut fleet, "h", &controllers, &[&program, "control", "up", "--dir", &folder]);
    wait_until("a controller", || fleet.control(&["sites"]).contains("document 1"));
    for node in ["h", "1", "2"] {
        fleet.enroll(node);
    }
    fleet.sign(&["approve", "--all"]);
    fleet.start("h");
    fleet.start("2");
    // The agent of 1 has its own clock, and its gateway has the machine's.
    wait_until("a member", || fleet.scene.log("1").contains("is a site of the fleet now"));
    let tunnel = fleet.scene.tunnel("1");
    let (file, state) = (format!("etc/{tunnel}.toml"), fleet.scene.path("state").display().to_string());
    fleet.scene.start("1", &[&program, "up", &file, "--state-dir", "1.state"]);
    let agents = clock(&fleet, "clock-of-1", "+0");
    start(&mut fleet, "1", &agents, &[&program, "agent", &tunnel, "--state-dir", &state]);
    wait_until("a spoke reaches the hub", || fleet.reaches("1", "h") && fleet.reaches("2", "h"));

    let (lost, _) = fleet.scene.ping_while("1", &inside("h"), 12, || {
        for (domain, controller, agent) in [
            ("ahead.example.net", "+365d", "-365d"),
            ("behind.example.net", "-365d", "+365d"),
            ("right.example.net", "+0", "+0"),
        ] {
            clock(&fleet, "clock-of-control", controller);
            clock(&fleet, "clock-of-1", agent);
            let rules = fleet.control(&["policy"]);
            let rules = rules.lines().filter(|line| !line.starts_with("signposts"));
            let rules =
                [&format!("signposts = \"{domain}\"\n"), &*rules.collect::<Vec<_>>().join("\n")].concat();
            let file = fleet.scene.write("rules.toml", &rules).display().to_string();
            let said = fleet.sign(&["policy", &file]);
            assert!(said.contains("published"), "{said}");
            wait_until("the agent of 1 knows", || {
                let known = fleet.scene.path(&format!("state/{tunnel}/fleet.json"));
                std::fs::read_to_string(known).is_ok_and(|known| known.contains(domain))
            });
        }
    });
    assert_eq!(lost, 0);
    // A year ahead an invitation for an hour has expired; a year behind it is for too long.
    for (step, why) in [("+365d", "30 days"), ("-365d", "30 days")] {
        clock(&fleet, "clock-of-control", step);
        let said = fleet.control(&["invite", "--site", "3", "--role", "spoke", "--expires", "1h"]);
        assert!(said.contains(why), "{said}");
    }
    fleet.sign(&["revoke", "2"]);
    wait_until("the hub has no peer 2", || !fleet.has("h", "2"));
    clock(&fleet, "clock-of-control", "+0");
    fleet.enroll("3");
    let said = fleet.sign(&["approve", "--all"]);
    assert!(said.contains("published"), "{said}");
    fleet.start("3");
    wait_until("the new spoke reaches the first", || fleet.reaches("3", "1"));
    // It verifies, and its times are those of the clocks.
    let log = fleet.control(&["log"]);
    let times = log.lines().filter_map(|line| line.split_whitespace().nth(1)?.split_once('-'));
    let years: BTreeSet<&str> = times.map(|(year, _)| year).collect();
    assert!(log.contains("\nhead ") && years.len() >= 3, "{log}");
}

#[test]
fn a_site_that_was_away_while_all_moved_is_led_back_by_dns() {
    if crate::program(&["dnsmasq", "unshare"]).is_none() {
        return;
    }
    let Some(mut fleet) = Fleet::new() else { return };
    let rules = |fleet: &Fleet, rules: &str| {
        let file = fleet.scene.write("rules.toml", rules).display().to_string();
        fleet.sign(&["policy", &file])
    };
    let said = rules(&fleet, &format!("signposts = \"r7.example.net\"\n{}", fleet.control(&["policy"])));
    assert!(said.contains("published"), "{said}");
    for node in ["h", "1"] {
        fleet.enroll(node);
    }
    fleet.sign(&["approve", "--all"]);
    wait_until("a member", || fleet.scene.log("1").contains("is a site of the fleet now"));
    fleet.start("h");

    // While the spoke is off, the controller goes elsewhere, and so do the hub and the spoke itself.
    let change = |fleet: &Fleet, file: &str, from: &str, to: &str| {
        let path = fleet.scene.path(file);
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(&path, text.replace(from, to)).expect("a file");
    };
    let said = rules(&fleet, &fleet.control(&["policy"]).replace(":4160", ":4999"));
    assert!(said.contains("published"), "{said}");
    wait_until("the hub knows", || {
        let known = fleet.scene.path(&format!("state/{}/fleet.json", fleet.scene.tunnel("h")));
        std::fs::read_to_string(known).is_ok_and(|known| known.contains(":4999"))
    });
    fleet.kill_controller();
    change(&fleet, "control/network.toml", ":4160", ":4999");
    let (program, folder) = (fleet.scene.program(), fleet.scene.path("control").display().to_string());
    fleet.scene.start("h", &[&program, "control", "up", "--dir", &folder, "--listen", "[::]:4999"]);
    for (node, n) in [("h", 1), ("1", 2)] {
        let (old, new) = (format!("2001:db8:a{n}::/64"), format!("2001:db8:b{n}::/64"));
        fleet.scene.ip("r", &format!("route del {old}\nroute add {new} via 2001:db8:f{n}::2"));
        change(&fleet, &format!("etc/{}.toml", fleet.scene.tunnel(node)), &old, &new);
    }
    fleet.scene.run("h", &[&program, "reload", &fleet.scene.tunnel("h")]);
    wait_until("a controller", || fleet.control(&["sites", "--json"]).contains("2001:db8:b1::/64"));

    // An administrator publishes it.
    let key = fleet.scene.path("admin.key").display().to_string();
    let lines = fleet.control(&["signposts", "--key", &key]);
    let records: String = lines
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("txt-record={},{}\n", words[0].trim_end_matches('.'), words[4].trim_matches('"'))
        })
        .collect();
    assert_eq!(records.lines().count(), 2, "{lines}");
    assert!(!lines.contains("4999") && !lines.contains("2001:db8:") && !lines.contains("spoke"), "{lines}");
    let file = fleet
        .scene
        .write("dnsmasq.conf", &format!("no-resolv\nno-hosts\nuser=root\npid-file\nport=53\n{records}"));
    let file = file.display().to_string();
    fleet.scene.start("r", &["dnsmasq", "--keep-in-foreground", "-C", &file]);
    let names = crate::promises::finding::asks(&fleet.scene.path(""), "2001:db8:f2::1");
    fleet.start_by("1", &names.display().to_string());
    wait_until("nobody answers", || fleet.scene.log("1").contains("say where else to ask"));
    wait_until("a spoke reaches the hub again", || fleet.reaches("1", "h"));
}
