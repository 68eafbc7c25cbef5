//! What a demonstration has measured.

use lab::echoes::PingReport;
use lab::observer::Observation;
use lab::topology::Topology;
use lab::traffic::{TcpReport, UdpReport};
use serde::Serialize;

use crate::live::Moment;

/// All that was measured; also written beside the report as `data.json`.
#[derive(Debug, Serialize)]
pub struct DemoOutcome {
    /// How the gateways were connected.
    pub topology: Topology,
    /// Rotation interval; nothing in the baseline.
    pub rotation: Option<String>,
    /// Seconds of traffic.
    pub seconds: u32,
    /// The program's version, from its `show`.
    pub version: String,
    /// The UDP stream from A to B.
    pub udp: UdpReport,
    /// The TCP stream from B to A.
    pub tcp: TcpReport,
    /// Echoes from A to B and back.
    pub ping: PingReport,
    /// Second by second.
    pub moments: Vec<Moment>,
    /// What the router saw.
    pub observation: Observation,
    /// Packets at the router that contained the stream's plaintext.
    pub plaintext_packets: usize,
    /// The judgement, point by point.
    pub findings: Vec<Finding>,
}

impl DemoOutcome {
    /// Whether all was well.
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.good)
    }

    /// Lanes that were born during the traffic.
    pub fn rotations(&self) -> u64 {
        let counts = self.moments.iter().map(|moment| moment.rotations);
        counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
    }
}

/// One point of the judgement.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// As it should be.
    pub good: bool,
    /// What was found.
    pub text: String,
}
