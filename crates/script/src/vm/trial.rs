//! The world in which a text is tried out before it is loaded: what it does there is gone with it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::core::Shared;
use super::named::Tables;
use crate::host::{FileError, Host, InterfaceError, Module};
use crate::packet::Packet;

/// Has the clock, the interfaces and the modules of the real one, and does nothing.
struct Trial(Rc<RefCell<Shared>>);

/// Such a world: tables are empty in it, and what is put off in it is never done.
pub(super) fn world(of: &Rc<RefCell<Shared>>) -> Rc<RefCell<Shared>> {
    let host = Box::new(Trial(Rc::clone(of)));
    Rc::new(RefCell::new(Shared { host, jobs: BTreeMap::new(), deferred: 0, tables: Tables::default() }))
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
