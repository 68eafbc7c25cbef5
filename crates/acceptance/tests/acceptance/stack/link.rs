//! What is below TCP: echoes, fragments, autoconfiguration, duplicates, neighbors, path MTU, and the device itself.

use lab::patience::wait_until;
use lab::process::Process;
use nix::sys::signal::Signal;

use super::{
    FAR, KERNEL, KERNEL_V4, OURS, OURS_V4, PATIENCE, StackScene, address_in, are_equal, output, succeeds,
};

// The kernel takes a second, sometimes, to see that a device has a user again: single pings would be lost.

#[test]
fn both_answer_pings_also_in_fragments() {
    let Some(scene) = StackScene::new(&["ping"]) else { return };
    for size in ["56", "5000"] {
        for address in [KERNEL, KERNEL_V4] {
            let options = ["-c", "5", "-i", "0.05", "-s", size, address];
            let said = succeeds(&mut scene.stack("ping", &options));
            assert!(said.contains("5 packets transmitted, 5 received"), "{size} {said}");
        }
    }
    let host = scene.start(scene.stack("capture", &[]));
    for size in ["56", "5000"] {
        for address in [OURS, OURS_V4] {
            let said = scene.must(&["ping", "-n", "-c", "5", "-i", "0.05", "-W", "5", "-s", size, address]);
            assert!(said.contains("5 received"), "{size} {said}");
        }
    }
    host.stop(PATIENCE);
}

#[test]
fn a_router_gives_it_addresses_routes_and_dns() {
    let Some(scene) = StackScene::new(&["radvd", "ping"]) else { return };
    let configuration = "interface tap0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; \
                         prefix 2001:db8:1::/64 { AdvPreferredLifetime 600; AdvValidLifetime 1200; }; \
                         route 2001:db8:9::/48 { AdvRoutePreference high; }; RDNSS 2001:db8:1::53 { }; };\n";
    let file = scene.write("radvd.conf", configuration.as_bytes()).display().to_string();
    let pid = scene.folder().join("radvd.pid").display().to_string();
    let mut radvd = scene.kernel().command("radvd").expect("the namespace");
    radvd.args(["-n", "-m", "stderr", "-C", &file, "-p", &pid]);
    let radvd = Process::start(&mut radvd, &scene.folder().join("radvd.log")).expect("radvd");
    let host = scene.start(scene.bare_stack("capture", &["--temporary"]));
    let status = scene.netstat().expect("a host");
    let ours = address_in(&status, "2001:db8:1:").expect("an address").to_string();
    let origins: Vec<_> =
        status["addresses"].as_array().expect("addresses").iter().map(|a| &a["origin"]).collect();
    assert!(origins.iter().any(|origin| *origin == "temporary"), "{status:#}");
    assert_eq!(status["routers"].as_array().map(Vec::len), Some(1), "{status:#}");
    assert_eq!(status["dns_servers"][0], "2001:db8:1::53", "{status:#}");
    let routes = status["routes"].as_array().expect("routes");
    assert!(
        routes.iter().any(|route| route["destination"] == "2001:db8:9::/48" && route["preference"] == "high"),
        "{status:#}"
    );
    let lifetimes = status["addresses"].as_array().expect("addresses").iter();
    assert!(
        lifetimes.filter(|a| a["origin"] == "stable").any(|a| a["valid_seconds"].as_u64() <= Some(1200)),
        "{status:#}"
    );
    let mut ping = scene.far().command("ping").expect("the namespace");
    succeeds(ping.args(["-n", "-c", "3", "-i", "0.3", "-W", "10", &ours]));
    let shown = succeeds(&mut scene.bare_stack("route", &[]));
    assert!(shown.contains("2001:db8:9::/48 via fe80:") && !shown.contains(&ours), "{shown}");
    host.stop(PATIENCE);
    // The address is the same each time.
    let again = succeeds(&mut scene.bare_stack("ifconfig", &[]));
    assert!(again.contains(&ours), "{again}");
    radvd.stop(PATIENCE);
}

