//! A site of a fleet with two gateways, one of which is active at a time; the other takes over, and TCP goes on.
//! The other site (`b`) is the hub, with the controller.

pub(crate) mod network;
mod scene;

use std::time::{Duration, Instant};

use lab::patience::wait_until;
use nix::sys::signal::Signal;

use crate::recipes::scene::Scene;
use scene::{Site, other};

/// What is done to the active one.
type Fault = (&'static str, fn(&Site, &str), fn(&mut Site, &str));

const FAULTS: [Fault; 6] = [
    (
        "kill -9 of its daemon",
        |site, node| site.signal(node, "up", Signal::SIGKILL),
        |site, node| site.start_daemon(node),
    ),
    (
        "kill -9 of its agent",
        |site, node| site.signal(node, "agent", Signal::SIGKILL),
        |site, node| site.start_agent(node),
    ),
    (
        "the machine is gone",
        |site, node| {
            site.links(node, "down");
            site.signal(node, "up", Signal::SIGKILL);
            site.signal(node, "agent", Signal::SIGKILL);
        },
        |site, node| {
            site.links(node, "up");
            site.start_daemon(node);
            site.start_agent(node);
        },
    ),
    (
        "its daemon stands still",
        |site, node| site.signal(node, "up", Signal::SIGSTOP),
        |site, node| site.signal(node, "up", Signal::SIGCONT),
    ),
    (
        "its agent stands still",
        |site, node| site.signal(node, "agent", Signal::SIGSTOP),
        |site, node| site.signal(node, "agent", Signal::SIGCONT),
    ),
    (
        "both stand still",
        |site, node| {
            site.signal(node, "up", Signal::SIGSTOP);
            site.signal(node, "agent", Signal::SIGSTOP);
        },
        |site, node| {
            site.signal(node, "up", Signal::SIGCONT);
            site.signal(node, "agent", Signal::SIGCONT);
        },
    ),
];

#[test]
fn the_other_gateway_takes_over_and_tcp_goes_on() {
    let Some(mut site) = Site::new("200ms") else { return };
    for (what, fault, repair) in FAULTS {
        let active = site.active();
        let (mut outage, mut met) = (Duration::ZERO, (None, 0));
        let (took, _) = site.flow_while(10, |site| {
            std::thread::sleep(Duration::from_secs(2));
            let began = Instant::now();
            fault(site, active);
            wait_until("the other one is active", || site.turn(other(active)).is_some());
            // The first one is there again, and finds that its turn is over.
            std::thread::sleep(Duration::from_secs(3));
            outage = began.elapsed();
            met = (site.turn(other(active)), site.handshakes("b"));
            repair(site, active);
        });
        eprintln!("{what}: nothing came back for {took:?}");
        assert!(
            took < outage,
            "{what}: TCP went on when the first one was repaired, after {took:?} of {outage:?}"
        );
        wait_until("one is active", || site.turn(active).is_some() != site.turn(other(active)).is_some());
        wait_until("the site is there", || site.reaches());
        // Unless a busy machine had a reason to change over once more.
        if site.turn(other(active)) == met.0 {
            assert_eq!(site.handshakes("b"), met.1, "{what}: the peer has met the first one again");
        }
    }
}

#[test]
fn what_is_no_reason_to_take_over_changes_nothing_and_neither_does_an_outage_of_all_controllers() {
    let Some(mut site) = Site::new("2s") else { return };
    let active = site.active();
    let turn = site.turn(active);
    // The two do not hear each other: the controller passes on that the active one is there.
    let (took, _) = site.flow_while(8, |site| {
        site.drop_datagrams(active, "udp dport 4162 drop");
        std::thread::sleep(Duration::from_secs(6));
    });
    eprintln!("the two do not hear each other: nothing came back for {took:?}");
    let said = site.said(active);
    assert!(said.contains("is not heard") && said.contains("of two gateways: active"), "{said}");
    assert_eq!((site.active(), site.turn(active)), (active, turn));
    site.drop_datagrams(active, "");

    // The active one does not reach the controller, or nobody does.
    let (took, _) = site.flow_while(8, |site| {
        site.drop_datagrams(active, "tcp dport 4160 drop");
        std::thread::sleep(Duration::from_secs(6));
    });
    eprintln!("the active one reaches no controller: nothing came back for {took:?}");
    assert_eq!((site.active(), site.turn(active)), (active, turn));
    site.drop_datagrams(active, "");
    site.signal("b", "control", Signal::SIGKILL);
    let (took, _) = site.flow_while(8, |_| std::thread::sleep(Duration::from_secs(6)));
    eprintln!("no controller runs: nothing came back for {took:?}");
    let said = site.said(other(active));
    assert!(said.contains("no controller of the fleet answers") && said.contains("stands by"), "{said}");
    eprintln!("{said}");
    assert_eq!((site.active(), site.turn(active)), (active, turn));

    // Then it cannot go on, and says so itself.
    let (took, _) = site.flow_while(12, |site| {
        std::thread::sleep(Duration::from_secs(2));
        site.signal(active, "up", Signal::SIGKILL);
        wait_until("the other one is active", || site.turn(other(active)).is_some());
    });
    eprintln!("kill -9 of its daemon, without a controller: nothing came back for {took:?}");
}

/// Two that do not hear each other, of which the active one reaches no controller: the other one takes over, and the first goes on,
/// as nobody tells it. Whatever leads to it then, the peer does not follow it.
#[test]
fn a_gateway_whose_turn_is_over_and_that_nobody_tells_gets_no_traffic_of_a_peer() {
    let Some(mut site) = Site::new("200ms") else { return };
    let active = site.active();
    let (took, _) = site.flow_while(12, |site| {
        std::thread::sleep(Duration::from_secs(4));
        site.drop_datagrams(active, "udp dport 4162 drop; tcp dport 4160 drop");
        wait_until("the other one is active", || site.turn(other(active)).is_some());
    });
    eprintln!("it is alone: nothing came back for {took:?}");
    assert!(site.turn(active) < site.turn(other(active)), "it goes on, since it cannot know");
    let handshakes = site.handshakes("b");
    // All that comes for the prefix goes to the wrong one.
    site.lead_to(active);
    std::thread::sleep(Duration::from_secs(20));
    assert_eq!(site.handshakes("b"), handshakes, "the peer follows one whose turn is over");
    site.lead_back();
    wait_until("the site is there", || site.reaches());
    // When it hears again, it stands by.
    site.drop_datagrams(active, "");
    wait_until("it stands by", || site.turn(active).is_none());
    assert_eq!(site.active(), other(active));
}

/// Until its turn a tunnel hops nowhere, and any number of them do: nothing there is any one's.
#[test]
fn tunnels_of_one_machine_wait_for_their_turns_beside_each_other() {
    let Some(mut scene) = Scene::new(&["1", "r"], &["nft"]) else { return };
    scene.link(("1", "eth0"), ("r", "eth0"));
    scene.ip("1", "address add 2001:db8:fa::11/64 dev eth0 nodad");
    let tunnels = ["a", "b"].map(|name| (name, scene.tunnel(name)));
    for (name, tunnel) in &tunnels {
        scene.key(&format!("{name}.key"));
        let text = format!(
            "[node]\nprivate_key_file = \"{name}.key\"\nexternal = \"eth0\"\nhop_prefix = \"2001:db8:{name}1::/64\"\n\
             [tunnel]\nname = \"{tunnel}\"\naddresses = [\"fd00:{name}::1/128\"]\n\
             [standby]\ngateways = [\"fd00:{name}::11\", \"fd00:{name}::12\"]\n\
             addresses = [\"eth0 2001:db8:fa::1{name}/64\"]\n"
        );
        let file = scene.write(&format!("{name}.toml"), &text).display().to_string();
        let (program, state) = (scene.program(), format!("{name}.state"));
        scene.start("1", &[&program, "up", &file, "--state-dir", &state]);
        let status = |scene: &Scene| scene.run("1", &[&program, "show", tunnel]);
        wait_until("it waits", || status(&scene).contains("stands by for the other gateway"));
    }
}
