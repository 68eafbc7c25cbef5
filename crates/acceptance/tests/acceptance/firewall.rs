//! The gateway's own firewall beside ours.

use lab::patience::wait_until;
use lab::{Lab, Node, Site};

/// An address of gateway A's hopping prefix; that it is an endpoint just now is unlikely.
const UNUSED: &str = "2001:db8:a1::1";

fn answers(lab: &Lab) -> bool {
    lab.exec(Node::Router, ["ping", "-n", "-c", "1", "-W", "1", UNUSED]).expect("ping").status.success()
}

/// What programs of others do to all rules, or to ours.
const CHANGES: [&str; 4] = [
    "flush ruleset",
    "delete table netdev TABLE",
    "insert rule ip6 TABLE prerouting accept",
    "flush chain ip6 TABLE dark",
];

#[test]
fn the_prefix_is_dark_again_at_once_after_somebody_changed_the_rules() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    lab.start().expect("a session");
    assert!(!answers(&lab));
    let table = format!("sidestep-{}", lab.gateway_a().tunnel());
    let rules = |lab: &Lab| lab.exec(Node::GatewayA, ["nft", "-s", "list", "ruleset"]).expect("nft").stdout;
    let before = rules(&lab);
    for (times, change) in (1..).zip(CHANGES) {
        lab.exec(Node::GatewayA, ["nft", &change.replace("TABLE", &table)]).expect("nft");
        let restored = || lab.show(Site::A).expect("a status")["rules_restored"] == times;
        wait_until(&format!("the rules after {change}"), restored);
        assert_eq!(String::from_utf8_lossy(&rules(&lab)), String::from_utf8_lossy(&before), "{change}");
        assert!(!answers(&lab));
    }
    // Rules of others are theirs, and ours are left alone.
    lab.exec(Node::GatewayA, ["nft", "add table ip6 other"]).expect("nft");
    assert!(
        lab.exec(Node::HostA, ["ping", "-c", "1", &Site::B.host().to_string()])
            .expect("ping")
            .status
            .success()
    );
    assert_eq!(lab.show(Site::A).expect("a status")["rules_restored"], CHANGES.len());
}

/// Somebody outside says that it is a host behind the peer.
#[test]
fn what_is_behind_the_tunnel_comes_through_it_alone() {
    let Some(program) = crate::program(&[]) else { return };
    let mut lab = Lab::builder(program).build().expect("a lab");
    lab.start().expect("a session");
    let (host, claimed) = (Site::A.host().to_string(), "2001:db8:b::99");
    let way = format!(
        "ip -6 address add {claimed}/128 dev lo; ip -6 route replace {} via {}",
        Site::A.inner_prefixes()[0],
        Site::A.outer(lab.topology())
    );
    lab.exec(Node::Router, ["sh", "-c", &way]).expect("a route");
    let asked = |lab: &Lab| {
        let counters = lab.exec(Node::HostA, ["cat", "/proc/net/snmp6"]).expect("counters").stdout;
        let counters = String::from_utf8_lossy(&counters).into_owned();
        let line = counters.lines().find(|line| line.starts_with("Icmp6InEchos")).expect("a counter");
        line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number")
    };
    let dropped = |lab: &Lab| lab.show(Site::A).expect("a status")["drops"]["outside_tunnel"].as_u64();
    let ping = |lab: &Lab, from: &str| {
        let words = ["ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", "-I", from, &host];
        lab.exec(Node::Router, words).expect("ping").status.success()
    };
    let before = asked(&lab);
    assert!(!ping(&lab, claimed));
    assert_eq!((asked(&lab), dropped(&lab)), (before, Some(3)));
    // Others still come in.
    assert!(ping(&lab, "2001:db8:fa::1"), "the router itself");
    assert_eq!(dropped(&lab), Some(3));
    // After a crash, too.
    lab.gateway_a().kill();
    assert!(!ping(&lab, claimed));
    assert_eq!(asked(&lab), before + 3);
}
