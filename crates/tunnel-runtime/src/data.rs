//! The packet path: TUN device, endpoint sockets, and the protocol between them.
//!
//! Outwards, GSO packets of several TUN reads gather in the outbox and leave with one call for each run of equal
//! datagrams of an endpoint. Inwards, the datagrams of several receives are opened where they lie in the arena, merged
//! across receives, and written to the TUN device with one call for each merged packet. Nothing waits for a batch to
//! fill: a turn handles what is there.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::SocketAddrV6;
use std::ops::Range;
use std::sync::Arc;

use linux::event::{Interest, Poller};
use linux::tun;
use linux::udp::{EndpointSocket, MAX_RECEIVE, SendOutcome, SharedSocket};
use mt6d::{Deliver, EndpointId, Node, Notice, Now, Outbox, Received};
use tracing::{debug, warn};
use wire::coalesce::{Coalescer, Offloads};
use wire::virtio_net;

use super::kernel::Endpoint;
use super::packet_path::{self, PacketPath};

/// Queues of the TUN device. The kernel keeps a flow in one queue, and each queue has its turn: so a flow waits for
/// single packets of others, not for all that they have (stochastic fair queueing, RFC 7806 section 3). With this many,
/// two flows seldom share one.
pub(super) const TUN_QUEUES: usize = 32;
/// Packets, and bytes to be sent, after which a turn reads no more from the TUN device. The more go out together, the
/// fewer wakeups they cost all the way; but what comes in must not wait for long.
const READS: (usize, usize) = (128, 1 << 20);
/// Room for what is received before it is written, all sockets together.
const ARENA: usize = 16 * MAX_RECEIVE;
/// Receives, and bytes, from one socket before the next has its turn.
const RECEIVES_OF_ONE: (usize, usize) = (64, 8 * MAX_RECEIVE);
/// Receives from the socket of all rendezvous endpoints in one turn: each may be a handshake, a fifth of a millisecond.
const RECEIVES_OF_SHARED: usize = 4;
/// errno(3) of a device that is down.
const EIO: i32 = 5;

/// A socket in use, or what it takes to know that it is wanted.
enum Slot {
    Opening(EndpointId),
    /// Where another thread receives from it, it is in that thread's poller, and here to send from.
    Open(EndpointId, Arc<EndpointSocket>),
    /// A rendezvous endpoint on the socket that all of them share.
    Shared(EndpointId, SocketAddrV6),
}

/// The socket that all rendezvous endpoints share, and which of them is where.
struct Shared {
    socket: SharedSocket,
    endpoints: HashMap<SocketAddrV6, EndpointId>,
}

pub(super) struct DataPath {
    pub(super) outbox: Outbox,
    tun: Vec<tun::Queue>,
    /// Queues that have something to read.
    readable: Vec<usize>,
    sockets: Vec<Option<Slot>>,
    shared: Option<Shared>,
    read_buffer: Vec<u8>,
    arena: Vec<u8>,
    /// Bytes of the arena in use. What is received lies closely packed: small datagrams stay in the nearest cache.
    filled: usize,
    /// Work done since [`DataPath::work`] was asked.
    received: usize,
    sent: usize,
    sink: Sink,
}

/// Takes what comes out of the tunnel.
pub(super) struct Sink {
    coalescer: Coalescer,
    own: Vec<Vec<u8>>,
    mtu_changed: bool,
}

impl Sink {
    /// For a TUN device with these offloads.
    pub(super) fn new(offloads: tun::Offloads) -> Self {
        let tcp = offloads >= tun::Offloads::Tcp;
        let udp = offloads >= tun::Offloads::TcpAndUdp;
        let offloads = Offloads { tcp4: tcp, tcp6: tcp, udp4: udp, udp6: udp };
        Sink { coalescer: Coalescer::new(offloads), own: Vec::new(), mtu_changed: false }
    }

