//! The user tier: scripts in Lua states, packets given to them, and what they have put off.

mod core;
mod error;
mod library;
mod metrics;
mod named;
mod natives;
mod options;
pub mod outside;
mod pattern;
mod state;
mod streams;
mod strings;
pub(crate) mod tables;
mod testing;
pub(crate) mod toplevel;
pub mod traced;
mod trial;
mod twin;
mod verdict;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use self::core::{Job, Shared};
pub use self::core::{Limits, MAX_DEFERRED};
pub use error::{ErrorKind, ScriptError};
use mlua::{Function, Value};
pub use named::Tables;
use state::State;
pub use testing::Interactive;
pub(crate) use toplevel::LIBRARIES;
pub(crate) use trial::declared;
pub use verdict::Verdict;

use crate::host::{Host, NoHost};
use crate::packet::Packet;
use crate::protocol::{Protocol, Protocols};
use crate::trace::Lines;

/// A script and how it is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Where it came from: messages name it, and a script of the same path in the same state is the same script.
    pub path: String,
    /// Its text.
    pub source: String,
    /// The function that gets the packets.
    pub function: String,
    /// The Lua state that it shares with others of the same number.
    pub state: u32,
    /// The verdict if it fails.
    pub failure: Verdict,
}

impl Script {
    /// A script with the defaults: `process_packet` in state 0; a packet that it fails at is dropped.
    pub fn new(path: &str, source: &str) -> Self {
        Self {
            path: path.to_owned(),
            source: source.to_owned(),
            function: "process_packet".to_owned(),
            state: 0,
            failure: Verdict::Drop,
        }
    }
}

/// Stands for a rule: a function that packets are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(usize);

/// What a rule has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that it was given.
    pub packets: u64,
    /// Of these, ones that it failed at.
    pub failures: u64,
}

/// Deferred work that is handed to another machine, see [`Machine::take_deferred`].
pub struct Deferred {
    due_ms: u64,
    job: Job,
}

/// Lua states, the rules that use them, and the state of scripts that outlives both.
///
/// It belongs to one thread. What goes wrong in a script stays in it: the packet gets the rule's verdict for failures,
/// and the next packet finds the state as it was left.
pub struct Machine {
    shared: Rc<RefCell<Shared>>,
    limits: Limits,
    states: BTreeMap<u32, Loaded>,
    /// A place stays empty when its rule is removed: others keep their numbers.
    rules: Vec<Option<Rule>>,
}

/// A state made anew with other texts of its scripts, beside the one that is in use.
pub struct Prepared {
    state: u32,
    loaded: Loaded,
    functions: Vec<(usize, Function)>,
}

/// A state number's Lua states, and what is loaded in them.
struct Loaded {
    packets: State,
    /// Made when there is deferred work.
    deferred: Option<State>,
    scripts: Vec<(String, String)>,
}

struct Rule {
    script: Script,
    function: Function,
    counters: Counters,
}

impl Machine {
    /// A machine without scripts.
    pub fn new(host: impl Host + 'static, limits: Limits) -> Self {
        Self::with_tables(host, limits, Tables::default())
    }

    /// A machine without scripts, whose scripts find in `nf.table` and its like what those of other machines with the
    /// same tables put there.
    pub fn with_tables(host: impl Host + 'static, limits: Limits, tables: Tables) -> Self {
        let shared = Shared { host: Box::new(host), jobs: BTreeMap::new(), deferred: 0, tables };
        Self { shared: Rc::new(RefCell::new(shared)), limits, states: BTreeMap::new(), rules: Vec::new() }
    }

    /// Loads a script and makes a rule of it. Where its state has it already, with the same text, that one is used.
    /// With another text the state is made anew, with all its scripts: what is in `nf.table` and its like stays.
    ///
    /// # Errors
    /// The script's, from which nothing changes.
    pub fn load(&mut self, script: Script) -> Result<RuleId, ScriptError> {
        if !self.has(&script) {
            let trial = self.try_out(script.state, &[(script.path.clone(), script.source.clone())])?;
            trial.function(&script.function).ok_or_else(|| missing(&script.path, &script.function))?;
        }
        let known = self.states.get(&script.state);
        let same_path = known.and_then(|loaded| loaded.scripts.iter().find(|(path, _)| *path == script.path));
        match (known, same_path) {
            (Some(_), Some((_, source))) if *source == script.source => {}
            (Some(loaded), None) => loaded.packets.load(&script.source, &script.path)?,
            _ => {
                let prepared = self.renew(script.state, &[(script.path.clone(), script.source.clone())])?;
                self.commit(prepared);
            }
        }
        let no_function = || missing(&script.path, &script.function);
        let loaded = self.states.get_mut(&script.state).ok_or_else(no_function)?;
        if !loaded.scripts.iter().any(|(path, _)| *path == script.path) {
            loaded.scripts.push((script.path.clone(), script.source.clone()));
            loaded.deferred = None;
        }
        let function = loaded.packets.function(&script.function).ok_or_else(no_function)?;
        self.rules.push(Some(Rule { script, function, counters: Counters::default() }));
        Ok(RuleId(self.rules.len() - 1))
    }

