//! Scripts at XDP, where frames come as they were on the wire: what they see and say is what they would at ingress.

use wire::checksum::TransportChecksum;

use super::differential::{InKernel, Logging, may_load};
use super::generate::{self, Random};
use super::tests::{RESULTS, compile_at};
use super::{AttachType, Refusal, Results};
use crate::packet::Packet;
use crate::vm::{Limits, Machine, RuleId, Script, Verdict};

const AT_XDP: Results =
    Results { pass: bpf::xdp::PASS, drop: bpf::xdp::DROP, error: bpf::xdp::DROP, ..RESULTS };

/// What the kernel makes of a frame before ingress: one tag is beside it. None: it is not IP, and no script's.
fn at_ingress(frame: &[u8]) -> Option<Vec<u8>> {
    let mut frame = frame.to_vec();
    if matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8])) && frame.len() >= 18 {
        frame.drain(12..16);
    }
    matches!(frame.get(12..14), Some([0x08, 0] | [0x86, 0xdd])).then_some(frame)
}

/// Whether it has two tags, one of them of VLAN 0.
fn has_priority_tag(frame: &[u8]) -> bool {
    let is_tag = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
    let is_none = |at: usize| frame.get(at..at + 2).is_some_and(|tag| tag[0] & 15 == 0 && tag[1] == 0);
    is_tag(12) && is_tag(16) && (is_none(14) || is_none(18))
}

/// A script in both: the same frames one after the other, each with what came of it.
struct Both {
    loaded: InKernel,
    lines: Vec<super::logging::Line>,
    machine: Machine,
    rule: RuleId,
    log: Logging,
    text: String,
}

impl Both {
    /// None: it cannot run at XDP, for these reasons.
    fn of(text: &str) -> Result<Self, Vec<Refusal>> {
        let compiled = compile_at(text, AttachType::Xdp, AT_XDP)?;
        let loaded = InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let log = Logging::default();
        let mut machine = Machine::new(log.clone(), Limits::default());
        let rule = machine.load(Script::new("test.lua", text)).expect("it was compiled");
        let lines = compiled.intermediate().lines.clone();
        Ok(Self { loaded, lines, machine, rule, log, text: text.to_owned() })
    }

    fn run(&mut self, frame: &[u8]) {
        let (mut expected, mut failed) = (AT_XDP.pass, None);
        if let Some(frame) = at_ingress(frame) {
            let mut packet = Packet::of_frame(frame, TransportChecksum::Complete);
            let (verdict, error) = self.machine.run(self.rule, &mut packet);
            if error.is_some() || matches!(verdict, Verdict::Drop | Verdict::Stolen) {
                expected = AT_XDP.drop;
            }
            failed = error;
        } else if has_priority_tag(frame) {
            expected = AT_XDP.error;
        }
        let told = || format!("{failed:?}\n{}\n{}", hex::encode(frame), self.text);
        let got = self.loaded.program.test_run(frame).unwrap_or_else(|error| panic!("{error}: {}", told()));
        assert_eq!(got, (expected, frame.to_vec()), "{}", told());
        let logged = self.loaded.logged(&self.lines);
        assert_eq!(logged, self.log.take(), "{}", told());
    }
}

#[test]
fn it_has_the_verdicts_the_logs_and_the_tables_of_the_vm() {
    if !may_load() {
        return;
    }
    let programs = generate::cases(1200);
    let mut random = Random::new(0x51de_57e9);
    let (mut scripts, mut logs, mut tables, mut cases) = (0, 0, 0, 0);
    for _ in 0..programs {
        let text = generate::script(&mut random);
        let Ok(mut both) = Both::of(&text) else { continue };
        scripts += 1;
        logs += u32::from(!both.lines.is_empty());
        tables += u32::from(text.contains("seen:") || text.contains("p:flow"));
        for _ in 0..256 {
            both.run(&generate::packet(&mut random));
            cases += 1;
        }
    }
    println!("{scripts} scripts, {logs} of them log, {tables} have tables; {cases} cases");
    let enough = scripts > programs / 24 && logs > programs / 120 && tables > programs / 120;
    assert!(programs < 400 || enough, "{scripts} {logs} {tables}");
}

