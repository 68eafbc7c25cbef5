//! What the packet path needs of the protocol, whoever has it: the node, or a worker on a thread beside it.

use linux::udp::SendOutcome;
use mt6d::{Deliver, EndpointId, Node, Now, Outbox, PacketWorker, Received, SendFailure};
use tracing::debug;
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

    /// The kernel did not take a datagram.
    fn send_failed(&mut self, endpoint: EndpointId, why: SendFailure, now: Now);
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

    fn send_failed(&mut self, endpoint: EndpointId, why: SendFailure, now: Now) {
        Node::send_failed(self, endpoint, why, now);
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

    fn send_failed(&mut self, endpoint: EndpointId, why: SendFailure, _: Now) {
        PacketWorker::send_failed(self, endpoint, why);
    }
}

/// Why a datagram did not leave, from what became of its send.
pub(crate) fn failure(outcome: &linux::Result<SendOutcome>) -> Option<SendFailure> {
    match outcome {
        Ok(SendOutcome::Sent) => None,
        Ok(SendOutcome::Unreachable(_)) => Some(SendFailure::NoRoute),
        Ok(SendOutcome::Refused) => Some(SendFailure::Refused),
        Ok(
            SendOutcome::WouldBlock(_)
            | SendOutcome::Dropped
            | SendOutcome::TooLong
            | SendOutcome::Reported(_),
        ) => Some(SendFailure::Other),
        Err(error) => {
            debug!("{error}");
            Some(SendFailure::Other)
        }
    }
}
