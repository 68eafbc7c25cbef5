//! strongSwan at both gateways of a lab, with its IPsec in user space (kernel-libipsec).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::command::{check, find, run, text};
use lab::gateway::write_private;
use lab::process::{Process, tail};
use lab::topology::Site;
use lab::{Error, Lab};

use super::agreed::{KEY, selectors, wait_for_children};
use crate::comparison::contender::Contender;

const CHARON: &str = "/usr/lib/ipsec/charon";
/// `openssl` before all others that could encrypt: with its own AES it is several times slower.
const PLUGINS: &str = "openssl random nonce hmac kdf gcm kernel-libipsec kernel-netlink socket-default vici";
/// How long it may take until charon answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both gateways, running or not.
pub(super) struct Libipsec {
    /// How many children the two agree on: two associations each.
    children: u16,
    processes: Vec<Process>,
}

impl Libipsec {
    pub(super) fn new(children: u16) -> Self {
        Self { children, processes: Vec::new() }
    }
}

impl Contender for Libipsec {
    fn name(&self) -> &'static str {
        "libipsec"
    }

    fn about(&self) -> String {
        let said = run(Command::new(CHARON).arg("--version")).map(|output| text(&output)).unwrap_or_default();
        let version = said.split_whitespace().last().unwrap_or_default();
        format!(
            "strongSwan {version} with kernel-libipsec and its plugin `openssl` first: AES-256-GCM, ESP in UDP"
        )
    }

    fn missing(&self) -> Option<String> {
        let is_there = Path::new(CHARON).is_file() && find("swanctl").is_some();
        (!is_there).then(|| {
            "strongSwan is not here: `apt-get install strongswan-swanctl strongswan-charon libcharon-extra-plugins \
             libstrongswan-standard-plugins`"
                .into()
        })
    }

    fn start(&mut self, lab: &mut Lab, _: u32) -> Result<(), Error> {
        for site in [Site::B, Site::A] {
            own_addresses(lab, site, self.children)?;
            let folder = folder(lab, site);
            std::fs::create_dir_all(&folder).map_err(|source| Error::file(&folder, source))?;
            write_private(&folder.join("strongswan.conf"), &settings())?;
            let vici = format!("socket = unix://{}", folder.join("vici").display());
            let own = format!("swanctl {{\n load = random openssl\n {vici}\n}}\n");
            write_private(&folder.join("swanctl-strongswan.conf"), &own)?;
            write_private(&folder.join("swanctl.conf"), &connections(lab, site, self.children))?;
            // Each has a /run of its own: two of them would take each other for a second copy.
            let begin = format!("mount --bind '{}' /run && exec {CHARON}", folder.display());
            let mut command = lab.command(site.gateway(), "unshare")?;
            command.args(["--mount", "sh", "-c", &begin]).env("STRONGSWAN_CONF", "/run/strongswan.conf");
            self.processes.push(Process::start(&mut command, &folder.join("log"))?);
            wait_for_charon(lab, site)?;
            check(swanctl(lab, site).arg("--load-all").arg("--file").arg(folder.join("swanctl.conf")))?;
        }
        self.processes.reverse();
        let log = folder(lab, Site::A).join("log");
        let count = || Ok(text(&run(swanctl(lab, Site::A).arg("--list-sas"))?).matches("INSTALLED").count());
        wait_for_children(self.children, &mut self.processes, &log, count)
    }

    fn stop(&mut self, _: &mut Lab) {
        for process in self.processes.drain(..) {
            process.stop(Duration::from_secs(10));
        }
    }

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        let ids: Vec<u32> = self.processes.iter().map(Process::id).collect();
        ids.try_into().ok()
    }
}

/// kernel-libipsec takes no child without an address of the gateway's among its networks.
fn own_addresses(lab: &Lab, site: Site, children: u16) -> Result<(), Error> {
    let networks = (1..children).flat_map(|number| selectors(site, number));
    let lines =
        networks.map(|network| format!("addr add {} dev lo nodad\n", network.replace("::/64", "::1/128")));
    lab.namespace(site.gateway()).ip(&lines.collect::<String>())
}

/// What the charon of a site sees as `/run`.
fn folder(lab: &Lab, site: Site) -> PathBuf {
    lab.directory().join(format!("charon-{}", site.letter()))
}

fn swanctl(lab: &Lab, site: Site) -> Command {
    let folder = folder(lab, site);
    let mut command = Command::new("swanctl");
    command.env("STRONGSWAN_CONF", folder.join("swanctl-strongswan.conf")).env("SWANCTL_DIR", folder);
    command
}

fn wait_for_charon(lab: &Lab, site: Site) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while !run(swanctl(lab, site).arg("--stats"))?.status.success() {
        if Instant::now() > deadline {
            return Err(Error::output("charon", tail(&folder(lab, site).join("log"))));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn settings() -> String {
    format!("charon {{\n plugins {{ vici {{ socket = unix:///run/vici }} }}\n load = {PLUGINS}\n}}\n")
}

fn connections(lab: &Lab, site: Site, children: u16) -> String {
    let (own, other) = (site.letter(), site.other().letter());
    let [here, there] = [site, site.other()].map(|site| site.outer(lab.topology()));
    let begins = if site == Site::A { "start_action = start\n" } else { "" };
    let mut all = String::new();
    for number in 0..children {
        let [local, remote] = [site, site.other()].map(|site| selectors(site, number).join(","));
        let _ = write!(
            all,
            "c{number} {{\n local_ts = {local}\n remote_ts = {remote}\n {begins} esp_proposals = aes256gcm16-x25519\n }}\n"
        );
    }
    format!(
        "connections {{ sites {{\n version = 2\n encap = yes\n local_addrs = {here}\n remote_addrs = {there}\n \
         proposals = aes256gcm16-prfsha256-x25519\n \
         local {{\n auth = psk\n id = {own}.example\n }}\n remote {{\n auth = psk\n id = {other}.example\n }}\n \
         children {{\n{all}}}\n}} }}\n\
         secrets {{ ike {{\n id-a = a.example\n id-b = b.example\n secret = \"{KEY}\"\n }} }}\n"
    )
}
