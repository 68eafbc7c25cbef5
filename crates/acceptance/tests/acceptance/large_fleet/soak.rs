//! All controllers and the store are gone, for as long as `SIDESTEP_SOAK` says in seconds (`make soak`: an hour): nothing is lost,
//! nobody is locked out, and who is met in another way is found.

use std::time::{Duration, Instant};

use lab::machines::outside;
use lab::scale::scaled;

use super::controllers::{Controlled, HUBS};
use super::latency;
use super::sites::wait_until;

/// What each site does meanwhile, besides the hubs.
const QUIET: [(usize, usize); 2] = [(4, 5), (6, 7)];
const RESTARTS: usize = 8;
const RENUMBERS: usize = 9;
const IS_REVOKED: usize = 10;
/// Where the one that renumbers hops then.
const RENUMBERED: &str = "2001:db8:b:9::/64";
/// Echo requests a second.
const RATE: u32 = 20;

fn length() -> Duration {
    let named = std::env::var("SIDESTEP_SOAK").ok().map(|text| text.parse().expect("SIDESTEP_SOAK: seconds"));
    Duration::from_secs(named.unwrap_or(scaled(12, 240)))
}

#[test]
fn without_controllers_and_store_nothing_is_lost_and_nobody_is_locked_out() {
    let Some(mut fleet) = Controlled::new(IS_REVOKED, false) else { return };
    let all: Vec<usize> = (1..=IS_REVOKED).collect();
    fleet.wait_until_all_reach(&all, &all);
    let (length, begin) = (length(), Instant::now());
    let store = fleet.store();
    let pings = QUIET.map(|(from, to)| fleet.ping(from, to, RATE, length));
    (1..=HUBS).for_each(|hub| fleet.kill(hub, "controller"));
    (0..HUBS).for_each(|member| fleet.cluster.kill(member));
    let until = |quarter: u32| {
        std::thread::sleep((begin + length * quarter / 4).saturating_duration_since(Instant::now()));
    };

    // A machine that boots anew has what its agent and its gateway have kept, and nothing else.
    until(1);
    fleet.kill(RESTARTS, "agent");
    fleet.kill(RESTARTS, "gateway");
    fleet.start(RESTARTS, "gateway", &["up", "/etc/sidestep/mt6d0.toml"]);
    fleet.start(RESTARTS, "agent", &["agent", "mt6d0"]);
    fleet.wait_until_all_reach(&[RESTARTS, 4], &[RESTARTS, 4, 5]);

    // A provider renumbers: the old prefix leads nowhere from now on.
    until(2);
    let old = lab::machines::hop_prefix(RENUMBERS);
    let router = fleet.machines.router();
    router
        .ip(&format!("route del {old}\nroute add {RENUMBERED} via {}\n", outside(RENUMBERS)))
        .expect("routes");
    let file = fleet.configuration(RENUMBERS);
    let text = std::fs::read_to_string(&file).expect("a configuration").replace(&old, RENUMBERED);
    std::fs::write(&file, text).expect("a configuration");
    fleet.run(RENUMBERS, &["reload"]).expect("a reload");
    let renumbered = Instant::now();
    for hub in 1..=HUBS {
        wait_until("a hub has heard it from its peer", || {
            std::fs::read_to_string(fleet.peers(hub)).is_ok_and(|text| text.contains(RENUMBERED))
        });
    }
    let heard = renumbered.elapsed();
    // Now its gateway knows nobody, and nobody has a session with it.
    until(3);
    fleet.kill(RENUMBERS, "gateway");
    fleet.start(RENUMBERS, "gateway", &["up", "/etc/sidestep/mt6d0.toml"]);
    fleet.wait_until_all_reach(&[4, RENUMBERS], &[4, RENUMBERS, RESTARTS]);

    for pings in pings {
        let (sent, lost) = fleet.count(pings);
        eprintln!(
            "{sent} echo requests in {length:?} without controllers and store, {lost} lost; hubs knew the new prefix {:.1} s after the reload",
            heard.as_secs_f64()
        );
        assert!(sent > 0 && lost == 0, "{lost} of {sent} lost");
    }
    assert!(begin.elapsed() >= length);
    fleet.wait_until_all_reach(&all, &all);

    // They come back, and what they say arrives.
    (0..HUBS).for_each(|member| fleet.cluster.run(member).expect("a member"));
    fleet.cluster.wait_until_well().expect("a cluster");
    (1..=HUBS).for_each(|hub| fleet.start_controller(hub, &store));
    let others: Vec<usize> = (1..IS_REVOKED).collect();
    for latencies in latency::revoke(&fleet, IS_REVOKED, &others) {
        eprintln!("after the outage: {latencies}");
    }
    wait_until("controllers know where the renumbered one hops", || {
        fleet.administer(&["sites"]).contains(RENUMBERED)
    });
}
