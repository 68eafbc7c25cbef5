//! What the packet path needs of the protocol, whoever has it: the node, or a worker on a thread beside it.

use mt6d::{Deliver, EndpointId, Node, Now, Outbox, PacketWorker, Received};
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

    /// Datagrams that were received together.
    fn receive(
        &mut self,
        received: &Received,
        arena: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    );

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
        received: &Received,
        arena: &mut [u8],
        now: Now,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        Node::receive(self, received, arena, now, outbox, deliver);
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
        received: &Received,
        arena: &mut [u8],
        now: Now,
        _: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) {
        PacketWorker::receive(self, received, arena, now, deliver);
    }

    fn send_failed(&mut self, endpoint: EndpointId) {
        PacketWorker::send_failed(self, endpoint);
    }
}
