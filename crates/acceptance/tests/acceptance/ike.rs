//! The crate `ike` and strongSwan agree, whoever begins: an IKE SA and a child with a shared key, new keys for both, a new
//! authentication, the end. `ike_host`, an example of the crate, is our end. What a child carries is not tried here.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::Process;

const CHARON: &str = "/usr/lib/ipsec/charon";
const OURS: &str = "2001:db8:77::a";
const THEIRS: &str = "2001:db8:77::b";
const KEY: &str = "a key that both know";

struct Scene {
    namespaces: [Namespace; 2],
    folder: tempfile::TempDir,
    charon: Option<Process>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(charon) = self.charon.take() {
            charon.stop(Duration::from_secs(10));
        }
        for namespace in &self.namespaces {
            let _ = namespace.delete();
        }
    }
}

impl Scene {
    /// Two ends and strongSwan at the second, configured. It has no IPsec of the kernel's here, so its own in user space,
    /// which wants UDP around ESP.
    fn new() -> Option<Self> {
        crate::program(&["swanctl", CHARON])?;
        let prefix = lab::prefix::unique();
        let namespaces = ["a", "b"].map(|side| Namespace::named(format!("{prefix}-{side}")));
        let folder = tempfile::tempdir().expect("a folder");
        let mut scene = Scene { namespaces, folder, charon: None };
        for namespace in &scene.namespaces {
            namespace.create().expect("a namespace");
        }
        let [a, b] = &scene.namespaces;
        a.ip(&format!("link add ex type veth peer name ex netns {}", b.name())).expect("a link");
        for (namespace, address) in [(a, OURS), (b, THEIRS)] {
            namespace
                .ip(&format!("link set lo up\naddr add {address}/64 dev ex nodad\nlink set ex up\n"))
                .expect("an address");
        }
        scene.write(
            "strongswan.conf",
            &format!(
                "charon {{\n install_routes = no\n plugins {{ vici {{ socket = {} }} }}\n load = openssl random nonce \
                 hmac kdf gcm kernel-libipsec kernel-netlink socket-default vici\n}}\n\
                 swanctl {{ load = random openssl }}\n",
                scene.socket()
            ),
        );
        scene.write(
            "swanctl.conf",
            &format!(
                "connections {{ us {{\n version = 2\n encap = yes\n local_addrs = {THEIRS}\n remote_addrs = {OURS}\n \
                 proposals = aes256gcm16-prfsha256-x25519\n local {{\n auth = psk\n id = b.example\n }}\n \
                 remote {{\n auth = psk\n id = a.example\n }}\n children {{ c {{\n local_ts = ::/0\n remote_ts = ::/0\n \
                 esp_proposals = aes256gcm16-x25519, aes256gcm16\n }} }}\n}} }}\n\
                 secrets {{ ike {{\n id-a = a.example\n id-b = b.example\n secret = \"{KEY}\"\n }} }}\n"
            ),
        );
        let mut command = scene.namespaces[1].command(CHARON).expect("the namespace");
        command.env("STRONGSWAN_CONF", scene.path("strongswan.conf"));
        scene.charon = Some(Process::start(&mut command, &scene.path("charon.log")).expect("strongSwan"));
        let file = scene.path("swanctl.conf").display().to_string();
        wait_until("strongSwan", || scene.swanctl(&["--load-all", "--file", &file]));
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.path("vici").display())
    }

    /// Whether strongSwan has done what it was asked.
    fn swanctl(&self, words: &[&str]) -> bool {
        let mut command = Command::new("swanctl");
        command
            .args(words)
            .args(["--uri", &self.socket()])
            .env("STRONGSWAN_CONF", self.path("strongswan.conf"));
        command.output().expect("swanctl").status.success()
    }

    fn start_ours(&self, role: &str) -> Process {
        // Built with the tests: the folder above theirs.
        let tests = std::env::current_exe().expect("this program");
        let host =
            tests.parent().and_then(|deps| deps.parent()).expect("its folder").join("examples/ike_host");
        let mut command = self.namespaces[0].command(host).expect("the namespace");
        command.args([OURS, THEIRS, "a.example", "b.example", KEY, role]);
        Process::start(&mut command, &self.path("ours.log")).expect("our end")
    }

    fn told(&self) -> String {
        std::fs::read_to_string(self.path("ours.log")).unwrap_or_default()
    }

    /// Waits until our end has said this so many times.
    fn wait_told(&self, what: &str, times: usize) {
        wait_until(&format!("{times} of {what:?} in\n{}", self.told()), || {
            self.told().matches(what).count() == times
        });
    }
}

#[test]
fn strongswan_does_what_our_initiator_wants() {
    let Some(scene) = Scene::new() else { return };
    let mut ours = scene.start_ours("initiate");
    let ended = ours.wait(Duration::from_secs(60));
    let told = scene.told();
    assert!(ended.is_some_and(|status| status.success()), "{told}");
    let times = |what: &str| told.matches(what).count();
    assert_eq!(["IKE SA up", "child up"].map(times), [2, 2], "{told}");
    assert_eq!(["child rekeyed", "IKE SA rekeyed"].map(times), [1, 1], "{told}");
    assert_eq!(times("in UDP: true"), 2, "{told}");
    assert!(!told.contains("Refused") && !told.contains("Failed"), "{told}");
}

#[test]
fn we_do_what_strongswan_wants() {
    let Some(scene) = Scene::new() else { return };
    let ours = scene.start_ours("wait");
    wait_until("a child", || scene.swanctl(&["--initiate", "--child", "c", "--timeout", "5"]));
    scene.wait_told("child up", 1);
    assert!(scene.swanctl(&["--rekey", "--child", "c"]));
    scene.wait_told("child rekeyed", 1);
    assert!(scene.swanctl(&["--rekey", "--ike", "us"]));
    scene.wait_told("IKE SA rekeyed", 1);
    scene.wait_told("IKE SA down: Replaced", 1);
    assert!(scene.swanctl(&["--terminate", "--ike", "us"]));
    scene.wait_told("IKE SA down: DeletedByPeer", 1);
    let told = scene.told();
    assert!(!told.contains("Refused") && !told.contains("Failed"), "{told}");
    ours.kill();
}
