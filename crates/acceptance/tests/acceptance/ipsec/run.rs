//! A program whose only way out is the tunnel, started by user nobody.

use std::time::Duration;

use lab::command::text;
use lab::patience::wait_until;
use lab::process::Process;

use super::scene::{GIVEN, INNER_V4, OUTER_V4, STRONGSWAN, Scene};

/// Serves one file on the second side.
fn serve(scene: &Scene, address: &str) -> Process {
    scene.write("page", "what is behind the tunnel\n", 0o644);
    let folder = scene.path("").display().to_string();
    let mut command = scene.namespaces[1].command("python3").expect("the namespace");
    command.args(["-m", "http.server", "80", "--bind", address, "--directory", &folder]);
    let server = Process::start(&mut command, &scene.path("web.log")).expect("python3");
    let page = format!("http://{address}/page");
    wait_until("the server", || scene.on(1, &["curl", "-s", "-m", "1", &page]).status.success());
    server
}

#[test]
fn curl_gets_a_page_through_strongswan_and_nothing_leaves_when_the_tunnel_dies() {
    let needs = [&STRONGSWAN[..], &["python3", "curl", "setpriv", "ping"]].concat();
    let Some(scene) = Scene::new(&needs) else { return };
    scene.write_client(OUTER_V4[1]);
    let charon = scene.charon();
    let _web = serve(&scene, INNER_V4[1]);
    let recorder = scene.record();
    let page = format!("http://{}/page", INNER_V4[1]);
    let fetched = scene.run_as_nobody(&["curl", "-sS", "-m", "10", &page]).output().expect("sidestep");
    assert_eq!(text(&fetched), "what is behind the tunnel", "{}", String::from_utf8_lossy(&fetched.stderr));
    // Its addresses and name servers are the tunnel's; its exit status is told.
    let shell = "id -u; ip -o -4 addr show dev tun0; cat /etc/resolv.conf; exit 42";
    let seen = scene.run_as_nobody(&["sh", "-c", shell]).output().expect("sidestep");
    let told = text(&seen);
    assert!(told.contains("65534") && told.contains(GIVEN), "{told}");
    assert!(told.contains(&format!("nameserver {}", INNER_V4[1])), "{told}");
    assert_eq!(seen.status.code(), Some(42));
    assert_eq!(scene.run_as_nobody(&["/no/such/program"]).status().expect("sidestep").code(), Some(127));

    // The tunnel dies under a program that goes on asking.
    let asks =
        format!("curl -sS -m 5 {page} > /dev/null && echo once; while :; do curl -sS -m 1 {page}; done");
    let log = scene.path("run.log");
    let mut command = scene.run_as_nobody(&["sh", "-c", &asks]);
    let program = Process::start(&mut command, &log).expect("sidestep");
    wait_until("a first page", || std::fs::read_to_string(&log).unwrap_or_default().contains("once"));
    charon.kill();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(recorder.in_clear(), []);

    // And with the tunnel's process the program ends.
    program.kill();
    let of_ours = || scene.namespaces[0].processes().len();
    wait_until("nothing to be left", || of_ours() == 0);
}

#[test]
fn a_program_has_no_signals_blocked_and_ends_when_the_command_is_asked_to() {
    let Some(scene) = Scene::new(&["setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    let _gateway = scene.up_for_client();
    let blocked = scene.run_as_nobody(&["grep", "SigBlk", "/proc/self/status"]).output().expect("sidestep");
    assert_eq!(text(&blocked).trim(), "SigBlk:\t0000000000000000");
    let log = scene.path("run.log");
    let mut command = scene.run_as_nobody(&["sh", "-c", "echo there; exec sleep 1000"]);
    let mut program = Process::start(&mut command, &log).expect("sidestep");
    wait_until("the program", || std::fs::read_to_string(&log).unwrap_or_default().contains("there"));
    program.signal(nix::sys::signal::Signal::SIGTERM);
    let status = program.wait(Duration::from_secs(60)).expect("its end");
    assert_eq!(status.code(), Some(128 + 15));
}

#[test]
fn without_a_tunnel_the_program_is_not_run() {
    let Some(scene) = Scene::new(&["setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    let text = std::fs::read_to_string(scene.path("client.toml")).expect("the file");
    scene.write("client.toml", &text.replace("identity = \"b.example\"", "identity = 7"), 0o644);
    let run = scene.run_as_nobody(&["touch", "/tmp/it-ran"]).output().expect("sidestep");
    assert_eq!(run.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&run.stderr).contains("identity"));
    assert!(!std::path::Path::new("/tmp/it-ran").exists());
}

#[test]
fn a_moving_tunnel_is_a_programs_only_way_out() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv"]) else { return };
    scene.write_moving();
    scene.own_prefix();
    let gateway = scene.up_moving();
    let _web = serve(&scene, INNER_V4[1]);
    let recorder = scene.record();
    let page = format!("http://{}/page", INNER_V4[1]);
    let shell = format!("curl -sS -m 10 {page} && ip -o addr show dev tun0 && cat /etc/resolv.conf; exit 42");
    let file = scene.path("client.toml");
    let run = |words: &[&str]| {
        let mut command = scene.as_nobody(0);
        command.args(["ipsec", "run", "--dns", INNER_V4[1]]).arg(&file).arg("--").args(words);
        command
    };
    let seen = run(&["sh", "-c", &shell]).output().expect("sidestep");
    let told = text(&seen);
    assert!(told.contains("what is behind the tunnel"), "{told}\n{}", String::from_utf8_lossy(&seen.stderr));
    assert!(told.contains(INNER_V4[0]) && told.contains(&format!("nameserver {}", INNER_V4[1])), "{told}");
    assert_eq!(seen.status.code(), Some(42));

    // It goes on through many moves; meanwhile nobody else is this end; then the tunnel dies under it.
    let asks =
        format!("curl -sS -m 5 {page} > /dev/null && echo once; while :; do curl -sS -m 1 {page}; done");
    let log = scene.path("run.log");
    let program = Process::start(&mut run(&["sh", "-c", &asks]), &log).expect("sidestep");
    wait_until("a first page", || std::fs::read_to_string(&log).unwrap_or_default().contains("once"));
    let second = run(&["true"]).output().expect("sidestep");
    assert!(String::from_utf8_lossy(&second.stderr).contains("is in use by another program"));
    gateway.kill();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(recorder.in_clear(), []);
    program.kill();
    let of_ours = || scene.namespaces[0].processes().len();
    wait_until("nothing to be left", || of_ours() == 0);
}

#[test]
fn a_second_program_with_one_file_is_refused() {
    let Some(scene) = Scene::new(&["setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    // Nobody answers: the first one waits for its tunnel.
    let mut first =
        Process::start(&mut scene.run_as_nobody(&["true"]), &scene.path("run.log")).expect("sidestep");
    let file = scene.path("client.toml");
    let has_it_open = |pid: &nix::unistd::Pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|open| open == file)
    };
    wait_until("the first one", || scene.namespaces[0].processes().iter().any(has_it_open));
    let mut proxy = scene.as_nobody(0);
    proxy.args(["ipsec", "proxy"]).arg(&file);
    for mut second in [scene.run_as_nobody(&["true"]), proxy] {
        let second = second.output().expect("sidestep");
        let told = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(1));
        assert!(told.contains("client.toml is in use by another program"), "{told}");
    }
    assert!(first.ended().is_none());
    first.kill();
}
