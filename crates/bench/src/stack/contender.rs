//! Whose TCP is measured.

use clap::ValueEnum;

/// An implementation of TCP, at the end of a TUN device unless it is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackContender {
    /// The kernel's, in a namespace of its own.
    Kernel,
    /// The crates `stack` and `stack-runtime`, with offloads.
    Sidestep,
    /// The crate `stack`, a packet at a time.
    SidestepSingle,
    /// smoltcp.
    Smoltcp,
    /// gVisor's netstack.
    Gvisor,
}

impl StackContender {
    pub(crate) const ALL: [Self; 5] =
        [Self::Kernel, Self::Sidestep, Self::SidestepSingle, Self::Smoltcp, Self::Gvisor];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Sidestep => "sidestep",
            Self::SidestepSingle => "sidestep-single",
            Self::Smoltcp => "smoltcp",
            Self::Gvisor => "gvisor",
        }
    }

    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Kernel => "Linux's TCP, CUBIC, behind a veth pair with its offloads",
            Self::Sidestep => "the crates `stack` and `stack-runtime` at a TUN device, with its offloads",
            Self::SidestepSingle => "the crate `stack` at a TUN device, one thread, single packets",
            Self::Smoltcp => "smoltcp 0.14 at a TUN device, CUBIC, buffers of 4 MB, single packets",
            Self::Gvisor => "gVisor's netstack at a TUN device, CUBIC, single packets",
        }
    }
}
