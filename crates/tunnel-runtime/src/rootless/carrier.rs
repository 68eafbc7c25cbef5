//! A node and its sockets, for whoever has inner packets and a main loop.
//!
//! Whoever owns the main loop
//! 1. waits until the carrier is readable ([`AsFd`]) or its [`Carrier::deadline`] has come,
//! 2. calls [`Carrier::receive`] until nothing is left, and [`Carrier::handle_timeout`] when it is due,
//! 3. hands in packets by [`Carrier::send`],
//! 4. calls [`Carrier::flush`] after each of these.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use linux::event::{Event, Events, Interest, Poller};
use linux::udp::{EndpointOptions, EndpointSocket, MAX_RECEIVE, SendOutcome};
use linux::vm_generation::VmGenerationMonitor;
use mt6d::{Action, Deliver, EndpointId, Node, Outbox, PeerState, Received};
use tracing::{debug, info, warn};
use wire::virtio_net;

use super::claim::Claim;
use super::error::Error;
use crate::clock::Clock;
use crate::{happened, machine, packet_path};

/// The token of news that this machine was restored or cloned. An endpoint's is below, as slots are few.
const GENERATION: u64 = u64::MAX;
/// Errors of a socket that are looked at before others have their turn.
const ERRORS_AT_ONCE: usize = 16;

/// A node and its sockets.
pub struct Carrier {
    node: Node,
    clock: Clock,
    /// By their tokens.
    endpoints: HashMap<u64, Endpoint>,
    options: EndpointOptions,
    poller: Poller,
    events: Events,
    ready: Vec<Event>,
    generation: Option<VmGenerationMonitor>,
    outbox: Outbox,
    arena: Vec<u8>,
    is_up: bool,
    /// Whether it was told that an endpoint cannot be opened, which may happen at each move.
    has_complained: bool,
    /// So that nobody else is this end.
    claim: Claim,
}

struct Endpoint {
    id: EndpointId,
    socket: EndpointSocket,
}

