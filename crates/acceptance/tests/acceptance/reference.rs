//! The classic profile between two implementations: the program, and the Python reference, in two namespaces on one
//! link, across rotations and key exchanges.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use classic::keys::SessionKey;
use lab::echoes::{self, Echoes};
use lab::namespaces::Namespace;
use lab::process::Process;
use lab::scale::emulated;

/// True addresses: of the host of `crates/classic`, and of the reference's.
const HOSTS: [&str; 2] = ["2001:db8:a::1", "2001:db8:b::1"];
/// Seconds of traffic: some 20 rotations, and at least two key exchanges 7 to 9 s apart.
const SECONDS: u32 = 22;

struct ReferenceScene {
    namespaces: [Namespace; 2],
    folder: tempfile::TempDir,
}

impl ReferenceScene {
    /// Two namespaces on one link; each has the other's /64 routed to it.
    fn new() -> Self {
        let prefix = lab::prefix::unique();
        let namespaces = ["a", "b"].map(|side| Namespace::named(format!("{prefix}-{side}")));
        let scene = ReferenceScene { namespaces, folder: tempfile::tempdir().expect("a folder") };
        for namespace in &scene.namespaces {
            namespace.create().expect("a namespace");
        }
        let [a, b] = &scene.namespaces;
        a.ip(&format!("link add ex type veth peer name ex netns {}", b.name())).expect("a link");
        for (own, other, namespace) in [(1, 2, a), (2, 1, b)] {
            let peer_prefix = ["2001:db8:b::/64", "2001:db8:a::/64"][own - 1];
            // What is written to a TUN device is forwarded.
            namespace.sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("sysctl");
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
    fn write_files(&self, cipher: &str, key: &SessionKey) -> PathBuf {
        let encrypt = cipher != "none";
        let crypt_type = if encrypt { cipher } else { "aes-256-cbc" };
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

    /// The program's configuration for the other end.
    fn write_configuration(&self, cipher: &str, kernel: &str, key: &SessionKey) -> PathBuf {
        let path = self.folder.path().join("a.toml");
        let [own, other] = HOSTS;
        let text = format!(
            "[node]\nexternal = \"ex\"\n\n[tunnel]\nname = \"mt\"\n\n[[peer]]\nname = \"b\"\nprofile = \"classic\"\n\
             local_address = \"{own}\"\nlocal_mac = \"00:ab:cd:11:22:01\"\n\
             remote_address = \"{other}\"\nremote_mac = \"00:ab:cd:11:22:02\"\n\
             session_key = \"{}\"\ncipher = \"{cipher}\"\nkernel = \"{kernel}\"\nrotation = \"1s\"\n\
             key_exchange = \"8s\"\nkey_exchange_window = \"1s\"\n",
            *key.to_hex()
        );
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
        path
    }

    fn start_program(&self, program: &Path, configuration: &Path) -> Process {
        let mut command = self.namespaces[0].command(program).expect("the namespace");
        command.arg("up").arg(configuration).arg("--state-dir").arg(self.folder.path());
        command.arg("--socket").arg(self.folder.path().join("a.sock"));
        Process::start(&mut command, &self.folder.path().join("program.log")).expect("the program")
    }

    fn show(&self, program: &Path) -> serde_json::Value {
        let mut command = Command::new(program);
        command.args(["show", "--json", "--socket"]).arg(self.folder.path().join("a.sock"));
        let output = command.output().expect("the program");
        serde_json::from_slice(&output.stdout).expect("a status")
    }

    fn start_reference(&self, ini: &Path) -> Process {
        let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reference");
        let mut command = self.namespaces[1].command("python3").expect("the namespace");
        command.args(["-B", "-m", "classic"]).arg(ini).current_dir(reference);
        Process::start(&mut command, &self.folder.path().join("log")).expect("python3")
    }

    fn ping(&self, from: usize) -> Command {
        let mut command = self.namespaces[from].command("ping").expect("the namespace");
        let (interval, count) = ((1.0 / rate()).to_string(), count().to_string());
        let (source, destination) = (HOSTS[from], HOSTS[1 - from]);
        command.args([
            "-n",
            "-q",
            "-i",
            &interval,
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

    fn has(&self, side: usize, address: &str, device: &str) {
        let lines = format!("addr replace {address}/128 dev {device} nodad");
        for _ in 0..100 {
            if self.namespaces[side].ip(&lines).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no TUN device in {}: {}", self.namespaces[side].name(), self.log());
    }

    fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("{}{}", read("program.log"), read("log"))
    }
}

impl Drop for ReferenceScene {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = namespace.delete();
        }
    }
}

/// Pings of each side in a second. On an emulated machine the reference, which is written in Python, is as slow.
fn rate() -> f64 {
    if emulated() { 2.5 } else { 20.0 }
}

fn count() -> u32 {
    (f64::from(SECONDS) * rate()) as u32
}

/// Both sides ping each other with packets of 948 bytes; none is lost, addresses and keys change meanwhile.
///
/// The reference forwards nothing while it waits for the kernel to take its next address, which tests beside this one hold up:
/// for seconds, at times, and then it loses what arrives. What the two do not agree about would be lost each time.
fn interoperate(cipher: &str, kernel: &str) {
    let python = Command::new("python3").args(["-c", "import cryptography"]).output();
    let python = python.is_ok_and(|run| run.status.success());
    if !python {
        return crate::skip("python3-cryptography");
    }
    let Some(program) = crate::program(&[]) else { return };
    let mut lost = String::new();
    for _ in 0..3 {
        match without_loss(&program, cipher, kernel) {
            Ok(()) => return,
            Err(why) => lost += &why,
        }
        eprintln!("{lost}");
    }
    panic!("each time something was lost: {lost}");
}

/// Fails where pings were lost; panics where the two do not agree.
fn without_loss(program: &Path, cipher: &str, kernel: &str) -> Result<(), String> {
    let scene = ReferenceScene::new();
    let key = SessionKey::from_bytes(std::array::from_fn(|i| i as u8));
    let ini = scene.write_files(cipher, &key);
    let configuration = scene.write_configuration(cipher, kernel, &key);
    let (reference, daemon) = (scene.start_reference(&ini), scene.start_program(program, &configuration));
    scene.has(0, HOSTS[0], "mt-c");
    scene.has(1, HOSTS[1], "classic");
    // Both have routes of each other's interval.
    std::thread::sleep(Duration::from_secs(2));
    let counters = |from: usize| {
        let mut command = scene.namespaces[from].command("cat").expect("the namespace");
        String::from_utf8_lossy(&command.args(echoes::FILES).output().expect("cat").stdout).into_owned()
    };
    let pings = [0, 1].map(|from| {
        let before = Echoes::parse(&counters(from));
        (from, before, scene.ping(from).stdout(Stdio::piped()).spawn().expect("ping"))
    });
    let mut lost = None;
    for (from, before, ping) in pings {
        let report = ping.wait_with_output().expect("ping");
        let text = String::from_utf8_lossy(&report.stdout).into_owned();
        if !before.all_answered(&text, || counters(from)) {
            lost = Some(format!("{text}\n{}", scene.log()));
        }
    }
    if let Some(lost) = lost {
        return Err(lost);
    }
    std::thread::sleep(Duration::from_millis(1_500));
    let status = scene.show(program);
    reference.stop(Duration::from_secs(5));
    daemon.stop(Duration::from_secs(5));

    let log = scene.log();
    assert!(log.contains("nothing is authenticated"), "{log}");
    let peer = &status["peers"][0];
    let adopted = peer["handshakes"].as_u64().expect("a number");
    assert!(adopted >= 2, "{peer}\n{log}");
    assert!(log.matches("a new session key is adopted").count() as u64 >= adopted, "{log}");
    assert!(peer["rotations"].as_u64() > Some(u64::from(SECONDS)), "{peer}");
    assert!(peer["rx_packets"].as_u64() >= Some(u64::from(2 * count())), "{peer}");
    // Two ends may begin an exchange at the same time; what is for no stream, such as neighbor discovery, is no fault; an
    // error about a packet without payload, as one may come while the other end is not up, has nobody to be told.
    let harmless =
        |reason: &str| matches!(reason, "offer_collision" | "no_stream" | "no_route" | "malformed_error");
    let drops = status["drops"].as_object().expect("counts");
    let counts = log.lines().last().unwrap_or_default();
    for reason in classic::DropReason::ALL.iter().map(|reason| reason.name()) {
        let of_the_reference = counts.contains(&format!("{reason:?}"));
        // Whoever is held up for longer than an interval meets a packet whose route is over, be it one of nobody's pings.
        if reason == classic::DropReason::ExpiredRoute.name() {
            if of_the_reference || drops.contains_key(reason) {
                return Err(format!("a route was over: {drops:?}, {counts}\n"));
            }
            continue;
        }
        assert!(harmless(reason) || !of_the_reference, "{counts}");
    }
    assert!(drops.keys().all(|reason| harmless(reason)), "{drops:?}");
    // Both have stored the key that they adopted.
    for file in ["profiles", "mt-classic.json"] {
        let stored = std::fs::read_to_string(scene.folder.path().join(file)).expect("stored keys");
        let first = stored.matches(key.to_hex().as_str()).count();
        // The program remembers which configured key the adopted one goes with.
        assert_eq!(first, usize::from(file == "mt-classic.json"), "{file}: the first key is still in use");
    }
    Ok(())
}

#[test]
fn unencrypted() {
    interoperate("none", "off");
}

#[test]
fn unencrypted_in_the_kernel() {
    interoperate("none", "required");
}

#[test]
fn encrypted_with_aes_256() {
    interoperate("aes-256-cbc", "auto");
}

#[test]
fn encrypted_with_aes_128() {
    interoperate("aes-128-cbc", "auto");
}
