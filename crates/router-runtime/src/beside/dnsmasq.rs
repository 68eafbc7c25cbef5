//! One dnsmasq for each network whose hosts ask the gateway for addresses or names: [`router::hosts`] says what it is told.
//!
//! Its configuration, the servers that it asks, and names with IPv6 addresses are files in a folder beside the journal, which it
//! reads; its leases are in a file in the state directory, so that they outlive it. A changed configuration is another process,
//! which takes milliseconds; other servers and names, which come and go with the uplinks, are read by the one that runs when it
//! gets SIGHUP. (Before version 2.88 a folder that it watches by itself, `hostsdir`, only adds names.)

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use control::router_status as status;
use linux::netlink::Link;
use linux::process::{Capability, find_program};
use router::firewall::Policy;
use router::hosts::lease::{leases, without_names};
use router::hosts::{Upstream, dnsmasq, stubby};
use router::plan::Address;
use router::site::{Network, Site};
use tracing::warn;

use super::program::{Description, Program, taken};
use crate::dhcp6::prefixes_of_names;
use crate::error::Error;

/// The program, and Debian's package of it without a service of its own.
const PROGRAM: &str = "dnsmasq";
const PACKAGE: &str = "dnsmasq-base";
const DNS: u16 = 53;
const DHCP: u16 = 67;
/// Answers to hosts that have no address yet go past neighbor discovery (NET_ADMIN); addresses are pinged before they are leased
/// (NET_RAW).
const FOR_ADDRESSES: &[Capability] =
    &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE];
const FOR_NAMES: &[Capability] = &[Capability::CAP_NET_BIND_SERVICE];
/// Where a DHCP client for IPv4 says which servers its provider has.
const RESOLVER: &str = "/etc/resolv.conf";
const CONFIGURATION: &str = "dnsmasq.conf";
const SERVERS: &str = "servers.conf";
const NAMES: &str = "names";

/// All that run.
pub(crate) struct Dnsmasqs {
    /// What they read is here, a folder for each network.
    folder: PathBuf,
    /// What names of files with leases begin with.
    leases: PathBuf,
    running: Vec<Running>,
    /// Why there is none, by network.
    failed: BTreeMap<String, String>,
}

struct Running {
    network: String,
    configuration: String,
    files: Files,
    program: Program,
}

/// What it reads again when it is told to.
#[derive(PartialEq, Eq)]
struct Files {
    servers: String,
    names: String,
}

impl Files {
    fn write(&self, folder: &Path) -> io::Result<()> {
        linux::file::replace(&folder.join(SERVERS), self.servers.as_bytes())?;
        linux::file::replace(&folder.join(NAMES), self.names.as_bytes()).map(drop)
    }
}

/// What they depend on beside the configuration.
pub(crate) struct Surroundings<'a> {
    pub(crate) policy: Option<&'a Policy>,
    pub(crate) links: &'a [Link],
    /// The gateway's own.
    pub(crate) addresses: &'a [Address],
    /// Servers that working uplinks announce, each with the uplink's interface.
    pub(crate) announced: Vec<(Ipv6Addr, &'a str)>,
    pub(crate) now: Instant,
}

impl Dnsmasqs {
    /// `journal` and `state` are the gateway's own files.
    pub(crate) fn new(journal: &Path, state: &Path) -> Self {
        let folder = journal.with_extension("dnsmasq");
        // What a crash has left.
        let _ = std::fs::remove_dir_all(&folder);
        Dnsmasqs { folder, leases: state.with_extension(""), running: Vec::new(), failed: BTreeMap::new() }
    }

