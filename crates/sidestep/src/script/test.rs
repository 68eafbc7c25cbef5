//! `script test` and `script check`: scripts are tested before they are let near packets.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use script::testing::{self, Contents, Files, Outcome};
use script::vm::ScriptError;

use super::tiers::{self, Compared};
use config::folder::Folder;

/// Runs the tests of scripts; whether all was well.
pub(super) fn test_all(files: &[PathBuf], out: &mut dyn Write) -> io::Result<bool> {
    let mut total = Tally::default();
    for file in files {
        let tally = test(file, out)?;
        total.passed += tally.passed;
        total.failed += tally.failed;
        total.unread += tally.unread;
    }
    write!(out, "\n{} passed, {} failed", total.passed, total.failed)?;
    match total.unread {
        0 => {}
        1 => write!(out, ", 1 script could not be read")?,
        many => write!(out, ", {many} scripts could not be read")?,
    }
    writeln!(out)?;
    Ok(total.failed + total.unread == 0)
}

/// Says what is in a script; whether it can be loaded.
pub(super) fn check(file: &Path, out: &mut dyn Write) -> io::Result<bool> {
    match read(file) {
        Ok((source, folder)) => match testing::inspect(&file.display().to_string(), &source, &folder) {
            Ok(contents) => {
                write!(out, "{}", described(file, &contents))?;
                Ok(contents.unknown.is_empty())
            }
            Err(error) => refused(out, &error),
        },
        Err(why) => {
            writeln!(out, "{}: {why}", file.display())?;
            Ok(false)
        }
    }
}

/// How tests ended.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Scripts whose tests are not known: their file cannot be read, or they cannot be loaded.
    unread: usize,
}

/// Runs the tests of one script.
fn test(file: &Path, out: &mut dyn Write) -> io::Result<Tally> {
    let path = file.display().to_string();
    writeln!(out, "{path}")?;
    let (source, folder) = match read(file) {
        Ok(read) => read,
        Err(why) => {
            writeln!(out, "  cannot be read: {why}")?;
            return Ok(Tally { unread: 1, ..Tally::default() });
        }
    };
    let contents = match testing::inspect(&path, &source, &folder) {
        Ok(contents) => contents,
        Err(error) => {
            refused(out, &error)?;
            return Ok(Tally { unread: 1, ..Tally::default() });
        }
    };
    if contents.tests.is_empty() {
        writeln!(out, "  no tests: there is no function whose name begins with test_")?;
    }
    let mut tally = Tally::default();
    let (mut same, mut left_out, mut not) = (0, 0, Vec::new());
    for name in &contents.tests {
        let outcome = testing::run(&path, &source, name, &folder);
        let compared = match &outcome.error {
            None if !outcome.given.is_empty() => tiers::compare(file, &source, &outcome.given),
            _ => Compared::Same(0, 0),
        };
        let is_good = outcome.error.is_none() && !matches!(compared, Compared::Differs(_));
        *(if is_good { &mut tally.passed } else { &mut tally.failed }) += 1;
        match compared {
            Compared::Same(packets, others) => {
                same += packets;
                left_out += others;
            }
            Compared::Not(why) if not.contains(&why) => {}
            Compared::Not(why) => not.push(why),
            Compared::Differs(what) => {
                writeln!(out, "  FAIL  {name}\n        the tiers differ: {what}")?;
                continue;
            }
        }
        write!(out, "{}", line(&outcome))?;
    }
    match same {
        0 => {}
        1 => writeln!(out, "  1 packet comes out the same in the kernel")?,
        many => writeln!(out, "  {many} packets come out the same in the kernel")?,
    }
    not.extend((left_out > 0).then(|| tiers::not_run(left_out)));
    for why in not {
        writeln!(out, "  not compared with the kernel: {why}")?;
    }
    Ok(tally)
}

fn line(outcome: &Outcome) -> String {
    let Some(error) = &outcome.error else { return format!("  ok    {}\n", outcome.name) };
    let mut text = format!("  FAIL  {}\n        {}\n", outcome.name, error.message);
    for frame in error.traceback.lines() {
        let _ = writeln!(text, "          {frame}");
    }
    for line in &outcome.log {
        let _ = writeln!(text, "        log: {line}");
    }
    text
}

