//! What `ping` reports, and which echo requests are answered, as the kernel counts them.
//!
//! `ping` ends when its interval has passed after its last request, or twice its longest round trip. On a busy machine
//! answers come later than that, and it calls them lost; the kernel has counted them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long an answer may take. As long as `ping` waits where none has come.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Where a network namespace has the counters.
pub const FILES: [&str; 2] = ["/proc/net/snmp6", "/proc/net/snmp"];

/// Echo requests that a network namespace has sent, and answers that came, of both IP versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echoes {
    requests: u64,
    answers: u64,
}

impl Echoes {
    /// Reads what is in [`FILES`].
    pub fn parse(text: &str) -> Self {
        let mut echoes = Self::default();
        let mut add = |name: &str, value: u64| match name {
            "Icmp6OutEchos" | "OutEchos" => echoes.requests += value,
            "Icmp6InEchoReplies" | "InEchoReps" => echoes.answers += value,
            _ => {}
        };
        let mut names: Option<Vec<&str>> = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (words.as_slice(), names.take()) {
                // IPv4: a line of names, then one of values.
                (["Icmp:", values @ ..], Some(names)) => {
                    for (name, value) in names.iter().zip(values) {
                        add(name, value.parse().unwrap_or(0));
                    }
                }
                (["Icmp:", first @ ..], None) => names = Some(first.to_vec()),
                ([name, value], _) => add(name, value.parse().unwrap_or(0)),
                _ => {}
            }
        }
        echoes
    }

    /// How many requests since are unanswered, after some patience: at least so many were sent, and `read` gives what is
    /// in [`FILES`] now. Where that cannot be read, none counts as answered.
    fn unanswered(self, sent: u64, mut read: impl FnMut() -> String) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Self::parse(&read());
            let requests = now.requests.saturating_sub(self.requests).max(sent);
            let missing = requests.saturating_sub(now.answers.saturating_sub(self.answers));
            if missing == 0 || Instant::now() >= deadline {
                return missing;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Whether all requests were answered that `ping` has reported on with this text; `read` gives what is in [`FILES`]
    /// now.
    pub fn all_answered(self, text: &str, read: impl FnMut() -> String) -> bool {
        let report = ping_report(text).map(|report| self.complete(report, read));
        report.is_some_and(|report| report.sent > 0 && report.received == report.sent)
    }

    /// A report, made when `ping` ended, with the answers that came later. Where there are duplicates the counters tell
    /// nothing of single requests.
    pub fn complete(self, mut report: PingReport, read: impl FnMut() -> String) -> PingReport {
        if (1..report.sent).contains(&report.received) && report.duplicates == 0 {
            report.received =
                report.received.max(report.sent.saturating_sub(self.unanswered(report.sent, read)));
        }
        report
    }
}

/// What ping saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Replies received.
    pub received: u64,
    /// Replies received again.
    pub duplicates: u64,
    /// ICMP errors received.
    pub errors: u64,
    /// Round-trip time in milliseconds, fastest.
    pub min_ms: f64,
    /// Average.
    pub avg_ms: f64,
    /// Slowest.
    pub max_ms: f64,
    /// Standard deviation.
    #[serde(default)]
    pub mdev_ms: f64,
}

/// Reads ping's summary: `5 packets transmitted, 4 received, +1 duplicates, 20% packet loss, time 4ms` and
/// `rtt min/avg/max/mdev = 0.1/0.2/0.3/0.05 ms`.
pub fn ping_report(text: &str) -> Option<PingReport> {
    let counts = text.lines().find(|line| line.contains("packets transmitted"))?;
    let number_before = |word: &str| {
        let part = counts.split(',').find(|part| part.contains(word))?;
        part.trim().trim_start_matches('+').split(' ').next()?.parse::<u64>().ok()
    };
    let mut times = [0.0; 4];
    if let Some(line) = text.lines().find(|line| line.starts_with("rtt")) {
        let values = line.split(" = ").nth(1)?.split(['/', ' ']);
        for (time, value) in times.iter_mut().zip(values) {
            *time = value.parse().ok()?;
        }
    }
    Some(PingReport {
        sent: number_before("transmitted")?,
        received: number_before("received")?,
        duplicates: number_before("duplicates").unwrap_or(0),
        errors: number_before("errors").unwrap_or(0),
        min_ms: times[0],
        avg_ms: times[1],
        max_ms: times[2],
        mdev_ms: times[3],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(requests: u64, answers: u64) -> String {
        format!(
            "Ip6InReceives\t27\nIcmp6InEchoReplies \t{answers}\nIcmp6OutEchos\t{requests}\n\
             Ip: Forwarding DefaultTTL\nIp: 2 64\nIcmp: InMsgs InEchoReps OutEchos\nIcmp: 9 3 4\nIcmpMsg: InType3\nIcmpMsg: 7\n"
        )
    }

    #[test]
    fn both_ip_versions_are_counted() {
        assert_eq!(Echoes::parse(&counters(20, 18)), Echoes { requests: 24, answers: 21 });
    }

    #[test]
    fn answers_that_come_late_are_no_losses() {
        let before = Echoes::parse(&counters(1, 1));
        let report = PingReport { sent: 20, received: 18, ..PingReport::default() };
        let mut later = 18..;
        let completed = before.complete(report, || counters(21, later.next().expect("more")));
        assert_eq!((completed.sent, completed.received), (20, 20));
    }

    #[test]
    fn losses_stay_losses() {
        let before = Echoes::parse(&counters(1, 1));
        let report = PingReport { sent: 20, received: 17, ..PingReport::default() };
        assert_eq!(before.complete(report, || counters(21, 19)).received, 18);
        let lost = PingReport { sent: 20, received: 17, ..PingReport::default() };
        assert_eq!(before.complete(lost.clone(), String::new), lost, "counters that cannot be read");
        let doubled = PingReport { sent: 20, received: 18, duplicates: 2, ..PingReport::default() };
        assert_eq!(before.complete(doubled.clone(), || counters(21, 21)), doubled);
    }

    #[test]
    fn ping_summaries_are_read() {
        let text = "PING ...\n\n--- x ping statistics ---\n\
            5 packets transmitted, 4 received, +1 duplicates, +2 errors, 20% packet loss, time 4005ms\n\
            rtt min/avg/max/mdev = 0.030/0.041/0.052/0.009 ms, ipg/ewma 0.1/0.2 ms\n";
        let report = ping_report(text).expect("a summary");
        assert_eq!((report.sent, report.received, report.duplicates, report.errors), (5, 4, 1, 2));
        assert_eq!(
            (report.min_ms, report.avg_ms, report.max_ms, report.mdev_ms),
            (0.030, 0.041, 0.052, 0.009)
        );
        let silent =
            ping_report("3 packets transmitted, 0 received, 100% packet loss, time 1ms").expect("a summary");
        assert_eq!((silent.sent, silent.received), (3, 0));
        assert_eq!(ping_report("ping: unknown host"), None);
    }
}
