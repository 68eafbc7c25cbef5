//! `script bench`: what a packet costs in a script: in Lua in this process, and in the kernel by test runs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use script::host::{FileError, Host, InterfaceError, Module};
use script::packet::Packet;
use script::pcap::Captured;
use script::testing::{self, Files};
use script::vm::{Limits, Machine, Script, ScriptError, Verdict};
use wire::checksum::TransportChecksum;

use super::capture;
use super::tiers;
use crate::failure::Failure;
use config::folder::Folder;

/// How long each function is run.
const TIME: Duration = Duration::from_millis(500);

/// Runs a script over the packets of a capture, or those that its tests give to its functions.
pub(super) fn run(
    file: &Path,
    function: Option<&str>,
    captured: Option<&Path>,
    out: &mut dyn Write,
) -> Result<io::Result<()>, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::Message(format!("{}: {error}", file.display()));
    let (path, folder) = (file.display().to_string(), Folder::of(file));
    let source = std::fs::read_to_string(file).map_err(|error| about(&error))?;
    let mut packets: BTreeMap<String, Vec<Packet>> = BTreeMap::new();
    if let Some(captured) = captured {
        let function = function.unwrap_or("process_packet").to_owned();
        packets.insert(function, capture::read(captured)?.iter().map(Captured::packet).collect());
    } else {
        let files: Rc<dyn Files> = Rc::new(folder.clone());
        for given in
            testing::packets(&path, &source, &files).map_err(|error| Failure::Message(error.to_string()))?
        {
            let packet = Packet::of_frame(given.frame, TransportChecksum::Complete);
            packets.entry(given.function).or_default().push(packet);
        }
        packets.retain(|name, _| function.is_none_or(|wanted| wanted == name));
    }
    if packets.values().all(Vec::is_empty) {
        return Err(about(
            &"there are no packets: its tests give none to a function by name; name a capture with --pcap",
        ));
    }
    for (function, packets) in &packets {
        let script = Script { function: function.clone(), ..Script::new(&path, &source) };
        let measured = measure(script, &folder, packets)?;
        let written = writeln!(
            out,
            "{path}: {function}: {} ns for a packet in Lua ({} different ones{})\n{path}: {function}: {}",
            measured.ns,
            packets.len(),
            measured.verdicts,
            in_kernel(file, &source, function, packets)
        );
        if written.is_err() {
            return Ok(written);
        }
    }
    Ok(Ok(()))
}

/// What the kernel takes, or why it does not.
fn in_kernel(file: &Path, source: &str, function: &str, packets: &[Packet]) -> String {
    let frames: Vec<&[u8]> = packets.iter().map(Packet::bytes).collect();
    match tiers::time(file, source, function, &frames, TIME) {
        Ok((ns, measured)) => {
            let of = if measured == packets.len() { String::new() } else { format!(" ({measured} of them)") };
            format!("{ns} ns for a packet in the kernel{of}")
        }
        Err(why) => format!("not in the kernel: {why}"),
    }
}

struct Measured {
    ns: u128,
    /// Of one round, as text.
    verdicts: String,
}

fn measure(script: Script, folder: &Folder, packets: &[Packet]) -> Result<Measured, ScriptError> {
    let host = BenchHost { start: Instant::now(), folder: folder.clone(), random: Cell::new(1) };
    let mut machine = Machine::new(host, Limits::default());
    let rule = machine.load(script)?;
    let mut packet = Packet::default();
    let mut verdicts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failure = None;
    for original in packets {
        packet.clone_from(original);
        let (verdict, error) = machine.run(rule, &mut packet);
        *verdicts.entry(Verdict::name(verdict)).or_default() += 1;
        failure = failure.or(error);
    }
    machine.take_deferred();
    let (start, mut runs) = (Instant::now(), 0u128);
    while start.elapsed() < TIME {
        for original in packets {
            packet.clone_from(original);
            machine.run(rule, &mut packet);
            runs += 1;
        }
        // Nobody does what was put off.
        machine.take_deferred();
    }
    let mut texts: Vec<String> = verdicts.iter().map(|(name, count)| format!(", {count} {name}")).collect();
    texts.extend(failure.map(|error| format!("; it failed: {error}")));
    Ok(Measured { ns: start.elapsed().as_nanos() / runs.max(1), verdicts: texts.concat() })
}

/// Time goes on; what is sent or logged goes nowhere.
struct BenchHost {
    start: Instant,
    folder: Folder,
    random: Cell<u32>,
}

impl Host for BenchHost {
    fn now_ms(&mut self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// A sequence that is the same in every run (xorshift).
    fn random(&mut self) -> u32 {
        let mut state = self.random.get();
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.random.set(state);
        state
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, _: &str) -> Result<u32, InterfaceError> {
        Ok(1)
    }

    fn log(&mut self, _: &str) {}

    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError> {
        self.folder.module(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_its_own_tests_measure_a_script() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts/nat.lua");
        let mut out = Vec::new();
        let written = run(&file, Some("snat"), None, &mut out);
        assert!(matches!(written, Ok(Ok(()))));
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(": snat: ") && text.contains("2 XT_CONTINUE"), "{text}");
        assert!(!text.contains("dnat"), "{text}");
        if caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_BPF).unwrap_or(false) {
            assert!(text.contains(" in the kernel\n") && !text.contains("not in"), "{text}");
        }
    }

    #[test]
    fn what_does_not_run_in_the_kernel_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.lua");
        let text = "local test = require 'test'\nfunction process_packet(p)\n return #p / 2 > 1 and NF_ACCEPT or NF_DROP end\n\
                    function test_it() test.run(test.udp('::1', 1, '::2', 2)) end";
        std::fs::write(&file, text).expect("a script");
        let mut out = Vec::new();
        assert!(matches!(run(&file, None, None, &mut out), Ok(Ok(()))));
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("process_packet: not in the kernel: line 3: '/'"), "{text}");
    }
}
