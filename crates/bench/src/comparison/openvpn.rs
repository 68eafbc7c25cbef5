//! OpenVPN between two peers: TLS with certificates that are pinned, AES-256-GCM, UDP over IPv6.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::comparison::contender::{Contender, not_installed};
use crate::comparison::wireguard::route_through;
use lab::Error;
use lab::Lab;
use lab::command::{check, find, run, text};
use lab::process::{Process, tail};
use lab::topology::Site;

const PORT: u16 = 1_194;

/// Inner MTU: 1500 less IPv6, UDP and OpenVPN's own 24 bytes is 1428; this is what WireGuard has.
const MTU: u16 = 1_420;

/// The device, in both gateways.
const DEVICE: &str = "ovpn0";

/// How long making the device may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The two running processes.
#[derive(Debug, Default)]
pub(crate) struct OpenVpn {
    processes: Vec<Process>,
}

impl Contender for OpenVpn {
    fn name(&self) -> &str {
        "openvpn"
    }

    fn about(&self) -> String {
        let said = find("openvpn").and_then(|program| run(Command::new(program).arg("--version")).ok());
        let said = said.map(|output| text(&output)).unwrap_or_default();
        let version = said.split_whitespace().nth(1).unwrap_or_default();
        format!("OpenVPN {version}, AES-256-GCM over UDP, in user space, MTU {MTU}")
    }

    fn missing(&self) -> Option<String> {
        let missing = ["openvpn", "openssl"].into_iter().find(|program| find(program).is_none())?;
        Some(not_installed(missing, "openvpn"))
    }

    fn start(&mut self, lab: &mut Lab, _: u32) -> Result<(), Error> {
        let directory = lab.directory();
        let fingerprints = [certificate(&directory, Site::A)?, certificate(&directory, Site::B)?];
        for site in [Site::A, Site::B] {
            let path = directory.join(format!("openvpn-{}.conf", site.letter()));
            let text = configuration(&directory, site, &fingerprints[site.other() as usize]);
            std::fs::write(&path, text).map_err(|source| Error::file(&path, source))?;
            let mut command = lab.command(site.gateway(), "openvpn")?;
            let log = path.with_extension("log");
            self.processes.push(Process::start(command.arg("--config").arg(&path), &log)?);
            wait_for_device(lab, site, &log)?;
            route_through(lab, site, DEVICE, MTU)?;
        }
        Ok(())
    }

    fn stop(&mut self, _: &mut Lab) {
        for process in self.processes.drain(..) {
            process.stop(Duration::from_secs(3));
        }
    }

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        let ids: Vec<u32> = self.processes.iter().map(Process::id).collect();
        ids.try_into().ok()
    }
}

/// Makes a key and a certificate that it signs itself; the certificate's fingerprint.
fn certificate(directory: &Path, site: Site) -> Result<String, Error> {
    let file = |kind: &str| directory.join(format!("openvpn-{}.{kind}", site.letter()));
    let (key, certificate) = (file("key"), file("crt"));
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    make.args(["-days", "2", "-subj", &format!("/CN=gateway-{}", site.letter()), "-keyout"]);
    check(make.arg(key).arg("-out").arg(&certificate))?;
    let mut ask = Command::new("openssl");
    let said = check(ask.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(certificate))?;
    let said = text(&said);
    said.split_once('=')
        .map(|(_, fingerprint)| fingerprint.to_owned())
        .ok_or_else(|| Error::output("openssl x509", said))
}

fn configuration(directory: &Path, site: Site, peer: &str) -> String {
    let (own, other) = (site.letter(), site.other().letter());
    let role = match site {
        Site::A => "tls-client",
        Site::B => "tls-server\ndh none",
    };
    // Larger buffers than the kernel's usual ones, which its manual recommends for speed.
    format!(
        "{role}\ndev {DEVICE}\ndev-type tun\nproto udp6\nlport {PORT}\nremote 2001:db8:f{other}::2 {PORT}\n\
         cert {directory}/openvpn-{own}.crt\nkey {directory}/openvpn-{own}.key\npeer-fingerprint \"{peer}\"\n\
         data-ciphers AES-256-GCM\ndisable-dco\ntun-mtu {MTU}\nmssfix 0\nsndbuf 4194304\nrcvbuf 4194304\n\
         txqueuelen 1000\nfast-io\nkeepalive 10 60\nverb 3\n",
        directory = directory.display()
    )
}

fn wait_for_device(lab: &Lab, site: Site, log: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while !lab.exec(site.gateway(), ["ip", "link", "show", "dev", DEVICE])?.status.success() {
        if Instant::now() > deadline {
            return Err(Error::output("openvpn", format!("it made no device: {}", tail(log))));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
