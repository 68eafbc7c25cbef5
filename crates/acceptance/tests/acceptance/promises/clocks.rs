//! Wall clocks that are wrong, or set while traffic flows, and a machine that is restored from a snapshot.

use std::time::Duration;

use lab::patience::wait_until;
use lab::{Node, Site};

use super::scene;

const HOUR_MS: i64 = 3_600_000;

/// Has the kernel tell what it tells in a virtual machine that was restored: who administers a network namespace may send
/// events there, in the kernel's name.
const RESTORED: &str = r#"
import socket, struct
event = b"change@/devices/vmgenid\0ACTION=change\0DEVPATH=/devices/vmgenid\0SUBSYSTEM=platform\0NEW_VMGENID=1\0"
uevents = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
uevents.sendto(struct.pack("=IHHII", 16 + len(event), 16, 1, 0, 0) + event, (0, 0))
"#;

#[test]
fn clocks_a_minute_apart_lose_nothing() {
    for (a, b) in [("30s", "-30s"), ("-30s", "30s")] {
        let Some(builder) = scene::lab() else { return };
        let mut lab = builder.build().expect("a lab");
        lab.gateway_a().set_arguments(&["--test-clock-offset", a]);
        lab.gateway_b().set_arguments(&["--test-clock-offset", b]);
        lab.gateway_a().start().expect("gateway A");
        lab.gateway_b().start().expect("gateway B");
        lab.wait_connected(Duration::from_secs(60)).expect("first contact");
        let streams = [Site::A, Site::B].map(|site| scene::start_stream(&lab, site, 8));
        for stream in streams {
            scene::assert_complete(&scene::finish(stream));
        }
    }
}

#[test]
fn first_contact_succeeds_within_a_minute_with_a_clock_that_is_an_hour_off() {
    for offset in ["1h", "-1h"] {
        let Some(builder) = scene::lab() else { return };
        let mut lab = builder.build().expect("a lab");
        lab.gateway_b().set_arguments(&["--test-clock-offset", offset]);
        lab.gateway_a().start().expect("gateway A");
        lab.gateway_b().start().expect("gateway B");
        let start = std::time::Instant::now();
        lab.wait_connected(Duration::from_secs(60)).expect("first contact");
        eprintln!("{offset}: first contact after {:?}", start.elapsed());
    }
}

#[test]
fn a_clock_that_is_set_by_an_hour_in_a_session_loses_nothing() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.build().expect("a lab");
    lab.gateway_a().set_arguments(&["--test-clock-offset", "0s"]);
    lab.start().expect("a tunnel");
    let handshakes = scene::number(&lab, Site::A, "handshakes");
    let streams = [Site::A, Site::B].map(|site| scene::start_stream(&lab, site, 12));
    for ms in [HOUR_MS, -HOUR_MS, 0] {
        std::thread::sleep(Duration::from_secs(3));
        scene::step_clock(&mut lab, Site::A, ms);
    }
    for stream in streams {
        scene::assert_complete(&scene::finish(stream));
    }
    assert_eq!(scene::number(&lab, Site::A, "handshakes"), handshakes, "the session was not to end");
}

#[test]
fn a_machine_that_was_restored_begins_its_sessions_anew() {
    let Some(builder) = scene::lab() else { return };
    let lab = scene::up(builder);
    let handshakes = scene::number(&lab, Site::A, "handshakes");
    let said = scene::run(&lab, Node::GatewayA, &["python3", "-c", RESTORED]);
    assert_eq!(said, "");
    wait_until("another session", || scene::number(&lab, Site::A, "handshakes") > handshakes);
    scene::assert_complete(&scene::finish(scene::start_stream(&lab, Site::A, 2)));
}
