//! Many peers, changing configurations.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use sidestep_mt6d::{DropReason, PeerState};

use crate::network::{A, B, Network, Stream, full_scale, seeds};

/// A hub, and so many sites around it.
fn star(seed: u64, sites: usize) -> Network {
    let mut network = Network::new(seed, sites + 1);
    for site in 1..=sites {
        network.introduce(0, site);
    }
    network
}

#[test]
fn many_peers_around_one_node() {
    // A quick run: in less than a fifth of the time.
    let sites: usize = if full_scale() { 1_000 } else { 250 };
    let began = Instant::now();
    let mut network = star(1, sites);
    network.start();
    for site in 1..=sites {
        network.send(site, 0, Stream::udp().every_ms(5_000));
        network.send(0, site, Stream::udp().every_ms(5_000));
    }
    network.run_s(130);
    network.assert_all_arrived();
    let hub = &mut network.sites[0];
    let (wakeups, endpoints) = (hub.wakeups, hub.node().endpoints());
    assert!(endpoints < sites * 14, "{endpoints} endpoints");
    println!(
        "{sites} peers, {} datagrams, {wakeups} calls of the hub's, {endpoints} endpoints, {:.1} s, {}",
        network.observer.count,
        began.elapsed().as_secs_f64(),
        memory()
    );
    for status in network.sites[0].node.as_ref().unwrap().status(network.sites[0].clock.now(network.now)) {
        assert_eq!(status.state, PeerState::Established, "{}", status.name);
    }
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find(|l| l.starts_with("VmHWM"))
        .unwrap_or("")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn peers_do_not_get_in_each_others_way() {
    let mut network = star(3, 6);
    network.configure(|peer| peer.rotation = Duration::from_secs(1));
    network.start();
    network.run_s(1);
    for site in 1..=6 {
        network.send(site, 0, Stream::udp().every_ms(50));
        network.send(0, site, Stream::tcp().every_ms(50));
    }
    network.run_s(10);
    // One comes and goes.
    network.kill(3);
    network.run_s(40);
    network.start_site(3);
    network.run_s(40);
    network.stop();
    network.assert_nothing_wrong();
    for flow in network.flows.iter().filter(|f| f.from != 3 && f.to != 3) {
        assert_eq!(flow.lost(), 0, "from {} to {}", flow.from, flow.to);
    }
}

#[test]
fn a_change_of_configuration_leaves_unchanged_peers_their_sessions() {
    let mut network = star(5, 4);
    network.configure(|peer| peer.rotation = Duration::from_secs(1));
    network.start();
    network.run_s(1);
    for site in 1..=4 {
        network.send(site, 0, Stream::udp().every_ms(20));
        network.send(0, site, Stream::udp().every_ms(20));
    }
    network.run_s(10);
    let before = network.sites[0].node().endpoints();

    // The first gets another name and another inner prefix, the second another rotation; the third goes.
    let more: IpNet = "fd00:0:0:99::/64".parse().unwrap();
    network.sites[0].peer(0).name = "renamed".into();
    network.sites[0].peer(0).allowed_ips.push(more);
    network.sites[0].peer(1).rotation = Duration::from_secs(3);
    network.sites[0].config.peers.remove(2);
    let at = network.now;
    network.reconfigure(0);
    network.run_s(10);
    network.stop();
    network.assert_nothing_wrong();
    for flow in &network.flows {
        let lost = flow.lost_since(at);
        match flow.from.max(flow.to) {
            // The time of a handshake.
            2 => assert!(lost <= 10, "{lost} lost from {} to {}", flow.from, flow.to),
            3 => assert!(lost + 1 >= flow.sent.iter().filter(|s| **s >= at).count(), "the peer is gone"),
            _ => assert_eq!(lost, 0),
        }
    }
    let hub = &mut network.sites[0];
    let now = hub.clock.now(network.now);
    let status: Vec<_> = hub.node().status(now).collect();
    let named = |name: &str| status.iter().find(|s| s.name == name).expect(name);
    assert_eq!(status.len(), 3);
    assert!(named("renamed").session.unwrap().age > Duration::from_secs(20));
    assert!(named("site-4").session.unwrap().age > Duration::from_secs(20));
    assert!(named("site-2").session.unwrap().age < Duration::from_secs(15));
    assert_eq!(
        network.status(2).session.unwrap().age.as_secs(),
        named("site-2").session.unwrap().age.as_secs()
    );
    let after = network.sites[0].node().endpoints();
    assert!(after < before, "{after} endpoints, {before} before");

    // And the third comes back.
    network.flows.clear();
    let key = network.sites[3].key();
    let mut peer = network.sites[0].config.peers[0].clone();
    (peer.name, peer.public_key) = ("site-3".into(), key);
    peer.hop_prefix = network.sites[3].config.hop_prefix;
    peer.allowed_ips = vec!["fd00:0:0:3::/64".parse().unwrap()];
    network.sites[0].config.peers.push(peer);
    network.reconfigure(0);
    network.run_s(1);
    network.send(3, 0, Stream::udp().every_ms(20));
    network.send(0, 3, Stream::udp().every_ms(20));
    network.run_s(3);
    network.assert_all_arrived();
}

#[test]
fn a_prefix_that_is_taken_away_is_closed_to_a_running_stream() {
    // Two of three seeds give B packet threads, which learn of the change while datagrams keep coming.
    for seed in seeds(100) {
        let mut network = Network::pair(seed);
        network.start();
        network.establish();
        network.send(A, B, Stream { every: 20, ..Stream::udp() });
        network.run(Duration::from_millis(3));
        network.sites[B].peer(0).allowed_ips = vec!["fd00:0:0:99::/64".parse().unwrap()];
        let known_to_all = network.now + 300;
        network.reconfigure(B);
        network.run(Duration::from_millis(3));
        network.stop();
        let flow = &network.flows[0];
        assert!(flow.lost() < flow.sent.len(), "some arrived before");
        let since = flow.sent.iter().filter(|sent| **sent >= known_to_all).count();
        assert_eq!(flow.lost_since(known_to_all), since, "packets of a source that is no longer allowed");
        assert_eq!(network.drops(B, DropReason::SourceNotAllowed), flow.lost() as u64);
    }
}

#[test]
fn a_changed_hopping_prefix_is_moved_to() {
    let mut network = Network::pair(7);
    network.start();
    network.establish();
    for (from, to) in [(A, B), (B, A)] {
        network.send(from, to, Stream::udp().every_ms(20));
    }
    network.run_s(5);
    // The old prefix stays reachable: make before break.
    let prefix = "2001:db8:c000::/64".parse().unwrap();
    network.also_reachable(A, prefix);
    network.sites[A].config.hop_prefix = prefix;
    network.reconfigure(A);
    network.run_s(10);
    network.assert_all_arrived();
    assert_eq!(network.status(B).hop_prefix, prefix);
    assert!(prefix.contains(network.status(A).lanes[0].local.ip()));
}

#[test]
fn settings_of_a_running_session_change() {
    let mut network = Network::pair(9);
    network.start();
    network.establish();
    network.send(A, B, Stream::udp().every_ms(20));
    network.run_s(5);
    network.sites[A].peer(0).keepalive = Some(Duration::from_secs(5));
    network.sites[A].peer(0).name = "renamed".into();
    network.reconfigure(A);
    network.run_s(10);
    network.stop();
    network.run_s(300);
    network.assert_all_arrived();
    let status = network.status(A);
    assert_eq!(status.name, "renamed");
    assert!(status.session.unwrap().age > Duration::from_secs(300), "it is kept");
}
