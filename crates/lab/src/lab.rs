//! A lab: built from options, torn down when dropped.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::command::run;
use crate::gateway::{Gateway, Gateways, Keys, Profile};
use crate::helper;
use crate::impair_script::{self, Impairer};
use crate::impairment::Impairment;
use crate::namespaces::Namespace;
use crate::process::{Process, tail};
use crate::topology::{self, Node, SIXIN4, Shape, Site, Topology};
use crate::traffic::Hosts;
use crate::transparent;

/// Where labs keep their configurations and logs.
const RUN: &str = "/run/sidestep-lab";

/// The options of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Builder {
    pub(crate) program: PathBuf,
    pub(crate) prefix: String,
    pub(crate) topology: Topology,
    pub(crate) gateways: Gateways,
    pub(crate) profile: Profile,
    pub(crate) rotation: String,
    pub(crate) lanes: u8,
    pub(crate) threads: Option<u8>,
    pub(crate) padding: String,
    pub(crate) cover: String,
    pub(crate) rewrite: bool,
    pub(crate) preshared: bool,
    pub(crate) tunnel: bool,
    pub(crate) tunnel_mtu: Option<u16>,
    pub(crate) impairment: Impairment,
    pub(crate) impairment_back: Option<Impairment>,
    #[serde(default)]
    pub(crate) impairer: Impairer,
    pub(crate) firewall: bool,
    pub(crate) middle_mtu: Option<u16>,
    pub(crate) filter_too_big: bool,
    pub(crate) whole_packets: bool,
    pub(crate) offloads: bool,
    pub(crate) sit: bool,
}

impl Builder {
    /// The prefix of a lab that is not given one.
    pub const DEFAULT_PREFIX: &'static str = "sidestep";

    /// What every namespace's name begins with, before `-ha`, `-ga` and so on; labs with different prefixes
    /// exist side by side. At most 13 characters. Default `sidestep`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How the gateways are connected. Default routed.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// What the gateways are to hosts and routers. Default routing.
    pub fn gateways(mut self, gateways: Gateways) -> Self {
        self.gateways = gateways;
        self
    }

    /// What they speak with each other. Default version 2.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Rotation interval as in the configuration file. Default `1s`.
    pub fn rotation(mut self, rotation: &str) -> Self {
        rotation.clone_into(&mut self.rotation);
        self
    }

    /// Lanes. Default 1.
    pub fn lanes(mut self, lanes: u8) -> Self {
        self.lanes = lanes;
        self
    }

    /// Threads of each gateway that carry packets. Default: as many as it chooses.
    pub fn threads(mut self, threads: u8) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Padding policy: `none`, `buckets` or `full`. Default none.
    pub fn padding(mut self, padding: &str) -> Self {
        padding.clone_into(&mut self.padding);
        self
    }

    /// Cover packets per second, as in the configuration file. Default none.
    pub fn cover(mut self, cover: &str) -> Self {
        cover.clone_into(&mut self.cover);
        self
    }

    /// Packets travel with replaced addresses and nothing else, instead of inside others.
    #[must_use]
    pub fn rewrite(mut self, rewrite: bool) -> Self {
        self.rewrite = rewrite;
        self
    }

    /// Gives the pair a pre-shared key. Default no.
    pub fn preshared(mut self, preshared: bool) -> Self {
        self.preshared = preshared;
        self
    }

    /// Without a tunnel the routers route the inner networks: the baseline. Default with.
    pub fn tunnel(mut self, tunnel: bool) -> Self {
        self.tunnel = tunnel;
        self
    }

    /// Fixes the tunnel's MTU. Default: it follows the path.
    pub fn tunnel_mtu(mut self, mtu: u16) -> Self {
        self.tunnel_mtu = Some(mtu);
        self
    }

    /// Impairs the middle link, in both directions unless [`Self::impairment_back`] says otherwise.
    pub fn impairment(mut self, impairment: Impairment) -> Self {
        self.impairment = impairment;
        self
    }

    /// Impairs the direction from B to A in another way.
    pub fn impairment_back(mut self, impairment: Impairment) -> Self {
        self.impairment_back = Some(impairment);
        self
    }

    /// What impairs the middle link. Default: the relay.
    pub fn impairer(mut self, impairer: Impairer) -> Self {
        self.impairer = impairer;
        self
    }

    /// A stateful firewall before each site that lets in only what was opened from inside. Default none.
    pub fn firewall(mut self, firewall: bool) -> Self {
        self.firewall = firewall;
        self
    }

