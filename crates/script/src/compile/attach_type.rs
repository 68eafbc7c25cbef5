//! Where a program is attached, and what it cannot do there.

use bpf::netfilter::Layout;

use super::ir::Program;
use super::refusal::Refusal;

/// Octets of the two addresses before it.
pub(super) const ADDRESSES: i64 = 12;
/// Where a program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachType {
    /// At an interface (`sched_cls`): it may change packets.
    Interface {
        /// Whether they have a link header there.
        has_link: bool,
    },
    /// First of all at an interface whose packets have a link header (`xdp`): it reads and judges. What is not IP passes
    /// unseen, and a VLAN tag in the frame is left out of the packet: further on the kernel has it beside the packet.
    Xdp,
    /// At a hook of netfilter: it reads and judges.
    Netfilter {
        /// What the kernel has where.
        layout: Layout,
        /// Packets of other interfaces than these pass unseen.
        interfaces: Vec<(Side, String)>,
    },
}

/// Which interface of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that it came in by.
    Incoming,
    /// The one that it goes out by.
    Outgoing,
}

impl AttachType {
    pub(super) const fn has_link(&self) -> bool {
        matches!(self, Self::Interface { has_link: true } | Self::Xdp)
    }

    /// What a program does that cannot be done there.
    pub(super) fn refusals(&self, program: &Program) -> Vec<Refusal> {
        let [changes_only, redirects_only] = match self {
            Self::Interface { .. } => return Vec::new(),
            Self::Netfilter { .. } => ["in the kernel at an interface only"; 2],
            Self::Xdp => [
                "not at XDP, where a packet of this machine or of a virtual interface has a checksum that is not finished \
                 yet, which a program cannot see there: it runs without xdp",
                "not at XDP, where nothing is known of neighbors: it runs without xdp",
            ],
        };
        let reached = program.blocks.iter().filter(|block| block.end.is_some());
        let changes =
            reached.flat_map(|block| &block.code).filter(|instruction| instruction.action.changes_packet());
        let redirects = program.redirects.iter().map(|line| (*line, "redirects", redirects_only));
        let changes = changes.map(|instruction| (instruction.line, "changes", changes_only));
        let mut refusals: Vec<_> = changes
            .chain(redirects)
            .map(|(line, does, why)| Refusal { line, reason: format!("it {does} the packet: {why}") })
            .collect();
        refusals.sort();
        refusals.dedup();
        refusals
    }
}
