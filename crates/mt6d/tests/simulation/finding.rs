//! Finding each other again: prefixes that come, go and change.

use std::time::Duration;

use sidestep_mt6d::PeerState;
use sidestep_mt6d::config::NOWHERE;

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
