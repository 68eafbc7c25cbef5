//! A filter of streams in both tiers does what Lua does alone, though Lua misses what the kernel decides by itself.

use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use wire::checksum::TransportChecksum;

use super::{key, of_value, value};
use crate::checksum::{Layout, complete};
use crate::compile::differential::{create, may_load};
use crate::compile::generate::{self, Random};
use crate::compile::interpret::{Maps, Outcome, run};
use crate::compile::punt::PUNTING;
use crate::compile::tests::RESULTS;
use crate::compile::{AttachType, CompileError, compile};
use crate::host::{FileError, Host, InterfaceError, Module, NoHost};
use crate::packet::Packet;
use crate::streams::{AROUND, Decided, Decision, QUIET_MS, StreamKey};
use crate::vm::{Limits, Machine, Script, Verdict};

const FILTER: &str = "
function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return NF_ACCEPT end
  local stream = p:stream(STREAMS)
  local decided = stream:decided()
  if decided then return decided end
  if stream:fault() then return NF_DROP end
  local text = tostring(stream:octets())
  if text:find('no', 1, true) then return stream:refuse() end
  if #text > 8 then return stream:accept() end
  return NF_ACCEPT
end";

/// What Lua has decided, as a map has it.
type Told = Rc<RefCell<Vec<(Vec<u8>, Option<Vec<u8>>)>>>;

#[derive(Clone, Default)]
struct Telling {
    now_ms: Rc<Cell<u64>>,
    told: Told,
}

impl Host for Telling {
    fn now_ms(&mut self) -> u64 {
        self.now_ms.get()
    }

    fn random(&mut self) -> u32 {
        0
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        NoHost.interface(name)
    }

    fn decided(&mut self, _: &str, stream: &StreamKey, decided: Option<&Decided>) {
        self.told.borrow_mut().push((key(stream), decided.map(value)));
    }

    fn log(&mut self, _: &str) {}

    fn module(&mut self, _: &str) -> Result<Option<Module>, FileError> {
        Ok(None)
    }
}

/// A segment of one of a few connections, in either direction, mostly near the beginning of its stream.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut ends = [(1, random.pick(&[80, 443])), (2, 5000)];
    if random.below(4) == 0 {
        ends.reverse();
    }
    let [from, to] = ends;
    let begin: u32 = if random.below(40) == 0 { 70_000 } else { 0xffff_fff0 };
    let far = random.pick(&[0, 0, 0, 70_000, 1 << 31]);
    let sequence = begin.wrapping_add(random.below(14) as u32).wrapping_add(far);
    let flags: u8 = random.pick(&[16, 16, 16, 16, 24, 16, 16, 2, 17, 20, 48]);
    let sequence = if flags == 2 { begin } else { sequence.wrapping_add(1) };
    let mut octets = vec![0; random.below(10)];
    octets.fill_with(|| random.pick(b"yesyesyesno"));
    let mut segment: Vec<u8> = [from.1, to.1].iter().flat_map(|port: &u16| port.to_be_bytes()).collect();
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    segment.extend(if flags == 2 { Vec::new() } else { octets });
    let mut frame = vec![2; 12];
    let length = segment.len() as u8;
    if random.below(2) == 0 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, 6, 64]);
        for end in [from.0, to.0] {
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
    } else {
        frame.extend([0x08, 0, 0x45, 0, 0, 20 + length, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([192, 0, 2, from.0, 192, 0, 2, to.0]);
    }
    frame.extend(segment);
    let layout = Layout::of_frame(&frame).expect("a packet");
    complete(&mut frame, &layout);
    frame
}

#[test]
fn streams_that_are_decided_are_the_kernels_and_lua_misses_nothing() {
    let in_kernel = may_load();
    let mut random = Random::new(0x0c11_e470);
    let (mut punted, mut decided) = (0, 0);
    for number in 0..generate::cases(60) {
        let declared =
            random.pick(&["STREAMS = nil", "local STREAMS = nf.streams { name = 'some', limit = 100 }"]);
        let text = format!("{declared}{FILTER}");
        let script = || Script::new("test.lua", &text);
        let compiled = compile(&script(), NoHost, PUNTING, AttachType::Interface { has_link: true })
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let maps: Vec<_> = if in_kernel { compiled.maps().iter().map(create).collect() } else { Vec::new() };
        let program = in_kernel.then(|| {
            let maps: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
            let code = compiled.assemble(&maps, None).expect("a program").code;
            linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &code).expect("the verifier")
        });
        let mut table = Maps::default();
        // One has all packets, the other those that are handed over.
        let hosts = [(); 2].map(|()| Telling::default());
        let [mut alone, mut rest] =
            hosts.each_ref().map(|host| Machine::new(host.clone(), Limits::default()));
        let [rule, rule_of_rest] = [&mut alone, &mut rest].map(|machine| machine.load(script()).unwrap());
        for step in 0..1500 {
            if random.below(60) == 0 {
                hosts.iter().for_each(|host| host.now_ms.set(host.now_ms.get() + QUIET_MS / 2));
            }
            let frame = frame(&mut random);
            let given = || Packet::of_frame(frame.clone(), TransportChecksum::Complete);
            let (expected, error) = alone.run(rule, &mut given());
            assert_eq!(error, None);
            let outcome = run(compiled.intermediate(), &mut table, &mut frame.clone(), 0, || 0);
            let told = || format!("{number}.{step}: {}", hex::encode(&frame));
            if let Some(program) = &program {
                let result = match outcome {
                    Outcome::Verdict(0) => RESULTS.drop,
                    _ => RESULTS.pass,
                };
                assert_eq!(program.test_run(&frame).expect("it runs").0, result, "{}", told());
            }
            let got = match outcome {
                Outcome::Punted => {
                    punted += 1;
                    let (verdict, error) = rest.run(rule_of_rest, &mut given());
                    assert_eq!(error, None);
                    for (key, value) in hosts[1].told.borrow_mut().drain(..) {
                        table.set(0, &key, value.as_deref());
                        if let Some(map) = maps.first() {
                            match value {
                                Some(value) => map.set(&key, &value).expect("a map"),
                                None => map.remove(&key).map(drop).expect("a map"),
                            }
                        }
                    }
                    verdict
                }
                Outcome::Verdict(verdict) => {
                    decided += 1;
                    Verdict::from_value(verdict).expect("a verdict")
                }
                other => panic!("{other:?}: {}", told()),
            };
            assert_eq!(got, expected, "{}", told());
        }
    }
    println!("{decided} packets decided, {punted} punted");
    assert!(decided > punted / 20 && punted > decided / 100, "{decided} decided, {punted} punted");
}

