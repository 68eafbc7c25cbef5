//! Two hosts, and between them one gateway of ours (T1, T2, NAT64) or two (T3): `sidestep up` with files as users write them.
//!
//! ```text
//!   client ── lan  gateway  wan ── server                         2001:db8:1::2 … 2001:db8:f::9
//!   eth0                           eth0                           192.168.1.2   … 198.51.100.9
//!
//!   client ── lan  gateway a  eth0 ── eth0  gateway b  lan ── server   2001:db8:100::2 … 2001:db8:200::2
//! ```

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::rules::{self, RuleSet};
use super::subject::{List, Router, Subject, Translation, Tunnel, Way};
use super::test::Family;
use crate::nat::packets;
use lab::Error;
use lab::command::{check, check_with_input, find, run};
use lab::helper;
use lab::namespaces::Namespace;
use lab::process::{Process, tail};
use lab::topology::Site;
use lab::traffic::{Hosts, start_fresh};

/// How long all may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// Links whose packets a process reads need no neighbor discovery: of each gateway, that of `eth0` and of the tunnel.
const OUTER_MAC: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
const INNER_MAC: [&str; 2] = ["02:00:00:00:46:01", "02:00:00:00:46:02"];

/// What the router of T1 and T2 is: `sidestep up` with this.
const ROUTER: &str = r#"[[uplink]]
name        = "provider"
interface   = "wan"
router      = "fe80::9"
addresses   = ["2001:db8:f::1/64"]
prefixes    = ["2001:db8:1::/48"]
ipv4_router = "198.51.100.9"

[[network]]
name      = "office"
interface = "lan"
ipv4      = "192.168.1.1/24"

[firewall]
enabled = false
"#;

/// What the server has in the prefix of a translator, if its address is the one of IPv4.
const EMBEDDED: &str = "64:ff9b::c633:6409";

/// The customer's side of a translator (464XLAT), over the uplink.
const CLAT: &str = r#"[[uplink]]
name      = "ipv4"
interface = "clat"

[uplink.tunnel]
kind   = "464xlat"
over   = "wan"
prefix = "64:ff9b::/96"

"#;

/// Behind what is in `[firewall]`.
const FLOWTABLE: &str = "flow_offload = \"software\"\n";

