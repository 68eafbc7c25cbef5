//! What `sidestep doctor` and `show` call wrong, and how wrong: a file that is not what runs, firewalls and routes that let the
//! tunnel pass in their own words, and what one may not know.

use std::process::Output;

use lab::edited::Edited as _;
use lab::patience::wait_until;
use lab::{Lab, Node, Site};
use serde_json::Value;

use crate::promises::scene::{lab, run, up};

/// All that is more than fine: the level, and the code.
type Found = Vec<(String, String)>;

fn found(findings: &Value) -> Found {
    let word = |finding: &Value, key: &str| finding[key].as_str().expect("a word").to_owned();
    let findings = findings.as_array().expect("findings").iter();
    let wrong = findings.filter(|finding| finding["level"] != "ok");
    wrong.map(|finding| (word(finding, "level"), word(finding, "code"))).collect()
}

fn output(lab: &mut Lab, command: &str, more: &[&str]) -> Output {
    let gateway = lab.gateway_a();
    let socket = format!("/run/sidestep/{}.sock", gateway.tunnel());
    let file = gateway.configuration().to_string_lossy().into_owned();
    let program = lab.program().to_string_lossy().into_owned();
    let mut words = vec![program.as_str(), command, "--json", "--socket", &socket];
    if command == "doctor" {
        words.extend(["--config", &file]);
    }
    words.extend(more);
    lab.exec(Node::GatewayA, words).expect("a command that starts")
}

/// What gateway A's doctor finds; its exit status says whether something is a fault.
fn doctor(lab: &mut Lab, more: &[&str]) -> Found {
    let output = output(lab, "doctor", more);
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    let found = found(&document["findings"]);
    let faulty = found.iter().any(|(level, _)| level == "fault");
    assert_eq!(output.status.success(), !faulty, "{found:?}");
    found
}

