//! The classic profile in the gateways of a lab: ours, or the reference in Python. One stream, between the two hosts.
//!
//! The lab is one without a tunnel: its routers route the hosts' networks to the gateways, and with them what the hosts
//! are hashed to.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Error;
use crate::command::check;
use crate::gateway::{classic_stream, session_key, write_private};
use crate::lab::Lab;
use crate::process::{Process, tail};
use crate::topology::Site;

/// The devices of the program and of the reference.
const DEVICES: [&str; 2] = ["classic-c", "classic"];
/// How long making the device may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Until both ends have routes of each other's interval.
const SETTLE: Duration = Duration::from_secs(2);

/// How the stream is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// As the configuration has it: `none`, `aes-256-cbc` or `aes-128-cbc`.
    pub cipher: String,
    /// Rotation interval, whole seconds.
    pub rotation: u32,
    /// Interval and window of key exchanges, seconds; none are made without.
    pub key_exchange: Option<(u32, u32)>,
    /// As the configuration has it: `encapsulate` or `rewrite`. The reference knows the first alone.
    pub carry: &'static str,
    /// As the configuration has it: `auto`, `off` or `required`. The reference has no such thing.
    pub kernel: &'static str,
    /// More arguments for `sidestep up`.
    pub arguments: &'static [&'static str],
    /// The node in Python, in place of the program; the folder that it is in.
    pub reference: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            cipher: "none".into(),
            rotation: 10,
            key_exchange: None,
            carry: "encapsulate",
            kernel: "off",
            arguments: &[],
            reference: None,
        }
    }
}

/// Both ends, running.
#[derive(Debug)]
pub struct ClassicNodes {
    processes: [Process; 2],
    sockets: [PathBuf; 2],
}

impl ClassicNodes {
    /// Starts both, and waits until they can carry packets.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start(lab: &Lab, settings: &Settings) -> Result<Self, Error> {
        let sockets = [Site::A, Site::B].map(|site| file(lab, site, "sock"));
        let processes = [start(lab, Site::A, settings)?, start(lab, Site::B, settings)?];
        std::thread::sleep(SETTLE);
        Ok(ClassicNodes { processes, sockets })
    }

    /// Ends both.
    pub fn stop(self) {
        for process in self.processes {
            process.stop(Duration::from_secs(3));
        }
    }

    /// Their process ids, A and B.
    pub fn ids(&self) -> [u32; 2] {
        self.processes.each_ref().map(Process::id)
    }

    /// What `sidestep show --json` says at a site; the reference has no such thing.
    ///
    /// # Errors
    /// When the program does not answer.
    pub fn show(&self, lab: &Lab, site: Site) -> Result<Value, Error> {
        let mut command = Command::new(lab.program());
        command.args(["show", "--json", "--socket"]).arg(&self.sockets[site as usize]);
        let output = check(&mut command)?;
        serde_json::from_slice(&output.stdout).map_err(|error| Error::output("sidestep show", error))
    }

    /// What one of them has logged.
    pub fn log(&self, site: Site) -> String {
        std::fs::read_to_string(self.processes[site as usize].log()).unwrap_or_default()
    }
}

fn file(lab: &Lab, site: Site, kind: &str) -> PathBuf {
    lab.directory().join(format!("classic-{}.{kind}", site.letter()))
}

fn start(lab: &Lab, site: Site, settings: &Settings) -> Result<Process, Error> {
    let (log, device) = (file(lab, site, "log"), DEVICES[usize::from(settings.reference.is_some())]);
    let mut command = match &settings.reference {
        Some(folder) => reference(lab, site, settings, folder)?,
        None => program(lab, site, settings)?,
    };
    let process = Process::start(&mut command, &log)?;
    let deadline = Instant::now() + PATIENCE;
    while !lab.exec(site.gateway(), ["ip", "link", "show", "dev", device])?.status.success() {
        if Instant::now() > deadline {
            return Err(Error::output(device, format!("there is no such device: {}", tail(&log))));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(process)
}

fn program(lab: &Lab, site: Site, settings: &Settings) -> Result<Command, Error> {
    let Settings { cipher, rotation, key_exchange, carry, kernel, .. } = settings;
    let [own, other] = [site, site.other()].map(Site::host);
    let exchange = key_exchange.map_or("key_exchange = \"off\"\n".to_owned(), |(interval, window)| {
        format!("key_exchange = \"{interval}s\"\nkey_exchange_window = \"{window}s\"\n")
    });
    let text = format!(
        "[node]\nexternal = \"ex\"\n\n[tunnel]\nname = \"classic\"\nopen_when_down = true\n\n[[peer]]\nname = \"other\"\n{}\
         cipher = \"{cipher}\"\nrotation = \"{rotation}s\"\ncarry = \"{carry}\"\nkernel = \"{kernel}\"\n{exchange}",
        classic_stream(own, other)
    );
    let path = file(lab, site, "toml");
    write_private(&path, &text)?;
    let mut command = lab.command(site.gateway(), lab.program())?;
    command.arg("up").arg(&path).arg("--state-dir").arg(lab.directory().join(site.letter().to_string()));
    command.arg("--socket").arg(file(lab, site, "sock")).args(settings.arguments);
    Ok(command)
}

/// The node in Python, with its files in a folder of their own.
fn reference(lab: &Lab, site: Site, settings: &Settings, reference: &Path) -> Result<Command, Error> {
    let Settings { cipher, rotation, key_exchange, .. } = settings;
    let folder = file(lab, site, "files");
    std::fs::create_dir_all(&folder).map_err(|source| Error::file(&folder, source))?;
    let [own, other] = [site, site.other()].map(Site::host);
    let (encrypt, crypt_type) =
        if cipher == "none" { ("false", "aes-256-cbc") } else { ("true", cipher.as_str()) };
    let (interval, window) = key_exchange.unwrap_or((86_400, 1));
    let files = [
        ("users", format!("own {own}\nother {other}\n")),
        ("ethers", String::new()),
        ("profiles", format!("own other {}\n", session_key())),
        (
            "mt6d.ini",
            format!(
                "internal_nic = classic\nexternal_nic = ex\nrotation_time = {rotation}\nencrypt = {encrypt}\n\
                 crypt_type = {crypt_type}\nregen_interval = {interval}\nregen_window = {window}\n"
            ),
        ),
    ];
    for (name, text) in &files {
        write_private(&folder.join(name), text)?;
    }
    let mut command = lab.command(site.gateway(), "python3")?;
    command.args(["-B", "-m", "classic"]).arg(folder.join("mt6d.ini")).current_dir(reference);
    Ok(command)
}
