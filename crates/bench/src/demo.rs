//! `sidestep-lab demo`: half a minute of traffic between two networks, watched from the hosts and from the router
//! between the gateways, with a live view, a verdict and a report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::live::{Live, Moment};
use crate::outcome::{DemoOutcome, Finding};
use crate::report;
use crate::status::endpoint;
use lab::Error;
use lab::Lab;
use lab::capture::{Packet, Recording};
use lab::observer::{Observation, packets_containing};
use lab::topology::{Node, Site, Topology};
use lab::traffic::{PingOptions, Pings, TcpOptions, TcpTransfer, UdpOptions, UdpStream};
use lab::udp_stream::PLAINTEXT;

/// The UDP stream from host A to host B: 4 Mbit/s.
const UDP_RATE: u32 = 1_000;
const UDP_SIZE: usize = 500;
/// The TCP stream from host B to host A.
const TCP_RATE: u64 = 20_000_000;
const PING_INTERVAL: Duration = Duration::from_millis(100);

/// A flow with fewer packets than this carried no data worth linking.
const DATA_FLOW: u64 = 50;

/// How many pairs of endpoints are alive at a time: the program's default.
const LANES: u8 = 3;

/// What to show.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The lab's prefix.
    pub prefix: String,
    /// How the gateways are connected.
    pub topology: Topology,
    /// Rotation interval.
    pub rotation: String,
    /// Seconds of traffic.
    pub seconds: u32,
    /// Where the report goes.
    pub report: PathBuf,
    /// With the tunnel, or the baseline without.
    pub tunnel: bool,
}

