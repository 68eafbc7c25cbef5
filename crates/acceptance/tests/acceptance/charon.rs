//! strongSwan as Debian has it: charon in a namespace, and swanctl, which tells it what to do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::Process;

/// The daemon.
pub(crate) const CHARON: &str = "/usr/lib/ipsec/charon";
/// What swanctl reads keys and certificates with.
const OF_SWANCTL: &str = "random openssl pem pkcs1 pkcs8 x509 pubkey";

/// Writes what it reads into a folder: its plugins, lines of its section of strongswan.conf, and swanctl.conf.
pub(crate) fn configure(folder: &Path, plugins: &str, settings: &str, connections: &str) {
    let general = format!(
        "charon {{\n {settings}\n filelog {{ stderr {{ default = 1\n ike = 2 }} }}\n \
         plugins {{ vici {{ socket = {} }} }}\n load = {plugins}\n}}\nswanctl {{ load = {OF_SWANCTL} }}\n",
        socket(folder)
    );
    for (name, text) in [("strongswan.conf", general.as_str()), ("swanctl.conf", connections)] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
}

/// What swanctl is asked for; to be run.
pub(crate) fn swanctl(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("swanctl");
    command
        .args(words)
        .args(["--uri", &socket(folder)])
        .env("STRONGSWAN_CONF", folder.join("strongswan.conf"))
        .env("SWANCTL_DIR", folder);
    command
}

fn socket(folder: &Path) -> String {
    format!("unix://{}", folder.join("vici").display())
}

/// It is at work for as long as this is there.
pub(crate) struct Charon {
    process: Option<Process>,
    log: PathBuf,
}

impl Charon {
    /// Starts it with what is in a folder. What it says goes there, too.
    pub(crate) fn start(namespace: &Namespace, folder: &Path) -> Self {
        let log = folder.join("charon.log");
        let mut command = namespace.command(CHARON).expect("the namespace");
        command.env("STRONGSWAN_CONF", folder.join("strongswan.conf"));
        let process = Some(Process::start(&mut command, &log).expect("strongSwan"));
        let connections = folder.join("swanctl.conf").display().to_string();
        wait_until("strongSwan", || {
            let loaded = swanctl(folder, &["--load-all", "--file", &connections]).output();
            loaded.expect("swanctl").status.success()
        });
        Self { process, log }
    }

    /// All that it has said, of those before it in this folder, too.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// It alone, for who ends it by himself.
    pub(crate) fn into_process(mut self) -> Process {
        self.process.take().expect("it is at work")
    }

    /// Kills it, as kill -9 does.
    pub(crate) fn kill(mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
        // What says that it is at work.
        let _ = std::fs::remove_file("/run/charon.pid");
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Duration::from_secs(10));
        }
    }
}
