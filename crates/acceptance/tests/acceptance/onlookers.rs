//! Members of a group may look at tunnels, gateways and scripts, and change nothing; others may not even look.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use lab::namespaces::Namespace;
use lab::patience::wait_until;
use lab::process::Process;
use lab::{Lab, Node, Site};
use serde_json::Value;

use crate::promises::scene::lab;

/// Groups by number: that there is a name for them does not matter.
const GROUP: u32 = 64_042;
const OTHERS: u32 = 64_043;
const READERS: &str = "/run/sidestep-read";

/// The folder that the package makes.
fn folder_of_readers() {
    std::fs::create_dir_all(READERS).expect("a folder");
    chown(READERS, Some(0), Some(GROUP)).expect("its group");
    std::fs::set_permissions(READERS, std::fs::Permissions::from_mode(0o2750)).expect("its mode");
}

/// The program, run at gateway A by a user without privileges who is in a group.
fn as_member(lab: &Lab, group: u32, arguments: &[&str]) -> Output {
    run(&lab.namespace(Node::GatewayA), lab.program(), group, arguments)
}

fn run(namespace: &Namespace, program: &Path, group: u32, arguments: &[&str]) -> Output {
    let mut command = namespace.command("setpriv").expect("the namespace");
    command.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--groups",
        &group.to_string(),
        "--inh-caps=-all",
        "--",
    ]);
    command.arg(program).args(arguments).output().expect("a command that starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Mode and group of a socket.
fn access(path: &Path) -> (u32, u32) {
    let metadata = path.metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (metadata.mode() & 0o777, metadata.gid())
}

#[test]
fn a_group_may_look_and_change_nothing() {
    if crate::program(&["setpriv"]).is_none() {
        return;
    }
    let Some(builder) = lab() else { return };
    let mut lab = builder.build().expect("a lab");
    folder_of_readers();
    lab.start().expect("a tunnel");
    let tunnel = lab.gateway(Site::A).tunnel().to_owned();
    let own = Path::new("/run/sidestep").join(format!("{tunnel}.sock"));
    let look = Path::new(READERS).join(format!("{tunnel}.sock"));
    let tell = |after: &str| {
        assert_eq!(access(&look), (0o660, GROUP), "{after}");
        assert_eq!(access(&own), (0o600, 0), "{after}");
    };
    tell("the start");

    let shown = as_member(&lab, GROUP, &["show", &tunnel, "--json"]);
    let status: Value =
        serde_json::from_slice(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&shown)));
    assert_eq!(status["peers"][0]["state"], "established");
    assert!(!said(&shown).contains("private"), "{}", said(&shown));
    let events = as_member(&lab, GROUP, &["events", &tunnel]);
    assert!(events.status.success() && said(&events).contains("tunnel_up"), "{}", said(&events));

    for change in [
        &["reload", &tunnel][..],
        &["reload", &tunnel, "--confirm", "10s"],
        &["confirm", &tunnel],
        &["down", &tunnel],
        &["down", &tunnel, "--open"],
    ] {
        let refused = as_member(&lab, GROUP, change);
        assert!(!refused.status.success(), "{change:?}: {}", said(&refused));
        assert!(said(&refused).contains("may look and change nothing"), "{change:?}: {}", said(&refused));
    }
    assert!(as_member(&lab, GROUP, &["show", &tunnel]).status.success());
    for look_on in [&["show", &tunnel][..], &["events", &tunnel], &["show"], &["events"]] {
        let refused = as_member(&lab, OTHERS, look_on);
        assert!(!refused.status.success(), "{look_on:?}: {}", said(&refused));
    }

    // Whatever becomes of the daemon.
    lab.gateway_a().signal(nix::sys::signal::Signal::SIGHUP);
    wait_until("the configuration is read again", || {
        said(&as_member(&lab, GROUP, &["events", &tunnel])).contains("reloaded")
    });
    tell("a reload");
    let configuration = lab.gateway_a().configuration().display().to_string();
    let program = lab.program().to_string_lossy().into_owned();
    let second = lab.exec(Node::GatewayA, [&program, "up", &configuration]).expect("a command that starts");
    assert!(!second.status.success(), "{}", said(&second));
    tell("a second copy");
    lab.gateway_a().kill();
    assert!(said(&as_member(&lab, GROUP, &["show", &tunnel])).contains("is not running"));
    lab.gateway_a().start().expect("gateway A");
    tell("a crash");
    assert!(as_member(&lab, GROUP, &["show", &tunnel]).status.success());
    lab.gateway_a().stop();
    assert!(!look.exists() && !own.exists());

    // Where there is no such group, root alone may ask.
    std::fs::remove_dir_all(READERS).expect("no folder");
    lab.gateway_a().start().expect("gateway A");
    assert!(!look.exists());
    assert!(!as_member(&lab, GROUP, &["show", &tunnel]).status.success());
    assert!(lab.show(Site::A).is_ok());
}

/// What runs beside tunnels: a gateway, and the host of packet scripts.
#[test]
fn the_group_sees_a_gateway_and_scripts_too() {
    let Some(program) = crate::program(&["setpriv"]) else { return };
    let node = Namespace::named(lab::prefix::unique());
    node.create().expect("a namespace");
    node.ip("link add home type veth peer name away\nlink set home up\nlink set away up\n").expect("a link");
    folder_of_readers();
    let folder = tempfile::tempdir().expect("a folder");
    let (file, script) = (folder.path().join("home.toml"), folder.path().join("all.lua"));
    std::fs::write(
        &file,
        "[[network]]\nname = \"home\"\ninterface = \"home\"\nprefixes = [\"fd00:1::/64\"]\n",
    )
    .expect("a configuration");
    std::fs::write(&script, "function all(p) return NF_ACCEPT end\n").expect("a script");
    let mut up = node.command(&program).expect("the namespace");
    up.arg("up").arg(&file).arg("--state-dir").arg(folder.path().join("state"));
    let gateway = Process::start(&mut up, &folder.path().join("log")).expect("a gateway");
    let member = |arguments: &[&str]| run(&node, &program, GROUP, arguments);
    wait_until("the group sees the gateway", || said(&member(&["status"])).contains("fd00:1::/64"));
    let path = script.display().to_string();
    let load = ["script", "load", &path, "--hook", "input", "--function", "all", "--tier", "user"];
    let by_root = node.command(&program).expect("the namespace").args(load).output().expect("a command");
    assert!(by_root.status.success(), "{}", said(&by_root));

    let list = member(&["script", "list"]);
    assert!(said(&list).contains("all.lua"), "{}", said(&list));
    assert!(member(&["script", "logs"]).status.success());
    let events = member(&["events"]);
    assert!(
        said(&events).contains("gateway_up") && said(&events).contains("script_loaded"),
        "{}",
        said(&events)
    );
    for change in [
        &["reload", "gateway"][..],
        &["confirm", "gateway"],
        &load,
        &["script", "unload", "1"],
        &["script", "reload", "1"],
        &["script", "trace", "1"],
    ] {
        let refused = member(change);
        assert!(!refused.status.success(), "{change:?}: {}", said(&refused));
        assert!(said(&refused).contains("may look and change nothing"), "{change:?}: {}", said(&refused));
    }
    assert!(!run(&node, &program, OTHERS, &["status"]).status.success());
    assert!(said(&member(&["script", "list"])).contains("all.lua"));
    assert!(
        node.command(&program)
            .expect("the namespace")
            .args(["script", "unload", "1"])
            .status()
            .expect("a command")
            .success()
    );
    assert!(gateway.stop(Duration::from_secs(30)).success());
    node.delete().expect("no namespace");
}
