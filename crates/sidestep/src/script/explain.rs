//! `sidestep script explain`: where a script can run, line by line, and what is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use script::compile::{CompileError, Compiled, Refusal};
use script::vm::Script;

use config::attachment::{Attachment, Failure, Hook, Tier};
use script_host::attach_point::{AttachPoint, PUNT_MARK, compile_for};
use script_host::kernel::{self, Interfaces, Maps};

/// Where a function is explained: at a hook, or at any interface.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct At {
    /// An interface whose packets have no link header.
    pub(super) no_link: bool,
    pub(super) hook: Option<Hook>,
    /// At XDP of an interface.
    pub(super) xdp: bool,
}

/// Explains a function of a script, at a hook or at any interface; whether the kernel runs it, as far as it goes.
pub(super) fn explain(
    file: &Path,
    function: &str,
    At { no_link, hook, xdp }: At,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let path = file.display().to_string();
    let source = match std::fs::read_to_string(file) {
        Ok(source) => source,
        Err(why) => {
            writeln!(out, "{path}: {why}")?;
            return Ok(false);
        }
    };
    let source = source.as_str();
    let mut script = Script::new(&path, source);
    function.clone_into(&mut script.function);
    let attachment = Attachment {
        file: file.to_owned(),
        hook: hook.unwrap_or(Hook::Ingress),
        // Which one is nothing to the program.
        dev: (xdp || matches!(hook, None | Some(Hook::Ingress | Hook::Egress))).then(|| "any".to_owned()),
        rule: None,
        function: function.to_owned(),
        state: None,
        tier: Tier::Kernel,
        xdp,
        priority: None,
        failure: Failure::Drop,
        fail_open: false,
    };
    if let Err(error) = attachment.check() {
        writeln!(out, "{path}: {error}")?;
        return Ok(false);
    }
    let point = AttachPoint::of(&attachment);
    let place = match point.attach_type(!no_link) {
        Ok(place) => place,
        Err(why) => {
            writeln!(out, "{path}: {function} runs in the user tier: {why}")?;
            return Ok(false);
        }
    };
    let refusals = match compile_for(&attachment, &script, place.clone(), None, Interfaces::Elsewhere) {
        Ok(compiled) => {
            let at = if xdp {
                ", at XDP (native or generic, as the driver can: `script list` says it)"
            } else {
                ""
            };
            writeln!(out, "{path}: {function} runs in the kernel{at}\n")?;
            return accepted(out, &path, source, &compiled);
        }
        Err(CompileError::Refused(refusals)) => refusals,
        Err(CompileError::Script(error)) => {
            writeln!(out, "{error}")?;
            return Ok(false);
        }
    };
    if xdp {
        writeln!(out, "{path}: {function} does not run at XDP; without --xdp it does\n")?;
        lines(out, source, &BTreeSet::new(), ("no", &refusals))?;
        return Ok(false);
    }
    // Which one of the marks is nothing to the program.
    let in_part = point.may_punt().map_err(|error| error.to_string()).and_then(|()| {
        compile_for(&attachment, &script, place, Some(PUNT_MARK | 1), Interfaces::Elsewhere)
            .map_err(|error| error.to_string())
    });
    match in_part {
        Ok(compiled) => {
            let at: BTreeSet<u32> = compiled.punts().iter().map(|one| one.line).collect();
            let at: Vec<String> = at.iter().map(u32::to_string).collect();
            let lines = if at.len() == 1 { "line" } else { "lines" };
            writeln!(
                out,
                "{path}: {function} runs in the kernel; hands over to Lua at {lines} {}\n",
                at.join(", ")
            )?;
            accepted(out, &path, source, &compiled)
        }
        Err(why) => {
            writeln!(out, "{path}: {function} runs in the user tier")?;
            writeln!(out, "The kernel runs no part of it: {why}\n")?;
            lines(out, source, &BTreeSet::new(), ("user", &refusals))?;
            Ok(false)
        }
    }
}

