//! The program `sidestep`; everything is in the library, but the exit.
#![forbid(unsafe_code)]

use std::alloc::System;
use std::process::ExitCode;

use zeroizing_alloc::ZeroAlloc;

/// Wipes what is freed: libraries keep keys in structures that do not (`ring`'s, those of HKDF and Noise). Packets are
/// carried without allocating, so that it costs them nothing.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    sidestep::cli::main()
}