/// What `show` says of it.
fn shown(lab: &mut Lab) -> Found {
    let output = output(lab, "show", &[]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("a status");
    found(&status["warnings"])
}

fn finding(level: &str, code: &str) -> Found {
    vec![(level.to_owned(), code.to_owned())]
}

/// Changes gateway A's file; returns what it was.
fn edit(lab: &mut Lab, from: &str, to: &str) -> String {
    let file = lab.gateway_a().configuration().to_owned();
    let before = std::fs::read_to_string(&file).expect("a configuration");
    assert!(before.contains(from), "{from} in {before}");
    std::fs::write(&file, before.replacen(from, to, 1)).expect("a configuration that can be written");
    before
}

fn reload(lab: &mut Lab) {
    let tunnel = lab.gateway_a().tunnel().to_owned();
    let program = lab.program().to_string_lossy().into_owned();
    let said = run(lab, Node::GatewayA, &[&program, "reload", &tunnel]);
    assert!(said.contains("reloaded"), "{said}");
}

#[test]
fn a_file_that_was_changed_since_is_said_to_be_and_judged_by_what_runs() {
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    let preshared =
        "preshared_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nhop_prefix = \"2001:db8:b1::";
    for (from, to) in [
        ("hop_prefix = \"2001:db8:a1::", "hop_prefix = \"2001:db8:a2::"),
        ("hop_prefix = \"2001:db8:b1::", "hop_prefix = \"2001:db8:b2::"),
        ("hop_prefix = \"2001:db8:b1::", preshared),
        ("external = \"ex\"", "external = \"in\""),
        ("allowed_ips = [", "allowed_ips = [\"2001:db8:bb::/64\", "),
        ("shape = \"none\"", "shape = { constant = \"2Mbit/s\" }"),
        ("rotation = ", "keepalive = \"10s\"\nrotation = "),
    ] {
        let before = edit(&mut lab, from, to);
        assert_eq!(doctor(&mut lab, &[]), finding("warning", "not_reloaded"), "{to}");
        assert_eq!(shown(&mut lab), finding("warning", "not_reloaded"), "{to}");
        let file = lab.gateway_a().configuration().to_owned();
        std::fs::write(&file, before).expect("a configuration that can be written");
        assert_eq!(doctor(&mut lab, &[]), [], "as it was before {to}");
    }
    edit(&mut lab, "rotation = ", "keepalive = \"10s\"\nrotation = ");
    reload(&mut lab);
    assert_eq!(doctor(&mut lab, &[]), []);
    assert_eq!(shown(&mut lab), []);
}

/// A firewall that lets the tunnel pass and names neither it nor its prefix.
const IN_OTHER_WORDS: &str = "add table inet mine; \
    add chain inet mine i { type filter hook input priority 0; policy drop; }; \
    add rule inet mine i ct state established,related accept; \
    add rule inet mine i iifname ex udp dport 1024-65535 accept; \
    add rule inet mine i meta l4proto ipv6-icmp accept; \
    add chain inet mine f { type filter hook forward priority 0; policy drop; }; \
    add rule inet mine f iifname NAME* accept; \
    add rule inet mine f oifname NAME* accept";

/// As firewalld has it: what nothing accepts is refused at the end of a chain whose policy is to accept.
const REFUSED_AT_THE_END: &str = "add table inet mine; \
    add chain inet mine f { type filter hook forward priority 10; policy accept; }; \
    add rule inet mine f ct state established,related accept; \
    add rule inet mine f reject with icmpx type admin-prohibited";

fn pings(lab: &Lab) -> bool {
    let target = Site::B.host().to_string();
    lab.exec(Node::HostA, ["ping", "-n", "-c", "1", "-W", "2", &target]).expect("ping").status.success()
}

#[test]
fn a_firewall_is_judged_by_what_it_lets_pass() {
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    let tunnel = lab.gateway_a().tunnel().to_owned();
    let start = tunnel[..tunnel.len() - 1].to_owned();
    let nft = |lab: &Lab, rules: &str| run(lab, Node::GatewayA, &["nft", rules]);
    nft(&lab, &IN_OTHER_WORDS.edited("NAME", &start));
    assert!(pings(&lab), "it lets the tunnel pass");
    assert_eq!(doctor(&mut lab, &[]), []);
    assert_eq!(shown(&mut lab), []);
    nft(&lab, "delete table inet mine");
    nft(&lab, REFUSED_AT_THE_END);
    assert!(!pings(&lab), "it does not");
    assert_eq!(doctor(&mut lab, &[]), finding("fault", "closed_forward"));
    // With a rule for what comes from inside, some does.
    nft(&lab, "insert rule inet mine f iifname in accept");
    assert!(pings(&lab), "from inside it does");
    assert_eq!(doctor(&mut lab, &[]), finding("warning", "closed_forward"));
    nft(&lab, "delete table inet mine");
    assert_eq!(doctor(&mut lab, &[]), []);
}

#[test]
fn networks_of_this_machine_within_one_of_a_peer_are_no_fault_and_other_peers_are_none_of_this_one() {
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    run(&lab, Node::GatewayA, &["ip", "addr", "add", "172.16.0.1/24", "dev", "in"]);
    edit(&mut lab, "allowed_ips = [", "allowed_ips = [\"172.16.0.0/12\", ");
    reload(&mut lab);
    assert_eq!(doctor(&mut lab, &[]), []);
    let file = lab.gateway_a().configuration().to_owned();
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let other = "\n[[peer]]\nname = \"site-c\"\npublic_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\n\
                 hop_prefix = \"2001:db8:c1::/64\"\nallowed_ips = [\"2001:db8:c::/64\"]\n";
    std::fs::write(&file, text + other).expect("a configuration that can be written");
    reload(&mut lab);
    // Some of what is behind it is reached otherwise.
    run(&lab, Node::GatewayA, &["ip", "-6", "route", "add", "2001:db8:c::/72", "dev", "in"]);
    assert_eq!(doctor(&mut lab, &["site-b"]), []);
    assert_eq!(shown(&mut lab), finding("warning", "inner_route"));
    // All of it. A route of the tunnel's that is only taken away comes back.
    run(&lab, Node::GatewayA, &["ip", "-6", "route", "add", "2001:db8:c::/64", "dev", "in", "metric", "1"]);
    run(&lab, Node::GatewayA, &["ip", "-6", "route", "del", "2001:db8:c::/72", "dev", "in"]);
    assert_eq!(doctor(&mut lab, &["site-b"]), []);
    wait_until("the route is missed", || shown(&mut lab) == finding("fault", "inner_route"));
}

#[test]
fn who_may_not_ask_the_kernel_does_not_take_that_for_an_answer() {
    if crate::program(&["setpriv"]).is_none() {
        return;
    }
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    let tunnel = lab.gateway_a().tunnel().to_owned();
    let program = lab.program().to_string_lossy().into_owned();
    let words =
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", &program, "show", &tunnel, "--json"];
    let said = run(&lab, Node::GatewayA, &words);
    let status: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(status["dark"], true);
    assert_eq!(found(&status["warnings"]), []);
}
