//! TCP as the interface sees it: the sockets, what is to be done for them, and what segments have led to.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipsec::policy;
use ipsec::request::SocketId;
use wire::protocol;

use super::agenda::Agenda;
use super::sockets::{Endpoint, Holder, Marks, Socket, Sockets, TcpHandle, end, mapped};
use crate::limit::Limit;
use crate::random::{Key, Random};
use crate::tcp::{Connection, Drops, Flow, Secrets};

/// Connections that were released and have not ended, most of them in TIME-WAIT: 2 KB each, and what they still have to
/// send. Of more, the oldest ends at once: a server whose clients do not close must not run out of memory.
pub const MAX_RELEASED: usize = 4096;

/// RST that strangers of a network get at once.
const RESETS: u32 = 32;
/// Between two RST to a network after that: a hundred a second. More would only serve who wants others to be hit by them in
/// their name.
const RESET_PAUSE: Duration = Duration::from_millis(10);
/// Networks are told apart as far as that. One limit for all would tell each of them how many RST the others get, and so
/// whether a connection of theirs exists (as CVE-2016-5696 did).
const RESET_LIMITS: usize = 64;
/// Sockets of TCP have the numbers from here on, those of the interface the others.
const FIRST_NUMBER: u64 = 1 << 31;

/// TCP of a host.
pub(super) struct Transport {
    pub(super) sockets: Sockets,
    pub(super) agenda: Agenda,
    pub(super) secrets: Secrets,
    /// Of ephemeral ports.
    pub(super) counter: u16,
    pub(super) drops: Drops,
    /// Of RST to strangers, by a keyed hash of their network.
    resets: Box<[Limit]>,
    /// Accepted connections have had so many numbers for the policy.
    numbered: u64,
    pub(super) answers: Answers,
    /// Destinations that are heard from, for neighbor discovery; as many at most as packets came at once.
    pub(super) confirmed: Vec<Ipv6Addr>,
    /// Sockets that are no more, which security has not heard of yet.
    pub(super) closed: Vec<SocketId>,
    released: usize,
    /// The released ones, oldest first, among others that are gone.
    oldest_released: VecDeque<(u32, TcpHandle)>,
    /// Of flow labels (RFC 6437 §3).
    label_key: Key,
}

/// A segment to a stranger.
pub(super) struct Answer {
    pub(super) flow: Flow,
    pub(super) length: usize,
    /// What the listener that answers asks of security.
    pub(super) policy: Option<policy::Socket>,
    pub(super) marks: Marks,
}

/// Segments to strangers, one behind the other, until the call that they answer returns.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) bytes: Vec<u8>,
    pub(super) list: Vec<Answer>,
}

impl Transport {
    pub(super) fn new(now: Instant, random: &mut Random) -> Self {
        Transport {
            sockets: Sockets::new(random.octets()),
            agenda: Agenda::default(),
            secrets: Secrets::new(random.octets(), now),
            counter: random.u32() as u16,
            drops: Drops::default(),
            resets: vec![Limit::new(RESETS, RESET_PAUSE, now); RESET_LIMITS].into_boxed_slice(),
            numbered: 0,
            answers: Answers::default(),
            confirmed: Vec::new(),
            closed: Vec::new(),
            released: 0,
            oldest_released: VecDeque::new(),
            label_key: Key::new(random.octets()),
        }
    }

    /// A number for the policy that no other socket of TCP has.
    pub(super) fn number(&mut self) -> SocketId {
        self.numbered += 1;
        // PF_KEY carries 32 bits. Who has opened so many sockets has long closed the first.
        SocketId(FIRST_NUMBER + self.numbered % (FIRST_NUMBER - 0x4000))
    }

    /// Whether a stranger may be sent a RST now; then it counts.
    pub(super) fn may_reset(&mut self, now: Instant, remote: Ipv6Addr) -> bool {
        let octets = remote.octets();
        let network = if remote.to_ipv4_mapped().is_some() { &octets[12..] } else { &octets[..8] };
        let limit = self.label_key.hash(&[network]) as usize % RESET_LIMITS;
        self.resets[limit].take(now)
    }

