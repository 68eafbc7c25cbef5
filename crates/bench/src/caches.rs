//! `sidestep-lab caches`: the caches of TFTP and HTTP among the examples, measured as section 4.2 of A. Graf's PacketScript
//! (University of Basel, 2010) did: 26 files from 1 octet to 32 MB, from the server and from the cache, near and far.
//!
//! The lab is the routed one without a tunnel. Host B serves, host A fetches, and the script is at `forward` on the machine
//! next to host A. Where the server is far, the relay on the middle link delays each packet.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use crate::comparison::{docs, machine, quantile, version};
use crate::experiment::nginx;
use lab::Error;
use lab::Lab;
use lab::command::{check, find, text};
use lab::impairment::Impairment;
use lab::process::Process;
use lab::topology::{Node, Site};
use lab::traffic::wait_listening;

/// Where the script runs: next to host A.
const CACHE: Node = Node::GatewayA;
/// A file is fetched again until this is used up, and not at all where one fetch takes as long by its round trips.
const PATIENCE: Duration = Duration::from_secs(3);
/// Octets of a block of TFTP.
const BLOCK: u64 = 512;
/// What the scripts and their modules are called, and their texts.
const FILES: [(&str, &str); 5] = [
    ("tftp_cache.lua", include_str!("../../../examples/scripts/tftp_cache.lua")),
    ("http_cache.lua", include_str!("../../../examples/scripts/http_cache.lua")),
    ("lib/answer.lua", include_str!("../../../examples/scripts/lib/answer.lua")),
    ("lib/blocks.lua", include_str!("../../../examples/scripts/lib/blocks.lua")),
    ("lib/lru.lua", include_str!("../../../examples/scripts/lib/lru.lua")),
];

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct CachesOptions {
    /// Only this protocol
    #[arg(long, value_enum)]
    only: Option<Protocol>,
    /// Round trip to the server that is far
    #[arg(long, default_value = "40ms", value_parser = humantime::parse_duration, value_name = "TIME")]
    delay: Duration,
    /// How often each file is fetched, where that is quick; the medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The largest file is two to the power of this
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=25))]
    largest: u32,
    /// Write the measurements to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into this Markdown page, between `<!-- caches:begin -->` and `<!-- caches:end -->`
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// What the names of the lab's namespaces begin with
    #[arg(long, default_value = "caches")]
    prefix: String,
}

/// What is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// dnsmasq serves, curl fetches
    Tftp,
    /// nginx serves, curl fetches
    Http,
}

/// Medians of one file's times, milliseconds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    protocol: Protocol,
    /// Round trip that was added on the way to the server.
    delay_ms: f64,
    octets: u64,
    runs: u32,
    /// No script is there.
    without_ms: f64,
    /// The script learns the file.
    first_ms: f64,
    /// The script answers.
    second_ms: f64,
}

