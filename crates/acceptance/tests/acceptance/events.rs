//! What happens is told: once each, in order, in `sidestep events`, and to a program that can do nothing but listen.

use std::os::unix::fs::PermissionsExt as _;

use lab::patience::wait_until;
use lab::{Lab, Node, Site};
use serde_json::Value;

use crate::promises::scene::{lab, run};

/// What a gateway tells, as documents.
fn told(lab: &mut Lab) -> Vec<Value> {
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(Site::A).tunnel());
    let program = lab.program().to_string_lossy().into_owned();
    let text = run(lab, Node::GatewayA, &[&program, "events", "--json", "--socket", &socket]);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

#[test]
fn a_cut_is_one_line_and_its_end_another_and_a_program_is_told() {
    let Some(builder) = lab() else { return };
    let mut lab = builder.build().expect("a lab");
    let hook = lab.directory().join("hook");
    let heard = lab.directory().join("state-a/heard");
    let script = format!(
        "#!/bin/sh\n{{ echo \"$SIDESTEP_EVENT $SIDESTEP_PEER $SIDESTEP_REASON\"; cat; grep CapEff /proc/self/status; \
         touch /etc/sidestep-was-here; }} >> {} 2>&1\n",
        heard.display()
    );
    std::fs::write(&hook, script).expect("a script");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    for site in [Site::A, Site::B] {
        let file = lab.gateway(site).configuration().to_owned();
        let text = std::fs::read_to_string(&file).expect("a configuration");
        let text = text.replacen("rotation", "keepalive = \"10s\"\nrotation", 1);
        let events = if site == Site::A {
            format!("\n[events]\non_event = \"{}\"\n", hook.display())
        } else {
            String::new()
        };
        std::fs::write(&file, text + &events).expect("a configuration");
    }
    lab.start().expect("a tunnel");
    let cut =
        "nft 'add table ip6 cut; add chain ip6 cut f { type filter hook forward priority 0; policy drop; }'";
    run(&lab, Node::Router, &["sh", "-c", cut]);
    wait_until("the silence is told", || names(&told(&mut lab)).contains(&"peer_silent"));
    run(&lab, Node::Router, &["nft", "delete", "table", "ip6", "cut"]);
    wait_until("the end of the silence is told", || names(&told(&mut lab)).contains(&"peer_heard"));

    let events = told(&mut lab);
    let once = |name| events.iter().filter(|event| event["event"] == name).count();
    for name in ["tunnel_up", "session_up", "peer_silent", "peer_heard"] {
        assert_eq!(once(name), 1, "{name} in {:?}", names(&events));
    }
    let silent = events.iter().find(|event| event["event"] == "peer_silent").expect("just seen");
    assert_eq!(
        (&silent["peer"], &silent["reason"], &silent["priority"]),
        (&"site-b".into(), &"nothing_comes".into(), &"warning".into())
    );
    let numbers: Vec<_> = events.iter().filter_map(|event| event["number"].as_u64()).collect();
    assert!(numbers.is_sorted() && numbers[0] == 1, "{numbers:?}");

    wait_until("the program was told", || {
        std::fs::read_to_string(&heard).is_ok_and(|text| text.contains("peer_heard site-b"))
    });
    let text = std::fs::read_to_string(&heard).expect("just seen");
    assert!(text.contains("peer_silent site-b nothing_comes"), "{text}");
    assert!(text.contains("\"event\":\"session_up\""), "{text}");
    assert!(
        text.lines().filter(|line| line.starts_with("CapEff")).all(|line| line.ends_with("0000000000000000")),
        "{text}"
    );
    assert!(text.contains("CapEff"), "{text}");
    // Landlock keeps it from what is not the daemon's.
    assert!(!std::path::Path::new("/etc/sidestep-was-here").exists(), "it writes where it likes");

    let follower = follow(&mut lab);
    // Until it has asked twice.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(lab.gateway(Site::A).stop());
    let told = follower();
    let end: Vec<_> = told.lines().rev().take(2).collect();
    assert!(end[0].contains("tunnel_down") && end[1].contains("session_down"), "{told}");
    let text = std::fs::read_to_string(&heard).expect("what it wrote");
    assert!(text.contains("session_down site-b") && text.contains("tunnel_down"), "{text}");
}

