//! Two hosts on one link, and what runs on them.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::capture;
use lab::command::text;
use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::Process;
use wire::ethernet::Frame;
use wire::pcap::Capture;

use crate::charon::{CHARON, Charon, configure, swanctl};

const KEY: &str = "a key that both know";
/// Outer addresses.
pub(super) const OUTER: [&str; 2] = ["2001:db8:77::a", "2001:db8:77::b"];
pub(super) const OUTER_V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Inner ones, of the devices of a tunnel between two networks.
pub(super) const INNER: [&str; 2] = ["fd00:a::1", "fd00:b::1"];
pub(super) const INNER_V4: [&str; 2] = ["10.0.1.1", "10.0.2.1"];
/// Where the ends of a moving tunnel hop.
pub(super) const HOPPING: [&str; 2] = ["2001:db8:a1::/64", "2001:db8:b1::/64"];
/// What a client is given.
pub(super) const GIVEN: &str = "10.0.2.10";

/// Two hosts on one link.
pub(super) struct Scene {
    pub(super) namespaces: [Namespace; 2],
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            for process in namespace.processes() {
                let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
            }
            let _ = namespace.delete();
        }
    }
}

impl Scene {
    pub(super) fn new(others: &[&str]) -> Option<Self> {
        let program = crate::program(others)?;
        let prefix = lab::prefix::unique();
        let namespaces = ["a", "b"].map(|side| Namespace::named(format!("{prefix}-{side}")));
        let folder = tempfile::tempdir().expect("a folder");
        let scene = Self { namespaces, folder, program };
        // Where a user without privileges finds his files.
        scene.chmod(scene.folder.path(), 0o755);
        for namespace in &scene.namespaces {
            namespace.create().expect("a namespace");
        }
        let [a, b] = &scene.namespaces;
        a.ip(&format!("link add ex type veth peer name ex netns {}", b.name())).expect("a link");
        for (side, namespace) in scene.namespaces.iter().enumerate() {
            let (v6, v4) = (OUTER[side], OUTER_V4[side]);
            namespace
                .ip(&format!(
                    "link set lo up\naddr add {v6}/64 dev ex nodad\naddr add {v4}/24 dev ex\nlink set ex up\n"
                ))
                .expect("addresses");
        }
        scene.write("key", KEY, 0o600);
        Some(scene)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn chmod(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }

    pub(super) fn write(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).expect("a file");
        self.chmod(&self.path(name), mode);
    }

    /// The configuration of one side of a tunnel between two networks, which begins if it is to.
    pub(super) fn write_site(&self, side: usize, begins: bool) {
        let other = 1 - side;
        let name = |side: usize| ["a", "b"][side];
        let networks =
            |side: usize| ["\"fd00:a::/64\", \"10.0.1.0/24\"", "\"fd00:b::/64\", \"10.0.2.0/24\""][side];
        let address = if begins { format!("address = \"{}\"\n", OUTER[other]) } else { String::new() };
        let text = format!(
            "[ipsec]\nidentity = \"{}.example\"\ninterface = \"tunnel-{}\"\naddresses = [\"{}/64\", \"{}/24\"]\n\n\
             [[remote]]\nname = \"{}\"\nidentity = \"{}.example\"\n{address}shared_key_file = \"key\"\n\n\
             [[remote.child]]\nlocal = [{}]\nremote = [{}]\n",
            name(side),
            name(side),
            INNER[side],
            INNER_V4[side],
            name(other),
            name(other),
            networks(side),
            networks(other)
        );
        self.write(&format!("{}.toml", name(side)), &text, 0o600);
    }

    /// The configuration of a client that sends everything through the other side.
    pub(super) fn write_client(&self, remote: &str) {
        let text = format!(
            "[ipsec]\nidentity = \"a.example\"\n\n[[remote]]\nname = \"b\"\nidentity = \"b.example\"\n\
             address = \"{remote}\"\nshared_key_file = \"key-of-nobody\"\nrequest_addresses = true\n\n\
             [[remote.child]]\nremote = [\"0.0.0.0/0\"]\n"
        );
        self.write("client.toml", &text, 0o644);
        self.write("key-of-nobody", KEY, 0o600);
        self.give_to_nobody("key-of-nobody");
    }

    /// A gateway for that client, on the second side.
    pub(super) fn up_for_client(&self) -> Process {
        let gateway = format!(
            "[ipsec]\nidentity = \"b.example\"\ninterface = \"tunnel-b\"\naddresses = [\"{address}/24\"]\n\n\
             [[remote]]\nname = \"a\"\nidentity = \"a.example\"\nshared_key_file = \"key\"\nassign = [\"{GIVEN}\"]\n\
             dns = [\"{address}\"]\n\n[[remote.child]]\nlocal = [\"0.0.0.0/0\"]\n",
            address = INNER_V4[1]
        );
        self.write("b.toml", &gateway, 0o600);
        self.up(1)
    }

