//! VLAN tags: the same in the VM, in the intermediate form and in the kernel, as far as a tag shows in what a program logs.

use bpf::xdp;
use wire::checksum::TransportChecksum;

use super::AttachType;
use super::differential::{InKernel, Logging, may_load};
use super::interpret::{Maps, run};
use super::tests::{RESULTS, compile, compile_at, compile_for};
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script};

/// An IPv6 header behind tags.
fn frame(tags: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(tags);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 4, 59, 64]);
    frame.extend([0xfd; 32]);
    frame.extend([1, 2, 3, 4]);
    frame
}

const ONE: &[u8] = &[0x81, 0, 0x60, 7];
const TWO: &[u8] = &[0x88, 0xa8, 0, 9, 0x81, 0, 0x20, 8];

fn script(body: &str) -> String {
    format!("function process_packet(p)\n{body}\nreturn NF_ACCEPT\nend")
}

#[test]
fn tags_are_the_same_in_both_tiers() {
    for (body, tags, wanted) in [
        ("nf.log(p:vlan_id())", &[][..], &["nil"][..]),
        ("nf.log(p:vlan_id())", ONE, &["7"]),
        ("nf.log(p:vlan_id(), #p)", TWO, &["9 66"]),
        ("p:push_vlan(4095) nf.log(p:vlan_id(), #p)", &[], &["4095 58"]),
        ("p:push_vlan(5) nf.log(p:pop_vlan(), p:vlan_id(), #p)", &[], &["5 nil 58"]),
        ("nf.log(p:pop_vlan(), #p) nf.log(p:pop_vlan(), #p)", &[], &["nil 58", "nil 58"]),
        ("nf.log(p:pop_vlan(), #p) nf.log(p:pop_vlan(), #p)", ONE, &["7 58", "nil 58"]),
        // The second one goes beside the packet when the first is taken.
        ("nf.log(p:pop_vlan(), #p) nf.log(p:pop_vlan(), #p)", TWO, &["9 58", "8 58"]),
        ("p:pop_vlan() p:push_vlan(1)", TWO, &[]),
        ("p:push_vlan(1) p:push_vlan(2)", &[], &[]),
        ("p:push_vlan(p:get()[0] << 12)", &[], &[]),
        (
            "p:pop_vlan() local ip = p:data(packet_eth):data(packet_ip6) ip:hop_limit():set(9) nf.log(ip:saddr():get())",
            ONE,
            &["fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"],
        ),
    ] {
        let text = script(body);
        let compiled = compile(&text).unwrap_or_else(|refusals| panic!("{body}: {refusals:#?}"));
        let frame = frame(tags);
        let log = Logging::default();
        let mut machine = Machine::new(log.clone(), Limits::default());
        let rule = machine.load(Script::new("test.lua", &text)).expect(body);
        let mut packet = Packet::of_frame(frame.clone(), TransportChecksum::Complete);
        let failed = machine.run(rule, &mut packet).1.is_some();
        let logged = log.take();
        assert_eq!(
            (&logged[..], failed),
            (&wanted.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()[..], wanted.is_empty()),
            "{body}"
        );
        let lines = &compiled.intermediate().lines;
        let (mut maps, mut changed) = (Maps::default(), frame.clone());
        run(compiled.intermediate(), &mut maps, &mut changed, 0, || 0);
        let told: Vec<_> = maps.logged.iter().map(|(line, numbers)| lines[*line].text(numbers)).collect();
        assert_eq!((&told, &changed[..]), (&logged, packet.bytes()), "the intermediate form: {body}");
        if may_load() {
            let mut loaded = InKernel::load(&compiled).unwrap_or_else(|error| panic!("{body}: {error}"));
            let (result, got) = loaded.program.test_run(&frame).expect(body);
            assert_eq!(result, if failed { RESULTS.error } else { RESULTS.pass }, "{body}");
            assert_eq!((loaded.logged(lines), &got[..]), (logged, packet.bytes()), "the kernel: {body}");
        }
    }
}

#[test]
fn at_xdp_a_tag_is_read() {
    if !may_load() {
        return;
    }
    let results = super::Results { pass: xdp::PASS, drop: xdp::DROP, error: xdp::DROP, ..RESULTS };
    let text = script("nf.log(p:vlan_id(), #p)");
    let compiled =
        compile_at(&text, AttachType::Xdp, results).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let mut loaded = InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}"));
    for (tags, wanted) in [(&[][..], "nil 58"), (ONE, "7 58")] {
        loaded.program.test_run(&frame(tags)).expect("it runs");
        assert_eq!(loaded.logged(&compiled.intermediate().lines), [wanted]);
    }
}

#[test]
fn what_cannot_be_done_there_is_refused_with_its_line() {
    for (body, has_link, wanted) in [
        ("p:push_vlan(1)", false, "VLAN tags are there at interfaces whose packets have a link header"),
        ("p:data(packet_eth):pop_vlan()", true, "only the packet itself has a VLAN tag"),
        (
            "local eth = p:data(packet_eth) p:push_vlan(1) nf.log(eth:type():get())",
            true,
            "a view from before",
        ),
    ] {
        let refused = compile_for(&script(body), has_link).unwrap_err();
        assert_eq!((refused[0].line, refused[0].reason.starts_with(wanted)), (2, true), "{refused:#?}");
    }
    let refused = compile_at(&script("p:pop_vlan()"), AttachType::Xdp, RESULTS).unwrap_err();
    assert!(refused[0].reason.starts_with("it changes the packet"), "{refused:#?}");
}
