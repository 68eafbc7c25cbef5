//! Packet threads of a site: workers, and what is on its way between them and the node.

use std::collections::{HashMap, VecDeque};

use sidestep_mt6d::{EndpointId, Notice, Outbox, PacketWorker, Update};
use wire::virtio_net;

use super::site::Delivered;
use super::{Datagram, Network, SECOND, What};

/// How long a message from one thread to another takes at most, in microseconds.
const LATE: u64 = 300;

/// None, where the node carries all packets itself.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) workers: Vec<PacketWorker>,
    /// Which of them receives what comes to an endpoint.
    attached: HashMap<EndpointId, usize>,
    updates: VecDeque<(u64, Update)>,
    notices: VecDeque<(u64, Notice)>,
}

impl Network {
    /// Gives the site so many packet threads.
    pub(super) fn start_threads(&mut self, index: usize, count: usize) {
        let site = &mut self.sites[index];
        let node = site.node.as_mut().expect("the node is up");
        let workers = if count == 0 { Vec::new() } else { node.packet_workers(count) };
        site.threads = Threads { workers, ..Threads::default() };
    }

    /// An endpoint is open: before the node knows, so does the thread that is to receive from it.
    pub(super) fn attach(&mut self, index: usize, endpoint: EndpointId) {
        let site = &mut self.sites[index];
        let count = site.threads.workers.len();
        if let Some((receiver, place)) = site.node().receiver(endpoint).filter(|_| count > 0) {
            let thread = place % count;
            site.threads.workers[thread].attach(endpoint, receiver);
            site.threads.attached.insert(endpoint, thread);
        }
    }

    pub(super) fn detach(&mut self, index: usize, endpoint: EndpointId) {
        let threads = &mut self.sites[index].threads;
        if let Some(thread) = threads.attached.remove(&endpoint) {
            threads.workers[thread].detach(endpoint);
        }
    }

    /// The node may have updates for its workers.
    pub(super) fn send_updates(&mut self, index: usize) {
        while let Some(update) = self.sites[index].node().next_update() {
            let updates = &self.sites[index].threads.updates;
            let at = self.threads.between(0, LATE) + self.now;
            let at = updates.back().map_or(at, |(before, _)| at.max(*before));
            self.sites[index].threads.updates.push_back((at, update));
            self.push(at, What::Threads { site: index });
        }
    }

    /// Messages between threads arrive.
    pub(super) fn messages_arrive(&mut self, index: usize) {
        let site = &mut self.sites[index];
        if site.suspended {
            return self.push(self.now + SECOND / 10, What::Threads { site: index });
        }
        let (now, threads) = (self.now, &mut site.threads);
        while let Some((_, update)) = threads.updates.pop_front_if(|(at, _)| *at <= now) {
            for worker in &mut threads.workers {
                worker.update(update.clone());
            }
        }
        while let Some((_, notice)) = self.sites[index].threads.notices.pop_front_if(|(at, _)| *at <= now) {
            self.with(index, |node, now, outbox, deliver| node.notice(notice, now, outbox, deliver));
        }
    }

    /// A packet thread takes an inner packet. False if there is none.
    pub(super) fn thread_sends(
        &mut self,
        index: usize,
        header: virtio_net::Header,
        packet: &mut [u8],
    ) -> bool {
        let site = &mut self.sites[index];
        let count = site.threads.workers.len();
        if count == 0 {
            return false;
        }
        let thread = wire::flow::hash(packet).unwrap_or(0) as usize % count;
        let now = site.clock.now(self.now);
        let mut outbox = std::mem::take(&mut site.outbox);
        site.threads.workers[thread].send(&header, packet, now, &mut outbox);
        self.thread_did(index, thread, outbox);
        true
    }

    /// A packet thread takes a datagram. False if its endpoint is the node's.
    pub(super) fn thread_receives(
        &mut self,
        index: usize,
        endpoint: EndpointId,
        datagram: &Datagram,
    ) -> bool {
        let site = &mut self.sites[index];
        let Some(&thread) = site.threads.attached.get(&endpoint) else { return false };
        let now = site.clock.now(self.now);
        let (mut arena, mut delivered) = (datagram.payload.clone(), Delivered::default());
        let all = 0..arena.len();
        let worker = &mut site.threads.workers[thread];
        worker.receive(&datagram.received(endpoint, all), &mut arena, now, &mut delivered);
        for packet in delivered.packets {
            self.deliver(index, packet);
        }
        self.thread_did(index, thread, Outbox::new());
        true
    }

    fn thread_did(&mut self, index: usize, thread: usize, mut outbox: Outbox) {
        for (batch, bytes) in outbox.batches() {
            if !self.sites[index].asked.contains_key(&batch.endpoint) {
                self.sites[index].threads.workers[thread]
                    .send_failed(batch.endpoint, sidestep_mt6d::SendFailure::Other);
                continue;
            }
            for payload in bytes.chunks(batch.segment) {
                self.transmit(index, batch.endpoint, batch.to, batch.ecn, payload);
            }
        }
        outbox.clear();
        let site = &mut self.sites[index];
        site.outbox = outbox;
        let notices: Vec<_> = site.threads.workers[thread].notices().collect();
        for notice in notices {
            let at = self.threads.between(0, LATE) + self.now;
            let waiting = &mut self.sites[index].threads.notices;
            let at = waiting.back().map_or(at, |(before, _)| at.max(*before));
            waiting.push_back((at, notice));
            self.push(at, What::Threads { site: index });
        }
    }
}
