//! WireGuard in the kernel, where it has it.

use std::process::Command;

use crate::comparison::contender::{Contender, not_installed};
use crate::comparison::wireguard::route_through;
use crate::wireguard::{Keys, MTU, PORT};
use lab::Error;
use lab::Lab;
use lab::command::{check, find, run};
use lab::gateway::write_private;
use lab::topology::Site;

/// The device, in both gateways.
const DEVICE: &str = "wg0";

/// The kernel's own: no processes.
#[derive(Debug, Default)]
pub(crate) struct KernelWireGuard;

impl Contender for KernelWireGuard {
    fn name(&self) -> &str {
        "wireguard"
    }

    fn about(&self) -> String {
        format!("WireGuard in the kernel, ChaCha20-Poly1305, MTU {MTU}")
    }

    fn missing(&self) -> Option<String> {
        if !kernel_has_it() {
            return Some("not available here: this kernel has no WireGuard (module `wireguard`)".into());
        }
        find("wg").is_none().then(|| not_installed("wg", "wireguard"))
    }

    fn start(&mut self, lab: &mut Lab, _: u32) -> Result<(), Error> {
        let keys = [Keys::generate(lab.program())?, Keys::generate(lab.program())?];
        for site in [Site::A, Site::B] {
            let other = site.other();
            let file = lab.directory().join(format!("wg-{}.key", site.letter()));
            write_private(&file, &keys[site as usize].private)?;
            lab.namespace(site.gateway()).ip(&format!("link add {DEVICE} type wireguard\n"))?;
            let [v6, v4] = other.inner_prefixes();
            let mut wg = lab.command(site.gateway(), "wg")?;
            wg.args(["set", DEVICE, "listen-port", &PORT.to_string(), "private-key"]).arg(&file);
            wg.args(["peer", &keys[other as usize].public, "allowed-ips", &format!("{v6},{v4}")]);
            wg.args(["endpoint", &format!("[2001:db8:f{}::2]:{PORT}", other.letter())]);
            check(&mut wg)?;
            route_through(lab, site, DEVICE, MTU)?;
        }
        Ok(())
    }

    fn device(&self, _: &Lab, _: Site) -> Option<String> {
        Some(DEVICE.to_owned())
    }

    fn stop(&mut self, lab: &mut Lab) {
        for site in [Site::A, Site::B] {
            // It goes with its namespace too.
            let _ = lab.namespace(site.gateway()).ip(&format!("link del {DEVICE}\n"));
        }
    }

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        None
    }
}

/// Asks by making a device, which also loads the module where there is one.
fn kernel_has_it() -> bool {
    let name = format!("wgprobe{}", std::process::id() % 10_000_000);
    let ip = |action: &str| {
        run(Command::new("ip").args(["link", action, "dev", &name, "type", "wireguard"]))
            .is_ok_and(|output| output.status.success())
    };
    let there = ip("add");
    if there {
        ip("del");
    }
    there
}
