//! Mutated copies of what is on the links, for as long as `SIDESTEP_SOAK` says in seconds (`make soak`: an hour): to a live
//! tunnel, and to a gateway from its provider's link. Nothing is answered, nobody is disturbed, memory and log stay flat.

use std::time::{Duration, Instant};

use lab::patience::{wait_for, wait_until};
use lab::scale::scaled;
use lab::traffic::{UdpOptions, UdpStream};
use lab::{Lab, Node, Site, accounting};
use serde_json::Value;

use crate::promises::scene;
use crate::router::HOME;
use crate::router::scene::{INTERNET, RouterScene};

const MUTATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acceptance/hostile/mutate.py");
const PROVIDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acceptance/hostile/provider.py");

/// Of a gateway, beyond what it holds after the first round: an allocator's slack.
const MOST_GROWTH: u64 = 4 << 20;

fn length() -> Duration {
    let named = std::env::var("SIDESTEP_SOAK").ok().map(|text| text.parse().expect("SIDESTEP_SOAK: seconds"));
    Duration::from_secs(named.unwrap_or(scaled(20, 120)))
}

/// What a gateway holds, and how much it has said.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident: u64,
    lines: usize,
}

fn held(lab: &mut Lab) -> Held {
    let gateway = lab.gateway_a();
    let resident = accounting::resident(gateway.id().expect("it runs")).expect("its memory");
    let log = std::fs::read_to_string(gateway.log()).expect("its log");
    Held { resident, lines: log.lines().count() }
}

/// Each round is a stream, and a restart of the other end, whose first messages are copied, too.
#[test]
fn mutated_datagrams_change_nothing() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder.lanes(2).whole_packets(true));
    let id = lab.gateway_a().id();
    let [prefix, peer] = [Site::A, Site::B].map(Site::hop_prefix);
    let (begin, length) = (Instant::now(), length());
    let round = (length / 4).min(Duration::from_secs(60));
    // It ends by itself, once nobody looks any longer.
    let seconds = (length + round * 2).as_secs().to_string();
    let words = ["python3", "-B", MUTATE, "a", prefix, peer, &seconds, "500"];
    let mut attacker = lab.spawn(Node::Router, words, "mutate").expect("an attacker");

    let mut rounds = Vec::new();
    while begin.elapsed() < length {
        let options = UdpOptions { from: Site::B, duration: round, ..UdpOptions::default() };
        let stream = UdpStream::start(&lab, options).expect("a stream");
        let report = scene::finish(stream);
        assert!(report.lost * 1_000 <= report.sent.sent, "{} lost of {:?}", report.lost, report.sent);
        assert_eq!(report.received.duplicated, 0);
        lab.gateway_b().restart().expect("the other end");
        lab.wait_connected(Duration::from_secs(30)).expect("a session, in spite of the copies");
        rounds.push(held(&mut lab));
    }
    let drops = lab.show(Site::A).expect("a status");
    attacker.wait(round * 2 + Duration::from_secs(10));
    let told = std::fs::read_to_string(attacker.log()).expect("what it tells");
    let told: Value = told.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect(&told);

    eprintln!("{length:?}, {} rounds: {}", rounds.len(), told["sent"]);
    eprintln!("drops: {} and {}", drops["drops"], drops["peers"][0]["drops"]);
    let (first, last) = (rounds[0], rounds[rounds.len() - 1]);
    eprintln!("{first:?}, {last:?}");
    assert_eq!(told["answered"], 0, "{}", told["answers"]);
    let sent = told["sent"].as_object().expect("how many of each kind");
    assert!(sent.values().all(|sent| sent.as_u64() > Some(length.as_secs())), "too few: {sent:?}");
    assert_eq!(lab.gateway_a().id(), id);
    assert!(lab.gateway_a().ended().is_none());
    assert!(last.resident < first.resident + MOST_GROWTH, "memory grows: {rounds:?}");
    assert!(last.lines <= first.lines + rounds.len() * 8, "the log grows: {rounds:?}");
}

/// The provider's router is believed, so what is changed in its name may take the connection; it comes back.
#[test]
fn crafted_advertisements_and_dhcp_answers_leave_nothing_behind() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let id = scene.id();
    let begin = (accounting::resident(id).expect("its memory"), scene.log().lines().count());
    let length = length();
    let seconds = length.as_secs().to_string();
    let sent = scene.run("net", &["python3", "-B", PROVIDER, "isp0", &seconds, "200"]);
    let lines = |node: &str, words: &[&str]| scene.run(node, words).lines().count();
    let routes = lines("gw", &["ip", "-6", "route", "show", "table", "all"]);
    let addresses = lines("gw", &["ip", "-o", "-6", "address"]);
    let (resident, logged) = (accounting::resident(id).expect("its memory"), scene.log().lines().count());
    eprintln!("in {length:?}: {}", sent.trim());
    eprintln!("{routes} routes, {addresses} addresses, {begin:?} → {:?} bytes and lines", (resident, logged));
    wait_for("a status", || scene.status());
    wait_until("the Internet again", || scene.answers("host", INTERNET));
    assert!(routes < 96 && addresses < 48, "{routes} routes, {addresses} addresses");
    assert!(resident < begin.0 + MOST_GROWTH, "memory grows");
    assert!(logged < begin.1 + 100, "{}", scene.log());
    assert!(sent.contains("\"answers\"") && !sent.contains("\"answers\": 0"), "{sent}");
}
