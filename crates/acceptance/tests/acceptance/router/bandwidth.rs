//! `bandwidth` of an uplink: short queues by CAKE, in both directions, and a kernel without it.
//!
//! Debian's stock kernel has CAKE, so that most of these tests run in `scripts/stock-kernel`, which demands it
//! (`SIDESTEP_XFRM=1`). On a kernel without they say that they were skipped, and the other way round.

use std::time::Duration;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::HOME;
use super::scene::RouterScene;

const RATES: &str = "bandwidth = { down = \"8Mbit/s\", up = \"4Mbit/s\" }";
/// Behind the provider.
const FAR: &str = "203.0.113.1";

fn shaped(rates: &str) -> String {
    HOME.edited(
        "delegation = 56 ",
        &format!("delegation = 56\nmasquerade = true\nipv4_router = \"192.0.2.1\"\n{rates}"),
    )
}

/// Whether this kernel has CAKE. Where it is demanded, its absence is a failure.
fn has_cake(scene: &RouterScene) -> bool {
    let said = scene.run("rogue", &["tc", "qdisc", "add", "dev", "lo", "root", "cake"]);
    assert!(
        said.is_empty() || std::env::var_os("SIDESTEP_XFRM").is_none(),
        "this kernel was said to be Debian's: {said}"
    );
    said.is_empty()
}

/// What somebody sees who asks the kernel.
fn queues(scene: &RouterScene) -> String {
    let look = "tc qdisc show dev wan0; tc filter show dev wan0 ingress; ip -o link show type ifb; \
                tc qdisc show | grep ifb4";
    scene.run("gw", &["sh", "-c", look])
}

fn bandwidth(scene: &RouterScene) -> Option<Value> {
    Some(scene.status()?["uplinks"][0]["bandwidth"].clone())
}

/// What doctor says of packets that are not shaped.
fn unshaped(scene: &RouterScene) -> Vec<String> {
    let said: Value =
        serde_json::from_slice(&scene.sidestep(&["doctor", "--json"]).stdout).expect("a document");
    let findings = said["findings"].as_array().expect("findings");
    let says =
        findings.iter().map(|finding| (&finding["code"], finding["says"].as_str().unwrap_or_default()));
    let about = says.filter(|(code, says)| **code == "not_shaped" || says.contains("is not shaped"));
    about.map(|(_, says)| says.to_owned()).collect()
}

fn is_shaped(scene: &RouterScene) -> bool {
    let there = queues(scene);
    let has = |words: &[&str]| there.lines().any(|line| words.iter().all(|word| line.contains(word)));
    has(&[
        "cake 5353: root",
        "diffserv4",
        "dual-srchost",
        " nat ",
        "no-ack-filter",
        "rtt 100ms",
        "overhead 38",
        "mpu 84",
    ]) && has(&["cake 5353: dev ifb4wan0", "besteffort", "dual-dsthost", " nat ", "wash", "ingress"])
        && has(&["mirred (Egress Redirect to device ifb4wan0) stolen"])
}

