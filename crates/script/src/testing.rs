//! Tests that scripts carry: functions named `test_*`, and the module `test` that helps them.
//!
//! Each function runs in a fresh machine, on a clock that only it moves. What it calls is the script's own function,
//! with a packet as a hook would give it.

mod agreement;
mod play;
mod session;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::host::{FileError, Host, InterfaceError, Module};
use crate::packet::Packet;
use crate::protocol::Protocols;
pub use crate::syntax::names::Unknown;
use crate::vm::{Limits, Machine, Script, ScriptError, Verdict};
pub use agreement::disagreement;
pub use play::{Played, Player};
pub use session::{Answer, Session};
use wire::checksum::TransportChecksum;

/// Instructions for one test: it may run its script over many packets.
const INSTRUCTIONS: u64 = 1_000_000_000;
const PREFIX: &str = "test_";

/// Files that a script's tests may read, from folders that were granted.
pub trait Files {
    /// The module of this name, words with dots between them.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn module(&self, name: &str) -> Result<Option<Module>, FileError>;

    /// The content of a file beside the script.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn capture(&self, name: &str) -> Result<Vec<u8>, FileError>;
}

/// How one test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The function.
    pub name: String,
    /// What went wrong.
    pub error: Option<ScriptError>,
    /// What the script logged.
    pub log: Vec<String>,
    /// The packets that it gave to functions of its script.
    pub given: Vec<Given>,
}

/// What a function made of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The verdict, or why it failed.
    pub verdict: Result<Verdict, String>,
    /// Whether the packet leaves through another interface.
    pub redirected: bool,
    /// The packet, with its Ethernet header.
    pub frame: Vec<u8>,
    /// What it logged.
    pub log: Vec<String>,
    /// What it captured, by the names of the captures, from the IP header on.
    pub captured: Vec<(String, Vec<u8>)>,
    /// The copies that it sent, by the names of interfaces, with their Ethernet header.
    pub mirrored: Vec<(String, Vec<u8>)>,
}

/// What a script has, found by loading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Its global functions, in alphabetical order; those of tests are not among them.
    pub functions: Vec<String>,
    /// Its tests, in alphabetical order.
    pub tests: Vec<String>,
    /// The protocols that it declares.
    pub protocols: Vec<String>,
    /// Names in its text that nothing has: a packet would find that out.
    pub unknown: Vec<Unknown>,
}

/// What a test can see and change of the world.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) random: u64,
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) log: Vec<String>,
    /// Packets that were captured, by the names of the captures.
    pub(crate) captured: Vec<(String, Vec<u8>)>,
    /// Copies of packets, by the names of the interfaces that they are for.
    pub(crate) mirrored: Vec<(String, Vec<u8>)>,
    pub(crate) given: Vec<Given>,
    /// Interfaces that packets were redirected to, by their numbers from 1 on.
    pub(crate) interfaces: Vec<String>,
    /// Modules that were loaded.
    pub(crate) modules: Vec<Module>,
}

/// A packet that a test has given to a function of its script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The function.
    pub function: String,
    /// The packet, with its Ethernet header.
    pub frame: Vec<u8>,
}

struct TestHost {
    world: Rc<RefCell<World>>,
    files: Rc<dyn Files>,
}

impl Host for TestHost {
    fn now_ms(&mut self) -> u64 {
        self.world.borrow().now_ms
    }

    /// A sequence that is the same in every run (Knuth's multiplier for 64 bits).
    fn random(&mut self) -> u32 {
        let mut world = self.world.borrow_mut();
        world.random = world.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (world.random >> 32) as u32
    }

    fn send(&mut self, packet: &[u8], _: Option<&Packet>) {
        self.world.borrow_mut().sent.push(packet.to_vec());
    }

