//! Pairs of gateways whose addresses say nothing about which belong together: each has a part of one /64 at its site, and the
//! judges are not told of parts.
//!
//! ```text
//!   a0 ─┐                      ┌─ b0
//!   a1 ─┼─ link ── router ── link ─┼─ b1
//!   …  ─┘          (observer)      └─ …
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::Error;
use lab::capture::{self, Packet};
use lab::command::{check, find};
use lab::gateway::write_private;
use lab::namespaces::{Namespace, check_neighbors};
use lab::process::{Process, tail};

use super::cost::Cost;
use super::options::LinkingOptions;
use crate::wireguard::{End, Keys, MTU, request};

/// How long all sessions may take to be made.
const PATIENCE: Duration = Duration::from_secs(60);
/// Gateways started at once: starting costs far more than running.
const BATCH: u8 = 8;
/// What pairs carry whose packets are masked.
const WIREGUARD: &str = "wireguard-go";
/// The port of the traffic, inside.
const PORT: u16 = 7000;

/// Namespaces and processes; gone when dropped.
pub(super) struct Scene {
    prefix: String,
    router: Namespace,
    /// Gateways of a pair.
    gateways: Vec<[Namespace; 2]>,
    directory: PathBuf,
    /// Of WireGuard, where its packets are masked.
    inner: Vec<End>,
    processes: Vec<Process>,
    recording: Option<Process>,
    program: PathBuf,
}

/// An address of a gateway: its site is 0 or 1.
fn external(site: usize, pair: u8) -> String {
    format!("2001:db8:e{site}::{:x}", u16::from(pair) + 2)
}

/// The part of its site's /64 that a gateway hops in.
fn part(site: usize, pair: u8) -> String {
    format!("2001:db8:f{site}:0:{:x}::/72", u16::from(pair) << 8)
}

fn inside(site: usize, pair: u8) -> String {
    format!("fd00:{}:{pair:x}::1", if site == 0 { "a" } else { "b" })
}

/// Which pair an address in the hopping prefix of a site belongs to: what the observer does not know.
pub(super) fn pair_of(packet: &Packet) -> Option<(u8, usize)> {
    let [source, destination] = [packet.source, packet.destination].map(|address| address.segments());
    let site = (0..2).find(|site| {
        source[..4] == [0x2001, 0xdb8, 0xf0 + *site as u16, 0]
            && destination[..4] == [0x2001, 0xdb8, 0xf1 - *site as u16, 0]
    })?;
    Some(((source[4] >> 8) as u8, site))
}

