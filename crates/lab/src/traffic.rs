//! Measurements between two hosts, as those of a lab: UDP streams, TCP (iperf3), ping.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::command::{run, text};
use crate::echoes::{self, Echoes, PingReport, ping_report};
use crate::helper;
use crate::process::{Process, tail};
use crate::topology::Site;
use crate::udp_stream::{Received, Second, Sent};

/// Two hosts, and how to run something on them.
pub trait Hosts {
    /// The address of a site's host that a measurement goes to.
    fn address(&self, site: Site, ipv4: bool) -> IpAddr;

    /// The address at which it listens there: another one where one is translated on the way.
    fn listening(&self, site: Site, ipv4: bool) -> IpAddr {
        self.address(site, ipv4)
    }

    /// A command on a site's host.
    ///
    /// # Errors
    /// When its namespace is gone.
    fn on(&self, site: Site, program: &Path) -> Result<Command, Error>;

    /// Where logs go.
    fn directory(&self) -> PathBuf;
}

/// A UDP stream to be sent.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Where it comes from; it goes to the other site.
    pub from: Site,
    /// Datagrams per second.
    pub rate: u32,
    /// Bytes of UDP payload.
    pub size: usize,
    /// How long.
    pub duration: Duration,
    /// Destination port; streams at the same time need different ones.
    pub port: u16,
    /// IPv4 in place of IPv6.
    pub ipv4: bool,
    /// Datagrams that leave together are one packet to the kernel.
    pub batched: bool,
    /// Report the latency of every datagram.
    pub each: bool,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            from: Site::A,
            rate: 1_000,
            size: 500,
            duration: Duration::from_secs(10),
            port: 4242,
            ipv4: false,
            batched: false,
            each: false,
        }
    }
}

/// A UDP stream's account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UdpReport {
    /// The sender's side.
    pub sent: Sent,
    /// The receiver's side.
    pub received: Received,
    /// Sent and never received.
    pub lost: u64,
}

/// A UDP stream on its way.
#[derive(Debug)]
pub struct UdpStream {
    sender: Process,
    receiver: Process,
    limit: Duration,
}

impl UdpStream {
    /// Starts the receiver, then the sender.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn start(hosts: &dyn Hosts, options: UdpOptions) -> Result<Self, Error> {
        let to = options.from.other();
        let target = SocketAddr::new(hosts.address(to, options.ipv4), options.port).to_string();
        let log = |role: &str| hosts.directory().join(format!("udp-{}-{role}.log", options.port));
        let batched: &[&str] = if options.batched { &["--batched"] } else { &[] };
        let each: &[&str] = if options.each { &["--each"] } else { &[] };
        let listening = SocketAddr::new(hosts.listening(to, options.ipv4), options.port).to_string();
        let words = [&["udp-receive", "--listen", &listening], batched, each].concat();
        let receiver = start_fresh(generator(hosts, to, &words)?, &log("receiver"))?;
        wait_listening(&receiver, "udp", options.port)?;
        let (rate, size) = (options.rate.to_string(), options.size.to_string());
        let seconds = options.duration.as_secs_f64().to_string();
        let words = ["udp-send", "--to", &target, "--rate", &rate, "--size", &size, "--seconds", &seconds];
        let words = [&words, batched].concat();
        let sender = start_fresh(generator(hosts, options.from, &words)?, &log("sender"))?;
        Ok(Self { sender, receiver, limit: options.duration + Duration::from_secs(10) })
    }

    /// The seconds that the receiver has reported so far.
    pub fn seconds(&self) -> Vec<Second> {
        let text = std::fs::read_to_string(self.receiver.log()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for the sender's end, gives stragglers `drain`, and takes stock.
    ///
    /// # Errors
    /// When one of them failed.
    pub fn finish(mut self, drain: Duration) -> Result<UdpReport, Error> {
        self.sender.wait(self.limit);
        let sender_log = self.sender.log().to_owned();
        self.sender.stop(Duration::from_secs(2));
        std::thread::sleep(drain);
        let receiver_log = self.receiver.log().to_owned();
        self.receiver.stop(Duration::from_secs(5));
        let sent: Sent = last_line(&sender_log)?;
        let received: Received = last_line(&receiver_log)?;
        let lost = sent.sent.saturating_sub(received.distinct);
        Ok(UdpReport { sent, received, lost })
    }
}

/// A TCP transfer to be made.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Where the bytes come from; they go to the other site.
    pub from: Site,
    /// How long.
    pub seconds: u32,
    /// Bits per second at most; 0 is unlimited.
    pub rate: u64,
    /// Connections side by side.
    pub parallel: u32,
    /// Destination port.
    pub port: u16,
    /// IPv4 in place of IPv6.
    pub ipv4: bool,
    /// Bytes of both ends' socket buffers, which limit the window; without, the kernel's choice.
    pub window: Option<u32>,
    /// Bytes of a segment, TCP's options included, at most; without, what the link holds.
    pub segment: Option<u32>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        let (window, segment) = (None, None);
        Self { from: Site::A, seconds: 10, rate: 0, parallel: 1, port: 5201, ipv4: false, window, segment }
    }
}