    /// Whether a state can be [prepared](Self::prepare) with these texts. Nothing of it lasts, in no table either.
    ///
    /// # Errors
    /// As for `prepare`.
    pub fn check(&self, state: u32, texts: &[(String, String)]) -> Result<(), ScriptError> {
        self.try_out(state, texts).map(drop)
    }

    /// Makes a state anew beside the one in use, with other texts of some of its scripts (path and source) and the rest as
    /// they are. Nothing changes before it is [committed](Self::commit), but for what the texts put into tables.
    ///
    /// # Errors
    /// The script's: its text, or a function that a rule has and the text does not.
    pub fn prepare(&self, state: u32, texts: &[(String, String)]) -> Result<Prepared, ScriptError> {
        self.check(state, texts)?;
        self.renew(state, texts)
    }

    /// Whether a state has this text of a script.
    fn has(&self, script: &Script) -> bool {
        let loaded = self.states.get(&script.state);
        let is_same = |(path, source): &(String, String)| *path == script.path && *source == script.source;
        loaded.is_some_and(|loaded| loaded.scripts.iter().any(is_same))
    }

    /// The scripts of a state, with other texts of some of them, which are the last.
    fn scripts(&self, state: u32, texts: &[(String, String)]) -> Vec<(String, String)> {
        let mut scripts = self.states.get(&state).map_or_else(Vec::new, |loaded| loaded.scripts.clone());
        scripts.retain(|(known, _)| texts.iter().all(|(path, _)| path != known));
        scripts.extend_from_slice(texts);
        scripts
    }

    /// Runs texts where nothing of them lasts: with empty tables, and a host that sends and logs nothing. What they are
    /// refused for there has changed nothing.
    fn try_out(&self, state: u32, texts: &[(String, String)]) -> Result<State, ScriptError> {
        let world = trial::world(&self.shared);
        let trial = State::new(world, state, self.limits, true)?;
        for (path, source) in self.scripts(state, texts) {
            trial.load(&source, &path)?;
        }
        for rule in self.rules.iter().flatten().filter(|rule| rule.script.state == state) {
            let name = &rule.script.function;
            trial.function(name).ok_or_else(|| missing(&rule.script.path, name))?;
        }
        Ok(trial)
    }

