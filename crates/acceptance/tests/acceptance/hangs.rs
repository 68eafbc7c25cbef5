//! A daemon that hangs or is killed, beside one that does not and is not.

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use lab::Node;
use lab::patience::wait_until;
use nix::sys::signal::Signal;

use crate::promises::scene::{lab, up};

/// The socket of a daemon that takes no calls, beside those of two gateways that do.
const HANGING: &str = "/run/sidestep/hangs.sock";

#[test]
fn one_that_hangs_hides_no_other() {
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    let tunnel = lab.gateway_a().tunnel().to_owned();
    let hangs = UnixListener::bind(HANGING).expect("a socket");
    let program = lab.program().to_owned();
    for (command, healthy) in [("show", "site-b"), ("events", "tunnel_up")] {
        let mut asks = lab.command(Node::GatewayA, &program).expect("a command");
        let output = asks.arg(command).output().expect("a command that starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(healthy) && said.contains(&tunnel), "{said} {complained}");
        assert_eq!(complained.matches(HANGING).count(), 1, "{complained}");
        assert_eq!(output.status.code(), Some(1), "{complained}");
    }
    let paths = ["said", "complained"].map(|name| lab.directory().join(name));
    let [said, complained] = paths.each_ref().map(|path| Stdio::from(File::create(path).expect("a file")));
    let mut command = lab.command(Node::GatewayA, &program).expect("a command");
    let mut follows = command
        .args(["events", "--follow"])
        .stdout(said)
        .stderr(complained)
        .spawn()
        .expect("a command that starts");
    let text = |at: usize| std::fs::read_to_string(&paths[at]).expect("a text");
    wait_until("what was before", || text(0).contains("tunnel_up"));
    for times in 1..=3 {
        lab.gateway_a().signal(Signal::SIGHUP);
        wait_until("what happens now", || text(0).matches("configuration read again").count() == times);
    }
    assert_eq!(text(1).matches(HANGING).count(), 1, "{}", text(1));
    let before = text(0).matches("tunnel_up").count();
    lab.gateway_a().kill();
    wait_until("its end is told", || text(1).contains("its events go on when it is back"));
    lab.gateway_a().start().expect("a gateway");
    wait_until("it is followed again", || text(0).matches("tunnel_up").count() > before);
    assert_eq!(text(1).matches("when it is back").count(), 1, "{}", text(1));
    let _ = follows.kill();
    let _ = follows.wait();
    drop(hangs);
}