/// Gone, with its processes, when dropped.
pub(super) struct GatewayScene {
    /// The client first, the server last.
    nodes: Vec<Namespace>,
    /// Of the two hosts, IPv6 and IPv4.
    addresses: [[&'static str; 2]; 2],
    /// The server's own address, where hosts know another one.
    translated: Option<&'static str>,
    directory: PathBuf,
    program: PathBuf,
    processes: Vec<Process>,
}

impl GatewayScene {
    /// Builds it, starts all that is in it, and waits until the hosts reach each other.
    pub(super) fn start(prefix: &str, subject: Subject, program: &Path) -> Result<Self, Error> {
        let names: &[&str] = match subject {
            Subject::Tunnel(_) => &["ha", "ga", "gb", "hb"],
            _ => &["ha", "gw", "hb"],
        };
        let addresses = match subject {
            Subject::Tunnel(_) => [["2001:db8:100::2", "192.168.1.2"], ["2001:db8:200::2", "192.168.2.2"]],
            Subject::Translation(Translation { way: Way::Nat64 | Way::Nat64Flowtable, .. }) => {
                [["2001:db8:1::2", "192.168.1.2"], [EMBEDDED, "198.51.100.9"]]
            }
            _ => [["2001:db8:1::2", "192.168.1.2"], ["2001:db8:f::9", "198.51.100.9"]],
        };
        let translated = match subject {
            Subject::Translation(Translation { way: Way::Nat64 | Way::Nat64Flowtable, .. }) => {
                Some("198.51.100.9")
            }
            Subject::Translation(Translation { way: Way::Clat | Way::ClatFlowtable, .. }) => Some(EMBEDDED),
            _ => None,
        };
        let directory = PathBuf::from(format!("/run/sidestep-lab/{prefix}"));
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let nodes = names.iter().map(|name| Namespace::named(format!("{prefix}-{name}"))).collect();
        let program = program.to_owned();
        let mut scene = Self { nodes, addresses, translated, directory, program, processes: Vec::new() };
        for node in &scene.nodes {
            node.delete()?;
            node.create()?;
        }
        match subject {
            Subject::Tunnel(tunnel) => scene.build_tunnel(tunnel)?,
            _ => scene.build_router(subject)?,
        }
        if matches!(subject, Subject::Translation(_)) {
            scene.answer()?;
        } else {
            scene.node(Site::B).nft(&packets::sink())?;
        }
        // Small packets leave the sender as single ones.
        check(scene.node(Site::A).command("ethtool")?.args(["-K", "eth0", "tx-udp-segmentation", "off"]))?;
        for family in subject.families() {
            let server = scene.address(Site::B, *family == Family::Ipv4);
            scene.wait_reachable(&server.to_string())?;
        }
        Ok(scene)
    }

    fn build_router(&mut self, subject: Subject) -> Result<(), Error> {
        let [client, gateway, server] = self.nodes.as_slice() else { return Ok(()) };
        gateway.ip(&format!(
            "link add lan type veth peer name eth0 netns {}\nlink add wan type veth peer name eth0 netns {}\n\
             addr add 198.51.100.1/24 dev wan\nlink set lan up\nlink set wan up\n",
            client.name(),
            server.name()
        ))?;
        client
            .ip("addr add 2001:db8:1::2/64 dev eth0\naddr add 192.168.1.2/24 dev eth0\nlink set eth0 up\n\
             route add default via 2001:db8:1::1\nroute add default via 192.168.1.1\n")?;
        server.ip("addr add fe80::9/64 dev eth0\naddr add 2001:db8:f::9/64 dev eth0\n\
             addr add 198.51.100.9/24 dev eth0\nlink set eth0 up\n\
             route add 2001:db8:1::/48 via 2001:db8:f::1\nroute add 192.168.1.0/24 via 198.51.100.1\n")?;
        if matches!(subject, Subject::Translation(Translation { way: Way::Clat | Way::ClatFlowtable, .. })) {
            gateway.ip("addr del 198.51.100.1/24 dev wan\n")?;
            // It answers as whom it was asked.
            server.ip(&format!(
                "addr del 198.51.100.9/24 dev eth0\naddr add {EMBEDDED}/128 dev eth0 nodad\n\
                 route replace 2001:db8:1::/48 via 2001:db8:f::1 src {EMBEDDED}\n"
            ))?;
        }
        let gateway = gateway.clone();
        if !subject.has_offloads() {
            self.offloads_off(&self.nodes)?;
        }
        if matches!(subject, Subject::Router(Router { by_hand: true, .. })) {
            gateway.sysctl(&[("ipv6/conf/all/forwarding", 1), ("ipv4/ip_forward", 1)])?;
            return gateway.ip("addr add 2001:db8:1::1/64 dev lan\naddr add 192.168.1.1/24 dev lan\n\
                 addr add 2001:db8:f::1/64 dev wan\nroute add default via fe80::9 dev wan\n\
                 route add default via 198.51.100.9\n");
        }
        let configuration = match subject {
            Subject::Translation(Translation { way, .. }) => translator(way),
            _ => ROUTER.to_owned(),
        };
        self.up(&gateway, &configuration)?;
        match subject {
            Subject::Rules(list, rules) => self.load(&gateway, list, rules),
            _ => Ok(()),
        }
    }

    /// The server answers some datagrams, and drops all others: what follows connections soon knows both directions.
    fn answer(&mut self) -> Result<(), Error> {
        let server = self.node(Site::B).clone();
        server.nft(&packets::answered_sink())?;
        let mut command = server.command(helper::program()?)?;
        command.args(["udp-answer", "--listen", &format!("[::]:{}", packets::PORT)]);
        self.processes.push(start_fresh(command, &self.directory.join("answer.log"))?);
        Ok(())
    }

    fn offloads_off(&self, nodes: &[Namespace]) -> Result<(), Error> {
        for node in nodes {
            for interface in node.ethernet_interfaces()? {
                node.offloads_off(&interface)?;
            }
        }
        Ok(())
    }

    /// Puts the rules into force.
    fn load(&self, gateway: &Namespace, list: List, rules: RuleSet) -> Result<(), Error> {
        match list {
            List::Iptables => {
                for ipv4 in [false, true] {
                    let restore =
                        restore(ipv4).ok_or_else(|| Error::Usage("iptables is not installed".into()))?;
                    check_with_input(&mut gateway.command(restore)?, &rules::iptables(rules, ipv4))?;
                }
                Ok(())
            }
            List::Nftables => gateway.nft(&rules::nftables(rules)),
            List::Sidestep => {
                let file = self.write("firewall.toml", &rules::firewall(rules))?;
                let mut command = gateway.command(&self.program)?;
                check(command.args(["firewall", "apply"]).arg(file).stdin(Stdio::null()))?;
                Ok(())
            }
        }
    }

    fn build_tunnel(&mut self, tunnel: Tunnel) -> Result<(), Error> {
        let nodes = self.nodes.clone();
        let [client, a, b, server] = nodes.as_slice() else { return Ok(()) };
        a.ip(&format!(
            "link add eth0 address {} type veth peer name eth0 address {} netns {}\n",
            OUTER_MAC[0],
            OUTER_MAC[1],
            b.name()
        ))?;
        for (place, gateway, host) in [(0, a, client), (1, b, server)] {
            let network = place + 1;
            gateway.ip(&format!(
                "link add lan type veth peer name eth0 netns {}\nlink set lan up\nlink set eth0 up\n",
                host.name()
            ))?;
            host.ip(&format!(
                "addr add 2001:db8:{network}00::2/64 dev eth0\nlink set eth0 up\n\
                 route add default via 2001:db8:{network}00::1\n"
            ))?;
            self.middle(tunnel, place, gateway)?;
        }
        for (place, gateway) in [(0, a), (1, b)] {
            self.up(gateway, &gateway_of(tunnel, place))?;
        }
        Ok(())
    }

    /// What a gateway needs of IPv4, and of a tunnel that is not ours.
    fn middle(&mut self, tunnel: Tunnel, place: usize, gateway: &Namespace) -> Result<(), Error> {
        let (own, other) = (ipv4_of(place), ipv4_of(1 - place));
        match tunnel {
            Tunnel::Native => gateway.ip(&format!("addr add fe80::{}/64 dev eth0\n", 1 + place)),
            Tunnel::Sidestep | Tunnel::Flowtable => gateway.ip(&format!("addr add {own}/24 dev eth0\n")),
            Tunnel::Sit => gateway.ip(&format!(
                "addr add {own}/24 dev eth0\nlink add he6 type sit local {own} remote {other} ttl 64\n\
                 link set he6 mtu 1480 up\n"
            )),
            Tunnel::UserSpace => {
                // The kernel has no IPv4 address here, so it does not answer for the process.
                gateway.ip(&format!(
                    "link add he6 address {} type veth peer name he6-user\n\
                     link set he6 arp off mtu 1480 up\nlink set he6-user up\n",
                    INNER_MAC[place]
                ))?;
                for interface in ["eth0", "he6"] {
                    gateway.offloads_off(interface)?;
                }
                let mut command = gateway.command(helper::program()?)?;
                command.args(["sixin4", "--inner", "he6-user", "--outer", "eth0"]);
                command.args(["--inner-mac", INNER_MAC[place], "--outer-mac", OUTER_MAC[1 - place]]);
                command.args(["--local", own, "--remote", other]);
                let log = self.directory.join(format!("sixin4-{place}.log"));
                self.processes.push(start_fresh(command, &log)?);
                Ok(())
            }
        }
    }

    /// Starts our gateway with a configuration.
    fn up(&mut self, gateway: &Namespace, configuration: &str) -> Result<(), Error> {
        let name = gateway.name();
        let file = self.write(&format!("{name}.toml"), configuration)?;
        let mut command = gateway.command(&self.program)?;
        command.arg("up").arg(file).arg("--state-dir").arg(self.directory.join("state"));
        let mut process = start_fresh(command, &self.directory.join(format!("{name}.log")))?;
        // What it refuses it refuses at once.
        if let Some(status) = process.wait(Duration::from_millis(200)) {
            return Err(Error::Usage(format!("`sidestep up` ended ({status}): {}", tail(process.log()))));
        }
        self.processes.push(process);
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.directory.join(name);
        std::fs::write(&path, text).map_err(|source| Error::file(&path, source))?;
        Ok(path)
    }

    /// Waits until neighbors know each other and all is in place.
    fn wait_reachable(&self, server: &str) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut ping = self.node(Site::A).command("ping")?;
            if run(ping.args(["-c", "1", "-W", "1", server]))?.status.success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let said: Vec<String> = self.processes.iter().map(|process| tail(process.log())).collect();
                return Err(Error::Usage(format!(
                    "the client does not reach {server}; the gateways say:\n{}",
                    said.join("\n")
                )));
            }
        }
    }

    /// A host.
    pub(super) fn node(&self, site: Site) -> &Namespace {
        &self.nodes[match site {
            Site::A => 0,
            Site::B => self.nodes.len() - 1,
        }]
    }
}

