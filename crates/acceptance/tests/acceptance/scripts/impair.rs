//! `impair.lua`: the network that it makes is as bad as was asked for, beside that of the lab's relay; and programs work
//! across it.

use std::fs;
use std::time::Duration;

use lab::Impairer;
use lab::scale::emulated;
use lab::traffic::{UdpOptions, UdpReport, UdpStream};
use lab::{Lab, Site};

use super::scene::{SERVER, SERVER_IPV4, ScriptScene, example};

/// Datagrams per second.
fn rate() -> u32 {
    if emulated() { 200 } else { 1000 }
}

/// A stream of datagrams from A to B.
fn stream(impairer: Impairer, impairment: &str) -> Option<UdpReport> {
    let impairment = impairment.parse().expect("an impairment");
    let builder = Lab::builder(crate::program(&[])?).tunnel(false).impairment(impairment);
    let mut lab = builder.impairer(impairer).build().expect("a lab");
    lab.start().expect("hosts that reach each other");
    let options =
        UdpOptions { rate: rate(), duration: Duration::from_secs(5), each: true, ..UdpOptions::default() };
    let stream = UdpStream::start(&lab, UdpOptions { from: Site::A, ..options }).expect("a stream");
    Some(stream.finish(Duration::from_secs(1)).expect("a report"))
}

/// The part of the datagrams that was lost; their latencies in order of size.
fn sorted(report: &UdpReport) -> (f64, Vec<f64>) {
    let mut latencies: Vec<f64> = report.received.each_ms.iter().map(|ms| f64::from(*ms)).collect();
    latencies.sort_by(f64::total_cmp);
    (report.lost as f64 / report.sent.sent as f64, latencies)
}

/// How far the middle half of the values lies apart.
fn spread(sorted: &[f64]) -> f64 {
    sorted[sorted.len() * 3 / 4] - sorted[sorted.len() / 4]
}

#[test]
fn the_script_impairs_as_the_relay_does() {
    let asked = "delay=30ms,jitter=40ms,loss=10%";
    let Some(report) = stream(Impairer::Relay, asked) else { return };
    let (relay_loss, relay) = sorted(&report);
    let report = stream(Impairer::Script, asked).expect("a report");
    let (loss, latencies) = sorted(&report);
    // A clock of whole milliseconds, which may tick just behind a packet.
    assert!(latencies[0] >= 29.0, "{} ms is less than the delay", latencies[0]);
    assert!(relay[0] >= 30.0);
    for loss in [relay_loss, loss] {
        assert!((0.07..0.13).contains(&loss), "{loss} is not 10 %");
    }
    // Evenly from 30 to 70 ms: half of them within 20. The relay keeps the order, and so gives later times only.
    let all = latencies.len();
    eprintln!(
        "script: {loss:.3} lost, {:.1} to {:.1} ms, median {:.1}, middle half {:.1} ms apart, {} late of {all}; relay: \
         {relay_loss:.3} lost, {:.1} to {:.1} ms, median {:.1}",
        latencies[0],
        latencies[all - 1],
        latencies[all / 2],
        spread(&latencies),
        report.received.reordered,
        relay[0],
        relay[relay.len() - 1],
        relay[relay.len() / 2],
    );
    // Neither half as much nor twice, whatever else the machine does.
    assert!((10.0..40.0).contains(&spread(&latencies)), "{}", spread(&latencies));
    assert!(report.received.reordered > 0, "its jitter reorders");
}

#[test]
fn the_scripts_reordered_packets_overtake_the_others() {
    let asked = "delay=30ms,reorder=20%";
    let Some(report) = stream(Impairer::Script, asked) else { return };
    assert_eq!(report.lost, 0);
    // Four fifths wait; late are those behind whom one at least of the others went on at once meanwhile.
    let behind = 0.03 * f64::from(rate());
    let expected = 0.8 * (1.0 - 0.8_f64.powf(behind));
    let late = report.received.reordered as f64 / report.sent.sent as f64;
    assert!((expected - 0.05..0.85).contains(&late), "{late} of all are late, not {expected}");
}

/// GSO packets of TCP wait, too, and go on in parts that fit.
#[test]
fn connections_work_across_it() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let text = format!("{}\nDELAY, JITTER, LOSS, REORDER = 20, 0, 0, 0\n", example("impair.lua"));
    let file = scene.script("impair.lua", &text);
    let sent = scene.folder.path().join("sent");
    let content: Vec<u8> = (0..500_000u32).flat_map(u32::to_be_bytes).collect();
    fs::write(&sent, &content).expect("a file");
    let serve = format!("SYSTEM:cat {}", sent.display());
    let listener = ["socat", "-u", &serve, "TCP6-LISTEN:80,reuseaddr"];
    scene.load(&file, "--hook forward", &[]);
    for server in [&format!("TCP6:[{SERVER}]"), &format!("TCP4:{SERVER_IPV4}")] {
        let process = scene.start(&scene.server, &listener, "server", || scene.listens("tcp", 80));
        let got = scene.folder.path().join("got");
        let create = format!("CREATE:{}", got.display());
        let (fetched, said) = scene.run(&scene.client, &["socat", "-u", &format!("{server}:80"), &create]);
        assert!(fetched, "{said}");
        let logs = scene.sidestep(&["logs"]);
        assert!(
            fs::read(&got).expect("a file") == content,
            "{server}: {logs}\n{}",
            scene.sidestep(&["list"])
        );
        assert!(!logs.contains("create_packet"), "{logs}");
        process.stop(Duration::from_secs(2));
    }
    let status = scene.status(1);
    assert!(status["verdicts"]["NF_STOLEN"].as_u64() > Some(100), "{status}");
    scene.has_served(&["user"]);
}
