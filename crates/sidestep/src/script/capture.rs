//! `script test --pcap`: what a script makes of the packets of a capture.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use config::folder::Folder;
use script::difference::{Difference, differences};
use script::packet::Packet;
use script::pcap::{self, Captured, Format};
use script::testing::{Files, Given, Played, Player};
use script::vlan::{self, Unseen};
use script::vm::{Script, Verdict};
use serde::Serialize;

use super::tiers::{self, Compared};
use crate::failure::Failure;
use crate::terminal::visible;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Test<'a> {
    pub(super) file: &'a Path,
    pub(super) function: &'a str,
    pub(super) capture: &'a Path,
    /// Where packets go that pass.
    pub(super) write: Option<PathBuf>,
    pub(super) json: bool,
}

/// What has become of a packet, or of work that was put off (without a number). The field names are a contract.
#[derive(Debug, Default, Serialize)]
struct Told {
    /// From 1 on.
    packet: Option<usize>,
    /// Since the first packet.
    time_s: f64,
    verdict: Option<&'static str>,
    /// Why no hook gives it to scripts, and it has no verdict.
    unseen: Option<String>,
    error: Option<String>,
    redirected: Option<String>,
    changes: Vec<Change>,
    /// Packets in hexadecimal digits, from their IP header on.
    sent: Vec<String>,
    log: Vec<String>,
    /// The names of captures that it went into.
    captured: Vec<String>,
    /// The interfaces that copies of it went to.
    mirrored: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Change {
    what: String,
    before: String,
    after: String,
}

/// The packets of a capture file.
pub(super) fn read(file: &Path) -> Result<Vec<Captured>, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::Message(format!("{}: {error}", file.display()));
    pcap::read(&std::fs::read(file).map_err(|error| about(&error))?).map_err(|error| about(&error))
}

impl Test<'_> {
    /// Gives it the packets; whether it failed at none, and does the same in both tiers.
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<io::Result<bool>, Failure> {
        let format = self.write.as_deref().map(format_of).transpose()?;
        let packets = read(self.capture)?;
        let (path, files) =
            (self.file.display().to_string(), Rc::new(Folder::of(self.file)) as Rc<dyn Files>);
        let source = std::fs::read_to_string(self.file)
            .map_err(|error| Failure::Message(format!("{path}: {error}")))?;
        let script = Script { function: self.function.to_owned(), ..Script::new(&path, &source) };
        let mut player = Player::load(script, &files).map_err(|error| Failure::Message(error.to_string()))?;
        let protocols = player.protocols();
        let begin = packets.first().map_or(Duration::ZERO, |packet| packet.time);
        let (mut passed, mut given, mut tally) = (Vec::new(), Vec::new(), Tally::default());
        for (at, captured) in packets.iter().enumerate() {
            let time = captured.time.saturating_sub(begin);
            let at_ms = time.as_millis() as u64;
            while let Some(played) = player.due(at_ms) {
                tally.failed += usize::from(played.error.is_some());
                if let Err(error) = self.tell(&told(None, &played, Vec::new()), None, out) {
                    return Ok(Err(error));
                }
            }
            let mut packet = captured.packet();
            let before = packet.clone();
            if let Some(why) = vlan::unseen(before.bytes()) {
                tally.unseen += 1;
                passed.extend((why != Unseen::PriorityTag).then(|| captured.clone()));
                if let Err(error) = self.tell(&Told::unseen(at + 1, time, why), Some(&before), out) {
                    return Ok(Err(error));
                }
                continue;
            }
            given.push(Given { function: self.function.to_owned(), frame: before.bytes().to_vec() });
            let played = player.packet(at_ms, &mut packet);
            let goes_on = played.error.is_none() && passes(played.verdict);
            // What is dropped, or failed at, is nothing to anybody.
            let changes = match goes_on || packet.redirected().is_some() {
                true => {
                    let link = before.bytes().len() - before.real().len();
                    differences(&protocols, before.bytes(), packet.bytes(), link)
                }
                false => Vec::new(),
            };
            tally.count(&played, !changes.is_empty());
            if goes_on {
                passed.push(Captured { octets: packet.real().to_vec(), ..captured.clone() });
            }
            let told = told(Some(at + 1), &played, changes);
            if let Err(error) = self.tell(&told, Some(&before), out) {
                return Ok(Err(error));
            }
        }
        if let (Some(file), Some(format)) = (&self.write, format) {
            let about =
                |error: &dyn std::fmt::Display| Failure::Message(format!("{}: {error}", file.display()));
            let octets = format.write(&passed).map_err(|error| about(&error))?;
            std::fs::write(file, octets).map_err(|error| about(&error))?;
        }
        let compared = tiers::compare(self.file, &source, &given);
        let good = tally.failed == 0 && !matches!(compared, Compared::Differs(_));
        Ok(self.sum_up(&tally, &compared, passed.len(), out).map(|()| good))
    }

    fn tell(&self, told: &Told, packet: Option<&Packet>, out: &mut dyn Write) -> io::Result<()> {
        match self.json {
            true => writeln!(out, "{}", serde_json::to_string(told)?),
            false => out.write_all(told.text(packet).as_bytes()),
        }
    }

    fn sum_up(
        &self,
        tally: &Tally,
        compared: &Compared,
        passed: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        // JSON lines are about packets alone; what else is to say goes where errors go.
        let mut errors = io::stderr();
        let out: &mut dyn Write = if self.json { &mut errors } else { out };
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        if !self.json {
            let packets = tally.verdicts.iter().sum::<usize>() + tally.unseen;
            let mut words = vec![count(packets, "packet")];
            let named = Verdict::ALL.iter().zip(tally.verdicts).filter(|(_, count)| *count > 0);
            words.extend(named.map(|(verdict, count)| format!("{count} {}", verdict.name())));
            words.extend((tally.unseen > 0).then(|| format!("{} unseen", tally.unseen)));
            words.extend((tally.changed > 0).then(|| format!("{} changed", tally.changed)));
            words.extend((tally.failed > 0).then(|| count(tally.failed, "failure")));
            writeln!(out, "{}", words.join(", "))?;
            if let Some(file) = &self.write {
                writeln!(out, "{}: {}", file.display(), count(passed, "packet"))?;
            }
        }
        if let Compared::Same(_, others @ 1..) = compared {
            writeln!(out, "not compared with the kernel: {}", tiers::not_run(*others))?;
        }
        match compared {
            Compared::Same(packets, _) if self.json || *packets == 0 => Ok(()),
            Compared::Same(1, _) => writeln!(out, "1 packet comes out the same in the kernel"),
            Compared::Same(packets, _) => writeln!(out, "{packets} packets come out the same in the kernel"),
            Compared::Not(why) => writeln!(out, "not compared with the kernel: {}", visible(why)),
            Compared::Differs(what) => writeln!(out, "the tiers differ: {}", visible(what)),
        }
    }
}

