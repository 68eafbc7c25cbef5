//! Tests of a script in both tiers: what a test gives to functions of its script goes through Lua once more and through
//! the kernel (BPF_PROG_TEST_RUN), both from a fresh start, and has to come out the same.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bpf::verdict;
use config::folder::Folder;
use linux::bpf::{Map, MapKind, Ring};
use script::compile::account::{self, Accounts};
use script::compile::logging::Said;
use script::compile::{AttachType, CompileError, Compiled, Results, compile, logging};
use script::testing::{self, Files, Given, Made};
use script::vm::{Script, Verdict};
use script_host::kernel::{self, Interfaces, Loaded, Maps, Says, TopLevel};

/// Results that nothing else gives.
const PASS: i32 = 101;
const DROP: i32 = 102;
const ERROR: i32 = 103;
const RESULTS: Results =
    Results { pass: PASS, drop: DROP, error: ERROR, queue_mark: None, unseen_mark: None, punt_mark: None };
/// Octets of the ring for what is logged of one packet.
const RING: u32 = 1 << 16;
/// Octets of the link header of a frame.
const LINK: usize = 14;
/// The kernel has room for as long a frame, wherever it is.
const LONGEST: usize = 3000;

/// What has come of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// So many packets came out the same, and so many others the kernel's test runs do not take.
    Same(usize, usize),
    /// Nothing could be compared, or not all: why.
    Not(String),
    /// A packet did not come out the same.
    Differs(String),
}

/// What the kernel has made of a packet.
struct InKernelMade {
    result: i32,
    frame: Vec<u8>,
    log: Vec<String>,
    captured: Vec<Named>,
    mirrored: Vec<Named>,
}

/// A packet, and for which capture or interface it is.
type Named = (String, Vec<u8>);

/// A function in the kernel.
struct InKernel {
    loaded: Loaded,
    ring: Ring,
    /// The program counts in them, and puts packets together.
    _accounts: [Map; 3],
}

/// Compares the tiers by the packets of one test.
pub(super) fn compare(file: &Path, source: &str, given: &[Given]) -> Compared {
    let path = file.display().to_string();
    let all = given.len();
    let given: Vec<Given> = given.iter().filter(|given| can_be_run(&given.frame)).cloned().collect();
    let mut compiled = BTreeMap::new();
    for Given { function, .. } in &given {
        if !compiled.contains_key(function) {
            match compile_function(file, source, function) {
                Ok(program) => compiled.insert(function.clone(), program),
                Err(why) => return Compared::Not(format!("{function} does not run there as a whole: {why}")),
            };
        }
    }
    let files: Rc<dyn Files> = Rc::new(Folder::of(file));
    let in_lua = match testing::replay(&path, source, &given, &files) {
        Ok(made) => made,
        Err(error) => return Compared::Not(error.to_string()),
    };
    let mut maps = Maps::default();
    let mut programs = BTreeMap::new();
    for (function, program) in &compiled {
        match InKernel::load(program, &path, &mut maps) {
            Ok(loaded) => programs.insert(function, loaded),
            Err(why) => return Compared::Not(why),
        };
    }
    for (at, (Given { function, frame }, wanted)) in given.iter().zip(&in_lua).enumerate() {
        let Some(program) = programs.get_mut(function) else { continue };
        let got = match program.run(frame) {
            Ok(got) => got,
            Err(why) => return Compared::Not(why),
        };
        if let Some(what) = difference(wanted, &got) {
            let packet = format!("packet {} of the test, to {function}: {what}", at + 1);
            return match compiled.values().all(Compiled::is_repeatable) {
                true => Compared::Differs(packet),
                false => Compared::Not(format!("{packet}; but it asks for the time or for chance")),
            };
        }
    }
    Compared::Same(given.len(), all - given.len())
}

