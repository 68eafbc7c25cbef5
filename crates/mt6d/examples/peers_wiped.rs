//! `peers.rs` with the allocator that the program has, which wipes what it frees: what that costs.

#![allow(missing_docs, reason = "an example")]

use std::alloc::System;

use zeroizing_alloc::ZeroAlloc;

mod peers;

#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() {
    peers::main();
}
