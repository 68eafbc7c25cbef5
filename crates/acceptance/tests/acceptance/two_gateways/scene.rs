//! The site, the hub that it talks with, and what is done to them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use lab::patience::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::network;
use crate::recipes::scene::Scene;

const FLOW: &str = include_str!("flow.py");
const PORT: &str = "7007";
/// The hub, inside and outside.
const HUB: &str = "fd00:b::1";
const CONTROLLER: &str = "[2001:db8:fb::2]:4160";

pub(super) struct Site {
    scene: Scene,
}

pub(super) fn other(node: &str) -> &'static str {
    if node == "1" { "2" } else { "1" }
}

impl Site {
    /// Both gateways run, one of them is active, and the hub is reached.
    pub(super) fn new(silence: &str) -> Option<Self> {
        let scene = Scene::new(&network::NODES, &["python3"])?;
        std::fs::create_dir_all("/run/sidestep-agent").expect("a folder");
        std::fs::set_permissions("/run/sidestep-agent", Permissions::from_mode(0o2750)).expect("its mode");
        network::make(&scene, "fd00:a::", &format!("{HUB}/64"));
        let mut site = Site { scene };
        site.fleet();
        site.second(silence);
        for node in ["b", "1", "2"] {
            site.start_daemon(node);
            site.start_agent(node);
        }
        wait_until("one gateway is active", || site.turn("1").is_some() != site.turn("2").is_some());
        wait_until("the hub", || site.reaches());
        let (program, script) = ("python3", site.scene.write("flow.py", FLOW).display().to_string());
        site.scene.start("b", &[program, &script, "serve", HUB, PORT]);
        Some(site)
    }

    /// A controller at the hub; hub and first gateway enrol.
    fn fleet(&mut self) {
        let [folder, key] = ["control", "admin.key"].map(|name| self.path(name));
        let program = self.scene.program();
        let inside = format!("[{HUB}]:4160");
        self.scene.run(
            "b",
            &[
                &program,
                "control",
                "init",
                "--dir",
                &folder,
                "--key",
                &key,
                "--outside",
                CONTROLLER,
                "--inside",
                &inside,
            ],
        );
        self.scene.start("b", &[&program, "control", "up", "--dir", &folder]);
        wait_until("a controller", || self.control(&["sites"]).contains("document 1"));
        self.enroll("b", &["--role", "hub"], ("2001:db8:b1::/64", "fd00:b::/64", HUB));
        self.enroll(
            "1",
            &["--role", "spoke", "--standby", "pair"],
            ("2001:db8:a1::/64", "fd00:a::/64", "fd00:a::9"),
        );
        let said = self.control(&["approve", "--all", "--yes", "--key", &key]);
        assert!(said.contains("published"), "{said}");
        for node in ["b", "1"] {
            wait_until("a member", || self.scene.log(node).contains("is a site of the fleet now"));
        }
    }

    fn control(&self, words: &[&str]) -> String {
        let (program, folder) = (self.scene.program(), self.path("control"));
        self.scene.run("b", &[&[program.as_str(), "control"], words, &["--dir", &folder]].concat())
    }

    fn enroll(&mut self, node: &str, terms: &[&str], (hops, inside, address): (&str, &str, &str)) {
        let invite = [&["invite", "--site", node, "--expires", "1h"], terms].concat();
        let invitation = self.control(&invite);
        let invitation = invitation.split_whitespace().find(|word| word.starts_with("sidestep-fleet1-"));
        let invitation = invitation.expect("an invitation").to_owned();
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let [folder, state] = ["etc", "state"].map(|name| self.path(name));
        let words = [
            &program,
            "enroll",
            &invitation,
            "--tunnel",
            &tunnel,
            "--folder",
            &folder,
            "--state-dir",
            &state,
            "--hop-prefix",
            hops,
            "--network",
            inside,
            "--address",
            address,
            "--external",
            "eth0",
        ];
        self.scene.start(node, &words);
        wait_until("an application", || self.control(&["applications"]).contains(inside));
    }

    /// What `docs/fleet.md` says of the second gateway: the same files. (Only tunnels have other names here, as all control sockets
    /// are in one folder.)
    fn second(&self, silence: &str) {
        let [first, second] = ["1", "2"].map(|node| self.scene.tunnel(node));
        let copied = self.path("state");
        std::fs::create_dir_all(format!("{copied}/{second}")).expect("a folder");
        for file in std::fs::read_dir(format!("{copied}/{first}")).expect("a folder") {
            let file = file.expect("a file");
            let to = format!("{copied}/{second}/{}", file.file_name().to_string_lossy());
            std::fs::copy(file.path(), to).expect("a copy");
        }
        let identity = format!("{copied}/{second}/site.json");
        let text = std::fs::read_to_string(&identity).expect("who it is").replace(&first, &second);
        std::fs::write(&identity, text).expect("a file");
        let etc = self.path("etc");
        std::fs::copy(format!("{etc}/{first}.key"), format!("{etc}/{second}.key")).expect("the key");
        let text = std::fs::read_to_string(format!("{etc}/{first}.toml")).expect("a configuration");
        let standby = format!(
            "\n[standby]\ngateways = [\"fd00:a::11\", \"fd00:a::12\", \"2001:db8:fa::11\", \"2001:db8:fa::12\"]\n\
             addresses = [\"eth0 2001:db8:fa::10/64\", \"eth1 fd00:a::1/64\"]\nsilence = \"{silence}\"\n"
        );
        for tunnel in [&first, &second] {
            let text = text.replace(&first, tunnel) + &standby;
            self.scene.write(&format!("etc/{tunnel}.toml"), &text);
        }
    }