    /// Writes all that it has taken out of the arena.
    pub(super) fn write(&mut self, queue: &tun::Queue, arena: &[u8]) {
        for packet in self.coalescer.packets() {
            let mut pieces = [IoSlice::new(&[]); wire::coalesce::MAX_PIECES + 1];
            pieces[0] = IoSlice::new(packet.head);
            for (slot, piece) in pieces[1..].iter_mut().zip(packet.pieces) {
                *slot = IoSlice::new(&arena[piece.clone()]);
            }
            if let Err(error) = queue.write(&pieces[..=packet.pieces.len()]) {
                debug!("{error}");
            }
        }
        self.coalescer.clear();
        let header = virtio_net::Header::NONE.to_bytes();
        for packet in self.own.drain(..) {
            if let Err(error) = queue.write(&[IoSlice::new(&header), IoSlice::new(&packet)]) {
                debug!("{error}");
            }
        }
    }
}

impl Deliver for Sink {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.coalescer.push(arena, header, rest);
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.own.push(packet.to_vec());
    }

    fn mtu_changed(&mut self) {
        self.mtu_changed = true;
    }
}

impl DataPath {
    /// Over some queues of the TUN device, at least one.
    pub(super) fn new(tun: Vec<tun::Queue>, offloads: tun::Offloads, shared: Option<SharedSocket>) -> Self {
        DataPath {
            outbox: Outbox::new(),
            tun,
            readable: Vec::with_capacity(TUN_QUEUES),
            sockets: Vec::new(),
            shared: shared.map(|socket| Shared { socket, endpoints: HashMap::new() }),
            read_buffer: vec![0; tun::MAX_READ],
            arena: vec![0; ARENA],
            filled: 0,
            received: 0,
            sent: 0,
            sink: Sink::new(offloads),
        }
    }

    pub(super) fn tun(&self) -> &[tun::Queue] {
        &self.tun
    }

    /// A queue of the TUN device has something to read.
    pub(super) fn readable(&mut self, queue: usize) {
        self.readable.push(queue);
    }

    /// The socket of all rendezvous endpoints, if there is one.
    pub(super) fn shared(&self) -> Option<&SharedSocket> {
        self.shared.as_ref().map(|shared| &shared.socket)
    }

    /// The interface that all sockets are bound to is another one now.
    pub(super) fn keep_to(&self, interface: u32) {
        let dedicated = self.sockets.iter().flatten().filter_map(|slot| match slot {
            Slot::Open(_, socket) => Some(socket.keep_to(interface)),
            Slot::Opening(_) | Slot::Shared(..) => None,
        });
        let shared = self.shared().map(|shared| shared.keep_to(interface));
        dedicated.chain(shared).filter_map(Result::err).for_each(|error| warn!("{error}"));
    }

    /// How much was received and sent since this was last asked: so many bytes, or fewer in small datagrams.
    pub(super) fn work(&mut self) -> (usize, usize) {
        (std::mem::take(&mut self.received), std::mem::take(&mut self.sent))
    }

    /// Whether the protocol knows a path better than before, since it was last asked.
    pub(super) fn mtu_changed(&mut self) -> bool {
        std::mem::take(&mut self.sink.mtu_changed)
    }

    /// A socket was asked for.
    pub(super) fn opening(&mut self, id: EndpointId) {
        if self.sockets.len() <= id.slot() {
            self.sockets.resize_with(id.slot() + 1, || None);
        }
        self.sockets[id.slot()] = Some(Slot::Opening(id));
    }

    /// An endpoint is open; given back if it is not wanted any more.
    pub(super) fn opened(&mut self, id: EndpointId, endpoint: Endpoint, poller: &Poller) -> Option<Endpoint> {
        let wanted = |slot: &&mut Option<Slot>| matches!(slot, Some(Slot::Opening(wanted)) if *wanted == id);
        let Some(slot) = self.sockets.get_mut(id.slot()).filter(wanted) else { return Some(endpoint) };
        *slot = match (endpoint, &mut self.shared) {
            (Endpoint::Shared(local), Some(shared)) => {
                shared.endpoints.insert(local, id);
                Some(Slot::Shared(id, local))
            }
            (Endpoint::Dedicated(socket), _) => {
                if let Err(error) = poller.add(&*socket, id.as_u64(), Interest::Readable) {
                    debug!("{error}");
                }
                Some(Slot::Open(id, socket))
            }
            (unwanted, None) => return Some(unwanted),
        };
        None
    }

