//! Every way to do without what a kernel or device may not offer.

use lab::Site;
use lab::scale::scaled;

use super::scene;

#[test]
fn traffic_flows_without_offloads() {
    for without in [
        "udp-segment",
        "udp-gro",
        "tun-offload",
        "tun-udp-offload,tun-queues,sk-lookup",
        "udp-segment,udp-gro,tun-offload,tun-queues,sk-lookup",
    ] {
        let Some(builder) = scene::lab() else { return };
        let mut lab = builder.build().expect("a lab");
        for site in [Site::A, Site::B] {
            lab.gateway(site).set_arguments(&["--test-without", without]);
        }
        lab.start().expect("a tunnel");
        for from in [Site::A, Site::B] {
            let tcp = scene::tcp(&lab, from, scaled(1, 2));
            eprintln!("without {without}, from {from:?}: {tcp:?}");
            assert!(tcp.bits_per_second > 4e6, "without {without}: {tcp:?}");
        }
        let report = scene::finish(scene::start_stream(&lab, Site::A, 3));
        scene::assert_complete(&report);
    }
}
