//! `sidestep-lab many`: one gateway with hundreds of peers, each a gateway of its own; what that costs it.
//!
//! The hub has a namespace of its own, and so has each group of peers: what a gateway sets up there (tables of the
//! firewall, programs of BPF) is asked about each packet, or may be there but 64 times. A bridge joins them. Each peer
//! pings the hub through its own tunnel while every pair rotates.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::comparison::quantile;
use lab::Error;
use lab::accounting::{cpu_seconds, resident};
use lab::command::{check, check_with_input, text};
use lab::gateway::write_private;
use lab::namespaces::Namespace;
use lab::process::Process;
use lab::traffic::read_round_trips;

/// How long the sessions of a batch may take to be made.
const PATIENCE: Duration = Duration::from_secs(60);
/// The hub's configuration.
const HUB: &str = "hub.toml";
/// Peers started at once.
const BATCH: usize = 10;
/// Peers that share a namespace: prefixes of 64 bits in one of 58.
const GROUP: u16 = 64;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ManyOptions {
    /// What the names of the namespaces begin with.
    pub prefix: String,
    /// How many peers.
    pub peers: u16,
    /// How many more the hub has in its configuration, that are nowhere.
    pub configured: u32,
    /// Echoes that each peer sends in a second.
    pub echoes: u32,
    /// Rotation interval.
    pub rotation: String,
    /// Seconds of traffic.
    pub seconds: u32,
    /// Nothing is measured: it stays up until it is ended.
    pub hold: bool,
    /// Where the measurements go.
    pub json: Option<PathBuf>,
}

/// What the hub needs, and what was lost.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Peers with a session.
    pub peers: u16,
    /// Further peers in its configuration, which never answer.
    pub configured: u32,
    /// Seconds from the hub's start to its first status.
    pub start_s: f64,
    /// Resident memory of the hub, bytes.
    pub resident_bytes: u64,
    /// Seconds in which all peers started and had a session.
    pub sessions_s: f64,
    /// Processor time of the hub per second, with the echoes of all peers.
    pub cpu_share: f64,
    /// Files that the hub had open.
    pub open_files: usize,
    /// Rotations of all pairs in that time.
    pub rotations: u64,
    /// Echoes sent and lost.
    pub sent: u64,
    /// Of these.
    pub lost: u64,
    /// Round trips in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 were faster.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// Namespaces and processes; gone when dropped.
struct Many {
    prefix: String,
    hub: Namespace,
    groups: Vec<Namespace>,
    directory: PathBuf,
    processes: Vec<Process>,
}

impl Many {
    /// Where a peer is.
    fn group(&self, number: u16) -> &Namespace {
        &self.groups[usize::from(number / GROUP)]
    }

