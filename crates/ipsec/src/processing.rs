//! Packets through the key engine's associations: the way of each packet of a host that has IPsec.
//!
//! A packet that leaves: [`output_policy`](crate::policy::PolicyDatabase::output_policy), then [`seal`]. A packet that
//! arrives: [`open`] until it says that there is no more, then the transport's
//! [`input_policy`](crate::policy::PolicyDatabase::input_policy).

use std::time::Instant;

use wire::flow;

use crate::association::Protocol;
use crate::drops::DropReason;
use crate::key_engine::{KeyEngine, Name};
use crate::marks::Marks;
use crate::packet_buffer::PacketBuffer;
use crate::policy::Bundle;
use crate::{ah, esp, headers};

/// Security headers of one packet that are opened: transport, AH, tunnel, and the same again at a gateway. An attacker who
/// has no keys does not get one opened; this bounds what one who has some can ask for.
pub const MAX_NESTING: usize = 8;
/// Bytes that [`seal`] may put before a packet.
pub const MAX_HEADROOM: usize = esp::MAX_HEADROOM * 2 + ah::MAX_HEADROOM;
/// Bytes that [`seal`] may put behind a packet.
pub const MAX_TAILROOM: usize = esp::MAX_TAILROOM * 2;

/// A received packet on its way through security headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it has been through.
    pub marks: Marks,
    opened: usize,
}

/// Whether there was a security header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There was, and it is gone. In its place may be another, or a packet to another host, out of a tunnel.
    Opened(Progress),
    /// There is none (any more).
    Plain,
}

/// Protects a packet by the associations that the policy has found. Where there are several and a later one fails, the packet
/// is sealed by the earlier ones, and to be dropped.
///
/// # Errors
/// [`DropReason`]: it is to be dropped, and its socket given [`EIPSEC`](crate::key_engine::EIPSEC).
pub fn seal(
    engine: &mut KeyEngine,
    bundle: &Bundle,
    packet: &mut PacketBuffer<'_>,
    now: Instant,
) -> Result<(), DropReason> {
    for id in bundle.iter() {
        let association = engine.get_mut(id).ok_or(DropReason::NoAssociation)?;
        let sealed = match association.protocol() {
            Protocol::Ah => ah::seal(association, packet, now),
            Protocol::Esp => esp::seal(association, packet, now),
        };
        engine.used(id, now);
        sealed?;
    }
    Ok(())
}

/// Opens the first security header of a packet that arrived for this host; ESP in UDP, too, to `udp_port`.
///
/// # Errors
/// [`DropReason`]: it is to be dropped without an answer, and counted.
pub fn open(
    engine: &mut KeyEngine,
    packet: &mut PacketBuffer<'_>,
    progress: Progress,
    udp_port: Option<u16>,
    now: Instant,
) -> Result<Step, DropReason> {
    let Some(found) = headers::find(packet.packet(), udp_port)? else { return Ok(Step::Plain) };
    if progress.opened == MAX_NESTING {
        return Err(DropReason::Nesting);
    }
    let (_, destination) = flow::addresses(packet.packet()).map_err(|_| DropReason::Malformed)?;
    let name = Name { destination, protocol: found.protocol, spi: found.spi };
    let (id, association) = engine.named_mut(&name).ok_or(DropReason::NoAssociation)?;
    headers::trim(packet).map_err(|_| DropReason::Malformed)?;
    let opened = match found.protocol {
        Protocol::Ah => ah::open_at(association, packet, found, progress.marks, now),
        Protocol::Esp => esp::open_at(association, packet, found, progress.marks, now),
    };
    engine.used(id, now);
    Ok(Step::Opened(Progress { marks: opened?, opened: progress.opened + 1 }))
}
