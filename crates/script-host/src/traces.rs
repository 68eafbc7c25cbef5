//! Packets that are followed through a script: which ones, and what the kernel tells of them, put together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use script::compile::account;
use script::compile::logging::Said;
use script::matching::Rule;
use script::trace::{Line, Lines};
use script::vm::{Script, Verdict};

use super::protocol::{MOST_TRACED, Traced, TracedLine, Traces};

/// For so long nobody need ask for what is followed; then nobody wants it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest trace.
const LONGEST: Duration = Duration::from_secs(3600);
/// Octets of a followed packet that are shown.
pub(super) const SHOWN: usize = 128;

/// Which packets are to be followed.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) rule: Rule,
    pub(super) count: u32,
    time: Duration,
    until: Instant,
    asked: Instant,
    /// The last packets, by queue, that are not to be followed.
    after: BTreeMap<u16, u32>,
}

impl Wanted {
    pub(super) fn new(rule: Rule, count: u32, time: Duration) -> Self {
        let (now, time) = (Instant::now(), time.min(LONGEST));
        Self {
            rule,
            count: count.clamp(1, MOST_TRACED),
            time,
            until: now + time,
            asked: now,
            after: BTreeMap::new(),
        }
    }

    /// The same from now on: who asks waits until the program with points is there, which may take a while.
    pub(super) fn begun(&self) -> Self {
        let now = Instant::now();
        Self { until: now + self.time, asked: now, ..self.clone() }
    }

    /// Packets that were in their queues by now are not wanted: the program in the kernel that handed them over followed
    /// none, and only half of their way could be told.
    pub(super) fn after(self, last_ids: BTreeMap<u16, u32>) -> Self {
        Self { after: last_ids, ..self }
    }

    /// Whether a packet that waited in this queue under this number came late enough. Numbers begin anew after the last.
    pub(super) fn is_after(&self, queue: u16, id: u32) -> bool {
        self.after.get(&queue).is_none_or(|last| id.wrapping_sub(*last).cast_signed() > 0)
    }

    /// Whether nobody waits for packets any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until || now.saturating_duration_since(self.asked) >= PATIENCE
    }

    /// Somebody has asked. Whether it is over.
    pub(super) fn asked(&mut self, now: Instant) -> bool {
        let is_over = self.is_over(now);
        self.asked = now;
        is_over
    }
}

/// The traces that were asked for last, by their scripts. Each has a number, so that nobody takes another's packets.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u64,
    of: BTreeMap<u32, u64>,
}

impl Numbers {
    /// The number of a new trace of a script, which takes the place of one before it.
    pub(super) fn begin(&mut self, script: u32) -> u64 {
        self.last += 1;
        self.of.insert(script, self.last);
        self.last
    }

    /// Forgets a script that is none any more.
    pub(super) fn forget(&mut self, script: u32) {
        self.of.remove(&script);
    }

    /// Whether no other trace of the script has begun since.
    pub(super) fn is_last(&self, script: u32, trace: u64) -> bool {
        self.of.get(&script) == Some(&trace)
    }
}

/// What a program in the kernel tells.
#[derive(Debug)]
pub(super) struct Trace {
    wanted: Wanted,
    path: String,
    text: Vec<String>,
    /// The verdict of a packet that it fails at.
    failure: Verdict,
    /// Records that were lost before.
    lost: u64,
    /// Packets that have not ended, by their numbers.
    open: BTreeMap<i64, (Traced, Lines)>,
    ended: u32,
    done: Vec<Traced>,
}

impl Trace {
    /// Of a script, before which so many records were lost.
    pub(super) fn new(wanted: &Wanted, script: &Script, failure: Verdict, lost: u64) -> Self {
        Self {
            wanted: wanted.begun(),
            path: script.path.clone(),
            text: script.source.lines().map(str::to_owned).collect(),
            failure,
            lost,
            open: BTreeMap::new(),
            ended: 0,
            done: Vec::new(),
        }
    }

    /// Takes what the program says. Of a packet whose beginning was lost nothing is told.
    pub(super) fn add(&mut self, said: Said) {
        match said {
            Said::Log(_) => {}
            Said::Begin { .. } if self.open.len() + self.ended as usize >= self.wanted.count as usize => {}
            Said::Begin { packet, length, octets } => {
                let traced = Traced {
                    tier: "kernel".to_owned(),
                    packet: digits(&octets),
                    length: usize::try_from(length).unwrap_or(0),
                    ..Traced::default()
                };
                self.open.insert(packet, (traced, Lines::default()));
            }
            Said::Point { packet, line, told } => {
                if let Some((_, lines)) = self.open.get_mut(&packet) {
                    lines.add(&self.path, line as usize, &told);
                }
            }
            Said::End { packet, place, changed, fault } => {
                self.ended += 1;
                let Some((traced, lines)) = self.open.remove(&packet) else { return };
                let fault = account::fault(fault).filter(|_| place == account::ERRORS);
                let verdict = match place {
                    account::ERRORS => Some(self.failure),
                    place => Verdict::ALL.get(place).copied(),
                };
                let text = |line: &Line| self.text.get(line.number.wrapping_sub(1)).cloned();
                self.done.push(Traced {
                    lines: lines_of(lines, |line| text(line).unwrap_or_default()),
                    verdict: verdict.map(|verdict| verdict.name().to_owned()),
                    changed: changed && fault.is_none(),
                    error: fault.map(|(line, failure)| format!("{}:{line}: {failure}", self.path)),
                    ..traced
                });
            }
        }
    }

