//! What keeps a tunnel closed, by other names and beside other commands.

use std::path::Path;

use lab::edited::Edited;
use lab::patience::wait_until;
use lab::{Lab, Node};

use super::scene;

/// Routes and tables that close a tunnel of gateway A.
fn closed(lab: &Lab) -> String {
    let words = "ip -6 route show proto 83 type unreachable; ip -6 route show proto 83 type blackhole; \
                 ip route show proto 83 type unreachable; nft list tables inet";
    scene::run(lab, Node::GatewayA, &["sh", "-c", words])
}

fn sidestep(lab: &Lab, words: &[&str]) -> String {
    let program = lab.program().to_string_lossy().into_owned();
    scene::run(lab, Node::GatewayA, &[&[program.as_str()], words].concat())
}

fn edit(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).expect("a configuration");
    std::fs::write(file, text.edited(from, to)).expect("a configuration");
}

#[test]
fn a_tunnel_with_another_name_keeps_and_opens_what_was_closed() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.build().expect("a lab");
    let (old, file) = (lab.gateway_a().tunnel().to_owned(), lab.gateway_a().configuration().to_owned());
    let new = old.replace('-', "n");
    lab.gateway_a().start().expect("a start");
    assert!(lab.gateway_a().stop());
    edit(&file, &format!("name = \"{old}\""), &format!("name = \"{new}\""));
    let start = |lab: &mut Lab| {
        lab.gateway_a().launch().expect("a process");
        wait_until("it answers", || sidestep(lab, &["show", &new]).contains("site-b"));
    };
    start(&mut lab);
    let there = "unreachable 2001:db8:b::/64";
    // What is both's is still the one's that is up.
    let said = sidestep(&lab, &["down", &old, "--open"]);
    assert!(said.contains("leaves in clear") && said.contains("is up, and keeps that closed"), "{said}");
    wait_until("it is closed again", || closed(&lab).contains(there));
    assert!(!closed(&lab).contains(&format!("{old}-outside")), "{}", closed(&lab));
    assert!(lab.gateway_a().stop());
    assert!(closed(&lab).contains(there));
    // And the one's that is to be open.
    edit(&file, &format!("name = \"{new}\""), &format!("name = \"{old}\""));
    lab.gateway_a().start().expect("a start");
    assert!(lab.gateway_a().stop());
    let said = sidestep(&lab, &["down", &old, "--open"]);
    assert!(said.contains(&format!("{new}.sock: had some of it closed, too")), "{said}");
    assert!(!closed(&lab).contains("unreachable"), "{}", closed(&lab));
    // Nor does a tunnel open what another keeps closed, because it needs it no more.
    edit(&file, &format!("name = \"{old}\""), &format!("name = \"{new}\""));
    start(&mut lab);
    assert!(lab.gateway_a().stop());
    edit(&file, &format!("name = \"{new}\""), &format!("name = \"{old}\""));
    edit(&file, "\"2001:db8:b::/64\", ", "");
    lab.gateway_a().start().expect("a start");
    assert!(closed(&lab).contains(there), "{}", closed(&lab));
}

#[test]
fn closing_a_tunnel_that_is_up_takes_nothing_out_of_its_hands() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.build().expect("a lab");
    let (tunnel, file) = (lab.gateway_a().tunnel().to_owned(), lab.gateway_a().configuration().to_owned());
    let close = |lab: &Lab| sidestep(lab, &["close", &file.display().to_string()]);
    // Once, and once more.
    for _ in 0..2 {
        assert!(close(&lab).contains("routes refuse what it is to carry"));
    }
    lab.gateway_a().start().expect("a start");
    let said = close(&lab);
    assert!(said.contains("is up, and keeps closed what it carries"), "{said}");
    edit(&file, "\"2001:db8:b::/64\"", "\"2001:db8:b::/64\", \"2001:db8:b9::/64\"");
    assert!(sidestep(&lab, &["reload", &tunnel]).contains("reloaded"));
    assert!(closed(&lab).contains("2001:db8:b9::/64"));
    sidestep(&lab, &["down", &tunnel, "--open"]);
    assert_eq!(closed(&lab), "");
}

#[test]
fn an_external_interface_with_another_name_is_watched_by_that() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = builder.build().expect("a lab");
    lab.gateway_a().start().expect("a start");
    // Kernels before 6.2 rename none that is up.
    let rename = "ip link set ex down && ip link set ex name wan && ip link set wan up";
    assert_eq!(scene::run(&lab, Node::GatewayA, &["sh", "-c", rename]), "");
    wait_until("rules for its new name", || {
        let rules = scene::run(&lab, Node::GatewayA, &["nft", "list", "ruleset"]);
        // Later kernels watch for one with the old name at the hook, too.
        let at_hook = |line: &str| line.contains("hook ingress") && line.contains("wan");
        rules.matches("ifname != \"wan\"").count() == 2 && rules.lines().any(at_hook)
    });
}
