//! Finding each other again: prefixes that come, go and change.

use std::time::Duration;

use ipnet::Ipv6Net;
use sidestep_mt6d::PeerState;
use sidestep_mt6d::config::{Introduce, NOWHERE, PeerConfig, Rate, Shape};
use sidestep_mt6d::keys::PrivateKey;

use crate::network::{A, B, Network, Stream, hop_prefix, seeds};

#[test]
fn a_node_without_a_prefix_is_silent_until_it_has_one() {
    for seed in seeds(6) {
        let mut network = Network::pair(seed);
        network.configure(|peer| peer.keepalive = Some(Duration::from_secs(25)));
        network.sites[A].config.hop_prefix = NOWHERE;
        network.observer.keeps = true;
        network.start();
        network.send(A, B, Stream::udp().every_ms(100));
        let is_silent = |network: &Network| {
            let seen = &network.observer.seen;
            let theirs = |seen: &crate::network::Seen| hop_prefix(B).contains(seen.source.ip());
            seen.iter().all(theirs) && network.sites[A].asked.is_empty()
        };
        network.run_s(100);
        assert!(is_silent(&network) && network.status(A).state == PeerState::Idle, "it has nowhere to be");

        network.move_to(A, "2001:db8:c000::/64".parse().unwrap());
        let both = |network: &Network| network.established(A) && network.established(B);
        assert!(network.run_until(Duration::from_secs(5), both).is_some(), "it has found its peer");

        network.move_to(A, NOWHERE);
        // What it has sent already.
        network.run_s(1);
        network.observer.seen.clear();
        network.run_s(100);
        assert!(is_silent(&network) && network.status(A).state == PeerState::Idle, "it has lost its place");

        network.move_to(A, "2001:db8:c001::/64".parse().unwrap());
        assert!(network.run_until(Duration::from_secs(5), both).is_some(), "it has found its peer again");
    }
}

const HUB: usize = 2;
const LIMIT: Duration = Duration::from_secs(10);

/// Two sites, and a hub that both know and that introduces them.
fn with_hub(seed: u64) -> Network {
    let mut network = Network::new(seed, 3);
    network.introduce(A, B);
    network.introduce(A, HUB);
    network.introduce(B, HUB);
    network.configure(|peer| peer.keepalive = Some(Duration::from_secs(25)));
    for site in [A, B] {
        network.sites[site].peer(0).meet_through = vec!["site-2".into()];
    }
    for number in [0, 1] {
        network.sites[HUB].peer(number).introduce = Introduce::Everybody;
    }
    network
}

fn all_established(network: &Network) -> bool {
    (0..network.sites.len()).all(|site| {
        let node = network.sites[site].node.as_ref().expect("it is up");
        let now = network.sites[site].clock.now(network.now);
        node.status(now).all(|peer| peer.state == PeerState::Established)
    })
}

fn place(site: usize, number: u16) -> Ipv6Net {
    format!("2001:db8:c{site:x}{number:02x}::/64").parse().expect("a prefix")
}

/// Both are somewhere else from one moment to the next.
fn move_both(network: &mut Network, number: u16) {
    for site in [A, B] {
        network.move_to(site, place(site, number));
    }
}

/// Both know where the other is, and have a session there.
fn met(network: &Network) -> bool {
    let knows = |site: usize, other: usize| {
        let here = network.sites[other].config.hop_prefix;
        network.established(site) && network.status(site).hop_prefix == here
    };
    knows(A, B) && knows(B, A)
}

#[test]
fn two_that_move_at_once_meet_through_a_third() {
    for seed in seeds(20) {
        let mut network = with_hub(seed);
        network.start();
        assert!(network.run_until(Duration::from_secs(90), all_established).is_some());
        for (from, to) in [(A, B), (B, A)] {
            network.send(from, to, Stream::udp().every_ms(20));
        }
        for number in 0..3 {
            network.run_s(20);
            move_both(&mut network, number);
            let took = network.run_until(LIMIT, met);
            assert!(took.is_some(), "move {number}: not within {LIMIT:?}");
        }
        network.stop();
        network.assert_nothing_wrong();
    }
}

