//! Machines, links between them, programs on them; all of it ends with the scene.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::process::Process;

/// Whether the kernel has this module, for modprobe with its options, and the machine these programs, which not everybody has.
/// Where they are demanded, as on Debian's kernel, their absence is a failure.
pub(crate) fn has_module(module: &[&str], programs: &[&str]) -> bool {
    let loaded =
        || Command::new("modprobe").args(module).output().is_ok_and(|output| output.status.success());
    let there = programs.iter().all(|program| lab::command::find(program).is_some()) && loaded();
    let needs = format!("needs a kernel with {}, and {}", module[0], programs.join(", "));
    assert!(there || std::env::var_os("SIDESTEP_XFRM").is_none(), "{needs}");
    if !there {
        eprintln!("left to `make test-stock-kernel`: {needs}");
    }
    there
}

pub(crate) struct Scene {
    prefix: String,
    program: PathBuf,
    folder: tempfile::TempDir,
    nodes: &'static [&'static str],
    processes: Vec<Option<Process>>,
}

impl Scene {
    /// Machines of these names. `None` where there is no program to test, no root, or not all of these other programs.
    pub(crate) fn new(nodes: &'static [&'static str], others: &[&str]) -> Option<Self> {
        let program = crate::program(others)?;
        let folder = tempfile::tempdir().expect("a folder");
        let scene = Scene { prefix: lab::prefix::unique(), program, folder, nodes, processes: Vec::new() };
        for name in nodes {
            scene.node(name).create().expect("a namespace");
        }
        Some(scene)
    }

    pub(crate) fn node(&self, name: &str) -> Namespace {
        Namespace::named(format!("{}-{name}", self.prefix))
    }

    /// A link between `here`'s interface and `there`'s.
    pub(crate) fn link(&self, (here, interface): (&str, &str), (there, other): (&str, &str)) {
        let [one, two] = [here, there].map(|name| self.node(name).name().to_owned());
        self.ip(
            here,
            &format!("link add name {interface} netns {one} type veth peer name {other} netns {two}"),
        );
        self.ip(here, &format!("link set dev {interface} up"));
        self.ip(there, &format!("link set dev {other} up"));
    }

    /// Commands of `ip`, a line each.
    pub(crate) fn ip(&self, node: &str, lines: &str) {
        self.node(node).ip(&format!("{lines}\n")).expect("what `ip` takes");
    }

    /// A tunnel's name: all namespaces have their control sockets in one folder.
    pub(crate) fn tunnel(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only its owner may read, and run.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
        if text.starts_with("#!") {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("a script");
        }
        path
    }

    /// Makes a private key in a file; the public one.
    pub(crate) fn key(&self, name: &str) -> String {
        let private = Command::new(&self.program).arg("genkey").output().expect("a key").stdout;
        let path = self.write(name, &String::from_utf8(private).expect("text"));
        let file = std::fs::File::open(path).expect("a file");
        let public = Command::new(&self.program).arg("pubkey").stdin(file).output().expect("a key").stdout;
        String::from_utf8(public).expect("text").trim().to_owned()
    }

    /// Starts something that lasts, in the folder of the scene; its number.
    pub(crate) fn start(&mut self, node: &str, words: &[&str]) -> usize {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        command.args(&words[1..]).current_dir(self.folder.path());
        let process = Process::start(&mut command, &self.path(&format!("{node}.log")));
        self.processes.push(Some(process.expect("a program that starts")));
        self.processes.len() - 1
    }

    /// Ends what has this number, as kill -9 does.
    pub(crate) fn end(&mut self, number: usize) {
        self.processes[number].take().expect("what was not ended yet").kill();
    }

    pub(crate) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// Runs the program with the configuration `NODE.toml`.
    pub(crate) fn up(&mut self, node: &str) {
        let (program, configuration, state) =
            (self.program(), format!("{node}.toml"), format!("{node}.state"));
        self.start(node, &[&program, "up", &configuration, "--state-dir", &state]);
    }

    /// What the programs of a node have written.
    pub(crate) fn log(&self, node: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{node}.log"))).unwrap_or_default()
    }

    /// Runs a command; what it wrote to both outputs.
    pub(crate) fn run(&self, node: &str, words: &[&str]) -> String {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        let output = command.args(&words[1..]).output().expect("a command that starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    pub(crate) fn answers(&self, node: &str, address: &str) -> bool {
        self.run(node, &["ping", "-c", "1", "-W", "1", address]).contains(" 0% packet loss")
    }

    /// Pings fifty times a second while something is done, and for so long afterwards; how many were lost, and the longest
    /// time between two answers.
    pub(crate) fn ping_while(
        &self,
        node: &str,
        address: &str,
        seconds: u32,
        meanwhile: impl FnOnce(),
    ) -> (usize, Duration) {
        let count = (seconds * 50).to_string();
        let mut command = self.node(node).command("ping").expect("the namespace");
        let ping = command
            .args(["-n", "-D", "-i", "0.02", "-c", &count, "-W", "2", address])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ping");
        meanwhile();
        let text = String::from_utf8(ping.wait_with_output().expect("a report").stdout).expect("text");
        let times: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("bytes from"))
            .filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse().ok())
            .collect();
        let pause = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        (seconds as usize * 50 - times.len(), Duration::from_secs_f64(pause))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in self.nodes {
                eprintln!("{node}:\n{}", self.log(node));
            }
        }
        for process in self.processes.drain(..).flatten() {
            process.stop(Duration::from_secs(5));
        }
        for name in self.nodes {
            let _ = self.node(name).delete();
        }
    }
}