    /// Has those run that the site wants, told what it says. What cannot be done is returned.
    pub(crate) fn follow(&mut self, site: &Site, around: &Surroundings<'_>) -> Vec<String> {
        let mut problems = Vec::new();
        let own: BTreeSet<IpAddr> = around.addresses.iter().map(|address| address.address.addr()).collect();
        let upstream = upstream(site, around, &own);
        if upstream.is_empty() && site.networks.iter().any(|network| network.resolves) {
            problems.push(format!(
                "names elsewhere cannot be resolved: no uplink announces a DNS server and {RESOLVER} has none: name one with \
                 `upstream` in [dns]"
            ));
        }
        let servers = dnsmasq::servers(&upstream);
        let index = |network: &Network| {
            around.links.iter().find(|link| link.name == network.interface && link.up).map(|link| link.index)
        };
        // Without its interface it would listen nowhere.
        let prefixes = |network: &Network| prefixes_of_names(network, around.addresses, around.now);
        let wanted: Vec<(&Network, String, Files)> = site
            .networks
            .iter()
            .filter(|network| network.has_server())
            .filter_map(|network| {
                let others: Vec<_> = site.known_to(network, around.policy).collect();
                let names = dnsmasq::names(site, network, &others, prefixes);
                let files = Files { servers: servers.clone(), names };
                Some((network, dnsmasq::configuration(site, network, &others, index(network)?), files))
            })
            .collect();
        let is_wanted = |running: &Running| {
            wanted
                .iter()
                .any(|(network, text, _)| network.name == running.network && *text == running.configuration)
        };
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.running).into_iter().partition(is_wanted);
        self.running = stay;
        for gone in go {
            self.end(gone);
        }
        self.failed.clear();
        for (network, configuration, files) in wanted {
            if let Some(running) = self.running.iter_mut().find(|running| running.network == network.name) {
                if running.files == files {
                    continue;
                }
                match files.write(&self.folder.join(&running.network)) {
                    Ok(()) => {
                        running.files = files;
                        running.program.reread();
                    }
                    Err(error) => problems.push(format!("network {:?}: {PROGRAM}: {error}", network.name)),
                }
                continue;
            }
            match self.start(site, network, configuration, files, around.addresses) {
                Ok(running) => self.running.push(running),
                Err(error) => {
                    let why = format!("{PROGRAM} cannot be started: {error}");
                    problems.push(format!("network {:?}: {why}", network.name));
                    self.failed.insert(network.name.clone(), why);
                }
            }
        }
        problems.extend(self.running.iter().filter_map(|running| {
            let why = running.program.state().why?;
            Some(format!("network {:?}: hosts get no answers from {PROGRAM}: {why}", running.network))
        }));
        problems.extend(site.networks.iter().filter_map(|network| self.is_full(site, network)));
        problems
    }

    fn start(
        &self,
        site: &Site,
        network: &Network,
        configuration: String,
        files: Files,
        addresses: &[Address],
    ) -> io::Result<Running> {
        let not_found = || io::Error::other(format!("it is not installed (`apt install {PACKAGE}`)"));
        let path = find_program(PROGRAM).ok_or_else(not_found)?;
        let folder = self.folder.join(&network.name);
        linux::file::replace(&folder.join(CONFIGURATION), configuration.as_bytes())?;
        files.write(&folder)?;
        let leases = self.leases_of(&network.name);
        if let Some(folder) = leases.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // There before it starts, so that this file alone is what it may write.
        OpenOptions::new().append(true).create(true).mode(0o600).open(&leases)?;
        let before = std::fs::read(&leases)?;
        let now =
            without_names(&String::from_utf8_lossy(&before), |lease| site.is_anothers_name(network, lease));
        if now.as_bytes() != before {
            linux::file::replace(&leases, now.as_bytes())?;
        }
        let argument = |name: &str, path: &Path| {
            let mut argument = std::ffi::OsString::from(format!("--{name}="));
            argument.push(path);
            argument
        };
        let mut arguments =
            vec!["--keep-in-foreground".into(), argument("conf-file", &folder.join(CONFIGURATION))];
        if network.resolves {
            arguments.push(argument("servers-file", &folder.join(SERVERS)));
            arguments.push(argument("addn-hosts", &folder.join(NAMES)));
        }
        if network.dhcp.is_some() {
            arguments.push(argument("dhcp-leasefile", &leases));
        }
        let here = addresses.iter().filter(|address| address.interface == network.interface);
        let here: Vec<IpAddr> = here.map(|address| address.address.addr()).collect();
        let (interface, leases_addresses, resolves) =
            (network.interface.clone(), network.dhcp.is_some(), network.resolves);
        let obstacle = move || {
            let dns = here.iter().find(|address| resolves && linux::port::is_taken(**address, DNS));
            let dhcp = leases_addresses && linux::port::is_taken_at(&interface, DHCP);
            dns.map(|address| taken(DNS, address)).or_else(|| dhcp.then(|| taken(DHCP, &interface)))
        };
        let program = Program::start(Description {
            name: format!("{PROGRAM} of network {:?}", network.name),
            path,
            arguments,
            readable: vec![folder],
            writable: vec![leases],
            capabilities: if network.dhcp.is_some() { FOR_ADDRESSES } else { FOR_NAMES },
            obstacle: Box::new(obstacle),
            listen: Arc::new(|_| true),
        })?;
        Ok(Running { network: network.name.clone(), configuration, files, program })
    }

    fn end(&self, running: Running) {
        let folder = self.folder.join(&running.network);
        drop(running);
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            warn!("{}: {error}", folder.display());
        }
    }

    /// Ends all of them.
    pub(crate) fn end_all(&mut self) {
        for running in std::mem::take(&mut self.running) {
            self.end(running);
        }
        // Not there, if there was none.
        let _ = std::fs::remove_dir(&self.folder);
    }

    fn leases_of(&self, network: &str) -> PathBuf {
        let mut path = self.leases.clone().into_os_string();
        path.push(format!("-{network}.leases"));
        path.into()
    }

    /// What a network's dnsmasq is, and its leases; None where the gateway has none there.
    pub(crate) fn status(&self, site: &Site, network: &Network) -> Option<status::Dnsmasq> {
        if !network.has_server() {
            return None;
        }
        let running = self.running.iter().find(|running| running.network == network.name);
        let state = running.map(|running| running.program.state()).unwrap_or_default();
        let failed = self.failed.get(&network.name).cloned();
        let no_link = || running.is_none().then(|| format!("{} is not up", network.interface));
        let domain = site.domain_of(network);
        let fixed = network.dhcp.iter().flat_map(|dhcp| &dhcp.hosts);
        let fixed: BTreeSet<_> = fixed.map(|host| host.address).collect();
        let now = now();
        let lease = |lease: router::hosts::lease::Lease| status::Lease {
            address: lease.address,
            mac: lease.mac,
            name: lease.name.map(|name| match &domain {
                Some(domain) => format!("{name}.{domain}"),
                None => name,
            }),
            fixed: fixed.contains(&lease.address),
            seconds: lease.expires.map(|expires| expires.saturating_sub(now)),
        };
        Some(status::Dnsmasq {
            runs: state.id.is_some(),
            why: state.why.or(failed).or_else(no_link),
            restarts: state.restarts,
            range: network.dhcp.as_ref().map(|dhcp| format!("{}-{}", dhcp.first, dhcp.last)),
            addresses: network.dhcp.as_ref().map(|dhcp| u64::from(dhcp.size())),
            domain: domain.clone(),
            leases: self.leases(site, network).into_iter().map(lease).collect(),
        })
    }

    /// A host that says that it is called like one with a fixed address has that name in the file, too, though not in DNS.
    fn leases(&self, site: &Site, network: &Network) -> Vec<router::hosts::lease::Lease> {
        if network.dhcp.is_none() {
            return Vec::new();
        }
        let text = std::fs::read(self.leases_of(&network.name)).unwrap_or_default();
        let mut leases = leases(&String::from_utf8_lossy(&text), now());
        for lease in &mut leases {
            if site.is_anothers_name(network, lease) {
                lease.name = None;
            }
        }
        leases
    }

    /// The addresses of a name, as hosts of each network are told them; the gateway has these itself.
    pub(crate) fn named(&self, site: &Site, name: &str, addresses: &[Address], now: Instant) -> Vec<IpAddr> {
        let fixed = site.fixed_hosts();
        let fixed = fixed.map(|(network, host)| (network, host.name.clone(), IpAddr::V4(host.address)));
        let leased = site.networks.iter().flat_map(|network| {
            let leases = self.leases(site, network).into_iter();
            leases.filter_map(move |lease| Some((network, lease.name?, IpAddr::V4(lease.address))))
        });
        let fixed6 = site.fixed_hosts6().flat_map(|(network, host)| {
            let prefixes = prefixes_of_names(network, addresses, now).into_iter();
            let addresses = prefixes.filter_map(move |prefix| host.address_in(prefix));
            addresses.map(move |address| (network, host.name.clone(), IpAddr::V6(address)))
        });
        let is_meant = |network: &Network, host: &str| {
            let domain = site.domain_of(network);
            host.eq_ignore_ascii_case(name)
                || domain.is_some_and(|domain| format!("{host}.{domain}").eq_ignore_ascii_case(name))
        };
        let all = fixed.chain(leased).chain(fixed6);
        all.filter(|(network, host, _)| is_meant(network, host)).map(|(.., address)| address).collect()
    }

    /// That the pool has no address left.
    fn is_full(&self, site: &Site, network: &Network) -> Option<String> {
        let dhcp = network.dhcp.as_ref()?;
        let fixed = |address| dhcp.hosts.iter().any(|host| host.address == address);
        let leases = self.leases(site, network);
        let taken = leases.iter().filter(|lease| dhcp.has(lease.address) && !fixed(lease.address)).count();
        let fixed_in_pool = dhcp.hosts.iter().filter(|host| dhcp.has(host.address)).count();
        let free = (dhcp.size() as usize).saturating_sub(taken + fixed_in_pool);
        (free == 0).then(|| {
            format!(
                "network {:?}: all {} addresses of its DHCP range are leased: make `range` larger, or `lease` shorter",
                network.name,
                dhcp.size()
            )
        })
    }
}

