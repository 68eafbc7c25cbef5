//! What the tests have in common: a lab whose hosts reach each other, questions to its gateways, and streams.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use lab::scale::scaled;
use lab::traffic::{self, TcpOptions, TcpReport, UdpOptions, UdpReport, UdpStream};
use lab::{Builder, Lab, Node, Site};
use serde_json::Value;

/// A lab that is not built yet, or `None` where there is no program to test or no root.
pub(crate) fn lab() -> Option<Builder> {
    let builder = Lab::builder(crate::program(&[])?);
    let threads = std::env::var("SIDESTEP_THREADS").ok().and_then(|threads| threads.parse().ok());
    Some(match threads {
        Some(threads) => builder.threads(threads),
        None => builder,
    })
}

/// A lab whose hosts reach each other through the tunnel.
pub(crate) fn up(builder: Builder) -> Lab {
    let mut lab = builder.build().expect("a lab");
    lab.start().expect("a tunnel");
    lab
}

/// The first (and only) peer in a gateway's status.
pub(crate) fn peer(lab: &Lab, site: Site) -> Value {
    lab.show(site).expect("a status")["peers"][0].take()
}

/// A number in the peer's status.
pub(crate) fn number(lab: &Lab, site: Site, field: &str) -> u64 {
    peer(lab, site)[field].as_u64().unwrap_or_else(|| panic!("no number {field}"))
}

/// How often a gateway has moved.
pub(crate) fn rotations(lab: &Lab) -> u64 {
    number(lab, Site::A, "rotations")
}

/// Sets the offset of a gateway's wall clock, which was started with `--test-clock-offset`.
pub(crate) fn step_clock(lab: &mut Lab, site: Site, ms: i64) {
    let request = format!("{{\"command\":\"test-clock-offset\",\"ms\":{ms}}}\n");
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(site).tunnel());
    let mut stream = UnixStream::connect(socket).expect("the control socket");
    stream.write_all(request.as_bytes()).expect("a request");
    stream.shutdown(Shutdown::Write).expect("the end of the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("\"ok\""), "{answer}");
}

/// A transfer from a site's host to the other one: as fast as it goes in a full run, else at a rate that leaves the
/// processors to the tests beside this one, by writes that are as large.
pub(crate) fn tcp(lab: &Lab, from: Site, seconds: u32) -> TcpReport {
    let rate = scaled(100_000_000, 0);
    let report = traffic::tcp(lab, TcpOptions { from, seconds, rate, ..TcpOptions::default() });
    report.expect("a transfer")
}

/// Starts a stream of 1,000 datagrams per second.
pub(crate) fn start_stream(lab: &Lab, from: Site, seconds: u64) -> UdpStream {
    let port = if from == Site::A { 4242 } else { 4243 };
    let options = UdpOptions { from, port, duration: Duration::from_secs(seconds), ..UdpOptions::default() };
    UdpStream::start(lab, options).expect("a stream")
}

/// Waits for a stream's end, and for what is on its way.
pub(crate) fn finish(stream: UdpStream) -> UdpReport {
    stream.finish(Duration::from_secs(2)).expect("a report")
}

/// Nothing of a stream was lost, and nothing came twice.
pub(crate) fn assert_complete(report: &UdpReport) {
    assert!(report.sent.sent > 0 && report.sent.refused == 0, "{:?}", report.sent);
    assert_eq!((report.lost, report.received.duplicated), (0, 0), "gaps {:?}", report.received.gaps);
}

/// Runs a command on a machine; what it wrote to both outputs.
pub(crate) fn run(lab: &Lab, node: Node, words: &[&str]) -> String {
    let output = lab.exec(node, words).expect("a command that starts");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