    pub(super) fn start_daemon(&mut self, node: &str) {
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let (file, memory) = (self.path(&format!("etc/{tunnel}.toml")), self.path(&format!("{node}.state")));
        self.scene.start(node, &[&program, "up", &file, "--state-dir", &memory]);
    }

    pub(super) fn start_agent(&mut self, node: &str) {
        let (program, tunnel, state) = (self.scene.program(), self.scene.tunnel(node), self.path("state"));
        self.scene.start(node, &[&program, "agent", &tunnel, "--state-dir", &state]);
    }

    fn path(&self, name: &str) -> String {
        self.scene.path(name).display().to_string()
    }

    fn status(&self, node: &str) -> Option<serde_json::Value> {
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        serde_json::from_str(&self.scene.run(node, &[&program, "show", &tunnel, "--json"])).ok()
    }

    /// The turn that a gateway has.
    pub(super) fn turn(&self, node: &str) -> Option<u64> {
        self.status(node)?["standby"]["turn"].as_u64()
    }

    pub(super) fn active(&self) -> &'static str {
        wait_until("one is active", || self.turn("1").is_some() != self.turn("2").is_some());
        if self.turn("1").is_some() { "1" } else { "2" }
    }

    /// What doctor finds, and `show` tells, as a person sees it.
    pub(super) fn said(&self, node: &str) -> String {
        let (program, tunnel) = (self.scene.program(), self.scene.tunnel(node));
        let doctor = self.scene.run(node, &[&program, "doctor", "--tunnel", &tunnel]);
        doctor + &self.scene.run(node, &[&program, "show", &tunnel, "--details"])
    }

    pub(super) fn handshakes(&self, node: &str) -> u64 {
        let status = self.status(node).expect("a status");
        status["peers"][0]["handshakes"].as_u64().expect("a number")
    }

    pub(super) fn reaches(&self) -> bool {
        self.scene.answers("h", HUB)
    }

    /// A signal to the programs of a node that do this: `up`, `agent`, `control`.
    pub(super) fn signal(&self, node: &str, command: &str, signal: Signal) {
        for process in self.scene.node(node).processes() {
            let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            if line.contains("sidestep") && line.split('\0').nth(1) == Some(command) {
                kill(Pid::from_raw(process.as_raw()), signal).expect("a process");
            }
        }
    }

    pub(super) fn links(&self, node: &str, state: &str) {
        self.scene.ip("h", &format!("link set dev to-{node} {state}"));
        self.scene.ip("r", &format!("link set dev to-{node} {state}"));
    }

    /// Has a gateway drop what matches, coming or going; nothing any more where nothing is given.
    pub(super) fn drop_datagrams(&self, node: &str, rules: &str) {
        let hook = |name: &str| format!("chain {name} {{ type filter hook {name} priority -5; {rules}; }}\n");
        let table = match rules {
            "" => "table ip6 cut\ndelete table ip6 cut\n".to_owned(),
            _ => format!("table ip6 cut {{\n{}{}}}\n", hook("input"), hook("output")),
        };
        self.scene.node(node).nft(&table).expect("rules");
    }

    /// What the router has for the prefix is at one gateway, whatever anybody announces.
    pub(super) fn lead_to(&self, node: &str) {
        self.scene.ip("r", &format!("route replace 2001:db8:a1::/64 via 2001:db8:fa::1{node}"));
    }

    pub(super) fn lead_back(&self) {
        self.scene.ip("r", "route replace 2001:db8:a1::/64 via 2001:db8:fa::10");
    }

    /// A TCP flow from the host to the hub for some seconds, while something is done. The longest time in which nothing came back,
    /// and how many messages did: all of them.
    pub(super) fn flow_while(
        &mut self,
        seconds: u32,
        meanwhile: impl FnOnce(&mut Self),
    ) -> (Duration, usize) {
        let mut command = self.scene.node("h").command("python3").expect("the namespace");
        let script = self.path("flow.py");
        let flow = command
            .args([&script, "run", HUB, PORT, &seconds.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3");
        meanwhile(self);
        let output = flow.wait_with_output().expect("a flow");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let mut numbers =
            said.lines().last().unwrap_or_default().split(' ').map(|word| word.parse::<u64>().ok());
        let (Some(Some(count)), Some(Some(longest))) = (numbers.next(), numbers.next()) else {
            panic!("{said}");
        };
        assert_eq!(count, u64::from(seconds) * 100);
        (Duration::from_millis(longest), count as usize)
    }
}
