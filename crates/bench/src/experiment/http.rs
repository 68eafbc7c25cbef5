//! Downloads from host B to host A.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::experiment::nginx::Server;
use crate::experiment::scene::{ExperimentScene, Outcome, not_understood};
use lab::Error;
use lab::topology::Node;

/// A download ends after this, unless `--full` is given; its speed is that of what came until then.
const LIMIT: Duration = Duration::from_secs(4);

/// The longest published one, at the speed of the slowest.
const FULL_LIMIT: Duration = Duration::from_secs(86_400);

/// Fetches so many bytes with curl.
pub(crate) fn curl(scene: &ExperimentScene, bytes: u64) -> Result<Outcome, Error> {
    let server = Server::start(scene, &[bytes])?;
    let before = server.segments()?;
    let limit = limit(scene);
    let download = fetch(scene, bytes, limit)?;
    let again = server.segments()?.retransmitted_since(before);
    Ok(Outcome::new(
        [
            ("mb_per_s", download.bytes / download.seconds / 1e6),
            ("seconds", download.seconds),
            ("complete", f64::from(u8::from(download.bytes >= bytes as f64))),
            ("retransmitted_percent", again),
        ],
        download.said,
    ))
}

/// What curl got, in which time.
pub(crate) struct Download {
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    pub(crate) said: Value,
}

/// Fetches a file from a running server, as far as it comes within the limit.
///
/// # Errors
/// When curl cannot be started, or fails otherwise than by its limit.
pub(crate) fn fetch(scene: &ExperimentScene, bytes: u64, limit: Duration) -> Result<Download, Error> {
    let (url, limit_s) = (Server::url(bytes), limit.as_secs_f64().to_string());
    let words = ["curl", "-gsS", "--max-time", &limit_s, "-o", "/dev/null", "-w", "%{stderr}%{json}\n", &url];
    let said = scene.run(Node::HostA, &words, "curl", limit + Duration::from_secs(5))?;
    let line = said.lines().find(|line| line.starts_with('{'));
    let json: Value =
        line.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| not_understood("curl", &said))?;
    let number = |name: &str| json[name].as_f64().unwrap_or(0.0);
    // 28: out of time.
    if !matches!(number("exitcode") as u32, 0 | 28) {
        return Err(not_understood("curl", json["errormsg"].as_str().unwrap_or(&said)));
    }
    let (bytes, seconds) = (number("size_download"), number("time_total").max(1e-6));
    Ok(Download { bytes, seconds, said: json })
}

/// Fetches so many bytes with wget, which does not say how long it took: the clock does.
pub(crate) fn wget(scene: &ExperimentScene, bytes: u64) -> Result<Outcome, Error> {
    let _server = Server::start(scene, &[bytes])?;
    let url = Server::url(bytes);
    let begun = Instant::now();
    let mut process =
        scene.start(Node::HostA, &["wget", "--tries=1", "--no-verbose", "-O", "/dev/null", &url], "wget")?;
    let limit = limit(scene);
    let status = loop {
        if let Some(status) = process.wait(Duration::from_millis(20)) {
            break Some(status);
        }
        if begun.elapsed() > limit || scene.stopped() {
            break None;
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let log = process.log().to_owned();
    process.stop(Duration::from_secs(1));
    let said = std::fs::read_to_string(&log).map_err(|source| Error::file(log, source))?;
    match status {
        Some(status) if status.success() => Ok(Outcome::new(
            [("mb_per_s", bytes as f64 / seconds / 1e6), ("seconds", seconds), ("complete", 1.0)],
            said,
        )),
        // It does not say how far it came.
        None => Ok(Outcome::new([("complete", 0.0)], said)),
        Some(_) => Err(not_understood("wget", &said)),
    }
}

fn limit(scene: &ExperimentScene) -> Duration {
    if scene.full { FULL_LIMIT } else { LIMIT }
}
