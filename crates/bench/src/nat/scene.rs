//! Two hosts and the router between them, with the addresses that `examples/scripts/nat.lua` is about.
//!
//! ```text
//!   client ── lan  router  wan ── server
//!   fd00::2   fd00::1  2001:db8:f::1   2001:db8:f::9
//!   192.168.0.2   .1   192.0.2.2       192.0.2.1
//! ```
//! The server knows the ways to the client, by its own address and by the one that it is translated to: 2001:db8::1 and
//! 10.0.0.1.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::contender::NatContender;
use super::packets;
use lab::Error;
use lab::command::{check, run};
use lab::helper;
use lab::namespaces::Namespace;
use lab::process::{Process, tail};
use lab::topology::Site;
use lab::traffic::{Hosts, start_fresh};

const SCRIPT: &str = include_str!("../../../../examples/scripts/nat.lua");
/// How long a process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// What has to be known of an IP version.
struct Addresses {
    /// The word of nft(8).
    word: &'static str,
    client: &'static str,
    /// What the client's is translated to.
    outside: &'static str,
    server: &'static str,
}

/// An IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Family {
    #[default]
    Ipv6,
    Ipv4,
}

impl Family {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ipv6 => "ipv6",
            Self::Ipv4 => "ipv4",
        }
    }

    const fn addresses(self) -> Addresses {
        match self {
            Self::Ipv6 => {
                Addresses { word: "ip6", client: "fd00::2", outside: "2001:db8::1", server: "2001:db8:f::9" }
            }
            Self::Ipv4 => {
                Addresses { word: "ip", client: "192.168.0.2", outside: "10.0.0.1", server: "192.0.2.1" }
            }
        }
    }
}

/// Gone, with its processes, when dropped.
pub(super) struct NatScene {
    pub(super) contender: NatContender,
    family: Family,
    client: Namespace,
    router: Namespace,
    server: Namespace,
    directory: PathBuf,
    program: PathBuf,
    process: Option<Process>,
}

impl NatScene {
    pub(super) fn start(
        prefix: &str,
        contender: NatContender,
        family: Family,
        offloads: bool,
        program: &Path,
    ) -> Result<Self, Error> {
        let [client, router, server] =
            ["client", "router", "server"].map(|name| Namespace::named(format!("{prefix}-{name}")));
        let directory = PathBuf::from(format!("/run/sidestep-lab/{prefix}"));
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let program = program.to_owned();
        let mut scene = Self { contender, family, client, router, server, directory, program, process: None };
        scene.build()?;
        // Small packets leave the sender as single ones.
        check(scene.client.command("ethtool")?.args(["-K", "eth0", "tx-udp-segmentation", "off"]))?;
        if !offloads {
            for namespace in scene.namespaces() {
                for interface in namespace.ethernet_interfaces()? {
                    namespace.offloads_off(&interface)?;
                }
            }
        }
        scene.contend()?;
        scene.wait_reachable()?;
        Ok(scene)
    }

    const fn namespaces(&self) -> [&Namespace; 3] {
        [&self.client, &self.router, &self.server]
    }

    fn build(&self) -> Result<(), Error> {
        for namespace in self.namespaces() {
            namespace.delete()?;
            namespace.create()?;
        }
        let (client, server) = (self.client.name(), self.server.name());
        self.router.sysctl(&[("ipv6/conf/all/forwarding", 1), ("ipv4/ip_forward", 1)])?;
        self.router.ip(&format!(
            "link add name lan type veth peer name eth0 netns {client}\n\
             link add name wan type veth peer name eth0 netns {server}\n\
             addr add fd00::1/64 dev lan nodad\naddr add 192.168.0.1/24 dev lan\n\
             addr add 2001:db8:f::1/64 dev wan nodad\naddr add 192.0.2.2/24 dev wan\n\
             link set dev lan up\nlink set dev wan up\n"
        ))?;
        self.client.ip(
            "addr add fd00::2/64 dev eth0 nodad\naddr add 192.168.0.2/24 dev eth0\nlink set dev eth0 up\n\
             route add default via fd00::1\nroute add default via 192.168.0.1\n",
        )?;
        self.server.ip(
            "addr add 2001:db8:f::9/64 dev eth0 nodad\naddr add 192.0.2.1/24 dev eth0\nlink set dev eth0 up\n\
             route add default via 2001:db8:f::1\nroute add default via 192.0.2.2\n",
        )?;
        self.server.nft(&packets::sink())
    }

