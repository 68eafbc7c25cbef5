//! What a script did: counted by its threads, read for the list.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use script::vm::{ScriptError, Verdict};
use tracing::warn;

use super::log::{Log, unix_ms};
use super::protocol::{Fault, Traced, Traces, Verdicts};
use super::traces::Wanted;

/// Errors of one script that are logged, one for each of these times: a script may fail at every packet.
const LOG_EVERY: Duration = Duration::from_millis(200);

/// Lines that errors are counted by, at the most: a script may fail in a line of its own making (`load`).
const LINES: usize = 256;

/// Counters of one script.
#[derive(Debug)]
pub(super) struct Statistics {
    id: u32,
    log: Log,
    verdicts: [AtomicU64; Verdict::ALL.len()],
    errors: AtomicU64,
    sent: AtomicU64,
    samples: AtomicU64,
    sampled_ns: AtomicU64,
    error_lines: Mutex<BTreeMap<u32, u64>>,
    last_error: Mutex<Option<Fault>>,
    logged: Mutex<Option<Instant>>,
    /// The packet that is waited for, see [`Statistics::wants`].
    tracing: AtomicBool,
    trace: Mutex<Trace>,
}

#[derive(Debug, Default)]
struct Trace {
    /// Which one it is.
    number: u64,
    wanted: Option<Wanted>,
    /// How many packets may yet be followed.
    left: u32,
    traced: Vec<Traced>,
    /// Packets that are followed at this moment.
    underway: u32,
}

/// Counts of one batch, added to the script's all at once.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) verdicts: [u64; Verdict::ALL.len()],
    pub(super) samples: u64,
    pub(super) sampled_ns: u64,
}

impl Statistics {
    pub(super) fn new(id: u32, log: Log) -> Self {
        Self {
            id,
            log,
            verdicts: Default::default(),
            errors: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            sampled_ns: AtomicU64::new(0),
            error_lines: Mutex::default(),
            last_error: Mutex::default(),
            logged: Mutex::default(),
            tracing: AtomicBool::new(false),
            trace: Mutex::default(),
        }
    }

    pub(super) fn add(&self, tally: &Tally) {
        for (counter, count) in self.verdicts.iter().zip(tally.verdicts) {
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        }
        self.samples.fetch_add(tally.samples, Relaxed);
        self.sampled_ns.fetch_add(tally.sampled_ns, Relaxed);
    }

