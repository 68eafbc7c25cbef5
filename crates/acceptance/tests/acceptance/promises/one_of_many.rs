//! Two gateways that share the /64 of their link and talk to one hub, as in `examples/one-of-many.toml` and
//! `examples/hub.toml`: beyond the link an address does not say whose it is.
//!
//! ```text
//!   branch 1 ─┬─ link ── router ── hub
//!   branch 2 ─┘
//! ```

use std::io::Write as _;
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::capture::{self, Packet};
use lab::echoes::{self, Echoes};
use lab::namespaces::Namespace;
use lab::process::Process;

const BRANCH: &str = include_str!("../../../../../examples/one-of-many.toml");
const HUB: &str = include_str!("../../../../../examples/hub.toml");
/// The hub inside of the tunnel.
const SERVER: &str = "2001:db8:b::1";
const PATIENCE: Duration = Duration::from_secs(30);

struct Scene {
    router: Namespace,
    hub: Namespace,
    branches: [Namespace; 2],
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Scene {
    fn new(program: PathBuf) -> Self {
        let prefix = lab::prefix::unique();
        let [router, hub, one, two] =
            ["r", "h", "b1", "b2"].map(|name| Namespace::named(format!("{prefix}-{name}")));
        for namespace in [&router, &hub, &one, &two] {
            namespace.create().expect("a namespace");
        }
        router.sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("sysctl");
        let links = [&one, &two, &hub].map(|namespace| namespace.name().to_owned());
        router
            .ip(&format!(
                "link add name link type bridge mcast_snooping 0\n\
                 link add name p1 type veth peer name eth0 netns {}\n\
                 link add name p2 type veth peer name eth0 netns {}\n\
                 link add name back type veth peer name eth0 netns {}\n\
                 link set dev p1 master link up\nlink set dev p2 master link up\n\
                 link set dev link up\nlink set dev back up\n\
                 addr add 2001:db8:fa::1/64 dev link nodad\naddr add 2001:db8:fb::1/64 dev back nodad\n\
                 route add 2001:db8:b1::/64 via 2001:db8:fb::2\n",
                links[0], links[1], links[2]
            ))
            .expect("the router");
        for (namespace, address, way) in
            [(&one, "fa::11", "fa::1"), (&two, "fa::12", "fa::1"), (&hub, "fb::2", "fb::1")]
        {
            namespace
                .ip(&format!(
                    "addr add 2001:db8:{address}/64 dev eth0 nodad\nlink set dev eth0 up\n\
                     route add default via 2001:db8:{way}\n"
                ))
                .expect("a gateway");
        }
        Scene { router, hub, branches: [one, two], folder: tempfile::tempdir().expect("a folder"), program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(self.path(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    }

    fn up(&self, namespace: &Namespace, name: &str, configuration: &str) -> Process {
        self.write(&format!("{name}.toml"), configuration);
        let path = |end: &str| self.path(&format!("{name}{end}"));
        let mut command = namespace.command(&self.program).expect("the namespace");
        command.arg("up").arg(path(".toml")).arg("--socket").arg(path(".sock"));
        Process::start(command.arg("--state-dir").arg(path(".state")), &path(".log")).expect("a program")
    }

    fn record(&self, interface: &str) -> Process {
        let file = self.path(&format!("{interface}.pcap"));
        let mut command = self.router.command("tcpdump").expect("the namespace");
        command.args(["-U", "--immediate-mode", "-i", interface, "-w"]).arg(&file);
        let process = Process::start(&mut command, &self.path("tcpdump.log")).expect("tcpdump");
        let deadline = Instant::now() + PATIENCE;
        while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
            assert!(Instant::now() < deadline, "tcpdump does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    /// The datagrams between the two prefixes in a recording.
    fn datagrams(&self, interface: &str) -> Vec<Packet> {
        let mut packets = capture::read(&self.path(&format!("{interface}.pcap"))).expect("a recording");
        packets.retain(Packet::is_udp);
        packets
    }

    fn log(&self) -> String {
        ["one.log", "two.log", "hub.log"]
            .map(|name| format!("{name}:\n{}", std::fs::read_to_string(self.path(name)).unwrap_or_default()))
            .concat()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for namespace in [&self.router, &self.hub].into_iter().chain(&self.branches) {
            for process in namespace.processes() {
                let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
            }
            let _ = namespace.delete();
        }
    }
}

/// A private key and the public one that belongs to it.
fn keys(program: &Path) -> [String; 2] {
    let run = |command: &str, input: &str| {
        let mut command = std::process::Command::new(program)
            .arg(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it");
        command.stdin.take().expect("piped").write_all(input.as_bytes()).expect("a key");
        let output = command.wait_with_output().expect("a key");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let private = run("genkey", "");
    let public = run("pubkey", &private);
    [private, public]
}

/// The text with `to` in the place of `from`, which it must have.
fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "`{from}` is not in:\n{text}");
    text.replace(from, to)
}

/// The value of the first line of that key.
fn value<'a>(text: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let key = format!("{key} = \"");
    text.lines().filter_map(move |line| line.strip_prefix(&key)?.split('"').next())
}

fn prefix(address: Ipv6Addr) -> [u16; 4] {
    address.segments()[..4].try_into().expect("four")
}

#[test]
fn two_gateways_that_share_their_links_prefix_have_no_part_of_it_to_themselves() {
    let Some(program) = crate::program(&["tcpdump"]) else { return };
    let [hub, one, two] = [(); 3].map(|()| keys(&program));
    let scene = Scene::new(program);
    for (name, [private, _]) in [("hub", &hub), ("branch-1", &one), ("branch-2", &two)] {
        scene.write(&format!("{name}.key"), private);
    }
    let branch_1 = edited(BRANCH, value(BRANCH, "public_key").next().expect("the hub's"), &hub[1]);
    let branch_2 = edited(&edited(&branch_1, "branch-1.key", "branch-2.key"), "a:1::1/", "a:2::1/");
    let known: Vec<&str> = value(HUB, "public_key").collect();
    let at_hub = edited(&edited(HUB, known[0], &one[1]), known[1], &two[1]);
    // Lanes live for a second in place of ten, to see many of them.
    let quick = |text: &str| edited(text, "rotation = \"10s\"", "rotation = \"1s\"");

    let recordings = ["p1", "p2", "back"].map(|interface| scene.record(interface));
    let [first, second] = &scene.branches;
    let gateways = [
        scene.up(&scene.hub, "hub", &quick(&at_hub)),
        scene.up(first, "one", &quick(&branch_1)),
        scene.up(second, "two", &quick(&branch_2)),
    ];
    for branch in &scene.branches {
        let ping = |words: &[&str]| {
            let output = branch.command("ping").expect("the namespace").args(words).output().expect("ping");
            (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let deadline = Instant::now() + PATIENCE;
        while !ping(&["-n", "-q", "-c", "1", "-W", "1", SERVER]).0 {
            assert!(Instant::now() < deadline, "the hub does not answer:\n{}", scene.log());
        }
        let counters = || {
            let output =
                branch.command("cat").expect("the namespace").args(echoes::FILES).output().expect("cat");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let before = Echoes::parse(&counters());
        let (_, report) = ping(&["-n", "-q", "-i", "0.02", "-c", "200", SERVER]);
        assert!(before.all_answered(&report, counters), "{report}\n{}", scene.log());
    }
    for gateway in gateways {
        assert!(gateway.stop(Duration::from_secs(10)).success());
    }
    for recording in recordings {
        recording.stop(Duration::from_secs(5));
    }

    let (shared, of_hub) = ([0x2001, 0xdb8, 0xfa, 0], [0x2001, 0xdb8, 0xb1, 0]);
    let beyond = scene.datagrams("back");
    assert!(!beyond.is_empty());
    for packet in &beyond {
        let mut ends = [prefix(packet.source), prefix(packet.destination)];
        ends.sort_unstable();
        assert_eq!(ends, [of_hub, shared], "{packet:?}");
    }
    // Whose an address is can be seen on the link alone. Half of each gateway's have either first bit of the low 64.
    let of = |interface: &str| {
        let sources = scene.datagrams(interface).into_iter().map(|packet| packet.source);
        let mut sources: Vec<Ipv6Addr> = sources.filter(|source| prefix(*source) == shared).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    };
    let (first, second) = (of("p1"), of("p2"));
    for sources in [&first, &second] {
        let high = sources.iter().filter(|source| source.segments()[4] >= 0x8000).count();
        assert!(sources.len() > 10 && high > 0 && high < sources.len(), "{sources:?}\n{}", scene.log());
    }
    assert!(first.iter().all(|source| !second.contains(source)), "{first:?} {second:?}");
}
