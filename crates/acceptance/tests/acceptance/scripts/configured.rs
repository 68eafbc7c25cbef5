//! Scripts of the configuration: they come and go with the gateway.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::edited::Edited;
use lab::process::Process;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scene::{SERVER, ScriptScene};

const PASS: &str = "function process_packet(p) return NF_ACCEPT end\nfunction never(p) return NF_DROP end\n";

fn private(path: &Path, text: &[u8]) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text)).expect("a file");
}

/// A gateway without peers, with these scripts.
fn configure(scene: &ScriptScene, scripts: &str) {
    let text = format!(
        "[node]\nprivate_key_file = \"node.key\"\nexternal = \"wan\"\nhop_prefix = \"2001:db8:a1::/64\"\n{scripts}"
    );
    private(&scene.folder.path().join("gateway.toml"), text.as_bytes());
}

fn up(scene: &ScriptScene) -> Process {
    let key = std::process::Command::new(scene.program()).arg("genkey").output().expect("a key");
    private(&scene.folder.path().join("node.key"), &key.stdout);
    let mut command = scene.router.command(scene.program()).expect("the namespace");
    let log = scene.folder.path().join("gateway.log");
    let _ = std::fs::remove_file(&log);
    let at = |name: &str| scene.folder.path().join(name);
    command.arg("up").arg(at("gateway.toml")).arg("--socket").arg(at("gateway.sock"));
    let mut process = Process::start(command.arg("--state-dir").arg(at("state")), &log).expect("the gateway");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait("the gateway is up", || {
        assert!(process.ended().is_none(), "{}", said());
        said().contains(" is up")
    });
    process
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    // An emulated machine loads its modules meanwhile.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn reload(scene: &ScriptScene) -> Result<(), String> {
    let mut command = std::process::Command::new(scene.program());
    command.args(["reload", "--socket"]).arg(scene.folder.path().join("gateway.sock"));
    let output = command.stdin(Stdio::null()).output().expect("the program");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn scripts_of_a_configuration_live_with_the_gateway() {
    let Some(scene) = ScriptScene::new(false) else { return };
    scene.script("pass.lua", PASS);
    let forward = "[[script]]\nfile = \"pass.lua\"\nhook = \"forward\"\nmatch = \"icmpv6 type 128\"\n";
    let tunnel = "[[script]]\nfile = \"pass.lua\"\nhook = \"tunnel-in\"\n";
    configure(&scene, &format!("{forward}{tunnel}"));
    let gateway = up(&scene);
    let ping = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.05"]);
    assert!(ping().ends_with(" 0%"));
    assert_eq!(scene.status(1)["packets"], 3);
    assert_eq!(scene.status(2)["dev"], "mt6d0");

    configure(&scene, &forward.edited("match", "function = \"never\"\nmatch"));
    reload(&scene).expect("a reload");
    assert!(ping().ends_with(" 100%"));
    assert!(!scene.sidestep(&["list"]).contains("tunnel-in"));
    configure(&scene, &forward.edited("match", "function = \"nowhere\"\nmatch"));
    let refused = reload(&scene).expect_err("no such function");
    assert!(refused.contains("gateway.toml:8:12") && refused.contains("no function nowhere"), "{refused}");
    assert!(refused.contains("never, process_packet"), "{refused}");
    assert!(ping().ends_with(" 100%"), "it stays as it was");

    // A host that was killed is started again, with its scripts.
    let cmdline = |pid: Pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let hosts = || {
        scene.router.processes().into_iter().filter(|pid| cmdline(*pid).contains("serve")).collect::<Vec<_>>()
    };
    let [host] = hosts()[..] else { panic!("{:?}", hosts()) };
    kill(host, Signal::SIGKILL).expect("the host's own process");
    wait("another host", || matches!(hosts()[..], [other] if other != host));
    wait("its script", || scene.sidestep(&["list"]).contains("never"));

    gateway.kill();
    wait("no host is left behind", || hosts().is_empty());
    assert!(ping().ends_with(" 0%"), "nor its rules");
    let gateway = up_again(&scene, forward);
    assert!(gateway.stop(Duration::from_secs(10)).success());
    assert!(hosts().is_empty() && ping().ends_with(" 0%"));
}

fn up_again(scene: &ScriptScene, scripts: &str) -> Process {
    configure(scene, scripts);
    let gateway = up(scene);
    assert_eq!(scene.status(1)["function"], "process_packet");
    gateway
}

/// With the gateway's privileges, after it has given up the others.
#[test]
fn scripts_of_a_configuration_run_in_the_kernel() {
    let Some(scene) = ScriptScene::new(false) else { return };
    scene.script("pass.lua", PASS);
    let script = "[[script]]\nfile = \"pass.lua\"\nhook = \"ingress\"\ndev = \"lan\"\ntier = \"kernel\"\n\
                  match = \"icmpv6 type 128\"\n";
    configure(&scene, script);
    let gateway = up(&scene);
    let ping = || scene.ping(&scene.client, SERVER, &["-c", "3", "-i", "0.05"]);
    assert!(ping().ends_with(" 0%"));
    let status = scene.status(1);
    assert_eq!((&status["tier"], &status["packets"]), (&"kernel".into(), &3.into()), "{status}");
    configure(&scene, &script.edited("match", "function = \"never\"\nmatch"));
    reload(&scene).expect("a reload");
    assert!(ping().ends_with(" 100%"));
    assert!(gateway.stop(Duration::from_secs(10)).success());
    assert!(ping().ends_with(" 0%"));
}

#[test]
fn what_flushes_all_rules_is_mended_by_a_reload() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("pass.lua", PASS);
    scene.sidestep(&["load", &file, "--hook", "forward", "--function", "never", "--tier", "user"]);
    let ping = || scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.05"]);
    assert!(ping().ends_with(" 100%"));
    scene.router.nft("flush ruleset\n").expect("nft");
    assert!(ping().ends_with(" 0%"));
    scene.sidestep(&["reload", &file]);
    assert!(ping().ends_with(" 100%"));

    // Without an end to its host, a configuration's could not be told from it.
    configure(&scene, "[[script]]\nfile = \"pass.lua\"\nhook = \"forward\"\n");
    let key = std::process::Command::new(scene.program()).arg("genkey").output().expect("a key");
    private(&scene.folder.path().join("node.key"), &key.stdout);
    let mut command = scene.router.command(scene.program()).expect("the namespace");
    let at = |name: &str| scene.folder.path().join(name);
    command.arg("up").arg(at("gateway.toml")).arg("--socket").arg(at("gateway.sock"));
    let output =
        command.arg("--state-dir").arg(at("state")).stdin(Stdio::null()).output().expect("the program");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("end its scripts first"), "{message}");
}

/// Functions of one name in two files of a state would be one.
#[test]
fn scripts_of_a_state_share_tables_and_others_do_not() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let put = scene.script("put.lua", "function put(p) nf.counter('n'):add() return NF_ACCEPT end\n");
    let tell = scene
        .script("tell.lua", "function tell(p) nf.log('n is', nf.counter('n'):get()) return NF_ACCEPT end\n");
    for (file, function, more) in [
        (&put, "put", &["--state", "7", "--priority", "1", "--tier", "user"][..]),
        (&tell, "tell", &["--state", "7", "--priority", "2"]),
        (&tell, "tell", &["--priority", "3"]),
    ] {
        let load = ["load", file, "--hook", "forward", "--match", "icmpv6 type 128", "--function", function];
        scene.sidestep(&[&load[..], more].concat());
    }
    scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.05"]);
    let logs = scene.sidestep(&["logs"]);
    assert!(logs.contains("script 2: n is 2") && logs.contains("script 3: n is 0"), "{logs}");
}
