use linux::bpf::xdp::{Link, Mode};
use linux::bpf::{Assembler, Condition, Helper, Map, MapKind, Program, ProgramKind, Register, Size};
use linux::netns;

use crate::network::{B, LINK, Pair};

/// Counts packets and their bytes, wherever these are, and drops them or lets them go.
fn counting(map: &Map, result: i32) -> Program {
    use Register::{R0, R1, R2, R6, R7, R10};
    let mut code = Assembler::default();
    let end = code.label();
    code.copy(R6, R1);
    code.call(Helper::XdpBufferLength);
    code.copy(R7, R0);
    code.store_value(Size::Word, R10, -4, 0);
    code.load_map(R1, map);
    code.copy(R2, R10);
    code.add(R2, -4);
    code.call(Helper::MapLookup);
    code.jump_if(R0, Condition::Equal, 0, end);
    code.set(R1, 1);
    code.add_atomically(Size::Double, R0, 0, R1);
    code.add_atomically(Size::Double, R0, 8, R7);
    code.bind(end);
    code.exit_with(result);
    Program::load(ProgramKind::Xdp, &code).unwrap()
}

/// Whether an answer comes within a second, to one of several requests.
fn reaches(pair: &Pair, size: u32) -> bool {
    pair.a.sh(&format!("ping -6 -c 1 -w 1 -i 0.2 -s {size} {B}")).0
}

#[test]
fn a_program_at_xdp_sees_packets_until_it_is_dropped() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let index = pair.a.link().index;
    assert!(reaches(&pair, 56));
    let attached = || pair.a.must(&format!("ip link show {LINK}")).contains("prog/xdp");
    for mode in [Mode::Native, Mode::Generic] {
        let counts = Map::create(MapKind::PerCpuArray, 4, 16, 1).unwrap();
        let link = pair
            .a
            .run(|| Link::attach_as(&counting(&counts, bpf::xdp::DROP), index, mode))
            .unwrap_or_else(|error| panic!("{mode:?}: {error}"));
        assert_eq!(link.mode(), mode);
        assert!(!reaches(&pair, 56), "{mode:?}");
        link.replace(&counting(&counts, bpf::xdp::PASS)).unwrap();
        assert!(reaches(&pair, 56), "{mode:?}");
        let before = counts.sum(&0u32.to_ne_bytes()).unwrap();
        assert!(reaches(&pair, 1300), "{mode:?}");
        let after = counts.sum(&0u32.to_ne_bytes()).unwrap();
        assert!(after[0] > before[0] && after[1] >= before[1] + 1362, "{mode:?} {before:?} {after:?}");
        // There is one at an interface.
        let second = pair.a.run(|| Link::attach(&counting(&counts, bpf::xdp::PASS), index)).unwrap_err();
        assert!(matches!(second.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)), "{second}");
        assert!(attached());
        drop(link);
        assert!(!attached() && reaches(&pair, 56), "{mode:?}");
    }
}

/// The loopback device has no driver that could.
#[test]
fn where_the_driver_cannot_the_kernel_does_it() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.must("ip link set lo up");
    let counts = Map::create(MapKind::PerCpuArray, 4, 16, 1).unwrap();
    let link = pair.a.run(|| Link::attach(&counting(&counts, bpf::xdp::PASS), 1)).unwrap();
    assert_eq!(link.mode(), Mode::Generic);
    // Longer than a page.
    pair.a.must("ping -6 -c 1 -W 0.3 -s 60000 ::1");
    let [_, bytes] = counts.sum(&0u32.to_ne_bytes()).unwrap()[..] else { panic!() };
    assert!(bytes >= 60_062, "{bytes}");
}

#[test]
fn packets_longer_than_a_page_are_no_reason_to_refuse_it() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    for node in [&pair.a, &pair.b] {
        node.must(&format!("ip link set {LINK} mtu 9000"));
    }
    let index = pair.a.link().index;
    let counts = Map::create(MapKind::PerCpuArray, 4, 16, 1).unwrap();
    let link = pair.a.run(|| Link::attach(&counting(&counts, bpf::xdp::PASS), index)).unwrap();
    assert_eq!(link.mode(), Mode::Native);
    assert!(reaches(&pair, 8900));
    let [_, bytes] = counts.sum(&0u32.to_ne_bytes()).unwrap()[..] else { panic!() };
    assert!(bytes >= 8962, "{bytes}");
}