impl Scene {
    /// Builds all pairs, and starts them; each has a session when this returns.
    ///
    /// # Errors
    /// When one has none in time.
    pub(super) fn build(options: &LinkingOptions, program: &Path) -> Result<Self, Error> {
        check_neighbors(1 + 2 * u64::from(options.pairs))?;
        let named = |end: String| Namespace::named(format!("{}-{end}", options.prefix));
        let mut scene = Self {
            prefix: options.prefix.clone(),
            router: named("r".to_owned()),
            gateways: (0..options.pairs)
                .map(|n| ["a", "b"].map(|site| named(format!("{site}{n}"))))
                .collect(),
            directory: PathBuf::from(format!("/run/sidestep-lab/{}", options.prefix)),
            inner: Vec::new(),
            processes: Vec::new(),
            recording: None,
            program: program.to_owned(),
        };
        std::fs::create_dir_all(&scene.directory).map_err(|source| Error::file(&scene.directory, source))?;
        scene.connect()?;
        let files = scene.configure(options, program)?;
        if options.mask {
            scene.start_inner(program)?;
        }
        for (number, files) in files.iter().enumerate() {
            for (site, file) in files.iter().enumerate() {
                let mut command = scene.gateways[number][site].command(program)?;
                command.arg("up").arg(file).arg("--state-dir").arg(scene.directory.join("state"));
                scene.processes.push(Process::start(&mut command, &file.with_extension("log"))?);
            }
            if (number + 1).is_multiple_of(BATCH.into()) || number + 1 == usize::from(options.pairs) {
                scene.wait_connected(number + 1)?;
            }
        }
        Ok(scene)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn connect(&self) -> Result<(), Error> {
        for namespace in std::iter::once(&self.router).chain(self.gateways.iter().flatten()) {
            namespace.delete()?;
            namespace.create()?;
            namespace.ip("link set lo up\n")?;
        }
        self.router.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        for site in 0..2 {
            self.router.ip(&format!(
                "link add site{site} type bridge mcast_snooping 0\nlink set site{site} up\n\
                 addr add 2001:db8:e{site}::1/64 dev site{site} nodad\n"
            ))?;
        }
        for (number, pair) in (0..).zip(&self.gateways) {
            for (site, gateway) in pair.iter().enumerate() {
                let (name, address) = (gateway.name(), external(site, number));
                self.router.ip(&format!(
                    "link add p{site}-{number} type veth peer name ex netns {name}\n\
                     link set p{site}-{number} master site{site} up\nroute add {} via {address}\n",
                    part(site, number)
                ))?;
                gateway.ip(&format!(
                    "link set ex up\naddr add {address}/64 dev ex nodad\nroute add default via 2001:db8:e{site}::1\n"
                ))?;
                // The observer sees datagrams, not what the kernel makes of several.
                gateway.offloads_off("ex")?;
            }
        }
        Ok(())
    }

    /// Writes all configurations, those of a pair together.
    fn configure(&self, options: &LinkingOptions, program: &Path) -> Result<Vec<[PathBuf; 2]>, Error> {
        let more: String = options.peer.iter().map(|line| format!("{line}\n")).collect();
        let mut files = Vec::new();
        for pair in 0..options.pairs {
            let keys = [Keys::generate(program)?, Keys::generate(program)?];
            let path = |site: usize| self.directory.join(format!("{}{pair}.toml", ["a", "b"][site]));
            for site in 0..2 {
                let other = 1 - site;
                let [own, network] = [site, other].map(|site| format!("\"{}/128\"", inside(site, pair)));
                // What is inside is the tunnel's own, or that of the WireGuard in it.
                let (addresses, allowed, wrap) = if options.mask {
                    let device = self.device(site, pair);
                    let wrap =
                        format!("carry = \"mask\"\n[[wrap]]\npeer = \"other\"\ninterface = \"{device}\"\n");
                    (String::new(), String::new(), wrap)
                } else {
                    (own, network, String::new())
                };
                let text = format!(
                    "[node]\nprivate_key = \"{}\"\nexternal = \"ex\"\nhop_prefix = \"{}\"\n\
                     [tunnel]\nname = \"{}-{}{pair}\"\naddresses = [{addresses}]\n\
                     [[peer]]\nname = \"other\"\npublic_key = \"{}\"\nhop_prefix = \"{}\"\nallowed_ips = [{allowed}]\n\
                     rotation = \"{}\"\nlanes = {}\nshape = {}\nkeepalive = \"25s\"\n{more}{wrap}",
                    keys[site].private,
                    part(site, pair),
                    self.prefix,
                    ["a", "b"][site],
                    keys[other].public,
                    part(other, pair),
                    options.rotation,
                    options.lanes(),
                    options.shape,
                );
                write_private(&path(site), &text)?;
            }
            files.push([path(0), path(1)]);
        }
        Ok(files)
    }

    /// The device of a pair's WireGuard, at a site.
    fn device(&self, site: usize, pair: u8) -> String {
        format!("{}w{}{pair}", self.prefix, ["a", "b"][site])
    }

    /// Starts the WireGuard of all pairs, which leads to the gateways' own addresses as long as nobody says otherwise.
    fn start_inner(&mut self, program: &Path) -> Result<(), Error> {
        let inner = find(WIREGUARD).ok_or_else(|| {
            Error::Usage(format!(
                "`{WIREGUARD}` is not on the path: scripts/contenders {WIREGUARD} installs it"
            ))
        })?;
        for (pair, gateways) in (0..).zip(&self.gateways) {
            let keys = [Keys::generate(program)?, Keys::generate(program)?];
            for (site, gateway) in gateways.iter().enumerate() {
                let (device, other) = (self.device(site, pair), 1 - site);
                let allowed = format!("{}/128", inside(other, pair));
                let request = request(&keys[site], &keys[other], &external(other, pair), [&*allowed]);
                self.inner.push(End::start(gateway.command(&inner)?, &device, &self.directory, &request)?);
                gateway.ip(&format!(
                    "addr add {}/128 dev {device}\nlink set {device} mtu {MTU} up\nroute add {allowed} dev {device}\n",
                    inside(site, pair)
                ))?;
            }
        }
        Ok(())
    }

    /// Waits until the first so many pairs can be pinged through.
    fn wait_connected(&self, pairs: usize) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        for (number, pair) in (0..).zip(&self.gateways[..pairs]) {
            let ping = || -> Result<bool, Error> {
                let mut command = pair[0].command("ping")?;
                command.args(["-6", "-n", "-q", "-c", "1", "-W", "1", &inside(1, number)]);
                Ok(check(&mut command).is_ok())
            };
            while !ping()? {
                if Instant::now() > deadline {
                    let log = tail(&self.directory.join(format!("a{number}.log")));
                    return Err(Error::output("pair", format!("{number} has no session:\n{log}")));
                }
            }
        }
        Ok(())
    }