#[test]
fn an_address_that_somebody_has_is_not_taken() {
    let Some(scene) = StackScene::new(&[]) else { return };
    let output = output(&mut scene.bare_stack("ping", &["-c", "1", "--address", "2001:db8:1::1/64", FAR]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("somebody else on the link has it"), "{said}");
    assert!(said.contains(KERNEL), "{said}");
}

#[test]
fn neighbors_go_through_their_states() {
    let Some(scene) = StackScene::new(&["ping"]) else { return };
    let host = scene.start(scene.stack("capture", &[]));
    let state_is = |wanted: &'static [&'static str]| {
        wait_until(wanted[0], || {
            let status = scene.netstat().expect("a host");
            let neighbors = status["neighbors"].as_array().cloned().unwrap_or_default();
            let of_kernel = neighbors.iter().find(|known| known["address"] == KERNEL);
            of_kernel.is_some_and(|known| wanted.iter().any(|state| known["state"] == *state))
        });
    };
    // The kernel asks for us, which says where it is, not that it hears us; our answer makes us ask.
    scene.must(&["ping", "-n", "-c", "1", "-W", "10", "-I", KERNEL, OURS]);
    state_is(&["stale", "delay"]);
    scene.must(&["ping", "-n", "-c", "1", "-W", "10", "-I", KERNEL, OURS]);
    state_is(&["delay", "probe", "reachable"]);
    state_is(&["reachable"]);
    host.stop(PATIENCE);
    // Nobody has this one.
    let mut nobody = scene.stack("ping", &["-c", "100", "-i", "0.2", "2001:db8:1::dead"]);
    let nobody = Process::start(&mut nobody, &scene.folder().join("ping.log")).expect("ping");
    wait_until("a neighbor that does not answer", || {
        let status = scene.netstat();
        let neighbors = status.and_then(|status| status["neighbors"].as_array().cloned()).unwrap_or_default();
        let known = neighbors.iter().find(|known| known["address"] == "2001:db8:1::dead");
        known.is_some_and(|known| known["state"] == "incomplete")
    });
    nobody.stop(PATIENCE);
}

#[test]
fn a_narrow_link_behind_the_router_is_learned() {
    let Some(scene) = StackScene::new(&["python3"]) else { return };
    scene.kernel().ip("link set dev wan mtu 1280\n").expect("the link");
    scene.far().ip("link set dev eth0 mtu 1280\n").expect("the link");
    let folder = scene.folder().display().to_string();
    let mut server = scene.far().command("python3").expect("the namespace");
    server.args(["-m", "http.server", "-d", &folder, "--bind", "::", "8000"]);
    let server = Process::start(&mut server, &scene.folder().join("python.log")).expect("a server");
    let file = scene.random_file("file", 300_000);
    // The first one tells us, the others fit.
    let pings = succeeds(&mut scene.stack("ping", &["-c", "4", "-i", "0.2", "-s", "1400", FAR]));
    assert!(pings.contains("3 received") || pings.contains("4 received"), "{pings}");
    let got = scene.folder().join("got").display().to_string();
    wait_until("a server", || {
        output(&mut scene.stack("http", &["-o", &got, &format!("http://[{FAR}]:8000/file")])).status.success()
    });
    assert!(are_equal(&file, got.as_ref()));
    // It is known for this destination, and shown.
    let mut ping = scene.stack("ping", &["-c", "100", "-i", "0.1", "-s", "1400", FAR]);
    let ping = Process::start(&mut ping, &scene.folder().join("ping.log")).expect("ping");
    wait_until("a path MTU", || {
        let status = scene.netstat();
        let known = status.and_then(|status| status["destinations"].as_array().cloned()).unwrap_or_default();
        known.iter().any(|known| known["address"] == FAR && known["path_mtu"] == 1280)
    });
    ping.stop(PATIENCE);
    server.stop(PATIENCE);
}