/// How many nanoseconds a packet takes in the kernel, as often as there is time for, beside those of a program that does
/// nothing; and how many different packets that were.
///
/// # Errors
/// Why it does not run there, or nothing can be measured.
pub(super) fn time(
    file: &Path,
    source: &str,
    function: &str,
    frames: &[&[u8]],
    time: Duration,
) -> Result<(u64, usize), String> {
    let frames: Vec<&[u8]> = frames.iter().copied().filter(|frame| can_be_run(frame)).collect();
    if frames.is_empty() {
        return Err(not_run(0));
    }
    let compiled = compile_function(file, source, function)?;
    let path = file.display().to_string();
    let mut script = InKernel::load(&compiled, &path, &mut Maps::default())?;
    let nothing = Script::new("nothing", "function process_packet() return NF_ACCEPT end");
    let top = TopLevel { folder: Folder::of(file), interfaces: Interfaces::Elsewhere };
    let nothing = compile(&nothing, top, RESULTS, AttachType::Interface { has_link: true });
    let nothing = nothing.map_err(|error| error.to_string())?;
    let nothing =
        kernel::load(&nothing, "nothing", &mut Maps::default(), None).map_err(|error| error.to_string())?;
    let (mut own, mut other, mut runs) = (Duration::ZERO, Duration::ZERO, 0_u32);
    let begin = Instant::now();
    // In turns: whatever else slows the machine down slows down both.
    while begin.elapsed() < time || runs == 0 {
        for frame in &frames {
            own += script.loaded.program.time_run(frame).map_err(|error| error.to_string())?;
            other += nothing.program.time_run(frame).map_err(|error| error.to_string())?;
            runs += 1;
        }
        // Nobody reads what it logs: a full ring would be another measurement.
        script.ring.read(usize::MAX, |_| ());
    }
    Ok((own.saturating_sub(other).as_nanos() as u64 / u64::from(runs.max(1)), frames.len()))
}

fn compile_function(file: &Path, source: &str, function: &str) -> Result<Compiled, String> {
    let script = Script { function: function.to_owned(), ..Script::new(&file.display().to_string(), source) };
    let top = TopLevel { folder: Folder::of(file), interfaces: Interfaces::Elsewhere };
    compile(&script, top, RESULTS, AttachType::Interface { has_link: true }).map_err(|error| match error {
        CompileError::Refused(refusals) => {
            refusals.first().map_or_else(String::new, |one| format!("line {}: {}", one.line, one.reason))
        }
        CompileError::Script(error) => error.to_string(),
    })
}

impl InKernel {
    fn load(program: &Compiled, path: &str, maps: &mut Maps) -> Result<Self, String> {
        let make = || -> linux::Result<_> {
            Ok((
                Ring::create(RING)?,
                Map::create(MapKind::PerCpuArray, 4, account::SIZES.0, 1)?,
                Map::create(MapKind::Array, 4, account::SIZES.1, 1)?,
                Map::create(MapKind::PerCpuArray, 4, account::SCRATCH, 1)?,
            ))
        };
        let (ring, counters, fault, scratch) = make().map_err(|error| error.to_string())?;
        let log = Some(account::Log {
            ring: ring.as_raw_fd(),
            program: 1,
            scratch: scratch.as_raw_fd(),
            followed: 0,
        });
        // Nothing is sent by a test.
        let mirrors = account::Mirrors::Told;
        let accounts = Accounts { mirrors, counters: counters.as_raw_fd(), fault: fault.as_raw_fd(), log };
        let loaded = kernel::load(program, path, maps, Some(accounts)).map_err(|error| error.to_string())?;
        loaded.fill().map_err(|error| error.to_string())?;
        Ok(Self { loaded, ring, _accounts: [counters, fault, scratch] })
    }

    fn run(&mut self, frame: &[u8]) -> Result<InKernelMade, String> {
        let (result, frame) = self.loaded.program.test_run(frame).map_err(|error| error.to_string())?;
        let (mut log, mut captured, mut mirrored) = (Vec::new(), Vec::new(), Vec::new());
        let Says { lines, captures, mirrors } = &self.loaded.says;
        self.ring.read(usize::MAX, |bytes| {
            if let Some((_, name, octets)) = logging::captured(bytes) {
                if let Some(name) = captures.get(name) {
                    captured.push((name.clone(), octets.get(LINK..).unwrap_or_default().to_vec()));
                } else if let Some(name) = mirrors.get(name - captures.len()) {
                    mirrored.push((name.clone(), octets.to_vec()));
                }
            } else if let Some((_, line, numbers)) = logging::record(bytes)
                && let Some(Said::Log(logged)) = lines.get(line).map(|line| line.said(&numbers))
            {
                log.push(logged.to_string());
            }
        });
        Ok(InKernelMade { result, frame, log, captured, mirrored })
    }
}