    pub(super) fn give_to_nobody(&self, name: &str) {
        let nobody = nix::unistd::User::from_name("nobody").expect("users").expect("nobody");
        nix::unistd::chown(&self.path(name), Some(nobody.uid), Some(nobody.gid)).expect("an owner");
    }

    /// A moving tunnel between the two sides: each has a prefix to hop in, which at the first is the host's own, so that a
    /// user can. The first side's configuration is that of a client, the second's of a gateway.
    pub(super) fn write_moving(&self) {
        let keys = ["a", "b"].map(|side| {
            let run = |words: &[&str], input: &str| {
                let mut command = Command::new(&self.program);
                let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
                let child = child.as_mut().expect("sidestep");
                let mut stdin = child.stdin.take().expect("a pipe");
                stdin.write_all(input.as_bytes()).expect("a pipe");
                drop(stdin);
                let mut told = String::new();
                child.stdout.take().expect("a pipe").read_to_string(&mut told).expect("a key");
                child.wait().expect("its end");
                told
            };
            let key = run(&["genkey"], "");
            self.write(&format!("moving-{side}.key"), &key, 0o600);
            run(&["pubkey"], &key).trim().to_owned()
        });
        for (side, name) in ["client", "moving"].into_iter().enumerate() {
            let (letter, other) = (["a", "b"][side], 1 - side);
            let networks = ["\"fd00:a::1/128\", \"10.0.1.1/32\"", "\"fd00:b::/64\", \"10.0.2.0/24\""][other];
            let text = format!(
                "[node]\nprivate_key_file = \"moving-{letter}.key\"\nexternal = \"ex\"\n\
                 hop_prefix = \"{}\"\n\n[tunnel]\naddresses = [\"{}/128\", \"{}/32\"]\n\n\
                 [[peer]]\nname = \"other\"\npublic_key = \"{}\"\nhop_prefix = \"{}\"\n\
                 allowed_ips = [{networks}]\nrotation = \"1s\"\n",
                HOPPING[side], INNER[side], INNER_V4[side], keys[other], HOPPING[other]
            );
            self.write(&format!("{name}.toml"), &text, 0o644);
            let route = format!("route add {} via {} dev ex\n", HOPPING[other], OUTER[other]);
            self.namespaces[side].ip(&route).expect("a route");
        }
        self.give_to_nobody("moving-a.key");
    }

    /// The prefix that the first side hops in is the host's own.
    pub(super) fn own_prefix(&self) {
        self.namespaces[0].ip(&format!("route add local {} dev lo\n", HOPPING[0])).expect("a route");
    }

    /// The gateway of the second side.
    pub(super) fn up_moving(&self) -> Process {
        let path = |name: &str| self.path(name).display().to_string();
        let mut command = self.namespaces[1].command(&self.program).expect("the namespace");
        let (file, socket, state) = (path("moving.toml"), path("moving.sock"), path("state"));
        command.args(["up", &file, "--socket", &socket, "--state-dir", &state]);
        let process = Process::start(&mut command, &self.path("moving.log")).expect("sidestep");
        wait_until("a gateway", || self.path("moving.sock").exists());
        process
    }

    fn sidestep(&self, side: usize, words: &[&str]) -> Command {
        let mut command = self.namespaces[side].command(&self.program).expect("the namespace");
        command.arg("ipsec").args(words);
        command
    }

    /// Runs `ipsec up` on a side, with this name for its files.
    pub(super) fn up(&self, side: usize) -> Process {
        let name = ["a", "b"][side];
        let file = self.path(&format!("{name}.toml")).display().to_string();
        let socket = self.path(&format!("{name}.sock")).display().to_string();
        let mut command = self.sidestep(side, &["up", &file, "--socket", &socket]);
        let log = self.path(&format!("{name}.log"));
        let process = Process::start(&mut command, &log).expect("sidestep");
        wait_until("a status", || self.status(side).is_some());
        process
    }

    /// Opens the tunnel between two networks, with ours at both ends.
    pub(super) fn tunnel(&self) -> [Process; 2] {
        self.write_site(0, true);
        self.write_site(1, false);
        let b = self.up(1);
        let a = self.up(0);
        wait_until("a tunnel", || self.children(0) == 1 && self.children(1) == 1);
        [a, b]
    }

