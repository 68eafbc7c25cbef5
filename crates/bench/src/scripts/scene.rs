//! A client, the gateway where somebody does a job, and a server with several addresses.
//!
//! ```text
//!   client ── lan  gateway  wan ── server
//!   fd00::2   fd00::1  2001:db8:f::1   2001:db8:f::9 takes floods, ::a answers
//!   2001:db8:bad::2                    2001:db8:5::1 to ::3 take connections
//! ```
//! 2001:db8:bad::/48 is on the list of prefixes, and 2001:db8:5::80 is the address that connections are shared from, or that
//! a proxy has.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::job::{Job, Peer};
use super::traffic::{Carried, hexadecimal};
use crate::nat::packets;
use lab::Error;
use lab::command::{check, run, text};
use lab::namespaces::Namespace;
use lab::process::{Process, tail};
use lab::topology::Site;
use lab::traffic::{Hosts, generator, start_fresh, wait_listening};

/// Who asks; the outer address is 2001:db8::1.
pub(super) const CLIENT: &str = "fd00::2";
/// The same host, by an address on the list of prefixes.
pub(super) const LISTED: &str = "2001:db8:bad::2";
const FLOODED: &str = "2001:db8:f::9";
const ANSWERING: &str = "2001:db8:f::a";
/// Prefixes on the list.
const PREFIXES: usize = 1000;
const DNS: u16 = 53;
/// How long somebody may take to be ready.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// A query for `www.example`, type AAAA.
const QUERY: &[u8] =
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x00\x00\x1c\x00\x01";
/// Octets of a small packet.
const SIZE: usize = 64;

/// How much a source may send in a second, and at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) rate: u32,
    pub(super) burst: u32,
}

/// Gone, with its processes, when dropped.
pub(super) struct Scene {
    pub(super) job: Job,
    pub(super) peer: Peer,
    pub(super) limit: Limit,
    pub(super) client: Namespace,
    pub(super) gateway: Namespace,
    server: Namespace,
    pub(super) directory: PathBuf,
    /// Gone with this.
    _folder: TempDir,
    pub(super) program: PathBuf,
    /// Of the one who does the job.
    pub(super) process: Option<Process>,
    servers: Vec<Process>,
    /// No connection has the port of another one.
    next_port: Cell<u16>,
}

impl Scene {
    pub(super) fn start(
        prefix: &str,
        (job, peer): (Job, Peer),
        limit: Limit,
        program: &Path,
    ) -> Result<Self, Error> {
        let [client, gateway, server] =
            ["client", "gateway", "server"].map(|name| Namespace::named(format!("{prefix}-{name}")));
        // Not below /run, where many systems execute nothing: the loader of what is in C is compiled there.
        let folder = tempfile::tempdir().map_err(|source| Error::file(std::env::temp_dir(), source))?;
        let directory = folder.path().to_owned();
        let (program, process, servers) = (program.to_owned(), None, Vec::new());
        let next_port = Cell::new(1024);
        let mut scene = Self {
            job,
            peer,
            limit,
            client,
            gateway,
            server,
            directory,
            _folder: folder,
            program,
            process,
            servers,
            next_port,
        };
        scene.build()?;
        scene.serve()?;
        scene.contend()?;
        Ok(scene)
    }

    const fn namespaces(&self) -> [&Namespace; 3] {
        [&self.client, &self.gateway, &self.server]
    }

    fn build(&self) -> Result<(), Error> {
        for namespace in self.namespaces() {
            namespace.delete()?;
            namespace.create()?;
        }
        let (client, server) = (self.client.name(), self.server.name());
        self.gateway.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        self.gateway.ip(&format!(
            "link add name lan type veth peer name eth0 netns {client}\n\
             link add name wan type veth peer name eth0 netns {server}\n\
             addr add fd00::1/64 dev lan nodad\naddr add 2001:db8:f::1/64 dev wan nodad\n\
             link set dev lan up\nlink set dev wan up\n\
             route add 2001:db8:bad::/48 dev lan\nroute add 2001:db8:5::/64 via {FLOODED}\n"
        ))?;
        self.client.ip(&format!(
            "addr add {CLIENT}/64 dev eth0 nodad\naddr add {LISTED}/128 dev eth0 nodad\nlink set dev eth0 up\n\
             route add default via fd00::1 src {CLIENT}\n"
        ))?;
        let addresses = [FLOODED, ANSWERING, "2001:db8:5::1", "2001:db8:5::2", "2001:db8:5::3"];
        let addresses = addresses.map(|one| format!("addr add {one}/64 dev eth0 nodad\n")).concat();
        self.server.ip(&format!("{addresses}link set dev eth0 up\nroute add default via 2001:db8:f::1\n"))?;
        self.server.nft(&format!(
            "table netdev sink {{\n counter arrived {{ }}\n counter translated {{ }}\n chain in {{\n\
             type filter hook ingress device eth0 priority 0\n\
             ip6 saddr 2001:db8::1 counter name translated\n\
             ip6 daddr {FLOODED} meta l4proto udp counter name arrived drop\n }}\n}}\n"
        ))?;
        // Small packets leave the sender as single ones.
        check(self.client.command("ethtool")?.args(["-K", "eth0", "tx-udp-segmentation", "off"]))?;
        Ok(())
    }