fn format_of(file: &Path) -> Result<Format, Failure> {
    Format::of(file).ok_or_else(|| {
        Failure::Message(format!("{}: the name of the file must end with .pcap or .pcapng", file.display()))
    })
}

fn passes(verdict: Option<Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Accept | Verdict::Continue | Verdict::Queue | Verdict::Repeat))
}

#[derive(Debug, Default)]
struct Tally {
    verdicts: [usize; Verdict::ALL.len()],
    unseen: usize,
    changed: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, played: &Played, changed: bool) {
        for (verdict, count) in Verdict::ALL.iter().zip(&mut self.verdicts) {
            *count += usize::from(played.verdict == Some(*verdict));
        }
        self.changed += usize::from(changed);
        self.failed += usize::from(played.error.is_some());
    }
}

fn told(packet: Option<usize>, played: &Played, changes: Vec<Difference>) -> Told {
    let hexadecimal = |octets: &Vec<u8>| octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let change = |Difference { what, before, after }| Change { what, before, after };
    Told {
        packet,
        time_s: played.at_ms as f64 / 1000.0,
        verdict: played.verdict.map(Verdict::name),
        unseen: None,
        error: played.error.as_ref().map(ToString::to_string),
        redirected: played.redirected.clone(),
        changes: changes.into_iter().map(change).collect(),
        sent: played.sent.iter().map(hexadecimal).collect(),
        log: played.log.clone(),
        captured: played.captured.clone(),
        mirrored: played.mirrored.clone(),
    }
}

impl Told {
    /// Of a packet that has no verdict.
    fn unseen(number: usize, time: Duration, why: Unseen) -> Self {
        Self {
            packet: Some(number),
            time_s: time.as_secs_f64(),
            unseen: Some(why.to_string()),
            ..Self::default()
        }
    }

