//! Calls: RTP packets of G.711 and of Opus from host A to host B, and what a listener would make of them.
//!
//! The listener plays a packet [`PLAYOUT`] after the fastest one would have come; what comes later is lost to it. One-way
//! delays are exact, as both hosts have the same clock.

use std::time::Duration;

use serde_json::json;

use crate::experiment::emodel::{mean_opinion, rating};
use crate::experiment::scene::{ExperimentScene, Outcome};
use lab::Error;
use lab::traffic::{UdpOptions, UdpReport, UdpStream};

/// A codec's packets: one every 20 ms.
struct Codec {
    name: &'static str,
    /// Bytes of speech.
    payload: usize,
    port: u16,
}

/// G.711 at 64 kbit/s; Opus at 32 kbit/s, which RFC 7587 calls right for speech in full band.
const CODECS: [Codec; 2] =
    [Codec { name: "g711", payload: 160, port: 5_004 }, Codec { name: "opus", payload: 80, port: 5_006 }];

/// Bytes of an RTP header.
const RTP: usize = 12;

/// What a packet holds.
const FRAME: Duration = Duration::from_millis(20);

/// What the listener's buffer adds.
const PLAYOUT: Duration = Duration::from_millis(40);

/// How long a call is: two minutes as published, or so that it has three rotations.
const PUBLISHED: Duration = Duration::from_secs(120);
const SCALED: Duration = Duration::from_secs(6);

/// Both codecs at the same time.
pub(crate) fn calls(scene: &ExperimentScene) -> Result<Outcome, Error> {
    let duration = if scene.full { PUBLISHED } else { SCALED };
    let rate = (1.0 / FRAME.as_secs_f64()) as u32;
    let mut streams = Vec::new();
    for Codec { payload, port, .. } in &CODECS {
        let options = UdpOptions {
            rate,
            size: payload + RTP,
            duration,
            port: *port,
            each: true,
            ..UdpOptions::default()
        };
        streams.push(UdpStream::start(scene.lab, options)?);
    }
    scene.sleep(duration);
    let mut outcome = Outcome::default();
    let mut raw = serde_json::Map::new();
    for (stream, codec) in streams.into_iter().zip(&CODECS) {
        // Those of an interrupted call end with the lab.
        if scene.stopped() {
            break;
        }
        let report = stream.finish(Duration::from_millis(500))?;
        for (name, value) in heard(&report) {
            outcome.values.insert(format!("{}_{name}", codec.name), value);
        }
        raw.insert(codec.name.to_owned(), json!(report));
    }
    outcome.raw = raw.into();
    Ok(outcome)
}

/// What a call was like.
fn heard(report: &UdpReport) -> Vec<(&'static str, f64)> {
    let sent = (report.sent.sent + report.sent.refused) as f64;
    let delays: Vec<f64> = report.received.each_ms.iter().map(|ms| f64::from(*ms)).collect();
    let lost = 100.0 * (report.lost + report.sent.refused) as f64 / sent.max(1.0);
    let Some(fastest) = delays.iter().copied().reduce(f64::min) else { return vec![("loss_percent", 100.0)] };
    let [frame, playout] = [FRAME, PLAYOUT].map(|time| time.as_secs_f64() * 1e3);
    let late = delays.iter().filter(|delay| **delay > fastest + playout).count();
    let late = 100.0 * late as f64 / sent.max(1.0);
    let mouth_to_ear = frame + fastest + playout;
    let r = rating(mouth_to_ear, (lost + late).min(100.0));
    vec![
        ("delay_ms", delays.iter().sum::<f64>() / delays.len() as f64),
        ("delay_max_ms", delays.iter().copied().fold(0.0, f64::max)),
        ("jitter_ms", jitter(&delays)),
        ("loss_percent", lost),
        ("late_percent", late),
        ("mouth_to_ear_ms", mouth_to_ear),
        ("r", r),
        ("mos", mean_opinion(r)),
    ]
}

/// The interarrival jitter of RFC 3550, section 6.4.1, at the end of the stream.
fn jitter(delays: &[f64]) -> f64 {
    delays.windows(2).fold(0.0, |jitter, pair| jitter + ((pair[1] - pair[0]).abs() - jitter) / 16.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::udp_stream::{Received, Sent};

    fn report(sent: u64, each_ms: Vec<f32>) -> UdpReport {
        let lost = sent - each_ms.len() as u64;
        let received = Received { distinct: each_ms.len() as u64, each_ms, ..Received::default() };
        UdpReport { sent: Sent { sent, ..Sent::default() }, received, lost }
    }

    fn value(values: &[(&str, f64)], name: &str) -> f64 {
        values.iter().find(|(one, _)| *one == name).expect("a value").1
    }

    #[test]
    fn a_steady_call_is_as_good_as_it_gets() {
        let heard = heard(&report(100, vec![1.0; 100]));
        assert_eq!((value(&heard, "jitter_ms"), value(&heard, "loss_percent")), (0.0, 0.0));
        assert!((value(&heard, "mos") - 4.41).abs() < 0.01);
        assert_eq!(value(&heard, "mouth_to_ear_ms"), 61.0);
    }

    #[test]
    fn what_comes_too_late_is_lost_to_the_listener() {
        let mut delays = vec![1.0; 98];
        delays.push(60.0);
        let heard = heard(&report(100, delays));
        assert_eq!((value(&heard, "loss_percent"), value(&heard, "late_percent")), (1.0, 1.0));
        assert!(value(&heard, "mos") < 4.3);
    }

    #[test]
    fn silence_has_no_quality() {
        assert_eq!(heard(&report(10, Vec::new())), [("loss_percent", 100.0)]);
    }

    #[test]
    fn jitter_approaches_what_every_packet_differs_by() {
        let delays: Vec<f64> = (0..200).map(|number| f64::from(number % 2) * 4.0).collect();
        assert!((jitter(&delays) - 4.0).abs() < 0.01);
    }
}
