//! Where things are for programs at netfilter's hooks (`BPF_PROG_TYPE_NETFILTER`, Linux 6.4).
//!
//! Their context is `struct bpf_nf_ctx`: pointers to `nf_hook_state` and to `sk_buff`, which are the kernel's own
//! structures, other in each build of it.

/// `bpf_nf_ctx.state`, a pointer.
pub const STATE: i16 = 0;
/// `bpf_nf_ctx.skb`, a pointer.
pub const PACKET: i16 = 8;

/// Results: a program may give no others.
pub mod verdict {
    /// The packet is dropped.
    pub const DROP: i32 = 0;
    /// It goes on to the next hook.
    pub const ACCEPT: i32 = 1;
}

/// What a kernel has where: offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `sk_buff.len`, 4 bytes.
    pub length: i16,
    /// `sk_buff.mark`, 4 bytes.
    pub mark: i16,
    /// `nf_hook_state.in`, a pointer, null where there is none.
    pub incoming: i16,
    /// `nf_hook_state.out`, likewise.
    pub outgoing: i16,
    /// `net_device.name`, 16 bytes, of which those behind the first zero may be anything.
    pub name: i16,
    /// Number of the function `bpf_dynptr_from_skb(packet, flags, dynptr)`, see
    /// [`call_kernel`](crate::Assembler::call_kernel).
    pub dynptr_from_skb: u32,
}