/// Measures, and shows the tables.
///
/// # Errors
/// Without root or a program that it takes, when the lab cannot be built, or when a fetch fails or is not answered by the
/// cache the second time.
pub fn run(options: &CachesOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    for (needed, package) in [("curl", "curl"), ("dnsmasq", "dnsmasq-base"), ("nginx", "nginx")] {
        if find(needed).is_none() {
            return Err(Error::Usage(format!(
                "`{needed}` is not installed. On Debian: apt install {package}; or scripts/setup test"
            )));
        }
    }
    let mut rows = Vec::new();
    for protocol in [Protocol::Tftp, Protocol::Http] {
        for delay in [Duration::ZERO, options.delay] {
            if options.only.is_none_or(|only| only == protocol) {
                measure(options, program, protocol, delay, stop, &mut rows)?;
            }
        }
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_vec_pretty(&rows).map_err(|error| Error::output("caches", error))?;
        std::fs::write(path, text).map_err(|source| Error::file(path, source))?;
    }
    let page = markdown(&rows, program);
    match &options.docs {
        Some(path) => docs::between("caches", &page, path)?,
        None => print!("{page}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// One protocol, with the server at one distance.
fn measure(
    options: &CachesOptions,
    program: &Path,
    protocol: Protocol,
    delay: Duration,
    stop: &AtomicBool,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let impairment = Impairment { delay: delay / 2, ..Impairment::default() };
    let mut lab =
        Lab::builder(program).prefix(&options.prefix).tunnel(false).impairment(impairment).build()?;
    lab.start()?;
    let bench = Bench::new(&lab, protocol)?;
    for octets in (0..=options.largest).map(|power| 1u64 << power) {
        if protocol == Protocol::Tftp && delay * (octets / BLOCK) as u32 > PATIENCE {
            break;
        }
        let begun = Instant::now();
        let mut times = [const { Vec::new() }; 3];
        while times[0].is_empty() || times[0].len() < options.runs as usize && begun.elapsed() < PATIENCE {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Each run fetches a file of its own, which no cache knows.
            let run = times[0].len();
            for (times, time) in times.iter_mut().zip(bench.three(octets, run)?) {
                times.push(time);
            }
        }
        let runs = times[0].len() as u32;
        let [without_ms, first_ms, second_ms] =
            times.map(|times| quantile(&times, 0.5).map_or(0.0, |seconds| 1e3 * seconds));
        eprintln!(
            "{protocol:?} {octets} octets, {delay:?}: {without_ms:.2}, {first_ms:.2}, {second_ms:.2} ms"
        );
        let delay_ms = 1e3 * delay.as_secs_f64();
        rows.push(Row { protocol, delay_ms, octets, runs, without_ms, first_ms, second_ms });
    }
    Ok(())
}

/// Host B's server and host A's client, with the script between them.
struct Bench<'a> {
    lab: &'a Lab,
    protocol: Protocol,
    /// Files that the server has.
    files: PathBuf,
    script: String,
    /// Ends with the lab.
    _server: Process,
}

impl<'a> Bench<'a> {
    fn new(lab: &'a Lab, protocol: Protocol) -> Result<Self, Error> {
        let folder = lab.directory();
        let files = folder.join("files");
        for made in [&files, &folder.join("lib")] {
            std::fs::create_dir_all(made).map_err(|source| Error::file(made, source))?;
        }
        for (name, text) in FILES {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|source| Error::file(path, source))?;
        }
        let (_server, script) = match protocol {
            Protocol::Tftp => {
                let root = format!("--tftp-root={}", files.display());
                let words =
                    ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--port=0"];
                let more = ["--pid-file", "--log-facility=-", "--enable-tftp", &root];
                let server = lab.spawn(Node::HostB, words.into_iter().chain(more), "dnsmasq")?;
                wait_listening(&server, "udp", 69)?;
                (server, "tftp_cache.lua")
            }
            Protocol::Http => {
                let path = folder.join("nginx.conf");
                std::fs::write(&path, nginx::configuration(&folder))
                    .map_err(|source| Error::file(&path, source))?;
                let [prefix, path] = [&folder, &path].map(|path| path.display().to_string());
                let words = ["nginx", "-p", &prefix, "-c", &path, "-e", "stderr"];
                let server = lab.spawn(Node::HostB, words, "nginx")?;
                wait_listening(&server, "tcp", 80)?;
                (server, "http_cache.lua")
            }
        };
        Ok(Self { lab, protocol, files, script: folder.join(script).display().to_string(), _server })
    }

    /// A new file without the script, learned by it, and answered by it: seconds each took.
    fn three(&self, octets: u64, run: usize) -> Result<[f64; 3], Error> {
        let path = self.files.join(format!("{octets}-{run}"));
        // Zeros that take no room on the disk: nothing on the way compresses.
        let made = File::create(&path).and_then(|file| file.set_len(octets));
        made.map_err(|source| Error::file(&path, source))?;
        let name = format!("{octets}-{run}");
        let without = self.fetch(&name, octets)?;
        let rule = match self.protocol {
            Protocol::Tftp => "meta l4proto udp",
            Protocol::Http => "meta l4proto tcp",
        };
        self.sidestep(&["load", &self.script, "--hook", "forward", "--match", rule])?;
        let first = self.fetch(&name, octets)?;
        let before = self.sent()?;
        let second = self.fetch(&name, octets)?;
        if self.sent()? == before {
            return Err(Error::output("the cache", format!("it did not answer for {name}")));
        }
        self.sidestep(&["unload", &self.script])?;
        std::fs::remove_file(&path).map_err(|source| Error::file(path, source))?;
        Ok([without, first, second])
    }

    /// Seconds that a file takes.
    fn fetch(&self, name: &str, octets: u64) -> Result<f64, Error> {
        let scheme = match self.protocol {
            Protocol::Tftp => "tftp",
            Protocol::Http => "http",
        };
        let url = format!("{scheme}://[{}]/{name}", Site::B.host());
        let mut command = self.lab.command(Node::HostA, "curl")?;
        command.args(["--silent", "--show-error", "--fail", "--tftp-no-options", "--output", "/dev/null"]);
        let said = text(&check(command.args(["--write-out", "%{size_download} %{time_total}", &url]))?);
        match said.split_once(' ').map(|(size, time)| (size.parse() == Ok(octets), time.parse())) {
            Some((true, Ok(time))) => Ok(time),
            _ => Err(Error::output("curl", said)),
        }
    }

    /// Packets that the script has made.
    fn sent(&self) -> Result<u64, Error> {
        let said = self.sidestep(&["list", "--json"])?;
        let list: Value = serde_json::from_str(&said).map_err(|error| Error::output("script list", error))?;
        list["scripts"][0]["sent"].as_u64().ok_or_else(|| Error::output("script list", said))
    }

    fn sidestep(&self, words: &[&str]) -> Result<String, Error> {
        let mut command = self.lab.command(CACHE, self.lab.program())?;
        Ok(text(&check(command.arg("script").args(words))?))
    }
}

/// The tables.
fn markdown(rows: &[Row], program: &Path) -> String {
    let mut page =
        format!("Sidestep {}. {}. Milliseconds, medians.\n", version(program), machine("all five machines"));
    for group in rows.chunk_by(|one, other| one.protocol == other.protocol && one.delay_ms == other.delay_ms)
    {
        let Some(Row { protocol, delay_ms, .. }) = group.first() else { continue };
        let name = format!("{protocol:?}").to_uppercase();
        let far = if *delay_ms > 0.0 { format!("{delay_ms} ms away") } else { "next to the cache".into() };
        let _ = writeln!(page, "\n{name}, the server {far}:\n");
        let _ = writeln!(
            page,
            "| octets | runs | without the script | first time | from the cache | without / cache |"
        );
        let _ = writeln!(page, "|---:|---:|---:|---:|---:|---:|");
        for Row { octets, runs, without_ms, first_ms, second_ms, .. } in group {
            let ratio = without_ms / second_ms;
            let _ = writeln!(
                page,
                "| {octets} | {runs} | {without_ms:.2} | {first_ms:.2} | {second_ms:.2} | {ratio:.2} |"
            );
        }
    }
    page
}
