//! Two machines that have the program and nothing else: commands make a session, no file is edited, and nobody is locked out.

use std::time::Instant;

use lab::patience::wait_until;
use lab::{Lab, Node};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::promises::scene::{lab, run};

/// A lab without a tunnel, where commands set up what there is.
struct Site {
    lab: Lab,
    folder: TempDir,
}

impl Site {
    fn new() -> Option<Site> {
        let lab = lab()?.build().expect("a lab");
        Some(Site { lab, folder: tempfile::tempdir().expect("a folder") })
    }

    /// What the program says to these words, with this before it.
    fn says_after(&self, node: Node, before: &[&str], words: &[&str]) -> String {
        let program = self.lab.program().to_string_lossy().into_owned();
        run(&self.lab, node, &[before, &[program.as_str()], words].concat())
    }

    fn says(&self, node: Node, words: &[&str]) -> String {
        self.says_after(node, &[], words)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn tunnel(&self, letter: char) -> String {
        format!("{}-{letter}", self.lab.prefix())
    }

    /// A tunnel of gateway A, and its configuration.
    fn init(&self, letter: char, hop_prefix: &str) -> (String, String) {
        let (folder, tunnel) = (self.path("a"), self.tunnel(letter));
        let words = ["init", "--folder", &folder, "--tunnel", &tunnel, "--hop-prefix", hop_prefix];
        let said = self.says(Node::GatewayA, &words);
        assert!(said.contains("is written"), "{said}");
        let file = format!("{folder}/{tunnel}.toml");
        (tunnel, file)
    }

    fn start(&self, tunnel: &str, file: &str) -> Started {
        let started = start(&self.lab, Node::GatewayA, file, &self.path("state"));
        wait_until("it runs", || self.says(Node::GatewayA, &["show", tunnel]).contains("hops in"));
        started
    }

    fn invite(&self, before: &[&str], config: &str, more: &[&str]) -> String {
        let words =
            ["invite", "site-b", "--hop-prefix", "2001:db8:b1::/64", "--as", "site-a", "--config", config];
        self.says_after(Node::GatewayA, before, &[&words[..], more].concat())
    }

    fn peers(&self, config: &str) -> String {
        self.says(Node::GatewayA, &["peer", "list", "--config", config])
    }

    fn local_routes(&self) -> String {
        run(&self.lab, Node::GatewayA, &["ip", "-6", "route", "show", "table", "local"])
    }
}

const BEHIND_B: [&str; 2] = ["--allowed", "2001:db8:b::/64"];

/// Ends a gateway that a test has started by itself.
struct Started(std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Started {
    /// Ends it cleanly.
    fn down(mut self, site: &Site, tunnel: &str) {
        site.says(Node::GatewayA, &["down", tunnel]);
        self.0.wait().expect("an end");
    }
}

fn start(lab: &Lab, node: Node, file: &str, state: &str) -> Started {
    let mut command = lab.command(node, lab.program()).expect("a command");
    Started(command.args(["up", file, "--state-dir", state]).spawn().expect("a gateway"))
}

#[test]
fn init_invite_and_join_make_a_session() {
    let Some(builder) = lab() else { return };
    // The network without a tunnel, and without the ways that would lead past it.
    let lab = builder.build().expect("a lab");
    let folder = tempfile::tempdir().expect("a folder");
    let name = lab.prefix().to_owned();
    let tunnels = [format!("{name}-x"), format!("{name}-y")];
    let folders = ["a", "b"].map(|site| folder.path().join(site).to_string_lossy().into_owned());
    let program = lab.program().to_string_lossy().into_owned();
    let sidestep = |node, words: &[&str]| run(&lab, node, &[&[program.as_str()], words].concat());
    let begun = Instant::now();

    let said = sidestep(
        Node::GatewayA,
        &["init", "--folder", &folders[0], "--tunnel", &tunnels[0], "--hop-prefix", "2001:db8:a1::/64"],
    );
    assert!(said.contains("ex faces the Internet"), "{said}");
    let files = [0, 1].map(|site| format!("{}/{}.toml", folders[site], tunnels[site]));
    let _a = start(&lab, Node::GatewayA, &files[0], &folders[0]);
    wait_until("site A runs", || sidestep(Node::GatewayA, &["show", &tunnels[0]]).contains("hops in"));

    let said = sidestep(
        Node::GatewayA,
        &[
            "invite",
            "site-b",
            "--hop-prefix",
            "2001:db8:b1::/64",
            "--allowed",
            "2001:db8:b::/64",
            "--as",
            "site-a",
            "--own",
            "2001:db8:a::/64",
            "--config",
            &files[0],
        ],
    );
    assert!(said.contains("has taken it over"), "{said}");
    let string = said.lines().find(|line| line.starts_with("sidestep1-")).expect("an invitation");
    let said = sidestep(Node::GatewayB, &["join", string, "--folder", &folders[1], "--tunnel", &tunnels[1]]);
    assert!(said.contains("this is site-b"), "{said}");
    let _b = start(&lab, Node::GatewayB, &files[1], &folders[1]);

    wait_until("a session", || sidestep(Node::GatewayA, &["show", &tunnels[0]]).contains("1 established"));
    wait_until("hosts reach each other", || {
        run(&lab, Node::HostA, &["ping", "-c", "1", "-W", "1", "2001:db8:b::2"]).contains("1 received")
    });
    eprintln!("from nothing to a session in {:?}", begun.elapsed());

    // Once more is refused and changes nothing.
    let said = sidestep(Node::GatewayB, &["join", string, "--folder", &folders[1], "--tunnel", &tunnels[1]]);
    assert!(said.contains("exists already"), "{said}");
    let said = sidestep(Node::GatewayA, &["peer", "list", "--config", &files[0]]);
    assert!(said.contains("site-b") && said.contains("2001:db8:b1::/64"), "{said}");
    let said = sidestep(Node::GatewayA, &["peer", "remove", "site-b", "--config", &files[0]]);
    assert!(said.contains("has taken it over"), "{said}");
    assert!(!sidestep(Node::GatewayA, &["show", &tunnels[0]]).contains("site-b"));
}

#[test]
fn nobody_takes_the_ssh_client_along_who_changes_a_tunnel_that_is_up() {
    let Some(site) = Site::new() else { return };
    let by_ssh = ["env", "SSH_CONNECTION=2001:db8:b::5 50000 2001:db8:fa::2 22"];
    let (tunnel, config) = site.init('x', "2001:db8:a1::/64");
    let _a = site.start(&tunnel, &config);
    let leads = || run(&site.lab, Node::GatewayA, &["ip", "-6", "route", "get", "2001:db8:b::5"]);
    let is_refused =
        |said: &str| said.contains("this closes the SSH connection that you are on, from 2001:db8:b::5");

    let said = site.invite(&by_ssh, &config, &BEHIND_B);
    assert!(is_refused(&said) && !said.contains("sidestep1-"), "{said}");
    let key = site.says(Node::GatewayA, &["genkey"]);
    let add = ["peer", "add", "site-b", "--public-key", key.trim(), "--hop-prefix", "2001:db8:b1::/64"];
    let add = [&add[..], &["--config", &config], &BEHIND_B].concat();
    let said = site.says_after(Node::GatewayA, &by_ssh, &add);
    assert!(is_refused(&said), "{said}");
    assert!(site.peers(&config).is_empty() && leads().contains("via"), "{}", leads());

    // Written by hand, or by who does not come that way: the reload is what would close it.
    let by_hand = format!("{}/{tunnel}.d/site-b.toml", site.path("a"));
    std::fs::create_dir_all(format!("{}/{tunnel}.d", site.path("a"))).expect("a folder");
    let text = format!(
        "[[peer]]\nname = \"site-b\"\npublic_key = \"{}\"\nhop_prefix = \"2001:db8:b1::/64\"\nallowed_ips = [\"2001:db8:b::/64\"]\n",
        key.trim()
    );
    std::fs::write(by_hand, text).expect("a file");
    let checked = site.says_after(Node::GatewayA, &by_ssh, &["check", &config]);
    assert!(checked.contains("WARNING: this closes the SSH connection"), "{checked}");
    let said = site.says_after(Node::GatewayA, &by_ssh, &["reload", &tunnel]);
    assert!(is_refused(&said) && said.contains("--confirm 60s"), "{said}");
    assert!(leads().contains("via"), "{}", leads());
    let said = site.says_after(Node::GatewayA, &by_ssh, &["reload", &tunnel, "--confirm", "60s"]);
    assert!(is_refused(&said) && said.contains("reloaded"), "{said}");
    assert!(leads().contains(&tunnel), "{}", leads());
    let said = site.says(Node::GatewayA, &["confirm", &tunnel]);
    assert!(said.contains("confirmed"), "{said}");

    // Who is behind the peer already loses nothing, and another client does not come that way.
    let said = site.says_after(Node::GatewayA, &by_ssh, &["reload", &tunnel]);
    assert!(said.contains("reloaded") && !said.contains("SSH"), "{said}");
}

#[test]
fn two_tunnels_do_not_hop_in_one_prefix() {
    let Some(site) = Site::new() else { return };
    let (one, one_file) = site.init('x', "2001:db8:a1::/64");
    let (other, other_file) = site.init('y', "2001:db8:a1::/64");
    let first = site.start(&one, &one_file);
    let local = "local 2001:db8:a1::/64 dev lo";
    let up = |file: &str| {
        site.says_after(Node::GatewayA, &["timeout", "20"], &["up", file, "--state-dir", &site.path("s")])
    };
    let refusal = format!("the tunnel {one} hops in it");
    for said in [up(&other_file), site.says(Node::GatewayA, &["check", &other_file])] {
        assert!(said.contains(&refusal), "{said}");
    }
    let checked = site.says(Node::GatewayA, &["check", &one_file]);
    assert!(!checked.contains("hops in it"), "{checked}");
    assert!(site.local_routes().contains(local), "{}", site.local_routes());

    // Nor by a reload, after which the tunnel is where it was.
    let text = std::fs::read_to_string(&other_file).expect("a file");
    std::fs::write(&other_file, text.replace("2001:db8:a1::", "2001:db8:a2::")).expect("a file");
    let second = site.start(&other, &other_file);
    std::fs::write(&other_file, &text).expect("a file");
    let said = site.says(Node::GatewayA, &["reload", &other]);
    assert!(said.contains(&refusal), "{said}");
    for prefix in [local, "local 2001:db8:a2::/64 dev lo"] {
        assert!(site.local_routes().contains(prefix), "{prefix}: {}", site.local_routes());
    }
    drop(second);

    // Killed, it has left a route, which the other makes its own and takes along at its end, and which it cannot have back
    // as long as the other is there.
    drop(first);
    assert!(site.local_routes().contains(local), "{}", site.local_routes());
    let second = site.start(&other, &other_file);
    let said = up(&one_file);
    assert!(said.contains(&format!("the tunnel {other} hops in it")), "{said}");
    assert!(site.local_routes().contains(local), "{}", site.local_routes());
    second.down(&site, &other);
    assert!(!site.local_routes().contains(local), "{}", site.local_routes());

    // Its own it finds again after a kill, and one that somebody made serves and stays.
    drop(site.start(&one, &one_file));
    let again = site.start(&one, &one_file);
    assert!(site.local_routes().contains(local), "{}", site.local_routes());
    again.down(&site, &one);
    run(&site.lab, Node::GatewayA, &["ip", "-6", "route", "add", "local", "2001:db8:a1::/64", "dev", "lo"]);
    let served = site.start(&one, &one_file);
    served.down(&site, &one);
    assert!(site.local_routes().contains(local), "{}", site.local_routes());
}

#[test]
fn a_daemon_that_runs_from_another_file_takes_nothing_over() {
    let Some(site) = Site::new() else { return };
    let (tunnel, config) = site.init('x', "2001:db8:a1::/64");
    let copy = format!("{}/copy.toml", site.path("a"));
    let text = std::fs::read_to_string(&config).expect("a file").replace(&format!("{tunnel}.d/"), "copy.d/");
    std::fs::write(&copy, text).expect("a file");
    // By a name that says nothing to who is elsewhere.
    let words =
        format!("cd {} && exec {} up copy.toml --state-dir .", site.path("a"), site.lab.program().display());
    let mut command = site.lab.command(Node::GatewayA, "sh").expect("a command");
    let _a = Started(command.args(["-c", &words]).spawn().expect("a gateway"));
    wait_until("it runs", || site.says(Node::GatewayA, &["show", &tunnel]).contains("hops in"));
    let said = site.invite(&[], &config, &BEHIND_B);
    let expected = format!("{tunnel} runs from {copy}, and has taken nothing over");
    assert!(said.contains(&expected) && said.contains("sidestep1-"), "{said}");
    let said = site.says(Node::GatewayA, &["peer", "remove", "site-b", "--config", &config]);
    assert!(said.contains(&expected), "{said}");
    let said = site.invite(&[], &copy, &BEHIND_B);
    assert!(said.contains("has taken it over"), "{said}");
    assert!(site.says(Node::GatewayA, &["show", &tunnel]).contains("site-b"));
}

#[test]
fn a_daemon_that_is_held_or_refuses_leaves_no_peer_whose_key_nobody_has() {
    let Some(site) = Site::new() else { return };
    let (tunnel, config) = site.init('x', "2001:db8:a1::/64");
    let daemon = site.start(&tunnel, &config);
    let signal = |signal| {
        let pid = Pid::from_raw(daemon.0.id().try_into().expect("a process"));
        kill(pid, signal).expect("a daemon");
    };
    signal(Signal::SIGSTOP);
    let said = site.invite(&["timeout", "--signal=INT", "3"], &config, &BEHIND_B);
    signal(Signal::SIGCONT);
    assert_eq!(said, "");
    assert!(site.peers(&config).is_empty());

    // Something else in the file is what it does not take over.
    let text = std::fs::read_to_string(&config).expect("a file");
    std::fs::write(&config, text.replace("external         = \"ex\"", "external         = \"in\""))
        .expect("a file");
    let said = site.invite(&[], &config, &BEHIND_B);
    assert!(said.contains("[node] external changed"), "{said}");
    assert!(said.contains("site-b is not added, and its invitation is of no use"), "{said}");
    assert!(site.peers(&config).is_empty());
}

#[test]
fn join_says_what_up_would_refuse_and_finds_the_networks_of_the_site() {
    let Some(site) = Site::new() else { return };
    let (_, config) = site.init('x', "2001:db8:a1::/64");
    // Docker's as it is made, and one of virtual machines, whose name says nothing.
    let bridges = "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && ip link set docker0 up
        ip link add vms type bridge && ip link add vm1 type veth peer name vm1-in && ip link set vm1 master vms up
        ip address add 192.168.122.1/24 dev vms && ip link set vms up";
    for node in [Node::GatewayA, Node::GatewayB] {
        run(&site.lab, node, &["sh", "-c", bridges]);
    }
    let invite = |more: &[&str]| site.invite(&[], &config, more);
    let said = invite(&["--allowed", "2001:db8:b::/56"]);
    assert!(said.contains("behind site-a are ") && said.contains("2001:db8:a::/64"), "{said}");
    assert!(!said.contains("172.17") && !said.contains("192.168.122"), "{said}");
    let string = |said: &str| {
        said.lines().find(|line| line.starts_with("sidestep1-")).expect("an invitation").to_owned()
    };
    let join = |tunnel: &str, said: &str| {
        let words = ["join", &string(said), "--folder", &site.path("b"), "--tunnel", tunnel];
        site.says(Node::GatewayB, &words)
    };
    let tunnel = site.tunnel('y');
    let joined = join(&tunnel, &said);
    assert!(joined.contains("Start it, now and at each boot"), "{joined}");
    let text = std::fs::read_to_string(format!("{}/{tunnel}.toml", site.path("b"))).expect("a file");
    // A network of the site is part of what was said to be behind it.
    assert!(text.contains("addresses = [\"2001:db8:b::1/128\"]"), "{text}");

    // Both ends have it, as it was asked for.
    site.says(Node::GatewayA, &["peer", "remove", "site-b", "--config", &config]);
    let said =
        invite(&["--allowed", "2001:db8:b::/64", "--own", "2001:db8:a::/64", "--own", "172.17.0.0/16"]);
    assert!(said.contains("behind site-a are 2001:db8:a::/64, 172.17.0.0/16."), "{said}");
    let tunnel = site.tunnel('z');
    let joined = join(&tunnel, &said);
    let first = "What is in the way on this machine:\n    allowed_ips of site-a has 172.17.0.0/16, which is of the network of docker0";
    assert!(joined.contains(first) && !joined.contains("Start it"), "{joined}");
    let file = format!("{}/{tunnel}.toml", site.path("b"));
    let checked = site.says(Node::GatewayB, &["check", &file]);
    assert!(checked.contains("`up` would refuse this here"), "{checked}");

    // Nor is it started where that takes away who starts it.
    site.says(Node::GatewayA, &["peer", "remove", "site-b", "--config", &config]);
    let said = invite(&["--allowed", "2001:db8:b::/64", "--own", "2001:db8:a::/64"]);
    let words = ["join", &string(&said), "--folder", &site.path("b"), "--tunnel", &site.tunnel('v')];
    let by_ssh = ["env", "SSH_CONNECTION=2001:db8:a::5 50000 2001:db8:fb::2 22"];
    let joined = site.says_after(Node::GatewayB, &by_ssh, &words);
    let first = "What is in the way on this machine:\n    this closes the SSH connection that you are on, from 2001:db8:a::5";
    assert!(joined.contains(first) && !joined.contains("Start it"), "{joined}");
}
