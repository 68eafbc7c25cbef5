//! What a scrape of a thousand peers costs: `cargo run --release --package metrics --example thousand_peers`.
//!
//! A control socket answers with the status of so many peers, as a daemon does; making metrics of it, and the page that is
//! served, are measured. Processor time is that of both sides together. What the daemon's main thread spends to gather the status
//! is not in it: `sidestep-lab many` measures daemons.

use std::time::Instant;

use control::tunnel_status::{Status, example};
use control::{Call, Reply, Request, Server};
use metrics::{Format, Sources};

const PEERS: usize = 1000;
const SCRAPES: u32 = 50;
/// Seconds between two scrapes, as Prometheus is often told.
const INTERVAL: f64 = 15.0;

fn main() {
    let folder = std::env::temp_dir().join(format!("sidestep-metrics-{}", std::process::id()));
    let socket = folder.join("hub.sock");
    let status = hub();
    let server = Server::start(&socket, move |call: Call| match call.request {
        Request::Show => call.answer_status(status.clone()),
        _ => call.answer(Reply::Error("only its status".into())),
    })
    .expect("a socket");
    let sources = Sources::new(vec![socket]).expect("a source");
    let page = metrics::once(&sources, Format::OpenMetrics).expect("a page");
    let (began, before) = (Instant::now(), processor_seconds());
    for _ in 0..SCRAPES {
        metrics::once(&sources, Format::OpenMetrics).expect("a page");
    }
    let each = |seconds: f64| seconds / f64::from(SCRAPES);
    let (took, spent) = (each(began.elapsed().as_secs_f64()), each(processor_seconds() - before));
    println!("| peers | samples | page | time | processor time | every {INTERVAL} s |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| {PEERS} | {} | {:.1} MB | {:.1} ms | {:.1} ms | {:.2} % of a processor |",
        page.lines().filter(|line| !line.starts_with('#')).count(),
        page.len() as f64 / 1e6,
        took * 1e3,
        spent * 1e3,
        100.0 * spent / INTERVAL,
    );
    drop(server);
    let _ = std::fs::remove_dir_all(folder);
}

/// A hub whose peers all have a session, three lanes, a shape and some drops.
fn hub() -> Status {
    let mut status = example();
    let mut peer = status.peers[0].clone();
    for endpoints in [&mut peer.local, &mut peer.remote] {
        *endpoints = vec![endpoints[0]; 3];
    }
    for reason in ["stale", "not_for_us", "no_session"] {
        peer.drops.insert(reason.to_owned(), 7);
    }
    status.peers = (0..PEERS)
        .map(|number| {
            let mut peer = peer.clone();
            peer.name = format!("site-{number}");
            peer
        })
        .collect();
    status
}

/// Of this process: utime and stime of proc(5), in hundredths.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}