    /// What a side says about itself, if it does.
    pub(super) fn status(&self, side: usize) -> Option<serde_json::Value> {
        let socket = self.path(&format!("{}.sock", ["a", "b"][side])).display().to_string();
        let output =
            self.sidestep(side, &["status", "--socket", &socket, "--json"]).output().expect("sidestep");
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    pub(super) fn children(&self, side: usize) -> usize {
        let status = self.status(side).unwrap_or_default();
        status["remotes"][0]["children"].as_array().map_or(0, Vec::len)
    }

    pub(super) fn reload(&self, side: usize, process: &Process) -> String {
        process.signal(nix::sys::signal::Signal::SIGHUP);
        let log = self.path(&format!("{}.log", ["a", "b"][side]));
        let mut told = String::new();
        wait_until("an answer to SIGHUP", || {
            told = std::fs::read_to_string(&log).unwrap_or_default();
            told.contains("read again") || told.contains("stays as it was")
        });
        told
    }

    /// Reads a side's configuration again, by the command.
    pub(super) fn reload_by_command(&self, side: usize) -> Output {
        let mut command = self.namespaces[side].command(&self.program).expect("the namespace");
        let socket = self.path(&format!("{}.sock", ["a", "b"][side]));
        command.args(["reload", "--socket"]).arg(socket).output().expect("sidestep")
    }

    /// Which IKE SAs a side has.
    pub(super) fn ike_sas(&self, side: usize) -> Vec<String> {
        let status = self.status(side).unwrap_or_default();
        let of = |remote: &serde_json::Value| remote["ike"].as_array().cloned().unwrap_or_default();
        let all = status["remotes"].as_array().into_iter().flatten().flat_map(of);
        all.map(|ike| ike["spi"].as_str().expect("an SPI").to_owned()).collect()
    }

    /// Pings many times while something is done, and says how many were not answered.
    pub(super) fn lost_while(&self, side: usize, address: &str, act: impl FnOnce()) -> usize {
        const PINGS: usize = 100;
        let mut command = self.namespaces[side].command("ping").expect("the namespace");
        command.args(["-n", "-c", &PINGS.to_string(), "-i", "0.03", "-W", "3", address]);
        let log = self.path("lost-while.log");
        let mut pings = Process::start(&mut command, &log).expect("ping");
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let answered = || said().lines().filter(|line| line.contains("time=")).count();
        wait_until("the first answers", || answered() > 5);
        act();
        assert!(pings.wait(Duration::from_secs(60)).is_some(), "ping has ended");
        PINGS - answered()
    }

    /// Runs a program through the tunnel, as user nobody.
    pub(super) fn run_as_nobody(&self, words: &[&str]) -> Command {
        let file = self.path("client.toml");
        let mut command = self.as_nobody(0);
        command.args(["ipsec", "run"]).arg(file).arg("--").args(words);
        command
    }

    /// The program on a side, as user nobody, without any capability.
    pub(super) fn as_nobody(&self, side: usize) -> Command {
        // Where others may run it.
        let program = self.path("sidestep");
        if !program.exists() {
            std::fs::copy(&self.program, &program).expect("a copy");
            self.chmod(&program, 0o755);
        }
        let mut command = self.namespaces[side].command("setpriv").expect("the namespace");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).current_dir("/");
        command
    }

    pub(super) fn on(&self, side: usize, words: &[&str]) -> Output {
        let mut command = self.namespaces[side].command(words[0]).expect("the namespace");
        command.args(&words[1..]).output().expect("a program")
    }

    pub(super) fn pings(&self, side: usize, address: &str) -> bool {
        self.on(side, &["ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", address]).status.success()
    }

    /// Sends so many bytes by TCP to an address of the other side, and says whether they have arrived whole.
    pub(super) fn sends(&self, from: usize, address: &str, bytes: usize) -> bool {
        const LISTEN: &str = "import socket,sys,hashlib\n\
            s=socket.create_server((sys.argv[1],5201),family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)\n\
            print('ready',flush=True)\nc,_=s.accept()\nh=hashlib.sha256()\n\
            while b:=c.recv(1<<16): h.update(b)\nprint(h.hexdigest())";
        const SEND: &str = "import os,socket,sys,hashlib\nd=os.urandom(int(sys.argv[2]))\n\
            s=socket.create_connection((sys.argv[1],5201),timeout=20)\ns.sendall(d)\ns.close()\n\
            print(hashlib.sha256(d).hexdigest())";
        let log = self.path(&format!("listen-{from}-{}", address.replace(':', "-")));
        let mut command = self.namespaces[1 - from].command("python3").expect("the namespace");
        let mut listener = Process::start(command.args(["-c", LISTEN, address]), &log).expect("python3");
        let told = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("a listener", || told().contains("ready"));
        let sent = self.on(from, &["python3", "-c", SEND, address, &bytes.to_string()]);
        let whole = listener.wait(Duration::from_secs(30)).is_some_and(|status| status.success());
        whole && sent.status.success() && told().contains(text(&sent).trim())
    }

