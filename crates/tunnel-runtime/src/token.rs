//! Numbers of the poller's descriptors other than endpoints, which have their own names that never come near.

/// Of the TUN device's first queue; the others' are above it, all others' below.
pub(crate) const TUN: u64 = WAKER + 1;
pub(crate) const WAKER: u64 = u64::MAX - crate::data::TUN_QUEUES as u64;
pub(crate) const SIGNALS: u64 = WAKER - 1;
pub(crate) const SHARED: u64 = WAKER - 2;
pub(crate) const VM_GENERATION: u64 = WAKER - 3;