/// A pair of keys is a pair of its own, and so is who wishes for whom: whichever of the others knows the new key, they meet.
#[test]
fn two_that_move_at_once_meet_while_one_changes_its_key() {
    for seed in seeds(10) {
        for knows in [[true, true], [true, false], [false, true], [false, false]] {
            for ahead_s in [0, 3, 100] {
                let mut network = with_hub(seed);
                network.start();
                assert!(network.run_until(Duration::from_secs(90), all_established).is_some());
                network.run_s(20);
                let new = PrivateKey::from_bytes([100; 32]);
                for site in [B, HUB].into_iter().zip(knows).filter_map(|(site, knows)| knows.then_some(site))
                {
                    network.sites[site].peer(0).next_key = Some(new.public());
                    network.reconfigure(site);
                }
                let config = &mut network.sites[A].config;
                config.previous_key = Some(std::mem::replace(&mut config.private_key, new));
                network.reconfigure(A);
                network.run_s(ahead_s);
                move_both(&mut network, 1);
                let took = network.run_until(LIMIT, met);
                assert!(took.is_some(), "seed {seed}: B and the hub know {knows:?}, {ahead_s} s");
                network.run_s(60);
                assert!(met(&network));
                network.assert_nothing_wrong();
            }
        }
    }
}

/// The third has forgotten the old key, and one of the two has not yet: it asks by both that it knows.
#[test]
fn a_third_that_knows_the_new_key_alone_lets_two_meet() {
    for seed in seeds(10) {
        for shape in [Shape::None, Shape::Constant(Rate::from_bytes(25_000).unwrap())] {
            let mut network = with_hub(seed);
            network.configure(|peer| peer.shape = shape);
            let new = PrivateKey::from_bytes([101; 32]);
            network.sites[HUB].peer(1).public_key = new.public();
            network.sites[A].peer(0).next_key = Some(new.public());
            let config = &mut network.sites[B].config;
            config.previous_key = Some(std::mem::replace(&mut config.private_key, new));
            network.start();
            assert!(network.run_until(Duration::from_secs(90), all_established).is_some(), "seed {seed}");
            network.run_s(20);
            move_both(&mut network, 1);
            let took = network.run_until(LIMIT, met);
            assert!(took.is_some(), "seed {seed}, {shape:?}");
        }
    }
}

#[test]
fn with_a_shape_or_without_keepalive_they_meet_as_well() {
    let rate = Rate::from_bytes(25_000).expect("a rate");
    let shaped = |peer: &mut PeerConfig| peer.shape = Shape::Constant(rate);
    let idle = |peer: &mut PeerConfig| peer.keepalive = None;
    for (seed, change) in [(1, &shaped as &dyn Fn(&mut PeerConfig)), (2, &idle), (3, &shaped), (4, &idle)] {
        let mut network = with_hub(seed);
        network.configure(change);
        network.start();
        for (from, to) in [(A, B), (B, A), (A, HUB), (B, HUB)] {
            network.send(from, to, Stream::udp().every_ms(500));
        }
        assert!(network.run_until(Duration::from_secs(90), all_established).is_some());
        network.run_s(20);
        move_both(&mut network, 0);
        assert!(network.run_until(LIMIT, met).is_some());
    }
}

#[test]
fn all_three_have_to_want_it() {
    let changes: [&dyn Fn(&mut Network); 5] = [
        &|network| network.sites[A].peer(0).meet_through.clear(),
        &|network| network.sites[B].peer(0).meet_through = vec!["site-1".into()],
        &|network| network.sites[HUB].peer(0).introduce = Introduce::Nobody,
        &|network| network.sites[HUB].peer(1).introduce = Introduce::Only(vec!["site-7".into()]),
        &|network| network.kill(HUB),
    ];
    for (seed, change) in seeds(12).flat_map(|seed| changes.iter().map(move |change| (seed, change))) {
        let mut network = with_hub(seed);
        network.start();
        assert!(network.run_until(Duration::from_secs(90), all_established).is_some());
        change(&mut network);
        for site in 0..3 {
            if network.sites[site].node.is_some() {
                network.reconfigure(site);
            }
        }
        move_both(&mut network, 0);
        assert_eq!(network.run_until(Duration::from_secs(60), met), None);
    }
}

