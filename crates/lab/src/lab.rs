//! A lab: built from options, torn down when dropped.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Error;
use crate::builder::{Builder, Gateways};
use crate::command::{run, text};
use crate::gateway::{Gateway, Keys};
use crate::helper;
use crate::impair_script;
use crate::impairment::Impairment;
use crate::namespaces::Namespace;
use crate::network::{self, Layout, SIXIN4};
use crate::prefix::directory;
use crate::process::{Process, tail};
use crate::topology::{Node, Site, Topology};
use crate::traffic::Hosts;
use crate::transparent;

/// How long a host may take to give itself an address.
const BOOTING: Duration = Duration::from_secs(20);

impl Builder {
    /// Builds the network and writes the gateways' configurations; the gateways are not started. What an
    /// earlier lab of this prefix left behind is removed first.
    ///
    /// # Errors
    /// Without root, when options exclude each other or when the kernel refuses something.
    pub fn build(self) -> Result<Lab, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let suits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.prefix.is_empty() || self.prefix.len() > 13 || !self.prefix.chars().all(suits) {
            let prefix = &self.prefix;
            return Err(Error::Usage(format!("prefix `{prefix}`: expected 1 to 13 letters, digits, - or _")));
        }
        let layout = Layout::of(&self)?;
        down(&self.prefix)?;
        let directory = self.directory();
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let gateways = [Site::A, Site::B].map(|site| Gateway::new(&self, site));
        // From here on a failure drops the lab, which takes down what there is so far.
        let mut lab = Lab { options: self, gateways, helpers: Vec::new(), keep: false };
        network::build(&lab.options, &layout)?;
        lab.start_helpers(&layout)?;
        if lab.options.tunnel {
            let keys = Keys::generate(&lab.options)?;
            for gateway in &lab.gateways {
                gateway.configure(&lab.options, &keys)?;
            }
        }
        lab.save()?;
        Ok(lab)
    }
}

/// A running lab. Dropping it ends its processes and removes its namespaces.
#[derive(Debug)]
pub struct Lab {
    options: Builder,
    gateways: [Gateway; 2],
    helpers: Vec<Process>,
    keep: bool,
}

impl Lab {
    /// Options with their defaults; `program` is the `sidestep` executable.
    pub fn builder(program: impl Into<PathBuf>) -> Builder {
        Builder::new(program.into())
    }

    /// The lab of this prefix that another process brought up; dropping the value leaves it up.
    ///
    /// # Errors
    /// When there is none.
    pub fn attach(prefix: &str) -> Result<Self, Error> {
        let path = directory(prefix).join("lab.json");
        let missing = || Error::Usage(format!("no lab `{prefix}` is up: start one with `sidestep-lab up`"));
        let text = std::fs::read(&path).map_err(|_| missing())?;
        let options: Builder =
            serde_json::from_slice(&text).map_err(|error| Error::output("lab.json", error))?;
        if !options.namespace(Node::Router).exists() {
            return Err(missing());
        }
        let gateways = [Site::A, Site::B].map(|site| Gateway::new(&options, site));
        Ok(Self { options, gateways, helpers: Vec::new(), keep: true })
    }

    /// Leaves the lab up when the value is dropped.
    pub fn leave_up(mut self) {
        self.keep = true;
    }

    /// What the names of its namespaces begin with.
    pub fn prefix(&self) -> &str {
        &self.options.prefix
    }

    /// How its gateways are connected.
    pub fn topology(&self) -> Topology {
        self.options.topology
    }

    /// What its gateways are to hosts and routers.
    pub fn gateways(&self) -> Gateways {
        self.options.gateways
    }

    /// Whether it has a tunnel, or is the plain baseline.
    pub fn has_tunnel(&self) -> bool {
        self.options.tunnel
    }

    /// The `sidestep` executable.
    pub fn program(&self) -> &Path {
        &self.options.program
    }

    /// The directory of its configurations and logs.
    pub fn directory(&self) -> PathBuf {
        self.options.directory()
    }

