//! Where a script runs: in the kernel, in Lua, or in both.

use std::sync::Arc;

use super::decided::OwnMaps;
use super::in_kernel::InKernel;
use super::order::Place;
use super::statistics::Statistics;

/// In which tier a script runs.
pub(super) enum Runs {
    User(InThreads),
    Kernel(InKernel),
    /// The kernel decides what it can, and hands over the rest.
    Both(InKernel, InThreads),
}

/// A script in the threads of its group, with the queues of a slot.
pub(super) struct InThreads {
    pub(super) statistics: Arc<Statistics>,
    pub(super) slot: usize,
    /// Of the rule that gives them packets.
    pub(super) place: Place,
    /// What they have decided of streams, for the kernel, if it hands over to them.
    pub(super) own: OwnMaps,
}

impl Runs {
    pub(super) const fn kernel(&self) -> Option<&InKernel> {
        match self {
            Self::Kernel(in_kernel) | Self::Both(in_kernel, _) => Some(in_kernel),
            Self::User(_) => None,
        }
    }

    pub(super) const fn kernel_mut(&mut self) -> Option<&mut InKernel> {
        match self {
            Self::Kernel(in_kernel) | Self::Both(in_kernel, _) => Some(in_kernel),
            Self::User(_) => None,
        }
    }

    pub(super) const fn user(&self) -> Option<&InThreads> {
        match self {
            Self::User(threads) | Self::Both(_, threads) => Some(threads),
            Self::Kernel(_) => None,
        }
    }

    /// Of packets that the kernel hands over to its threads.
    pub(super) fn mark(&self) -> Option<u32> {
        self.kernel().and_then(InKernel::mark)
    }
}