    fn renew(&self, state: u32, texts: &[(String, String)]) -> Result<Prepared, ScriptError> {
        let scripts = self.scripts(state, texts);
        let packets = self.state(state, &scripts, true)?;
        let mut functions = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            if let Some(rule) = rule.as_ref().filter(|rule| rule.script.state == state) {
                let name = &rule.script.function;
                functions.push((at, packets.function(name).ok_or_else(|| missing(&rule.script.path, name))?));
            }
        }
        let loaded = Loaded { packets, deferred: None, scripts };
        Ok(Prepared { state, loaded, functions })
    }

    /// Puts a prepared state in the place of the one in use, whose globals are gone; what is in `nf.table` and its like
    /// stays. The next packet finds the new one.
    pub fn commit(&mut self, prepared: Prepared) {
        for (at, function) in prepared.functions {
            if let Some(Some(rule)) = self.rules.get_mut(at) {
                rule.function = function;
                let own = prepared.loaded.scripts.iter().find(|(path, _)| *path == rule.script.path);
                if let Some((_, source)) = own {
                    rule.script.source.clone_from(source);
                }
            }
        }
        self.states.insert(prepared.state, prepared.loaded);
    }

    /// Forgets a rule. A state that has no rules any more goes, too, with its deferred work.
    pub fn remove(&mut self, rule: RuleId) {
        let Some(removed) = self.rules[rule.0].take() else { return };
        let state = removed.script.state;
        if !self.rules.iter().flatten().any(|rule| rule.script.state == state) {
            self.states.remove(&state);
        }
    }

    /// Gives a packet to a rule. It is changed in place.
    ///
    /// The verdict is that of the script, or the one for failures, with the error.
    ///
    /// # Panics
    /// If the rule has been removed.
    pub fn run(&mut self, rule: RuleId, packet: &mut Packet) -> (Verdict, Option<ScriptError>) {
        let Some(rule) = &mut self.rules[rule.0] else {
            unreachable!("a rule that was removed gets no packets")
        };
        rule.counters.packets += 1;
        let result = match self.states.get(&rule.script.state) {
            Some(loaded) => run(&loaded.packets, &rule.function, &rule.script.function, packet),
            None => unreachable!("a rule keeps its state"),
        };
        match result {
            Ok(verdict) => (verdict, None),
            Err(mut error) => {
                rule.counters.failures += 1;
                if error.kind == ErrorKind::Memory {
                    // Lua has no memory left to say where.
                    error.message.insert_str(0, &format!("{}: ", rule.script.path));
                }
                if let Some(loaded) = self.states.get(&rule.script.state) {
                    loaded.packets.core.name_lines(&mut error);
                }
                (rule.script.failure, Some(error))
            }
        }
    }

    /// Gives a packet to a rule, and tells through which lines of its scripts it went, in their order, and what came of it
    /// there: of functions whose text has a [second form](traced::with_twins), and otherwise the lines alone.
    pub fn trace(&mut self, rule: RuleId, packet: &mut Packet) -> (Verdict, Option<ScriptError>, Lines) {
        let followed = self.rules[rule.0].as_ref().and_then(|rule| {
            let state = &self.states.get(&rule.script.state)?.packets;
            Some((rule.function.clone(), state.lua.clone(), Rc::clone(&state.core)))
        });
        let Some((function, lua, core)) = followed else {
            unreachable!("a rule that was removed gets no packets");
        };
        core.renew_budget();
        let twin = core.put_twins(true, &function);
        self.set_function(rule, twin);
        traced::begin(&core);
        core.follow(&lua);
        let (verdict, error) = self.run(rule, packet);
        // As it was: a hook for each line costs much more than the script.
        let _ = core.watch(&lua);
        core.renew_budget();
        core.put_twins(false, &function);
        self.set_function(rule, function);
        (verdict, error, traced::end(&core))
    }

    /// The text of a script, as it is loaded: it may have [second forms](traced::with_twins) behind it.
    pub fn source(&self, path: &str) -> Option<&str> {
        let mut scripts = self.states.values().flat_map(|loaded| &loaded.scripts);
        scripts.find(|(known, _)| known == path).map(|(_, source)| &**source)
    }

    fn set_function(&mut self, rule: RuleId, function: Function) {
        if let Some(rule) = &mut self.rules[rule.0] {
            rule.function = function;
        }
    }

    /// What a rule has seen.
    pub fn counters(&self, rule: RuleId) -> Counters {
        self.rules[rule.0].as_ref().map_or_else(Counters::default, |rule| rule.counters)
    }

    /// Takes the deferred work out, for another machine with the same scripts and clock.
    pub fn take_deferred(&mut self) -> Vec<Deferred> {
        let mut shared = self.shared.borrow_mut();
        if shared.jobs.is_empty() {
            return Vec::new();
        }
        let jobs = std::mem::take(&mut shared.jobs);
        jobs.into_iter().map(|((due_ms, _), job)| Deferred { due_ms, job }).collect()
    }

    /// Takes deferred work over. False if [`MAX_DEFERRED`] are waiting already: then it is left out.
    pub fn give(&mut self, work: Deferred) -> bool {
        let mut shared = self.shared.borrow_mut();
        let room = shared.jobs.len() < MAX_DEFERRED;
        if room {
            shared.wait(work.due_ms, work.job);
        }
        room
    }

    /// When the next deferred work is due, in the host's milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.shared.borrow().jobs.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Does the first of the work that is due by now: none if there is none, otherwise how it ended.
    pub fn run_due(&mut self) -> Option<Result<(), ScriptError>> {
        let job = {
            let mut shared = self.shared.borrow_mut();
            let now = shared.host.now_ms();
            let first = shared.jobs.first_entry().filter(|entry| entry.key().0 <= now)?;
            first.remove()
        };
        Some(self.defer(job))
    }

    fn defer(&mut self, job: Job) -> Result<(), ScriptError> {
        let Some(loaded) = self.states.get(&job.state) else { return Ok(()) };
        if loaded.deferred.is_none() {
            let state = self.state(job.state, &loaded.scripts, false)?;
            if let Some(loaded) = self.states.get_mut(&job.state) {
                loaded.deferred = Some(state);
            }
        }
        let Some(state) = self.states.get(&job.state).and_then(|loaded| loaded.deferred.as_ref()) else {
            return Ok(());
        };
        run_job(state, job)
    }

    /// The protocols that the scripts of a state know.
    pub fn protocols(&self, state: u32) -> Vec<Protocol> {
        let loaded = self.states.get(&state);
        loaded
            .map_or_else(Vec::new, |loaded| loaded.packets.core.protocols.borrow().iter().cloned().collect())
    }

    /// The protocols that a script knows once it is loaded, in a state of its own.
    ///
    /// # Errors
    /// The script's.
    pub(crate) fn protocols_of(&self, path: &str, source: &str) -> Result<Protocols, ScriptError> {
        let state = self.state(0, &[(path.to_owned(), source.to_owned())], true)?;
        let protocols = state.core.protocols.borrow().clone();
        Ok(protocols)
    }

    /// The same, by number and by name.
    pub fn protocol_table(&self, state: u32) -> Protocols {
        let loaded = self.states.get(&state);
        loaded.map_or_else(Protocols::default, |loaded| loaded.packets.core.protocols.borrow().clone())
    }

    fn state(
        &self,
        number: u32,
        scripts: &[(String, String)],
        is_interrupt: bool,
    ) -> Result<State, ScriptError> {
        let state = State::new(Rc::clone(&self.shared), number, self.limits, is_interrupt)?;
        for (path, source) in scripts {
            state.load(source, path)?;
        }
        Ok(state)
    }
}

