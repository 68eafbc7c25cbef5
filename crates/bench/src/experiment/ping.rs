//! Echoes: a few in a steady rhythm, or many as fast as they come back.

use std::time::Duration;

use crate::experiment::plan::HASTE;
use crate::experiment::scene::{ExperimentScene, Outcome, not_understood};
use lab::Error;
use lab::echoes::{PingReport, ping_report};
use lab::topology::{Node, Site};

/// So many in the published test, one a second; and here, unless `--full` is given.
const PUBLISHED: u32 = 1_000;
const SCALED: u32 = 32;

/// A flood ends after this, unless `--full` is given: one that loses most packets takes minutes.
const FLOOD_LIMIT: Duration = Duration::from_secs(6);

/// What the longest published flood may take: 50,000 lost packets at 100 a second, and some patience.
const FULL_LIMIT: Duration = Duration::from_secs(1_200);

/// `ping_std_1k`: 64 bytes of ICMP, ten in each rotation interval.
pub(crate) fn standard(scene: &ExperimentScene) -> Result<Outcome, Error> {
    let count = if scene.full { PUBLISHED } else { SCALED };
    let interval = 1.0 / f64::from(if scene.full { 1 } else { HASTE });
    // Answers that do not come are waited for.
    let limit = Duration::from_secs_f64(f64::from(count) * interval + 10.0);
    echoes(scene, count, &["-i", &interval.to_string()], limit)
}

/// `ping_flood_…`: as fast as they come back, or 100 a second, whichever is more.
pub(crate) fn flood(scene: &ExperimentScene, count: u32) -> Result<Outcome, Error> {
    let limit = if scene.full { FULL_LIMIT } else { FLOOD_LIMIT };
    echoes(scene, count, &["-q", "-f"], limit)
}

fn echoes(scene: &ExperimentScene, count: u32, how: &[&str], limit: Duration) -> Result<Outcome, Error> {
    let (target, asked) = (scene.lab.host(Site::B).to_string(), count.to_string());
    let words =
        [&["ping", "-6", "-n", "-s", "56", "-W", "3", "-c", &asked], how, &[target.as_str()]].concat();
    let said = scene.run(Node::HostA, &words, "ping", limit)?;
    let report = ping_report(&said).ok_or_else(|| not_understood("ping", &said))?;
    Ok(outcome(without_the_last(report, count), said))
}

/// The last one of those that were cut short may have been under way: it was not lost.
fn without_the_last(report: PingReport, count: u32) -> PingReport {
    let under_way = report.sent < u64::from(count) && report.received < report.sent;
    PingReport { sent: report.sent - u64::from(under_way), ..report }
}

fn outcome(report: PingReport, said: String) -> Outcome {
    let PingReport { sent, received, min_ms, avg_ms, max_ms, mdev_ms, .. } = report;
    let lost = sent.saturating_sub(received) as f64;
    // Without an answer there is no time of one.
    let time = |ms: f64| if received > 0 { ms } else { f64::NAN };
    Outcome::new(
        [
            ("sent", sent as f64),
            ("lost", lost),
            ("loss_percent", 100.0 * lost / sent as f64),
            ("min_ms", time(min_ms)),
            ("avg_ms", time(avg_ms)),
            ("max_ms", time(max_ms)),
            ("mdev_ms", time(mdev_ms)),
        ],
        said,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_at_the_end_of_a_flood_is_not_lost() {
        let report = |sent, received| PingReport { sent, received, ..PingReport::default() };
        assert_eq!(without_the_last(report(500, 499), 1_000), report(499, 499));
        assert_eq!(without_the_last(report(1_000, 999), 1_000), report(1_000, 999));
        assert_eq!(without_the_last(report(500, 500), 1_000), report(500, 500));
    }

    #[test]
    fn without_an_answer_there_are_no_times() {
        let silent = outcome(PingReport { sent: 5, ..PingReport::default() }, String::new());
        assert_eq!((silent.values.get("loss_percent"), silent.values.get("avg_ms")), (Some(&100.0), None));
    }
}
