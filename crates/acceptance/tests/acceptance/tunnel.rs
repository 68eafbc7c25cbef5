//! The program in every topology, briefly: traffic across rotations, darkness towards strangers, and a kernel left as
//! it was found. Nothing here depends on speed, so that it also holds where the machine is emulated.

use std::net::Ipv6Addr;
use std::process::Command;
use std::time::Duration;

use lab::edited::Edited;
use lab::traffic::{self, PingOptions, UdpOptions, UdpStream};
use lab::{Builder, Lab, Node, Site, Topology};

fn lab(topology: Topology) -> Option<Builder> {
    Some(Lab::builder(crate::program(&[])?).topology(topology))
}

#[test]
fn routed() {
    story(lab(Topology::Routed));
}

#[test]
fn switched() {
    story(lab(Topology::Switched));
}

#[test]
fn tunneled() {
    story(lab(Topology::Tunneled));
}

/// Only where the kernel has `sit`: Debian's has.
#[test]
fn tunneled_by_the_kernel() {
    if !Command::new("modprobe").args(["--quiet", "sit"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this kernel has no sit");
        return;
    }
    story(lab(Topology::Tunneled).map(|builder| builder.sit(true)));
}

#[test]
fn what_a_crash_leaves_is_removed_at_the_next_start() {
    let Some(builder) = lab(Topology::Switched) else { return };
    let mut lab = builder.build().expect("a lab");
    let before = kernel(&lab);
    lab.start().expect("a tunnel");
    lab.gateway_a().kill();
    assert_ne!(kernel(&lab), before, "a crash was to leave something");
    lab.gateway_a().start().expect("a gateway");
    lab.wait_connected(Duration::from_secs(30)).expect("a tunnel again");
    end(&mut lab);
    assert_eq!(kernel(&lab), before);
}

/// The peer itself is behind the route into the tunnel, and nothing else is asked of the user. When the tunnel is down,
/// nothing takes another way, and nothing that comes for the hopping prefix goes back to where it came from.
#[test]
fn everything_goes_through_the_tunnel_or_nowhere() {
    let Some(builder) = lab(Topology::Routed) else { return };
    let mut lab = builder.build().expect("a lab");
    let file = lab.gateway_a().configuration().to_owned();
    let text = std::fs::read_to_string(&file).expect("a configuration");
    std::fs::write(&file, text.edited("\"2001:db8:b::/64\"", "\"::/0\"")).expect("a configuration");
    lab.start().expect("a tunnel");
    let options =
        PingOptions { count: 100, interval: Some(Duration::from_millis(50)), ..PingOptions::default() };
    let ping = traffic::ping(&lab, options).expect("a summary");
    assert_eq!((ping.received, ping.errors), (ping.sent, 0), "over rotations");
    let ping = |lab: &Lab, from: Node, to: &str| {
        let words = ["ping", "-6", "-n", "-c", "2", "-i", "0.1", "-W", "1", to];
        String::from_utf8_lossy(&lab.exec(from, words).expect("ping").stdout).into_owned()
    };
    let elsewhere = "2001:db8:fb::1";
    assert!(ping(&lab, Node::GatewayB, elsewhere).contains(" 0% packet loss"));
    assert!(lab.gateway_a().stop());
    let said = ping(&lab, Node::HostA, elsewhere);
    assert!(said.contains("No route") && said.contains("100% packet loss"), "{said}");
    let said = ping(&lab, Node::Router, "2001:db8:a1::7");
    assert!(said.contains("100% packet loss") && !said.contains("From "), "{said}");
}

fn story(builder: Option<Builder>) {
    let Some(builder) = builder else { return };
    let mut lab = builder.build().expect("a lab");
    let before = kernel(&lab);
    lab.start().expect("a tunnel");

    traffic_crosses_rotations(&lab);
    strangers_get_no_reply(&lab);

    end(&mut lab);
    assert_eq!(kernel(&lab), before);
}

fn traffic_crosses_rotations(lab: &Lab) {
    let first = rotations(lab);
    let options = UdpOptions { rate: 200, duration: Duration::from_secs(8), ..UdpOptions::default() };
    let forth = UdpStream::start(lab, options).expect("a stream");
    let back =
        UdpStream::start(lab, UdpOptions { from: Site::B, port: 4243, ..options }).expect("a stream back");
    for ipv4 in [false, true] {
        let ping = traffic::ping(lab, PingOptions { ipv4, ..PingOptions::default() }).expect("a summary");
        assert_eq!((ping.received, ping.duplicates, ping.errors), (ping.sent, 0, 0), "IPv4: {ipv4}");
    }
    for stream in [forth, back] {
        let report = stream.finish(Duration::from_secs(2)).expect("a report");
        assert_eq!((report.lost, report.received.duplicated), (0, 0), "{report:?}");
        assert!(report.sent.sent > 0);
    }
    let rotations = rotations(lab) - first;
    assert!(rotations >= 4, "{rotations} rotations in 8 s");
}

/// From the router, which knows every address that is in use.
fn strangers_get_no_reply(lab: &Lab) {
    let unused = Ipv6Addr::new(0x2001, 0xdb8, 0xa1, 0, 0, 0, 0, 7);
    for address in [active(lab), unused] {
        let address = address.to_string();
        let ping = lab.exec(Node::Router, ["ping", "-6", "-n", "-c", "3", "-i", "0.2", "-W", "1", &address]);
        let said = String::from_utf8_lossy(&ping.expect("ping").stdout).into_owned();
        assert!(said.contains(" 0 received"), "{said}");
        // On-link, nobody answers for an unused address: then it is the router itself that says so.
        let from_elsewhere =
            said.lines().any(|line| line.starts_with("From ") && !line.contains("Address unreachable"));
        assert!(!from_elsewhere, "{said}");
        // A refusal of any kind would end the connection at once.
        let knock = format!("TCP6:[{address}]:443,connect-timeout=2");
        let said = lab.exec(Node::Router, ["socat", "-u", "OPEN:/dev/null", &knock]).expect("socat").stderr;
        assert!(!String::from_utf8_lossy(&said).contains("refused"), "[{address}]:443 refuses");
    }
}

/// The address of gateway A at this moment.
fn active(lab: &Lab) -> Ipv6Addr {
    let show = lab.show(Site::A).expect("a status");
    let address = show["peers"][0]["local"][0]["address"].as_str().expect("an endpoint");
    address.parse().expect("an address")
}

fn rotations(lab: &Lab) -> u64 {
    lab.show(Site::A).expect("a status")["peers"][0]["rotations"].as_u64().expect("a number")
}

/// Ends the tunnel. What it carried is refused from then on, until somebody says that it may leave in clear.
fn end(lab: &mut Lab) {
    assert!(lab.gateway_a().stop() && lab.gateway_b().stop(), "a gateway did not end well");
    let host = Site::B.host().to_string();
    let ping = ["ping", "-6", "-n", "-c", "1", "-W", "1", &host];
    let said = String::from_utf8_lossy(&lab.exec(Node::HostA, ping).expect("ping").stdout).into_owned();
    assert!(said.contains("No route"), "{said}");
    let (program, tunnel) = (lab.program().to_owned(), lab.gateway_a().tunnel().to_owned());
    for (succeeds, expected) in [(true, "leaves in clear"), (false, "none has left anything closed")] {
        let down = lab
            .command(Node::GatewayA, &program)
            .expect("a command")
            .args(["down", "--open", &tunnel])
            .output();
        let down = down.expect("an end");
        let said = String::from_utf8_lossy(&[down.stdout, down.stderr].concat()).into_owned();
        assert!(down.status.success() == succeeds && said.contains(expected), "{said}");
    }
}

/// What a gateway could leave in the kernel of gateway A.
fn kernel(lab: &Lab) -> Vec<String> {
    let questions: [&[&str]; 5] = [
        &["ip", "-6", "route", "show", "table", "all"],
        &["ip", "-6", "rule"],
        &["ip", "-6", "neigh", "show", "nud", "permanent"],
        &["ip", "-oneline", "address"],
        &["nft", "list", "ruleset"],
    ];
    let answer = |words: &[&str]| lab.exec(Node::GatewayA, words).expect("an answer").stdout;
    let lines = |words: &[&str]| {
        let text = String::from_utf8_lossy(&answer(words)).into_owned();
        // The kernel's own link-local addresses come when their links are up, on a slow machine later than this.
        let ours = |line: &&str| !line.contains("fe80:") && !line.contains("ff00::/8");
        text.lines().filter(ours).map(str::to_owned).collect::<Vec<_>>()
    };
    questions.into_iter().flat_map(lines).collect()
}
