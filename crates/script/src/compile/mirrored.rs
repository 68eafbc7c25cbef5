//! `nf.mirror`: the copies are the same in the VM, in the intermediate form and in the kernel, where a test has them told.

use wire::checksum::TransportChecksum;

use super::AttachType;
use super::differential::{InKernel, may_load};
use super::interpret::{Maps, run};
use super::tests::{Keeps, Named, RESULTS, compile, compile_at, compile_for};
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script};

const SCRIPT: &str = r#"
local WHERE = { [53] = "dns0", [80] = "web0" }
function process_packet(p)
  nf.capture(p, "all")
  nf.mirror(p, "mon0")
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return NF_DROP end
  ip:hop_limit():set(9)
  local udp = ip:data(packet_udp)
  local where = WHERE[udp:dport():get()]
  if where then nf.mirror(p, where) end
  return NF_ACCEPT
end
"#;

/// UDP over IPv6 to a port; to none, IPv4 without anything in it.
fn frame(port: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if port == 0 {
        frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 1, 2, 3, 5]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        frame.extend([0xfd; 32]);
        frame.extend([0, 7, 0, port, 0, 8, 9, 9]);
    }
    frame
}

#[test]
fn all_send_the_same_copies() {
    let compiled = compile(SCRIPT).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let names = compiled.mirrors();
    assert_eq!(*names, ["mon0", "dns0", "web0"]);
    let mut loaded = may_load().then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}")));
    let keeps = Keeps::default();
    let mut machine = Machine::new(keeps.clone(), Limits::default());
    let rule = machine.load(Script::new("test.lua", SCRIPT)).expect("a script");
    for (port, wanted) in
        [(53, &["mon0", "dns0"][..]), (80, &["mon0", "web0"]), (7, &["mon0"]), (0, &["mon0"])]
    {
        let frame = frame(port);
        let mut packet = Packet::of_frame(frame.clone(), TransportChecksum::Complete);
        assert_eq!(machine.run(rule, &mut packet).1, None);
        let in_lua = std::mem::take(&mut *keeps.mirrored.borrow_mut());
        assert_eq!(in_lua.iter().map(|(name, _)| name).collect::<Vec<_>>(), wanted);
        assert_eq!(in_lua[0].1, frame);
        assert!(wanted.len() < 2 || in_lua[1].1[21] == 9, "as it is then");
        let named = |all: Vec<(usize, Vec<u8>)>| -> Named {
            all.into_iter().map(|(name, octets)| (names[name].clone(), octets)).collect()
        };
        let mut maps = Maps::default();
        run(compiled.intermediate(), &mut maps, &mut frame.clone(), 0, || 0);
        assert_eq!(named(maps.mirrored), in_lua, "the intermediate form");
        if let Some(loaded) = &mut loaded {
            loaded.program.test_run(&frame).expect("it runs");
            let told = loaded.captured();
            let behind = told.into_iter().filter_map(|(name, octets)| Some((name.checked_sub(1)?, octets)));
            assert_eq!(named(behind.collect()), in_lua, "the kernel");
        }
    }
}

#[test]
fn what_cannot_be_copied_there_is_refused_with_its_line() {
    let script = |body: &str| format!("function process_packet(p)\n{body}\nreturn NF_ACCEPT\nend");
    for (body, wanted) in [
        ("nf.mirror(p:data(packet_eth), 'a')", "a copy is made of the packet, as the function gets it"),
        ("nf.mirror(p, 'a/b')", "an interface has a name of 1 to 15 octets"),
        ("nf.mirror(p, p:data(packet_eth):smac():get())", "the name of an interface has to be known"),
    ] {
        let refused = compile(&script(body)).unwrap_err();
        assert!(refused[0].line == 2 && refused[0].reason.starts_with(wanted), "{refused:#?}");
    }
    let text = script("nf.mirror(p, 'mon0')");
    for refused in [compile_for(&text, false), compile_at(&text, AttachType::Xdp, RESULTS)] {
        let refused = refused.unwrap_err();
        assert!(refused[0].reason.starts_with("copies are sent in the kernel at interfaces"), "{refused:#?}");
    }
}

#[test]
fn lua_says_what_is_no_interface() {
    let keeps = Keeps::default();
    for (body, wanted) in [
        ("nf.mirror(p, 'a b')", "mirror: an interface has a name of 1 to 15 octets"),
        ("nf.mirror('x', 'mon0')", "mirror: the packet is wanted"),
    ] {
        let text = format!("function process_packet(p) {body} return NF_ACCEPT end");
        let mut machine = Machine::new(keeps.clone(), Limits::default());
        let rule = machine.load(Script::new("test.lua", &text)).expect("a script");
        let mut packet = Packet::of_frame(frame(53), TransportChecksum::Complete);
        let error = machine.run(rule, &mut packet).1.expect(body).to_string();
        assert!(error.contains(wanted), "{error}");
    }
    assert!(keeps.mirrored.borrow().is_empty());
}
