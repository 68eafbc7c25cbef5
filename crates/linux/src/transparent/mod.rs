//! A gateway between hosts and their router that neither of them sees: frames cross over from one interface to the
//! other in the kernel, unchanged, but for what belongs to the tunnel.
//!
//! There is no bridge. A program at each interface (tcx, or the classifier of clsact) looks at the frames that come in
//! and sends them on: out of the other interface, into the tunnel's device, to this host, or nowhere. What it decides by
//! are the [`Tables`], which the daemon keeps. What the daemon deals with itself (neighbor and router discovery) it gets
//! by packet sockets, which see frames before the programs do.
//!
//! Invariants:
//! - Nothing crosses over without the programs, which go with the daemon: it fails closed.
//! - No frame of a protected host leaves by the outer interface unless [`Settings::pass_others`].
//! - No frame from or to a hopping address leaves by the inner interface.

mod tables;

pub use programs::transparent::Settings;
pub use tables::{HoppingEndpoint, Remote, Tables};

use programs::transparent::{inside, outside, tunnel};

use crate::bpf::attach::{Attachment, Direction};
use crate::bpf::{Program, ProgramKind};
use crate::error::Result;
use crate::undo::Journal;

/// The programs that forward frames between the two interfaces, as long as this lives.
#[derive(Debug)]
pub struct FramePrograms {
    _attached: [Attachment; 2],
}

impl FramePrograms {
    /// Attaches them, so that frames cross over. The tables should be filled before.
    pub fn open(settings: &Settings, tables: &Tables, journal: &mut Journal) -> Result<Self> {
        let load = |code| Program::load(ProgramKind::SchedCls, &code);
        let (inside, outside) = (load(inside(settings, &tables.0))?, load(outside(settings, &tables.0))?);
        // The way out last: with one alone nothing comes back.
        let inwards = journal.attach(&outside, settings.outside.0, Direction::Ingress)?;
        let outwards = journal.attach(&inside, settings.inside.0, Direction::Ingress)?;
        Ok(Self { _attached: [inwards, outwards] })
    }
}

/// Has what the daemon writes to its TUN devices go to protected hosts and, if it comes from a hopping address, out to
/// the network.
#[derive(Debug)]
pub struct TunnelProgram(Program);

impl TunnelProgram {
    /// Loads it, which takes CAP_BPF.
    pub fn load(settings: &Settings, tables: &Tables) -> Result<Self> {
        Program::load(ProgramKind::SchedCls, &tunnel(settings, &tables.0)).map(Self)
    }

    /// Attaches it to a device, which goes with the process, and the program with it. Takes no CAP_BPF.
    pub fn attach(&self, device: u32) -> Result<Attachment> {
        crate::bpf::attach::attach_to_own_device(&self.0, device, Direction::Ingress)
    }
}