    /// A line, and one more for each thing that there is to say.
    fn text(&self, packet: Option<&Packet>) -> String {
        let mut text = String::new();
        let mut line = |indent: &str, what: &str| {
            // A string takes whatever is written to it.
            let _ = writeln!(text, "{indent}{}", visible(what));
        };
        let time = format!("{:.3} s", self.time_s);
        match (self.packet, packet) {
            (Some(number), Some(packet)) => {
                let none = |why: &String| format!("no verdict: {why}");
                let verdict = self.unseen.as_ref().map(none);
                let verdict = verdict.as_deref().or(self.verdict).unwrap_or("none");
                let to =
                    self.redirected.as_ref().map_or_else(String::new, |name| format!(", out through {name}"));
                line("", &format!("{number}  {time}  {}  {verdict}{to}", ends(packet)));
            }
            _ => line("", &format!("-  {time}  work that was put off")),
        }
        for Change { what, before, after } in &self.changes {
            line("     ", &format!("{what}: {before} -> {after}"));
        }
        for octets in &self.sent {
            line("     ", &format!("sent: {octets}"));
        }
        for name in &self.captured {
            line("     ", &format!("captured: {name}"));
        }
        for name in &self.mirrored {
            line("     ", &format!("copied to: {name}"));
        }
        for logged in &self.log {
            line("     ", &format!("log: {logged}"));
        }
        if let Some(error) = &self.error {
            line("     ", &format!("failed: {error}"));
        }
        text
    }
}