#[test]
fn an_uplink_is_shaped_whatever_happens_and_in_the_end_as_it_was() {
    let Some(mut scene) = RouterScene::new() else { return };
    if !has_cake(&scene) {
        eprintln!("skipped: needs a kernel with CAKE, such as that of scripts/stock-kernel");
        return;
    }
    let without_clsact = |scene: &RouterScene| {
        queues(scene).lines().filter(|line| !line.contains("clsact")).collect::<Vec<_>>().join("\n")
    };
    let before = without_clsact(&scene);
    scene.start(&shaped(RATES));
    wait_until("CAKE in both directions", || is_shaped(&scene));
    wait_until("the provider", || scene.answers("gw", FAR));
    let said = bandwidth(&scene).expect("a status");
    for (side, bits) in [("down", 8_000_000), ("up", 4_000_000)] {
        assert_eq!(said[side]["rate_bits"], bits, "{said}");
        assert_eq!(said[side]["rate_in_force_bits"], bits, "{said}");
        assert!(said[side]["sent_packets"].as_u64() >= Some(3), "{said}");
    }

    // Another rate is taken in place: what has been counted stays, so nothing that waited was lost.
    scene.write("gw.toml", &shaped(&RATES.edited("8Mbit/s", "9Mbit/s")));
    scene.signal(Signal::SIGHUP);
    let changed = wait_for("the new rate", || {
        let said = bandwidth(&scene)?;
        (said["down"]["rate_in_force_bits"] == 9_000_000).then_some(said)
    });
    let sent = |said: &Value| said["down"]["sent_packets"].as_u64();
    assert!(sent(&changed) >= sent(&said), "{changed}");

    // Whatever somebody takes away is back.
    for takes_away in [
        "tc qdisc del dev wan0 root",
        "ip link del ifb4wan0",
        "ip link set ifb4wan0 down",
        "tc filter del dev wan0 ingress",
        "tc qdisc del dev wan0 clsact",
        "tc qdisc change dev ifb4wan0 root cake bandwidth 1gbit",
        "tc qdisc change dev ifb4wan0 root cake diffserv4 nonat flowblind nowash egress",
        "tc qdisc change dev wan0 root cake besteffort overhead 0 mpu 0",
        "tc qdisc change dev wan0 root cake rtt 2ms ack-filter",
    ] {
        let done = scene.run("gw", &["sh", "-c", takes_away]);
        assert_eq!(done, "", "{takes_away}");
        let is_back = || {
            is_shaped(&scene)
                && bandwidth(&scene).is_some_and(|said| said["down"]["rate_in_force_bits"] == 9_000_000)
        };
        wait_until(takes_away, is_back);
        wait_until("packets", || scene.answers("gw", FAR));
    }
    // A filter that is not ours in its place is not taken for ours.
    let ingress = "tc filter del dev wan0 ingress; \
                   tc filter add dev wan0 ingress priority 65363 handle 0x77 protocol all matchall action pass";
    assert_eq!(scene.run("gw", &["sh", "-c", ingress]), "");
    let removes = "tc filter del dev wan0 ingress priority 65363";
    wait_until("the other filter", || unshaped(&scene).iter().any(|found| found.contains(removes)));
    scene.run("gw", &["sh", "-c", removes]);
    wait_until("ours", || is_shaped(&scene) && unshaped(&scene).is_empty());
    // Until then doctor says so; it is put back at any moment.
    assert_eq!(unshaped(&scene), [""; 0]);
    for (takes_away, what) in
        [("tc qdisc del dev wan0 root", "sent"), ("tc filter del dev wan0 ingress", "received")]
    {
        wait_until(takes_away, || {
            scene.run("gw", &["sh", "-c", takes_away]);
            let says = format!("what is {what} is not shaped: another program has taken away what shapes it");
            unshaped(&scene).iter().any(|found| found.contains(&says))
        });
        wait_until("it is well again", || unshaped(&scene).is_empty());
    }

    // Without a gateway it goes on, and the next one takes it over, even if half of it is gone.
    scene.kill();
    assert!(is_shaped(&scene) && scene.answers("gw", FAR), "{}", queues(&scene));
    scene.start_again();
    wait_until("the same", || is_shaped(&scene));
    scene.kill();
    scene.run("gw", &["ip", "link", "del", "ifb4wan0"]);
    scene.start_again();
    wait_until("the same again", || is_shaped(&scene) && scene.answers("gw", FAR));

    // A reload without takes it back, and so does the end.
    scene.write("gw.toml", &shaped(""));
    scene.signal(Signal::SIGHUP);
    wait_until("the kernel's own queues", || without_clsact(&scene) == before);
    scene.write("gw.toml", &shaped(RATES));
    scene.signal(Signal::SIGHUP);
    wait_until("CAKE", || is_shaped(&scene));
    scene.stop();
    assert_eq!(without_clsact(&scene), before);
}

#[test]
fn what_somebody_has_chosen_for_an_uplink_is_not_replaced() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.run(
        "gw",
        &[
            "tc", "qdisc", "add", "dev", "wan0", "root", "tbf", "rate", "9mbit", "burst", "9kb", "limit",
            "90kb",
        ],
    );
    let chosen = queues(&scene);
    assert!(chosen.contains("tbf"), "{chosen}");
    scene.start(&shaped("bandwidth = { up = \"4Mbit/s\" }"));
    let expected =
        "what is sent is not shaped: wan0 has the queueing discipline tbf, which somebody has chosen";
    wait_until("it is said", || scene.log().contains(expected));
    wait_until("the provider", || scene.answers("gw", FAR));
    assert!(bandwidth(&scene).expect("a status")["up"]["rate_in_force_bits"].is_null());
    assert_eq!(queues(&scene), chosen);
    if has_cake(&scene) {
        scene.run("gw", &["tc", "qdisc", "del", "dev", "wan0", "root"]);
        wait_until("CAKE, once it is given up", || queues(&scene).contains("cake 5353: root"));
    }
    scene.stop();
    assert!(!queues(&scene).contains("5353"), "{}", queues(&scene));
}

#[test]
fn a_kernel_without_cake_is_said_and_carries_packets() {
    let Some(mut scene) = RouterScene::new() else { return };
    if has_cake(&scene) {
        eprintln!("skipped: this kernel has CAKE");
        return;
    }
    let before = queues(&scene);
    scene.start(&shaped(RATES));
    wait_until("the provider", || scene.answers("gw", FAR));
    let said = bandwidth(&scene).expect("a status");
    assert_eq!(said["up"]["rate_bits"], 4_000_000);
    assert!(said["up"]["rate_in_force_bits"].is_null() && said["down"]["rate_in_force_bits"].is_null());
    let text = String::from_utf8_lossy(&scene.sidestep(&["status"]).stdout).into_owned();
    assert!(text.contains("bandwidth: 8.0 Mbit/s down (not shaped), 4.0 Mbit/s up (not shaped)"), "{text}");
    // Some have ifb.
    for mends in [
        "what is sent is not shaped: the kernel has no CAKE: it needs the module sch_cake",
        "what is received is not shaped: the kernel has no ",
    ] {
        assert!(text.contains(mends) && scene.log().contains(mends), "{mends}: {text}");
    }
    let found = unshaped(&scene);
    assert_eq!(found.len(), 2, "each once: {found:?}");
    assert!(
        found.iter().any(|says| says.contains("what is sent is not shaped: the kernel has no CAKE")),
        "{found:?}"
    );
    let why = &bandwidth(&scene).expect("a status")["up"]["why"];
    assert!(why.as_str().is_some_and(|why| why.starts_with("the kernel has no CAKE")), "{why}");
    // It is tried again and again, and logged once.
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(scene.log().matches("what is sent is not shaped").count(), 1, "{}", scene.log());
    assert!(!queues(&scene).contains("mirred"), "{}", queues(&scene));
    scene.stop();
    assert_eq!(queues(&scene), before);
}

