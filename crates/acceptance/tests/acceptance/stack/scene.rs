//! A kernel, and a host of our own on its TAP device.
//!
//! ```text
//!   sidestep stack ── tap0  kernel  wan ── eth0  far
//! ```
//! `far` is another kernel, behind the first one: it has a link of 1280 octets, where a test asks for that.

use std::io::{Read as _, Write as _};
use std::net::Ipv6Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::{Process, tail};
use serde_json::Value;

/// The kernel's addresses on `tap0`.
pub(crate) const KERNEL: &str = "2001:db8:1::1";
pub(crate) const KERNEL_V4: &str = "192.0.2.1";
/// Ours.
pub(crate) const OURS: &str = "2001:db8:1::2";
pub(crate) const OURS_V4: &str = "192.0.2.2";
/// That of `far`.
pub(crate) const FAR: &str = "2001:db8:2::2";
/// How long something may take that takes a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct StackScene {
    kernel: Namespace,
    far: Namespace,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl StackScene {
    /// With a persistent `tap0` of the kernel's. `None` where there is no program to test, no root or not all of these
    /// other programs; in continuous integration that is a failure.
    pub(crate) fn new(others: &[&str]) -> Option<Self> {
        let program = crate::program(others)?;
        let prefix = lab::prefix::unique();
        let [kernel, far] = ["k", "f"].map(|letter| Namespace::named(format!("{prefix}-{letter}")));
        for namespace in [&kernel, &far] {
            namespace.create().expect("a namespace");
        }
        let of_far = far.name();
        kernel
            .ip(&format!(
                "tuntap add dev tap0 mode tap\nlink set dev tap0 up\n\
                 addr add {KERNEL}/64 dev tap0 nodad\naddr add {KERNEL_V4}/24 dev tap0\n\
                 link add wan type veth peer name eth0 netns {of_far}\nlink set dev wan up\n\
                 addr add 2001:db8:2::1/64 dev wan nodad\n"
            ))
            .expect("the kernel");
        kernel.sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("sysctl");
        far.ip(&format!(
            "link set dev eth0 up\naddr add {FAR}/64 dev eth0 nodad\nroute add default via 2001:db8:2::1\n"
        ))
        .expect("the other kernel");
        Some(StackScene { kernel, far, folder: tempfile::tempdir().expect("a folder"), program })
    }

    pub(crate) fn kernel(&self) -> &Namespace {
        &self.kernel
    }

    pub(crate) fn far(&self) -> &Namespace {
        &self.far
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, octets: &[u8]) -> PathBuf {
        let path = self.folder().join(name);
        std::fs::File::create(&path).and_then(|mut file| file.write_all(octets)).expect("a file");
        path
    }

    /// A file of so many octets, which nobody could guess.
    pub(crate) fn random_file(&self, name: &str, length: u64) -> PathBuf {
        let path = self.folder().join(name);
        let source = std::fs::File::open("/dev/urandom").expect("randomness");
        let mut file = std::fs::File::create(&path).expect("a file");
        std::io::copy(&mut source.take(length), &mut file).expect("octets");
        path
    }

    /// `sidestep stack COMMAND --dev tap0 …`, with our address and both kernels reachable, but for `options`.
    pub(crate) fn stack(&self, command: &str, options: &[&str]) -> Command {
        let addresses = ["--address", "2001:db8:1::2/64", "--gateway", KERNEL, "--ipv4", "192.0.2.2/24"];
        self.bare_stack(command, &[&addresses, options].concat())
    }

    /// The same without addresses.
    pub(crate) fn bare_stack(&self, command: &str, options: &[&str]) -> Command {
        let mut started = self.kernel.command(&self.program).expect("the namespace");
        started.args(["stack", command, "--dev", "tap0"]).args(options);
        started
    }

    /// Starts one that goes on, and waits until it is there.
    pub(crate) fn start(&self, mut command: Command) -> Process {
        let mut process = Process::start(&mut command, &self.log()).expect("a program");
        let ready = || process.ended().is_some() || self.netstat().is_some_and(|status| has_address(&status));
        wait_until("a host with an address", ready);
        assert!(process.ended().is_none(), "{}", tail(&self.log()));
        process
    }

    /// What the host says that holds `tap0`; `None`: there is none yet. It is asked by whoever has the device.
    pub(crate) fn netstat(&self) -> Option<Value> {
        // Where nobody answers, the command would take the device itself.
        let mut sockets = std::fs::read_dir("/run/sidestep/stack").ok()?.filter_map(Result::ok);
        let answers = sockets.any(|socket| UnixStream::connect(socket.path()).is_ok());
        let output = answers.then(|| output(&mut self.bare_stack("netstat", &["--json"])))?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Runs a command of the first kernel to its end, which has to be good.
    pub(crate) fn must(&self, words: &[&str]) -> String {
        let mut command = self.kernel.command(words[0]).expect("the namespace");
        succeeds(command.args(&words[1..]))
    }

    fn log(&self) -> PathBuf {
        self.folder().join("stack.log")
    }
}

impl Drop for StackScene {
    fn drop(&mut self) {
        for namespace in [&self.kernel, &self.far] {
            let _ = namespace.delete();
        }
    }
}

/// Whether a host has an address beside its link-local one, or is not to have one.
fn has_address(status: &Value) -> bool {
    let addresses = status["addresses"].as_array().cloned().unwrap_or_default();
    addresses.iter().any(|known| {
        let is_usable = known["state"] == "preferred";
        is_usable && !known["address"].as_str().is_some_and(|it| it.starts_with("fe80") || it.contains('.'))
    })
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("a program")
}

/// Runs a command to its end, which has to be good, and returns what it said.
pub(crate) fn succeeds(command: &mut Command) -> String {
    let output = output(command);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Whether two files are the same.
pub(crate) fn are_equal(a: &Path, b: &Path) -> bool {
    output(Command::new("cmp").args([a, b])).status.success()
}

/// An address of the status that begins with that.
pub(crate) fn address_in(status: &Value, prefix: &str) -> Option<Ipv6Addr> {
    let addresses = status["addresses"].as_array()?;
    let texts = addresses.iter().filter_map(|known| known["address"].as_str());
    texts.filter(|text| text.starts_with(prefix)).find_map(|text| text.split('/').next()?.parse().ok())
}
