//! eBPF as it is written: instructions, the kernel's functions that programs call, and what they are given. Nothing here
//! asks the kernel for anything: loading and attaching is `linux::bpf`.
//!
//! | module | subject |
//! |---|---|
//! | `assembler` | [`Assembler`]: a program, from its first instruction to its last |
//! | `helper` | [`Helper`]: functions of the kernel |
//! | `listing` | [`listing`]: instructions as text |
//! | [`context`], [`verdict`] | what a program at an interface is given, and what it may say |
//! | [`netfilter`] | the same for programs at netfilter's hooks |
//! | [`xdp`] | what programs may say that come before the kernel has made anything of a packet |

#![forbid(unsafe_code)]

mod assembler;
pub mod context;
mod helper;
mod listing;
pub mod netfilter;

pub use assembler::{
    Assembler, Condition, JumpTooLong, Label, Operand, Operation, PacketField, Register, Size,
};
pub use helper::{Helper, NEXT_HOP, next_hop};
pub use listing::listing;

/// Results of programs at an interface (`sched_cls`).
pub mod verdict {
    /// Whatever else is attached goes on; in the end the packet passes.
    pub const NEXT: i32 = -1;
    /// The packet passes, whatever else is attached.
    pub const PASS: i32 = 0;
    /// The packet is dropped.
    pub const DROP: i32 = 2;
    /// As the helper said that was called last.
    pub const REDIRECT: i32 = 7;
}

/// Results of programs at an interface that see packets first of all (`xdp`).
pub mod xdp {
    /// The packet is dropped.
    pub const DROP: i32 = 1;
    /// The packet goes on into the kernel.
    pub const PASS: i32 = 2;
}
