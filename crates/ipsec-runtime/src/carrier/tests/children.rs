//! Stories of children: how many there are of one, which are refused, which come back.

use super::*;

fn child(local: TrafficSelector, remote: TrafficSelector) -> ChildConfig {
    ChildConfig::new(Mode::Tunnel, vec![local], vec![remote])
}

/// What is behind an end, of one protocol and one port at the second end.
fn port_of_second(end: usize, port: u16) -> TrafficSelector {
    let ports = if end == 1 { port..=port } else { 0..=u16::MAX };
    behind(end).of_protocol(protocol::UDP, ports)
}

fn children(world: &World) -> [usize; 2] {
    [0, 1].map(|end| world.ends[end].carrier.children.len())
}

fn failure(world: &World, at: usize) -> Option<String> {
    world.ends[at].carrier.report(world.now)[0].last_failure.clone()
}

/// A packet that is handed over without anything being carried.
fn hand_over(world: &mut World, at: usize) {
    let mut packet = datagram(inside(at, 1), inside(1 - at, 9), 10);
    let (now, end) = (world.now, &mut world.ends[at]);
    end.carrier.send(&virtio_net::Header::NONE, &mut packet, now, &mut end.inner);
}

#[test]
fn what_programs_send_at_the_moment_of_the_start_makes_no_second_child() {
    for starts in [[Start::Always, Start::Wait], [Start::Always; 2], [Start::Traffic; 2]] {
        let [a, b] = starts;
        let now = Instant::now();
        let configs = [config(0, a, PORTS), config(1, b, PORTS)];
        let mut number = 0;
        let ends = configs.map(|config| {
            number += 1;
            let carrier = Carrier::new(&config, PORTS, Repeatable(number as u64), now);
            End { carrier, address: outside(number - 1), inner: Inner::default(), events: Vec::new() }
        });
        let mut world = World { ends, now, lost: None };
        // Before anything, with each message, and when both are there.
        for _ in 0..20 {
            for at in [0, 1] {
                hand_over(&mut world, at);
                let end = &mut world.ends[at];
                end.carrier.handle_timeout(now, &mut end.inner);
                while let Some(event) = end.carrier.poll_event() {
                    if let Event::Reach(remote) = event {
                        let ends = Ends { local: end.address, remote: outside(1 - at) };
                        end.carrier.reach(remote, Ok(ends), now, &mut end.inner);
                    }
                }
                hand_over(&mut world, at);
            }
            world.carry(0);
            hand_over(&mut world, 1);
            world.carry(1);
        }
        world.pass(10);
        assert_eq!(children(&world), [1, 1], "{starts:?}");
    }
}

#[test]
fn a_child_that_both_ends_ask_for_at_once_is_there_once() {
    let mut configs = [config(0, Start::Always, PORTS), config(1, Start::Wait, PORTS)];
    for (end, config) in configs.iter_mut().enumerate() {
        config.remotes[0].start = Start::Traffic;
        config.remotes[0].address = Some(Place::Address(outside(1 - end)));
        let ports = [1, 2000].map(|port| child(port_of_second(end, port), port_of_second(1 - end, port)));
        config.ike.peers[0].children = ports.to_vec();
    }
    let mut world = World::of(configs, [PORTS; 2]);
    // The first child comes along with the IKE SA.
    let mut first = datagram(inside(0, 1), inside(1, 9), 10);
    // Of the first child: to port 1.
    first[42..44].copy_from_slice(&[0, 1]);
    world.send(0, first);
    world.pass(1);
    assert_eq!(children(&world), [1, 1]);
    let mut back = datagram(inside(1, 9), inside(0, 1), 10);
    // Back to where it came from.
    back[40..44].copy_from_slice(&[7, 208, 3, 232]);
    hand_over(&mut world, 0);
    let (now, end) = (world.now, &mut world.ends[1]);
    end.carrier.send(&virtio_net::Header::NONE, &mut back, now, &mut end.inner);
    world.run();
    world.pass(10);
    assert_eq!(children(&world), [2, 2]);
    let numbers =
        world.ends[0].carrier.report(world.now)[0].children.iter().map(|c| c.number).collect::<Vec<_>>();
    assert_eq!(numbers, [1, 2]);
    world.arrived(1);
    let packet = datagram(inside(0, 1), inside(1, 9), 10);
    world.send(0, packet.clone());
    assert_eq!(world.arrived(1), [packet]);
}

#[test]
fn what_a_narrowed_child_is_not_for_asks_for_no_other() {
    let mut theirs = config(1, Start::Wait, PORTS);
    theirs.ike.peers[0].children = vec![child(port_of_second(1, 443), port_of_second(0, 443))];
    let mut world = World::of([config(0, Start::Always, PORTS), theirs], [PORTS; 2]);
    for _ in 0..100 {
        world.send(0, datagram(inside(0, 1), inside(1, 9), 10));
        world.pass(10);
    }
    assert_eq!(children(&world), [1, 1]);
    assert!(world.arrived(1).is_empty());
    let reported = &world.ends[0].carrier.report(world.now)[0];
    let only = &reported.children[0].only[..];
    let [only] = only else { panic!("{only:?}") };
    assert_eq!(
        (&*only.protocol, &only.local_ports, only.remote_ports.as_deref()),
        ("udp", &None, Some("443"))
    );
    assert_eq!(reported.last_failure, None);
}

