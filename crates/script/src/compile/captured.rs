//! `nf.capture`: the packet as it is then, the same in the VM, in the intermediate form and in the kernel.

use wire::checksum::TransportChecksum;

use super::differential::{InKernel, may_load};
use super::interpret::{Maps, run};
use super::logging::CAPTURED;
use super::tests::{Keeps, Named, RESULTS, compile, compile_at, compile_for};
use super::{AttachType, account};
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script};

const SCRIPT: &str = r#"
function process_packet(p)
  nf.capture(p, "all.pcap")
  local ip = p:data(packet_eth):data(packet_ip6)
  if not ip then return NF_DROP end
  ip:hop_limit():set(9)
  nf.capture(p, "ipv6")
  return NF_ACCEPT
end
"#;
const LINK: usize = 14;

/// UDP over IPv6, or IPv4 without anything in it, of so many octets in all.
fn frame(is_ipv6: bool, length: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if is_ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(((length - LINK - 40) as u16).to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([0xfd; 32]);
        frame.extend([0, 7, 0, 53]);
        frame.extend(((length - LINK - 40) as u16).to_be_bytes());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0]);
    }
    frame.resize(length, 7);
    frame
}

#[test]
fn all_tell_the_packet_as_it_is_then() {
    let compiled = compile(SCRIPT).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let names = &compiled.intermediate().captures;
    assert_eq!(*names, ["all.pcap", "ipv6"]);
    let mut loaded = may_load().then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}")));
    let keeps = Keeps::default();
    let mut machine = Machine::new(keeps.clone(), Limits::default());
    let rule = machine.load(Script::new("test.lua", SCRIPT)).expect("a script");
    for (is_ipv6, length) in [(true, 62), (true, 1536), (true, 3000), (false, 60), (true, 1537)] {
        let frame = frame(is_ipv6, length);
        let mut packet = Packet::of_frame(frame.clone(), TransportChecksum::Complete);
        let (_, error) = machine.run(rule, &mut packet);
        assert_eq!(error, None);
        let in_lua = std::mem::take(&mut *keeps.captured.borrow_mut());
        assert_eq!(in_lua.len(), if is_ipv6 { 2 } else { 1 });
        assert_eq!(in_lua[0], ("all.pcap".to_owned(), frame[LINK..].to_vec()));
        assert!(!is_ipv6 || in_lua[1].1[7] == 9);
        let named = |all: Vec<(usize, Vec<u8>)>| -> Named {
            all.into_iter().map(|(name, octets)| (names[name].clone(), octets[LINK..].to_vec())).collect()
        };
        let mut maps = Maps::default();
        run(compiled.intermediate(), &mut maps, &mut frame.clone(), 0, || 0);
        assert_eq!(named(maps.captured), in_lua, "the intermediate form");
        if let Some(loaded) = &mut loaded {
            loaded.program.test_run(&frame).expect("it runs");
            let cut = |(name, octets): (String, Vec<u8>)| {
                let kept = octets.len().min(CAPTURED - LINK);
                (name, octets[..kept].to_vec())
            };
            let in_lua: Named = in_lua.into_iter().map(cut).collect();
            assert_eq!(named(loaded.captured()), in_lua, "the kernel");
        }
    }
}

#[test]
fn the_kernel_captures_so_many_in_a_second() {
    if !may_load() {
        return;
    }
    let compiled = compile(SCRIPT).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let mut loaded = InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}"));
    let frame = frame(false, 60);
    let most = account::CAPTURES_A_SECOND as usize;
    let began = std::time::Instant::now();
    let mut captured = 0;
    for _ in 0..20 * most {
        loaded.program.test_run(&frame).expect("it runs");
        captured += loaded.captured().len();
    }
    // Each processor, and each second that has begun.
    let seconds = began.elapsed().as_secs() as usize + 2;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    assert!((most..=most * seconds * processors).contains(&captured), "{captured} in {seconds} s");
    assert!(captured < 20 * most || seconds * processors >= 20, "{captured}");
}

#[test]
fn what_cannot_be_captured_is_refused() {
    for (body, why) in [
        ("nf.capture(p:data(packet_eth), 'a')", "a capture takes the packet, as the function gets it"),
        ("nf.capture(p, tostring(1))", "is not there in the kernel"),
        ("nf.capture(p, '../a')", "\"../a\" is no name of a capture"),
    ] {
        let text = format!("function process_packet(p) {body} return NF_DROP end");
        let refusals = compile(&text).expect_err(body);
        assert!(refusals[0].reason.contains(why), "{refusals:?}");
    }
    let text = "function process_packet(p) nf.capture(p, 'a') return NF_DROP end";
    let refusals = compile_at(text, AttachType::Xdp, RESULTS).expect_err("it is at XDP");
    assert!(refusals[0].reason.contains("at interfaces only, and not at XDP"), "{refusals:?}");
    // Without a link header what was made up is not in it.
    assert!(compile_for(text, false).is_ok());
}
