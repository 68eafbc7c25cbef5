//! iperf3's UDP from host B to host A: jitter and loss.

use std::time::Duration;

use serde_json::Value;

use crate::experiment::scene::{ExperimentScene, Outcome, log_of, not_understood};
use lab::Error;
use lab::topology::{Node, Site};
use lab::traffic::wait_listening;

/// Bits per second. The papers do not say theirs; this is one that every contender can carry.
const RATE: u64 = 20_000_000;

/// Bytes of payload, which fit into every contender's packets.
const SIZE: u64 = 1_200;

/// Fixed, as each transfer has both ends to itself.
const PORT: u16 = 5_201;

/// Sends so many bytes.
pub(crate) fn transfer(scene: &ExperimentScene, bytes: u64) -> Result<Outcome, Error> {
    let (address, port) = (Site::B.host().to_string(), PORT.to_string());
    let server = scene.start(
        Site::B.host_node(),
        &["iperf3", "-s", "-1", "-B", &address, "-p", &port],
        "iperf-server",
    )?;
    let listens = wait_listening(&server, "tcp", PORT).map_err(|_| Error::output("iperf3", log_of(&server)));
    let limit = Duration::from_secs(bytes * 8 / RATE + 15);
    let [rate, size, count] = [RATE, SIZE, bytes].map(|number| number.to_string());
    let words = [
        "iperf3",
        "-J",
        "-u",
        "-R",
        "-c",
        &address,
        "-p",
        &port,
        "-n",
        &count,
        "-b",
        &rate,
        "-l",
        &size,
        "--connect-timeout",
        "5000",
    ];
    let said = listens.and_then(|()| scene.run(Node::HostA, &words, "iperf-client", limit));
    server.stop(Duration::from_secs(1));
    outcome(&said?)
}

fn outcome(said: &str) -> Result<Outcome, Error> {
    let json: Value = serde_json::from_str(said).map_err(|_| not_understood("iperf3", said))?;
    if let Some(error) = json["error"].as_str() {
        return Err(not_understood("iperf3", error));
    }
    let sum = &json["end"]["sum"];
    let number = |name: &str| sum[name].as_f64().unwrap_or(f64::NAN);
    let values = [
        ("jitter_ms", number("jitter_ms")),
        ("loss_percent", number("lost_percent")),
        ("packets", number("packets")),
    ];
    Ok(Outcome::new(values, sum.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iperf3_says_is_read() {
        let said = r#"{"end":{"sum":{"jitter_ms":0.05,"lost_packets":2,"packets":100,"lost_percent":2.0}}}"#;
        let outcome = outcome(said).expect("values");
        assert_eq!((outcome.values["jitter_ms"], outcome.values["loss_percent"]), (0.05, 2.0));
        assert!(super::outcome(r#"{"error":"unable to connect"}"#).is_err() && super::outcome("").is_err());
    }
}