    /// Any name is that of one.
    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        let known = &mut self.world.borrow_mut().interfaces;
        let at = known.iter().position(|one| one == name).unwrap_or_else(|| {
            known.push(name.to_owned());
            known.len() - 1
        });
        Ok(at as u32 + 1)
    }

    fn log(&mut self, line: &str) {
        self.world.borrow_mut().log.push(line.to_owned());
    }

    fn capture(&mut self, name: &str, packet: &[u8]) {
        self.world.borrow_mut().captured.push((name.to_owned(), packet.to_vec()));
    }

    fn mirror(&mut self, interface: &str, frame: &[u8]) {
        self.world.borrow_mut().mirrored.push((interface.to_owned(), frame.to_vec()));
    }

    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError> {
        let found = self.files.module(name)?;
        self.world.borrow_mut().modules.extend(found.clone());
        Ok(found)
    }
}

/// Loads a script as it is loaded for packets, with the same limits and without the module `test`, and says what is in it.
///
/// # Errors
/// The script's.
pub fn inspect(path: &str, source: &str, files: &Rc<dyn Files>) -> Result<Contents, ScriptError> {
    let world = Rc::new(RefCell::new(World::default()));
    let host = TestHost { world: Rc::clone(&world), files: Rc::clone(files) };
    let modules = || std::mem::take(&mut world.borrow_mut().modules);
    Machine::new(host, Limits::default()).inspect(path, source, PREFIX, modules)
}

/// The protocols that a script knows once it is loaded.
///
/// # Errors
/// The script's.
pub fn protocols(path: &str, source: &str, files: &Rc<dyn Files>) -> Result<Protocols, ScriptError> {
    let host = TestHost { world: Rc::default(), files: Rc::clone(files) };
    Machine::new(host, Limits::default()).protocols_of(path, source)
}

/// Runs the tests of a script, for the packets that they give to its functions.
///
/// # Errors
/// The script's, of its text or of its first test that fails.
pub fn packets(path: &str, source: &str, files: &Rc<dyn Files>) -> Result<Vec<Given>, ScriptError> {
    let mut packets = Vec::new();
    for name in inspect(path, source, files)?.tests {
        let (mut machine, world) = machine(files);
        machine.test(path, source, &name, &world, files)?;
        packets.append(&mut world.borrow_mut().given);
    }
    Ok(packets)
}

/// Runs one test of a script.
pub fn run(path: &str, source: &str, name: &str, files: &Rc<dyn Files>) -> Outcome {
    let (mut machine, world) = machine(files);
    let error = machine.test(path, source, name, &world, files).err();
    let World { log, given, .. } = world.take();
    Outcome { name: name.to_owned(), error, log, given }
}

/// Gives frames to functions of a script, one after the other, from a fresh start and with the limits of packets.
///
/// # Errors
/// The script's, or that it has no such function.
pub fn replay(
    path: &str,
    source: &str,
    given: &[Given],
    files: &Rc<dyn Files>,
) -> Result<Vec<Made>, ScriptError> {
    let world = Rc::new(RefCell::new(World::default()));
    let host = TestHost { world: Rc::clone(&world), files: Rc::clone(files) };
    let mut machine = Machine::new(host, Limits::default());
    let mut rules = BTreeMap::new();
    let mut all = Vec::new();
    for Given { function, frame } in given {
        let rule = match rules.get(function) {
            Some(rule) => *rule,
            None => {
                let script = Script { function: function.clone(), ..Script::new(path, source) };
                let rule = machine.load(script)?;
                rules.insert(function.clone(), rule);
                rule
            }
        };
        world.borrow_mut().log.clear();
        let mut packet = Packet::of_frame(frame.clone(), TransportChecksum::Complete);
        let (verdict, error) = machine.run(rule, &mut packet);
        let mut world = world.borrow_mut();
        all.push(Made {
            verdict: error.map_or(Ok(verdict), |error| Err(error.message)),
            redirected: packet.redirected().is_some(),
            frame: packet.bytes().to_vec(),
            log: std::mem::take(&mut world.log),
            captured: std::mem::take(&mut world.captured),
            mirrored: std::mem::take(&mut world.mirrored),
        });
    }
    Ok(all)
}

fn machine(files: &Rc<dyn Files>) -> (Machine, Rc<RefCell<World>>) {
    let world = Rc::new(RefCell::new(World::default()));
    let host = TestHost { world: Rc::clone(&world), files: Rc::clone(files) };
    let limits = Limits { instructions: INSTRUCTIONS, memory: 256 << 20 };
    (Machine::new(host, limits), world)
}
