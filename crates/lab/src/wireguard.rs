//! wireguard-go in the gateways of a baseline lab, to compare with: configured over its own control socket, so
//! that no other tool is needed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::command::{check, check_with_input, text};
use crate::lab::Lab;
use crate::process::{Process, tail};
use crate::topology::Site;

const PORT: u16 = 51_820;

/// Inner MTU: 1500 less IPv6, UDP and WireGuard's own 32 bytes.
const MTU: u16 = 1_420;

/// The two running tunnels.
#[derive(Debug)]
pub(crate) struct WireGuard {
    processes: Vec<Process>,
    sockets: Vec<PathBuf>,
}

impl WireGuard {
    /// Where the program is: as told, or on the path under its own name or the one that `go install` gives it.
    pub(crate) fn find(told: Option<&Path>) -> Option<PathBuf> {
        if let Some(path) = told {
            return path.is_file().then(|| path.to_owned());
        }
        let path = std::env::var_os("PATH")?;
        let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let candidates = directories.iter().map(|directory| directory.join("wireguard-go"));
        candidates.into_iter().find(|candidate| candidate.is_file())
    }

    /// Starts one in each gateway, and routes the inner networks through them.
    pub(crate) fn start(lab: &Lab, program: &Path) -> Result<Self, Error> {
        let private = [generate_key(lab)?, generate_key(lab)?];
        let public = [public_key(lab, &private[0])?, public_key(lab, &private[1])?];
        let mut tunnels = Self { processes: Vec::new(), sockets: Vec::new() };
        for site in [Site::A, Site::B] {
            let other = site.other();
            let name = format!("wg-{}-{}", std::process::id() % 100_000, site.letter());
            let log = lab.directory().join(format!("{name}.log"));
            let mut command = lab.command(site.gateway(), program)?;
            command.args(["-f", &name]).env("WG_PROCESS_FOREGROUND", "1");
            tunnels.processes.push(Process::start(&mut command, &log)?);
            let socket = Path::new("/var/run/wireguard").join(format!("{name}.sock"));
            tunnels.sockets.push(socket.clone());
            let [v6, v4] = other.inner_prefixes();
            configure(
                &socket,
                &log,
                &format!(
                    "set=1\nprivate_key={}\nlisten_port={PORT}\npublic_key={}\nendpoint=[2001:db8:f{}::2]:{PORT}\n\
                 allowed_ip={v6}\nallowed_ip={v4}\n\n",
                    private[site as usize],
                    public[other as usize],
                    other.letter()
                ),
            )?;
            lab.namespace(site.gateway()).ip(&format!(
                "link set dev {name} mtu {MTU} up\nroute replace {v6} dev {name}\nroute replace {v4} dev {name}\n"
            ))?;
        }
        Ok(tunnels)
    }

    /// Ends both.
    pub(crate) fn stop(self) {
        for process in self.processes {
            process.stop(Duration::from_secs(2));
        }
        for socket in self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Sends a request over the control socket, once there is one.
fn configure(socket: &Path, log: &Path, request: &str) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(source) => return Err(Error::output("wireguard-go", format!("{source}: {}", tail(log)))),
        }
    };
    let failed = |source| Error::system("wireguard-go's control socket", source);
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    stream.shutdown(std::net::Shutdown::Write).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    if answer.contains("errno=0") { Ok(()) } else { Err(Error::output("wireguard-go", answer)) }
}

/// A key as the control socket wants it: hexadecimal.
fn generate_key(lab: &Lab) -> Result<String, Error> {
    hex(&text(&check(Command::new(lab.program()).arg("genkey"))?))
}

fn public_key(lab: &Lab, private: &str) -> Result<String, Error> {
    let bytes: Vec<u8> = (0..private.len() / 2)
        .filter_map(|at| u8::from_str_radix(&private[2 * at..2 * at + 2], 16).ok())
        .collect();
    let output = check_with_input(Command::new(lab.program()).arg("pubkey"), &STANDARD.encode(bytes))?;
    hex(&text(&output))
}

fn hex(base64: &str) -> Result<String, Error> {
    let bytes = STANDARD.decode(base64).map_err(|error| Error::output("sidestep genkey", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
