//! What a shape costs those who are inside, as the gateways say at the end of a run.

use lab::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Of all gateways of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Cost {
    /// How long packets wait for a slot at a gateway, in milliseconds: the median and the 99th percentile of the last minute.
    /// Of gateways without a shape, or without traffic, there are none.
    delays_ms: Vec<[f64; 2]>,
    /// Packets that were sent, and that were given up.
    sent: u64,
    given_up: u64,
}

impl Cost {
    /// Adds what one gateway says (`sidestep show --json`).
    ///
    /// # Errors
    /// When that is something else.
    pub(super) fn add(&mut self, status: &[u8]) -> Result<(), Error> {
        let status: Value =
            serde_json::from_slice(status).map_err(|error| Error::output("sidestep show", error))?;
        let peer = &status["peers"][0];
        self.sent += peer["tx_packets"].as_u64().unwrap_or_default();
        self.given_up += peer["drops"]["shape_full"].as_u64().unwrap_or_default();
        let delay = |name: &str| peer["shape"][name].as_f64();
        self.delays_ms.extend(delay("delay_median_ms").zip(delay("delay_p99_ms")).map(|(a, b)| [a, b]));
        Ok(())
    }

    /// Of the gateways in the middle, by either measure, in milliseconds.
    pub(super) fn delay_ms(&self) -> Option<[f64; 2]> {
        if self.delays_ms.is_empty() {
            return None;
        }
        Some([0, 1].map(|which| {
            let mut delays: Vec<f64> = self.delays_ms.iter().map(|delay| delay[which]).collect();
            delays.sort_by(f64::total_cmp);
            delays[delays.len() / 2]
        }))
    }

    /// The part of all packets that was given up.
    pub(super) fn given_up(&self) -> f64 {
        self.given_up as f64 / (self.sent + self.given_up).max(1) as f64
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lost = 100.0 * self.given_up();
        match self.delay_ms() {
            None => write!(f, "No packet has waited for a slot."),
            Some([median, p99]) => write!(
                f,
                "At the gateway in the middle half of the packets wait for up to {median:.0} ms, 99 of 100 for up to {p99:.0} \
                 ms; {lost:.1} % of all packets are given up."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_added() {
        let mut cost = Cost::default();
        for (sent, delay) in [(10, 4.0), (80, 8.0), (0, 100.0)] {
            let status = serde_json::json!({"peers": [{"tx_packets": sent, "drops": {"shape_full": sent / 10},
                "shape": {"delay_median_ms": delay, "delay_p99_ms": 2.0 * delay}}]});
            cost.add(status.to_string().as_bytes()).unwrap();
        }
        cost.add(br#"{"peers": [{"tx_packets": 0, "drops": {}, "shape": {"delay_median_ms": null}}]}"#)
            .unwrap();
        assert_eq!((cost.delay_ms(), cost.given_up()), (Some([8.0, 16.0]), 9.0 / 99.0));
        assert!(cost.add(b"not JSON").is_err());
    }
}
