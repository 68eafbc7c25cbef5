//! Follows packets through scripts: in the kernel by a program with points that is there for as long as that lasts, in Lua
//! by second forms of the functions.

use std::time::{Duration, Instant};

use script::matching::Rule;
use tracing::warn;

use super::Host;
use super::error::RequestError;
use super::in_kernel::InKernel;
use super::protocol::Traces;
use super::traces::Wanted;

/// How often it is looked whether a trace is over.
const LOOK: Duration = Duration::from_millis(200);

impl Host {
    /// Follows packets through a script, in each tier in which it runs. The number of the trace; one before it ends.
    pub(super) fn trace(
        &mut self,
        id: u32,
        rule: &str,
        count: u32,
        time: Duration,
    ) -> Result<u64, RequestError> {
        let wanted = Wanted::new(rule_of_trace(rule)?, count, time);
        let at = self.place(id)?;
        let log = self.next_log();
        let mut maps = self.maps_of(&self.scripts[at]);
        let script = &mut self.scripts[at];
        if let Some(in_kernel) = script.runs.kernel_mut() {
            // What it adds to the maps is nothing: it is the same text.
            in_kernel
                .trace(&script.attachment, &mut maps, &self.common.links, log?, &wanted)
                .map_err(|error| RequestError::NotTraced(Box::new(error)))?;
        }
        let number = self.traces.begin(id);
        if let Some(threads) = script.runs.user() {
            let mut wanted = wanted.begun();
            if script.runs.kernel().is_some() {
                match linux::queue::last_ids() {
                    Ok(last) => wanted = wanted.after(last),
                    Err(error) => warn!("script {id}: half of a packet's way may be told: {error}"),
                }
            }
            threads.statistics.trace(number, wanted);
        }
        self.point_mirrors();
        Ok(number)
    }

    /// What a trace has followed since it was asked last; nothing once another has taken its place.
    pub(super) fn take_traced(&mut self, id: u32, trace: u64) -> Result<Traces, RequestError> {
        let at = self.place(id)?;
        if !self.traces.is_last(id, trace) {
            return Ok(Traces::default());
        }
        let in_threads = self.scripts[at].runs.user().map(|threads| threads.statistics.take_traced());
        // What the kernel said of a packet before it handed it over is there by now, but perhaps not read.
        self.read_log();
        let in_kernel = self.scripts[at].runs.kernel_mut().map(InKernel::take_traced);
        let mut traces = Traces::default();
        for more in in_kernel.into_iter().chain(in_threads) {
            traces.packets.extend(more.packets);
            traces.lost += more.lost;
            traces.goes_on |= more.goes_on;
        }
        Ok(traces)
    }

    /// Where a script is among the others.
    fn place(&self, id: u32) -> Result<usize, RequestError> {
        self.scripts.iter().position(|script| script.id == id).ok_or(RequestError::NoScript(id))
    }

    /// After which time it has to be looked whether a trace in the kernel is over.
    pub(super) fn look_at_traces(&self) -> Option<Duration> {
        let mut in_kernel = self.scripts.iter().filter_map(|script| script.runs.kernel());
        in_kernel.any(InKernel::is_traced).then_some(LOOK)
    }

    /// Has programs without points come back where a trace is over.
    pub(super) fn end_traces(&mut self) {
        let now = Instant::now();
        let mut any = false;
        for script in &mut self.scripts {
            let Some(in_kernel) = script.runs.kernel_mut().filter(|one| one.is_trace_over(now)) else {
                continue;
            };
            any = true;
            if let Err(error) = in_kernel.end_trace() {
                warn!(
                    "script {}: it keeps the points of its trace, which are never told: {error}",
                    script.id
                );
            }
        }
        if any {
            self.point_mirrors();
        }
    }
}

/// Which packets are to be followed. By which interface they come says where the script is.
fn rule_of_trace(rule: &str) -> Result<Rule, RequestError> {
    let rule = Rule::parse(rule)?;
    match rule.iif.is_some() || rule.oif.is_some() {
        true => Err(RequestError::TraceOfInterface),
        false => Ok(rule),
    }
}
