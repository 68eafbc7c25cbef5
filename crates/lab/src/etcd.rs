//! A cluster of etcd, each member on a machine of its own: killed, stopped, slowed, cut off.
//!
//! The machines are namespaces around a switch, which is where clients are. Nothing of it is reached from elsewhere.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Error;
use crate::command::{check, find, text};
use crate::namespaces::Namespace;
use crate::patience::patience;
use crate::prefix::{directory, unique};
use crate::process::{Process, tail};

/// Milliseconds between two heartbeats of a leader, and until a member that hears none wants to be one: half of etcd's own
/// values, which are for machines that are far apart.
const HEARTBEAT_MS: u32 = 50;
const ELECTION_MS: u32 = 500;
/// Where a member answers clients, other members, and who asks for its health.
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;
const HEALTH: u16 = 2381;
/// Where all addresses of members are.
const NETWORK: &str = "fd00:e7cd::/64";
/// How long a member runs, and how long it does not, while it is slowed.
const RUNS: Duration = Duration::from_millis(15);
const PAUSES: Duration = Duration::from_millis(60);

/// How members show clients who they are, and ask them for the same.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// Of the authority that has signed both.
    pub authority: PathBuf,
    /// The members' certificate, for all their addresses.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A cluster that runs until it is dropped.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    clients: Namespace,
    members: Vec<Member>,
    certificates: Option<Certificates>,
}

#[derive(Debug)]
struct Member {
    namespace: Namespace,
    address: Ipv6Addr,
    process: Option<Process>,
}

/// A member that is slowed until this is dropped.
#[derive(Debug)]
pub struct Slowed {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The address of a member, by its number.
#[must_use]
pub fn address(member: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0xe7cd, 0, 0, 0, 0, 0, 1 + member as u16)
}

impl Cluster {
    /// Makes the machines, starts a member on each, and waits until all are well.
    ///
    /// # Errors
    /// When there is no etcd (package `etcd-server`), or the machines cannot be made.
    pub fn start(members: usize, certificates: Option<Certificates>) -> Result<Self, Error> {
        if find("etcd").is_none() {
            return Err(Error::Usage("`etcd` is not there: apt install etcd-server etcd-client".to_owned()));
        }
        let prefix = unique();
        let directory = directory(&prefix);
        std::fs::create_dir_all(&directory).map_err(|source| Error::file(&directory, source))?;
        let member = |number| Member {
            namespace: Namespace::named(format!("{prefix}-e{number}")),
            address: address(number),
            process: None,
        };
        let clients = Namespace::named(format!("{prefix}-ec"));
        let mut cluster =
            Self { directory, clients, members: (0..members).map(member).collect(), certificates };
        cluster.connect()?;
        for number in 0..members {
            cluster.run(number)?;
        }
        cluster.wait_until_well()?;
        Ok(cluster)
    }

    fn connect(&self) -> Result<(), Error> {
        self.clients.create()?;
        let mut lines =
            String::from("link add name switch type bridge mcast_snooping 0\nlink set switch up\n");
        lines += &format!("address add {}/64 dev switch nodad\n", address(0x100));
        for (number, member) in self.members.iter().enumerate() {
            member.namespace.create()?;
            let name = member.namespace.name();
            lines += &format!("link add name e{number} type veth peer name eth0 netns {name}\n");
            lines += &format!("link set e{number} master switch up\n");
        }
        self.clients.ip(&lines)?;
        for member in &self.members {
            let address = member.address;
            member.namespace.ip(&format!("link set eth0 up\naddress add {address}/64 dev eth0 nodad\n"))?;
        }
        Ok(())
    }

    /// The namespace that clients are in.
    pub fn clients(&self) -> &Namespace {
        &self.clients
    }

    /// Lets who is behind a router be a client, too.
    ///
    /// # Errors
    /// When the link to it cannot be made.
    pub fn link_to(&self, router: &Namespace) -> Result<(), Error> {
        let name = router.name();
        self.clients.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        self.clients.ip(&format!(
            "link add name router type veth peer name etcd netns {name}\nlink set router up\n\
             address add fd00:e7ce::1/64 dev router nodad\nroute add default via fd00:e7ce::2\n"
        ))?;
        router.ip(&format!(
            "link set etcd up\naddress add fd00:e7ce::2/64 dev etcd nodad\nroute add {NETWORK} via fd00:e7ce::1\n"
        ))?;
        let gateway = address(0x100);
        self.members
            .iter()
            .try_for_each(|member| member.namespace.ip(&format!("route add default via {gateway}\n")))
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// What clients are given.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| url(self.scheme(), member.address, CLIENTS)).collect()
    }