    /// The namespace of a machine.
    pub fn namespace(&self, node: Node) -> Namespace {
        self.options.namespace(node)
    }

    /// The gateway of a site.
    pub fn gateway(&mut self, site: Site) -> &mut Gateway {
        &mut self.gateways[site as usize]
    }

    /// Gateway A.
    pub fn gateway_a(&mut self) -> &mut Gateway {
        self.gateway(Site::A)
    }

    /// Gateway B.
    pub fn gateway_b(&mut self) -> &mut Gateway {
        self.gateway(Site::B)
    }

    /// Starts both gateways, and waits until the hosts reach each other. Without a tunnel, only the latter. Hosts of
    /// transparent gateways boot in between.
    ///
    /// # Errors
    /// When a gateway does not start or nothing gets through within 30 s.
    pub fn start(&mut self) -> Result<(), Error> {
        if self.options.tunnel {
            for gateway in &mut self.gateways {
                gateway.start()?;
            }
        }
        if self.options.gateways == Gateways::Transparent {
            self.boot_hosts()?;
        }
        self.wait_connected(Duration::from_secs(30))
    }

    /// Boots the protected hosts, and waits until they have their addresses.
    ///
    /// # Errors
    /// When one of them gets none: nobody advertises a router, or the gateway holds it back.
    pub fn boot_hosts(&self) -> Result<(), Error> {
        for site in [Site::A, Site::B] {
            self.namespace(site.host_node()).ip("link set dev lo up\nlink set dev eth up\n")?;
        }
        for site in [Site::A, Site::B] {
            let (address, deadline) = (self.host(site).to_string(), Instant::now() + BOOTING);
            loop {
                let shown = ["ip", "-6", "addr", "show", "dev", "eth", "scope", "global"];
                let shown = text(&self.exec(site.host_node(), shown)?);
                if shown.contains(&address) && !shown.contains("tentative") {
                    break;
                }
                if Instant::now() > deadline {
                    let letter = site.letter().to_uppercase();
                    return Err(Error::output(
                        "router advertisements",
                        format!("within {BOOTING:?} host {letter} did not get the address {address}"),
                    ));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Waits until host A reaches host B through whatever is between.
    ///
    /// # Errors
    /// When it does not within the limit.
    pub fn wait_connected(&self, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let target = self.host(Site::B).to_string();
        while !self
            .exec(Node::HostA, ["ping", "-6", "-n", "-q", "-c", "1", "-W", "1", &target])?
            .status
            .success()
        {
            if Instant::now() > deadline {
                return Err(
                    self.gateways[1].failure(format!("host A got no answer from host B within {limit:?}"))
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What `sidestep show --json` says at a site.
    ///
    /// # Errors
    /// When the gateway does not run.
    pub fn show(&self, site: Site) -> Result<Value, Error> {
        self.gateways[site as usize].show()
    }

    /// A command that will run on a machine of the lab.
    ///
    /// # Errors
    /// When the lab has no such machine.
    pub fn command(&self, node: Node, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        self.namespace(node).command(program)
    }

    /// Runs a command on a machine to its end, whatever its exit status.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn exec<S: AsRef<OsStr>>(
        &self,
        node: Node,
        words: impl IntoIterator<Item = S>,
    ) -> Result<Output, Error> {
        run(&mut self.words(node, words)?)
    }

    /// Starts a command on a machine, its output in `LOG.log` in the lab's directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn<S: AsRef<OsStr>>(
        &self,
        node: Node,
        words: impl IntoIterator<Item = S>,
        log: &str,
    ) -> Result<Process, Error> {
        Process::start(&mut self.words(node, words)?, &self.directory().join(format!("{log}.log")))
    }

    /// A command of our own program (`sidestep-lab …`) on a machine.
    pub(crate) fn own_command(&self, node: Node, words: &[&str]) -> Result<Command, Error> {
        let mut command = self.command(node, helper::program()?)?;
        command.args(words);
        Ok(command)
    }

    /// The address of a site's host that a measurement goes to.
    pub fn host(&self, site: Site) -> IpAddr {
        match self.options.gateways {
            Gateways::Routing => site.host(),
            Gateways::Transparent => transparent::host(site, self.options.topology),
        }
    }

    fn words<S: AsRef<OsStr>>(
        &self,
        node: Node,
        words: impl IntoIterator<Item = S>,
    ) -> Result<Command, Error> {
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| Error::Usage("no command given".into()))?;
        let mut command = self.command(node, program)?;
        command.args(words);
        Ok(command)
    }

    /// Starts the relay, the ends of the 6in4 tunnel and what advertises the routers, where there are.
    fn start_helpers(&mut self, layout: &Layout) -> Result<(), Error> {
        if layout.script {
            let back = self.options.impairment_back.as_ref().unwrap_or(&self.options.impairment);
            let (_, middle) = layout.middle_of_router();
            impair_script::load(&self.options, [("a", &self.options.impairment), (middle, back)])?;
        }
        if layout.relay {
            let forth = self.options.impairment.to_string();
            let back = self.options.impairment_back.as_ref().unwrap_or(&self.options.impairment);
            // Another seed: otherwise both directions would lose the same frames.
            let back = Impairment { seed: back.seed.wrapping_add(1), ..back.clone() }.to_string();
            let bad_link = ["relay", "left", "right", "--impair", &forth, "--impair-back", &back];
            let man: Vec<_> = self.options.man_in_the_middle.iter().map(String::as_str).collect();
            let words = if man.is_empty() { &bad_link[..] } else { &man[..] };
            self.start_helper("relay", self.own_command(Node::Relay, words)?)?;
        }
        if layout.user_space_tunnel {
            for (node, ends) in SIXIN4 {
                let words = [&["sixin4", "--inner", "t46-peer", "--outer", "mid"], ends].concat();
                let command = self.own_command(node, &words)?;
                self.start_helper(&format!("sixin4-{}", node.suffix()), command)?;
            }
        }
        if layout.transparent {
            for (node, command) in transparent::advertisers(&self.options, layout.second_router)? {
                self.start_helper(&format!("radvd-{}", node.suffix()), command)?;
            }
        }
        Ok(())
    }

    fn start_helper(&mut self, name: &str, mut command: Command) -> Result<(), Error> {
        let log = self.directory().join(format!("{name}.log"));
        let mut process = Process::start(&mut command, &log)?;
        // A wrong argument or a missing program shows at once; a running one carries frames from here on.
        if let Some(status) = process.wait(Duration::from_millis(100)) {
            return Err(Error::Usage(format!("{name} ended at once ({status}): {}", tail(&log))));
        }
        self.helpers.push(process);
        Ok(())
    }

    fn save(&self) -> Result<(), Error> {
        let path = self.directory().join("lab.json");
        let text =
            serde_json::to_vec_pretty(&self.options).map_err(|error| Error::output("lab.json", error))?;
        std::fs::write(&path, text).map_err(|source| Error::file(path, source))
    }
}

impl Hosts for Lab {
    fn address(&self, site: Site, ipv4: bool) -> IpAddr {
        if ipv4 { site.host_v4() } else { self.host(site) }
    }

    fn on(&self, site: Site, program: &Path) -> Result<Command, Error> {
        self.command(site.host_node(), program)
    }

    fn directory(&self) -> PathBuf {
        self.directory()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for gateway in &mut self.gateways {
            gateway.stop();
        }
        for helper in self.helpers.drain(..) {
            helper.stop(Duration::from_secs(1));
        }
        if let Err(error) = down(&self.options.prefix) {
            eprintln!("lab {}: {error}", self.options.prefix);
        }
    }
}

/// Takes down whatever there is of the lab with this prefix, whoever built it: processes in its namespaces,
/// the namespaces, its directory.
///
/// # Errors
/// When a namespace cannot be removed.
pub fn down(prefix: &str) -> Result<(), Error> {
    for node in Node::ALL {
        node.namespace(prefix).delete()?;
    }
    let directory = directory(prefix);
    match std::fs::remove_dir_all(&directory) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::file(directory, source)),
        _ => Ok(()),
    }
}
