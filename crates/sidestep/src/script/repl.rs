//! `script repl`: expressions are asked of a script and the packets of a capture.

use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::Path;
use std::rc::Rc;

use config::folder::Folder;
use script::testing::{Answer, Files, Session};

use super::capture;
use crate::failure::Failure;
use crate::terminal::visible;

/// Reads lines to their end, and answers each; whether none has failed, or a user sits there who has seen it.
pub(super) fn run(
    file: &Path,
    captured: Option<&Path>,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<io::Result<bool>, Failure> {
    let path = file.display().to_string();
    let source =
        std::fs::read_to_string(file).map_err(|error| Failure::Message(format!("{path}: {error}")))?;
    let packets = captured.map(capture::read).transpose()?.unwrap_or_default();
    let files: Rc<dyn Files> = Rc::new(Folder::of(file));
    let session = Session::new(&path, &source, &packets, &files);
    let mut session = session.map_err(|error| Failure::Message(error.to_string()))?;
    let is_watched = io::stdin().is_terminal();
    if is_watched {
        let packets = match packets.len() {
            0 => "no packets".to_owned(),
            1 => "1 packet, which is p".to_owned(),
            many => format!("{many} packets, of which the first is p"),
        };
        eprintln!("{path}: {packets}; packet(n), next_packet(), run(); Ctrl-D ends");
    }
    Ok(converse(&mut session, is_watched, input, out).map(|good| good || is_watched))
}

fn converse(
    session: &mut Session,
    prompts: bool,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let (mut good, mut text) = (true, String::new());
    loop {
        if prompts {
            write!(out, "{}", if text.is_empty() { "> " } else { ">> " })?;
            out.flush()?;
        }
        let is_last = input.read_line(&mut text)? == 0;
        if text.trim().is_empty() {
            text.clear();
            if is_last {
                return Ok(good);
            }
            continue;
        }
        match session.ask(&text) {
            // An empty line ends what is not whole, too.
            Ok(Answer::Incomplete) if !is_last && !text.ends_with("\n\n") => continue,
            Ok(Answer::Incomplete) => {
                good = false;
                writeln!(out, "error: that is no whole statement")?;
            }
            Ok(Answer::Values { text, log, sent }) => {
                for line in log {
                    writeln!(out, "log: {}", visible(&line))?;
                }
                for packet in sent {
                    let octets: String = packet.iter().map(|octet| format!("{octet:02x}")).collect();
                    writeln!(out, "sent: {octets}")?;
                }
                if !text.is_empty() {
                    writeln!(out, "{}", visible(&text))?;
                }
            }
            Err(error) => {
                good = false;
                writeln!(out, "error: {}", visible(&error.message))?;
            }
        }
        text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &str) -> (bool, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.lua");
        std::fs::write(&file, "function twice(n) return 2 * n end").expect("a script");
        let (mut input, mut out) = (lines.as_bytes(), Vec::new());
        let good = run(&file, None, &mut input, &mut out).unwrap_or_else(|failure| panic!("{failure:?}"));
        (good.expect("memory"), String::from_utf8(out).expect("text"))
    }

    #[test]
    fn each_line_is_answered() {
        assert_eq!(
            said("twice(4)\n\nx = 'a'\nx, twice(x == 'a' and 1)\n"),
            (true, "8\n\"a\"  2\n".to_owned())
        );
    }

    #[test]
    fn a_statement_may_have_several_lines() {
        assert_eq!(said("for i = 1, 2 do\n  nf.log(i)\nend\n3"), (true, "log: 1\nlog: 2\n3\n".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_told_and_the_next_line_is_answered() {
        let (good, text) = said("twice(nil)\n1\nfor i = 1, 2 do\n\n2\nwhile");
        assert!(!good);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("error: ") && lines[0].contains("a.lua:1: "), "{text}");
        assert_eq!(
            lines[1..],
            ["1", "error: that is no whole statement", "2", "error: that is no whole statement"]
        );
    }
}