    fn scheme(&self) -> &'static str {
        if self.certificates.is_some() { "https" } else { "http" }
    }

    /// Starts a member, which was not there before or has been killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&mut self, number: usize) -> Result<(), Error> {
        let clients = url(self.scheme(), self.members[number].address, CLIENTS);
        let peers = |member: &Member| url("http", member.address, PEERS);
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(number, member)| format!("m{number}={}", peers(member)))
            .collect();
        let member = &self.members[number];
        let mut command = member.namespace.command("etcd")?;
        command
            .args(["--name", &format!("m{number}"), "--logger", "zap", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.directory.join(format!("m{number}")))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers(member), "--initial-advertise-peer-urls", &peers(member)])
            .args(["--listen-metrics-urls", &url("http", member.address, HEALTH)])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--election-timeout", &ELECTION_MS.to_string()]);
        if let Some(certificates) = &self.certificates {
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(&certificates.authority)
                .arg("--cert-file")
                .arg(&certificates.certificate)
                .arg("--key-file")
                .arg(&certificates.key);
        }
        let process = Process::start(&mut command, &self.log(number))?;
        self.members[number].process = Some(process);
        Ok(())
    }

    fn log(&self, number: usize) -> PathBuf {
        self.directory.join(format!("m{number}.log"))
    }

    /// Where its configuration, data and logs are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends a member at once, as a crash does. What it has stored stays.
    pub fn kill(&mut self, number: usize) {
        if let Some(process) = self.members[number].process.take() {
            process.kill();
        }
    }

    /// Stops a member's process: it answers nobody, and nobody is told.
    pub fn stop(&self, number: usize) {
        self.signal(number, Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn go_on(&self, number: usize) {
        self.signal(number, Signal::SIGCONT);
    }

    fn signal(&self, number: usize, signal: Signal) {
        if let Some(process) = &self.members[number].process {
            process.signal(signal);
        }
    }

    /// Lets a member run a fifth of the time, in small pieces. It must not be killed meanwhile.
    #[must_use]
    pub fn slow(&self, number: usize) -> Slowed {
        let end = Arc::new(AtomicBool::new(false));
        let process =
            self.members[number].process.as_ref().map(|process| Pid::from_raw(process.id().cast_signed()));
        let ended = Arc::clone(&end);
        let thread = process.map(|process| {
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let _ = kill(process, Signal::SIGSTOP);
                    std::thread::sleep(PAUSES);
                    let _ = kill(process, Signal::SIGCONT);
                    std::thread::sleep(RUNS);
                }
            })
        });
        Slowed { end, thread }
    }

    /// Cuts a member off from the other members, not from clients.
    ///
    /// # Errors
    /// When nft fails.
    pub fn isolate(&self, number: usize) -> Result<(), Error> {
        let others = (0..self.members.len()).filter(|other| *other != number).map(address);
        self.cut(number, &others.collect::<Vec<_>>())
    }

    /// Cuts a member off from everybody.
    ///
    /// # Errors
    /// When nft fails.
    pub fn cut_off(&self, number: usize) -> Result<(), Error> {
        let others = (0..self.members.len()).filter(|other| *other != number).chain([0x100]).map(address);
        self.cut(number, &others.collect::<Vec<_>>())
    }

    fn cut(&self, number: usize, from: &[Ipv6Addr]) -> Result<(), Error> {
        let from = from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        self.members[number].namespace.nft(&format!(
            "table inet cut\ndelete table inet cut\ntable inet cut {{
                chain in {{ type filter hook input priority 0; ip6 saddr {{ {from} }} drop; }}
                chain out {{ type filter hook output priority 0; ip6 daddr {{ {from} }} drop; }}
            }}"
        ))
    }

    /// Mends all cuts of a member.
    ///
    /// # Errors
    /// When nft fails.
    pub fn mend(&self, number: usize) -> Result<(), Error> {
        self.members[number].namespace.nft("table inet cut\ndelete table inet cut\n")
    }

    /// The member that leads, if one says so.
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|number| {
            self.ask(*number, "/metrics").is_some_and(|said| said.contains("\netcd_server_is_leader 1\n"))
        })
    }

    fn is_well(&self, number: usize) -> bool {
        self.ask(number, "/health").is_some_and(|said| said.contains(r#""health":"true""#))
    }

    /// Waits until all members run and have a leader.
    ///
    /// # Errors
    /// When that takes long; with the end of the log of one that is not well.
    pub fn wait_until_well(&self) -> Result<(), Error> {
        let begin = Instant::now();
        while let Some(ill) = (0..self.members.len()).find(|number| !self.is_well(*number)) {
            if begin.elapsed() > patience() {
                let log = tail(&self.log(ill));
                return Err(Error::Usage(format!(
                    "member {ill} of etcd is not well. End of its log:\n{log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What a member answers to who asks for its health.
    fn ask(&self, number: usize, path: &str) -> Option<String> {
        let limit = Duration::from_secs(1);
        let address = SocketAddr::from((self.members[number].address, HEALTH));
        let ask = || -> std::io::Result<String> {
            let mut connection = TcpStream::connect_timeout(&address, limit)?;
            connection.set_read_timeout(Some(limit))?;
            write!(connection, "GET {path} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer)?;
            Ok(answer)
        };
        linux::netns::Namespace::open(self.clients.name()).and_then(|clients| clients.run(ask)).ok()?.ok()
    }

    /// Runs etcdctl (package `etcd-client`) where clients are, and returns what it said.
    ///
    /// # Errors
    /// When it fails.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = self.clients.command("etcdctl")?;
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoints().join(",")]);
        if let Some(certificates) = &self.certificates {
            command
                .arg("--cacert")
                .arg(&certificates.authority)
                .arg("--cert")
                .arg(&certificates.certificate)
                .arg("--key")
                .arg(&certificates.key);
        }
        Ok(text(&check(command.args(arguments))?))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            self.kill(number);
        }
        for namespace in self.members.iter().map(|member| &member.namespace).chain([&self.clients]) {
            // What cannot be removed is swept when the next lab is made.
            let _ = namespace.delete();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn url(scheme: &str, address: Ipv6Addr, port: u16) -> String {
    format!("{scheme}://[{address}]:{port}")
}
