use linux::bpf::attach::{Attachment, Direction, Filter, Mechanism};
use linux::bpf::{
    Assembler, Condition, Helper, Map, MapKind, Program, ProgramKind, Register, Size, context, verdict,
};
use linux::netlink::Netlink;
use linux::netns;
use linux::undo::{Journal, Step};

use crate::network::{B, LINK, Node, Pair};

const FIRST: [u8; 4] = 0u32.to_ne_bytes();

pub(crate) fn counter() -> Map {
    Map::create(MapKind::PerCpuArray, 4, 16, 1).unwrap()
}

/// Counts packets and bytes, and drops them or lets them go.
pub(crate) fn counting(map: &Map, result: i32) -> Program {
    use Register::{R0, R1, R2, R6, R10};
    let mut code = Assembler::default();
    let end = code.label();
    code.copy(R6, R1);
    code.store_value(Size::Word, R10, -4, 0);
    code.load_map(R1, map);
    code.copy(R2, R10);
    code.add(R2, -4);
    code.call(Helper::MapLookup);
    code.jump_if(R0, Condition::Equal, 0, end);
    code.set(R1, 1);
    code.add_atomically(Size::Double, R0, 0, R1);
    code.load(Size::Word, R1, R6, context::LEN);
    code.add_atomically(Size::Double, R0, 8, R1);
    code.bind(end);
    code.exit_with(result);
    Program::load(ProgramKind::SchedCls, &code).unwrap()
}

#[test]
fn maps_keep_what_they_are_given() {
    if !netns::available_to_tests() {
        return;
    }
    for kind in [MapKind::Hash, MapKind::LruHash] {
        let map = Map::create(kind, 3, 5, 2).unwrap();
        assert_eq!(map.lookup(b"one").unwrap(), None);
        map.insert(b"one", b"first").unwrap();
        assert!(map.insert(b"one", b"other").unwrap_err().already_exists());
        assert_eq!(map.lookup(b"one").unwrap().unwrap(), b"first");
        map.set(b"one", b"other").unwrap();
        assert_eq!(map.lookup(b"one").unwrap().unwrap(), b"other");
        assert!(map.remove(b"one").unwrap());
        assert!(!map.remove(b"one").unwrap());
    }
    let array = Map::create(MapKind::Array, 4, 8, 2).unwrap();
    assert_eq!(array.lookup(&1u32.to_ne_bytes()).unwrap().unwrap(), [0; 8]);
    array.set(&1u32.to_ne_bytes(), &[7; 8]).unwrap();
    assert_eq!(array.lookup(&1u32.to_ne_bytes()).unwrap().unwrap(), [7; 8]);
    assert!(array.lookup(&2u32.to_ne_bytes()).unwrap().is_none());
    assert_eq!(counter().sum(&FIRST).unwrap(), [0, 0]);
    Map::create(MapKind::RingBuffer, 0, 0, 1 << 16).unwrap();

    let prefixes = Map::create(MapKind::LongestPrefix, 8, 1, 8).unwrap();
    let key = |length: u32, bytes: [u8; 4]| [length.to_ne_bytes(), bytes].concat();
    prefixes.insert(&key(8, [10, 0, 0, 0]), &[1]).unwrap();
    prefixes.insert(&key(16, [10, 1, 0, 0]), &[2]).unwrap();
    let longest = |bytes| prefixes.lookup(&key(32, bytes)).unwrap().map(|value| value[0]);
    assert_eq!([longest([10, 1, 9, 9]), longest([10, 2, 9, 9])], [Some(2), Some(1)]);
    assert_eq!(longest([11, 0, 0, 0]), None);
}

#[test]
fn a_map_is_filled_read_and_emptied_as_a_whole() {
    if !netns::available_to_tests() {
        return;
    }
    let most = 10_000_u32;
    for kind in [MapKind::Hash, MapKind::LruHash, MapKind::LongestPrefix] {
        // A processor keeps some entries of an LRU map to itself.
        let map = Map::create(kind, 8, 4, if kind == MapKind::LruHash { 2 * most } else { most }).unwrap();
        assert_eq!(map.entries().unwrap(), []);
        let key = |number: u32| [32_u32.to_ne_bytes(), number.to_be_bytes()].concat();
        let mut all: Vec<_> = (0..most).map(|number| (key(number), number.to_ne_bytes().to_vec())).collect();
        assert_eq!(map.set_all(&all).unwrap(), all.len());
        let mut read = map.entries().unwrap();
        read.sort();
        all.sort();
        assert_eq!(read, all, "{kind:?}");
        if kind != MapKind::LruHash {
            let more: Vec<_> = (most - 5..most + 5).map(|number| (key(number), vec![7; 4])).collect();
            // A full set of prefixes refuses to change what is in it before Linux 6.13.
            let written = map.set_all(&more).unwrap();
            assert!(written == 5 || (kind == MapKind::LongestPrefix && written == 0), "{kind:?}: {written}");
        }
        let keys: Vec<_> = (most / 2..most + 100).map(key).chain([key(0)]).collect();
        assert_eq!(map.remove_all(&keys).unwrap() as u32, most / 2 + 1, "{kind:?}");
        assert_eq!(map.entries().unwrap().len() as u32, most / 2 - 1);
    }
}

