//! What Rust's functions in a Lua state stand on: its budget, and what it shares with the others of its machine.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, Table, VmState};

use super::error::fail;
use super::named::{Named, Tables, Waiting};
use super::twin::Twin;
use crate::host::Host;
use crate::metric::Declared;
use crate::protocol::Protocols;
use crate::store::Store;
use crate::trace::Lines;

/// Instructions between two looks at the budget.
const INSTRUCTIONS_PER_LOOK: u32 = 1000;
/// Octets that are copied in the time of an instruction: without this, a loop that makes a string of a large packet would
/// run for a second before its instructions are used up.
const OCTETS_PER_INSTRUCTION: usize = 64;
/// Most deferred calls that wait at a time.
pub const MAX_DEFERRED: usize = 4096;
/// Names of tables, counters and the like that packets may make: these are never forgotten.
const MOST_LATE_NAMES: usize = 256;

/// What a state may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lua instructions for one packet, in steps of 1000.
    pub instructions: u64,
    /// Octets of memory of a Lua state, as many again of byte arrays, and as many again that wait with deferred calls.
    pub memory: usize,
}

impl Default for Limits {
    /// A million instructions, some milliseconds: a packet that takes longer holds up all others. 16 MB.
    fn default() -> Self {
        Self { instructions: 1_000_000, memory: 16 << 20 }
    }
}

/// Deferred work.
pub(crate) struct Job {
    pub(crate) state: u32,
    pub(crate) function: String,
    pub(crate) id: i64,
    /// Octets, and the name of the protocol that they are.
    pub(crate) packet: Option<(Vec<u8>, String)>,
    pub(crate) origin: Option<Vec<u8>>,
    /// Its octets, as they count.
    pub(super) waiting: Waiting,
}

/// What all Lua states of a machine share.
pub(crate) struct Shared {
    pub(crate) host: Box<dyn Host>,
    /// By the time at which it is due, and the order in which it was put off.
    pub(crate) jobs: BTreeMap<(u64, u64), Job>,
    pub(super) deferred: u64,
    pub(crate) tables: Tables,
}

impl Shared {
    pub(crate) fn defer(&mut self, delay_ms: u64, job: Job) {
        let due = self.host.now_ms().saturating_add(delay_ms);
        self.wait(due, job);
    }

    pub(super) fn wait(&mut self, due: u64, job: Job) {
        self.deferred += 1;
        self.jobs.insert((due, self.deferred), job);
    }
}

/// Functions of `runtime.lua` for what is rare or the script's own.
pub(crate) struct Runtime {
    /// `(view, octets or nil)`: a byte array.
    pub(super) byte_array: Function,
    /// `(value)`: the octets of a byte array or view, as a string.
    pub(super) octets: Function,
    /// `(view, octets or nil, protocol, protocol whose policy is asked or nil)`: a view or nil.
    pub(super) dissect: Function,
    /// `(protocol, position of the field, view, octets or nil)`: what the script's getter returns.
    pub(super) getter: Function,
    /// The same with the value at the end.
    pub(super) setter: Function,
    /// `(byte array, protocol)`: a view or nil.
    pub(super) to_packet: Function,
}

impl Runtime {
    /// Takes them from what `runtime.lua` returned.
    pub(crate) fn of(entry: &Table) -> mlua::Result<Self> {
        Ok(Self {
            byte_array: entry.get("byte_array")?,
            octets: entry.get("octets")?,
            dissect: entry.get("dissect")?,
            getter: entry.get("getter")?,
            setter: entry.get("setter")?,
            to_packet: entry.get("to_packet")?,
        })
    }
}

/// What Rust's functions in a state share.
pub(crate) struct Core {
    pub(crate) store: RefCell<Store>,
    pub(crate) protocols: RefCell<Protocols>,
    pub(crate) shared: Rc<RefCell<Shared>>,
    pub(crate) runtime: OnceCell<Runtime>,
    /// Number of the state, for deferred work.
    pub(crate) state: u32,
    instructions_left: Cell<u64>,
    /// What is left besides while a test has a packet looked at.
    set_aside: Cell<Option<u64>>,
    exhausted: Cell<bool>,
    /// Whether the top level of a script runs.
    pub(super) is_loading: Cell<bool>,
    /// Octets in byte arrays, which Lua does not count.
    pub(crate) byte_arrays: Rc<Cell<usize>>,
    pub(crate) limits: Limits,
    /// Modules that `require` gives without asking the host.
    preloaded: RefCell<Vec<(&'static str, Table)>>,
    /// What its scripts have metrics export.
    pub(super) metrics: RefCell<Declared>,
    /// Where the packet goes that is followed.
    pub(super) trace: RefCell<Option<Lines>>,
    /// Functions with a second form for that.
    pub(super) twins: RefCell<Vec<Twin>>,
}

impl Core {
    /// Of a new state, which has nothing yet.
    pub(super) fn new(shared: Rc<RefCell<Shared>>, state: u32, limits: Limits) -> Self {
        Core {
            store: RefCell::default(),
            protocols: RefCell::default(),
            shared,
            runtime: OnceCell::new(),
            state,
            instructions_left: Cell::new(limits.instructions),
            set_aside: Cell::new(None),
            exhausted: Cell::new(false),
            is_loading: Cell::new(false),
            byte_arrays: Rc::default(),
            limits,
            preloaded: RefCell::default(),
            metrics: RefCell::default(),
            trace: RefCell::default(),
            twins: RefCell::default(),
        }
    }

