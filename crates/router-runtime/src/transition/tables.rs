//! What router and programs share of a transition tunnel.

use std::net::IpAddr;

use linux::bpf::{Map, Program, ProgramKind};
use programs::transition::{self, Counts};
use router::transition::Endpoint;

/// This end of the tunnel, for the programs to know, and what they have counted.
#[derive(Debug)]
pub(super) struct Tables(pub(super) transition::Tables<Map>);

impl Tables {
    pub(super) fn new() -> linux::Result<Self> {
        transition::Tables::create(Map::of).map(Self)
    }

    /// The tunnel has this end now, and packets to its only other end are given to that neighbor.
    pub(super) fn set_end(&self, end: Option<&Endpoint>, neighbor: Option<IpAddr>) -> linux::Result<()> {
        self.0.end.set(&[0; 4], &transition::end_value(end, neighbor))
    }

    pub(super) fn counts(&self) -> Counts {
        transition::counts(|number| self.0.counters.sum(&number.to_ne_bytes()).unwrap_or_default())
    }
}

/// Whether the kernel changes a packet's protocol when its outer header goes (Linux 6.3): asked of a program.
pub(super) fn kernel_decapsulates() -> linux::Result<bool> {
    let (code, frame) = transition::decapsulates();
    Ok(Program::load(ProgramKind::SchedCls, &code)?.test_run(&frame)?.0 == 0)
}