#[test]
fn what_is_written_down_of_a_stream_can_be_read() {
    for decided in [
        Decided::known(Decision::Refuse, 0, 0, 7),
        Decided::known(Decision::Accept, 9, 0, 0),
        Decided::known(Decision::Accept, u32::MAX, 1 << 20, AROUND),
    ] {
        assert_eq!(of_value(&value(&decided)), Some(decided));
    }
    assert_eq!(of_value(&[0; 8]), None);
}

/// Of 4 GiB that a stream brings, the program counts those of the second half, and knows by them that sequence numbers that
/// come again are no copies.
#[test]
fn a_stream_that_has_gone_around_is_the_kernels() {
    let text = format!("STREAMS = nil{FILTER}");
    let place = AttachType::Interface { has_link: true };
    let compiled = compile(&Script::new("test.lua", &text), NoHost, PUNTING, place).expect("it compiles");
    let frame = |flags: u8, sequence: u32, octets: &[u8]| {
        let mut frame =
            [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 20 + octets.len() as u8, 6, 64]].concat();
        frame.extend([0x20; 16].iter().chain(&[0x21; 16]));
        frame.extend([0, 1, 0, 2]);
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.extend(octets);
        let layout = Layout::of_frame(&frame).expect("a packet");
        complete(&mut frame, &layout);
        frame
    };
    // Lua accepts a stream, and so tells its key.
    let host = Telling::default();
    let mut lua = Machine::new(host.clone(), Limits::default());
    let rule = lua.load(Script::new("test.lua", &text)).expect("a script");
    for frame in [frame(2, u32::MAX, b""), frame(16, 0, &[b'a'; 100])] {
        lua.run(rule, &mut Packet::of_frame(frame, TransportChecksum::Complete));
    }
    let told = host.told.borrow().last().cloned().expect("it was told");
    let mut decided = of_value(&told.1.expect("it was accepted")).expect("it can be read");
    decided.upper = AROUND - 200;
    assert_eq!((decided.start, decided.examined), (0, 100));
    let mut table = Maps::default();
    table.set(0, &told.0, Some(&value(&decided)));
    let length = frame(16, 0, b"").len() as u64;
    assert!((67..100).contains(&length), "two packets are not 200 octets, three are more");
    let mut at = |sequence| run(compiled.intermediate(), &mut table, &mut frame(16, sequence, b""), 0, || 0);
    let passes = Outcome::Verdict(Verdict::Accept.value());
    // The lower half does not count, nor does what Lua is asked for.
    for (sequence, outcome) in [
        (50, Outcome::Punted),
        (1 << 30, passes),
        (1 << 31, passes),
        ((1 << 31) + 4, passes),
        (50, Outcome::Punted),
        ((1 << 31) + 8, passes),
        (50, passes),
    ] {
        assert_eq!(at(sequence), outcome, "{sequence}");
    }
}

#[test]
fn a_script_that_hands_nothing_over_has_no_streams() {
    let text = format!("STREAMS = nil{FILTER}");
    let place = AttachType::Interface { has_link: true };
    let Err(CompileError::Refused(refusals)) =
        compile(&Script::new("test.lua", &text), NoHost, RESULTS, place)
    else {
        panic!("it compiles")
    };
    assert_eq!(refusals[0].line, 7, "{refusals:?}");
}
