//! Two ends: ours in one namespace, strongSwan in another, and a NAT between them if wanted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::Process;
use lab::scale::scaled;

use crate::charon::{CHARON, Charon, configure, swanctl};

const PLUGINS: &str = "openssl random nonce hmac kdf gcm pem pkcs1 pkcs8 x509 pubkey constraints kernel-libipsec \
                       kernel-netlink socket-default vici";
pub(super) const OURS: &str = "2001:db8:77::a";
pub(super) const OURS_BEHIND_NAT: &str = "2001:db8:1::2";
pub(super) const THEIRS: &str = "2001:db8:77::b";
const KEY: &str = "a key that both know";

/// What differs from story to story. Lines for strongSwan are of its own language.
pub(super) struct Plan {
    pub(super) nat: bool,
    /// Our settings, beside addresses and names.
    pub(super) ours: Vec<String>,
    /// In `charon`.
    pub(super) charon: String,
    /// In the connection.
    pub(super) connection: String,
    /// In its child.
    pub(super) child: String,
    /// Whom strongSwan wants to be, and wants us to be.
    pub(super) names: [&'static str; 2],
    pub(super) authentication: &'static str,
    pub(super) proposals: String,
    pub(super) esp: String,
    /// Beside the connections.
    pub(super) more: String,
}

impl Plan {
    /// A shared key, and the networks fd00:a and fd00:b.
    pub(super) fn new() -> Self {
        Self {
            nat: false,
            ours: vec!["psk ".to_owned() + KEY, "peer b.example".into(), "id a.example".into()],
            charon: String::new(),
            connection: String::new(),
            child: "local_ts = fd00:b::/64\n remote_ts = fd00:a::/64\n".into(),
            names: ["b.example", "a.example"],
            authentication: "psk",
            proposals: "aes256gcm16-prfsha256-x25519".into(),
            esp: "aes256gcm16-x25519, aes256gcm16".into(),
            more: String::new(),
        }
    }

    pub(super) fn ours(mut self, lines: &[&str]) -> Self {
        self.ours.extend(lines.iter().map(|line| (*line).to_owned()));
        self
    }

    /// Without our settings of these keys.
    pub(super) fn without(mut self, keys: &[&str]) -> Self {
        self.ours.retain(|line| !keys.contains(&line.split(' ').next().unwrap_or_default()));
        self
    }

    pub(super) fn charon(mut self, lines: &str) -> Self {
        self.charon += lines;
        self
    }

    pub(super) fn connection(mut self, lines: &str) -> Self {
        self.connection += lines;
        self
    }
}

pub(super) struct Scene {
    pub(super) ours: Namespace,
    pub(super) between: Option<Namespace>,
    pub(super) theirs: Namespace,
    pub(super) folder: tempfile::TempDir,
    charon: Option<Charon>,
    host: Option<Process>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ours: Vec<_> =
                self.told().lines().filter(|line| *line != "pong").map(str::to_owned).collect();
            eprintln!("our end, {} pings answered:\n{}", self.count("pong"), ours.join("\n"));
            eprintln!("strongSwan:\n{}", self.they_said());
        }
        if let Some(host) = self.host.take() {
            host.kill();
        }
        drop(self.charon.take());
        for namespace in [Some(&self.ours), self.between.as_ref(), Some(&self.theirs)].into_iter().flatten() {
            let _ = namespace.delete();
        }
    }
}

impl Scene {
    /// Both ends at work; none where a program is missing.
    pub(super) fn new(plan: Plan) -> Option<Self> {
        let scene = Self::empty(plan.nat)?;
        scene.start(plan)
    }

    /// The same, in the full suite only.
    pub(super) fn in_full(plan: Plan) -> Option<Self> {
        scaled(None, Some(plan)).and_then(Self::new)
    }

    /// A network without programs.
    pub(super) fn empty(nat: bool) -> Option<Self> {
        crate::program(&["swanctl", "openssl", CHARON])?;
        let prefix = lab::prefix::unique();
        let named = |side: &str| Namespace::named(format!("{prefix}-{side}"));
        let between = nat.then(|| named("n"));
        let folder = tempfile::tempdir().expect("a folder");
        let scene = Self { ours: named("a"), between, theirs: named("b"), folder, charon: None, host: None };
        for namespace in
            [Some(&scene.ours), scene.between.as_ref(), Some(&scene.theirs)].into_iter().flatten()
        {
            namespace.create().expect("a namespace");
            namespace.ip("link set lo up\n").expect("a loopback");
        }
        let link = |from: &Namespace, to: &Namespace, [near, far]: [&str; 2], [own, other]: [&str; 2]| {
            from.ip(&format!("link add {near} type veth peer name {far} netns {}\n", to.name()))
                .expect("a link");
            from.ip(&format!("link set {near} up\naddr add {own}/64 dev {near} nodad\n")).expect("addresses");
            to.ip(&format!("link set {far} up\naddr add {other}/64 dev {far} nodad\n")).expect("addresses");
        };
        match &scene.between {
            None => link(&scene.ours, &scene.theirs, ["ex", "ex"], [OURS, THEIRS]),
            Some(between) => {
                link(&scene.ours, between, ["ex", "in"], [OURS_BEHIND_NAT, "2001:db8:1::1"]);
                link(between, &scene.theirs, ["ex", "ex"], [OURS, THEIRS]);
                scene.ours.ip("route add default via 2001:db8:1::1\n").expect("a route");
                between.sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("forwarding");
            }
        }
        scene.theirs.ip("addr add fd00:b::1/64 dev lo nodad\n").expect("an inner address");
        Some(scene)
    }

