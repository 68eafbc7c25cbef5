//! The classic profile between two implementations: `crates/classic` on this kernel, and the Python reference, in two
//! namespaces on one link, across rotations and key exchanges.

mod host;

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use classic::cipher::Cipher;
use classic::hashed::{Host, Rotation};
use classic::keys::SessionKey;
use classic::profile::{KeyExchange, StreamConfig};
use lab::namespaces::Namespace;
use lab::process::Process;

/// True addresses: of the host of `crates/classic`, and of the reference's.
const HOSTS: [&str; 2] = ["2001:db8:a::1", "2001:db8:b::1"];
/// Seconds of traffic: some 20 rotations, and at least two key exchanges 7 to 9 s apart.
const SECONDS: u32 = 22;

struct Scene {
    namespaces: [Namespace; 2],
    folder: tempfile::TempDir,
}

impl Scene {
    /// Two namespaces on one link; each has the other's /64 routed to it.
    fn new(prefix: &str) -> Self {
        let namespaces = ["a", "b"].map(|side| Namespace::named(format!("{prefix}-{side}")));
        let scene = Scene { namespaces, folder: tempfile::tempdir().expect("a folder") };
        for namespace in &scene.namespaces {
            let _ = namespace.delete();
            namespace.create().expect("a namespace");
        }
        let [a, b] = &scene.namespaces;
        a.ip(&format!("link add ex type veth peer name ex netns {}", b.name())).expect("a link");
        for (own, other, namespace) in [(1, 2, a), (2, 1, b)] {
            let peer_prefix = ["2001:db8:b::/64", "2001:db8:a::/64"][own - 1];
            let lines = format!(
                "addr add 2001:db8:ff::{own}/64 dev ex nodad\nlink set ex up\n\
                 route add {peer_prefix} via 2001:db8:ff::{other} dev ex\n"
            );
            namespace.ip(&lines).expect("addresses");
            namespace.offloads_off("ex").expect("ethtool");
        }
        scene
    }

    /// The reference's files, of the thesis's kind.
    fn write_files(&self, encrypt: bool, crypt_type: &str, key: &SessionKey) -> PathBuf {
        let write =
            |name: &str, text: &str| std::fs::write(self.folder.path().join(name), text).expect("a file");
        write("users", &format!("host-a {}\nhost-b {}\n", HOSTS[0], HOSTS[1]));
        write("ethers", &format!("{} 00:ab:cd:11:22:01\n{} 00:ab:cd:11:22:02\n", HOSTS[0], HOSTS[1]));
        write("profiles", &format!("host-b host-a {}\n", *key.to_hex()));
        write(
            "mt6d.ini",
            &format!(
                "internal_nic = classic\nexternal_nic = ex\nrotation_time = 1\ncrypt_type = {crypt_type}\n\
                 encrypt = {encrypt}\nregen_interval = 8\nregen_window = 1\n"
            ),
        );
        self.folder.path().join("mt6d.ini")
    }

    fn start_reference(&self, ini: &Path) -> Process {
        let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reference");
        let mut command = self.namespaces[1].command("python3").expect("the namespace");
        command.args(["-B", "-m", "classic"]).arg(ini).current_dir(reference);
        Process::start(&mut command, &self.folder.path().join("log")).expect("python3")
    }

    fn ping(&self, from: usize) -> Command {
        let mut command = self.namespaces[from].command("ping").expect("the namespace");
        let count = (SECONDS * 20).to_string();
        let (source, destination) = (HOSTS[from], HOSTS[1 - from]);
        command.args([
            "-n",
            "-q",
            "-i",
            "0.05",
            "-s",
            "900",
            "-W",
            "1",
            "-c",
            &count,
            "-I",
            source,
            destination,
        ]);
        command
    }

    fn has(&self, side: usize, address: &str) {
        let lines = format!("addr replace {address}/128 dev classic nodad");
        for _ in 0..100 {
            if self.namespaces[side].ip(&lines).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no TUN device in {}: {}", self.namespaces[side].name(), self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = namespace.delete();
        }
    }
}

fn stream(cipher: Option<Cipher>, key: SessionKey) -> StreamConfig {
    let host = |index: usize| Host {
        address: HOSTS[index].parse::<Ipv6Addr>().expect("an address"),
        mac: Some([0, 0xab, 0xcd, 0x11, 0x22, index as u8 + 1]),
    };
    StreamConfig {
        local: host(0),
        remote: host(1),
        key,
        cipher,
        rotation: Rotation::Fixed(1),
        lifetime: 3,
        key_exchange: Some(KeyExchange { interval: 8, window: 1 }),
        outer_mtu: 1500,
    }
}

/// Both sides ping each other with packets of 948 bytes; none is lost, addresses and keys change meanwhile.
fn interoperate(prefix: &str, cipher: Option<Cipher>, crypt_type: &str) {
    let python = Command::new("python3").args(["-c", "import cryptography"]).output();
    if !nix::unistd::geteuid().is_root() || !python.is_ok_and(|run| run.status.success()) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root and python3-cryptography");
        eprintln!("skipped: needs root and python3-cryptography");
        return;
    }
    let scene = Scene::new(prefix);
    let key = SessionKey::from_bytes(std::array::from_fn(|i| i as u8));
    let ini = scene.write_files(cipher.is_some(), crypt_type, &key);
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| host::run(&scene.namespaces[0], stream(cipher, key.clone()), &stop));
        let reference = scene.start_reference(&ini);
        scene.has(0, HOSTS[0]);
        scene.has(1, HOSTS[1]);
        // Both have routes of each other's interval.
        std::thread::sleep(Duration::from_secs(2));
        let pings = [0, 1].map(|from| scene.ping(from).stdout(Stdio::piped()).spawn().expect("ping"));
        let reports = pings.map(|ping| ping.wait_with_output().expect("ping"));
        stop.store(true, Ordering::Relaxed);
        reference.stop(Duration::from_secs(5));
        for report in reports {
            let text = String::from_utf8_lossy(&report.stdout).into_owned();
            assert!(text.contains(" 0% packet loss"), "{text}\n{}", scene.log());
        }
        run.join().expect("the host")
    });

    let log = scene.log();
    assert!(outcome.keys_adopted >= 2, "{outcome:?}\n{log}");
    assert!(log.matches("a new session key is adopted").count() as u64 >= outcome.keys_adopted, "{log}");
    assert!(outcome.routes > u64::from(SECONDS), "{outcome:?}");
    // Two ends may begin an exchange at the same time; nothing else is dropped by either.
    assert!(outcome.drops.iter().all(|(reason, _)| *reason == "offer_collision"), "{outcome:?}");
    let counts = log.lines().last().unwrap_or_default();
    for reason in classic::DropReason::ALL.iter().map(|reason| reason.name()) {
        let harmless = matches!(reason, "offer_collision" | "no_stream" | "no_route");
        assert!(harmless || !counts.contains(&format!("{reason:?}")), "{counts}");
    }
    // The reference stored the key that both have adopted.
    let profiles = std::fs::read_to_string(scene.folder.path().join("profiles")).expect("the profiles");
    assert!(!profiles.contains(key.to_hex().as_str()), "the first key is still stored");
}

#[test]
fn unencrypted() {
    interoperate("cln", None, "aes-256-cbc");
}

#[test]
fn encrypted_with_aes_256() {
    interoperate("cl256", Some(Cipher::Aes256Cbc), "aes-256-cbc");
}

#[test]
fn encrypted_with_aes_128() {
    interoperate("cl128", Some(Cipher::Aes128Cbc), "aes-128-cbc");
}
