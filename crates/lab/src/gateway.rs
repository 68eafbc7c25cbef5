//! A gateway of the lab: its configuration file and its `sidestep up` process.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::Error;
use crate::builder::{Builder, Gateways, Profile};
use crate::command::{check, check_with_input, text};
use crate::namespaces::Namespace;
use crate::patience::patience;
use crate::process::{Process, tail};
use crate::topology::{Site, Topology};
use crate::transparent;

/// The two key pairs and the pre-shared key of a lab, base64.
#[derive(Debug)]
pub(crate) struct Keys {
    private: [String; 2],
    public: [String; 2],
    preshared: Option<String>,
}

impl Keys {
    /// Has the program make them.
    pub(crate) fn generate(options: &Builder) -> Result<Self, Error> {
        let make =
            |command: &str| check(Command::new(&options.program).arg(command)).map(|output| text(&output));
        let private = [make("genkey")?, make("genkey")?];
        let public = |private: &str| {
            check_with_input(Command::new(&options.program).arg("pubkey"), &format!("{private}\n"))
                .map(|output| text(&output))
        };
        let public = [public(&private[0])?, public(&private[1])?];
        let preshared = if options.preshared { Some(make("genpsk")?) } else { None };
        Ok(Self { private, public, preshared })
    }
}

/// One gateway: stopped, or running as a process of its own.
#[derive(Debug)]
pub struct Gateway {
    site: Site,
    namespace: Namespace,
    program: PathBuf,
    configuration: PathBuf,
    log: PathBuf,
    tunnel: String,
    arguments: Vec<String>,
    state: PathBuf,
    process: Option<Process>,
}

impl Gateway {
    /// The gateway of a site, not started.
    pub(crate) fn new(options: &Builder, site: Site) -> Self {
        let directory = options.directory();
        Self {
            site,
            namespace: options.namespace(site.gateway()),
            program: options.program.clone(),
            configuration: directory.join(format!("gateway-{}.toml", site.letter())),
            log: directory.join(format!("gateway-{}.log", site.letter())),
            tunnel: tunnel_name(&options.prefix, site),
            arguments: Vec::new(),
            state: directory.join(format!("state-{}", site.letter())),
            process: None,
        }
    }

    /// Writes its configuration file.
    pub(crate) fn configure(&self, options: &Builder, keys: &Keys) -> Result<(), Error> {
        write_private(&self.configuration, &configuration(options, keys, self.site, &self.tunnel))
    }

    /// Its configuration file, which a test may change before a start or a reload.
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// Adds a table to its configuration file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn add_table(&self, text: &str) -> Result<(), Error> {
        let path = &self.configuration;
        let failed = |source| Error::file(path, source);
        let own = std::fs::read_to_string(path).map_err(failed)?;
        std::fs::write(path, format!("{own}\n{text}")).map_err(failed)
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The name of its TUN device, and of its control socket `/run/sidestep/NAME.sock`.
    pub fn tunnel(&self) -> &str {
        &self.tunnel
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Sets further arguments of `sidestep up` for the following starts (its test-only switches).
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
    }

