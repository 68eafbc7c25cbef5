//! What the packet path needs of the protocol, whoever has it: the node, or a worker on a thread beside it.

use std::ops::Range;

use linux::udp::Received;
use mt6d::{Deliver, EndpointId, Node, Now, Outbox, PacketWorker};
use wire::ecn::Ecn;
use wire::virtio_net;

/// See [`Node`] for what each of these does.
pub(super) trait PacketPath {
    fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    );

    /// Datagrams, at `at` in the arena, that were received together.
    #[expect(clippy::too_many_arguments, reason = "a datagram comes with where and how")]
    fn receive(
        &mut self,
        endpoint: EndpointId,
        received: &Received,
        arena: &mut [u8],
        at: Range<usize>,
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    );

    fn path_error(&mut self, endpoint: EndpointId, quoted: &[u8], too_big: Option<u32>, now: Now);

    fn send_failed(&mut self, endpoint: EndpointId);
}

impl PacketPath for Node {
    fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        Node::send(self, header, packet, now, outbox, deliver);
    }

    fn receive(
        &mut self,
        endpoint: EndpointId,
        received: &Received,
        arena: &mut [u8],
        at: Range<usize>,
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let Received { source, ecn, segment_size, .. } = *received;
        let ecn = Ecn::from_bits(ecn);
        Node::receive(self, endpoint, source, ecn, arena, at, segment_size, now, outbox, deliver);
    }

    fn path_error(&mut self, endpoint: EndpointId, quoted: &[u8], too_big: Option<u32>, now: Now) {
        Node::path_error(self, endpoint, quoted, too_big, now);
    }

    fn send_failed(&mut self, endpoint: EndpointId) {
        Node::send_failed(self, endpoint);
    }
}

impl PacketPath for PacketWorker {
    fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        _: &mut dyn Deliver,
    ) {
        PacketWorker::send(self, header, packet, now, outbox);
    }

    fn receive(
        &mut self,
        endpoint: EndpointId,
        received: &Received,
        arena: &mut [u8],
        at: Range<usize>,
        now: Now,
        _: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        let ecn = Ecn::from_bits(received.ecn);
        PacketWorker::receive(self, endpoint, ecn, arena, at, received.segment_size, now, deliver);
    }

    fn path_error(&mut self, endpoint: EndpointId, quoted: &[u8], too_big: Option<u32>, _: Now) {
        PacketWorker::path_error(self, endpoint, quoted, too_big);
    }

    fn send_failed(&mut self, endpoint: EndpointId) {
        PacketWorker::send_failed(self, endpoint);
    }
}
