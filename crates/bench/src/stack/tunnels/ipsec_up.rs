//! `sidestep ipsec up` at both gateways of a lab.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use lab::command::run;
use lab::gateway::write_private;
use lab::process::Process;
use lab::topology::Site;
use lab::{Error, Lab};
use serde_json::Value;

use super::agreed::{KEY, selectors, wait_for_children};
use crate::comparison::contender::Contender;

/// Both gateways, running or not.
pub(super) struct IpsecUp {
    /// How many children the two agree on: two associations each.
    children: u16,
    processes: Vec<Process>,
}

impl IpsecUp {
    pub(super) fn new(children: u16) -> Self {
        Self { children, processes: Vec::new() }
    }
}

impl Contender for IpsecUp {
    fn name(&self) -> &'static str {
        "ipsec-up"
    }

    fn about(&self) -> String {
        "`sidestep ipsec up`: AES-256-GCM, ESP in UDP".into()
    }

    fn start(&mut self, lab: &mut Lab, _: u32) -> Result<(), Error> {
        let key = lab.directory().join("ipsec.psk");
        write_private(&key, KEY)?;
        // Who answers is there before the one who begins.
        for site in [Site::B, Site::A] {
            // It refuses to be got round by the plain lab's routes.
            let plain = site.other().inner_prefixes().map(|network| format!("route del {network}\n"));
            lab.namespace(site.gateway()).ip(&plain.concat())?;
            let path = file(lab, site, "toml");
            write_private(&path, &configuration(lab, site, self.children))?;
            let mut command = lab.command(site.gateway(), lab.program())?;
            command.args(["ipsec", "up"]).arg(&path).arg("--socket").arg(socket(lab, site));
            self.processes.push(Process::start(&mut command, &file(lab, site, "log"))?);
        }
        self.processes.reverse();
        let log = file(lab, Site::A, "log");
        wait_for_children(self.children, &mut self.processes, &log, || children(lab))
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

/// How many children are there.
fn children(lab: &Lab) -> Result<usize, Error> {
    let mut command = lab.command(Site::A.gateway(), lab.program())?;
    command.args(["ipsec", "status", "--json", "--socket"]).arg(socket(lab, Site::A));
    let status: Value = serde_json::from_slice(&run(&mut command)?.stdout).unwrap_or_default();
    Ok(status["remotes"][0]["children"].as_array().map_or(0, Vec::len))
}

fn file(lab: &Lab, site: Site, kind: &str) -> PathBuf {
    lab.directory().join(format!("ipsec-{}.{kind}", site.letter()))
}

fn socket(lab: &Lab, site: Site) -> PathBuf {
    file(lab, site, "sock")
}

fn configuration(lab: &Lab, site: Site, children: u16) -> String {
    let (own, other) = (site.letter(), site.other().letter());
    let address = if site == Site::A {
        format!("address = \"{}\"\n", site.other().outer(lab.topology()))
    } else {
        String::new()
    };
    let mut text = format!(
        "[ipsec]\nidentity = \"{own}.example\"\ninterface = \"{}-{own}\"\n\n\
         [[remote]]\nname = \"{other}\"\nidentity = \"{other}.example\"\n{address}\
         shared_key_file = \"ipsec.psk\"\n",
        lab.prefix()
    );
    for number in 0..children {
        let [local, remote] = [site, site.other()].map(|site| {
            let quoted = selectors(site, number).into_iter().map(|network| format!("\"{network}\""));
            quoted.collect::<Vec<_>>().join(", ")
        });
        let _ = write!(text, "\n[[remote.child]]\nlocal = [{local}]\nremote = [{remote}]\n");
    }
    text
}
