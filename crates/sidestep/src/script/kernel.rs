//! Compiled scripts in the kernel: their maps, and the program.

use std::fmt::Write as _;
use std::os::fd::AsRawFd as _;

use linux::bpf::{Map, MapKind, Program, ProgramKind};
use script::compile::shared::{self, MapKind as Kind};
use script::compile::{Assembled, Compiled};

/// A script that the kernel has accepted. It goes with this, unless it is attached.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) program: Program,
    /// In the order of [`Compiled::maps`].
    pub(crate) maps: Vec<Map>,
    pub(crate) assembled: Assembled,
    /// What the verifier says of its work.
    pub(crate) statistics: String,
}

/// Makes the maps of a script, with what the top level has put there, and loads its program.
///
/// # Errors
/// Why not, as text. What the verifier refuses is a fault of the compiler, and told as such, with the script's line.
pub(crate) fn load(compiled: &Compiled, path: &str) -> Result<Loaded, String> {
    let maps: Result<Vec<Map>, linux::Error> = compiled.maps().iter().map(create).collect();
    let maps = maps.map_err(|error| error.to_string())?;
    let descriptors: Vec<_> = maps.iter().map(|map| map.as_raw_fd()).collect();
    let assembled = compiled.assemble(&descriptors).map_err(|error| error.to_string())?;
    match Program::load_with_statistics(ProgramKind::SchedCls, &assembled.code) {
        Ok((program, statistics)) => Ok(Loaded { program, maps, assembled, statistics }),
        Err(error) => match Program::refusal(ProgramKind::SchedCls, &assembled.code) {
            Some(log) => Err(refused(&assembled, path, &log)),
            None => Err(error.to_string()),
        },
    }
}

fn create(map: &shared::Map) -> linux::Result<Map> {
    let (kind, key, value, entries) = map.measures();
    let kind = match kind {
        Kind::Hash => MapKind::Hash,
        Kind::LruHash => MapKind::LruHash,
        Kind::Array => MapKind::Array,
        Kind::LongestPrefix => MapKind::LongestPrefix,
    };
    let created = Map::create(kind, key, value, entries)?;
    for (key, value) in map.initial() {
        created.set(&key, &value)?;
    }
    Ok(created)
}

/// A refusal of the verifier: its last words, and the line of the script that the instruction comes from.
fn refused(assembled: &Assembled, path: &str, log: &str) -> String {
    // "12: (85) call …" is the instruction that it was at.
    let number = |line: &str| line.split_once(": (")?.0.trim().parse::<usize>().ok();
    let last = log.lines().rev().find_map(number);
    let line = last.and_then(|last| assembled.line(last));
    let mut text =
        "the kernel refuses the compiled script, which is a fault of Sidestep: please report it".to_owned();
    if let Some(line) = line {
        let _ = write!(text, "\n  {path}:{line}");
    }
    for reason in log.lines().rev().take(4).collect::<Vec<_>>().into_iter().rev() {
        let _ = write!(text, "\n  {reason}");
    }
    text
}