#[test]
fn what_the_verifier_refuses_has_its_reason() {
    if !netns::available_to_tests() {
        return;
    }
    let mut code = Assembler::default();
    code.load(Size::Word, Register::R0, Register::R10, 8);
    code.exit();
    let error = Program::load(ProgramKind::SchedCls, &code).unwrap_err().to_string();
    assert!(error.contains("invalid read from stack"), "{error}");
}

#[test]
fn a_program_is_run_on_a_frame() {
    if !netns::available_to_tests() {
        return;
    }
    // Adds up the last bytes, and writes the sum in front, by a loop and 32-bit arithmetic.
    use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R10};
    let mut code = Assembler::default();
    let end = code.label();
    code.copy(R6, R1);
    code.set(R7, 54);
    code.set(R8, 0);
    let again = code.here();
    code.jump_if(R7, Condition::GreaterOrEqual, 60, end);
    code.copy(R1, R6);
    code.copy(R2, R7);
    code.copy(R3, R10);
    code.add(R3, -8);
    code.set(R4, 1);
    code.call(Helper::SkbLoadBytes);
    code.load(Size::Byte, R1, R10, -8);
    code.calculate_32(linux::bpf::Operation::Add, R8, R1);
    code.add(R7, 1);
    code.jump(again);
    code.bind(end);
    code.network_order(R8, 16);
    code.store(Size::Half, R10, -8, R8);
    code.copy(R1, R6);
    code.set(R2, 0);
    code.copy(R3, R10);
    code.add(R3, -8);
    code.set(R4, 2);
    code.set(Register::R5, 0);
    code.call(Helper::SkbStoreBytes);
    code.calculate(linux::bpf::Operation::Xor, R0, 3);
    code.exit();
    let program = Program::load(ProgramKind::SchedCls, &code).unwrap();
    let mut frame = [0u8; 60];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[54..].copy_from_slice(&[200, 100, 3, 4, 5, 6]);
    let (result, out) = program.test_run(&frame).unwrap();
    assert_eq!((result, &out[..2], &out[2..]), (3, &318u16.to_be_bytes()[..], &frame[2..]));
}

extern "C" fn nothing(_: i32) {}

/// The verifier gives up when a signal comes (EAGAIN), as that of a timer or a child's end may at any time.
#[test]
fn a_program_is_loaded_though_signals_come_meanwhile() {
    use nix::sys::pthread::{pthread_kill, pthread_self};
    use nix::sys::signal::{SigHandler, Signal, signal};

    if !netns::available_to_tests() {
        return;
    }
    // SAFETY: the handler does nothing, and nobody else in this program has one for this signal.
    unsafe { signal(Signal::SIGUSR1, SigHandler::Handler(nothing)) }.unwrap();
    let mut code = Assembler::default();
    code.set(Register::R0, 0);
    for _ in 0..50_000 {
        code.add(Register::R0, 1);
    }
    code.exit();
    let load = || Program::load(ProgramKind::SchedCls, &code).unwrap();
    let begun = std::time::Instant::now();
    load();
    let (time, loader) = (begun.elapsed(), pthread_self());
    for _ in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..6 {
                    std::thread::sleep(time / 6);
                    pthread_kill(loader, Signal::SIGUSR1).unwrap();
                }
            });
            load();
        });
    }
}

/// All filters of the interface.
fn filters(node: &Node) -> String {
    node.must(&format!("tc filter show dev {LINK} ingress; tc filter show dev {LINK} egress"))
}

/// Whether an answer comes within a second, to one of several requests.
fn ping(pair: &Pair) -> bool {
    pair.a.sh(&format!("ping -6 -c 1 -w 1 -i 0.2 {B}")).0
}

