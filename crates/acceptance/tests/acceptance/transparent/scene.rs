//! A lab with transparent gateways, and what the tests do in it.

use std::process::Command;
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::process::Process;
pub(crate) use lab::transparent::{MACS, THIRD, THIRD_IPV4};
use lab::{Gateways, Lab, Profile, Site, Topology};

const SITES: [Site; 2] = [Site::A, Site::B];

pub(crate) struct TransparentScene {
    pub(crate) lab: Lab,
}

impl TransparentScene {
    /// The network, with routers that advertise themselves. Hosts are down, and gateways not started. `None` where there
    /// is no program to test or no root; in continuous integration that is a failure.
    pub(crate) fn new(topology: Topology, profile: Profile) -> Option<Self> {
        let program = crate::program(&["radvd"])?;
        let builder = Lab::builder(program).topology(topology).profile(profile);
        let lab = builder.gateways(Gateways::Transparent).build().expect("a lab");
        Some(TransparentScene { lab })
    }

    pub(crate) fn node(&self, name: &str) -> Namespace {
        Namespace::named(format!("{}-{name}", self.lab.prefix()))
    }

    /// The address that a protected host will have.
    pub(crate) fn host(&self, side: usize) -> String {
        self.lab.host(SITES[side]).to_string()
    }

    /// Starts both gateways, and waits until they are up.
    pub(crate) fn start_gateways(&mut self) {
        let configurations = self.configurations();
        self.start_gateways_with(&configurations);
    }

    /// What they are configured with, unless a test wants something else.
    pub(crate) fn configurations(&mut self) -> [String; 2] {
        SITES.map(|site| {
            std::fs::read_to_string(self.lab.gateway(site).configuration()).expect("a configuration")
        })
    }

    pub(crate) fn start_gateways_with(&mut self, configurations: &[String; 2]) {
        for (site, text) in SITES.into_iter().zip(configurations) {
            let gateway = self.lab.gateway(site);
            let _ = std::fs::remove_file(gateway.log());
            std::fs::write(gateway.configuration(), text).expect("a configuration");
            gateway.start().expect("the gateway is up");
        }
    }

    /// Ends both; they end by themselves, without an error.
    pub(crate) fn stop_gateways(&mut self) {
        for site in SITES {
            assert!(self.lab.gateway(site).stop());
        }
    }

    /// Kills one, as a crash would.
    pub(crate) fn kill_gateway(&mut self, side: usize) {
        self.lab.gateway(SITES[side]).kill();
    }

    /// What both have logged.
    pub(crate) fn logs(&self) -> String {
        let log = |name: &str| std::fs::read_to_string(self.lab.directory().join(name)).unwrap_or_default();
        ["gateway-a.log", "gateway-b.log"].map(log).join("--\n")
    }

    /// Has a gateway read its configuration again.
    pub(crate) fn reload(&mut self, side: usize) {
        let socket = format!("/run/sidestep/{}.sock", self.lab.gateway(SITES[side]).tunnel());
        let output = Command::new(self.lab.program()).args(["reload", "--socket", &socket]).output();
        let output = output.expect("a command that starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The status of the one peer.
    pub(crate) fn peer(&self, side: usize) -> serde_json::Value {
        self.lab.show(SITES[side]).expect("a status")["peers"][0].take()
    }

    /// Boots the protected hosts, and waits until they have their addresses and reach each other.
    pub(crate) fn boot_hosts(&self) {
        self.lab.boot_hosts().unwrap_or_else(|error| panic!("{error}\n{}", self.logs()));
        self.wait_connected();
    }

    /// Waits until the protected hosts reach each other.
    pub(crate) fn wait_connected(&self) {
        self.lab.wait_connected(Duration::from_secs(20)).expect("hosts that reach each other");
    }

    /// The hardware address of an interface.
    pub(crate) fn mac(&self, node: &str, interface: &str) -> String {
        let text = self.run(node, &["ip", "-j", "link", "show", "dev", interface]);
        let links: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        links[0]["address"].as_str().expect("an address").to_owned()
    }

    /// Runs a command on a machine; what it wrote to both outputs.
    pub(crate) fn run(&self, node: &str, words: &[&str]) -> String {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        let output = command.args(&words[1..]).output().expect("a command that starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Starts one.
    pub(crate) fn start(&self, node: &str, words: &[&str], log: &str) -> Process {
        let mut command = self.node(node).command(words[0]).expect("the namespace");
        Process::start(command.args(&words[1..]), &self.lab.directory().join(log))
            .expect("a command that starts")
    }

    /// What a command has written that was started with this log.
    pub(crate) fn output(&self, log: &str) -> String {
        std::fs::read_to_string(self.lab.directory().join(log)).unwrap_or_default()
    }
}
