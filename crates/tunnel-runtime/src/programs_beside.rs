//! How programs are attached by which packets pass the daemon by: one where the TUN device would hand a packet to us, one where
//! packets come in from outside.

use linux::bpf::Assembler;
use linux::bpf::attach::{Attachment, Direction, Filter, attach_to_own_device};
use linux::bpf::{Program, ProgramKind};
use linux::netlink::Link;
use linux::undo::Journal;

/// Bytes of an Ethernet header.
const ETHERNET: u8 = 14;

/// Bytes of the link header that packets have at an interface.
pub(super) fn link_header(interface: &Link) -> u8 {
    if interface.mac.is_some() { ETHERNET } else { 0 }
}

/// Loads and attaches both, by links of the kind tcx if the kernel has them and they are wanted. Needs CAP_BPF.
///
/// # Errors
/// Why this kernel cannot do it.
pub(super) fn attach(
    outgoing: &Assembler,
    tun: u32,
    incoming: &Assembler,
    external: &Link,
    tcx: bool,
    journal: &mut Journal,
) -> linux::Result<[Attachment; 2]> {
    let load = |code| Program::load(ProgramKind::SchedCls, code);
    let (outgoing, incoming) = (load(outgoing)?, load(incoming)?);
    let (egress, ingress) = (Direction::Egress, Direction::Ingress);
    if tcx {
        return Ok([
            attach_to_own_device(&outgoing, tun, egress)?,
            journal.attach(&incoming, external.index, ingress)?,
        ]);
    }
    let filter = Filter::new(external.index, ingress);
    Ok([Attachment::clsact(&outgoing, Filter::new(tun, egress))?, journal.attach_filter(&incoming, filter)?])
}