    /// The flow label, never 0 (RFC 6437 §3).
    pub(super) fn flow_label(&self, flow: &Flow) -> u32 {
        let octets = |address| mapped(address).octets();
        let (local, remote) = (octets(flow.local.ip()), octets(flow.remote.ip()));
        let ports = [flow.local.port().to_be_bytes(), flow.remote.port().to_be_bytes()];
        let parts = [&local[..], &remote, &ports[0], &ports[1], &[protocol::TCP]];
        (self.label_key.hash(&parts) as u32 & 0xf_ffff).max(1)
    }

    pub(super) fn add(
        &mut self,
        flow: Flow,
        connection: Connection,
        holder: Holder,
        policy: policy::Socket,
        marks: Marks,
        largest: usize,
    ) -> (u32, TcpHandle) {
        let flow_label = self.flow_label(&flow);
        let endpoint =
            Endpoint { flow, connection, holder, policy, flow_label, marks, largest, confirmed: None };
        let added = self.sockets.add_connection(Box::new(endpoint));
        self.agenda.ready(added.0);
        added
    }

    /// Does for a connection what follows from anything that has happened to it. What is over gives its place back, once
    /// nobody holds it.
    pub(super) fn settle(&mut self, index: u32) {
        let Some(endpoint) = self.sockets.connection(index) else { return };
        if !endpoint.connection.is_closed() {
            let deadline = endpoint.connection.deadline();
            return self.agenda.schedule(index, deadline);
        }
        match endpoint.holder {
            Holder::User => self.sockets.detach(index),
            Holder::Backlog(listener) => {
                if let Some(listening) = self.sockets.listener(listener) {
                    listening.backlog.retain(|waiting| *waiting != index);
                    listening.pause_if_full();
                }
                self.remove(index);
            }
            Holder::Nobody => self.remove(index),
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.agenda.take_due(now) {
            match self.sockets.get(index) {
                Some(Socket::Connection(endpoint)) => {
                    endpoint.connection.handle_timeout(now);
                    self.agenda.changed(index);
                    self.settle(index);
                }
                Some(Socket::Listener(listening)) => listening.listener.handle_timeout(now),
                None => continue,
            }
            self.agenda.ready(index);
        }
    }

    /// Makes sure that a listener is visited in time.
    pub(super) fn schedule_listener(&mut self, index: u32) {
        let Some(listening) = self.sockets.listener(index) else { return };
        listening.half_open = listening.listener.half_open();
        let deadline = listening.listener.deadline();
        self.agenda.schedule(index, deadline);
    }

    /// Nobody holds the connection any longer.
    pub(super) fn let_go(&mut self, now: Instant, index: u32) {
        let Some(endpoint) = self.sockets.connection(index) else { return };
        endpoint.connection.abandon(now);
        endpoint.holder = Holder::Nobody;
        self.sockets.withdraw(index);
        if let Some(handle) = self.sockets.handle(index) {
            self.oldest_released.push_back((index, handle));
            self.released += 1;
        }
        self.agenda.ready(index);
        self.settle(index);
        self.bound_released();
    }

    /// Ends a connection at once.
    pub(super) fn abort(&mut self, index: u32) {
        let Some(endpoint) = self.sockets.connection(index) else { return };
        endpoint.connection.abort();
        if endpoint.holder != Holder::Nobody {
            endpoint.holder = Holder::Nobody;
            self.released += 1;
        }
        self.sockets.withdraw(index);
        self.agenda.ready(index);
        self.settle(index);
    }

    /// The place of a connection that nobody holds is free.
    pub(super) fn remove(&mut self, index: u32) {
        let removed = self.sockets.remove(index);
        self.agenda.forget(index);
        if let Some(Socket::Connection(endpoint)) = removed {
            self.closed.push(endpoint.policy.id);
            if endpoint.holder == Holder::Nobody {
                self.released = self.released.saturating_sub(1);
            }
        }
    }

    /// Each call follows one release, so that one end is enough.
    fn bound_released(&mut self) {
        if self.released > MAX_RELEASED {
            while let Some((index, handle)) = self.oldest_released.pop_front() {
                if self.sockets.held(handle).is_ok() {
                    self.abort(index);
                    break;
                }
            }
        }
        if self.oldest_released.len() > 2 * MAX_RELEASED {
            let sockets = &self.sockets;
            self.oldest_released.retain(|(_, handle)| sockets.held(*handle).is_ok());
        }
    }
}

/// Our address and theirs.
pub(super) fn addresses(flow: &Flow) -> (Ipv6Addr, Ipv6Addr) {
    (*end(flow.local).ip(), *end(flow.remote).ip())
}
