//! Small programs that run in the kernel: bpf(2), without a compiler.
//!
//! A program is written with an [`Assembler`], shares [`Map`]s with us, is loaded as a [`Program`] and attached: to an
//! interface ([`attach`], [`xdp`]), at a hook of netfilter ([`netfilter`]), or where a module of this crate wants it. What
//! it does belongs to the module that needs it ([`crate::udp::SharedSocket`], the queues of [`crate::tun`], and whoever
//! attaches one to an interface); here is only what they all stand on.
//!
//! Maps, programs and links are descriptors. Nothing here is pinned: what a process attached goes with it, also when it
//! crashes. The one exception are interfaces of kernels before Linux 6.6: see [`attach`]. Loading takes CAP_BPF (or
//! CAP_SYS_ADMIN); changing a map does not, from Linux 5.19 on.

pub mod attach;
mod attach_type;
mod btf;
mod functions;
mod link;
mod lock;
mod map;
pub mod netfilter;
mod program;
mod ring;
mod statistics;
mod syscall;
pub mod xdp;

pub use bpf::{
    Assembler, Condition, Helper, Label, MapKind, MapShape, NEXT_HOP, Operand, Operation, PacketField,
    Register, Size, context, next_hop, verdict,
};
pub(crate) use link::Link;
pub use map::{Map, Place, processors};
pub use program::{Program, ProgramKind};
pub use ring::Ring;
pub use statistics::{RunTime, Statistics};