/// From where to where a packet goes, and what it is.
fn ends(packet: &Packet) -> String {
    let length = packet.real().len();
    let Some(flow) = packet.flow() else { return format!("not IP, {length} octets") };
    let (from, to) = if flow.reversed { (flow.high, flow.low) } else { (flow.low, flow.high) };
    let end = |(address, port)| match port {
        0 => format!("{address}"),
        port => SocketAddr::new(address, port).to_string(),
    };
    let protocol = match flow.protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        other => format!("protocol {other}"),
    };
    format!("{} > {} {protocol}, {length} octets", end(from), end(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "
        local test = require 'test'
        function later(id) nf.log('later', id, nf.get_time()) end
        function process_packet(p)
          local ip = p:data(packet_eth):data(packet_ip6)
          local udp = ip:data(packet_udp)
          if udp:dport():get() == 1 then return NF_DROP end
          if udp:dport():get() == 2 then return p:redirect('wan1') end
          if udp:dport():get() == 3 then nf.schedule(nil, 'later', 7, 5) return NF_ACCEPT end
          if udp:dport():get() == 4 then error('\\27[2J') end
          ip:hop_limit():set(ip:hop_limit():get() - 1)
          nf.log('port', udp:dport():get(), nf.get_time())
          return XT_CONTINUE
        end";

    fn capture(ports: &[u16]) -> Vec<Captured> {
        let octets = |port: u16| {
            let mut packet = vec![0x60, 0, 0, 0, 0, 9, 17, 64];
            packet.extend([&[0xfd][..], &[0; 14], &[1], &[0xfd], &[0; 14], &[2]].concat());
            packet.extend([&7_u16.to_be_bytes()[..], &port.to_be_bytes(), &[0, 9, 0, 0, b'x']].concat());
            packet
        };
        let packet = |(at, port): (u64, &u16)| Captured {
            link: pcap::Link::Ip,
            time: Duration::from_millis(1_700_000_000_000 + 10 * at),
            octets: octets(*port),
        };
        (0..).zip(ports).map(packet).collect()
    }

    struct Written {
        _folder: tempfile::TempDir,
        script: PathBuf,
        capture: PathBuf,
        written: PathBuf,
    }

    fn files(packets: &[Captured], format: Format) -> Written {
        let folder = tempfile::tempdir().expect("a folder");
        let [script, capture, written] =
            ["a.lua", "in.cap", "out.pcapng"].map(|name| folder.path().join(name));
        std::fs::write(&script, SCRIPT).expect("a script");
        std::fs::write(&capture, format.write(packets).expect("a capture")).expect("a file");
        Written { _folder: folder, script, capture, written }
    }

    fn said(files: &Written, json: bool) -> (bool, String) {
        let test = Test {
            file: &files.script,
            function: "process_packet",
            capture: &files.capture,
            write: Some(files.written.clone()),
            json,
        };
        let mut out = Vec::new();
        let good = test.run(&mut out).unwrap_or_else(|failure| panic!("{failure:?}")).expect("memory");
        (good, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn each_packet_is_told_with_its_verdict_and_what_has_changed() {
        for format in [Format::Pcap, Format::Pcapng] {
            let files = files(&capture(&[53, 1, 2, 3, 4, 54]), format);
            let (good, text) = said(&files, false);
            assert!(!good, "it failed at one packet");
            let wanted = "1  0.000 s  [fd00::1]:7 > [fd00::2]:53 udp, 49 octets  XT_CONTINUE\n\
                \x20    packet_ip6 hop_limit: 64 -> 63\n\
                \x20    log: port 53 0\n\
                2  0.010 s  [fd00::1]:7 > [fd00::2]:1 udp, 49 octets  NF_DROP\n\
                3  0.020 s  [fd00::1]:7 > [fd00::2]:2 udp, 49 octets  NF_STOLEN, out through wan1\n\
                4  0.030 s  [fd00::1]:7 > [fd00::2]:3 udp, 49 octets  NF_ACCEPT\n\
                -  0.035 s  work that was put off\n\
                \x20    log: later 7 35\n\
                5  0.040 s  [fd00::1]:7 > [fd00::2]:4 udp, 49 octets  NF_DROP\n";
            assert!(text.starts_with(wanted), "{text}");
            assert!(text.contains("a.lua:10: \\x1b[2J"), "nothing is told to a terminal: {text}");
            assert!(
                text.contains(
                    "6 packets, 2 NF_DROP, 1 NF_ACCEPT, 1 NF_STOLEN, 2 XT_CONTINUE, 2 changed, 1 failure\n"
                ),
                "{text}"
            );
            assert_eq!(said(&files, false).1, text, "it is the same each time");
            let passed = pcap::read(&std::fs::read(&files.written).expect("a file")).expect("a capture");
            let ports: Vec<_> = passed.iter().map(|packet| packet.octets[43]).collect();
            assert_eq!((ports, passed[0].octets[7]), (vec![53, 3, 54], 63));
        }
    }

    #[test]
    fn what_no_hook_gives_to_scripts_is_told_and_passes() {
        let mut packets = capture(&[1, 53]);
        let ether = |tags: &[u8], rest: &[u8]| [&[2; 12][..], tags, rest].concat();
        let [two, priority] = [[0x81, 0, 0, 5, 0x81, 0, 0, 6], [0x81, 0, 0, 0, 0x81, 0, 0, 6]];
        let (arp, ip) = ([&[8, 6][..], &[0; 28]].concat(), [&[0x86, 0xdd][..], &packets[1].octets].concat());
        let frames = [ether(&[], &arp), ether(&two, &ip), ether(&priority, &ip), ether(&two[..4], &ip)];
        for (packet, octets) in (0..).zip(frames) {
            packets.push(Captured {
                link: pcap::Link::Ethernet,
                time: Duration::from_millis(packet),
                octets,
            });
        }
        // A pcap has packets of one kind.
        let files = files(&packets[2..], Format::Pcap);
        let (good, text) = said(&files, false);
        assert!(good, "{text}");
        let wanted =
            "1  0.000 s  not IP, 42 octets  no verdict: it is not IP, and passes unseen at every hook\n";
        assert!(text.starts_with(wanted), "{text}");
        assert!(
            text.contains("no verdict: it has two VLAN tags") && text.contains("one is of VLAN 0"),
            "{text}"
        );
        assert!(text.contains("4 packets, 1 XT_CONTINUE, 3 unseen, 1 changed\n"), "{text}");
        let passed = pcap::read(&std::fs::read(&files.written).expect("a file")).expect("a capture");
        assert_eq!(passed.len(), 3, "all but the one that is an error");
        let (_, text) = said(&files, true);
        let first: serde_json::Value =
            serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert!(
            first["verdict"].is_null() && first["unseen"].as_str().is_some_and(|why| why.contains("not IP"))
        );
    }

    #[test]
    fn json_has_a_line_for_each_packet() {
        let files = files(&capture(&[53, 4]), Format::Pcap);
        let (_, text) = said(&files, true);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!((&lines[0]["packet"], &lines[0]["verdict"]), (&1.into(), &"XT_CONTINUE".into()));
        assert_eq!(lines[0]["changes"][0]["what"], "packet_ip6 hop_limit");
        assert!(lines[1]["error"].as_str().is_some_and(|error| error.contains("\u{1b}[2J")), "{text}");
    }

    #[test]
    fn what_cannot_be_written_is_told_before_anything_is_done() {
        let mut files = files(&capture(&[53]), Format::Pcap);
        files.written.set_extension("txt");
        let test = Test {
            file: &files.script,
            function: "process_packet",
            capture: &files.capture,
            write: Some(files.written),
            json: false,
        };
        let mut out = Vec::new();
        let Err(Failure::Message(why)) = test.run(&mut out) else { panic!("it was written") };
        assert!(
            why.ends_with("the name of the file must end with .pcap or .pcapng") && out.is_empty(),
            "{why}"
        );
    }
}