    /// Starts both programs.
    pub(super) fn start(mut self, plan: Plan) -> Option<Self> {
        self.write_strongswan(&plan);
        self.start_theirs();
        let local = if plan.nat { OURS_BEHIND_NAT } else { OURS };
        let mut settings = format!("local {local}\nremote {THEIRS}\ninner fd00:a::1 fd00:b::1\n");
        if !plan.ours.iter().any(|line| line.starts_with("local-ts")) {
            settings += "local-ts fd00:a::/64\nremote-ts fd00:b::/64\n";
        }
        for line in &plan.ours {
            let _ = writeln!(settings, "{line}");
        }
        self.write("settings", &settings);
        self.start_ours();
        Some(self)
    }

    pub(super) fn start_theirs(&mut self) {
        self.charon = Some(Charon::start(&self.theirs, self.folder.path()));
    }

    pub(super) fn start_ours(&mut self) {
        self.write("commands", "");
        // Built with the tests: the folder above theirs.
        let tests = std::env::current_exe().expect("this program");
        let host =
            tests.parent().and_then(|deps| deps.parent()).expect("its folder").join("examples/ike_host");
        let mut command = self.ours.command(host).expect("the namespace");
        command.arg(self.path("settings")).arg(self.path("commands"));
        self.host = Some(Process::start(&mut command, &self.path("ours.log")).expect("our end"));
    }

    fn write_strongswan(&self, plan: &Plan) {
        let [own, peer] = plan.names;
        let Plan { charon, connection, child, authentication, proposals, esp, more, .. } = plan;
        // As a client, or where its address changes, it says itself where it is.
        let places = if connection.contains("local_addrs") {
            String::new()
        } else {
            format!("local_addrs = {THEIRS}\n")
        };
        let encapsulation = if connection.contains("encap") { "" } else { "encap = yes\n" };
        let remote = if plan.nat { "%any" } else { OURS };
        let certificate = if *authentication == "pubkey" { "certs = b.crt\n" } else { "" };
        let connections = format!(
            "connections {{ us {{\n version = 2\n {encapsulation} {places} remote_addrs = {remote}\n \
                 proposals = {proposals}\n {connection}\n local {{\n auth = {authentication}\n id = {own}\n \
                 {certificate} }}\n remote {{\n auth = {authentication}\n id = {peer}\n }}\n \
                 children {{ c {{\n {child}\n esp_proposals = {esp}\n }} }}\n}} }}\n\
                 secrets {{ ike {{\n id-a = {peer}\n id-b = {own}\n secret = \"{KEY}\"\n }} }}\n{more}\n"
        );
        configure(self.folder.path(), PLUGINS, charon, &connections);
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    /// Whether strongSwan has done what it was asked.
    pub(super) fn swanctl(&self, words: &[&str]) -> bool {
        self.asked(words).0
    }

    /// The same, with what it says.
    pub(super) fn asked(&self, words: &[&str]) -> (bool, String) {
        let output = swanctl(self.folder.path(), words).output().expect("swanctl");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// strongSwan begins.
    pub(super) fn they_initiate(&self) -> bool {
        self.swanctl(&["--initiate", "--child", "c", "--timeout", "10"])
    }

    /// Tells our end to do something.
    pub(super) fn tell(&self, command: &str) {
        let file = std::fs::OpenOptions::new().append(true).open(self.path("commands"));
        writeln!(file.expect("the commands"), "{command}").expect("a command");
    }

    pub(super) fn told(&self) -> String {
        std::fs::read_to_string(self.path("ours.log")).unwrap_or_default()
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.told().matches(what).count()
    }

    pub(super) fn they_said(&self) -> String {
        self.charon.as_ref().map(Charon::said).unwrap_or_default()
    }

    /// Waits until our end has said this so many times.
    pub(super) fn wait_told(&self, what: &str, times: usize) {
        wait_until(
            &format!("{times} of {what:?} from our end; the last lines of theirs:\n{}", self.tail()),
            || self.count(what) >= times,
        );
    }

    fn tail(&self) -> String {
        lab::process::tail(&self.path("charon.log"))
    }

    /// Sends pings and waits until all have come back.
    pub(super) fn ping(&self, count: usize) {
        let before = self.count("pong");
        self.tell(&format!("ping {count}"));
        self.wait_told("pong", before + count);
    }

    /// Pings until one comes back. strongSwan's IPsec in user space cannot move a child: it replaces it, and what is sent
    /// meanwhile goes to where we were.
    pub(super) fn ping_until_it_is_answered(&self) {
        let before = self.count("pong");
        wait_until("a ping from elsewhere", || {
            self.tell("ping 1");
            std::thread::sleep(Duration::from_millis(100));
            self.count("pong") > before
        });
        // Those that were on the way before.
        std::thread::sleep(Duration::from_millis(200));
    }

    /// Takes our datagrams to the shared port away, or lets them through again.
    pub(super) fn block(&self, blocks: bool) {
        let rule = if blocks { "udp dport 4500 drop" } else { "" };
        self.ours
            .nft(&format!(
                "table ip6 t\ndelete table ip6 t\n\
                 table ip6 t {{ chain out {{ type filter hook output priority 0;\n {rule}\n }}\n }}\n"
            ))
            .expect("a rule");
    }

    /// Kills strongSwan, as kill -9 does.
    pub(super) fn kill_theirs(&mut self) {
        if let Some(charon) = self.charon.take() {
            charon.kill();
        }
    }

    pub(super) fn kill_ours(&mut self) {
        if let Some(host) = self.host.take() {
            host.kill();
        }
    }
}
