//! How fast frames of others cross over, beside a Linux bridge in the same place.

use lab::{Profile, Topology};

use super::scene::{THIRD, TransparentScene};

/// Times that each is measured, in turns.
const ROUNDS: usize = 5;
/// Less than this of a bridge's throughput is a fault; what is measured is printed.
const LEAST: f64 = 0.7;

#[test]
fn others_pass_as_fast_as_through_a_bridge() {
    let Some(mut scene) = TransparentScene::new(Topology::Routed, Profile::MovingTarget) else { return };
    let configurations = scene.configurations();
    let kinds: [&[&str]; 2] = [&[], &["-u", "-b", "0", "-l", "1200"]];
    let mut measured = kinds.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        scene.start_gateways_with(&configurations);
        for (kind, measured) in kinds.iter().zip(&mut measured) {
            measured[0].push(throughput(&scene, kind));
        }
        scene.stop_gateways();
        let bridge = "link add name br type bridge\nlink set dev in master br\nlink set dev ex master br\n\
                      link set dev br up\n";
        scene.node("ga").ip(bridge).expect("a bridge");
        for (kind, measured) in kinds.iter().zip(&mut measured) {
            measured[1].push(throughput(&scene, kind));
        }
        scene.node("ga").ip("link delete dev br\n").expect("no bridge");
    }
    for (name, [gateway, bridge]) in ["TCP", "UDP, 1200 bytes"].into_iter().zip(&measured) {
        let (gateway, bridge) = (best(gateway), best(bridge));
        let ratio = gateway / bridge;
        println!("{name}: {:.2} of {:.2} Gbit/s through a bridge: {ratio:.2}", gateway / 1e9, bridge / 1e9);
        assert!(ratio > LEAST, "{name}: {ratio}");
    }
}

/// From the third host inside to the one outside, bits per second that arrive.
fn throughput(scene: &TransparentScene, options: &[&str]) -> f64 {
    let server = scene.start("to", &["iperf3", "-s", "-1"], "iperf3-server");
    // The bridge's ports forward when there was something to hear.
    while !scene.run("ta", &["ping", "-c1", "-W1", THIRD[1]]).contains(" 0% packet loss") {}
    std::thread::sleep(std::time::Duration::from_millis(300));
    let words = [&["iperf3", "-J", "-t", "1", "-c", THIRD[1]], options].concat();
    let report = scene.run("ta", &words);
    server.stop(std::time::Duration::from_secs(2));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{report}"));
    let end = &report["end"];
    let arrived = end["sum_received"]["bits_per_second"].as_f64().or_else(|| {
        let sum = &end["sum"];
        Some(sum["bits_per_second"].as_f64()? * (1.0 - sum["lost_percent"].as_f64()? / 100.0))
    });
    arrived.filter(|bits| *bits > 0.0).unwrap_or_else(|| panic!("{end}"))
}

/// On a machine that others use, too, the best is what tells most.
fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