fn refused(out: &mut dyn Write, error: &ScriptError) -> io::Result<bool> {
    writeln!(out, "  {}", error.message)?;
    for frame in error.traceback.lines() {
        writeln!(out, "    {frame}")?;
    }
    Ok(false)
}

fn described(file: &Path, contents: &Contents) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut text = String::new();
    for unknown in &contents.unknown {
        let _ = writeln!(text, "{}:{}: {}", file.display(), unknown.line, unknown.what);
    }
    let but =
        if contents.unknown.is_empty() { "." } else { ", but fails at packets that come to these names." };
    let _ = writeln!(
        text,
        "{} can be loaded{but}\n  functions: {}\n  protocols: {}\n  tests:     {}",
        file.display(),
        list(&contents.functions),
        list(&contents.protocols),
        list(&contents.tests)
    );
    text
}

type Read = (String, Rc<dyn Files>);

fn read(file: &Path) -> io::Result<Read> {
    Ok((std::fs::read_to_string(file)?, Rc::new(Folder::of(file))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(run: impl FnOnce(&mut dyn Write) -> io::Result<bool>) -> (bool, String) {
        let mut out = Vec::new();
        let good = run(&mut out).expect("writing to memory");
        (good, String::from_utf8(out).expect("text"))
    }

    fn script(source: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.lua");
        std::fs::write(&file, source).expect("a file");
        (folder, file)
    }

    #[test]
    fn the_examples_pass_their_tests() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts");
        let entries =
            std::fs::read_dir(folder).expect("the examples").filter_map(|entry| Some(entry.ok()?.path()));
        let files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|kind| kind == "lua")).collect();
        assert!(!files.is_empty());
        let (good, text) = said(|out| test_all(&files, out));
        assert!(good && !text.contains("no tests"), "{text}");
    }

    #[test]
    fn a_test_that_fails_is_told_with_its_line() {
        let (_folder, file) = script(
            "local test = require 'test'\nfunction process_packet(p) return NF_DROP end\n\
             function test_one() test.verdict(NF_DROP, test.udp('10.0.0.1', 1, '10.0.0.2', 2)) end\n\
             function test_two()\n  nf.log('seen')\n  test.verdict(NF_ACCEPT, test.udp('::1', 1, '::2', 2))\nend\n",
        );
        let (good, text) = said(|out| test_all(std::slice::from_ref(&file), out));
        assert!(!good);
        assert!(text.contains("  ok    test_one\n  FAIL  test_two\n"), "{text}");
        assert!(text.contains("a.lua:6: verdict NF_DROP, not NF_ACCEPT"), "{text}");
        assert!(text.contains("log: seen\n") && text.ends_with("\n1 passed, 1 failed\n"), "{text}");
        let (good, text) = said(|out| check(&file, out));
        assert!(good && text.contains("functions: process_packet\n"), "{text}");
    }

    #[test]
    fn names_that_nothing_has_are_told_with_their_lines() {
        let (_folder, file) = script(
            "local test = require 'test'\nlocal names = {}\nfunction names:known() return self.count end\n\
             function process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ipv6)\n\
             \x20 if not ip then return NF_ACEPT end\n  names:known()\n  seen = (seen or 0) + 1\n\
             \x20 nf.lgo(ip:srcaddr():get(), ('x'):rep(2))\n  return NF_DROP\nend\n",
        );
        let (good, text) = said(|out| check(&file, out));
        assert!(!good, "{text}");
        for (line, what) in [
            (5, "there is no variable packet_ipv6"),
            (6, "there is no variable NF_ACEPT"),
            (9, "nf has no lgo"),
            (9, "nothing has a field or method srcaddr"),
        ] {
            assert!(text.contains(&format!("a.lua:{line}: {what}")), "{text}");
        }
        assert_eq!(text.matches("a.lua:").count(), 4, "{text}");
    }

    #[test]
    fn check_and_test_load_a_script_as_it_is_loaded_for_packets() {
        for text in [
            "for i = 1, 2000000 do end function process_packet(p) return NF_ACCEPT end",
            "local test = require 'test' local packet = test.udp('::1', 1, '::2', 2) function process_packet(p) end",
        ] {
            let (_folder, file) = script(text);
            let (good, said_by_check) = said(|out| check(&file, out));
            assert!(!good, "{said_by_check}");
            let (good, said_by_test) = said(|out| test_all(std::slice::from_ref(&file), out));
            assert!(!good && said_by_test.contains("1 script could not be read"), "{said_by_test}");
        }
    }

    #[test]
    fn a_packet_of_a_test_has_the_instructions_of_a_packet() {
        let (_folder, file) = script(
            "local test = require 'test'\nfunction process_packet(p)\n  for i = 1, #p * 1000 do end\n  return NF_ACCEPT\nend\n\
             local function run(octets) test.run(test.udp('::1', 1, '::2', 2, ('x'):rep(octets))) end\n\
             function test_many() for i = 1, 40 do run(1) end end\n\
             function test_long() run(2000) end\n",
        );
        let (good, text) = said(|out| test_all(&[file], out));
        assert!(!good && text.contains("  ok    test_many\n"), "{text}");
        assert!(text.contains("FAIL  test_long\n        ") && text.contains("used up its 1000000"), "{text}");
    }

    #[test]
    fn the_examples_name_nothing_that_is_not_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts");
        for folder in [folder.join("seed"), folder] {
            for entry in std::fs::read_dir(&folder).expect("examples") {
                let file = entry.expect("an entry").path();
                if file.extension().is_some_and(|kind| kind == "lua") {
                    let (good, text) = said(|out| check(&file, out));
                    assert!(good, "{text}");
                }
            }
        }
    }

    #[test]
    fn packets_of_tests_go_through_the_kernel_too() {
        let (_folder, file) = script(
            "local test = require 'test'\nlocal seen = nf.counter 'seen'\n\
             function process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ip6)\n\
             \x20 ip:hop_limit():set(7) seen:add()\n  nf.log('seen', seen:get())\n\
             \x20 return seen:get() > 1 and NF_DROP or NF_ACCEPT\nend\n\
             function odd(p) return #p / 2 > 1 and NF_ACCEPT or NF_DROP end\n\
             local packet = function() return test.udp('::1', 1, '::2', 2) end\n\
             function test_first() test.verdict(NF_ACCEPT, packet()) test.verdict(NF_DROP, packet()) end\n\
             function test_second() test.verdict(NF_ACCEPT, packet(), 'odd') end\n",
        );
        let (good, text) = said(|out| test_all(&[file], out));
        assert!(good, "{text}");
        assert!(text.contains("odd does not run there as a whole: line 9: '/'"), "{text}");
        if caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_BPF).unwrap_or(false) {
            assert!(text.contains("  2 packets come out the same in the kernel\n"), "{text}");
        }
    }

    #[test]
    fn a_frame_that_no_hook_gives_to_scripts_has_no_verdict() {
        let (_folder, file) = script(
            "local test = require 'test'\nfunction process_packet(p) return NF_DROP end\n\
             local function frame(kind) return test.frame(('\\2'):rep(12) .. test.hex(kind) .. ('\\0'):rep(60)) end\n\
             function test_arp()\n  test.verdict(NF_DROP, frame '0806')\nend\n\
             function test_tags()\n  test.verdict(NF_DROP, frame '8100 0000 8100 0005 86dd')\nend\n\
             function test_why()\n  local verdict, why = test.run(frame '8100 0007 0806')\n  test.equal(verdict, nil)\n\
             \x20 test.equal(why, 'it is not IP, and passes unseen at every hook')\nend\n\
             function test_long()\n  test.verdict(NF_DROP, test.udp('::1', 1, '::2', 2, ('x'):rep(3000)))\nend\n",
        );
        let (good, text) = said(|out| test_all(&[file], out));
        assert!(!good && text.ends_with("\n2 passed, 2 failed\n"), "{text}");
        for wanted in [
            "a.lua:5: the frame has no verdict: it is not IP, and passes unseen at every hook",
            "a.lua:8: the frame has no verdict: of its two VLAN tags one is of VLAN 0",
            "not compared with the kernel: BPF_PROG_TEST_RUN takes all frames but one",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn a_script_that_cannot_be_loaded_fails() {
        let (_folder, file) = script("function process_packet(p)\n  return NF_DROP en\n");
        let missing = file.with_file_name("b.lua");
        let (good, text) = said(|out| check(&file, out));
        assert!(!good && text.contains("a.lua:2: "), "{text}");
        let (good, text) = said(|out| test_all(&[file, missing], out));
        assert!(!good && text.contains("a.lua:2: "), "{text}");
        assert!(text.ends_with("\n0 passed, 0 failed, 2 scripts could not be read\n"), "{text}");
    }
}