#[test]
fn a_program_sees_packets_until_it_is_dropped() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let index = pair.a.link().index;
    assert!(ping(&pair));
    for direction in [Direction::Ingress, Direction::Egress] {
        for mechanism in [Mechanism::Tcx, Mechanism::Clsact] {
            let attach = |program: &Program| {
                let attached = pair.a.run(|| match mechanism {
                    Mechanism::Tcx => Attachment::tcx(program, index, direction),
                    Mechanism::Clsact => Attachment::clsact(program, Filter::new(index, direction)),
                });
                match attached {
                    Err(error) if mechanism == Mechanism::Tcx && error.raw_os_error() == Some(22) => {
                        eprintln!("this kernel has no tcx: {error}");
                        None
                    }
                    result => Some(result.unwrap()),
                }
            };
            let (passing, dropping) = (counter(), counter());
            let Some(mut passes) = attach(&counting(&passing, verdict::DROP)) else { continue };
            assert!(!ping(&pair), "{direction:?} {mechanism:?}");
            // Another program in its place, with what it has counted.
            passes.replace(&counting(&passing, verdict::NEXT)).unwrap();
            assert_eq!(passes.mechanism(), mechanism);
            assert!(ping(&pair));
            let sums = passing.sum(&FIRST).unwrap();
            assert!(sums[0] >= 1 && sums[1] >= 118, "{direction:?} {mechanism:?} {sums:?}");
            // The first one's verdict is no objection to a second.
            let drops = attach(&counting(&dropping, verdict::DROP)).unwrap();
            assert!(!ping(&pair), "{direction:?} {mechanism:?}");
            drop(drops);
            assert!(ping(&pair));
            drop(passes);
            let counted = passing.sum(&FIRST).unwrap();
            assert!(ping(&pair));
            assert_eq!(passing.sum(&FIRST).unwrap(), counted);
        }
    }
    assert_eq!(filters(&pair.a), "");
}

#[test]
fn a_program_that_is_to_be_first_stays_it_and_comes_back_where_its_filter_is_removed() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let index = pair.a.link().index;
    let directory = tempfile::tempdir().unwrap();
    let counts = counter();
    let sees = || {
        let before = counts.sum(&FIRST).unwrap()[0];
        assert!(ping(&pair));
        counts.sum(&FIRST).unwrap()[0] > before
    };
    pair.a.run(|| {
        let program = counting(&counts, verdict::NEXT);
        let mut netlink = Netlink::open().unwrap();
        let (mut journal, _) = Journal::open(&directory.path().join("mt6d0.undo"), &mut netlink).unwrap();
        let ends_it = counting(&counter(), verdict::PASS);
        let other = Attachment::tcx(&ends_it, index, Direction::Ingress);
        let mut first = journal.attach_first(&program, index, Direction::Ingress).unwrap();
        assert!(sees() && !first.put_back(&program).unwrap());
        assert_eq!(first.mechanism() == Mechanism::Tcx, other.is_ok());
        drop((first, other));

        let filter = Filter::new(index, Direction::Ingress);
        let mut filter = journal.attach_filter(&program, filter).unwrap();
        assert!(sees() && !filter.put_back(&program).unwrap());
        pair.a.must(&format!("tc qdisc delete dev {LINK} clsact"));
        assert!(!sees());
        assert!(filter.put_back(&program).unwrap() && sees());
        journal.detach(&mut netlink, filter).unwrap();
        journal.undo_all(&mut netlink).unwrap();
    });
    assert_eq!(filters(&pair.a), "");
}

#[test]
fn a_filter_that_a_crash_left_is_undone_and_nobody_elses() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let index = pair.a.link().index;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mt6d0.undo");
    let counts = counter();
    pair.a.run(|| {
        let program = counting(&counts, verdict::NEXT);
        let other = Filter::new(index, Direction::Egress);
        let _others = Attachment::clsact(&counting(&counter(), verdict::NEXT), other).unwrap();
        let before = filters(&pair.a);
        let mut netlink = Netlink::open().unwrap();
        let (mut journal, _) = Journal::open(&path, &mut netlink).unwrap();
        let filter = Filter::new(index, Direction::Egress);
        std::mem::forget(journal.attach_filter(&program, filter).unwrap());
        std::mem::forget(journal);
        assert!(ping(&pair));
        assert_ne!(counts.sum(&FIRST).unwrap()[0], 0);
        assert_ne!(filters(&pair.a), before);
        let (mut journal, left) = Journal::open(&path, &mut netlink).unwrap();
        assert_eq!(left, [Step::Filter(filter)]);
        assert_eq!(filters(&pair.a), before);

        // And a clean end, with the interface gone before.
        let attachment = journal.attach(&program, index, Direction::Ingress).unwrap();
        let filter = journal.attach_filter(&program, Filter::new(index, Direction::Ingress));
        pair.a.must(&format!("ip link delete {LINK}"));
        drop((attachment, filter));
        journal.undo_all(&mut netlink).unwrap();
    });
}
