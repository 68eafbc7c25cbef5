//! strongSwan with the kernel's IPsec at one end, `crates/ike` with `crates/ipsec` at the other: each of them begins, and
//! each replaces what both have. ESP travels by itself (protocol 50), and in UDP.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ipsec::algorithm::{Authentication, Encryption};
use ipsec::association::{Mode, Protocol};
use tempfile::TempDir;
use wire::protocol;

use super::key_daemon::{KEY, KeyDaemon};
use super::packets::Suite;
use super::scene::{Scene, Way, ends, header_of};
use crate::charon::{CHARON, Charon, configure, swanctl};

/// Of an exchange, on a machine that is emulated, too.
const PATIENCE: Duration = Duration::from_secs(120);
const PLUGINS: &str = "openssl random nonce hmac kdf gcm kernel-netlink socket-default vici";
/// There is one route, and both ends are on its link.
const SETTINGS: &str = "install_routes = no";

const ESP: Way = Way {
    suite: Suite::Esp(Encryption::AesGcm256, Authentication::None),
    mode: Mode::Tunnel,
    is_ipv6: true,
    extended: false,
    in_udp: false,
    used: 0,
};

/// Both ends, and what they are to agree on.
struct Pair {
    way: Way,
    scene: Scene,
    folder: TempDir,
    charon: Charon,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}: {:#?}\nstrongSwan:\n{}", self.way, self.scene.daemon().told, self.charon.said());
        }
    }
}

impl Pair {
    fn new(way: Way) -> Option<Self> {
        crate::program(&["swanctl", CHARON]).filter(|_| super::is_there())?;
        let folder = tempfile::tempdir().expect("a folder");
        configure(folder.path(), PLUGINS, SETTINGS, &connections(&way));
        let mut scene = Scene::new();
        scene.require(&way);
        let daemon = KeyDaemon::new(scene.host(), &way);
        scene.give_daemon(daemon);
        let charon = Charon::start(scene.namespace(), folder.path());
        Some(Self { way, scene, folder, charon })
    }