#[test]
fn a_killed_process_leaves_the_device_as_it_was_or_none() {
    let Some(scene) = StackScene::new(&[]) else { return };
    // Its link-local address comes with the first carrier.
    let addresses = || {
        let shown = scene.must(&["ip", "-o", "addr", "show", "dev", "tap0"]);
        shown.lines().filter(|line| !line.contains("fe80")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = addresses();
    let host = scene.start(scene.stack("capture", &[]));
    let second = output(&mut scene.stack("ping", &["-c", "1", KERNEL]));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another program holds the device"), "{said}");
    host.kill();
    assert_eq!(addresses(), before);
    // What the dead one has left behind is in nobody's way.
    succeeds(&mut scene.stack("ping", &["-c", "10", "-i", "0.3", KERNEL]));

    let mut made =
        scene.kernel().command(std::env::var_os("SIDESTEP_BIN").expect("the program")).expect("it");
    made.args(["stack", "capture", "--dev", "tap9"]);
    let made = Process::start(&mut made, &scene.folder().join("made.log")).expect("a host");
    let there = || scene.must(&["ip", "-o", "link"]).contains("tap9");
    wait_until("a new device", there);
    made.kill();
    assert!(!there());
}

#[test]
fn its_sockets_go_with_it_at_a_signal_and_those_of_one_that_was_killed_are_replaced() {
    let Some(scene) = StackScene::new(&[]) else { return };
    let folder = scene.folder().display().to_string();
    let keys = scene.folder().join("keys.sock");
    let options = ["--serve", &folder, "--key-socket", &keys.display().to_string()];
    let sockets = || std::fs::read_dir("/run/sidestep/stack").expect("a folder").count();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut host = scene.start(scene.stack("http", &options));
        assert_eq!((sockets(), keys.exists()), (1, true));
        host.signal(signal);
        assert!(host.wait(PATIENCE).expect("it ends").success());
        assert_eq!((sockets(), keys.exists()), (0, false), "{signal}");
    }
    scene.start(scene.stack("http", &options)).kill();
    assert_eq!((sockets(), keys.exists()), (1, true));
    let host = scene.start(scene.stack("http", &options));
    assert!(scene.netstat().is_some(), "it answers in the place of the other");
    host.stop(PATIENCE);
    assert_eq!((sockets(), keys.exists()), (0, false));
}

#[test]
fn an_unprivileged_owner_needs_no_root() {
    let Some(scene) = StackScene::new(&["setpriv"]) else { return };
    scene.must(&["ip", "tuntap", "add", "dev", "tap1", "mode", "tap", "user", "nobody"]);
    scene.must(&["ip", "link", "set", "dev", "tap1", "up"]);
    scene.must(&["ip", "addr", "add", "2001:db8:3::1/64", "dev", "tap1", "nodad"]);
    let program = std::env::var("SIDESTEP_BIN").expect("the program");
    // Where the program is, nobody may have no way to it.
    let copy = std::path::Path::new("/run/sidestep-copy");
    std::fs::copy(program, copy).expect("a copy");
    std::fs::set_permissions(copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let as_nobody = |device: &str| {
        let mut command = scene.kernel().command("setpriv").expect("the namespace");
        command.args(["--reuid", "nobody", "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all"]);
        command.arg(copy).args(["stack", "ping", "--dev", device, "--address", "2001:db8:3::2/64"]);
        command.args(["-c", "10", "-i", "0.3", "2001:db8:3::1"]);
        output(&mut command)
    };
    let pinged = as_nobody("tap1");
    assert!(pinged.status.success(), "{}", String::from_utf8_lossy(&pinged.stderr));
    scene.must(&["ip", "tuntap", "add", "dev", "tap2", "mode", "tap", "user", "root"]);
    let others = as_nobody("tap2");
    let said = String::from_utf8_lossy(&others.stderr);
    assert!(!others.status.success() && said.contains("belongs to another user"), "{said}");
}
