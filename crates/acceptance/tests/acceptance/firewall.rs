//! The gateway's own firewall beside ours.

use std::time::{Duration, Instant};

use lab::{Lab, Node};
use nix::sys::signal::Signal;

/// An address of gateway A's hopping prefix; that it is an endpoint just now is unlikely.
const UNUSED: &str = "2001:db8:a1::1";

fn answers(lab: &Lab) -> bool {
    lab.exec(Node::Router, ["ping", "-n", "-c", "1", "-W", "1", UNUSED]).expect("ping").status.success()
}

#[test]
fn a_reload_makes_the_prefix_dark_again_after_somebody_flushed_all_rules() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    lab.start().expect("a session");
    assert!(!answers(&lab));

    lab.exec(Node::GatewayA, ["nft", "flush", "ruleset"]).expect("nft");
    assert!(answers(&lab), "without the table the kernel answers: this test would prove nothing");
    lab.gateway_a().signal(Signal::SIGHUP);

    let limit = Instant::now() + Duration::from_secs(10);
    while answers(&lab) {
        assert!(Instant::now() < limit, "the table is not put back");
    }
}