    /// Records what crosses the link, at the first side's end.
    pub(super) fn record(&self) -> Recorder {
        let path = self.path("link.pcap");
        let stop = Arc::new(AtomicBool::new(false));
        let (namespace, seen, file) = (self.namespaces[0].name().to_owned(), Arc::clone(&stop), path.clone());
        let thread = std::thread::spawn(move || {
            let namespace = linux::netns::Namespace::open(&namespace).expect("the namespace");
            namespace.run(|| capture::record("ex", &file, &seen).expect("a capture")).expect("the namespace");
        });
        wait_until("a capture", || path.exists());
        Recorder { path, stop, thread: Some(thread) }
    }

    /// strongSwan on the second side, with its own IPsec in user space, which wants UDP around ESP. It gives clients an
    /// address.
    pub(super) fn charon(&self) -> Process {
        self.charon_at(OUTER, "kernel-libipsec").into_process()
    }

    /// The same between these outer addresses, where clients find it elsewhere, and with this plugin before the kernel's: if
    /// there is none, the IPsec is the kernel's.
    pub(super) fn charon_at(&self, outer: [&str; 2], ipsec: &str) -> Charon {
        let children = |local: &str, remote: &str| {
            format!("local_ts = {local}\n {remote}esp_proposals = aes256gcm16-x25519, aes256gcm16\n")
        };
        let connection = |name: &str, addresses: &str, pools: &str, child: String| {
            format!(
                " {name} {{\n version = 2\n encap = yes\n {addresses}{pools}proposals = aes256gcm16-prfsha256-x25519\n \
                 local {{\n auth = psk\n id = b.example\n }}\n remote {{\n auth = psk\n id = a.example\n }}\n \
                 children {{ c {{\n {child} }} }}\n }}\n"
            )
        };
        let sites = connection(
            "sites",
            &format!("local_addrs = {}\n remote_addrs = {}\n ", outer[1], outer[0]),
            "",
            children("fd00:b::/64,10.0.2.0/24", "remote_ts = fd00:a::/64,10.0.1.0/24\n "),
        );
        let clients = connection(
            "clients",
            &format!("local_addrs = {}\n ", OUTER_V4[1]),
            "pools = p\n ",
            children("0.0.0.0/0", ""),
        );
        let clients = if outer.contains(&OUTER_V4[1]) { String::new() } else { clients };
        let connections = format!(
            "connections {{\n{sites}{clients}}}\npools {{ p {{\n addrs = {GIVEN}/32\n dns = {}\n }} }}\n\
                 secrets {{ ike {{\n id-a = a.example\n id-b = b.example\n secret = \"{KEY}\"\n }} }}\n",
            INNER_V4[1]
        );
        let plugins = format!("openssl random nonce hmac kdf gcm {ipsec} kernel-netlink socket-default vici");
        configure(self.folder.path(), &plugins, "", &connections);
        self.namespaces[1]
            .ip(&format!("addr add {}/128 dev lo\naddr add {}/32 dev lo\n", INNER[1], INNER_V4[1]))
            .expect("inner addresses");
        Charon::start(&self.namespaces[1], self.folder.path())
    }

    /// Whether strongSwan has done what it was asked.
    pub(super) fn swanctl(&self, words: &[&str]) -> bool {
        swanctl(self.folder.path(), words).output().expect("swanctl").status.success()
    }
}

/// What such a test needs beside the program.
pub(super) const STRONGSWAN: [&str; 2] = ["swanctl", CHARON];

/// Records a link until it is asked what it has seen.
pub(super) struct Recorder {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// From where to where packets have crossed that belong into the tunnel.
    pub(super) fn in_clear(self) -> Vec<(IpAddr, IpAddr)> {
        let inner = [INNER[0], INNER[1], INNER_V4[0], INNER_V4[1], GIVEN];
        let inner = inner.map(|address| address.parse::<IpAddr>().expect("an address"));
        let packets = self.packets();
        let ends = packets.iter().filter_map(|packet| wire::flow::addresses(packet).ok());
        ends.filter(|(from, to)| inner.contains(from) || inner.contains(to)).collect()
    }

    /// What has crossed, from the headers of IP on.
    pub(super) fn packets(mut self) -> Vec<Vec<u8>> {
        // What is still on its way is seen, too.
        std::thread::sleep(Duration::from_millis(300));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("not asked before").join().expect("a capture");
        let bytes = std::fs::read(&self.path).expect("a capture");
        let frames = Capture::parse(&bytes).expect("a capture");
        let payload = |octets| Some(Frame::parse(octets).ok()?.payload().to_vec());
        frames.records().flatten().filter_map(|record| payload(record.octets)).collect()
    }
}
