//! Two machines that have the program and nothing else: commands make a session, no file is edited.

use std::time::Instant;

use lab::patience::wait_until;
use lab::{Lab, Node};

use crate::promises::scene::{lab, run};

/// Ends a gateway that a test has started by itself.
struct Started(std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(lab: &Lab, node: Node, file: &str, state: &str) -> Started {
    let mut command = lab.command(node, lab.program()).expect("a command");
    Started(command.args(["up", file, "--state-dir", state]).spawn().expect("a gateway"))
}

#[test]
fn init_invite_and_join_make_a_session() {
    let Some(builder) = lab() else { return };
    // The network without a tunnel, and without the ways that would lead past it.
    let lab = builder.build().expect("a lab");
    let folder = tempfile::tempdir().expect("a folder");
    let name = lab.prefix().to_owned();
    let tunnels = [format!("{name}-x"), format!("{name}-y")];
    let folders = ["a", "b"].map(|site| folder.path().join(site).to_string_lossy().into_owned());
    let program = lab.program().to_string_lossy().into_owned();
    let sidestep = |node, words: &[&str]| run(&lab, node, &[&[program.as_str()], words].concat());
    let begun = Instant::now();

    let said = sidestep(
        Node::GatewayA,
        &["init", "--folder", &folders[0], "--tunnel", &tunnels[0], "--hop-prefix", "2001:db8:a1::/64"],
    );
    assert!(said.contains("ex faces the Internet"), "{said}");
    let files = [0, 1].map(|site| format!("{}/{}.toml", folders[site], tunnels[site]));
    let _a = start(&lab, Node::GatewayA, &files[0], &folders[0]);
    wait_until("site A runs", || sidestep(Node::GatewayA, &["show", &tunnels[0]]).contains("hops in"));

    let said = sidestep(
        Node::GatewayA,
        &[
            "invite",
            "site-b",
            "--hop-prefix",
            "2001:db8:b1::/64",
            "--allowed",
            "2001:db8:b::/64",
            "--as",
            "site-a",
            "--own",
            "2001:db8:a::/64",
            "--config",
            &files[0],
        ],
    );
    assert!(said.contains("has taken it over"), "{said}");
    let string = said.lines().find(|line| line.starts_with("sidestep1-")).expect("an invitation");
    let said = sidestep(Node::GatewayB, &["join", string, "--folder", &folders[1], "--tunnel", &tunnels[1]]);
    assert!(said.contains("this is site-b"), "{said}");
    let _b = start(&lab, Node::GatewayB, &files[1], &folders[1]);

    wait_until("a session", || sidestep(Node::GatewayA, &["show", &tunnels[0]]).contains("1 established"));
    wait_until("hosts reach each other", || {
        run(&lab, Node::HostA, &["ping", "-c", "1", "-W", "1", "2001:db8:b::2"]).contains("1 received")
    });
    eprintln!("from nothing to a session in {:?}", begun.elapsed());

    // Once more is refused and changes nothing.
    let said = sidestep(Node::GatewayB, &["join", string, "--folder", &folders[1], "--tunnel", &tunnels[1]]);
    assert!(said.contains("exists already"), "{said}");
    let said = sidestep(Node::GatewayA, &["peer", "list", "--config", &files[0]]);
    assert!(said.contains("site-b") && said.contains("2001:db8:b1::/64"), "{said}");
    let said = sidestep(Node::GatewayA, &["peer", "remove", "site-b", "--config", &files[0]]);
    assert!(said.contains("has taken it over"), "{said}");
    assert!(!sidestep(Node::GatewayA, &["show", &tunnels[0]]).contains("site-b"));
}
