//! A fleet: a hub, with the controller, and spokes that enrol with one string each.
//!
//! ```text
//!   h (hub, controller) ──┐
//!   1 (spoke) ────────────┼── router
//!   2 (spoke) ────────────┤
//!   3 (spoke, later) ─────┘
//! ```

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
        let (n, role) = (number(node), if node == "h" { "hub" } else { "spoke" });
        let invitation = self.control(&["invite", "--site", node, "--role", role, "--expires", "1h"]);
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
            "--address",
            &inside(node),
            "--external",
            "eth0",
        ];
        self.scene.start(node, &words);
        wait_until("an application", || self.control(&["applications"]).contains(&network));
    }

    /// Gateway and agent of a site that was let in; both at once.
    fn start(&mut self, node: &str) {
        wait_until("a member", || self.scene.log(node).contains("is a site of the fleet now"));
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let path = |name: &str| self.scene.path(name).display().to_string();
        let (file, memory, state) =
            (path(&format!("etc/{tunnel}.toml")), path(&format!("{node}.state")), path("state"));
        self.scene.start(node, &[&program, "up", &file, "--state-dir", &memory]);
        self.scene.start(node, &[&program, "agent", &tunnel, "--state-dir", &state]);
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        self.scene.answers(from, &inside(to))
    }

    /// Whether a gateway has a peer.
    fn has(&self, node: &str, peer: &str) -> bool {
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let shown = self.scene.run(node, &[&program, "show", &tunnel, "--json"]);
        let status: serde_json::Value = serde_json::from_str(&shown).expect("a status");
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
    let peers = |node: &str| {
        let file = format!("state/{}/peers.toml", fleet.scene.tunnel(node));
        std::fs::read_to_string(fleet.scene.path(&file)).expect("peers")
    };
    assert!(
        peers("1").contains("2001:db8:a1::/64") && !peers("1").contains("2001:db8:a3::/64"),
        "{}",
        peers("1")
    );
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

    // Without any controller nothing changes, also over a restart of an agent.
    for process in fleet.scene.node("h").processes() {
        let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        if line.contains("\0control\0up\0") {
            kill(Pid::from_raw(process.as_raw()), Signal::SIGKILL).expect("a controller");
        }
    }
    let (lost, _) = fleet.scene.ping_while("1", &inside("3"), 5, || {
        let (program, tunnel) = (fleet.scene.program(), fleet.scene.tunnel("3"));
        let _ = fleet.scene.run("3", &[&program, "reload", &tunnel]);
        std::thread::sleep(Duration::from_secs(2));
    });
    assert_eq!(lost, 0, "without a controller");
    assert!(fleet.has("h", "3") && fleet.has("h", "1"));
}
