//! What a thread's scripts have of the host: clock, randomness, sending, log, modules.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use linux::queue::raw::Sender;
use script::host::{FileError, Host, InterfaceError, Module};
use script::packet::Packet;
use script::testing::Files as _;

use super::log::Log;
use super::redirect::Targets;
use super::statistics::Statistics;
use config::folder::Folder;

/// What scripts of all threads have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    /// Since when `nf.get_time` counts.
    pub(super) start: Instant,
    pub(super) log: Log,
    pub(super) sender: Arc<Sender>,
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
    fn now_ms(&mut self) -> u64 {
        self.common.start.elapsed().as_millis() as u64
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

    fn log(&mut self, line: &str) {
        self.common.log.add(self.context.id.get(), line);
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