fn accepted(out: &mut dyn Write, path: &str, source: &str, compiled: &Compiled) -> io::Result<bool> {
    let mut maps = Maps::default();
    let loaded = kernel::load(compiled, path, &mut maps, None);
    let assembled = match &loaded {
        Ok(loaded) => &loaded.assembled,
        // Without its maps: what it looks like can be said all the same.
        Err(_) => &compiled.assemble(&vec![0; compiled.maps().len()], None).map_err(io::Error::other)?,
    };
    let compiled_lines = assembled.lines.iter().map(|(_, line)| *line).collect();
    lines(out, source, &compiled_lines, ("over", compiled.punts()))?;
    for (number, map) in compiled.maps().iter().enumerate() {
        let (kind, key, value, entries) = map.measures();
        let name = &map.shared.name;
        writeln!(
            out,
            "map {number}: {name:?}, {kind:?}, keys of {key} bytes, values of {value}, {entries} at most"
        )?;
    }
    writeln!(out, "\nIntermediate form: the line, and what is done\n\n{}", compiled.intermediate())?;
    let code = assembled.code.instructions().map_err(io::Error::other)?;
    let text: Vec<&str> = source.lines().collect();
    let starts: BTreeMap<usize, u32> = assembled.lines.iter().copied().collect();
    writeln!(out, "eBPF: {} instructions\n", code.len())?;
    for (at, instruction) in bpf::listing(&code).iter().enumerate() {
        if let Some(line) = starts.get(&at) {
            let said = text.get(*line as usize - 1).map_or("", |line| line.trim());
            writeln!(out, "; line {line}: {said}")?;
        }
        if !instruction.is_empty() {
            writeln!(out, "{at:6}  {instruction}")?;
        }
    }
    match loaded {
        Ok(loaded) => {
            for line in loaded.statistics.lines() {
                writeln!(out, "verifier: {line}")?;
            }
            Ok(true)
        }
        Err(why) => {
            writeln!(out, "The kernel did not verify it: {why}")?;
            Ok(false)
        }
    }
}

/// The script, each line with where it runs: `kernel`; `user`, or `over` where it is handed over to that, with why; or
/// nothing, where nothing is left to be done for a packet.
fn lines(
    out: &mut dyn Write,
    source: &str,
    compiled: &BTreeSet<u32>,
    (refused, refusals): (&str, &[Refusal]),
) -> io::Result<()> {
    for (number, text) in (1..).zip(source.lines()) {
        let mut reasons = refusals.iter().filter(|refusal| refusal.line == number).peekable();
        let place = match reasons.peek() {
            Some(_) => refused,
            None if compiled.contains(&number) => "kernel",
            None => "",
        };
        writeln!(out, "{number:5} {place:6} | {text}")?;
        for refusal in reasons {
            let over = if refused == "over" { "handed over to Lua: " } else { "" };
            writeln!(out, "             ^ {over}{}", refusal.reason)?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::{At, Hook, explain};
    use std::path::Path;

    fn explained(file: &Path, function: &str, hook: Option<Hook>) -> (bool, String) {
        let mut out = Vec::new();
        let at = At { hook, ..At::default() };
        let good = explain(file, function, at, &mut out).expect("writing to memory");
        (good, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn what_cannot_be_compiled_is_told_line_by_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.lua");
        let text = "function process_packet(p)\n  local half = #p / 2\n  return NF_ACCEPT\nend\n";
        std::fs::write(&file, text).expect("a file");
        let (good, text) = explained(&file, "process_packet", None);
        assert!(!good && text.contains("runs in the user tier"), "{text}");
        assert!(text.contains("    2 user   |   local half = #p / 2\n             ^ '/'"), "{text}");
    }

    #[test]
    fn what_can_be_is_shown_as_it_is_made() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts/nat.lua");
        let (_, text) = explained(&file, "snat", None);
        assert!(
            text.contains("snat runs in the kernel") && text.contains("kernel |   ip:saddr():set("),
            "{text}"
        );
        assert!(text.contains("; line 16: ip:saddr():set(") && text.contains("  exit\n"), "{text}");
    }

    #[test]
    fn interfaces_may_be_another_machines() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.lua");
        std::fs::write(&file, "function process_packet(p) return p:redirect('not-here') end\n")
            .expect("a file");
        let (_, text) = explained(&file, "process_packet", None);
        assert!(text.contains("process_packet runs in the kernel\n"), "{text}");
    }

    #[test]
    fn where_packets_are_handed_over_is_told() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts/tls_name_filter.lua");
        let (_, text) = explained(&file, "process_packet", Some(Hook::Ingress));
        assert!(text.contains("process_packet runs in the kernel; hands over to Lua at line 37\n"), "{text}");
        assert!(
            text.contains("   37 over   |   local stream") && text.contains("^ handed over to Lua: "),
            "{text}"
        );
        assert!(text.contains("hand over\n"), "{text}");
        let (good, text) = explained(&file, "process_packet", Some(Hook::Egress));
        assert!(
            !good
                && text.contains("runs in the user tier\nThe kernel runs no part of it: packets that leave"),
            "{text}"
        );
    }

    #[test]
    fn what_changes_packets_is_told_where_netfilter_has_it() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts/nat.lua");
        let (good, text) = explained(&file, "snat", Some(Hook::Forward));
        assert!(!good && text.contains("runs in the user tier"), "{text}");
        if linux::bpf::netfilter::layout().is_ok() {
            assert!(text.contains("   16 user   |"), "{text}");
            assert!(text.contains("^ it changes the packet: in the kernel at an interface only"), "{text}");
        }
    }
}