/// A TCP transfer's account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpReport {
    /// What the receiver got, in bits per second.
    pub bits_per_second: f64,
    /// Segments that the sender sent again.
    pub retransmits: u64,
    /// Second by second: bits per second at the sender.
    pub seconds: Vec<f64>,
}

/// A TCP transfer on its way.
#[derive(Debug)]
pub struct TcpTransfer {
    client: Process,
    server: Process,
    limit: Duration,
}

impl TcpTransfer {
    /// Starts iperf3 at both ends.
    ///
    /// # Errors
    /// When iperf3 does not start.
    pub fn start(hosts: &dyn Hosts, options: TcpOptions) -> Result<Self, Error> {
        let to = options.from.other();
        let address = hosts.address(to, options.ipv4).to_string();
        let port = options.port.to_string();
        let log = |role: &str| hosts.directory().join(format!("tcp-{port}-{role}.log"));
        let mut server = hosts.on(to, Path::new("iperf3"))?;
        let listening = hosts.listening(to, options.ipv4).to_string();
        server.args(["-s", "-1", "-J", "-B", &listening, "-p", &port]);
        let server = start_fresh(server, &log("server"))?;
        wait_listening(&server, "tcp", options.port)?;
        let mut client = hosts.on(options.from, Path::new("iperf3"))?;
        client.args(["-J", "-c", &address, "-p", &port, "-t", &options.seconds.to_string()]);
        client.args(["-P", &options.parallel.to_string()]);
        if options.rate > 0 {
            client.args(["-b", &options.rate.to_string()]);
        }
        for (option, value) in [("-w", options.window), ("-M", options.segment)] {
            if let Some(value) = value {
                client.args([option, &value.to_string()]);
            }
        }
        let client = start_fresh(client, &log("client"))?;
        Ok(Self { client, server, limit: Duration::from_secs(u64::from(options.seconds) + 15) })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the transfer failed or stalled past its time.
    pub fn finish(mut self) -> Result<TcpReport, Error> {
        let ended = self.client.wait(self.limit).is_some();
        let log = self.client.log().to_owned();
        self.client.stop(Duration::from_secs(1));
        self.server.stop(Duration::from_secs(1));
        if !ended {
            return Err(Error::output("iperf3", "the transfer did not end in time: it stalled"));
        }
        let text = std::fs::read_to_string(&log).map_err(|source| Error::file(&log, source))?;
        tcp_report(&text)
    }
}

/// Measures TCP from one host to the other.
///
/// # Errors
/// As [`TcpTransfer::finish`].
pub fn tcp(hosts: &dyn Hosts, options: TcpOptions) -> Result<TcpReport, Error> {
    TcpTransfer::start(hosts, options)?.finish()
}

/// Echo requests to be sent.
#[derive(Clone, Copy, Debug)]
pub struct PingOptions {
    /// Where they come from; they go to the other site's host.
    pub from: Site,
    /// How many.
    pub count: u32,
    /// Time between two; `None` floods.
    pub interval: Option<Duration>,
    /// Bytes of payload.
    pub size: u16,
    /// IPv4 in place of IPv6.
    pub ipv4: bool,
}

impl Default for PingOptions {
    fn default() -> Self {
        Self { from: Site::A, count: 10, interval: Some(Duration::from_millis(200)), size: 56, ipv4: false }
    }
}

/// Pings from one host to the other.
///
/// # Errors
/// When ping cannot be started or its summary is not understood. Lost replies are no error.
pub fn ping(hosts: &dyn Hosts, options: PingOptions) -> Result<PingReport, Error> {
    let mut counters = counters(hosts, options.from)?;
    let before = Echoes::parse(&read(&mut counters));
    let output = run(&mut ping_command(hosts, options, true)?)?;
    let report = ping_report(&text(&output)).ok_or_else(|| {
        let detail = format!("{}{}", text(&output), String::from_utf8_lossy(&output.stderr));
        Error::output("ping", detail)
    })?;
    Ok(before.complete(report, || read(&mut counters)))
}

/// What became of each echo.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// Requests sent.
    pub sent: u64,
    /// Of those that were answered: the time it took, milliseconds.
    pub times_ms: Vec<f64>,
}