    /// Whether a call has used up its instructions.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    /// Has `require` give this table, in place of an earlier one.
    pub(crate) fn preload(&self, name: &'static str, module: Table) {
        self.preloaded.borrow_mut().push((name, module));
    }

    /// A module that was given so.
    pub(crate) fn preloaded(&self, name: &str) -> Option<Table> {
        let modules = self.preloaded.borrow();
        modules.iter().rev().find(|(known, _)| *known == name).map(|(_, module)| module.clone())
    }

    /// Says something to who runs the script.
    pub(super) fn log(&self, line: &str) {
        self.shared.borrow_mut().host.log(line);
    }

    /// Says that a table's new limit is too small for what was in it, if it is.
    pub(super) fn log_forgotten(&self, name: &str, forgotten: usize, of: usize) {
        if forgotten > 0 {
            self.log(&format!("table {name:?} has room for {} of its {of} entries", of - forgotten));
        }
    }

    pub(crate) fn renew_budget(&self) {
        self.instructions_left.set(self.limits.instructions);
        self.set_aside.set(None);
        self.exhausted.set(false);
    }

    /// Has a test spend no more from here on than a packet may, until it [ends](Self::end_packet).
    pub(super) fn begin_packet(&self) {
        self.end_packet();
        let left = self.instructions_left.get();
        let own = left.min(Limits::default().instructions);
        self.instructions_left.set(own);
        self.set_aside.set(Some(left - own));
    }

    /// Gives a test back what it has besides.
    pub(super) fn end_packet(&self) {
        let besides = self.set_aside.take().unwrap_or(0);
        self.instructions_left.set(self.instructions_left.get() + besides);
    }

    /// Takes the work of copying so many octets off the budget, as instructions; the next look finds it used up.
    pub(crate) fn copies(&self, octets: usize) {
        let instructions = (octets / OCTETS_PER_INSTRUCTION) as u64;
        self.instructions_left.set(self.instructions_left.get().saturating_sub(instructions));
    }

    /// Refuses one more name of a table or the like, which is not there yet, once packets have made enough.
    pub(super) fn may_name(&self, lua: &Lua, named: &mut Named) -> mlua::Result<()> {
        if self.is_loading.get() {
            return Ok(());
        }
        if named.late >= MOST_LATE_NAMES {
            let what = "tables, counters and the like have been made while packets came, and are never forgotten: \
                        make them at the top level";
            return Err(fail(lua, format_args!("{MOST_LATE_NAMES} {what}")));
        }
        named.late += 1;
        Ok(())
    }

    /// Gives instructions back that were not the script's own.
    pub(super) fn give_back(&self, instructions: u64) {
        let left = self.instructions_left.get().saturating_add(instructions);
        self.instructions_left.set(left.min(self.limits.instructions));
    }

    /// Has the state look at its budget every so many instructions.
    pub(crate) fn watch(self: &Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        let core = Rc::clone(self);
        lua.set_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK), move |lua, _| {
            core.look(lua).map(|()| VmState::Continue)
        })
    }

    /// Writes down the lines that the state goes through from now on, until it is [watched](Self::watch) as usual; but not
    /// those that tell it by themselves. The budget is that of ordinary packets.
    pub(crate) fn follow(self: &Rc<Self>, lua: &Lua) {
        let core = Rc::clone(self);
        let triggers = HookTriggers::new().every_line().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        let hook = move |lua: &Lua, at: &mlua::debug::Debug<'_>| {
            if at.event() != mlua::debug::DebugEvent::Line {
                return core.look(lua).map(|()| VmState::Continue);
            }
            let source = at.source();
            let path = source.source.as_deref().and_then(|source| source.strip_prefix('@'));
            if let (Some(path), Some(number)) = (path, at.current_line())
                && let Some(lines) = &mut *core.trace.borrow_mut()
                && !core.is_of_twin(path, number)
            {
                lines.add(path, number, "");
            }
            Ok(VmState::Continue)
        };
        // It fails only without memory; then nothing is seen.
        let _ = lua.set_hook(triggers, hook);
    }

    /// Takes the instructions since the last look off the budget.
    fn look(&self, lua: &Lua) -> mlua::Result<()> {
        self.spend(lua, u64::from(INSTRUCTIONS_PER_LOOK))
    }

    /// What is left of the budget.
    pub(super) fn instructions_left(&self) -> u64 {
        self.instructions_left.get()
    }

    /// Takes work off the budget, as instructions. Once it is used up, all further work fails too.
    pub(super) fn spend(&self, lua: &Lua, instructions: u64) -> mlua::Result<()> {
        let left = self.instructions_left.get().saturating_sub(instructions);
        self.instructions_left.set(left);
        if left > 0 {
            return Ok(());
        }
        self.exhausted.set(true);
        let of_packet = self.set_aside.get().map(|_| Limits::default().instructions);
        let all = of_packet.unwrap_or(self.limits.instructions);
        // An error of a hook has no traceback of its own.
        let trace = lua.traceback(None, 0)?.to_string_lossy();
        let what = format_args!("used up its {all} instructions (is there a loop without an end?)\n{trace}");
        Err(fail(lua, what))
    }
}
