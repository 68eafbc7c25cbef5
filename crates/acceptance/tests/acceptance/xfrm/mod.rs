//! The kernel's IPsec (XFRM) and its PF_KEY socket against `crates/ipsec` and `crates/stack`.
//!
//! Debian's stock kernel has both, so that these tests run in `scripts/stock-kernel`, which demands them
//! (`SIDESTEP_XFRM=1`). On a kernel without ESP they say that they were skipped.
//!
//! | file | stories |
//! |---|---|
//! | `packets` | each algorithm that both have |
//! | `pf_key` | PF_KEY messages in the kernel's socket, and the kernel's in our parser |
//! | `strongswan` | IKE: strongSwan has the kernel's IPsec, and `key_daemon` speaks for the host |
//!
//! What the kernel cannot be compared in: AH with GMAC, which it does not have; the algorithms of the feature `historic`,
//! whose packets (RFC 1828, 1829) it has given up: its DES-CBC is behind a sequence number. `reference/ipsec_plain.py` has
//! these.

mod key_daemon;
mod packets;
mod pf_key;
mod scene;
mod strongswan;

use lab::namespaces::Namespace;

/// What only a kernel with ESP and its algorithms does.
const PROBE: [&str; 17] = [
    "xfrm",
    "state",
    "add",
    "src",
    "::1",
    "dst",
    "::2",
    "proto",
    "esp",
    "spi",
    "256",
    "mode",
    "transport",
    "aead",
    "rfc4106(gcm(aes))",
    "0x000102030405060708090a0b0c0d0e0f10111213",
    "128",
];

/// Whether this kernel has XFRM with ESP: some have its tables alone. Where it is demanded, its absence is a failure.
pub(crate) fn is_there() -> bool {
    let there = nix::unistd::geteuid().is_root() && has_esp();
    if !there {
        assert!(std::env::var_os("SIDESTEP_XFRM").is_none(), "this kernel was said to have XFRM");
        eprintln!("skipped: needs root and a kernel with ESP, such as that of scripts/stock-kernel");
    }
    there
}

fn has_esp() -> bool {
    let namespace = Namespace::named(lab::prefix::unique());
    namespace.create().expect("a namespace");
    let said = namespace.command("ip").expect("the namespace").args(PROBE).output();
    let _ = namespace.delete();
    said.is_ok_and(|said| said.status.success())
}
