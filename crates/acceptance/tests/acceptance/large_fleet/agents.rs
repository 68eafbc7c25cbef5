//! Hundreds of agents and gateways, three controllers, three members of etcd: what each uses, and how fast a revocation is
//! everywhere, also while one member and one controller are gone.

use std::time::{Duration, Instant};

use lab::accounting::{anonymous, cpu_seconds, resident};
use lab::namespaces::check_neighbors;
use lab::scale::scaled;

use super::controllers::{Controlled, HUBS};
use super::latency;
use super::sites::Pings;

#[test]
fn revocations_reach_all_of_hundreds_of_agents_while_controllers_and_members_are_killed() {
    let count =
        std::env::var("SIDESTEP_SITES").ok().map(|text| text.parse().expect("SIDESTEP_SITES: a number"));
    let count: usize = count.unwrap_or(scaled(9, 200));
    if let Err(why) = check_neighbors(count as u64) {
        return crate::skip(&why.to_string());
    }
    let begin = Instant::now();
    let Some(mut fleet) = Controlled::new(count, true) else { return };
    let all: Vec<usize> = (1..=count).collect();
    fleet.wait_until_all_reach(&all, &[1, 2, 3]);
    eprintln!("{count} sites reach all hubs {:.0} s after nothing", begin.elapsed().as_secs_f64());
    tell_use(&mut fleet, scaled(Duration::from_secs(1), Duration::from_secs(30)));

    let kept =
        |site| std::fs::metadata(fleet.folder_of_agent(site).join("fleet.json")).expect("what is kept").len();
    eprintln!("what is kept of the fleet: {} octets at a hub, {} at a spoke", kept(1), kept(count));

    // Where each processor has many gateways, all of which read their peers anew at once, packets are lost for want of those.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let pings: Vec<Pings> = [(4, 5), (5, 1)]
        .into_iter()
        .filter(|_| count <= 10 * processors)
        .map(|(from, to)| fleet.ping(from, to, 10, Duration::from_secs(8)))
        .collect();
    let mut left = all;
    let mut revoke = |fleet: &Controlled, what: &str| {
        let site = left.pop().expect("a site");
        for latencies in latency::revoke(fleet, site, &left) {
            eprintln!("{what}: {latencies}");
        }
    };
    revoke(&fleet, "all controllers and members");
    // The member that leads, and a controller that a third of the agents ask.
    let leader = fleet.cluster.leader().expect("a leader");
    fleet.cluster.kill(leader);
    fleet.kill(HUBS, "controller");
    revoke(&fleet, "right after a controller and the leading member were killed");
    revoke(&fleet, "with two controllers and two members");
    fleet.cluster.run(leader).expect("a member");
    let store = fleet.store();
    fleet.start_controller(HUBS, &store);
    fleet.cluster.wait_until_well().expect("a cluster");
    revoke(&fleet, "with all of them again");
    for pings in pings {
        let (sent, lost) = fleet.count(pings);
        assert!(sent > 0 && lost == 0, "{lost} of {sent} lost");
    }
    tell_use(&mut fleet, scaled(Duration::from_secs(1), Duration::from_secs(30)));
}

/// Tells what processes use while nothing changes.
fn tell_use(fleet: &mut Controlled, length: Duration) {
    let kinds = [
        ("controller", 1..=HUBS),
        ("agent", 1..=HUBS),
        ("agent", HUBS + 1..=fleet.count),
        ("gateway", 1..=HUBS),
        ("gateway", HUBS + 1..=fleet.count),
    ];
    let processes = kinds.map(|(kind, machines)| {
        let ids = machines
            .clone()
            .filter_map(|machine| Some(fleet.process(machine, kind)?.id()))
            .collect::<Vec<u32>>();
        let whose = if *machines.start() == 1 { "hubs" } else { "spokes" };
        (format!("{kind} at {whose}"), ids)
    });
    let used = |ids: &[u32]| -> f64 { ids.iter().filter_map(|id| cpu_seconds(*id).ok()).sum() };
    let before = processes.each_ref().map(|(_, ids)| used(ids));
    std::thread::sleep(length);
    for ((name, ids), before) in processes.iter().zip(before) {
        let cpu = (used(ids) - before) / length.as_secs_f64() / ids.len() as f64 * 1000.0;
        let mean = |bytes: fn(u32) -> Result<u64, lab::Error>| {
            let sum: u64 = ids.iter().filter_map(|id| bytes(*id).ok()).sum();
            sum as f64 / ids.len() as f64 / f64::from(1 << 20)
        };
        let (memory, own) = (mean(resident), mean(anonymous));
        eprintln!(
            "{name}, {}: each {memory:.1} MiB, {own:.1} of it its own; {cpu:.2} ms of a processor a second",
            ids.len()
        );
    }
}
