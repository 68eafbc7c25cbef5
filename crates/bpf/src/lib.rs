//! eBPF as it is written: instructions, the kernel's functions that programs call, and what they are given. Nothing here
//! asks the kernel for anything: what comes out is instructions, and somebody else loads and attaches them.
//!
//! | module | subject |
//! |---|---|
//! | `assembler` | [`Assembler`]: a program, from its first instruction to its last |
//! | `helper` | [`Helper`]: functions of the kernel |
//! | `map` | [`MapShape`]: what user space and programs share |
//! | `listing` | [`listing`]: instructions as text |
//! | [`context`], [`verdict`] | what a program at an interface is given, and what it may say |
//! | [`netfilter`] | the same for programs at netfilter's hooks |
//! | [`xdp`] | what programs may say that come before the kernel has made anything of a packet |
//!
//! A program is assembled, and then listed for people or loaded:
//!
//! ```
//! use sidestep_bpf::{Assembler, Condition, Register, Size, context, listing, verdict};
//!
//! // At an interface: drops IPv6, lets all else pass.
//! let mut code = Assembler::default();
//! let other = code.label();
//! code.load(Size::Word, Register::R2, Register::R1, context::PROTOCOL);
//! code.jump_if(Register::R2, Condition::NotEqual, i32::from(0x86dd_u16.to_be()), other);
//! code.exit_with(verdict::DROP);
//! code.bind(other);
//! code.exit_with(verdict::NEXT);
//!
//! let lines = listing(&code.instructions()?);
//! assert_eq!(lines[0], "r2 = *(u32 *)(r1 +16)");
//! # Ok::<(), sidestep_bpf::JumpTooLong>(())
//! ```
#![forbid(unsafe_code)]

mod assembler;
pub mod context;
mod helper;
mod listing;
mod map;
pub mod netfilter;

pub use assembler::{
    Assembler, Condition, JumpTooLong, Label, Operand, Operation, PacketField, Register, Size,
};
pub use helper::{Helper, NEXT_HOP, next_hop};
pub use listing::listing;
pub use map::{MapKind, MapShape};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
