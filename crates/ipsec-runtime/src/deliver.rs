//! Where inner packets go that come out of a tunnel.

use std::ops::Range;

/// Takes what comes out: a TUN device by way of `wire::coalesce`, or a host above.
pub trait Deliver {
    /// A packet: the bytes of its IP header, and where what follows is in the arena that was received into.
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>);

    /// A packet made here: an error that an inner sender is told.
    fn whole_packet(&mut self, packet: &[u8]);
}
