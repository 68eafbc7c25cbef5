//! Any story at all: what must hold whatever the path and the settings are.

use std::time::Duration;

use proptest::prelude::*;
use sidestep_mt6d::PeerState;
use sidestep_mt6d::config::Padding;

use crate::network::{A, B, Firewall, Network, Path, Stream, full_scale};

#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    rotation: u64,
    lanes: [u8; 2],
    padding: Padding,
    keepalive: Option<u64>,
    aes: bool,
    skew: i64,
    drift: [i64; 2],
    delay: u64,
    jitter: u64,
    loss: f64,
    duplicate: f64,
    mtu: usize,
    opening: u64,
    open_fails: f64,
    length: usize,
    ipv4: bool,
    rewrite: bool,
}

prop_compose! {
    fn scenario()(
        seed: u64,
        rotation in prop::sample::select(vec![1, 2, 3, 10, 30, 120]),
        lanes in [1u8..=16, 1u8..=16],
        padding in prop::sample::select(vec![Padding::None, Padding::Buckets, Padding::Full]),
        keepalive in prop::option::of(5u64..60),
        aes: bool,
        skew in -3_700_000i64..=3_700_000,
        drift in [-200i64..=200, -200i64..=200],
        delay in prop::sample::select(vec![100u64, 5_000, 40_000, 150_000, 300_000]),
        jitter in prop::sample::select(vec![0u64, 500, 5_000, 50_000]),
        loss in prop::sample::select(vec![0.0, 0.0, 0.0, 0.01, 0.05, 0.2]),
        duplicate in prop::sample::select(vec![0.0, 0.05]),
        mtu in 1280usize..=1500,
        opening in prop::sample::select(vec![100u64, 10_000, 300_000]),
        open_fails in prop::sample::select(vec![0.0, 0.0, 0.1]),
        length in 80usize..=1212,
        ipv4: bool,
        rewrite: bool,
    ) -> Scenario {
        Scenario {
            seed, rotation, lanes, padding, keepalive, aes, skew, drift, delay, jitter, loss, duplicate, mtu,
            opening, open_fails, length, ipv4, rewrite,
        }
    }
}

fn network(scenario: &Scenario) -> Network {
    let mut network = Network::pair(scenario.seed);
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(scenario.rotation);
        peer.padding = scenario.padding;
        peer.keepalive = scenario.keepalive.map(Duration::from_secs);
        peer.rewrite = scenario.rewrite;
    });
    for site in [A, B] {
        network.sites[site].peer(0).lanes = Some(scenario.lanes[site]);
        network.sites[site].clock.drift = scenario.drift[site];
        network.sites[site].opening = (50, scenario.opening);
    }
    network.sites[B].config.hardware_aes = scenario.aes;
    network.sites[B].clock.wall = scenario.skew;
    network.path.delay = scenario.delay;
    network.path.jitter = scenario.jitter;
    network.path.duplicate = scenario.duplicate;
    network.path.loss = scenario.loss;
    network.path.mtu = scenario.mtu;
    network
}

fn plays_out(scenario: &Scenario) {
    let mut network = network(scenario);
    network.start();
    network.establish();
    // Until the path MTU is known, and what both began at once is sorted out.
    network.run_s(15);
    for site in [A, B] {
        network.sites[site].open_fails = scenario.open_fails;
    }
    for (from, to) in [(A, B), (B, A)] {
        let stream = Stream::udp().of(scenario.length).every_ms(35).flows(20);
        network.send(from, to, if scenario.ipv4 { stream.over_ipv4() } else { stream });
        network.send(from, to, Stream::tcp().of(scenario.length).every_ms(300).batches(6));
    }
    network.run_s(160);
    network.stop();
    network.assert_nothing_wrong();
    for flow in &network.flows {
        let (lost, sent) = (flow.lost() as f64, flow.sent.len() as f64);
        // Each packet may be two datagrams, and some meet a key or endpoint that a lost message should have told of.
        let expected = 2.0 * scenario.loss * sent;
        assert!(
            lost <= expected * 1.3 + 6.0 * expected.sqrt(),
            "stream {}: {lost} of {sent} lost",
            flow.index
        );
    }
    if scenario.loss == 0.0 {
        assert!(network.status(A).session.expect("there is one").age > Duration::from_secs(160));
    }

    // All is quiet, and as it was before.
    if scenario.keepalive.is_none() {
        network.run_s(200);
        let sent = network.observer.count;
        network.run_s(100);
        assert_eq!(network.observer.count, sent);
        for site in [A, B] {
            assert_eq!(network.status(site).state, PeerState::Idle);
            let endpoints = network.sites[site].node().endpoints();
            assert!(endpoints <= 10, "{endpoints} endpoints are left");
        }
    }
}