#[test]
fn a_third_that_comes_back_lets_them_meet() {
    for seed in seeds(6) {
        let mut network = with_hub(seed);
        network.start();
        assert!(network.run_until(Duration::from_secs(90), all_established).is_some());
        network.kill(HUB);
        network.run_s(10);
        move_both(&mut network, 0);
        network.run_s(120);
        assert!(!met(&network));
        network.start_site(HUB);
        assert!(network.run_until(Duration::from_secs(150), met).is_some());
    }
}

#[test]
fn most_meet_in_time_over_paths_that_lose_a_fifth() {
    let mut late = Vec::new();
    for seed in seeds(30) {
        let mut network = with_hub(seed);
        network.path.loss = 0.2;
        network.start();
        assert!(network.run_until(Duration::from_secs(90), all_established).is_some());
        network.run_s(20);
        move_both(&mut network, 0);
        let took = network.run_until(Duration::from_secs(60), met);
        late.extend(took.is_none_or(|took| took > LIMIT).then_some((seed, took)));
    }
    assert!(late.len() * 5 <= seeds(30).count(), "{late:?}");
}

/// Whoever may say where a peer is says it again and again, and never the truth.
#[test]
fn lies_cost_little_and_keep_nobody_apart() {
    for seed in seeds(9) {
        let mut network = Network::pair(seed);
        network.configure(|peer| peer.keepalive = Some(Duration::from_secs(25)));
        network.start();
        network.establish();
        network.run_s(20);
        // B is away, and its old prefix leads nowhere.
        network.kill(B);
        network.observer.keeps = true;
        let name = network.status(A).name;
        let told = |network: &mut Network, seconds: u64| {
            for number in 0..seconds * 10 {
                let lie = format!("2001:db8:e{:03x}::/64", number % 0x1000).parse().expect("a prefix");
                network.with(A, |node, now, _, _| node.told_place(&name, lie, now));
                network.run(Duration::from_millis(100));
            }
        };
        network.run_s(20);
        network.observer.seen.clear();
        told(&mut network, 120);
        let lies: Ipv6Net = "2001:db8:e000::/36".parse().expect("a prefix");
        let sent = network.observer.seen.iter().filter(|seen| lies.contains(seen.destination.ip())).count();
        // Three at once, one each five seconds, and those that have their turn anyway: five copies of each at most.
        assert!((1..=5 * (3 + 120 / 5 + 12)).contains(&sent), "{sent} datagrams in two minutes");
        // Back where it was: nobody has believed anything.
        network.start_site(B);
        let mut found = None;
        for _ in 0..90 {
            told(&mut network, 1);
            found = found.or(network.established(A).then_some(network.now));
        }
        assert!(found.is_some() && network.status(A).hop_prefix == hop_prefix(B));
    }
}

#[test]
fn places_that_can_be_none_are_not_tried() {
    let mut network = Network::pair(7);
    network.configure(|peer| peer.keepalive = Some(Duration::from_secs(25)));
    network.observer.keeps = true;
    network.start_site(A);
    let name = network.status(A).name;
    for (number, lie) in
        ["fe80::/64", "ff02::/64", "2001:db8:a000::/64", "fd00::/64", "::/96"].iter().enumerate()
    {
        network.with(A, |node, now, _, _| node.told_place(&name, lie.parse().expect("a prefix"), now));
        network.run_s(10 + number as u64);
    }
    assert!(network.observer.count > 0);
    assert!(network.observer.seen.iter().all(|seen| hop_prefix(B).contains(seen.destination.ip())));
}