/// The kernel takes a tag of VLAN 0 off behind XDP, and what it and another one leave is received.
#[test]
fn two_tags_of_which_one_is_of_vlan_0_are_an_error() {
    if !may_load() {
        return;
    }
    let mut both =
        Both::of("function process_packet(p) nf.log(#p) return NF_ACCEPT end").expect("it compiles");
    let mut packet = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 4, 59, 64];
    packet.extend([0xfd; 36]);
    for (tags, is_error) in [
        (&[0x81, 0, 0, 0][..], false),
        (&[0x81, 0, 0, 0, 0x81, 0, 0, 0], true),
        (&[0x88, 0xa8, 0xf0, 0, 0x81, 0, 0, 5], true),
        (&[0x81, 0, 0, 5, 0x88, 0xa8, 0xe0, 0], true),
        (&[0x81, 0, 0, 0, 0x81, 0, 0, 5, 0x81, 0, 0, 5], true),
        (&[0x88, 0xa8, 0, 5, 0x81, 0, 1, 0], false),
        (&[0x81, 0, 0, 5, 0x81, 0, 0, 5, 0x81, 0, 0, 0], false),
    ] {
        let frame = [&[2; 12][..], tags, &packet].concat();
        assert_eq!(has_priority_tag(&frame), is_error, "{tags:x?}");
        both.run(&frame);
    }
    // Cut within the second.
    for length in 16..20 {
        both.run(&[&[2; 12][..], &[0x81, 0, 0, 5, 0x81, 0, 0, 0]].concat()[..length]);
    }
}

/// What lies on both sides of the place of a tag, at places that are known and that the packet decides.
#[test]
fn a_tag_is_not_in_the_packet() {
    if !may_load() {
        return;
    }
    let mut random = Random::new(7);
    for at in ["6", "8", "10", "11", "12", "13", "14", "p:get()[15] & 15", "(p:get()[15] & 15) + 14"] {
        let text = format!(
            "function process_packet(p)
  local at = {at}
  local view = p:raw(at, 20):data(packet_udp)
  nf.log(#p, at, p:get()[at], p:get()[at + 2])
  if view then nf.log(view:sport():get(), view:dport():get(), view:len():get(), view:check():get()) end
  local ip = p:raw(at, 46):data(packet_ip6)
  if ip then nf.log(ip:flow_label():get(), ip:saddr():get(), ip:daddr():get()) end
  nf.log(p:raw(7, 8):get(), p:data(packet_eth):smac():get(), p:data(packet_eth):type():get())
  return p:get()[at] & 1
end"
        );
        let mut both = Both::of(&text).unwrap_or_else(|refusals| panic!("{text}\n{refusals:#?}"));
        for _ in 0..256 {
            let mut frame = generate::packet(&mut random);
            frame.resize(frame.len().max(80), 0x5a);
            both.run(&frame);
        }
    }
}

#[test]
fn what_changes_or_redirects_a_packet_is_refused_with_its_line() {
    for (body, line, reason) in [
        (
            "if #p > 5 then\np:raw(0, 1):set(3)\np:raw(9, 1):set(3)\nend\nreturn NF_ACCEPT",
            3,
            "it changes the packet: not",
        ),
        ("p:data(packet_eth):smac():set('02:00:00:00:00:01')\nreturn NF_ACCEPT", 2, "not finished"),
        (
            "if #p > 5 then\nreturn p:redirect('eth0')\nend\nreturn NF_ACCEPT",
            3,
            "it redirects the packet: not",
        ),
        ("local half = #p / 2\nreturn NF_ACCEPT", 2, "'/'"),
    ] {
        let text = format!("function process_packet(p)\n{body}\nend");
        let refusals = compile_at(&text, AttachType::Xdp, AT_XDP).unwrap_err();
        assert!(refusals[0].line == line && refusals[0].reason.contains(reason), "{refusals:#?}");
    }
}

#[test]
fn nothing_is_punted() {
    let punting = Results { punt_mark: Some(0x51df_0001), ..AT_XDP };
    let text = "function process_packet(p)\nif #p > 99 then nf.log(1) end\nreturn NF_ACCEPT\nend";
    assert!(compile_at(text, AttachType::Xdp, punting).is_err());
    assert!(compile_at(text, AttachType::Interface { has_link: true }, punting).is_ok());
}