    /// Starts the gateway of a configuration: of a peer, or the hub's. Its process id.
    fn up(&mut self, program: &Path, file: &Path, peer: Option<u16>) -> Result<u32, Error> {
        let namespace = peer.map_or(&self.hub, |number| self.group(number));
        let mut command = namespace.command(program)?;
        command.arg("up").arg(file).arg("--state-dir").arg(self.directory.join("state"));
        let process = Process::start(&mut command, &file.with_extension("log"))?;
        let id = process.id();
        self.processes.push(process);
        Ok(id)
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        for process in self.processes.drain(..) {
            process.kill();
        }
        for namespace in std::iter::once(&self.hub).chain(&self.groups) {
            if let Err(error) = namespace.delete() {
                eprintln!("{error}");
            }
        }
        // What gateways leave that are not asked to end.
        let numbers = (1..=self.groups.len() * usize::from(GROUP)).map(|number| number.to_string());
        for end in numbers.chain(["hub".to_owned()]) {
            for kind in ["sock", "journal"] {
                let _ = std::fs::remove_file(format!("/run/sidestep/{}-{end}.{kind}", self.prefix));
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs the measurement.
///
/// # Errors
/// Whatever could not be built or measured.
pub fn run(options: &ManyOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let mut many = build(options)?;
    let socket = format!("/run/sidestep/{}.sock", hub_name(&options.prefix));
    let show = || -> Result<Value, Error> {
        let output = check(Command::new(program).args(["show", "--json", "--socket", &socket]))?;
        serde_json::from_slice(&output.stdout).map_err(|error| Error::output("sidestep show --json", error))
    };
    let files = configure(&many, options, program)?;
    let begun = Instant::now();
    let hub = many.up(program, &files[0], None)?;
    while show().is_err() {
        if begun.elapsed() > PATIENCE || stop.load(Ordering::Relaxed) {
            return Err(Error::Usage("the hub does not start".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let start_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    // A few at a time: starting costs far more than running, and all share one machine.
    for (batch, files) in files[1..].chunks(BATCH).enumerate() {
        for (number, file) in (1 + batch * BATCH..).zip(files) {
            many.up(program, file, Some(number as u16))?;
        }
        let wanted = (batch * BATCH + files.len()) as u64;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let established = |peer: &Value| u64::from(peer["state"] == "established");
            let so_far = show().map_or(0, |status| count(&status, established));
            if so_far >= wanted {
                break;
            }
            if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                return Err(Error::Usage(format!("{so_far} of {wanted} peers have a session")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let sessions_s = begun.elapsed().as_secs_f64();
    let for_how_long =
        if options.hold { "echoes".to_owned() } else { format!("{} s of echoes", options.seconds) };
    println!("{} sessions are up after {sessions_s:.0} s; {for_how_long}", options.peers);

    let rotations = |status: &Value| count(status, |peer| peer["rotations"].as_u64().unwrap_or(0));
    let (before, cpu, begun) = (rotations(&show()?), cpu_seconds(hub)?, Instant::now());
    let mut pings = Vec::new();
    for number in 1..=options.peers {
        let (own, target) = (format!("2001:db8:c:{number:x}::1"), format!("2001:db8:a:{number:x}::1"));
        let log = many.directory.join(format!("ping-{number}.log"));
        let mut ping = many.group(number).command("ping")?;
        let (interval, count) = (1.0 / f64::from(options.echoes), options.echoes * options.seconds);
        ping.args(["-6", "-n", "-i", &interval.to_string()]);
        if !options.hold {
            ping.args(["-c", &count.to_string()]);
        }
        ping.args(["-I", &own, &target]);
        pings.push(Process::start(&mut ping, &log)?);
    }
    if options.hold {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (mut sent, mut times) = (0, Vec::new());
    for mut ping in pings {
        ping.wait(Duration::from_secs(u64::from(options.seconds) + 20));
        let log = std::fs::read_to_string(ping.log()).unwrap_or_default();
        let echoes = read_round_trips(&log).ok_or_else(|| Error::output("ping", log))?;
        sent += echoes.sent;
        times.extend(echoes.times_ms);
    }
    let time = |part| quantile(&times, part).unwrap_or(f64::NAN);
    let measured = Measured {
        peers: options.peers,
        configured: options.configured,
        start_s,
        resident_bytes: resident(hub)?,
        cpu_share: (cpu_seconds(hub)? - cpu) / begun.elapsed().as_secs_f64(),
        open_files: std::fs::read_dir(format!("/proc/{hub}/fd")).map_or(0, Iterator::count),
        rotations: rotations(&show()?) - before,
        sessions_s,
        sent,
        lost: sent - times.len() as u64,
        p50_ms: time(0.5),
        p99_ms: time(0.99),
        max_ms: time(1.0),
    };
    println!(
        "{} peers and {} that never answer, rotation {}: up after {:.1} s, {:.1} MB resident, {:.1} % of a processor, {} open files, {} rotations, \
         {} of {} echoes lost, round trips {:.2} ms, 99 % below {:.2} ms, at most {:.0} ms",
        measured.peers,
        measured.configured,
        options.rotation,
        measured.start_s,
        measured.resident_bytes as f64 / 1e6,
        measured.cpu_share * 100.0,
        measured.open_files,
        measured.rotations,
        measured.lost,
        measured.sent,
        measured.p50_ms,
        measured.p99_ms,
        measured.max_ms
    );
    if let Some(path) = &options.json {
        let text =
            serde_json::to_string_pretty(&measured).map_err(|error| Error::output("measurements", error))?;
        std::fs::write(path, text).map_err(|source| Error::file(path, source))?;
    }
    Ok(if measured.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hub_name(prefix: &str) -> String {
    format!("{prefix}-hub")
}

fn build(options: &ManyOptions) -> Result<Many, Error> {
    let groups = 0..=options.peers / GROUP;
    let many = Many {
        prefix: options.prefix.clone(),
        hub: Namespace::named(format!("{}-hub", options.prefix)),
        groups: groups.map(|group| Namespace::named(format!("{}-{group}", options.prefix))).collect(),
        directory: PathBuf::from(format!("/run/sidestep-lab/{}", options.prefix)),
        processes: Vec::new(),
    };
    std::fs::create_dir_all(&many.directory).map_err(|source| Error::file(&many.directory, source))?;
    for namespace in std::iter::once(&many.hub).chain(&many.groups) {
        namespace.delete()?;
        namespace.create()?;
        namespace.ip("link set lo up\n")?;
    }
    many.hub.ip(
        "link add ex type bridge mcast_snooping 0\nlink set ex up\naddr add 2001:db8:ff::1/64 dev ex nodad\n",
    )?;
    for (number, group) in many.groups.iter().enumerate() {
        let (name, address) = (group.name(), format!("2001:db8:ff::{:x}", number + 2));
        many.hub.ip(&format!(
            "link add g{number} type veth peer name ex netns {name}\nlink set g{number} master ex up\n\
             route add 2001:db8:b1:{:x}::/58 via {address}\n",
            number * usize::from(GROUP)
        ))?;
        group.ip(&format!(
            "link set ex up\naddr add {address}/64 dev ex nodad\nroute add 2001:db8:a1::/64 via 2001:db8:ff::1\n"
        ))?;
    }
    Ok(many)
}

/// Writes the configurations, the hub's first.
fn configure(many: &Many, options: &ManyOptions, program: &Path) -> Result<Vec<PathBuf>, Error> {
    let key = || -> Result<(String, String), Error> {
        let private = text(&check(Command::new(program).arg("genkey"))?);
        let public = check_with_input(Command::new(program).arg("pubkey"), &format!("{private}\n"))?;
        Ok((private, text(&public)))
    };
    let (hub_private, hub_public) = key()?;
    let (mut addresses, mut entries) = (Vec::new(), String::new());
    let hub = many.directory.join(HUB);
    let mut files = vec![hub.clone()];
    for number in 1..=options.peers {
        let (private, public) = key()?;
        addresses.push(format!("\"2001:db8:a:{number:x}::1/128\""));
        let _ = write!(
            entries,
            "[[peer]]\nname = \"p{number}\"\npublic_key = \"{public}\"\nhop_prefix = \"2001:db8:b1:{number:x}::/64\"\n\
             allowed_ips = [\"2001:db8:c:{number:x}::/64\"]\nrotation = \"{rotation}\"\n",
            rotation = options.rotation
        );
        let path = many.directory.join(format!("peer-{number}.toml"));
        write_private(
            &path,
            &format!(
                "[node]\nprivate_key = \"{private}\"\nexternal = \"ex\"\nhop_prefix = \"2001:db8:b1:{number:x}::/64\"\n\
                 [tunnel]\nname = \"{prefix}-{number}\"\naddresses = [\"2001:db8:c:{number:x}::1/128\"]\n\
                 [[peer]]\nname = \"hub\"\npublic_key = \"{hub_public}\"\nhop_prefix = \"2001:db8:a1::/64\"\n\
                 allowed_ips = [\"2001:db8:a:{number:x}::/64\"]\nrotation = \"{rotation}\"\nkeepalive = \"25s\"\n",
                prefix = options.prefix,
                rotation = options.rotation,
            ),
        )?;
        files.push(path);
    }
    for number in 1..=options.configured {
        // Any 32 bytes are a public key, but for a few.
        let mut key = [0x5a; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        let (high, low) = (number >> 16, number & 0xffff);
        let _ = write!(
            entries,
            "[[peer]]\nname = \"nowhere{number}\"\npublic_key = \"{}\"\nhop_prefix = \"2001:db8:{:x}:{low:x}::/64\"\n\
             allowed_ips = [\"2001:db8:{:x}:{low:x}::/64\"]\n",
            base64(&key),
            0xd000 + high,
            0xe000 + high
        );
    }
    write_private(
        &hub,
        &format!(
            "[node]\nprivate_key = \"{hub_private}\"\nexternal = \"ex\"\nhop_prefix = \"2001:db8:a1::/64\"\n\
             [tunnel]\nname = \"{}\"\naddresses = [{}]\n{entries}",
            hub_name(&options.prefix),
            addresses.join(", "),
        ),
    )?;
    Ok(files)
}

/// Base64 (RFC 4648) of a key.
fn base64(bytes: &[u8; 32]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut padded = [0; 33];
    padded[..32].copy_from_slice(bytes);
    let (groups, _) = padded.as_chunks::<3>();
    let mut text = String::new();
    for [a, b, c] in groups {
        let bits = u32::from_be_bytes([0, *a, *b, *c]);
        text.extend([18, 12, 6, 0].map(|shift| char::from(ALPHABET[(bits >> shift) as usize & 63])));
    }
    // Of the last character's bits none is left.
    text.replace_range(43.., "=");
    text
}

fn count(status: &Value, of: impl Fn(&Value) -> u64) -> u64 {
    status["peers"].as_array().map_or(0, |peers| peers.iter().map(of).sum())
}
