//! What router and programs share of a transition tunnel.

use std::net::IpAddr;

use linux::bpf::{Map, Program, ProgramKind};
use programs::{nat64, transition};
use router::transition::{Endpoint, Kind, Refusal};

use crate::nat64::refused;

/// This end of the tunnel, for the programs to know, and what they have counted.
#[derive(Debug)]
pub(super) enum Tables {
    Tunnel(transition::Tables<Map>),
    Clat(nat64::Tables<Map>),
}

impl Tables {
    pub(super) fn new(kind: &Kind) -> linux::Result<Self> {
        match kind {
            Kind::Clat { .. } => nat64::Tables::of_clat(Map::of).map(Self::Clat),
            _ => transition::Tables::create(Map::of).map(Self::Tunnel),
        }
    }

    /// The tunnel has this end now, and packets to its only other end are given to that neighbor.
    pub(super) fn set_end(&self, end: Option<&Endpoint>, neighbor: Option<IpAddr>) -> linux::Result<()> {
        match self {
            Tables::Tunnel(tables) => tables.end.set(&[0; 4], &transition::end_value(end, neighbor)),
            Tables::Clat(tables) => {
                let both = end.and_then(|end| match (end.local, end.kind.plat()) {
                    (IpAddr::V6(own), Some(plat)) => Some((own, plat)),
                    _ => None,
                });
                tables.hosts.set(&[0; 4], &nat64::clat_end(both, neighbor))
            }
        }
    }

    /// What has crossed, and what has not. `left`: what the programs have left to this process.
    pub(super) fn traffic(&self, left: &transition::Counts) -> Traffic {
        match self {
            Tables::Tunnel(tables) => {
                let counts = transition::counts(|number| sum(&tables.counters, number));
                let refused = Refusal::ALL.into_iter().map(|refusal| {
                    let number = refusal as usize;
                    (refusal.name(), counts.refused[number] + left.refused[number])
                });
                Traffic {
                    rx: (counts.rx_packets + left.rx_packets, counts.rx_bytes + left.rx_bytes),
                    tx: (counts.tx_packets + left.tx_packets, counts.tx_bytes + left.tx_bytes),
                    refused: refused.collect(),
                }
            }
            // What was left has come back, and is counted with the rest.
            Tables::Clat(tables) => {
                let counts = nat64::counts(|number| sum(&tables.counters, number));
                Traffic {
                    rx: (counts.to_ipv4_packets, counts.to_ipv4_bytes),
                    tx: (counts.to_ipv6_packets, counts.to_ipv6_bytes),
                    refused: refused(&counts).collect(),
                }
            }
        }
    }
}

fn sum(counters: &Map, number: u32) -> Vec<u64> {
    counters.sum(&number.to_ne_bytes()).unwrap_or_default()
}

/// What has crossed a tunnel, and what has not.
#[derive(Clone, Debug)]
pub(in super::super) struct Traffic {
    pub(in super::super) rx: (u64, u64),
    pub(in super::super) tx: (u64, u64),
    pub(in super::super) refused: Vec<(&'static str, u64)>,
}

/// Whether the kernel changes a packet's protocol when its outer header goes (Linux 6.3): asked of a program.
pub(super) fn kernel_decapsulates() -> linux::Result<bool> {
    let (code, frame) = transition::decapsulates();
    Ok(Program::load(ProgramKind::SchedCls, &code)?.test_run(&frame)?.0 == 0)
}
