//! The kernel's IPsec (XFRM) and its PF_KEY socket against `crates/ipsec` and `crates/stack`.
//!
//! Debian's stock kernel has both, so that these tests run in `scripts/stock-kernel`, which demands them
//! (`SIDESTEP_XFRM=1`). On a kernel without XFRM they say that they were skipped.
//!
//! What the kernel cannot be compared in: AH with GMAC, which it does not have; the algorithms of the feature `historic`,
//! whose packets (RFC 1828, 1829) it has given up: its DES-CBC is behind a sequence number.

mod packets;
mod pf_key;
mod scene;

use std::process::Command;

/// Whether this kernel has XFRM. Where it is demanded, its absence is a failure.
fn is_there() -> bool {
    let root = nix::unistd::geteuid().is_root();
    let said = Command::new("ip").args(["xfrm", "state", "list"]).output();
    let there = root && said.is_ok_and(|said| said.status.success());
    if !there {
        assert!(std::env::var_os("SIDESTEP_XFRM").is_none(), "this kernel was said to have XFRM");
        eprintln!("skipped: needs root and a kernel with XFRM, such as that of scripts/stock-kernel");
    }
    there
}
