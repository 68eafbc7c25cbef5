//! Key management daemons at the PF_KEY socket of a host of our own: one that is asked and answers, as racoon does, one that
//! listens, and the administrator, all at once.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use lab::command::text;
use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::Process;

const OURS: &str = "2001:db8:5::2";
const THEIRS: &str = "2001:db8:5::1";

/// A host on a TAP device that pings the kernel, with a PF_KEY socket.
struct Host {
    namespace: Namespace,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        for process in self.namespace.processes() {
            let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.namespace.delete();
    }
}

impl Host {
    fn new() -> Option<Self> {
        let program = crate::program(&["python3"])?;
        let namespace = Namespace::named(format!("{}-k", lab::prefix::unique()));
        let folder = tempfile::tempdir().expect("a folder");
        let host = Self { namespace, folder, program };
        host.namespace.create().expect("a namespace");
        host.namespace
            .ip(&format!(
                "link set lo up\ntuntap add dev tap0 mode tap\nlink set tap0 up\naddr add {THEIRS}/64 dev tap0 nodad\n"
            ))
            .expect("a device");
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn said(&self, log: &str) -> String {
        std::fs::read_to_string(self.path(log)).unwrap_or_default()
    }

    fn start(&self, program: &Path, words: &[&str], log: &str) -> Process {
        let mut command = self.namespace.command(program).expect("the namespace");
        Process::start(command.args(words), &self.path(log)).expect("a program")
    }

    fn pings(&self) -> Process {
        let socket = self.path("keys").display().to_string();
        let address = format!("{OURS}/64");
        let words = ["stack", "ping", "--dev", "tap0", "--address", &address, "--key-socket", &socket];
        self.start(&self.program, &[&words[..], &["-i", "0.1", "-c", "1000", THEIRS]].concat(), "ping.log")
    }

    fn key(&self, words: &[&str]) -> Output {
        let mut command = self.namespace.command(&self.program).expect("the namespace");
        command.args(["key", "--socket"]).arg(self.path("keys")).args(words).output().expect("sidestep")
    }

    /// Writes a file that others must not read: it may hold keys.
    fn write(&self, file: &str, commands: &str) {
        let path = self.path(file);
        std::fs::write(&path, commands).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    }

    fn loads(&self, file: &str, commands: &str) {
        self.write(file, commands);
        let loaded = self.key(&["-f", &self.path(file).display().to_string()]);
        assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    }
}

#[test]
fn a_daemon_is_asked_for_an_association_and_what_waits_leaves_by_the_one_that_it_makes() {
    const DAEMON: &str = "import os,socket,struct,subprocess,sys\n\
        s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.connect(sys.argv[2])\n\
        s.send(struct.pack('=BBBBHHII',2,7,0,3,2,0,1,os.getpid()))\n\
        while True:\n m=s.recv(20000)\n print('type',m[1],flush=True)\n \
        if m[1]==6: break\n\
        subprocess.run([sys.argv[1],'key','--socket',sys.argv[2],'-f',sys.argv[3]],check=True)\n\
        print('made',flush=True)\nwhile True: s.recv(20000)";
    let Some(host) = Host::new() else { return };
    let _ping = host.pings();
    let socket = host.path("keys");
    wait_until("a socket", || host.key(&["dump"]).status.success());
    assert_eq!(std::fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);

    let program = host.program.clone();
    let _monitor =
        host.start(&program, &["key", "--socket", &socket.display().to_string(), "monitor"], "monitor.log");
    let add = format!("add {OURS} {THEIRS} esp 0x1000 -E aes-gcm-16 \"0123456789abcdef0123\";");
    host.write("add", &add);
    let arguments = [program, socket, host.path("add")].map(|path| path.display().to_string());
    let words = [&["-c", DAEMON][..], &arguments.each_ref().map(String::as_str)].concat();
    let _daemon = host.start(Path::new("python3"), &words, "daemon.log");
    wait_until("a daemon", || host.said("daemon.log").contains("type 7"));

    host.loads(
        "policies",
        &format!(
            "spdadd ::/0 ::/0 icmp6,135 -P out none;\nspdadd ::/0 ::/0 icmp6,136 -P out none;\n\
             spdadd {OURS} {THEIRS} any -P out ipsec esp/transport//require;\n"
        ),
    );
    wait_until("an association that is used", || {
        let shown: serde_json::Value =
            serde_json::from_slice(&host.key(&["dump", "--json"]).stdout).unwrap_or_default();
        shown[0]["packets"].as_u64().is_some_and(|packets| packets > 2)
    });
    let told = host.said("daemon.log");
    assert!(told.contains("type 6") && told.contains("made"), "{told}");
    let heard = host.said("monitor.log");
    let acquire = format!("acquire esp transport {OURS} -> {THEIRS} seq ");
    let added = format!("added esp transport spi 0x00001000 {OURS} -> {THEIRS} by ");
    for line in [&acquire, &added] {
        assert!(heard.lines().any(|heard| heard.starts_with(line.as_str())), "{line}: {heard}");
    }
    let policies = text(&host.key(&["dump", "--policies"]));
    assert!(policies.contains("out ipsec esp/transport//require"), "{policies}");
}

#[test]
fn a_second_host_does_not_take_the_socket_and_one_that_was_killed_leaves_it_to_the_next() {
    let Some(host) = Host::new() else { return };
    let first = host.pings();
    wait_until("a socket", || host.key(&["dump"]).status.success());
    host.namespace.ip("tuntap add dev tap1 mode tap\nlink set tap1 up\n").expect("a device");
    let socket = host.path("keys").display().to_string();
    let words = ["stack", "ping", "--dev", "tap1", "--address", "2001:db8:6::2/64", "--key-socket", &socket];
    let mut second = host.namespace.command(&host.program).expect("the namespace");
    let second = second.args(words).args(["-c", "1", "2001:db8:6::1"]).output().expect("sidestep");
    let told = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && told.contains("another process answers there"), "{told}");
    first.kill();
    let _next = host.pings();
    wait_until("a socket", || host.key(&["dump"]).status.success());
    assert_eq!(text(&host.key(&["dump"])), "", "it has nothing of the one before");
}
