use linux::bpf::netfilter::verdict::{ACCEPT, DROP};
use linux::bpf::netfilter::{Family, Hook, Links, layout};
use linux::bpf::{Assembler, Program, ProgramKind};
use linux::netns;

use crate::network::{B, Pair};

/// Says the same of every packet.
fn judge(verdict: i32) -> Program {
    let mut code = Assembler::default();
    code.exit_with(verdict);
    Program::load(ProgramKind::Netfilter, &code).unwrap()
}

#[test]
fn a_program_judges_packets_at_a_hook_until_it_is_dropped() {
    if !netns::available_to_tests() {
        return;
    }
    if let Err(why) = layout() {
        eprintln!("skipped: {why}");
        return;
    }
    let pair = Pair::new();
    let reaches = || pair.a.sh(&format!("ping -6 -c 1 -w 1 -i 0.2 {B}")).0;
    let attach = |verdict, hook, priorities: &[i32]| {
        pair.a.run(|| Links::attach(&judge(verdict), &[Family::Ipv6], hook, priorities))
    };
    assert!(reaches());
    for hook in [Hook::Prerouting, Hook::Input, Hook::Output, Hook::Postrouting] {
        let links = attach(DROP, hook, &[-150]).unwrap();
        assert!(!reaches(), "{hook:?}");
        links.replace(&judge(ACCEPT)).unwrap();
        assert!(reaches(), "{hook:?}");
        // Nothing is put where something is.
        let busy = attach(DROP, hook, &[-150]).unwrap_err();
        assert_eq!(busy.raw_os_error(), Some(16), "{busy}");
        let next = attach(DROP, hook, &[-150, -151]).unwrap();
        assert_eq!(next.priority(), -151);
        assert!(!reaches(), "{hook:?}");
        drop(next);
        assert!(reaches());
    }
    let _other = attach(DROP, Hook::Forward, &[0]).unwrap();
    assert!(reaches(), "nothing is forwarded here");
}
