//! How long it takes until what was signed is in force everywhere.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use super::sites::{Sites, eventually, wait_until};

/// Times from the start of the command that signs to what each of some sites did.
pub(super) struct Latencies {
    what: &'static str,
    times: Vec<Duration>,
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |share: usize| self.times[(self.times.len() - 1) * share / 100].as_secs_f64();
        let (what, sites) = (self.what, self.times.len());
        write!(
            f,
            "{what} at {sites} sites: median {:.2} s, 95 % {:.2} s, last {:.2} s",
            at(50),
            at(95),
            at(100)
        )
    }
}

/// Revokes a site, and waits until the others have neither it nor what is behind it: when each of them had written that, when
/// its gateway had taken it, and when those had that had a tunnel with it, after which nobody exchanges packets with it.
pub(super) fn revoke(sites: &Sites, site: usize, others: &[usize]) -> [Latencies; 3] {
    let network = format!("fd00:{site}::/64");
    let (name, peer) = (format!("site-{site}"), format!("\"site-{site}\""));
    let mentions = |other: usize, what: &str| {
        std::fs::read_to_string(sites.peers(other)).is_ok_and(|text| text.contains(what))
    };
    let has = |other: usize| mentions(other, &network);
    for &other in others {
        wait_until(&format!("site {other} knows {site} before"), || has(other));
    }
    let met: BTreeSet<usize> = others.iter().copied().filter(|other| mentions(*other, &peer)).collect();
    let begin = SystemTime::now();
    // As a person does it, while the store has nobody who leads.
    let [folder, key] = [&sites.control, &sites.key].map(|path| path.display().to_string());
    let words = ["control", "revoke", &name, "--yes", "--dir", &folder, "--key", &key];
    wait_until("the signature is taken", || match sites.run(1, &words) {
        Ok(_) => true,
        Err(why) => why.contains("is revoked already"),
    });
    for &other in others {
        wait_until(&format!("site {other} has heard that {site} is revoked"), || !has(other));
    }
    let since = |time: SystemTime| time.duration_since(begin).unwrap_or_default();
    let written = |other: &usize| {
        let changed = std::fs::metadata(sites.peers(*other)).and_then(|file| file.modified());
        since(changed.expect("when it was written"))
    };
    let taken = |other: &usize| {
        // Events have whole milliseconds.
        let earliest = written(other).saturating_sub(Duration::from_millis(1));
        eventually(&format!("the gateway of {other} has read it"), || {
            let events = sites.events(*other);
            let reloads = events.iter().filter(|event| event["event"] == "reloaded");
            let mut times = reloads.filter_map(|event| event["unix_ms"].as_u64());
            times.find_map(|ms| {
                let time = since(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
                (time >= earliest).then_some(time)
            })
        })
    };
    let all: Vec<(usize, Duration)> = others.iter().map(|other| (*other, taken(other))).collect();
    [
        Latencies::of("heard", others.iter().map(written)),
        Latencies::of("taken by the gateways", all.iter().map(|(_, time)| *time)),
        Latencies::of(
            "its tunnels are gone",
            all.iter().filter(|(one, _)| met.contains(one)).map(|(_, time)| *time),
        ),
    ]
}

impl Latencies {
    fn of(what: &'static str, times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort();
        Latencies { what, times }
    }
}