    /// A socket of a session is open: to send from, and to receive from where a poller is given.
    pub(super) fn share(&mut self, id: EndpointId, socket: Arc<EndpointSocket>, receive: Option<&Poller>) {
        self.opening(id);
        if let Some(Err(error)) = receive.map(|poller| poller.add(&*socket, id.as_u64(), Interest::Readable))
        {
            debug!("{error}");
        }
        self.sockets[id.slot()] = Some(Slot::Open(id, socket));
    }

    /// Whether a socket is still wanted.
    pub(super) fn is_opening(&self, id: EndpointId) -> bool {
        let slot = self.sockets.get(id.slot()).and_then(Option::as_ref);
        matches!(slot, Some(Slot::Opening(wanted)) if *wanted == id)
    }

    /// A socket could not be opened.
    pub(super) fn open_failed(&mut self, id: EndpointId) {
        if let Some(slot) = self.sockets.get_mut(id.slot())
            && matches!(slot, Some(Slot::Opening(wanted)) if *wanted == id)
        {
            *slot = None;
        }
    }

    /// An endpoint is wanted no more; given back if it was open.
    pub(super) fn close(&mut self, id: EndpointId, poller: &Poller) -> Option<Endpoint> {
        let slot = self.sockets.get_mut(id.slot())?;
        match slot.take() {
            Some(Slot::Open(open, socket)) if open == id => {
                if let Err(error) = poller.remove(&*socket) {
                    debug!("{error}");
                }
                Some(Endpoint::Dedicated(socket))
            }
            Some(Slot::Shared(open, local)) if open == id => {
                if let Some(shared) = &mut self.shared {
                    shared.endpoints.remove(&local);
                }
                Some(Endpoint::Shared(local))
            }
            Some(Slot::Opening(opening)) if opening == id => None,
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Time for the protocol. What it sends leaves before anything else is done: when it does is not to show what there is.
    pub(super) fn timeout(&mut self, node: &mut Node, now: Now) {
        node.handle_timeout(now, &mut self.outbox, &mut self.sink);
        self.send_outbox(node, now);
    }

    /// Deals with what packet threads have left to the node.
    pub(super) fn notices(&mut self, node: &mut Node, notices: Vec<Notice>, now: Now) {
        for notice in notices {
            node.notice(notice, now, &mut self.outbox, &mut self.sink);
        }
    }

    /// Reads packets from the queues of the TUN device, one of each in turn, and sends them.
    ///
    /// # Errors
    /// When there is no device any more.
    pub(super) fn read_tun(&mut self, node: &mut impl PacketPath, now: Now) -> linux::Result<()> {
        let mut readable = std::mem::take(&mut self.readable);
        let mut reads = 0;
        while !readable.is_empty() && reads < READS.0 && self.outbox.len() < READS.1 {
            let others = readable.len() > 1;
            reads += readable.len();
            let mut failure = Ok(());
            readable.retain(|queue| match self.read_packet(*queue, node, now) {
                Ok(more) => more,
                Err(error) => {
                    failure = Err(error);
                    false
                }
            });
            failure?;
            // A single packet does not wait until a bulk flow beside it has filled its batch.
            if others {
                self.send_outbox(node, now);
            }
        }
        // What is left is reported again.
        readable.clear();
        self.readable = readable;
        self.send_outbox(node, now);
        Ok(())
    }

    /// Reads a packet from a queue of the TUN device and seals it. False if there was none.
    fn read_packet(&mut self, queue: usize, node: &mut impl PacketPath, now: Now) -> linux::Result<bool> {
        let length = match self.tun[queue].read(&mut self.read_buffer) {
            Ok(Some(length)) if length > virtio_net::LEN => length,
            Ok(Some(_)) => return Ok(true),
            Ok(None) => return Ok(false),
            // The device is down; it may come up again.
            Err(error) if error.raw_os_error() == Some(EIO) => return Ok(false),
            Err(error) => return Err(error),
        };
        let (header, packet) = self.read_buffer[..length].split_at_mut(virtio_net::LEN);
        let header = virtio_net::Header::from_bytes((&*header).try_into().expect("its length"));
        node.send(&header, packet, now, &mut self.outbox, &mut self.sink);
        Ok(true)
    }

    /// Receives what came to an endpoint, and empties its error queue.
    pub(super) fn read_endpoint(&mut self, token: u64, error: bool, node: &mut impl PacketPath, now: Now) {
        // The token's low half is the endpoint's slot.
        let slot = token as u32 as usize;
        if error && let Some(Some(Slot::Open(_, socket))) = self.sockets.get(slot) {
            // ICMPv6 errors: anybody can make them, so nothing follows from them (docs/protocol.md, "Errors from outside").
            while let Ok(Some(_)) = socket.recv_error(&mut []) {}
        }
        let (mut receives, mut bytes) = (0, 0);
        while receives < RECEIVES_OF_ONE.0 && bytes < RECEIVES_OF_ONE.1 {
            if ARENA - self.filled < MAX_RECEIVE {
                self.write_tun();
            }
            let Some(Some(Slot::Open(id, socket))) = self.sockets.get(slot) else { return };
            if id.as_u64() != token {
                return;
            }
            let start = self.filled;
            let received = match socket.recv(&mut self.arena[start..start + MAX_RECEIVE]) {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(error) => {
                    debug!("{error}");
                    return;
                }
            };
            receives += 1;
            bytes += received.len;
            let id = *id;
            self.filled = start + received.len;
            self.received += work(received.len, received.segment_size);
            let (arena, outbox, sink) = (&mut self.arena, &mut self.outbox, &mut self.sink);
            node.receive(&of_endpoint(id, &received, start), arena, now, outbox, sink);
        }
    }

    /// Receives what came to the rendezvous endpoints. Nothing of it is written to the TUN device, so none of it has to
    /// stay where it is.
    pub(super) fn read_shared(&mut self, node: &mut Node, now: Now) {
        let Some(shared) = &self.shared else { return };
        for _ in 0..RECEIVES_OF_SHARED {
            let (received, destination) = match shared.socket.recv(&mut self.read_buffer) {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(error) => return debug!("{error}"),
            };
            // One that was just closed may have left something in the queue.
            let Some(&id) = shared.endpoints.get(&destination) else { continue };
            let (arena, outbox, sink) = (&mut self.read_buffer, &mut self.outbox, &mut self.sink);
            PacketPath::receive(node, &of_endpoint(id, &received, 0), arena, now, outbox, sink);
        }
    }

    /// Sends and writes all that has gathered.
    pub(super) fn flush(&mut self, node: &mut impl PacketPath, now: Now) {
        self.write_tun();
        self.send_outbox(node, now);
    }

    fn write_tun(&mut self) {
        self.sink.write(&self.tun[0], &self.arena);
        self.filled = 0;
    }

    fn send_outbox(&mut self, node: &mut impl PacketPath, now: Now) {
        for (batch, bytes) in self.outbox.batches() {
            self.sent += work(bytes.len(), batch.segment);
            let sent = match self.sockets.get(batch.endpoint.slot()) {
                Some(Some(Slot::Open(id, socket))) if *id == batch.endpoint => {
                    let segment = (bytes.len() > batch.segment).then_some(batch.segment as u16);
                    socket.send(bytes, segment, batch.to, batch.ecn.bits())
                }
                Some(Some(Slot::Shared(id, local))) if *id == batch.endpoint => {
                    let (Some(shared), Some(to)) = (&self.shared, batch.to) else { continue };
                    let mut datagrams = bytes.chunks(batch.segment.max(1));
                    datagrams.try_fold(SendOutcome::Sent, |worst, datagram| {
                        let sent = shared.socket.send(*local, to, datagram, batch.ecn.bits())?;
                        Ok(if sent == SendOutcome::Sent { worst } else { sent })
                    })
                }
                _ => Ok(SendOutcome::Dropped),
            };
            if let Some(why) = packet_path::failure(&sent) {
                node.send_failed(batch.endpoint, why, now);
            }
        }
        self.outbox.clear();
    }
}

/// Datagrams of an endpoint that lie from `start` in the arena, as the protocol takes them.
fn of_endpoint(endpoint: EndpointId, received: &linux::udp::Received, start: usize) -> Received {
    let linux::udp::Received { len, segment_size, source, ecn } = *received;
    Received { endpoint, source, ecn, at: start..start + len, segment: segment_size }
}

/// What so many bytes in datagrams of that size cost, in bytes: a datagram takes as long as some hundred bytes do.
fn work(bytes: usize, segment: usize) -> usize {
    bytes + bytes.div_ceil(segment.max(1)) * 512
}