    /// Runs until our end has said this so often.
    fn wait_told(&mut self, what: &str, times: usize) {
        let end = Instant::now() + PATIENCE;
        while self.scene.daemon().count(what) < times {
            assert!(Instant::now() < end, "no {what:?}");
            self.scene.run_once();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has strongSwan do something, while our end runs.
    fn they(&mut self, words: &[&str]) {
        let mut command = swanctl(self.folder.path(), words);
        let mut asked: Child = command.stdout(Stdio::null()).spawn().expect("swanctl");
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = asked.try_wait().expect("swanctl") {
                break status;
            }
            if Instant::now() > end {
                let _ = asked.kill();
            }
            self.scene.run_once();
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "swanctl {words:?}");
    }

    /// Datagrams go to and fro, whole and in fragments, and nothing but what was agreed on crosses.
    fn assert_exchange(&mut self) {
        let socket = self.scene.socket(self.way.is_ipv6);
        for length in [100, 3000] {
            self.scene.take_crossed();
            let data = vec![0x5a; length];
            let answer = self.scene.echo(&socket, &data);
            let (ours, theirs) = (self.scene.drops(), self.scene.kernel_drops());
            assert_eq!(answer, Some(data), "dropped here: {ours}; by the kernel: {theirs}");
            let expected = match self.way.suite.protocol() {
                Protocol::Ah => protocol::AUTHENTICATION,
                Protocol::Esp if self.way.in_udp => protocol::UDP,
                Protocol::Esp => protocol::ESP,
            };
            let mut crossed = self.scene.take_crossed();
            // What IKE repeats on a slow machine may be among them.
            crossed.retain(|packet| !is_ike(packet));
            assert!(crossed.len() >= 2 && crossed.iter().all(|packet| header_of(packet) == expected));
            let shows = crossed.iter().any(|packet| packet.windows(60).any(|part| part == [0x5a; 60]));
            assert_eq!(shows, !self.way.suite.hides());
        }
    }

    /// What both have is what was wanted.
    fn assert_agreed(&mut self) {
        let child = self.scene.daemon().child();
        assert_eq!(child.mode == ike::config::Mode::Tunnel, self.way.mode == Mode::Tunnel);
        assert_eq!(child.suite.extended_sequence_numbers, self.way.extended);
        assert_eq!(child.nat.is_between(), self.way.in_udp);
        let mut ip = self.scene.namespace().command("ip").expect("the namespace");
        let output = ip.args(["xfrm", "state", "list"]).output().expect("ip");
        let states = String::from_utf8_lossy(&output.stdout).into_owned();
        let mode = if self.way.mode == Mode::Tunnel { "mode tunnel" } else { "mode transport" };
        let proto = format!("proto {}", self.way.suite.proto());
        assert!(states.contains(mode) && states.contains(&proto), "{states}");
        assert_eq!(states.contains("flag") && states.contains("esn"), self.way.extended, "{states}");
    }
}

/// Whether a packet is a datagram of IKE: between its ports, or between those that it shares with ESP and with four zeros.
fn is_ike(packet: &[u8]) -> bool {
    let datagram = if packet[0] >> 4 == 4 { &packet[20..] } else { &packet[40..] };
    let port = u16::from_be_bytes([datagram[2], datagram[3]]);
    header_of(packet) == protocol::UDP && (port == 500 || port == 4500 && datagram[8..12] == [0; 4])
}

/// What strongSwan is to want.
fn connections(way: &Way) -> String {
    let (kernel, host) = ends(way.is_ipv6);
    let mode = if way.mode == Mode::Tunnel { "tunnel" } else { "transport" };
    let encapsulation = if way.in_udp { "yes" } else { "no" };
    let extended = if way.extended { "-esn" } else { "" };
    let proposals = match way.suite.protocol() {
        Protocol::Esp => format!("esp_proposals = aes256gcm16-x25519{extended}, aes256gcm16{extended}"),
        Protocol::Ah => format!("ah_proposals = sha256-x25519{extended}, sha256{extended}"),
    };
    format!(
        "connections {{ us {{\n version = 2\n mobike = no\n encap = {encapsulation}\n local_addrs = {kernel}\n \
         remote_addrs = {host}\n proposals = aes256gcm16-prfsha256-x25519\n \
         local {{\n auth = psk\n id = kernel.example\n }}\n remote {{\n auth = psk\n id = host.example\n }}\n \
         children {{ c {{\n mode = {mode}\n {proposals}\n }} }}\n}} }}\n\
         secrets {{ ike {{\n id-a = kernel.example\n id-b = host.example\n secret = \"{KEY}\"\n }} }}\n"
    )
}

/// Each end begins, and each replaces the child and the IKE SA.
fn assert_agree(way: Way) {
    let Some(mut pair) = Pair::new(way) else { return };
    pair.scene.daemon().initiate();
    pair.wait_told("child up", 1);
    pair.assert_agreed();
    pair.assert_exchange();
    pair.scene.daemon().rekey_child();
    pair.wait_told("child down", 1);
    pair.assert_exchange();
    pair.scene.daemon().rekey_ike();
    pair.wait_told("IKE SA down: Replaced", 1);
    pair.scene.daemon().delete();
    pair.wait_told("IKE SA down: Deleted", 1);

    pair.they(&["--initiate", "--child", "c", "--timeout", "60"]);
    pair.wait_told("child up", 3);
    pair.assert_agreed();
    pair.assert_exchange();
    pair.they(&["--rekey", "--child", "c"]);
    pair.wait_told("child down", 3);
    pair.assert_exchange();
    pair.they(&["--terminate", "--ike", "us"]);
    pair.wait_told("IKE SA down: DeletedByPeer", 1);
    assert_eq!(pair.scene.drops(), "[]");
}

#[test]
fn tunnels_of_esp_by_itself() {
    assert_agree(ESP);
}

#[test]
fn transport_mode_with_extended_sequence_numbers() {
    assert_agree(Way { mode: Mode::Transport, extended: true, ..ESP });
}

#[test]
fn tunnels_with_extended_sequence_numbers_in_ipv4() {
    assert_agree(Way { is_ipv6: false, extended: true, ..ESP });
}

#[test]
fn transport_mode_in_ipv4() {
    assert_agree(Way { mode: Mode::Transport, is_ipv6: false, ..ESP });
}

#[test]
fn esp_in_udp() {
    assert_agree(Way { in_udp: true, ..ESP });
}

#[test]
fn ah_of_both_ip_versions() {
    let suite = Suite::Ah(Authentication::HmacSha256);
    for is_ipv6 in [true, false] {
        assert_agree(Way { suite, mode: Mode::Transport, is_ipv6, ..ESP });
    }
}
