//! Where inner packets go that come out of the tunnel.

use std::ops::Range;

/// Takes inner packets, towards the TUN device.
pub trait Deliver {
    /// A packet: `header` (IPv6: 40 bytes, IPv4: with its options), and behind it `arena[rest]`. The arena is the one
    /// that was given to [`Node::receive`](crate::Node::receive); it keeps its contents until that is given again, so
    /// packets of a batch may be coalesced before they are written.
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>);

    /// A whole packet of the node's own, or one put together from two datagrams: to be written now.
    fn whole_packet(&mut self, packet: &[u8]);

    /// The inner MTU towards some peer may be another.
    fn mtu_changed(&mut self) {}
}

/// For calls that nothing is delivered in.
pub(crate) struct Discard;

impl Deliver for Discard {
    fn packet(&mut self, _: &[u8], _: &[u8], _: Range<usize>) {}
    fn whole_packet(&mut self, _: &[u8]) {}
}

/// Hands on packets that lie in memory of ours, not in the host's arena.
pub(crate) struct DeliverCopied<'a>(pub(crate) &'a mut dyn Deliver);

impl Deliver for DeliverCopied<'_> {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.whole_packet(&[header, &arena[rest]].concat());
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.0.whole_packet(packet);
    }
}