const fn ipv4_of(place: usize) -> &'static str {
    ["192.0.2.2", "192.0.2.1"][place]
}

/// The configuration of a gateway of T3: the way to the other one is the only thing that differs.
fn gateway_of(tunnel: Tunnel, place: usize) -> String {
    let (interface, router) = match tunnel {
        Tunnel::Native => ("eth0", format!("fe80::{}", 2 - place)),
        _ => ("he6", "point-to-point".to_owned()),
    };
    let mut text = format!(
        "[[uplink]]\nname = \"broker\"\ninterface = \"{interface}\"\nrouter = \"{router}\"\n\
         addresses = [\"2001:db8:1::{}/64\"]\nprefixes = [\"2001:db8:{}00::/48\"]\n",
        2 - place,
        1 + place
    );
    if matches!(tunnel, Tunnel::Sidestep | Tunnel::Flowtable) {
        text.push_str(&format!(
            "[uplink.tunnel]\nkind = \"6in4\"\nover = \"eth0\"\nremote = \"{}\"\nlocal = \"auto\"\n",
            ipv4_of(1 - place)
        ));
    }
    text.push_str("\n[[network]]\nname = \"office\"\ninterface = \"lan\"\n[firewall]\nenabled = false\n");
    if tunnel == Tunnel::Flowtable {
        text.push_str(FLOWTABLE);
    }
    text
}