fn missing(path: &str, function: &str) -> ScriptError {
    ScriptError {
        kind: ErrorKind::Runtime,
        message: format!("{path}: there is no function {function}"),
        traceback: String::new(),
    }
}

/// Does deferred work in its state.
fn run_job(state: &State, job: Job) -> Result<(), ScriptError> {
    let function = state.function(&job.function).ok_or_else(|| ScriptError {
        kind: ErrorKind::Runtime,
        message: format!("nf.schedule: there is no function {}", job.function),
        traceback: String::new(),
    })?;
    let text = |octets: Option<Vec<u8>>| octets.map(|octets| state.lua.create_string(octets)).transpose();
    let (octets, protocol) = job.packet.unzip();
    let arguments = || Ok((job.id, text(octets)?, protocol, text(job.origin)?));
    let arguments = arguments().map_err(|error| state.error(&error))?;
    // From here on they count as Lua's.
    drop(job.waiting);
    state.deferred(&function, arguments)
}

/// The built-in protocols, as every script finds them.
///
/// # Errors
/// None that a released program has: their declarations are tested.
pub fn builtin_protocols() -> Result<Protocols, ScriptError> {
    let machine = Machine::new(NoHost, Limits::default());
    let state = machine.state(0, &[], true)?;
    let protocols = state.core.protocols.borrow().clone();
    Ok(protocols)
}

/// A state as scripts find it, and what `runtime.lua` gives to Rust: for tests that look at all of it.
#[cfg(test)]
pub(crate) fn of_state() -> (mlua::Lua, mlua::Table) {
    let state = Machine::new(NoHost, Limits::default()).state(0, &[], true).expect("a state");
    (state.lua, state.entry)
}

fn run(state: &State, function: &Function, name: &str, packet: &mut Packet) -> Result<Verdict, ScriptError> {
    let handle = state.core.store.borrow_mut().begin(packet);
    let returned = state.packet(function, handle);
    state.core.store.borrow_mut().end(packet);
    let verdict = returned.and_then(|returned| verdict_of(state, name, &returned));
    if verdict != Ok(Verdict::Stolen) {
        packet.redirect(None);
    }
    verdict
}

fn verdict_of(state: &State, name: &str, returned: &Value) -> Result<Verdict, ScriptError> {
    let number = match returned {
        Value::Integer(number) => Some(*number),
        Value::Number(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    };
    number.and_then(Verdict::from_value).ok_or_else(|| {
        let what = state.core.words(returned).unwrap_or_else(|_| returned.type_name().to_owned());
        ScriptError {
            kind: ErrorKind::Verdict,
            message: format!("{name} returned {what}, which is no verdict, such as NF_ACCEPT"),
            traceback: String::new(),
        }
    })
}