/// What `up` refuses on this machine as it is now: networks with hosts that ask, and no program that answers.
///
/// # Errors
/// The first such network.
pub(crate) fn refuse(site: &Site) -> Result<(), Error> {
    let Some(network) = site.networks.iter().find(|network| network.has_server()) else { return Ok(()) };
    match find_program(PROGRAM) {
        Some(_) => Ok(()),
        None => Err(Error::NoProgram { network: network.name.clone(), program: PROGRAM, package: PACKAGE }),
    }
}

/// Who is asked for names elsewhere, never this gateway itself.
fn upstream<'a>(
    site: &Site,
    around: &Surroundings<'a>,
    own: &BTreeSet<IpAddr>,
) -> Vec<(SocketAddr, Option<&'a str>)> {
    let mut servers: Vec<(SocketAddr, Option<&str>)> =
        match site.resolver.as_ref().map(|resolver| &resolver.upstream) {
            None => return Vec::new(),
            Some(Upstream::Servers(servers)) => servers.iter().map(|server| (*server, None)).collect(),
            Some(Upstream::Tls(_)) => vec![(stubby::LISTENS_AT, None)],
            Some(Upstream::Uplinks) => {
                let announced = around.announced.iter().map(|(address, interface)| {
                    let zone = address.is_unicast_link_local().then_some(*interface);
                    (SocketAddr::from((*address, DNS)), zone)
                });
                announced.collect()
            }
        };
    let is_of_uplinks = site.resolver.as_ref().is_some_and(|resolver| resolver.upstream == Upstream::Uplinks);
    if servers.is_empty() && is_of_uplinks {
        let text = std::fs::read_to_string(RESOLVER).unwrap_or_default();
        servers = of_this_machine(&text).map(|address| (SocketAddr::from((address, DNS)), None)).collect();
    }
    servers.retain(|(server, _)| server.port() != DNS || !own.contains(&server.ip()));
    servers
}