    /// Starts what the pairs carry.
    pub(super) fn start_traffic(&mut self, options: &LinkingOptions) -> Result<(), Error> {
        let own = std::env::current_exe().map_err(|source| Error::file("sidestep-lab", source))?;
        for (number, pair) in (0..).zip(&self.gateways) {
            // The server first: it listens.
            for site in [1, 0] {
                let mut command = pair[site].command(&own)?;
                let at = |site| format!("[{}]:{PORT}", inside(site, number));
                command.args(["traffic-of-kind", "--listen", &at(site), "--to", &at(1 - site)]);
                command.args(["--kind", &options.kind(number).to_string()]);
                command.args(["--seed", &(options.seed << 8 | u64::from(number)).to_string()]);
                if site == 1 {
                    command.arg("--server");
                }
                let log = self.directory.join(format!("traffic-{number}-{site}.log"));
                self.processes.push(Process::start(&mut command, &log)?);
            }
        }
        Ok(())
    }

    /// The observer begins to look.
    pub(super) fn start_recording(&mut self) -> Result<(), Error> {
        let own = std::env::current_exe().map_err(|source| Error::file("sidestep-lab", source))?;
        let mut command = self.router.command(own)?;
        command.arg("capture").arg("site1").arg(self.directory.join("seen.pcap"));
        self.recording = Some(Process::start(&mut command, &self.directory.join("capture.log"))?);
        Ok(())
    }

    /// What he saw, and what the gateways say that it cost. Traffic goes on until then; then all ends, and leaves the
    /// processors to the judges.
    pub(super) fn finish(&mut self) -> Result<(Vec<Packet>, Cost), Error> {
        let mut cost = Cost::default();
        for gateway in self.gateways.iter().flatten() {
            let mut command = gateway.command(&self.program)?;
            command.args(["show", gateway.name(), "--json"]);
            cost.add(&check(&mut command)?.stdout)?;
        }
        if let Some(recording) = self.recording.take() {
            recording.stop(Duration::from_secs(10));
        }
        for process in self.processes.drain(..) {
            process.kill();
        }
        Ok((capture::read(&self.directory.join("seen.pcap"))?, cost))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.processes.drain(..).chain(self.recording.take()) {
            process.kill();
        }
        self.inner.clear();
        for namespace in std::iter::once(&self.router).chain(self.gateways.iter().flatten()) {
            if let Err(error) = namespace.delete() {
                eprintln!("{error}");
            }
        }
        for number in 0..self.gateways.len() {
            for site in ["a", "b"] {
                for kind in ["sock", "journal", "closed"] {
                    let _ =
                        std::fs::remove_file(format!("/run/sidestep/{}-{site}{number}.{kind}", self.prefix));
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