/// Follows a gateway's events from now on; what it returns ends that, and has what was told.
fn follow(lab: &mut Lab) -> impl FnOnce() -> String + use<> {
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(Site::A).tunnel());
    let program = lab.program().to_string_lossy().into_owned();
    let mut command = lab.command(Node::GatewayA, &program).expect("the program");
    let out = lab.directory().join("followed");
    let file = std::fs::File::create(&out).expect("a file");
    let mut child =
        command.args(["events", "--follow", "--socket", &socket]).stdout(file).spawn().expect("it starts");
    wait_until("it follows", || std::fs::read_to_string(&out).is_ok_and(|text| text.contains("tunnel_up")));
    move || {
        child.kill().expect("it to end");
        child.wait().expect("its end");
        std::fs::read_to_string(&out).expect("what it wrote")
    }
}

/// Writes each datagram that comes as a line: `PORT`.
const SERVER: &str = r#"
import socket, sys
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
one.bind(("::1", int(sys.argv[1])))
print("listens", flush=True)
while True:
    print(one.recv(65536).decode("utf-8-sig"), flush=True)
"#;

#[test]
fn a_server_of_syslog_is_told_what_happens_from_now_on() {
    let Some(builder) = lab() else { return };
    let mut lab = builder.build().expect("a lab");
    lab.start().expect("a tunnel");
    let heard = lab.directory().join("heard");
    let text = || std::fs::read_to_string(&heard).unwrap_or_default();
    let mut server = lab.command(Node::GatewayA, "python3").expect("python3");
    let file = std::fs::File::create(&heard).expect("a file");
    let mut server = server.args(["-c", SERVER, "5140"]).stdout(file).spawn().expect("it starts");
    wait_until("the server listens", || text().contains("listens"));
    let program = lab.program().to_string_lossy().into_owned();
    let tunnel = lab.gateway(Site::A).tunnel().to_owned();
    let mut teller = lab.command(Node::GatewayA, &program).expect("the program");
    let words = ["events", &tunnel, "--follow", "--syslog", "[::1]:5140"];
    let mut teller = teller.args(words).spawn().expect("it starts");
    wait_until("what happens is told", || {
        run(&lab, Node::GatewayA, &["ip", "link", "set", "ex", "down"]);
        run(&lab, Node::GatewayA, &["ip", "link", "set", "ex", "up"]);
        text().contains(" link - ")
    });
    for mut program in [teller.kill().map(|()| teller), server.kill().map(|()| server)].into_iter().flatten()
    {
        program.wait().expect("its end");
    }
    let told = text();
    let first = told.lines().nth(1).expect("just seen");
    let words: Vec<_> = first.splitn(8, ' ').collect();
    assert_eq!((words[0], words[3], words[4], words[6]), ("<30>1", "sidestep", &*tunnel, "-"), "{first}");
    assert!(!told.contains("tunnel_up"), "that was before: {told}");
}

#[test]
fn whatever_flaps_the_last_word_is_what_is_so() {
    let Some(builder) = lab() else { return };
    let mut lab = builder.build().expect("a lab");
    lab.start().expect("a tunnel");
    let links = |lab: &mut Lab| -> Vec<Value> {
        told(lab).into_iter().filter(|event| event["event"] == "link").collect()
    };
    for times in 1.. {
        run(&lab, Node::GatewayA, &["ip", "link", "set", "ex", "down"]);
        run(&lab, Node::GatewayA, &["ip", "link", "set", "ex", "up"]);
        // A moment that is too short to be noticed is none.
        std::thread::sleep(std::time::Duration::from_millis(20));
        if times >= 15 && links(&mut lab).len() == 20 {
            break;
        }
        assert!(times < 100, "{:?}", links(&mut lab));
    }
    run(&lab, Node::GatewayA, &["ip", "link", "set", "ex", "down"]);
    wait_until("the last word is true", || {
        links(&mut lab)
            .last()
            .is_some_and(|last| last["reason"] == "down" && last["fields"]["left_out"].is_u64())
    });
    assert!(links(&mut lab).len() < 25, "and it is one");
}
