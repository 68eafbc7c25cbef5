//! Two nodes of one key, of which one is to be met at a time.

use std::time::Duration;

use sidestep_mt6d::DropReason;

use crate::network::{A, B, Network, hop_prefix, seeds};

/// The second node of the key.
const OTHER: usize = 2;

/// Starts a node for its turn; what is sent to their prefix comes to it.
fn begin(network: &mut Network, site: usize, turn: u64) {
    network.start_site(site);
    network.sites[site].node.as_mut().expect("it is up").take_turn(Some(turn));
}

#[test]
fn a_node_whose_turn_is_over_gets_no_session_whatever_leads_to_it() {
    for seed in seeds(6) {
        for (doubled, peer) in [(A, B), (B, A)] {
            let mut network = Network::new(seed, 3);
            network.introduce(A, B);
            network.configure(|peer| peer.keepalive = Some(Duration::from_secs(25)));
            network.sites[OTHER].config = network.sites[doubled].config.clone();
            network.start_site(peer);
            begin(&mut network, doubled, 1);
            network.establish();

            // The second one takes over, and the first knows nothing of it.
            begin(&mut network, OTHER, 2);
            let taken = |network: &Network| network.established(OTHER) && network.established(peer);
            assert!(network.run_until(Duration::from_secs(5), taken).is_some());
            network.run_s(10);
            let handshakes = network.status(peer).handshakes;

            // Then a router sends the first one everything, and it does what it can.
            network.also_reachable(doubled, hop_prefix(doubled));
            network.run_s(120);
            assert_eq!(network.status(peer).handshakes, handshakes, "the peer has followed it");
            assert!(!network.established(doubled));
            assert!(network.drops(peer, DropReason::HandshakeOld) > 0, "it was refused");

            // The peer remembers that over a restart.
            network.kill(peer);
            network.start_site(peer);
            network.run_s(60);
            assert!(!network.established(doubled) && !network.established(peer));

            network.also_reachable(OTHER, hop_prefix(doubled));
            assert!(network.run_until(Duration::from_secs(120), taken).is_some(), "whose turn it is");
        }
    }
}

/// A site that has one gateway again says nothing of turns.
#[test]
fn who_does_not_take_turns_any_more_is_met_as_before() {
    for seed in seeds(3) {
        let mut network = Network::pair(seed);
        network.start_site(B);
        begin(&mut network, A, 7);
        network.establish();
        network.kill(A);
        network.start_site(A);
        network.establish();
    }
}
