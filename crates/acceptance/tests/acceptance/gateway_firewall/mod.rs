//! The firewall on the running kernel: what `router::firewall::evaluate` says, the kernel does.

mod commands;
mod frame;
mod random;
mod scene;

use random::Random;
use router::firewall::{Packet, Policy, State, Verdict, evaluate};
use scene::{FirewallScene, Outcome};

const POLICIES: u64 = 40;
const PACKETS: u32 = 280;

/// Random policies, and random packets through the kernel with each: 10,000 verdicts and more.
#[test]
fn the_kernel_decides_as_the_evaluator_says() {
    let Some(mut scene) = FirewallScene::new() else { return };
    let seed = std::env::var("FIREWALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut counts = [0u32; 4];
    for number in 0..POLICIES {
        let mut random = Random::new(seed * 1000 + number);
        let policy = random.policy(&scene.zones());
        scene.apply(&policy);
        if number % 2 == 1 {
            scene.put_back();
        }
        let packets: Vec<Packet> =
            (0..PACKETS).filter_map(|_| scene.possible(&policy, random.packet())).collect();
        let outcomes = scene.send(&packets);
        for (packet, outcome) in packets.iter().zip(&outcomes) {
            compare(&policy, packet, *outcome, seed * 1000 + number);
            counts[*outcome as usize] += 1;
        }
        let replies: Vec<Packet> = packets
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| **outcome == Outcome::Accepted)
            .filter_map(|(packet, _)| scene::reply(packet))
            .collect();
        let outcomes = scene.send(&replies);
        for (packet, outcome) in replies.iter().zip(&outcomes) {
            assert_eq!(packet.state, State::Established);
            compare(&policy, packet, *outcome, seed * 1000 + number);
            counts[3] += 1;
        }
    }
    let [accepted, dropped, rejected, replies] = counts;
    eprintln!("{accepted} accepted, {dropped} dropped, {rejected} rejected, {replies} replies");
    assert!(accepted + dropped + rejected >= 10_000);
    assert!(accepted > 1000 && dropped > 1000 && rejected > 300 && replies > 300);
}

fn compare(policy: &Policy, packet: &Packet, outcome: Outcome, seed: u64) {
    let decision = evaluate(policy, packet);
    let expected = match decision.verdict {
        Verdict::Accept => Outcome::Accepted,
        Verdict::Reject if scene::is_answered(packet) => Outcome::Rejected,
        Verdict::Drop | Verdict::Reject => Outcome::Dropped,
    };
    assert!(
        expected == outcome,
        "seed {seed}: {outcome:?} by the kernel, {decision:?} by the evaluator\n{packet:?}\n{}",
        router::firewall::compile(policy, router::firewall::TimeZone::default()).script
    );
}
