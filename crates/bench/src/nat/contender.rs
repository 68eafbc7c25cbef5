//! What carries the packets of a scene.

use clap::ValueEnum;

use crate::comparison::contender::NONE;

/// What a router does to the packets that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum NatContender {
    /// Nothing.
    #[value(name = "none")]
    Forwarding,
    /// The kernel's own NAT.
    Nftables,
    /// The script as eBPF.
    ScriptKernel,
    /// The script in Lua.
    ScriptUser,
    /// Nothing, but by way of a program.
    Queue,
}

impl NatContender {
    pub(super) const ALL: [Self; 5] =
        [Self::Forwarding, Self::Nftables, Self::ScriptKernel, Self::ScriptUser, Self::Queue];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Forwarding => NONE,
            Self::Nftables => "nftables",
            Self::ScriptKernel => "script-kernel",
            Self::ScriptUser => "script-user",
            Self::Queue => "queue",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Forwarding => "the router forwards and does nothing else",
            Self::Nftables => "`snat` and `dnat` of nftables, with connection tracking",
            Self::ScriptKernel => "`examples/scripts/nat.lua` in the kernel tier",
            Self::ScriptUser => "`examples/scripts/nat.lua` in the user tier",
            Self::Queue => "the user tier's floor: a program that accepts every packet, no Lua, no change",
        }
    }
}