/// Sends without end to whoever connects.
const SENDS: &str = "
import socket
listener = socket.create_server(('::', 4000), family=socket.AF_INET6)
while True:
    connection = listener.accept()[0]
    try:
        while connection.send(bytes(9000)):
            pass
    except OSError:
        pass
";
const TAKES: &str = "
import socket
connection = socket.create_connection(('2001:db8:ffff::1', 4000))
while connection.recv(65536):
    pass
";

#[test]
fn a_rate_follows_what_the_line_carries() {
    let Some(mut scene) = RouterScene::new() else { return };
    if !has_cake(&scene) {
        eprintln!("skipped: needs a kernel with CAKE, such as that of scripts/stock-kernel");
        return;
    }
    let line = |scene: &RouterScene, rate: &str| {
        let words = "tc qdisc replace dev isp0 root tbf burst 9kb latency 3s rate";
        assert_eq!(scene.run("net", &["sh", "-c", &format!("{words} {rate}")]), "");
    };
    line(&scene, "3mbit");
    // The machine, where it is emulated, delays what it likes.
    scene.start(&shaped("bandwidth = { down = \"20Mbit/s\", down_least = \"1Mbit/s\", delay = \"500ms\" }"));
    let in_force = |scene: &RouterScene| bandwidth(scene)?["down"]["rate_in_force_bits"].as_u64();
    // While nobody needs more it is the least.
    let answers = |scene: &RouterScene| Some(bandwidth(scene)?["delay"]["usual_ms"].is_number());
    wait_until("the router answers", || answers(&scene) == Some(true));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(in_force(&scene), Some(1_000_000));
    wait_until("the Internet", || scene.answers("gw", super::scene::INTERNET));
    scene.keep("net", &["python3", "-c", SENDS]);
    wait_until("a server", || scene.run("net", &["ss", "-Htln"]).contains(":4000"));
    scene.keep("gw", &["python3", "-c", TAKES]);
    wait_until("more than the least", || in_force(&scene) > Some(1_800_000));
    std::thread::sleep(Duration::from_secs(10));
    // How near it comes is tested in virtual time.
    wait_until("about what the line carries", || in_force(&scene) < Some(5_000_000));
    line(&scene, "12mbit");
    wait_until("more than the line carried before", || in_force(&scene) > Some(4_500_000));
    // With nobody to follow it stays; the next gateway begins anew.
    scene.kill();
    assert!(queues(&scene).contains("dev ifb4wan0"), "{}", queues(&scene));
    scene.start_again();
    wait_until("more than the least again", || in_force(&scene) > Some(1_800_000));
    // Another configuration counts at once, and one without `down_least` is fixed.
    scene.write("gw.toml", &shaped("bandwidth = { down = \"6Mbit/s\" }"));
    scene.signal(Signal::SIGHUP);
    wait_until("the fixed rate", || in_force(&scene) == Some(6_000_000));
    assert!(bandwidth(&scene).expect("a status")["delay"].is_null());
    scene.stop();
}

/// Also where the kernel has nothing that could follow.
#[test]
fn who_does_not_answer_is_said() {
    let Some(mut scene) = RouterScene::new() else { return };
    let rates = "bandwidth = { up = \"4Mbit/s\", up_least = \"1Mbit/s\" }";
    scene.start(&shaped(rates));
    let delay = |scene: &RouterScene| Some(bandwidth(scene)?["delay"].clone());
    let told =
        wait_for("the router's answer", || delay(&scene).filter(|delay| delay["usual_ms"].is_number()));
    assert_eq!(told["reflector"], "fe80::1", "{told}");
    let text = || String::from_utf8_lossy(&scene.sidestep(&["status"]).stdout).into_owned();
    assert!(text().contains("rates follow fe80::1, which answers in "), "{}", text());
    let nobody = "2001:db8:ffff::99";
    scene.write("gw.toml", &shaped(&rates.edited(" }", &format!(", reflector = \"{nobody}\" }}"))));
    scene.signal(Signal::SIGHUP);
    let problem = format!("its rates stay as they are: {nobody} does not answer; write another `reflector`");
    wait_until("it is said", || scene.log().contains(&problem));
    assert!(text().contains(&format!("rates follow {nobody}, which does not answer")), "{}", text());
    scene.write("gw.toml", &shaped(rates));
    scene.signal(Signal::SIGHUP);
    wait_until("it is over", || !text().contains(&problem));
    scene.stop();
}
