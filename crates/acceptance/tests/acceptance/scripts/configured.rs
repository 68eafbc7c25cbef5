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

use super::scene::{SERVER, SERVER_IPV4, ScriptScene};

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
    let hosts = || hosts(&scene);
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

/// The process of the scripts of a gateway.
fn hosts(scene: &ScriptScene) -> Vec<Pid> {
    let cmdline = |pid: &Pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    scene.router.processes().into_iter().filter(|pid| cmdline(pid).contains("serve")).collect()
}

/// One drops pings of IPv6, the other, whose file is wrong by then, has those of IPv4. Nothing passes that must not: not
/// from the end of one host to the beginning of the next, and not while the next has no text of a script.
#[test]
fn a_host_that_dies_while_a_file_is_wrong_lets_nothing_pass() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let lost = |to: &str| scene.ping(&scene.client, to, &["-c", "2", "-i", "0.05"]).ends_with(" 100%");
    let list = || scene.sidestep(&["list"]);
    for tier in ["user", "kernel"] {
        scene.script("filter.lua", PASS);
        scene.script("other.lua", PASS);
        scene.script("open.lua", PASS);
        configure(
            &scene,
            &format!(
                "[[script]]\nfile = \"filter.lua\"\nhook = \"forward\"\nfunction = \"never\"\ntier = \"user\"\n\
                 match = \"icmpv6 type 128\"\n\
                 [[script]]\nfile = \"other.lua\"\nhook = \"ingress\"\ndev = \"lan\"\ntier = \"{tier}\"\n\
                 match = \"icmp type 8\"\n\
                 [[script]]\nfile = \"open.lua\"\nhook = \"forward\"\ntier = \"user\"\nfail_open = true\n"
            ),
        );
        let gateway = up(&scene);
        assert!(lost(SERVER) && !lost(SERVER_IPV4), "{tier}");
        scene.script("other.lua", "function process_packet(p) return NF_ACCEPT en");
        scene.script("open.lua", "function process_packet(p) return NF_ACCEPT en");
        let refused = reload(&scene).expect_err("wrong files");
        assert!(refused.contains(".lua:1"), "{tier}: {refused}");
        assert!(lost(SERVER) && !lost(SERVER_IPV4), "{tier}: all stays as it was");

        let [host] = hosts(&scene)[..] else { panic!("{:?}", hosts(&scene)) };
        let passed = std::thread::scope(|scope| {
            let pings = scope.spawn(|| scene.ping(&scene.client, SERVER, &["-c", "400", "-i", "0.01"]));
            std::thread::sleep(Duration::from_millis(300));
            kill(host, Signal::SIGKILL).expect("the host's own process");
            pings.join().expect("pings")
        });
        assert!(passed.ends_with(" 100%"), "{tier}: {passed}");
        wait("another host has what it can", || list().matches("not loaded").count() == 2);
        assert_eq!(scene.metric("sidestep_scripts_held"), "2");
        let said = list();
        assert!(said.contains("never in the user tier") && said.contains("not loaded: "), "{tier}: {said}");
        assert!(said.contains("are dropped") && said.contains("packets   pass"), "{tier}: {said}");
        assert!(lost(SERVER) && lost(SERVER_IPV4), "{tier}");
        let log = scene.said("gateway.log");
        assert!(log.contains("other.lua at ingress does not run, and its packets are dropped: "), "{log}");
        // What others flush is put back here, too.
        scene.router.nft("flush ruleset\n").expect("nft");
        wait("the rules again", || lost(SERVER_IPV4) && lost(SERVER));

        scene.script("other.lua", PASS);
        wait("the other one runs", || list().matches("not loaded").count() == 1);
        wait("its packets", || !lost(SERVER_IPV4));
        assert!(lost(SERVER), "{tier}");
        scene.script("open.lua", PASS);
        reload(&scene).expect("all files are right");
        assert!(!list().contains("not loaded") && list().contains("open.lua"), "{}", list());
        let rules = scene.run(&scene.router, &["nft", "list", "table", "inet", "sidestep-scripts"]).1;
        assert!(!rules.contains("held"), "{rules}");
        assert_eq!(scene.metric("sidestep_scripts_held"), "0");

        // Whoever ends the gateway while a script is missing finds no rules.
        scene.script("other.lua", "wrong(");
        let [host] = hosts(&scene)[..] else { panic!("{:?}", hosts(&scene)) };
        kill(host, Signal::SIGKILL).expect("the host's own process");
        wait("another host", || list().contains("not loaded"));
        if tier == "user" {
            gateway.kill();
            wait("no host is left behind", || hosts(&scene).is_empty());
        } else {
            assert!(gateway.stop(Duration::from_secs(10)).success());
        }
        assert!(!lost(SERVER) && !lost(SERVER_IPV4), "{tier}");
    }
}

