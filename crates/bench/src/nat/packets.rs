//! Small packets as fast as a host sends them: how many reach the other one in a second.
//!
//! They leave in batches that the kernel cuts (UDP_SEGMENT), so that the sender costs little, and are dropped where they
//! arrive. So what is measured is mostly the router, which works on the sender's processor here.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;

use lab::Error;
use lab::command::{check, text};
use lab::topology::Site;
use lab::traffic::{Hosts, generator};
use lab::udp_stream::Sent;

/// Octets of payload.
pub(super) const SIZE: usize = 64;
/// How many are sent.
pub(super) const COUNT: u32 = 1_000_000;
/// The metric's name.
pub(super) const KEY: &str = "packets_64";
/// Where they are dropped.
pub(crate) const PORT: u16 = 4243;
/// No host sends so many in a second: it sends them as fast as it can.
const RATE: u32 = 10_000_000;
/// How many tell how fast it can.
const FEW: u32 = 1_000;
/// When nothing has arrived for so long, nothing will.
const PAUSE: Duration = Duration::from_millis(20);

/// What drops them on the host that they go to, for nft.
pub(crate) fn sink() -> String {
    sink_with(&format!("udp dport {PORT} counter name arrived drop"))
}

/// The same, but for one in a millisecond, which somebody may answer.
pub(crate) fn answered_sink() -> String {
    sink_with(&format!(
        "udp dport {PORT} counter name arrived limit rate 1000/second accept\nudp dport {PORT} drop"
    ))
}

fn sink_with(rules: &str) -> String {
    format!(
        "table netdev sink {{\n counter arrived {{ }}\n chain in {{\n\
         type filter hook ingress device eth0 priority 0\n{rules}\n }}\n}}\n"
    )
}

/// Packets in a second, of about so long.
pub(crate) fn carried_for(
    hosts: &dyn Hosts,
    ipv4: bool,
    size: usize,
    duration: Duration,
) -> Result<f64, Error> {
    let Sent { sent, took_us, .. } = send(hosts, ipv4, size, FEW)?;
    let rate = rate(sent, took_us);
    carried(hosts, ipv4, size, ((rate * duration.as_secs_f64()) as u32).max(FEW))
}

/// Packets in a second, of so many.
pub(crate) fn carried(hosts: &dyn Hosts, ipv4: bool, size: usize, count: u32) -> Result<f64, Error> {
    arriving(hosts, || {
        let sent = send(hosts, ipv4, size, count)?;
        Ok(sent.took_us)
    })
}

/// Packets that arrive in a second, of those that are sent in so many microseconds.
pub(crate) fn arriving(hosts: &dyn Hosts, send: impl FnOnce() -> Result<u64, Error>) -> Result<f64, Error> {
    let arrived = |hosts| counted(hosts, "arrived");
    let before = arrived(hosts)?;
    let took_us = send()?;
    let ended = Instant::now();
    // What waits in queues, as in front of a process, still arrives, and takes its time.
    let (mut after, mut late) = (arrived(hosts)?, Duration::ZERO);
    loop {
        std::thread::sleep(PAUSE);
        let now = arrived(hosts)?;
        if now == after {
            break;
        }
        (after, late) = (now, ended.elapsed());
    }
    let took_us = took_us + u64::try_from(late.as_micros()).unwrap_or(0);
    Ok(rate(after - before, took_us))
}

fn rate(packets: u64, took_us: u64) -> f64 {
    packets as f64 / (took_us.max(1) as f64 / 1e6)
}

fn send(hosts: &dyn Hosts, ipv4: bool, size: usize, count: u32) -> Result<Sent, Error> {
    let target = SocketAddr::new(hosts.address(Site::B, ipv4), PORT).to_string();
    let seconds = (f64::from(count) / f64::from(RATE)).to_string();
    let (rate, size) = (RATE.to_string(), size.to_string());
    let words = ["udp-send", "--to", &target, "--rate", &rate, "--size", &size, "--seconds", &seconds];
    let words = [&words[..], &["--batched"]].concat();
    let output = text(&check(&mut generator(hosts, Site::A, &words)?)?);
    serde_json::from_str(&output).map_err(|error| Error::output("udp-send", format!("{error}: {output}")))
}

/// Packets that a counter of nftables on the server has seen so far.
pub(crate) fn counted(hosts: &dyn Hosts, name: &str) -> Result<u64, Error> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        counter: Option<Counter>,
    }
    #[derive(Deserialize)]
    struct Counter {
        name: String,
        packets: u64,
    }
    let mut command = hosts.on(Site::B, Path::new("nft"))?;
    let output = text(&check(command.args(["-j", "list", "counters"]))?);
    let listing: Listing =
        serde_json::from_str(&output).map_err(|error| Error::output("nft -j list counters", error))?;
    let mut counters = listing.nftables.into_iter().filter_map(|entry| entry.counter);
    let counter = counters.find(|counter| counter.name == name);
    counter
        .map(|counter| counter.packets)
        .ok_or_else(|| Error::output("nft", format!("there is no counter `{name}`")))
}
