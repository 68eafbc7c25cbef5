//! A gateway that is killed at any moment of its life, under traffic.

use std::net::Ipv6Addr;
use std::time::Duration;

use lab::capture::{Packet, Recording};
use lab::patience::wait_until;
use lab::scale::scaled;
use lab::{Lab, Node, Site};
use nix::sys::signal::Signal;

use super::scene;

/// What a gateway is doing when it is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Start,
    Run,
    Reload,
    Stop,
}

/// What is in a gateway's kernel, without what differs from moment to moment.
fn kernel(lab: &Lab, site: Site) -> Vec<String> {
    let words =
        "ip -6 rule; ip rule; ip -6 route show table all; ip -4 route show table all; nft -s list ruleset";
    let all = scene::run(lab, site.gateway(), &["sh", "-c", words]);
    let lasting =
        |line: &&str| !line.contains("fe80:") && !line.contains("multicast") && !line.contains("cache");
    let mut lines: Vec<String> = all.lines().filter(lasting).map(without_mtu).collect();
    lines.sort();
    lines
}

/// The path's MTU comes when it is measured.
fn without_mtu(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mtu = words.iter().position(|word| *word == "mtu").unwrap_or(words.len());
    [&words[..mtu], words.get(mtu + 2..).unwrap_or_default()].concat().join(" ")
}

/// Up to so many milliseconds.
fn pause(most: u64) {
    std::thread::sleep(Duration::from_millis(fastrand::u64(..most)));
}

fn kill_at(lab: &mut Lab, site: Site, moment: Moment) {
    let gateway = lab.gateway(site);
    match moment {
        Moment::Start => {
            gateway.kill();
            gateway.launch().expect("a process");
            pause(200);
        }
        Moment::Run => pause(1_000),
        Moment::Reload => {
            gateway.signal(Signal::SIGHUP);
            pause(50);
        }
        Moment::Stop => {
            gateway.signal(Signal::SIGTERM);
            pause(50);
        }
    }
    gateway.kill();
}

#[test]
fn whenever_it_is_killed_no_inner_packet_leaves_in_clear() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder.whole_packets(true));
    let whole = [Site::A, Site::B].map(|site| kernel(&lab, site));
    let uplinks = ["a", "b"].map(|link| Recording::start(&lab, Node::Router, link).expect("a recording"));
    let (rounds, length) = (scaled(4, 100), scaled(20, 400));
    let streams = [Site::A, Site::B].map(|from| scene::start_stream(&lab, from, length));
    for round in 0..rounds {
        let site = if round % 2 == 0 { Site::A } else { Site::B };
        let moment = [Moment::Start, Moment::Run, Moment::Reload, Moment::Stop][(round / 2 + round) % 4];
        kill_at(&mut lab, site, moment);
        pause(300);
        lab.gateway(site).start().expect("a start after a kill");
        let as_before = || kernel(&lab, site) == whole[site as usize];
        wait_until(&format!("the kernel as it was, after a kill at {moment:?}"), as_before);
    }
    lab.wait_connected(Duration::from_secs(30)).expect("it works again");
    let arrived = streams.map(|stream| scene::finish(stream).received.distinct);
    eprintln!("{rounds} kills, {arrived:?} datagrams arrived");
    assert!(arrived.into_iter().all(|arrived| arrived > 0), "nothing was on its way");
    // 2001:db8:a::/64 and 2001:db8:b::/64.
    let inner = |address: Ipv6Addr| matches!(address.segments()[..4], [0x2001, 0xdb8, 0xa | 0xb, 0]);
    for uplink in uplinks {
        let packets = uplink.finish().expect("packets");
        let in_clear = |packet: &&Packet| inner(packet.source) || inner(packet.destination);
        assert_eq!(packets.iter().filter(in_clear).collect::<Vec<_>>(), Vec::<&Packet>::new());
        assert!(packets.iter().filter(|packet| packet.is_udp()).count() > 1_000, "the tunnel was not there");
    }
}