#[test]
fn each_of_two_children_with_the_same_networks_is_asked_for_by_its_ports() {
    let mut world = World::of(
        [0, 1].map(|end| {
            let mut config = config(end, if end == 0 { Start::Traffic } else { Start::Wait }, PORTS);
            let ports =
                [443, 2000].map(|port| child(port_of_second(end, port), port_of_second(1 - end, port)));
            config.ike.peers[0].children = ports.to_vec();
            config
        }),
        [PORTS; 2],
    );
    let packet = datagram(inside(0, 1), inside(1, 9), 10);
    for _ in 0..3 {
        world.send(0, packet.clone());
        world.pass(1);
    }
    assert_eq!(world.arrived(1).last(), Some(&packet));
    assert_eq!(children(&world), [2, 2]);
}

const REFUSED: &str =
    "child 1 was refused: TS_UNACCEPTABLE (compare the networks, protocols and ports of both ends)";

#[test]
fn where_both_ends_begin_each_is_told_that_the_other_one_refuses_its_child() {
    let mut theirs = config(1, Start::Always, PORTS);
    theirs.remotes[0].address = Some(Place::Address(outside(0)));
    theirs.ike.peers[0].children = vec![child(behind(5), behind(6))];
    let mut world = World::of([config(0, Start::Always, PORTS), theirs], [PORTS; 2]);
    assert!(world.is_up(0));
    world.pass(60);
    let refused = Some(REFUSED.to_owned());
    assert_eq!((failure(&world, 0), failure(&world, 1)), (refused.clone(), refused));
}

#[test]
fn a_refusal_is_told_until_the_child_is_there() {
    let mut theirs = config(1, Start::Wait, PORTS);
    theirs.ike.peers[0].children = vec![child(behind(5), behind(6))];
    let mut world = World::of([config(0, Start::Always, PORTS), theirs], [PORTS; 2]);
    let refused = Some(REFUSED.to_owned());
    assert!(world.is_up(0));
    assert_eq!((failure(&world, 0), failure(&world, 1)), (refused.clone(), None));
    world.pass(60);
    assert_eq!(failure(&world, 0), refused);
    reload(&mut world, 1, &config(1, Start::Wait, PORTS));
    world.send(0, datagram(inside(0, 1), inside(1, 9), 10));
    assert_eq!((children(&world), failure(&world, 0)), ([1, 1], None));
}

#[test]
fn children_that_a_reload_ends_are_begun_again_whichever_end_it_is_at() {
    let of = |end: usize, start: Start, slower: u64| {
        let mut config = config(end, start, PORTS);
        config.ike.peers[0].children[0].rekey_after += Duration::from_secs(slower);
        config
    };
    // The end that has begun notices that one is gone; the one that has not asks by itself.
    for starts in
        [[Start::Always, Start::Wait], [Start::Always, Start::Always], [Start::Traffic, Start::Always]]
    {
        for at in [0, 1] {
            let mut world = World::of([0, 1].map(|end| of(end, starts[end], 0)), [PORTS; 2]);
            world.send(0, datagram(inside(0, 1), inside(1, 9), 10));
            world.pass(5);
            let before = spis(&world, at);
            assert_eq!(children(&world), [1, 1]);
            reload(&mut world, at, &of(at, starts[at], 1));
            world.pass(3);
            assert_eq!(children(&world), [1, 1], "{starts:?}, at {at}");
            let after = spis(&world, at);
            assert_eq!(after[0].0, before[0].0, "the IKE SA stays");
            assert_ne!(after[0].1, before[0].1);
        }
    }
}

#[test]
fn a_child_that_the_other_end_keeps_ending_comes_back_ever_more_slowly() {
    let mut world = World::new(Start::Always, [PORTS; 2]);
    let mut ended = 0;
    for _ in 0..600 {
        let end = &mut world.ends[1];
        if let Some((spi, child)) = end.carrier.children.iter().find(|(_, child)| !child.is_over) {
            end.carrier.ike.delete_child(world.now, child.ike, ike::numbers::Spi(*spi)).unwrap();
            ended += 1;
        }
        world.pass(1);
    }
    assert!((10..20).contains(&ended), "{ended}");
    world.pass(60);
    assert_eq!(children(&world), [1, 1]);
}

#[test]
fn a_status_names_identities_and_algorithms_as_the_configuration_does() {
    let mut configs = [config(0, Start::Always, PORTS), config(1, Start::Wait, PORTS)];
    let ann = Identity::Email("ann@example.org".to_owned());
    configs[0].ike.peers[0].local = ann.clone();
    configs[1].ike.peers[0].remote = Some(ann);
    let world = World::of(configs, [PORTS; 2]);
    let report = &world.ends[1].carrier.report(world.now)[0];
    assert_eq!(report.ike[0].identity, "ann@example.org");
    assert_eq!(report.children[0].algorithm, "aes256gcm16");
    assert!(report.children[0].only.is_empty());
}