/// Pings from one host to the other, each with its own time. Without an interval the next request leaves when the
/// answer is there, as `ping -f` does it.
///
/// # Errors
/// As [`ping()`].
pub fn round_trips(hosts: &dyn Hosts, options: PingOptions) -> Result<RoundTrips, Error> {
    let mut command = ping_command(
        hosts,
        PingOptions { interval: Some(options.interval.unwrap_or_default()), ..options },
        false,
    )?;
    let output = text(&run(&mut command)?);
    read_round_trips(&output).ok_or_else(|| Error::output("ping", output))
}

/// Reads what ping printed.
pub fn read_round_trips(text: &str) -> Option<RoundTrips> {
    let sent = ping_report(text)?.sent;
    let answers = text.lines().filter(|line| !line.contains("(DUP!)"));
    let times = answers.filter_map(|line| line.split(" time=").nth(1)?.split(' ').next()?.parse().ok());
    Some(RoundTrips { sent, times_ms: times.collect() })
}

/// Pings on their way.
#[derive(Debug)]
pub struct Pings {
    process: Process,
    counters: Command,
    before: Echoes,
}

impl Pings {
    /// Starts them.
    ///
    /// # Errors
    /// When ping cannot be started.
    pub fn start(hosts: &dyn Hosts, options: PingOptions) -> Result<Self, Error> {
        let log = hosts.directory().join(format!("ping-{}.log", options.from.letter()));
        let mut counters = counters(hosts, options.from)?;
        let before = Echoes::parse(&read(&mut counters));
        let process = start_fresh(ping_command(hosts, options, true)?, &log)?;
        Ok(Self { process, counters, before })
    }

    /// Waits for the last one.
    ///
    /// # Errors
    /// When ping's summary is not understood.
    pub fn finish(mut self, limit: Duration) -> Result<PingReport, Error> {
        if self.process.wait(limit).is_none() {
            // Interrupted, ping still prints its summary.
            self.process.signal(nix::sys::signal::Signal::SIGINT);
        }
        let log = self.process.log().to_owned();
        self.process.wait(Duration::from_secs(2));
        self.process.stop(Duration::from_secs(1));
        let text = std::fs::read_to_string(&log).map_err(|source| Error::file(&log, source))?;
        let report = ping_report(&text).ok_or_else(|| Error::output("ping", text))?;
        Ok(self.before.complete(report, || read(&mut self.counters)))
    }
}

