//! Which echo requests are answered, as the kernel counts them.
//!
//! `ping` ends when its interval has passed after its last request, or twice its longest round trip. On a busy machine
//! answers come later than that, and it calls them lost; the kernel has counted them.

use std::time::{Duration, Instant};

use crate::traffic::{PingReport, ping_report};

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

    /// How many requests sent since are unanswered, after some patience; `read` gives what is in [`FILES`] now.
    pub fn unanswered(self, mut read: impl FnMut() -> String) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Self::parse(&read());
            let requests = now.requests.saturating_sub(self.requests);
            let missing = requests.saturating_sub(now.answers.saturating_sub(self.answers));
            if missing == 0 || Instant::now() >= deadline {
                return missing;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Whether all requests were answered that `ping` has reported on with this text; `read` as above.
    pub fn all_answered(self, text: &str, read: impl FnMut() -> String) -> bool {
        let report = ping_report(text).map(|report| self.complete(report, read));
        report.is_some_and(|report| report.sent > 0 && report.received == report.sent)
    }

    /// A report, made when `ping` ended, with the answers that came later. Where there are duplicates the counters tell
    /// nothing of single requests.
    pub fn complete(self, mut report: PingReport, read: impl FnMut() -> String) -> PingReport {
        if (1..report.sent).contains(&report.received) && report.duplicates == 0 {
            report.received = report.received.max(report.sent.saturating_sub(self.unanswered(read)));
        }
        report
    }
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
        let doubled = PingReport { sent: 20, received: 18, duplicates: 2, ..PingReport::default() };
        assert_eq!(before.complete(doubled.clone(), || counters(21, 21)), doubled);
    }
}