/// The configuration of the gateway that translates.
fn translator(way: Way) -> String {
    let masquerade = ROUTER.replace("ipv4_router", "masquerade  = true\nipv4_router");
    let clat = ROUTER.replace("ipv4_router = \"198.51.100.9\"\n", "").replacen(
        "[[network]]",
        &format!("{CLAT}[[network]]"),
        1,
    );
    // Addresses of documentation are refused otherwise.
    let by_default = |text: &str| text.replace("enabled = false", "accept_special = [\"2001:db8::/32\"]");
    match way {
        Way::Stateless => ROUTER.to_owned(),
        Way::Forwarded => by_default(ROUTER),
        Way::ForwardedFlowtable => by_default(ROUTER) + FLOWTABLE,
        Way::Masqueraded => by_default(&masquerade),
        Way::Nat64 => by_default(&masquerade) + "[nat64]\n",
        Way::Nat64Flowtable => by_default(&masquerade) + FLOWTABLE + "[nat64]\n",
        Way::Clat => by_default(&clat),
        Way::ClatFlowtable => by_default(&clat) + FLOWTABLE,
    }
}

impl Hosts for GatewayScene {
    fn address(&self, site: Site, ipv4: bool) -> IpAddr {
        let host = match site {
            Site::A => 0,
            Site::B => 1,
        };
        let text = self.addresses[host][usize::from(ipv4)];
        text.parse().unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED))
    }

    fn listening(&self, site: Site, ipv4: bool) -> IpAddr {
        let translated = self.translated.filter(|_| site == Site::B).and_then(|own| own.parse().ok());
        translated.unwrap_or_else(|| self.address(site, ipv4))
    }

    fn on(&self, site: Site, program: &Path) -> Result<Command, Error> {
        self.node(site).command(program)
    }

    fn directory(&self) -> PathBuf {
        self.directory.clone()
    }
}

impl Drop for GatewayScene {
    fn drop(&mut self) {
        for process in self.processes.drain(..) {
            process.stop(Duration::from_secs(3));
        }
        for node in &self.nodes {
            if let Err(error) = node.delete() {
                eprintln!("{error}");
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether the kernel has `sit`.
pub(super) fn kernel_has_sit(prefix: &str) -> Result<bool, Error> {
    kernel_has(prefix, |node| node.ip("link add he6 type sit local 192.0.2.1 remote 192.0.2.2\n"))
}

/// Whether the kernel has flowtables.
pub(super) fn kernel_has_flowtable(prefix: &str) -> Result<bool, Error> {
    kernel_has(prefix, |node| {
        node.nft("table inet t {\nflowtable f { hook ingress priority 0; devices = { \"lo\" }; }\n}\n")
    })
}

/// Whether the kernel has something: it is tried in a namespace of its own.
fn kernel_has(prefix: &str, attempt: impl Fn(&Namespace) -> Result<(), Error>) -> Result<bool, Error> {
    let node = Namespace::named(format!("{prefix}-has"));
    node.delete()?;
    node.create()?;
    let made = attempt(&node).is_ok();
    node.delete()?;
    Ok(made)
}

/// The program that loads a list of rules for one IP version, where there is one: xtables' own if it is there, because that
/// is the list that the paper's gateway had.
pub(super) fn restore(ipv4: bool) -> Option<PathBuf> {
    let family = if ipv4 { "iptables" } else { "ip6tables" };
    find(&format!("{family}-legacy-restore")).or_else(|| find(&format!("{family}-restore")))
}