    /// Whether all were followed, or nobody waits any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.ended >= self.wanted.count || self.wanted.is_over(now)
    }

    /// What was told since it was asked last; so many records are lost by now.
    pub(super) fn take(&mut self, lost: u64, goes_on: bool) -> Traces {
        self.wanted.asked(Instant::now());
        Traces { packets: std::mem::take(&mut self.done), lost: lost.saturating_sub(self.lost), goes_on }
    }
}

/// Lines with their texts.
pub(super) fn lines_of(lines: Lines, mut text: impl FnMut(&Line) -> String) -> Vec<TracedLine> {
    let line = |line: Line| {
        let text = text(&line);
        TracedLine { file: line.path, line: line.number, text, told: line.told }
    };
    lines.0.into_iter().map(line).collect()
}

/// The first octets of a packet.
pub(super) fn digits(packet: &[u8]) -> String {
    packet.iter().take(SHOWN).map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(count: u32) -> Trace {
        let wanted = Wanted::new(Rule::default(), count, Duration::from_secs(1000));
        let script = Script::new("a.lua", "one\ntwo\n");
        Trace::new(&wanted, &script, Verdict::Drop, 7)
    }

    fn begin(packet: i64) -> Said {
        Said::Begin { packet, length: 40, octets: vec![0x60; 200] }
    }

    const fn end(packet: i64, place: usize, fault: u64) -> Said {
        Said::End { packet, place, changed: true, fault }
    }

    #[test]
    fn packets_of_several_processors_are_kept_apart() {
        let mut trace = trace(3);
        let point = |packet, line, told: &str| Said::Point { packet, line, told: told.to_owned() };
        for said in [
            begin(3),
            begin(2),
            point(3, 1, "a = 1"),
            point(2, 2, ""),
            point(3, 1, "b = 2"),
            end(2, account::PUNTED, 0),
            point(9, 1, "of a packet whose beginning was lost"),
            end(3, 1, 0),
            end(9, 1, 0),
        ] {
            assert!(!trace.is_over(Instant::now()));
            trace.add(said);
        }
        assert!(trace.is_over(Instant::now()));
        let Traces { packets, lost, .. } = trace.take(10, false);
        assert_eq!((packets.len(), lost), (2, 3));
        assert_eq!((&packets[0].verdict, packets[0].lines[0].line, packets[0].length), (&None, 2, 40));
        assert_eq!(packets[1].verdict.as_deref(), Some(Verdict::ALL[1].name()));
        let line = &packets[1].lines[..];
        assert_eq!((line.len(), &*line[0].text, &*line[0].told), (1, "one", "a = 1, b = 2"));
        assert_eq!(packets[1].packet.len(), 2 * SHOWN);
        assert_eq!(trace.take(10, false).packets, []);
    }

    #[test]
    fn an_error_has_its_line_and_the_verdict_for_it() {
        let mut trace = trace(1);
        trace.add(begin(1));
        trace.add(end(1, account::ERRORS, 2 << 8 | 1));
        let failed = &trace.take(7, true).packets[0];
        assert_eq!((failed.verdict.as_deref(), failed.changed), (Some("NF_DROP"), false));
        assert!(failed.error.as_ref().is_some_and(|error| error.starts_with("a.lua:2: ")), "{failed:?}");
    }

    #[test]
    fn a_second_trace_of_a_script_takes_the_place_of_the_first() {
        let mut numbers = Numbers::default();
        let [first, other, second] = [7, 8, 7].map(|script| numbers.begin(script));
        let last = [(7, first), (7, second), (7, other), (8, other), (9, other)];
        assert_eq!(
            last.map(|(script, trace)| numbers.is_last(script, trace)),
            [false, true, false, true, false]
        );
    }

    #[test]
    fn packets_that_waited_before_are_not_wanted() {
        let wanted = Wanted::new(Rule::default(), 1, Duration::MAX);
        assert!(wanted.is_after(5, 1));
        let wanted = wanted.after(BTreeMap::from([(5, 7), (6, u32::MAX)]));
        assert_eq!([6, 7, 8, u32::MAX].map(|id| wanted.is_after(5, id)), [false, false, true, false]);
        assert_eq!([u32::MAX, 0].map(|id| wanted.is_after(6, id)), [false, true], "numbers begin anew");
    }

    #[test]
    fn what_nobody_asks_for_ends() {
        let mut wanted = Wanted::new(Rule::default(), 0, Duration::MAX);
        assert_eq!(wanted.count, 1);
        let now = Instant::now();
        assert!(!wanted.is_over(now) && wanted.is_over(now + PATIENCE));
        assert!(!wanted.asked(now + PATIENCE / 2) && !wanted.is_over(now + PATIENCE));
        assert!(wanted.is_over(now + LONGEST + PATIENCE));
        // It took long to begin.
        wanted.asked -= 2 * PATIENCE;
        assert!(wanted.is_over(Instant::now()) && !wanted.begun().is_over(Instant::now()));
    }
}