impl Carrier {
    /// A node that begins to reach its peers.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(claim: Claim) -> Result<Self, Error> {
        let poller = Poller::new()?;
        // As good as none, where it cannot be had: sessions then go on in two machines that were one.
        let generation = VmGenerationMonitor::open().inspect_err(|error| debug!("{error}")).ok();
        if let Some(generation) = &generation {
            poller.add(generation, GENERATION, Interest::Readable)?;
        }
        let clock = Clock::new(None);
        let node = claim.config.to_node_config(claim.link_mtu, machine::has_aes(), false, false);
        let node = Node::new(node, &HashMap::new(), machine::entropy()?, clock.now())?;
        Ok(Self {
            node,
            clock,
            endpoints: HashMap::new(),
            options: EndpointOptions::default(),
            poller,
            events: Events::with_capacity(64),
            ready: Vec::with_capacity(64),
            generation,
            outbox: Outbox::new(),
            arena: vec![0; MAX_RECEIVE],
            is_up: false,
            has_complained: false,
            claim,
        })
    }

    /// What it was opened with.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Whether there is a session with some peer.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// When [`Carrier::handle_timeout`] has something to do.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.node.deadline().since(self.clock.now().boot)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, deliver: &mut dyn Deliver) {
        let now = self.clock.now();
        if self.node.deadline() > now.boot {
            return;
        }
        self.node.handle_timeout(now, &mut self.outbox, deliver);
        self.look();
    }

    /// Receives from one socket, once: what of it is for the inside is in [`Carrier::arena`] until the next call. Returns
    /// whether there may be more.
    ///
    /// # Errors
    /// When nothing can be waited for any more.
    pub fn receive(&mut self, deliver: &mut dyn Deliver) -> linux::Result<bool> {
        let Some(event) = self.next_ready()? else { return Ok(false) };
        let now = self.clock.now();
        if event.token == GENERATION {
            let changed = self.generation.as_ref().map_or(Ok(false), VmGenerationMonitor::changed);
            if changed.unwrap_or(true) {
                warn!("this machine was restored or cloned: sessions begin anew");
                self.node.forget_sessions(now);
            }
            return Ok(true);
        }
        let Some(Endpoint { id, socket }) = self.endpoints.get(&event.token) else { return Ok(true) };
        let id = *id;
        if event.error {
            // ICMPv6 errors: anybody can make them, so nothing follows from them (docs/protocol.md, "Errors from outside").
            for _ in 0..ERRORS_AT_ONCE {
                let Ok(Some(_)) = socket.recv_error(&mut []) else { break };
            }
        }
        match socket.recv(&mut self.arena) {
            Ok(Some(received)) => {
                let linux::udp::Received { len, segment_size: segment, source, ecn } = received;
                let received = Received { endpoint: id, source, ecn, at: 0..len, segment };
                self.node.receive(&received, &mut self.arena, now, &mut self.outbox, deliver);
                if !self.is_up {
                    self.look();
                }
            }
            Ok(None) => {}
            Err(error) => debug!("{error}"),
        }
        Ok(true)
    }

    /// Where the payloads are that [`Carrier::receive`] has delivered.
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Takes an inner packet or GSO packet, with the header that a TUN device puts before it.
    pub fn send(&mut self, header: &virtio_net::Header, packet: &mut [u8], deliver: &mut dyn Deliver) {
        self.node.send(header, packet, self.clock.now(), &mut self.outbox, deliver);
    }

    /// Bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Sends what has gathered, then opens and closes endpoints.
    pub fn flush(&mut self) {
        self.send_outbox();
        while let Some(action) = self.node.next_action() {
            match action {
                Action::Open { id, local, remote } => {
                    let now = self.clock.now();
                    let opened = EndpointSocket::open(local, remote, &self.options).and_then(|socket| {
                        self.poller.add(&socket, id.as_u64(), Interest::Readable)?;
                        Ok(socket)
                    });
                    match opened {
                        Ok(socket) => {
                            self.endpoints.insert(id.as_u64(), Endpoint { id, socket });
                            self.node.opened(id, now);
                        }
                        Err(error) => {
                            self.node.open_failed(id, now);
                            self.complain(&error, *local.ip());
                        }
                    }
                }
                // It leaves the poller with its descriptor.
                Action::Close { id } => drop(self.endpoints.remove(&id.as_u64())),
                // Asked for only where the host has said that it can.
                Action::AddRewrite(_)
                | Action::RemoveRewrite(_)
                | Action::Replace { .. }
                | Action::AddMask(_)
                | Action::RemoveMask { .. }
                | Action::Mask { .. } => {}
            }
        }
    }

    /// Tells the peers that it ends. What waits for an answer is not waited for: they find out by themselves.
    pub fn end(&mut self) {
        self.node.end(self.clock.now(), &mut self.outbox);
        self.flush();
        self.is_up = false;
    }

    fn next_ready(&mut self) -> linux::Result<Option<Event>> {
        if self.ready.is_empty() {
            self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
            self.ready.extend(self.events.iter());
        }
        Ok(self.ready.pop())
    }

    /// Whether there is a session now.
    fn look(&mut self) {
        let now = self.clock.now();
        std::iter::from_fn(|| self.node.next_event()).for_each(|event| happened::tell(&event));
        let is_up = self
            .node
            .status(now)
            .any(|peer| matches!(peer.state, PeerState::Established | PeerState::Silent(_)));
        match (std::mem::replace(&mut self.is_up, is_up), is_up) {
            (false, true) => info!("the tunnel is there"),
            (true, false) => warn!("the tunnel is down: no peer answers"),
            _ => {}
        }
    }

    fn send_outbox(&mut self) {
        let now = self.clock.now();
        for (batch, bytes) in self.outbox.batches() {
            let sent = match self.endpoints.get(&batch.endpoint.as_u64()) {
                Some(Endpoint { socket, .. }) => {
                    let segment = (bytes.len() > batch.segment).then_some(batch.segment as u16);
                    socket.send(bytes, segment, batch.to, batch.ecn.bits())
                }
                None => Ok(SendOutcome::Dropped),
            };
            if let Some(why) = packet_path::failure(&sent) {
                self.node.send_failed(batch.endpoint, why, now);
            }
        }
        self.outbox.clear();
    }

    fn complain(&mut self, error: &linux::Error, address: Ipv6Addr) {
        debug!("{error}");
        if !std::mem::replace(&mut self.has_complained, true) {
            warn!(
                "{address} could not be opened, and is done without: {error} (is this end of the tunnel up already?)"
            );
        }
    }
}

impl AsFd for Carrier {
    /// Readable when there is something to [receive](Carrier::receive).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