    /// Starts it and waits until it answers on its control socket.
    ///
    /// # Errors
    /// When it ends or stays silent; the error shows the end of its log.
    pub fn start(&mut self) -> Result<(), Error> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut process = self.spawn()?;
        let deadline = Instant::now() + patience();
        loop {
            if let Some(status) = process.ended() {
                return Err(self.failure(format!("ended while starting ({status})")));
            }
            // The socket of an earlier run may still be there: only an answer counts.
            if self.show().is_ok() {
                self.process = Some(process);
                return Ok(());
            }
            if Instant::now() > deadline {
                process.kill();
                return Err(self.failure("does not answer on its control socket".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it, and waits for nothing.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn launch(&mut self) -> Result<(), Error> {
        if self.process.is_none() {
            self.process = Some(self.spawn()?);
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Process, Error> {
        let mut command = self.namespace.command(&self.program)?;
        command.arg("up").arg(&self.configuration).arg("--state-dir").arg(&self.state).args(&self.arguments);
        Process::start(&mut command, &self.log)
    }

    /// Ends it (SIGTERM, then SIGKILL) and says whether it ended by itself with success.
    pub fn stop(&mut self) -> bool {
        self.process.take().is_none_or(|process| process.stop(patience()).success())
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops and starts it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&mut self) -> Result<(), Error> {
        self.stop();
        self.start()
    }

    /// Sends it a signal, such as SIGHUP to read its configuration again.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Its exit status, when it has ended without being told to.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.as_mut().and_then(Process::ended)
    }

    /// What `sidestep show --json` says.
    ///
    /// # Errors
    /// When it does not run or the answer is not JSON.
    pub fn show(&self) -> Result<Value, Error> {
        let socket = format!("/run/sidestep/{}.sock", self.tunnel);
        let output = check(Command::new(&self.program).args(["show", "--json", "--socket", &socket]))?;
        serde_json::from_slice(&output.stdout).map_err(|error| Error::output("sidestep show --json", error))
    }

    /// An error with the end of the gateway's log.
    pub fn failure(&self, what: String) -> Error {
        Error::Gateway { site: self.site.letter(), what, log: tail(&self.log) }
    }
}

/// A device name that no other lab uses: control sockets lie in one directory for all namespaces. At most 15
/// characters, as the kernel wants.
fn tunnel_name(prefix: &str, site: Site) -> String {
    let letter = site.letter();
    if prefix == Builder::DEFAULT_PREFIX { format!("mt6d-{letter}") } else { format!("{prefix}-{letter}") }
}

fn configuration(options: &Builder, keys: &Keys, site: Site, tunnel: &str) -> String {
    let mtu = options.tunnel_mtu.map_or(String::new(), |mtu| format!("mtu = {mtu}\n"));
    let threads = options.threads.map_or(String::new(), |threads| format!("threads = {threads}\n"));
    format!(
        "[node]\n{}\n[tunnel]\nname = \"{tunnel}\"\n{mtu}{threads}\n[[peer]]\nname = \"site-{}\"\nrotation = \"{}\"\n{}",
        node(options, keys, site),
        site.other().letter(),
        options.rotation,
        peer(options, keys, site),
    )
}

/// What it says of its own place.
fn node(options: &Builder, keys: &Keys, site: Site) -> String {
    let place = match options.gateways {
        Gateways::Transparent => transparent::node(site, options.topology),
        Gateways::Routing => "external = \"ex\"\n".into(),
    };
    // The classic profile hops in the hosts' network, and has a key for each pair of hosts.
    if options.profile == Profile::Classic {
        return place;
    }
    let on_link = match options.gateways {
        Gateways::Transparent => String::new(),
        Gateways::Routing => format!("on_link = {}\n", options.topology == Topology::Switched),
    };
    let (private, hop) = (&keys.private[site as usize], hop_prefix(options, site));
    format!("{place}private_key = \"{private}\"\nhop_prefix = \"{hop}\"\n{on_link}")
}

/// What it says of the peer.
fn peer(options: &Builder, keys: &Keys, site: Site) -> String {
    let other = site.other();
    let transparent = options.gateways == Gateways::Transparent;
    let host = |site: Site| if transparent { transparent::host(site, options.topology) } else { site.host() };
    if options.profile == Profile::Classic {
        return classic_stream(host(site), host(other)) + "key_exchange = \"off\"\n";
    }
    let preshared =
        keys.preshared.as_ref().map_or(String::new(), |key| format!("preshared_key = \"{key}\"\n"));
    let [v6, v4] = other.inner_prefixes();
    let allowed = match (transparent, options.carry == "mask") {
        (true, _) => format!("\"{}/128\"", host(other)),
        (false, false) => format!("\"{v6}\", \"{v4}\""),
        (false, true) => String::new(),
    };
    format!(
        "public_key = \"{public}\"\n{preshared}hop_prefix = \"{hop}\"\nallowed_ips = [{allowed}]\n\
         lanes = {lanes}\npadding = \"{padding}\"\nshape = {shape}\ncarry = \"{carry}\"\n",
        public = keys.public[other as usize],
        hop = hop_prefix(options, other),
        lanes = options.lanes,
        padding = options.padding,
        shape = options.shape,
        carry = options.carry,
    )
}

fn hop_prefix(options: &Builder, site: Site) -> String {
    match options.gateways {
        Gateways::Transparent => transparent::hop_prefix(site, options.topology),
        Gateways::Routing => site.hop_prefix().into(),
    }
}

/// What a peer of the classic profile is: a stream between two hosts.
pub(crate) fn classic_stream(own: IpAddr, other: IpAddr) -> String {
    format!(
        "profile = \"classic\"\nlocal_address = \"{own}\"\nremote_address = \"{other}\"\nsession_key = \"{}\"\n",
        session_key()
    )
}

/// The hosts' session key: anything does.
pub(crate) fn session_key() -> String {
    "5a".repeat(64)
}

/// Writes a file that only its owner can read: it holds a private key.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| Error::file(path, source))
}
