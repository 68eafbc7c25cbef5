//! One gateway with many configured peers, of which one is there: what the others cost when nobody uses them.

use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};

use crate::comparison::contender::Contender;
use crate::comparison::results::ManyPeers;
use crate::comparison::statistics::quantile;
use lab::Builder;
use lab::Error;
use lab::accounting::{cpu_seconds, resident};
use lab::topology::Node;
use lab::traffic::{PingOptions, round_trips};

/// How long the first packet may take to come through.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a gateway settles, and is then watched.
const SETTLE: Duration = Duration::from_secs(2);
const WATCH: Duration = Duration::from_secs(4);

/// Echoes to the peer that is there, 2 ms apart.
const ECHOES: u32 = 500;

/// Measures gateway A with so many peers.
pub(crate) fn measure(
    contender: &mut dyn Contender,
    builder: Builder,
    peers: u32,
) -> Result<ManyPeers, Error> {
    allow_open_files();
    let mut lab = contender.lab(builder).build()?;
    // Where the others should be, nothing is, and nobody says so.
    lab.namespace(Node::Router).ip("route add blackhole 2001:db8:b1::/48\n")?;
    let begun = Instant::now();
    let watched = contender.start(&mut lab, peers - 1).and_then(|()| {
        lab.wait_connected(PATIENCE)?;
        let start_s = begun.elapsed().as_secs_f64();
        let [hub, _] = contender
            .processes(&mut lab)
            .ok_or_else(|| Error::Usage(format!("{} has no processes", contender.name())))?;
        std::thread::sleep(SETTLE);
        let (before, begun) = (cpu_seconds(hub)?, Instant::now());
        std::thread::sleep(WATCH);
        let idle_share = (cpu_seconds(hub)? - before) / begun.elapsed().as_secs_f64();
        let interval = Some(Duration::from_millis(2));
        let times =
            round_trips(&lab, PingOptions { count: ECHOES, interval, ..PingOptions::default() })?.times_ms;
        Ok(ManyPeers {
            contender: contender.name().to_owned(),
            peers,
            start_s,
            resident_mb: resident(hub)? as f64 / 1e6,
            idle_share,
            p50_us: quantile(&times, 0.5).unwrap_or(f64::NAN) * 1e3,
            p99_us: quantile(&times, 0.99).unwrap_or(f64::NAN) * 1e3,
        })
    });
    contender.stop(&mut lab);
    watched
}

/// Lets what is started from here have as many files open as the kernel allows at all: moving endpoints are sockets,
/// several for each peer. Where it is refused, the contender says what it lacks.
fn allow_open_files() {
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    if let Some(most) = most {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
