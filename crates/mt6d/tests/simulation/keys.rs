//! An end changes its key: for a while it is met by the old one and by the new.

use std::time::Duration;

use sidestep_mt6d::PeerState;
use sidestep_mt6d::keys::{PrivateKey, PublicKey};

use crate::network::{A, B, Network, Stream, seeds};

/// A site's key, the second time.
pub(crate) fn another(site: usize) -> PrivateKey {
    PrivateKey::from_bytes([100 + site as u8; 32])
}

/// Has a site change its key, and keep the old one beside it.
pub(crate) fn change_key(network: &mut Network, site: usize) {
    let config = &mut network.sites[site].config;
    let old = std::mem::replace(&mut config.private_key, another(site));
    config.previous_key = Some(old);
    network.reconfigure(site);
}

/// Tells a site of the key that its peer is going to have.
pub(crate) fn tell(network: &mut Network, site: usize) {
    network.sites[site].peer(0).next_key = Some(another(1 - site).public());
    network.reconfigure(site);
}

/// Ends the time of grace: old keys are good for nothing any more.
fn forget_old_keys(network: &mut Network, site: usize) {
    let config = &mut network.sites[site].config;
    config.previous_key = None;
    if let Some(key) = config.peers[0].next_key.take() {
        config.peers[0].public_key = key;
    }
    network.reconfigure(site);
}

/// A pair with traffic in both directions.
fn streaming(seed: u64) -> Network {
    let mut network = Network::pair(seed);
    network.start();
    network.establish();
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(20));
    }
    network.run_s(5);
    network
}

/// The keys that a session was made with: the site's own, its peer's.
fn keys(network: &Network, site: usize) -> (PublicKey, PublicKey) {
    let keys = network.status(site).session.expect("a session").keys;
    (keys.own, keys.peer)
}

/// Whether both ends use a session of the keys that `A` and `B` have.
fn both_use(network: &Network, a: &PublicKey, b: &PublicKey) -> bool {
    keys(network, A) == (*a, *b) && keys(network, B) == (*b, *a)
}

#[test]
fn a_key_changes_and_no_packet_is_lost() {
    for seed in seeds(30) {
        // Whoever is told last makes the session with the new key.
        for told_first in [true, false] {
            let mut network = streaming(seed);
            let (a, b) = (network.sites[A].key(), network.sites[B].key());
            if told_first {
                tell(&mut network, B);
                network.run_s(90);
                assert!(both_use(&network, &a, &b), "nobody has the new key");
                change_key(&mut network, A);
            } else {
                change_key(&mut network, A);
                network.run_s(90);
                assert!(both_use(&network, &a, &b), "nobody knows the new key");
                tell(&mut network, B);
            }
            let new = another(A).public();
            let switched = network.run_until(Duration::from_secs(10), |n| both_use(n, &new, &b));
            assert!(switched.is_some(), "seed {seed}: {told_first}");
            let handshakes = network.status(A).handshakes;
            for site in if seed % 2 == 0 { [B, A] } else { [A, B] } {
                forget_old_keys(&mut network, site);
                network.run_s(5);
            }
            network.run_s(300);
            assert_eq!(network.status(A).handshakes, handshakes, "that has cost no session");
            assert!(
                network.status(A).session.unwrap().age > Duration::from_secs(300),
                "that has cost no session"
            );
            network.assert_all_arrived();
        }
    }
}

#[test]
fn both_ends_change_their_keys_at_once_and_no_packet_is_lost() {
    for seed in seeds(30) {
        let mut network = streaming(seed);
        for site in [A, B] {
            tell(&mut network, site);
        }
        for site in [A, B] {
            change_key(&mut network, site);
        }
        let new = [A, B].map(|site| another(site).public());
        let switched = network.run_until(Duration::from_secs(60), |n| both_use(n, &new[A], &new[B]));
        assert!(switched.is_some(), "seed {seed}");
        for site in [B, A] {
            forget_old_keys(&mut network, site);
        }
        network.run_s(30);
        network.assert_all_arrived();
    }
}

#[test]
fn in_the_time_of_grace_either_end_may_restart() {
    for seed in seeds(30) {
        for restarts in [A, B] {
            for knows in [true, false] {
                let mut network = streaming(seed);
                let (old, b) = (network.sites[A].key(), network.sites[B].key());
                change_key(&mut network, A);
                if knows {
                    tell(&mut network, B);
                }
                network.run_s(20);
                network.kill(restarts);
                network.run_s(1);
                network.start_site(restarts);
                network.run_s(100);
                let key = if knows { another(A).public() } else { old };
                assert!(both_use(&network, &key, &b), "seed {seed}: {restarts}, {knows}");
                let since = network.now;
                network.run_s(30);
                network.stop();
                assert!(network.flows.iter().all(|flow| flow.lost_since(since) == 0));
            }
        }
    }
}

/// While a session of the new keys was tried for, the path let no first message pass; an hour later it is tried again.
#[test]
fn keys_that_could_not_be_used_at_first_are_in_use_within_an_hour() {
    for seed in seeds(5) {
        let mut network = streaming(seed);
        let (old, new, b) = (network.sites[A].key(), another(A).public(), network.sites[B].key());
        // Nothing that is as long as an envelope.
        network.path_between(A, B, |path| path.mtu = 200);
        change_key(&mut network, A);
        tell(&mut network, B);
        network.run_s(100);
        network.path_between(A, B, |path| path.mtu = 1500);
        network.run_s(100);
        assert!(both_use(&network, &old, &b), "seed {seed}: nobody tries any more");
        let switched = network.run_until(Duration::from_secs(3700), |n| both_use(n, &new, &b));
        assert!(switched.is_some(), "seed {seed}");
    }
}

#[test]
fn a_key_that_is_taken_away_is_good_for_nothing() {
    let mut network = streaming(1);
    tell(&mut network, B);
    forget_old_keys(&mut network, B);
    let at = network.now;
    network.run_s(200);
    assert_ne!(network.status(A).state, PeerState::Established);
    assert_ne!(network.status(B).state, PeerState::Established);
    let sent_since = |flow: &crate::network::Flow| flow.sent.iter().filter(|sent| **sent > at).count();
    assert!(network.flows.iter().all(|flow| flow.lost_since(at) + 1 >= sent_since(flow)));

    // It was the wrong way round, and A goes on with the new key.
    network.sites[A].config.private_key = another(A);
    network.reconfigure(A);
    network.run_s(60);
    assert!(both_use(&network, &another(A).public(), &network.sites[B].key()));
}

#[test]
fn ends_that_do_not_agree_on_which_key_is_the_newer_lose_nothing() {
    for seed in seeds(12) {
        let mut network = streaming(seed);
        let config = &mut network.sites[A].config;
        config.previous_key = Some(another(A));
        network.reconfigure(A);
        tell(&mut network, B);
        network.run_s(400);
        let before = network.status(A).handshakes;
        network.run_s(1800);
        network.assert_all_arrived();
        let handshakes = network.status(A).handshakes - before;
        assert!(handshakes < 60, "{handshakes} in half an hour");
    }
}
