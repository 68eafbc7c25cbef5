//! What a thread's scripts have of the host: clock, randomness, sending, log, modules.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use linux::clock::monotonic_ms;
use linux::queue::raw::Sender;
use script::host::{FileError, Host, InterfaceError, Module};
use script::logged::Logged;
use script::packet::Packet;
use script::streams::{Decided, StreamKey};
use script::testing::Files as _;

use super::captures::Captures;
use super::decided::OwnMaps;
use super::links::Links;
use super::log::Log;
use super::mirrors::Mirrors;
use super::redirect::Targets;
use super::statistics::Statistics;
use config::folder::Folder;

/// What scripts of all threads have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) log: Log,
    pub(super) captures: Captures,
    pub(super) sender: Arc<Sender>,
    /// The interfaces that packets are copied to.
    pub(super) links: Links,
}

/// What a thread is doing: it says so before it calls a script.
#[derive(Debug, Default)]
pub(super) struct ThreadContext {
    /// Which script runs; the host itself has number 0.
    pub(super) id: Cell<u32>,
    /// Its counters.
    pub(super) statistics: RefCell<Option<Arc<Statistics>>>,
    /// Index of the interface that the packet came from, or else goes to.
    pub(super) interface: Cell<u32>,
    /// Where packets are redirected to.
    pub(super) targets: RefCell<Targets>,
    /// Whether all of the packet is there: of a very long one the queue gives a part.
    pub(super) is_whole: Cell<bool>,
    /// Where packets are copied to.
    pub(super) mirrors: RefCell<Mirrors>,
    /// Where the kernel finds what each script has decided of streams.
    pub(super) own: RefCell<Vec<(u32, OwnMaps)>>,
    /// Where modules are looked for, in this order.
    pub(super) folders: RefCell<Vec<Folder>>,
}

/// The host, for the scripts of one thread.
pub(super) struct ThreadHost {
    common: Common,
    context: Rc<ThreadContext>,
    /// Random bytes, and how many are used.
    random: ([u8; 256], usize),
}

impl ThreadHost {
    pub(super) fn new(common: Common, context: Rc<ThreadContext>) -> Self {
        Self { common, context, random: ([0; 256], 256) }
    }
}

impl Host for ThreadHost {
    /// As in the kernel: a script may be in both tiers.
    fn now_ms(&mut self) -> u64 {
        monotonic_ms()
    }

    fn random(&mut self) -> u32 {
        let (bytes, used) = &mut self.random;
        if *used == bytes.len() {
            // The kernel's generator answers from the start of the system on.
            let _ = getrandom::fill(bytes);
            *used = 0;
        }
        let word = bytes[*used..].first_chunk().copied().unwrap_or_default();
        *used += 4;
        u32::from_ne_bytes(word)
    }

    fn send(&mut self, packet: &[u8], _: Option<&Packet>) {
        let context = &self.context;
        match self.common.sender.send(packet, context.interface.get()) {
            Ok(()) => {
                if let Some(statistics) = &*context.statistics.borrow() {
                    statistics.sent();
                }
            }
            Err(error) => self.common.log.add(context.id.get(), &format!("nf.create_packet: {error}")),
        }
    }

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        self.context.targets.borrow_mut().number(name)
    }

    fn was_decided(&mut self, streams: &str, stream: &StreamKey) -> Option<Decided> {
        let id = self.context.id.get();
        self.context.own.borrow().iter().filter(|(of, _)| *of == id).find_map(|(_, own)| {
            own.known(streams, stream)
                .inspect_err(|error| self.common.log.add(id, &error.to_string()))
                .unwrap_or(None)
        })
    }

    /// What begins anew is told to all halves in the kernel: scripts of one state share their streams.
    fn decided(&mut self, streams: &str, stream: &StreamKey, decided: Option<&Decided>) {
        let id = self.context.id.get();
        for (_, own) in self.context.own.borrow().iter().filter(|(of, _)| decided.is_none() || *of == id) {
            if let Err(error) = own.note(streams, stream, decided) {
                self.common.log.add(id, &error.to_string());
            }
        }
    }

    fn log(&mut self, line: &str) {
        self.common.log.add(self.context.id.get(), line);
    }

    fn log_fields(&mut self, logged: &Logged) {
        self.common.log.add_logged(self.context.id.get(), logged);
    }

    fn capture(&mut self, name: &str, packet: &[u8]) {
        self.common.captures.add(self.context.id.get(), name, packet);
    }

    fn mirror(&mut self, interface: &str, frame: &[u8]) {
        if !self.context.is_whole.get() {
            return;
        }
        let sent = self.context.mirrors.borrow_mut().send(&self.common.links, interface, &mut frame.to_vec());
        sent.unwrap_or_else(|error| {
            self.common.log.add(self.context.id.get(), &format!("nf.mirror: {error}"));
        });
    }

    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError> {
        for folder in &*self.context.folders.borrow() {
            if let Some(module) = folder.module(name)? {
                return Ok(Some(module));
            }
        }
        Ok(None)
    }
}