/// One file is right and would do something else; what is wrong with another script only its host finds.
#[test]
fn a_reload_that_is_refused_leaves_all_scripts_as_they_were() {
    const FIRST: &str = "local seen = nf.prefixes { name = 'seen', limit = 10 }
        function process_packet(p) return seen:find('10.0.0.1') and NF_DROP or NF_ACCEPT end\n";
    let Some(scene) = ScriptScene::new(false) else { return };
    let lost = || scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.05"]).ends_with(" 100%");
    let dump = || scene.sidestep(&["table", "dump", "seen"]);
    let blocking = format!("{FIRST}seen:add('10.0.0.0/8')\n");
    let other = format!(
        "{FIRST}function process_packet(p) return NF_DROP end\nfunction another(p) return NF_DROP end\n"
    );
    for (tier, wrong) in [
        // Lua has no such address.
        (
            "user",
            "function process_packet(p) return p:data(packet_eth):dmac():get() == 'x' and NF_DROP or NF_ACCEPT end",
        ),
        ("kernel", "function process_packet(p) local t = {} t[1] = 2 return NF_ACCEPT end"),
    ] {
        let script = |file: &str, tier: &str, more: &str| {
            format!(
                "[[script]]\nfile = \"{file}.lua\"\nhook = \"ingress\"\ntier = \"{tier}\"\n\
                 match = \"icmpv6 type 128\"\n{more}"
            )
        };
        let on = |file: &str, more: &str| script(file, tier, &format!("dev = \"lan\"\n{more}"));
        let both = on("first", "") + &on("second", "");
        let more = on("first", "function = \"another\"\n")
            + &script("second", "kernel", "dev = \"nowhere\"\nstate = 9\n");
        scene.script("first.lua", FIRST);
        scene.script("second.lua", PASS);
        configure(&scene, &both);
        let gateway = up(&scene);
        assert!(!lost(), "{tier}");
        // The second time it is a script that is new, when all texts are known to be right.
        for (first, second, more) in [(&blocking, wrong, ""), (&other, PASS, &*more)] {
            scene.script("first.lua", first);
            scene.script("second.lua", second);
            configure(&scene, &format!("{both}{more}"));
            let refused = reload(&scene).expect_err("a script that cannot run there");
            assert!(refused.contains("all but the scripts was read again"), "{tier}: {refused}");
            assert!(!lost() && dump() == "prefix,value\n", "{tier}: {refused}: {}", dump());
        }
        scene.script("first.lua", &blocking);
        let file = scene.folder.path().join("first.lua").display().to_string();
        let words = ["load", &file, "--hook", "forward", "--function", "missing", "--tier", tier];
        let refused = scene.refusal(&words);
        assert!(refused.contains("missing"), "{tier}: {refused}");
        assert!(!lost() && dump() == "prefix,value\n", "{tier}: {}", dump());
        // What somebody has loaded by hand stays.
        let by_hand = scene.script("hand.lua", PASS);
        scene.sidestep(&["load", &by_hand, "--hook", "forward"]);
        configure(&scene, &both);
        reload(&scene).expect("both are right");
        assert!(lost() && dump().contains("10.0.0.0/8"), "{tier}: {}", dump());
        assert!(scene.sidestep(&["list"]).contains("hand.lua"));
        assert!(gateway.stop(Duration::from_secs(10)).success());
    }
}

