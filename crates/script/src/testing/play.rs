//! A capture goes through a script: each packet at its time, and what was put off when it is due.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Files, TestHost, World};
use crate::packet::Packet;
use crate::protocol::Protocols;
use crate::vm::{Limits, Machine, RuleId, Script, ScriptError, Verdict};

/// A script that captures are given to. It begins at its first packet, and is the same each time: the clock is that of the
/// capture, and random numbers are always those.
pub struct Player {
    machine: Machine,
    rule: RuleId,
    world: Rc<RefCell<World>>,
}

/// What has become of a packet, or of work that was put off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    /// When, in milliseconds since the first packet.
    pub at_ms: u64,
    /// The verdict, unless it was work that was put off.
    pub verdict: Option<Verdict>,
    /// Why it failed. The verdict is that for failures then.
    pub error: Option<ScriptError>,
    /// The interface that the packet leaves through.
    pub redirected: Option<String>,
    /// What the script has sent: packets that begin with an IP header.
    pub sent: Vec<Vec<u8>>,
    /// What it has logged.
    pub log: Vec<String>,
    /// Names of the captures that it has given the packet to.
    pub captured: Vec<String>,
    /// Names of the interfaces that copies of the packet went to.
    pub mirrored: Vec<String>,
}

impl Player {
    /// Loads a script as it is loaded for packets.
    ///
    /// # Errors
    /// The script's, or that it has no such function.
    pub fn load(script: Script, files: &Rc<dyn Files>) -> Result<Self, ScriptError> {
        let world = Rc::new(RefCell::new(World::default()));
        let host = TestHost { world: Rc::clone(&world), files: Rc::clone(files) };
        let mut machine = Machine::new(host, Limits::default());
        let rule = machine.load(script)?;
        // What loading it has said is not a packet's.
        let _ = world.take();
        Ok(Self { machine, rule, world })
    }

    /// The protocols that it knows.
    pub fn protocols(&self) -> Protocols {
        self.machine.protocol_table(0)
    }

    /// Does the first of the work that is due by then.
    pub fn due(&mut self, by_ms: u64) -> Option<Played> {
        let due = self.machine.next_due().filter(|due| *due <= by_ms)?;
        self.set_time(due);
        let done = self.machine.run_due()?;
        Some(self.played(None, done.err(), None))
    }

    /// Gives it a packet, which is changed. Time does not go back, whatever the capture says.
    pub fn packet(&mut self, at_ms: u64, packet: &mut Packet) -> Played {
        self.set_time(at_ms);
        let (verdict, error) = self.machine.run(self.rule, packet);
        let redirected = packet.redirected().and_then(|number| {
            let place = number.checked_sub(1)? as usize;
            self.world.borrow().interfaces.get(place).cloned()
        });
        self.played(Some(verdict), error, redirected)
    }

    fn set_time(&self, at_ms: u64) {
        let now = &mut self.world.borrow_mut().now_ms;
        *now = at_ms.max(*now);
    }

    fn played(
        &self,
        verdict: Option<Verdict>,
        error: Option<ScriptError>,
        redirected: Option<String>,
    ) -> Played {
        let mut world = self.world.borrow_mut();
        let (sent, log) = (std::mem::take(&mut world.sent), std::mem::take(&mut world.log));
        let captured = std::mem::take(&mut world.captured).into_iter().map(|(name, _)| name).collect();
        let mirrored = std::mem::take(&mut world.mirrored).into_iter().map(|(name, _)| name).collect();
        Played { at_ms: world.now_ms, verdict, error, redirected, sent, log, captured, mirrored }
    }
}
