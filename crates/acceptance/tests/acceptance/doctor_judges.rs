//! What `sidestep doctor` and `show` call wrong, and how wrong: a file that is not what runs.

use std::process::Output;

use lab::{Lab, Node};
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