/// Runs the demonstration; success if all was well.
///
/// # Errors
/// When the lab, the traffic or the report cannot be made.
pub fn run(options: &DemoOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let mut live = Live::new(options.seconds);
    live.print_line(
        &format!("Building the {:?} lab: two hosts, two gateways, a router", options.topology).to_lowercase(),
    );
    let mut lab = Lab::builder(program)
        .prefix(&options.prefix)
        .topology(options.topology)
        .rotation(&options.rotation)
        .lanes(if options.tunnel { LANES } else { 1 })
        .tunnel(options.tunnel)
        .whole_packets(true)
        .build()?;
    let recording = Recording::start(&lab, Node::Router, "a")?;
    live.print_line(if options.tunnel {
        "starting the gateways"
    } else {
        "no gateways: the baseline without a tunnel"
    });
    lab.start()?;
    live.print_line("traffic: UDP 4 Mbit/s from A to B, TCP 20 Mbit/s from B to A, ten echoes a second");
    let Some(outcome) = traffic(options, &lab, &mut live, recording, stop)? else {
        live.print_line("interrupted");
        return Ok(ExitCode::from(130));
    };
    live.end();
    let page = report::write(&outcome, &options.report)?;
    println!("\n{}", summary(&outcome));
    println!("Report: {}", page.display());
    Ok(if outcome.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the traffic and takes stock; `None` if interrupted.
fn traffic(
    options: &DemoOptions,
    lab: &Lab,
    live: &mut Live,
    recording: Recording,
    stop: &Arc<AtomicBool>,
) -> Result<Option<DemoOutcome>, Error> {
    let duration = Duration::from_secs(u64::from(options.seconds));
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = Instant::now();
    let udp = UdpStream::start(
        lab,
        UdpOptions { from: Site::A, rate: UDP_RATE, size: UDP_SIZE, duration, ..UdpOptions::default() },
    )?;
    let tcp = TcpTransfer::start(
        lab,
        TcpOptions { from: Site::B, seconds: options.seconds, rate: TCP_RATE, ..TcpOptions::default() },
    )?;
    let count = (duration.as_millis() / PING_INTERVAL.as_millis()) as u32;
    let pings =
        Pings::start(lab, PingOptions { count, interval: Some(PING_INTERVAL), ..PingOptions::default() })?;
    let mut moments = Vec::new();
    let mut watch = Watch::new(lab);
    for second in 1..=options.seconds {
        while start.elapsed() < Duration::from_secs(u64::from(second)) {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let moment = watch.look(lab, &udp, start.elapsed().as_secs_f64());
        live.show(&moment);
        moments.push(moment);
    }
    let udp = udp.finish(Duration::from_millis(500))?;
    let tcp = tcp.finish()?;
    let ping = pings.finish(Duration::from_secs(5))?;
    let version = lab.show(Site::A).ok().and_then(|show| show["version"].as_str().map(str::to_owned));
    let mut packets = recording.finish()?;
    // The traffic's end, and what the gateways do after it, is another story.
    packets.retain(|packet| packet.time < begin + duration);
    let observation = Observation::of(&packets, begin, site_of(lab.has_tunnel()));
    let mut outcome = DemoOutcome {
        topology: options.topology,
        rotation: options.tunnel.then(|| options.rotation.clone()),
        seconds: options.seconds,
        version: version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").into()),
        udp,
        tcp,
        ping,
        moments,
        observation,
        plaintext_packets: packets_containing(&packets, PLAINTEXT),
        findings: Vec::new(),
    };
    outcome.findings = findings(&outcome, &packets);
    Ok(Some(outcome))
}

/// Tells the sites apart by their hopping prefixes, in the baseline by their hosts.
fn site_of(tunnel: bool) -> impl Fn(std::net::Ipv6Addr) -> Option<Site> {
    move |address| {
        [Site::A, Site::B].into_iter().find(|site| {
            if tunnel { site.in_hop_prefix(address) } else { site.host() == std::net::IpAddr::V6(address) }
        })
    }
}

/// The judgement.
fn findings(outcome: &DemoOutcome, packets: &[Packet]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |good: bool, text: String| findings.push(Finding { good, text });
    let udp = &outcome.udp;
    let duplicated = udp.received.duplicated;
    find(
        udp.lost == 0 && duplicated == 0 && udp.sent.sent > 0,
        format!("UDP: {} datagrams sent, {} lost, {duplicated} duplicated", udp.sent.sent, udp.lost),
    );
    let ping = &outcome.ping;
    let unanswered = ping.sent - ping.received.min(ping.sent);
    find(
        unanswered == 0 && ping.duplicates == 0 && ping.sent > 0,
        format!(
            "Ping: {} echoes, {unanswered} without an answer, {} answered twice",
            ping.sent, ping.duplicates
        ),
    );
    let tcp = &outcome.tcp;
    find(
        tcp.bits_per_second > 0.9 * TCP_RATE as f64,
        format!(
            "TCP: {:.1} Mbit/s of 20 asked for, {} retransmissions",
            tcp.bits_per_second / 1e6,
            tcp.retransmits
        ),
    );
    if outcome.rotation.is_none() {
        return findings;
    }
    let seen = &outcome.observation;
    let lanes = seen.flows.iter().filter(|flow| flow.packets.iter().sum::<u64>() >= DATA_FLOW);
    let used: Vec<bool> = lanes.map(|lane| !lane.packets.contains(&0)).collect();
    find(
        used.len() > 1 && used.iter().all(|both| *both),
        format!(
            "Lanes with data: {}, {} born meanwhile; both ends sent on {}",
            used.len(),
            outcome.rotations(),
            used.iter().filter(|both| **both).count()
        ),
    );
    let (a, b) = (seen.addresses(Site::A), seen.addresses(Site::B));
    find(a > 1 && b > 1, format!("The router saw {a} addresses of site A and {b} of site B"));
    let linking = seen.linking_addresses(DATA_FLOW).len();
    find(linking == 0, format!("Addresses that occur in more than one lane: {linking}"));
    let plain = outcome.plaintext_packets;
    find(plain == 0, format!("Packets at the router with readable content: {plain} of {}", packets.len()));
    find(
        seen.not_udp.is_empty(),
        format!(
            "Packets between the hopping prefixes that are not UDP: {}",
            seen.not_udp.values().sum::<u64>()
        ),
    );
    findings
}

/// The judgement as text.
fn summary(outcome: &DemoOutcome) -> String {
    let mark = |good: bool| if good { "ok  " } else { "BAD " };
    let mut lines: Vec<String> =
        outcome.findings.iter().map(|finding| format!("  {} {}", mark(finding.good), finding.text)).collect();
    lines.push(if outcome.passed() {
        "All was well.".into()
    } else {
        "Not all was well: see the lines marked BAD.".into()
    });
    lines.join("\n")
}

/// Reads counters, and remembers the last ones.
struct Watch {
    bytes: [u64; 2],
    at: Instant,
}

impl Watch {
    fn new(lab: &Lab) -> Self {
        Self { bytes: [Site::A, Site::B].map(|site| received_bytes(lab, site)), at: Instant::now() }
    }

    fn look(&mut self, lab: &Lab, udp: &UdpStream, time: f64) -> Moment {
        let bytes = [Site::A, Site::B].map(|site| received_bytes(lab, site));
        let elapsed = self.at.elapsed().as_secs_f64();
        let rate = |site: usize| bytes[site].saturating_sub(self.bytes[site]) as f64 * 8.0 / elapsed;
        let bits_per_second = [rate(0), rate(1)];
        (self.bytes, self.at) = (bytes, Instant::now());
        let show = if lab.has_tunnel() { lab.show(Site::A).unwrap_or_default() } else { Value::Null };
        let peer = &show["peers"][0];
        let latest = udp.seconds().last().cloned().unwrap_or_default();
        Moment {
            time,
            endpoints: [endpoint(&peer["local"]), endpoint(&peer["remote"])],
            rotations: peer["rotations"].as_u64().unwrap_or(0),
            next_rotation_ms: peer["next_rotation_ms"].as_u64(),
            bits_per_second,
            latency_ms: latest.latency_ms,
            missing: latest.missing,
            duplicated: latest.duplicated,
        }
    }
}

/// Bytes that a host has received on its only link.
fn received_bytes(lab: &Lab, site: Site) -> u64 {
    let Ok(output) = lab.exec(site.host_node(), ["cat", "/proc/net/dev"]) else { return 0 };
    let text = String::from_utf8_lossy(&output.stdout);
    let link = text.lines().find_map(|line| line.trim().strip_prefix("eth:"));
    link.and_then(|counters| counters.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
