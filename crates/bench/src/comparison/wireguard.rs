//! WireGuard in user space: wireguard-go, boringtun and gotatun.

use std::fmt::Write as _;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::comparison::contender::{Contender, KNOWN, not_installed};
use crate::comparison::sidestep::stranger_key;
use crate::wireguard::{End, Keys, MTU, PORT, hex, request};
use lab::Error;
use lab::Lab;
use lab::command::{find, run, text};
use lab::topology::{Site, Topology};

/// The same where 6in4 is in between: WireGuard does not find out by itself.
const MTU_OVER_6IN4: u16 = MTU - 20;

/// One implementation, with its two running processes.
#[derive(Debug)]
pub(crate) struct WireGuard {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    ends: Vec<End>,
}

impl WireGuard {
    /// Those that we know to start.
    pub(crate) fn implementations() -> Vec<Self> {
        vec![
            Self::known(),
            Self::of("boringtun", "boringtun-cli", &["--disable-drop-privileges"]),
            Self::of("gotatun", "gotatun", &["--disable-drop-privileges"]),
        ]
    }

    /// The one that a reader knows best.
    pub(crate) fn known() -> Self {
        Self::of(KNOWN, KNOWN, &[])
    }

    fn of(name: &'static str, program: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { name, program, arguments, ends: Vec::new() }
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
        let keys = [Keys::generate(lab.program())?, Keys::generate(lab.program())?];
        for site in [Site::A, Site::B] {
            let (device, other) = (device(lab, site), site.other());
            let endpoint = other.outer(lab.topology());
            let mut request =
                request(&keys[site as usize], &keys[other as usize], &endpoint, other.inner_prefixes());
            if site == Site::A {
                request.push_str(&peers(strangers));
            }
            let mut command = lab.command(site.gateway(), &program)?;
            command.args(self.arguments);
            self.ends.push(End::start(command, &device, &lab.directory(), &request)?);
            let over_6in4 = lab.topology() == Topology::Tunneled;
            route_through(lab, site, &device, if over_6in4 { MTU_OVER_6IN4 } else { MTU })?;
        }
        Ok(())
    }

    fn device(&self, lab: &Lab, site: Site) -> Option<String> {
        Some(device(lab, site))
    }

    fn stop(&mut self, _: &mut Lab) {
        self.ends.clear();
    }

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        let ids: Vec<u32> = self.ends.iter().filter_map(End::id).collect();
        ids.try_into().ok()
    }

    fn has_peers(&self) -> bool {
        true
    }
}

/// A name that is no tunnel's of ours: control sockets of all namespaces are in one folder.
fn device(lab: &Lab, site: Site) -> String {
    format!("{}w{}", lab.prefix(), site.letter())
}

/// Sets a tunnel's device up, and the way to the other site's networks through it.
pub(crate) fn route_through(lab: &Lab, site: Site, device: &str, mtu: u16) -> Result<(), Error> {
    let [v6, v4] = site.other().inner_prefixes();
    lab.namespace(site.gateway()).ip(&format!(
        "link set dev {device} mtu {mtu} up\nroute replace {v6} dev {device}\nroute replace {v4} dev {device}\n"
    ))
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
