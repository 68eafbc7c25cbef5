//! A fleet of some hundred sites, at the length that every change is tested with, and of more at full length: whatever does
//! not hold is the error of [`fleet_simulation::run`].

use std::time::Duration;

use fleet_simulation::{Options, run};
use lab::scale::scaled;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn nobody_is_locked_out_and_no_peer_is_lost_whoever_does_not_answer() {
    let hours = |count: u32| MINUTE * (60 * count);
    let options = Options {
        sites: scaled(120, 500),
        controllers: 3,
        storm: 2 * MINUTE,
        idle: scaled(20, 60) * MINUTE,
        outages: scaled(vec![hours(1)], vec![hours(1), hours(24)]),
        seed: 1,
    };
    let figures = run(&options, &|_| ()).unwrap_or_else(|broken| panic!("{}", broken.0));
    // Far above what is measured, on any machine.
    assert!(figures.idle_controllers < 1_500_000, "{figures:?}");
    assert!(figures.outages.iter().all(|outage| outage.back < 5 * MINUTE), "{figures:?}");
    assert!(figures.outages.iter().all(|outage| outage.peak < options.sites as u64 / 4 + 10), "{figures:?}");
}

#[test]
fn one_controller_does_for_a_hundred() {
    let options = Options {
        sites: 40,
        controllers: 1,
        storm: MINUTE / 2,
        idle: 10 * MINUTE,
        outages: Vec::new(),
        seed: 2,
    };
    let figures = run(&options, &|_| ()).unwrap_or_else(|broken| panic!("{}", broken.0));
    // One may just be between two questions.
    assert!((38..=40).contains(&figures.connections), "{figures:?}");
}
