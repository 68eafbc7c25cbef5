//! `script list --measure`: how often scripts run and how long that takes, over a while.
//!
//! In the kernel the kernel itself counts, for as long as this process keeps it counting: the script host may not ask for
//! that, whoever measures may.

use std::time::{Duration, Instant};

use linux::bpf::Statistics;
use script_host::protocol::{Scripts, Status};
use serde::Serialize;

use crate::failure::Failure;

/// What was seen of one script. The field names are a contract.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Measured {
    /// For so long.
    pub(super) seconds: f64,
    /// Packets that it was given.
    pub(super) packets_per_second: f64,
    /// Of its program in the kernel, where it has one; without the packets of which it sees only that they are not its own.
    pub(super) kernel: Option<InKernel>,
}

/// What the kernel has counted of one program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct InKernel {
    pub(super) runs_per_second: f64,
    /// Nanoseconds on average; none where it did not run.
    pub(super) ns_per_run: Option<f64>,
}

/// Looks for a while; the list at the end of it, and what was seen of each script that was there all the while.
pub(super) fn measure(
    time: Duration,
    ask: impl Fn() -> Result<Scripts, Failure>,
) -> Result<(Scripts, Vec<Option<Measured>>), Failure> {
    let any_in_kernel = ask()?.scripts.iter().any(|script| script.kernel.is_some());
    let counting = any_in_kernel.then(Statistics::enable).transpose().map_err(|error| {
        Failure::Message(format!("--measure has the kernel count the runs of programs: {error}"))
    })?;
    let (before, began) = (ask()?, Instant::now());
    std::thread::sleep(time);
    let (after, seconds) = (ask()?, began.elapsed().as_secs_f64());
    drop(counting);
    let of = |now: &Status| {
        let then = before.scripts.iter().find(|script| script.id == now.id)?;
        Some(Measured::between(then, now, seconds))
    };
    let measured = after.scripts.iter().map(of).collect();
    Ok((after, measured))
}

impl Measured {
    fn between(then: &Status, now: &Status, seconds: f64) -> Self {
        let per_second = |count: u64| count as f64 / seconds;
        let kernel = now.kernel.map(|total| {
            // Another program is in its place after a reload.
            let since = then.kernel.filter(|earlier| earlier.runs <= total.runs).unwrap_or_default();
            let counted = total.since(since);
            InKernel {
                runs_per_second: per_second(counted.runs),
                ns_per_run: (counted.runs > 0).then(|| counted.nanoseconds as f64 / counted.runs as f64),
            }
        });
        let packets = now.packets.saturating_sub(then.packets);
        Self { seconds, packets_per_second: per_second(packets), kernel }
    }

    /// In one line.
    pub(super) fn text(&self) -> String {
        let packets = format!("{:.0} packets/s", self.packets_per_second);
        match self.kernel {
            None => packets,
            Some(InKernel { ns_per_run: None, .. }) => format!("{packets}, no run in the kernel"),
            Some(InKernel { runs_per_second, ns_per_run: Some(ns) }) => {
                let share = runs_per_second * ns / 1e9 * 100.0;
                format!(
                    "{packets}, {runs_per_second:.0} runs/s in the kernel of {ns:.0} ns ({share:.1} % of a processor)"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::bpf::RunTime;

    fn status(packets: u64, kernel: Option<(u64, u64)>) -> Status {
        let kernel = kernel.map(|(runs, nanoseconds)| RunTime { runs, nanoseconds });
        let status = serde_json::json!({
            "id": 1, "file": "/a.lua", "hook": "ingress", "function": "f", "tier": "kernel", "failure": "drop",
            "fail_open": false, "threads": 0, "packets": packets, "verdicts": {
                "NF_DROP": 0, "NF_ACCEPT": 0, "NF_STOLEN": 0, "NF_QUEUE": 0, "NF_REPEAT": 0, "XT_CONTINUE": 0
            }, "errors": 0, "last_error": null, "ns_per_packet": null, "sent": 0, "handed_over": 0, "xdp_mode": null,
            "kernel": kernel,
        });
        serde_json::from_value(status).expect("a status")
    }

    fn text(then: (u64, Option<(u64, u64)>), now: (u64, Option<(u64, u64)>)) -> String {
        Measured::between(&status(then.0, then.1), &status(now.0, now.1), 2.0).text()
    }

    #[test]
    fn what_was_counted_meanwhile_is_told() {
        let one = text((100, Some((90, 9_000))), (2100, Some((2090, 209_000))));
        assert_eq!(one, "1000 packets/s, 1000 runs/s in the kernel of 100 ns (0.0 % of a processor)");
        assert_eq!(text((5, None), (7, None)), "1 packets/s");
        assert_eq!(text((5, Some((3, 30))), (5, Some((3, 30)))), "0 packets/s, no run in the kernel");
        // Loaded anew meanwhile.
        let anew = text((100, Some((90, 9_000))), (300, Some((20, 400_000_000))));
        assert_eq!(anew, "100 packets/s, 10 runs/s in the kernel of 20000000 ns (20.0 % of a processor)");
    }
}