/// The servers of resolv.conf(5).
fn of_this_machine(text: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use router::hosts::Resolver;

    fn site(upstream: Upstream) -> Site {
        let resolver = Resolver { upstream, domain: "internal".to_owned(), private: Vec::new() };
        Site { resolver: Some(resolver), ..Site::default() }
    }

    #[test]
    fn servers_of_uplinks_are_asked_by_their_link_and_the_gateway_never_asks_itself() {
        let at = |text: &str| text.parse().unwrap();
        let around = Surroundings {
            policy: None,
            links: &[],
            addresses: &[],
            announced: vec![
                (at("fe80::1"), "wan0"),
                (at("2001:db8::53"), "wan0"),
                (at("2001:db8:1::1"), "wan1"),
            ],
            now: Instant::now(),
        };
        let own = BTreeSet::from(["2001:db8:1::1".parse().unwrap(), "192.168.1.1".parse().unwrap()]);
        let asked = dnsmasq::servers(&upstream(&site(Upstream::Uplinks), &around, &own));
        assert_eq!(asked, "server=fe80::1%wan0#53\nserver=2001:db8::53#53\n");
        // A forwarder at another port of the gateway is another program.
        let given = ["192.168.1.1:53", "192.168.1.1:5353", "9.9.9.9:53"].map(|text| text.parse().unwrap());
        let asked = dnsmasq::servers(&upstream(&site(Upstream::Servers(given.to_vec())), &around, &own));
        assert_eq!(asked, "server=192.168.1.1#5353\nserver=9.9.9.9#53\n");
    }

    /// A network with one host whose address is fixed.
    fn office() -> Site {
        let host = router::hosts::FixedHost {
            name: "printer".to_owned(),
            mac: wire::ethernet::MacAddress([2, 0, 0, 0, 0, 5]),
            address: [192, 168, 1, 5].into(),
        };
        let dhcp = router::hosts::Dhcp {
            first: [192, 168, 1, 128].into(),
            last: [192, 168, 1, 254].into(),
            lease: std::time::Duration::from_secs(43_200),
            dns: Vec::new(),
            hosts: vec![host],
        };
        let network = Network {
            name: "office".to_owned(),
            interface: "lan".to_owned(),
            subnet: None,
            host: 1,
            prefixes: Vec::new(),
            ipv4: Some("192.168.1.1/24".parse().unwrap()),
            advertise: None,
            resolves: false,
            dhcp: Some(dhcp),
            dhcp6: None,
            port_mapping: None,
        };
        Site { networks: vec![network], ..Site::default() }
    }

    #[test]
    fn what_keeps_it_from_being_started_is_said_and_not_that_its_link_is_down() {
        let site = office();
        let folder = tempfile::tempdir().unwrap();
        // No folder, so that nothing can be written below it.
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut dnsmasqs = Dnsmasqs::new(&file.join("gw.journal"), &file.join("gw.json"));
        let mut link = Link {
            index: 1,
            name: "lan".to_owned(),
            mtu: 1500,
            mac: None,
            up: true,
            running: true,
            resolves: true,
        };
        for (up, expected) in [(true, "dnsmasq cannot be started: "), (false, "lan is not up")] {
            link.up = up;
            let links = [link.clone()];
            let around = Surroundings {
                policy: None,
                links: &links,
                addresses: &[],
                announced: Vec::new(),
                now: Instant::now(),
            };
            let problems = dnsmasqs.follow(&site, &around);
            let why = dnsmasqs.status(&site, &site.networks[0]).unwrap().why.unwrap();
            assert!(why.starts_with(expected), "{why}");
            assert_eq!(problems.iter().any(|problem| problem.ends_with(&why)), up, "{problems:?}");
        }
    }

    #[test]
    fn a_lease_has_no_name_that_is_a_fixed_hosts() {
        let site = office();
        let folder = tempfile::tempdir().unwrap();
        let dnsmasqs = Dnsmasqs::new(&folder.path().join("gw.journal"), &folder.path().join("gw.json"));
        let leases =
            "0 02:00:00:00:00:05 192.168.1.5 printer *\n0 02:00:00:00:00:66 192.168.1.130 printer *\n";
        std::fs::write(dnsmasqs.leases_of("office"), leases).unwrap();
        let said = dnsmasqs.status(&site, &site.networks[0]).unwrap().leases;
        let said: Vec<_> = said.iter().map(|lease| (lease.fixed, lease.name.as_deref())).collect();
        assert_eq!(said, [(true, Some("printer")), (false, None)]);
        let named = dnsmasqs.named(&site, "printer", &[], Instant::now());
        assert!(named.iter().all(|address| *address == IpAddr::from([192, 168, 1, 5])), "{named:?}");
    }

    #[test]
    fn servers_of_the_machine_are_those_of_resolv_conf() {
        let text = "# nameserver 1.1.1.1\nnameserver 192.0.2.53\nsearch example\nnameserver fe80::1%eth0\n nameserver ::1\n";
        let found: Vec<_> = of_this_machine(text).map(|address| address.to_string()).collect();
        assert_eq!(found, ["192.0.2.53", "::1"]);
    }
}
