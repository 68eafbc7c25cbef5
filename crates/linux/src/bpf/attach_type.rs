//! The kernel's numbers for where programs are attached.

/// Where programs can be attached, by the numbers of `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttachType {
    SkLookup = 36,
    Xdp = 37,
    Netfilter = 45,
    TcxIngress = 46,
    TcxEgress = 47,
}
