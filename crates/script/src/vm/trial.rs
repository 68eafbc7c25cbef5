//! Worlds in which texts are tried out before they are loaded: what they do there is gone with it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::core::{Limits, Shared};
use super::named::Tables;
use super::state::State;
use crate::compile::shared;
use crate::contents::Contents as _;
use crate::host::{FileError, Host, InterfaceError, Module};
use crate::packet::Packet;

/// Has the clock, the interfaces and the modules of the real one, and does nothing.
struct Trial(Rc<RefCell<Shared>>);

/// Such a world: tables are empty in it, and what is put off in it is never done.
pub(super) fn world(of: &Rc<RefCell<Shared>>) -> Rc<RefCell<Shared>> {
    let host = Box::new(Trial(Rc::clone(of)));
    Rc::new(RefCell::new(Shared { host, jobs: BTreeMap::new(), deferred: 0, tables: Tables::default() }))
}

/// What scripts that share a state declare by name at their top levels: of each, what is there when it has run in one state
/// after those before it, or else, where it fails so, in a state of its own. Nothing of one that fails in both.
/// `scripts`: paths and texts; `host`: that of each of them.
pub(crate) fn declared(
    scripts: &[(String, String)],
    host: impl Fn(usize) -> Box<dyn Host>,
) -> Vec<Vec<shared::Shared>> {
    let world = |at| {
        let (jobs, tables) = (BTreeMap::new(), Tables::default());
        Rc::new(RefCell::new(Shared { host: host(at), jobs, deferred: 0, tables }))
    };
    let state = |world: &Rc<_>| State::new(Rc::clone(world), 0, Limits::default(), true);
    let there = |world: &Rc<RefCell<Shared>>| -> Vec<shared::Shared> {
        world.borrow().tables.all(0).iter().map(|named| named.shared().clone()).collect()
    };
    let of_all = world(0);
    let together = state(&of_all);
    let declared = scripts.iter().enumerate().map(|(at, (path, source))| {
        of_all.borrow_mut().host = host(at);
        if together.as_ref().is_ok_and(|together| together.load(source, path).is_ok()) {
            return there(&of_all);
        }
        let own = world(at);
        match state(&own).and_then(|alone| alone.load(source, path)) {
            Ok(()) => there(&own),
            Err(_) => Vec::new(),
        }
    });
    declared.collect()
}

impl Host for Trial {
    fn now_ms(&mut self) -> u64 {
        self.0.borrow_mut().host.now_ms()
    }

    fn random(&mut self) -> u32 {
        self.0.borrow_mut().host.random()
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        self.0.borrow_mut().host.interface(name)
    }

    fn log(&mut self, _: &str) {}

    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError> {
        self.0.borrow_mut().host.module(name)
    }
}