    fn contend(&mut self) -> Result<(), Error> {
        let Addresses { word, client, outside, server } = self.family.addresses();
        match self.contender {
            NatContender::Forwarding => Ok(()),
            NatContender::Nftables => self.router.nft(&format!(
                "table inet nat {{\n\
                 chain out {{ type nat hook postrouting priority srcnat\n\
                 oifname wan {word} saddr {client} snat {word} to {outside}\n }}\n\
                 chain back {{ type nat hook prerouting priority dstnat\n\
                 iifname wan {word} daddr {outside} dnat {word} to {client}\n }}\n}}\n"
            )),
            NatContender::ScriptKernel => self.load(["egress", "ingress"], "kernel"),
            NatContender::ScriptUser => self.load(["postrouting", "prerouting"], "user"),
            NatContender::Queue => {
                let rules = [format!("{word} daddr {server}"), format!("{word} daddr {client}")];
                let words = ["queue-accept", "--hook", "forward", &rules[0], &rules[1]];
                let mut command = self.router.command(helper::program()?)?;
                command.args(words);
                self.process = Some(start_fresh(command, &self.directory.join("queue.log"))?);
                Ok(())
            }
        }
    }

    /// Runs the script, in a host of its own.
    fn load(&mut self, hooks: [&str; 2], tier: &str) -> Result<(), Error> {
        let file = self.directory.join("nat.lua");
        std::fs::write(&file, SCRIPT).map_err(|source| Error::file(&file, source))?;
        let mut command = self.router.command(&self.program)?;
        command.args(["script", "serve"]);
        let log = self.directory.join("scripts.log");
        self.process = Some(start_fresh(command, &log)?);
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&log).unwrap_or_default().contains("listening") {
            if Instant::now() > deadline {
                return Err(Error::output("sidestep script serve", tail(&log)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let Addresses { word, client, outside, .. } = self.family.addresses();
        let rules = [format!("{word} saddr {client}"), format!("{word} daddr {outside}")];
        for ((function, hook), rule) in ["snat", "dnat"].into_iter().zip(hooks).zip(&rules) {
            let mut command = self.router.command(&self.program)?;
            command.args(["script", "load"]).arg(&file).args(["--hook", hook, "--dev", "wan"]);
            command.args(["--function", function, "--match", rule, "--tier", tier]);
            check(command.stdin(Stdio::null()))?;
        }
        Ok(())
    }

    /// Waits until neighbors know each other and all is in place.
    fn wait_reachable(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        let server = self.family.addresses().server;
        loop {
            let mut ping = self.client.command("ping")?;
            if run(ping.args(["-c", "1", "-W", "1", server]))?.status.success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let said = self.process.as_ref().map_or_else(String::new, |process| tail(process.log()));
                let name = self.contender.name();
                return Err(Error::Usage(format!("{name}: the hosts do not reach each other\n{said}")));
            }
        }
    }
}

impl Hosts for NatScene {
    fn address(&self, site: Site, _: bool) -> IpAddr {
        let Addresses { client, server, .. } = self.family.addresses();
        let text = match site {
            Site::A => client,
            Site::B => server,
        };
        text.parse().unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED))
    }

    fn on(&self, site: Site, program: &Path) -> Result<Command, Error> {
        match site {
            Site::A => self.client.command(program),
            Site::B => self.server.command(program),
        }
    }

    fn directory(&self) -> PathBuf {
        self.directory.clone()
    }
}

impl Drop for NatScene {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Duration::from_secs(3));
        }
        for namespace in self.namespaces() {
            if let Err(error) = namespace.delete() {
                eprintln!("{error}");
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