/// Something that happens to a pair.
#[derive(Debug, Clone, Copy)]
enum Event {
    Restart {
        site: usize,
        remembers: bool,
        after: u64,
    },
    Sleep {
        site: usize,
        seconds: u64,
    },
    SetClock {
        site: usize,
        by: i64,
    },
    Cut {
        seconds: u64,
        from: usize,
    },
    CutBoth {
        seconds: u64,
    },
    /// Of the first site.
    Move,
    Mtu {
        mtu: usize,
    },
    Quiet {
        seconds: u64,
    },
    Loss {
        loss: f64,
    },
    Firewall {
        site: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let site = 0usize..2;
    prop_oneof![
        (site.clone(), any::<bool>(), 0u64..40).prop_map(|(site, remembers, after)| Event::Restart {
            site,
            remembers,
            after
        }),
        (site.clone(), prop::sample::select(vec![1u64, 5, 20, 100, 400]))
            .prop_map(|(site, seconds)| Event::Sleep { site, seconds }),
        (site.clone(), -4_000_000i64..4_000_000).prop_map(|(site, by)| Event::SetClock { site, by }),
        (site.clone(), prop::sample::select(vec![2u64, 12, 30, 120]))
            .prop_map(|(from, seconds)| Event::Cut { from, seconds }),
        prop::sample::select(vec![2u64, 12, 30, 120, 400]).prop_map(|seconds| Event::CutBoth { seconds }),
        Just(Event::Move),
        (1280usize..=1500).prop_map(|mtu| Event::Mtu { mtu }),
        prop::sample::select(vec![10u64, 100, 200, 300]).prop_map(|seconds| Event::Quiet { seconds }),
        prop::sample::select(vec![0.0, 0.05, 0.3]).prop_map(|loss| Event::Loss { loss }),
        site.prop_map(|site| Event::Firewall { site }),
    ]
}

fn happens(network: &mut Network, event: Event, prefixes: &mut u16) {
    match event {
        Event::Restart { site, remembers, after } => {
            network.kill(site);
            if !remembers && *prefixes == 0 {
                network.sites[site].memory.clear();
            }
            network.run_s(after);
            network.start();
        }
        Event::Sleep { site, seconds } => {
            network.suspend(site);
            network.run_s(seconds);
            network.resume(site);
        }
        // Two firewalls open only to those who agree on the hour.
        Event::SetClock { .. } if network.sites.iter().any(|s| s.firewall.is_some()) => {}
        Event::SetClock { site, by } => {
            // They stay within an hour of each other.
            let wall = &mut network.sites[site].clock.wall;
            *wall = (*wall + by).clamp(-1_750_000, 1_750_000);
        }
        Event::Cut { seconds, from } => {
            network.paths.insert((from, 1 - from), Path { cut: true, ..network.path.clone() });
            network.run_s(seconds);
            network.paths.clear();
        }
        Event::CutBoth { seconds } => {
            network.path.cut = true;
            network.run_s(seconds);
            network.path.cut = false;
        }
        // Who moves while the other's firewall is closed, or has forgotten where the other went, is lost for good.
        Event::Move if network.sites.iter().any(|s| s.firewall.is_some()) => {}
        Event::Move => {
            *prefixes += 1;
            network.move_to(A, format!("2001:db8:c{:03x}::/64", *prefixes).parse().unwrap());
        }
        Event::Mtu { mtu } => network.path.mtu = mtu,
        Event::Quiet { seconds } => {
            network.flows.iter_mut().for_each(|flow| flow.paused = true);
            network.run_s(seconds);
            network.flows.iter_mut().for_each(|flow| flow.paused = false);
        }
        Event::Loss { loss } => network.path.loss = loss,
        Event::Firewall { .. } if *prefixes > 0 || network.sites.iter().any(|s| s.clock.wall != 0) => {}
        Event::Firewall { site } => network.sites[site].firewall = Some(Firewall::default()),
    }
}

/// One thing after the other goes wrong; then all is well again, and the two find each other.
fn recovers(
    seed: u64,
    rotation: u64,
    lanes: u8,
    delay: u64,
    rewrite: bool,
    streams: [bool; 2],
    events: &[(Event, u64)],
) {
    let mut network = Network::pair(seed);
    // Behind a firewall nobody is reached who has nothing to say.
    let walls = events.iter().any(|(event, _)| matches!(event, Event::Firewall { .. }));
    network.configure(|peer| {
        peer.rotation = Duration::from_secs(rotation);
        peer.lanes = Some(lanes);
        peer.rewrite = rewrite;
        peer.keepalive = walls.then_some(Duration::from_secs(20));
    });
    network.path.delay = delay;
    network.path.jitter = delay / 3;
    network.start();
    for (from, to) in [(A, B), (B, A)] {
        if streams[from] || !streams[1 - from] {
            network.send(from, to, Stream::udp().every_ms(100).flows(3));
        }
    }
    let mut prefixes = 0;
    for (event, then) in events {
        happens(&mut network, *event, &mut prefixes);
        network.run(Duration::from_millis(*then));
    }
    network.path.loss = 0.0;
    network.run_s(420);
    let since = network.now;
    network.run_s(40);
    network.stop();
    network.assert_nothing_wrong();
    for flow in &network.flows {
        assert_eq!(flow.lost_since(since), 0, "stream {} has not recovered", flow.index);
    }
    // Of the rendezvous, and of lanes, which are open for four seconds more than they live: a Poisson number.
    let open = f64::from(lanes + 1) * (rotation + 4) as f64 / rotation as f64;
    let most = 10.0 + open + 5.0 * open.sqrt();
    for site in [A, B] {
        let endpoints = network.sites[site].node().endpoints();
        assert!(endpoints as f64 <= most, "{endpoints} endpoints, at most {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if full_scale() { 24 } else { 8 }) })]

    #[test]
    fn any_story_ends_well(scenario in scenario()) {
        plays_out(&scenario);
    }

    #[test]
    fn whatever_happens_the_two_find_each_other_again(
        seed: u64,
        rotation in prop::sample::select(vec![1u64, 5, 60]),
        lanes in prop::sample::select(vec![1u8, 3]),
        delay in prop::sample::select(vec![300u64, 10_000, 150_000, 300_000]),
        rewrite: bool,
        streams: [bool; 2],
        events in proptest::collection::vec((event(), 0u64..30_000), 1..10),
    ) {
        recovers(seed, rotation, lanes, delay, rewrite, streams, &events);
    }
}