/// Reads the counters of echoes on a host.
fn counters(hosts: &dyn Hosts, site: Site) -> Result<Command, Error> {
    let mut command = hosts.on(site, Path::new("cat"))?;
    command.args(echoes::FILES);
    Ok(command)
}

fn read(counters: &mut Command) -> String {
    run(counters).map_or_else(|_| String::new(), |output| text(&output))
}

fn ping_command(hosts: &dyn Hosts, options: PingOptions, summary_only: bool) -> Result<Command, Error> {
    let address = hosts.address(options.from.other(), options.ipv4);
    let mut command = hosts.on(options.from, Path::new("ping"))?;
    command.args([
        if address.is_ipv4() { "-4" } else { "-6" },
        "-n",
        "-c",
        &options.count.to_string(),
        "-s",
        &options.size.to_string(),
    ]);
    if summary_only {
        command.arg("-q");
    }
    match options.interval {
        Some(interval) => command.args(["-i", &interval.as_secs_f64().to_string()]),
        None => command.arg("-f"),
    };
    // The last reply may be late on a slow path; one second is not enough for 600 ms each way.
    command.args(["-W", "3", &address.to_string()]);
    Ok(command)
}

fn tcp_report(text: &str) -> Result<TcpReport, Error> {
    let json: Value =
        serde_json::from_str(text).map_err(|error| Error::output("iperf3", format!("{error}: {text}")))?;
    if let Some(error) = json["error"].as_str() {
        return Err(Error::output("iperf3", error));
    }
    let intervals = json["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(TcpReport {
        bits_per_second: json["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0),
        retransmits: json["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        seconds: intervals
            .iter()
            .filter_map(|interval| interval["sum"]["bits_per_second"].as_f64())
            .collect(),
    })
}

/// A command of the lab's own program, which has the generators, on a site's host.
pub fn generator(hosts: &dyn Hosts, site: Site, words: &[&str]) -> Result<Command, Error> {
    let mut command = hosts.on(site, &helper::program()?)?;
    command.args(words);
    Ok(command)
}

/// Starts a command with an empty log.
pub fn start_fresh(mut command: Command, log: &Path) -> Result<Process, Error> {
    let _ = std::fs::remove_file(log);
    Process::start(&mut command, log)
}

/// Waits until a process's namespace has a socket bound to the port (`udp`) or listening on it (`tcp`).
pub fn wait_listening(process: &Process, protocol: &str, port: u16) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let tables = [protocol.to_owned(), format!("{protocol}6")]
        .map(|table| PathBuf::from(format!("/proc/{}/net/{table}", process.id())));
    let state = if protocol == "tcp" { "0A" } else { "07" };
    let pattern = format!(":{port:04X}");
    let bound = |table: &PathBuf| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&pattern)) && words.nth(1) == Some(state)
        })
    };
    while !tables.iter().any(bound) {
        if Instant::now() > deadline {
            return Err(Error::output("receiver", tail(process.log())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn last_line<T: for<'a> Deserialize<'a>>(log: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(log).map_err(|source| Error::file(log, source))?;
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .map_err(|error| Error::output(log.display().to_string(), format!("{error}: {line}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_echo_has_its_time() {
        let text = "PING x(x) 56 data bytes\n\
            64 bytes from x: icmp_seq=1 ttl=61 time=0.053 ms\n\
            64 bytes from x: icmp_seq=1 ttl=61 time=0.090 ms (DUP!)\n\
            64 bytes from x: icmp_seq=3 ttl=61 time=12.3 ms\n\n--- x ping statistics ---\n\
            3 packets transmitted, 2 received, +1 duplicates, 33% packet loss, time 4ms\n";
        let expected = RoundTrips { sent: 3, times_ms: vec![0.053, 12.3] };
        assert_eq!(read_round_trips(text), Some(expected));
    }

    #[test]
    fn iperf3_errors_are_errors() {
        assert!(tcp_report(r#"{"error": "unable to connect"}"#).is_err());
        assert!(tcp_report("nonsense").is_err());
    }
}