    /// MTU of the middle link. Default 1500. In the switched lab a bridge drops longer frames silently; elsewhere
    /// the routers at its ends send Packet Too Big.
    pub fn middle_mtu(mut self, mtu: u16) -> Self {
        self.middle_mtu = Some(mtu);
        self
    }

    /// Drops the routers' Packet Too Big messages. Default no.
    pub fn filter_too_big(mut self, filter: bool) -> Self {
        self.filter_too_big = filter;
        self
    }

    /// Turns segmentation offload off on the outer links, so that a capture shows the packets that a cable would
    /// carry. Slower. Default no.
    pub fn whole_packets(mut self, whole: bool) -> Self {
        self.whole_packets = whole;
        self
    }

    /// Without them no interface takes or makes super-packets, or leaves checksums to the next one: every packet is
    /// carried by itself, as without such hardware. Default with them.
    pub fn offloads(mut self, offloads: bool) -> Self {
        self.offloads = offloads;
        self
    }

    /// Uses the kernel's `sit` for the 6in4 tunnel in place of our own process. Default no.
    pub fn sit(mut self, sit: bool) -> Self {
        self.sit = sit;
        self
    }

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
        let shape = Shape::of(&self)?;
        down(&self.prefix)?;
        let directory = self.directory();
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let gateways = [Site::A, Site::B].map(|site| Gateway::new(&self, site));
        // From here on a failure drops the lab, which takes down what there is so far.
        let mut lab = Lab { options: self, gateways, helpers: Vec::new(), keep: false };
        topology::build(&lab.options, &shape)?;
        lab.start_helpers(&shape)?;
        if lab.options.tunnel {
            let keys = Keys::generate(&lab.options)?;
            for gateway in &lab.gateways {
                gateway.configure(&lab.options, &keys)?;
            }
        }
        lab.save()?;
        Ok(lab)
    }

    /// Whether anything impairs the middle link.
    pub(crate) fn impaired(&self) -> bool {
        let plain = Impairment { seed: self.impairment.seed, ..Impairment::default() };
        self.impairment != plain || self.impairment_back.is_some()
    }

    /// The smallest middle MTU that still carries IPv6's minimum of 1280.
    pub(crate) fn minimum_mtu(&self) -> u16 {
        if self.topology == Topology::Tunneled { 1300 } else { 1280 }
    }

    pub(crate) fn namespace(&self, node: Node) -> Namespace {
        node.namespace(&self.prefix)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        directory(&self.prefix)
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
        Builder {
            program: program.into(),
            prefix: Builder::DEFAULT_PREFIX.into(),
            topology: Topology::default(),
            gateways: Gateways::default(),
            profile: Profile::default(),
            rotation: "1s".into(),
            lanes: 1,
            threads: None,
            padding: "none".into(),
            cover: "0".into(),
            rewrite: false,
            preshared: false,
            tunnel: true,
            tunnel_mtu: None,
            impairment: Impairment::default(),
            impairment_back: None,
            impairer: Impairer::default(),
            firewall: false,
            middle_mtu: None,
            filter_too_big: false,
            whole_packets: false,
            offloads: true,
            sit: false,
        }
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
            transparent::boot_hosts(self)?;
        }
        self.wait_connected(Duration::from_secs(30))
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
    fn start_helpers(&mut self, shape: &Shape) -> Result<(), Error> {
        if shape.script {
            let back = self.options.impairment_back.as_ref().unwrap_or(&self.options.impairment);
            let (_, middle) = shape.middle_of_router();
            impair_script::load(self, [("a", &self.options.impairment), (middle, back)])?;
        }
        if shape.relay {
            let forth = self.options.impairment.to_string();
            let back = self.options.impairment_back.as_ref().unwrap_or(&self.options.impairment);
            // Another seed: otherwise both directions would lose the same frames.
            let back = Impairment { seed: back.seed.wrapping_add(1), ..back.clone() }.to_string();
            let words = ["relay", "left", "right", "--impair", &forth, "--impair-back", &back];
            self.start_helper("relay", self.own_command(Node::Relay, &words)?)?;
        }
        if shape.user_space_tunnel {
            for (node, ends) in SIXIN4 {
                let words = [&["sixin4", "--inner", "t46-peer", "--outer", "mid"], ends].concat();
                let command = self.own_command(node, &words)?;
                self.start_helper(&format!("sixin4-{}", node.suffix()), command)?;
            }
        }
        if shape.transparent {
            for (node, command) in transparent::advertisers(self, shape)? {
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

fn directory(prefix: &str) -> PathBuf {
    Path::new(RUN).join(prefix)
}