    fn serve(&mut self) -> Result<(), Error> {
        let udp = format!("[{ANSWERING}]:{}", self.port());
        let words: [&[&str]; 2] =
            [&["udp-answer", "--listen", &udp], &["script-traffic", "serve", "--listen", "[::]:443"]];
        for (words, (protocol, port)) in words.into_iter().zip([("udp", self.port()), ("tcp", 443)]) {
            let log = self.directory.join(format!("{protocol}.log"));
            let process = start_fresh(generator(self, Site::B, words)?, &log)?;
            wait_listening(&process, protocol, port)?;
            self.servers.push(process);
        }
        // Until neighbors know each other.
        let deadline = Instant::now() + PATIENCE;
        for from in [CLIENT, LISTED] {
            let words = ["-c", "1", "-W", "1", "-I", from, ANSWERING];
            while !run(self.client.command("ping")?.args(words))?.status.success() {
                if Instant::now() > deadline {
                    return Err(Error::Usage(format!("the server does not answer {from}")));
                }
            }
        }
        Ok(())
    }

    /// Of UDP.
    fn port(&self) -> u16 {
        if self.job == Job::Dns { DNS } else { packets::PORT }
    }

    fn payload(&self) -> String {
        hexadecimal(if self.job == Job::Dns { QUERY } else { &[0x5a; SIZE] })
    }

    fn traffic(&self, words: &[&str]) -> Result<Carried, Error> {
        let words = [&["script-traffic"], words].concat();
        let output = text(&check(&mut generator(self, Site::A, &words)?)?);
        serde_json::from_str(&output)
            .map_err(|error| Error::output("script-traffic", format!("{error}: {output}")))
    }

    /// Small packets, as fast as they go.
    pub(super) fn flood(&self, count: u32) -> Result<Carried, Error> {
        let (to, payload, count) =
            (format!("[{FLOODED}]:{}", self.port()), self.payload(), count.to_string());
        self.traffic(&["flood", "--to", &to, "--payload", &payload, "--count", &count])
    }

    /// Datagrams that are answered, one after the other.
    pub(super) fn ask(&self, from: &str, count: u32) -> Result<Carried, Error> {
        let (from, to) = (format!("[{from}]:0"), format!("[{ANSWERING}]:{}", self.port()));
        let (payload, count) = (self.payload(), count.to_string());
        self.traffic(&["ask", "--from", &from, "--to", &to, "--payload", &payload, "--count", &count])
    }

    /// Connections that ask for a name; what else there is to say of them is `more`.
    pub(super) fn connect(&self, name: &str, count: u16, more: &[&str]) -> Result<Carried, Error> {
        let to = match (self.peer, self.job) {
            (Peer::None, _) => "[2001:db8:5::1]:443",
            (Peer::Haproxy, _) | (_, Job::Balance) => "[2001:db8:5::80]:443",
            _ => "[2001:db8:5::1]:443",
        };
        let first = self.next_port.get();
        self.next_port.set(first.saturating_add(count));
        let (count, first) = (count.to_string(), first.to_string());
        let words = ["connect", "--to", to, "--name", name, "--count", &count, "--first-port", &first];
        self.traffic(&[&words[..], more].concat())
    }

    /// What a counter of the server says: `arrived`, `translated`.
    pub(super) fn counted(&self, name: &str) -> Result<u64, Error> {
        packets::counted(self, name)
    }

    /// The list of prefixes, each in a line with what is behind it.
    pub(super) fn prefixes(&self, file: &str, behind: &str) -> Result<PathBuf, Error> {
        let mut list = format!("2001:db8:bad::/48{behind}\n");
        for number in 1..PREFIXES {
            let _ = writeln!(list, "3fff:0:{number:x}::/48{behind}");
        }
        self.file(file, &list)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.directory.join(name);
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or(&self.directory))?;
            std::fs::write(&path, text)
        };
        write().map_err(|source| Error::file(&path, source))?;
        Ok(path)
    }

    /// A command on the gateway; as a process that packets go through it has the processors but the first.
    pub(super) fn beside(&self, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
        let mut command = self.gateway.command("taskset")?;
        command.args(["--cpu-list", &format!("{}-{last}", last.min(1))]).arg(program);
        Ok(command)
    }

    /// Starts what does the job, and waits until its log says so.
    pub(super) fn spawn(&mut self, command: Command, ready: &str) -> Result<(), Error> {
        let log = self.directory.join("job.log");
        self.process = Some(start_fresh(command, &log)?);
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&log).unwrap_or_default().contains(ready) {
            let ended = self.process.as_mut().is_some_and(|process| process.ended().is_some());
            if ended || Instant::now() > deadline {
                return Err(Error::output(self.peer.name(), tail(&log)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Hosts for Scene {
    fn address(&self, site: Site, _: bool) -> IpAddr {
        let text = match site {
            Site::A => CLIENT,
            Site::B => FLOODED,
        };
        text.parse().unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED))
    }

    /// Client and server have the first processor together: who waits for whom is then always the same.
    fn on(&self, site: Site, program: &Path) -> Result<Command, Error> {
        let mut command = match site {
            Site::A => self.client.command("taskset"),
            Site::B => self.server.command("taskset"),
        }?;
        command.args(["--cpu-list", "0"]).arg(program);
        Ok(command)
    }

    fn directory(&self) -> PathBuf {
        self.directory.clone()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.process.take().into_iter().chain(self.servers.drain(..)) {
            process.stop(Duration::from_secs(3));
        }
        for namespace in self.namespaces() {
            if let Err(error) = namespace.delete() {
                eprintln!("{error}");
            }
        }
    }
}
