//! Paths that carry less than their ends: whether Packet Too Big comes back or not, nothing stalls.

use std::time::Duration;

use lab::Site;
use lab::scale::scaled;
use lab::traffic::{UdpOptions, UdpStream};

use super::scene;

#[test]
fn nothing_stalls_whatever_the_path_carries() {
    for mtu in [1280, 1400, 1500] {
        for filtered in [false, true] {
            let Some(builder) = scene::lab() else { return };
            let lab = scene::up(builder.middle_mtu(mtu).filter_too_big(filtered));
            for from in [Site::A, Site::B] {
                let tcp = scene::tcp(&lab, from, scaled(1, 2));
                eprintln!("{mtu}, filtered {filtered}, from {from:?}: {tcp:?}");
                assert!(tcp.bits_per_second > 4e6, "{mtu}, filtered {filtered}, from {from:?}: {tcp:?}");
            }
            let options = UdpOptions {
                size: 1452,
                rate: 200,
                duration: Duration::from_secs(scaled(2, 4)),
                ..UdpOptions::default()
            };
            let udp = scene::finish(UdpStream::start(&lab, options).expect("a stream"));
            // The first may be lost to finding out; after that all arrive.
            eprintln!("{mtu}, filtered {filtered}: {} of {} lost", udp.lost, udp.sent.sent);
            assert!(udp.lost <= 20, "{mtu}, filtered {filtered}: {} lost: {:?}", udp.lost, udp.received.gaps);
        }
    }
}