/// What differs in the kernel, if anything does.
fn difference(lua: &Made, kernel: &InKernelMade) -> Option<String> {
    let InKernelMade { result, frame, log, captured, mirrored } = kernel;
    let wanted = match &lua.verdict {
        Err(_) => ERROR,
        Ok(_) if lua.redirected => verdict::REDIRECT,
        Ok(Verdict::Drop | Verdict::Stolen) => DROP,
        Ok(Verdict::Accept | Verdict::Queue | Verdict::Repeat | Verdict::Continue) => PASS,
    };
    if wanted != *result {
        let in_lua = match &lua.verdict {
            Ok(verdict) => verdict.name(),
            Err(why) => why,
        };
        let in_kernel = match *result {
            PASS => "passes it",
            DROP => "drops it",
            ERROR => "fails at it",
            verdict::REDIRECT => "redirects it",
            _ => "does something else with it",
        };
        return Some(format!("Lua: {in_lua}; the kernel {in_kernel}"));
    }
    // What has failed, or goes nowhere, is nothing to anybody.
    if matches!(*result, PASS | verdict::REDIRECT) && lua.frame != *frame {
        let at = lua.frame.iter().zip(frame).take_while(|(one, other)| one == other).count();
        let lengths = (lua.frame.len(), frame.len());
        return Some(format!(
            "changed from octet {at} on, {} octets in Lua and {} in the kernel",
            lengths.0, lengths.1
        ));
    }
    if lua.log != *log {
        return Some(format!("Lua logs {:?}, the kernel {log:?}", lua.log));
    }
    let captured = told("captures", &lua.captured, captured, logging::CAPTURED - LINK);
    captured.or_else(|| told("copies to", &lua.mirrored, mirrored, logging::CAPTURED))
}

/// What differs in packets that are told by name, of which the kernel keeps the beginning.
fn told(does: &str, lua: &[Named], kernel: &[Named], most: usize) -> Option<String> {
    let kept = |octets: &Vec<u8>| octets[..octets.len().min(most)].to_vec();
    let lua: Vec<Named> = lua.iter().map(|(name, octets)| (name.clone(), kept(octets))).collect();
    let names = |all: &[Named]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    (lua != *kernel).then(|| match (names(&lua), names(kernel)) {
        (one, other) if one == other => format!("the kernel {does} {one:?} another packet than Lua"),
        (one, other) => format!("Lua {does} {one:?}, the kernel {other:?}"),
    })
}

/// Why frames are left out, so many or all.
pub(super) fn not_run(frames: usize) -> String {
    let count = match frames {
        0 => "no frame of these".to_owned(),
        1 => "all frames but one".to_owned(),
        many => format!("all frames but {many}"),
    };
    format!("BPF_PROG_TEST_RUN takes {count} (whole IP headers, up to {LONGEST} octets)")
}

/// BPF_PROG_TEST_RUN takes frames with a whole IP header alone.
fn can_be_run(frame: &[u8]) -> bool {
    let least = match frame.get(12..14) {
        Some([0x08, 0]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => 15,
    };
    (least..=LONGEST).contains(&frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(verdict: Verdict) -> Made {
        Made {
            verdict: Ok(verdict),
            redirected: false,
            frame: vec![1, 2, 3],
            log: vec!["a".into()],
            captured: Vec::new(),
            mirrored: Vec::new(),
        }
    }

    #[test]
    fn what_differs_is_told() {
        let kernel = |result, frame: &[u8], log: &str| InKernelMade {
            result,
            frame: frame.to_vec(),
            log: vec![log.to_owned()],
            captured: Vec::new(),
            mirrored: Vec::new(),
        };
        for (lua, kernel, wanted) in [
            (made(Verdict::Accept), kernel(PASS, &[1, 2, 3], "a"), None),
            (made(Verdict::Stolen), kernel(DROP, &[9], "a"), None),
            (
                made(Verdict::Accept),
                kernel(DROP, &[1, 2, 3], "a"),
                Some("Lua: NF_ACCEPT; the kernel drops it".to_owned()),
            ),
            (
                made(Verdict::Accept),
                kernel(PASS, &[1, 2, 4], "a"),
                Some("changed from octet 2 on, 3 octets in Lua and 3 in the kernel".to_owned()),
            ),
            (
                made(Verdict::Drop),
                kernel(DROP, &[1, 2, 3], "b"),
                Some("Lua logs [\"a\"], the kernel [\"b\"]".to_owned()),
            ),
        ] {
            assert_eq!(difference(&lua, &kernel), wanted);
        }
    }
}