    /// The script has failed at a packet, or in deferred work.
    pub(super) fn failed(&self, error: &ScriptError) {
        let errors = self.errors.fetch_add(1, Relaxed) + 1;
        if let Some(line) = line_of(&error.message) {
            let mut lines = self.error_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() < LINES || lines.contains_key(&line) {
                *lines.entry(line).or_default() += 1;
            }
        }
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|time| now.duration_since(time) >= LOG_EVERY) {
            *logged = Some(now);
            self.log.add(self.id, &format!("error {errors}: {}", error.message));
            warn!(
                event = "script_failed",
                script = self.id,
                "script {}: error {errors}: {}",
                self.id,
                error.message
            );
            for frame in error.traceback.lines() {
                self.log.add(self.id, &format!("  {frame}"));
            }
            let traceback = error.traceback.lines().map(str::to_owned).collect();
            let fault = Fault { message: error.message.clone(), traceback, unix_ms: unix_ms() };
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        }
    }

    /// A packet of the script's own went out.
    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// Packets, verdicts, errors, the last error, nanoseconds for a packet, packets sent.
    pub(super) fn read(&self) -> Counts {
        let verdicts = self.verdicts.each_ref().map(|counter| counter.load(Relaxed));
        let count = |verdict: Verdict| {
            Verdict::ALL
                .iter()
                .zip(verdicts)
                .find(|(known, _)| **known == verdict)
                .map_or(0, |(_, count)| count)
        };
        let samples = self.samples.load(Relaxed);
        Counts {
            packets: verdicts.iter().sum(),
            verdicts: Verdicts {
                nf_drop: count(Verdict::Drop),
                nf_accept: count(Verdict::Accept),
                nf_stolen: count(Verdict::Stolen),
                nf_queue: count(Verdict::Queue),
                nf_repeat: count(Verdict::Repeat),
                xt_continue: count(Verdict::Continue),
            },
            errors: self.errors.load(Relaxed),
            error_lines: self.error_lines.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            ns_per_packet: self.sampled_ns.load(Relaxed).checked_div(samples),
            sent: self.sent.load(Relaxed),
            handed_over: 0,
            lost: 0,
        }
    }

    /// Waits for packets, to follow them for the trace of this number.
    pub(super) fn trace(&self, number: u64, wanted: Wanted) {
        let left = wanted.count;
        let trace = Trace { number, wanted: Some(wanted), left, ..Trace::default() };
        *self.trace.lock().unwrap_or_else(PoisonError::into_inner) = trace;
        self.tracing.store(true, Relaxed);
    }

    /// The number of the trace that waits for this packet, of this number in its queue; none if nobody does.
    pub(super) fn wants(&self, packet: &script::packet::Packet, queue: u16, id: [u8; 4]) -> Option<u64> {
        if !self.tracing.load(Relaxed) {
            return None;
        }
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(wanted) = trace.wanted.as_ref().filter(|wanted| !wanted.is_over(now)) else {
            self.tracing.store(false, Relaxed);
            return None;
        };
        let is_after = wanted.is_after(queue, u32::from_be_bytes(id));
        if trace.left == 0 || !is_after || !wanted.rule.holds(packet) {
            return None;
        }
        trace.left -= 1;
        trace.underway += 1;
        self.tracing.store(trace.left > 0, Relaxed);
        Some(trace.number)
    }

    /// A packet that the trace of this number has waited for went its way. Another may have taken the trace's place since.
    pub(super) fn traced(&self, number: u64, traced: Traced) {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        if trace.number == number {
            trace.underway -= 1;
            trace.traced.push(traced);
        }
    }

    /// Takes what was followed.
    pub(super) fn take_traced(&self) -> Traces {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let goes_on = trace.left + trace.underway > 0;
        let goes_on = goes_on && trace.wanted.as_mut().is_some_and(|wanted| !wanted.asked(now));
        Traces { packets: std::mem::take(&mut trace.traced), lost: 0, goes_on }
    }
}

/// The line that an error names: `FILE:LINE: …`.
fn line_of(message: &str) -> Option<u32> {
    message.split(':').skip(1).find_map(|part| part.parse().ok())
}

/// What [`Statistics`] say at a moment.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) verdicts: Verdicts,
    pub(super) errors: u64,
    /// By line, where that is counted.
    pub(super) error_lines: BTreeMap<u32, u64>,
    pub(super) last_error: Option<Fault>,
    pub(super) ns_per_packet: Option<u64>,
    pub(super) sent: u64,
    /// Packets that were given to another tier, and are not among those above.
    pub(super) handed_over: u64,
    /// Records of logs, captures and traces that found the ring full.
    pub(super) lost: u64,
}

impl Counts {
    /// What both tiers say together: packets that this one decided or handed over, and what the user tier made of these.
    pub(super) fn with(self, user: Self) -> Self {
        let own = self.packets + self.handed_over;
        let (one, other) = (self.verdicts, user.verdicts);
        // Each packet takes its time here, and some of them there, too.
        let times = [(self.ns_per_packet, own), (user.ns_per_packet, user.packets)];
        let all: u64 = times.iter().filter_map(|(ns, packets)| Some((*ns)? * packets)).sum();
        Self {
            packets: own,
            verdicts: Verdicts {
                nf_drop: one.nf_drop + other.nf_drop,
                nf_accept: one.nf_accept + other.nf_accept,
                nf_stolen: one.nf_stolen + other.nf_stolen,
                nf_queue: one.nf_queue + other.nf_queue,
                nf_repeat: one.nf_repeat + other.nf_repeat,
                xt_continue: one.xt_continue + other.xt_continue,
            },
            errors: self.errors + user.errors,
            error_lines: user.error_lines,
            last_error: [self.last_error, user.last_error]
                .into_iter()
                .flatten()
                .max_by_key(|fault| fault.unix_ms),
            ns_per_packet: self.ns_per_packet.or(user.ns_per_packet).and_then(|_| all.checked_div(own)),
            sent: user.sent,
            handed_over: self.handed_over,
            lost: self.lost,
        }
    }
}
