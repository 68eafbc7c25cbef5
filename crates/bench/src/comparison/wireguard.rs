//! WireGuard in user space: wireguard-go, boringtun and gotatun. All three are started with the name of a device and
//! configured over the control socket that belongs to it, so that no other tool is needed.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::comparison::contender::{Contender, not_installed};
use crate::comparison::sidestep::stranger_key;
use lab::Error;
use lab::Lab;
use lab::command::{check, check_with_input, find, run, text};
use lab::process::{Process, tail};
use lab::topology::{Site, Topology};

/// The port of both gateways.
pub(crate) const PORT: u16 = 51_820;

/// Inner MTU: 1500 less IPv6, UDP and WireGuard's own 32 bytes.
pub(crate) const MTU: u16 = 1_420;

/// The same where 6in4 is in between: WireGuard does not find out by itself.
const MTU_OVER_6IN4: u16 = MTU - 20;

/// How long a program may take to make its control socket, and to answer there.
const PATIENCE: Duration = Duration::from_secs(20);

/// One implementation, with its two running processes.
#[derive(Debug)]
pub(crate) struct WireGuard {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    processes: Vec<Process>,
    sockets: Vec<PathBuf>,
}

impl WireGuard {
    /// Those that we know to start.
    pub(crate) fn implementations() -> Vec<Self> {
        let one = |name, program, arguments| Self {
            name,
            program,
            arguments,
            processes: Vec::new(),
            sockets: Vec::new(),
        };
        vec![
            one("wireguard-go", "wireguard-go", &[]),
            one("boringtun", "boringtun-cli", &["--disable-drop-privileges"]),
            one("gotatun", "gotatun", &["--disable-drop-privileges"]),
        ]
    }
}

impl Contender for WireGuard {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        let output = find(self.program).and_then(|program| run(Command::new(program).arg("--version")).ok());
        let said = output.map(|output| text(&output)).unwrap_or_default();
        let version = said.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default();
        format!(
            "WireGuard in user space ({} {version}), ChaCha20-Poly1305, MTU {MTU} ({MTU_OVER_6IN4} over 6in4)",
            self.program
        )
    }

    fn missing(&self) -> Option<String> {
        find(self.program).is_none().then(|| not_installed(self.program, self.name))
    }

    fn start(&mut self, lab: &mut Lab, strangers: u32) -> Result<(), Error> {
        let program =
            find(self.program).ok_or_else(|| Error::Usage(not_installed(self.program, self.name)))?;
        let keys = [Keys::generate(lab)?, Keys::generate(lab)?];
        for site in [Site::A, Site::B] {
            let device = format!("{}-{}", lab.prefix(), site.letter());
            let log = lab.directory().join(format!("{device}.log"));
            let socket = Path::new("/var/run/wireguard").join(format!("{device}.sock"));
            // Of an earlier one that was killed.
            let _ = std::fs::remove_file(&socket);
            let mut command = lab.command(site.gateway(), &program)?;
            command.args(["-f", &device]).args(self.arguments).env("WG_PROCESS_FOREGROUND", "1");
            self.processes.push(Process::start(&mut command, &log)?);
            self.sockets.push(socket.clone());
            let mut request = request(site, &keys, lab.topology());
            if site == Site::A {
                request.push_str(&peers(strangers));
            }
            configure(self.name, &socket, &log, &request)?;
            let over_6in4 = lab.topology() == Topology::Tunneled;
            route_through(lab, site, &device, if over_6in4 { MTU_OVER_6IN4 } else { MTU })?;
        }
        Ok(())
    }

    fn stop(&mut self, _: &mut Lab) {
        for process in self.processes.drain(..) {
            process.stop(Duration::from_secs(2));
        }
        for socket in self.sockets.drain(..) {
            let _ = std::fs::remove_file(socket);
        }
    }

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        let ids: Vec<u32> = self.processes.iter().map(Process::id).collect();
        ids.try_into().ok()
    }

    fn has_peers(&self) -> bool {
        true
    }
}

/// Sets a tunnel's device up, and the way to the other site's networks through it.
pub(crate) fn route_through(lab: &Lab, site: Site, device: &str, mtu: u16) -> Result<(), Error> {
    let [v6, v4] = site.other().inner_prefixes();
    lab.namespace(site.gateway()).ip(&format!(
        "link set dev {device} mtu {mtu} up\nroute replace {v6} dev {device}\nroute replace {v4} dev {device}\n"
    ))
}

/// A gateway's keys, base64.
pub(crate) struct Keys {
    pub(crate) private: String,
    pub(crate) public: String,
}

impl Keys {
    /// Ours are WireGuard's kind: X25519.
    pub(crate) fn generate(lab: &Lab) -> Result<Self, Error> {
        let private = text(&check(Command::new(lab.program()).arg("genkey"))?);
        let public = check_with_input(Command::new(lab.program()).arg("pubkey"), &format!("{private}\n"))?;
        Ok(Self { private, public: text(&public) })
    }
}

fn request(site: Site, keys: &[Keys; 2], topology: Topology) -> String {
    let other = site.other();
    let [v6, v4] = other.inner_prefixes();
    format!(
        "set=1\nprivate_key={}\nlisten_port={PORT}\npublic_key={}\nendpoint=[{}]:{PORT}\n\
         allowed_ip={v6}\nallowed_ip={v4}\n",
        hex(&keys[site as usize].private),
        hex(&keys[other as usize].public),
        other.outer(topology)
    )
}

/// Peers who will never answer.
fn peers(count: u32) -> String {
    let mut text = String::new();
    for number in 1..=count {
        let key = hex(&STANDARD.encode(stranger_key(number)));
        let _ = write!(
            text,
            "public_key={key}\nendpoint=[2001:db8:b1:{number:x}::1]:{PORT}\nallowed_ip=2001:db8:c:{number:x}::/64\n"
        );
    }
    text
}

/// Sends a request over the control socket, once there is one.
fn configure(name: &str, socket: &Path, log: &Path, request: &str) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(source) => return Err(Error::output(name, format!("{source}: {}", tail(log)))),
        }
    };
    let failed = |source| Error::system(format!("{name}'s control socket"), source);
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    if answer.contains("errno=0") { Ok(()) } else { Err(Error::output(name, answer)) }
}

/// A key as the control socket wants it.
fn hex(base64: &str) -> String {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
