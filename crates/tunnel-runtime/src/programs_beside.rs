//! How programs are attached by which packets pass the daemon by: one where the TUN device would hand a packet to us, one where
//! packets come in from outside.

use linux::bpf::Assembler;
use linux::bpf::attach::{Attachment, Direction, Filter, attach_to_own_device};
use linux::bpf::{Program, ProgramKind};
use linux::netlink::{Link, Netlink};
use linux::undo::Journal;
use tracing::{debug, warn};

use super::next_hop::Outside;

/// Bytes of an Ethernet header.
const ETHERNET: u8 = 14;

/// Both programs, attached as long as this lives.
pub(super) struct ProgramsBeside {
    _outgoing: Attachment,
    /// That for what comes in by an interface without link headers, and by one of Ethernet: which of them the external interface
    /// is may change when it is made anew, and then nothing can be loaded any more.
    incoming: [Program; 2],
    /// None: the interface that it was attached to is gone, and the kernel refused it at the next.
    entrance: Option<Attachment>,
    tcx: bool,
}

impl ProgramsBeside {
    /// Loads and attaches both, by links of the kind tcx if the kernel has them and they are wanted. `incoming` makes that for
    /// what comes in by an interface with a link header of so many bytes. Needs CAP_BPF.
    ///
    /// # Errors
    /// Why this kernel cannot do it.
    pub(super) fn attach(
        outgoing: &Assembler,
        incoming: impl Fn(u8) -> Assembler,
        outside: &Outside,
        tcx: bool,
        journal: &mut Journal,
    ) -> linux::Result<Self> {
        let load = |code: &Assembler| Program::load(ProgramKind::SchedCls, code);
        let outgoing = load(outgoing)?;
        let incoming = [load(&incoming(0))?, load(&incoming(ETHERNET))?];
        let (tun, egress) = (outside.tun, Direction::Egress);
        let outgoing = match tcx {
            true => attach_to_own_device(&outgoing, tun, egress)?,
            false => Attachment::clsact(&outgoing, Filter::new(tun, egress))?,
        };
        let mut this = ProgramsBeside { _outgoing: outgoing, incoming, entrance: None, tcx };
        this.enter(&outside.external, journal)?;
        Ok(this)
    }

    /// Before other programs: no other is to have what is for this one, and what is not it leaves to them.
    fn enter(&mut self, external: &Link, journal: &mut Journal) -> linux::Result<()> {
        let program = &self.incoming[usize::from(external.mac.is_some())];
        let (index, ingress) = (external.index, Direction::Ingress);
        self.entrance = Some(match self.tcx {
            true => journal.attach_first(program, index, ingress)?,
            false => journal.attach_filter(program, Filter::new(index, ingress))?,
        });
        Ok(())
    }

    /// The external interface is like this now. Where it was made anew, attaches to it what was at the one before. Needs
    /// CAP_NET_ADMIN alone.
    pub(super) fn follow(&mut self, external: &Link, netlink: &mut Netlink, journal: &mut Journal) {
        if self.entrance.as_ref().is_some_and(|entrance| entrance.is_at(external.index, Direction::Ingress)) {
            return;
        }
        let left = self.entrance.take().map_or(Ok(()), |gone| journal.detach(netlink, gone));
        if let Err(error) = left.and_then(|()| self.enter(external, journal)) {
            warn!(
                "packets that are masked, or whose addresses are replaced, are not heard at {}, which was made anew: {error}; \
                 restart the tunnel if that stays so",
                external.name
            );
        }
    }

    /// Puts the program at the external interface back where another program has removed it: what comes in would reach the
    /// daemon, which can do nothing with it. Needs CAP_NET_ADMIN alone.
    pub(super) fn put_back(&mut self, external: &Link) {
        let program = &self.incoming[usize::from(external.mac.is_some())];
        match self.entrance.as_mut().map_or(Ok(false), |entrance| entrance.put_back(program)) {
            Ok(false) => {}
            Ok(true) => warn!(
                "another program took away the filter at {} that hears packets which are masked, or whose addresses are replaced: \
                 it is put back",
                external.name
            ),
            // It may be gone, or about to be made anew.
            Err(error) => debug!("{error}"),
        }
    }
}