#[test]
fn rules_that_somebody_flushes_come_back() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = scene.script("pass.lua", PASS);
    scene.sidestep(&["load", &file, "--hook", "forward", "--function", "never", "--tier", "user"]);
    let ping = || scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.05"]);
    assert!(ping().ends_with(" 100%"));
    for change in [
        "flush ruleset",
        "flush table inet sidestep-scripts",
        "delete table inet sidestep-scripts",
        "flush chain inet sidestep-scripts script1",
        "flush chain inet sidestep-scripts other1",
    ] {
        scene.router.nft(&format!("{change}\n")).expect("nft");
        wait(change, || ping().ends_with(" 100%"));
    }
    // Likewise at once, though another change was a moment ago.
    scene.router.nft("flush table inet sidestep-scripts\n").expect("nft");
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

/// In the kernel they would not share it, or take each other's entries for expired; in Lua the last one would decide.
#[test]
fn files_of_a_state_declare_alike_what_they_share() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let _host = scene.serve();
    let write = |name: &str, more: &str| {
        let table = format!("local n = nf.table {{ name = 'n', key = 'int', {more} }}\n");
        let function = format!("function {name}(p)\n  n:add(1, 1)\n  return NF_ACCEPT\nend\n");
        scene.script(&format!("{name}.lua"), &(table + &function))
    };
    let counts = || {
        assert!(scene.ping(&scene.client, SERVER, &["-c", "2", "-i", "0.05"]).ends_with(" 0%"));
        scene.sidestep(&["table", "get", "n", "1"])
    };
    for tier in ["kernel", "user"] {
        let one = write("one", "limit = 10");
        scene.sidestep(&load(&one, tier, "one"));
        for (more, one, other) in [
            ("limit = 20", "limit = 10", "limit = 20"),
            ("limit = 10, expires = 1000", "expires = nil", "expires = 1000"),
            ("limit = 10, when_full = 'oldest'", "when_full = \"refuse\"", "when_full = \"oldest\""),
            ("limit = 10, persistent = true", "persistent = false", "persistent = true"),
            ("limit = 10, value = 'bool'", "value = int", "value = bool"),
        ] {
            let file = write("another", more);
            let refused = scene.refusal(&load(&file, tier, "another"));
            let (one, other) = (format!("\"n\" has {one} in "), format!("one.lua, and {other} in "));
            assert!(refused.contains(&one) && refused.contains(&other), "{tier}: {refused}");
            assert!(!scene.sidestep(&["list"]).contains("another.lua"), "{tier}");
        }
        let another = write("another", "limit = 10");
        scene.sidestep(&load(&another, tier, "another"));
        assert_eq!(counts(), "4\n", "{tier}");
        write("one", "limit = 20");
        let refused = scene.refusal(&["reload", &one]);
        assert!(refused.contains("one.lua, and limit = 10 in"), "{tier}: {refused}");
        assert_eq!(counts(), "8\n", "{tier}");
        // Changed in both, it is a reload of both.
        write("another", "limit = 20");
        scene.sidestep(&["reload", &one]);
        assert_eq!(counts(), "12\n", "{tier}");
        scene.sidestep(&["unload", &one]);
        scene.sidestep(&["unload", &another]);
    }
}

/// What loads a file of state 7.
fn load<'w>(file: &'w str, tier: &'w str, function: &'w str) -> Vec<&'w str> {
    let at = "load --hook ingress --dev lan --state 7 --match".split(' ');
    at.chain(["icmpv6 type 128", file, "--tier", tier, "--function", function]).collect()
}
