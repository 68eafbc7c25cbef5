//! `sidestep firewall apply`, `confirm`, `show` and `remove` in a namespace of their own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use lab::namespaces::Namespace;
use lab::patience::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ZONES: &str = "[[zone]]\nname = \"lan\"\ntrust = \"inside\"\ninterfaces = [\"eth1\"]\n";

struct Machine {
    namespace: Namespace,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Ends a guard that still waits, too.
        let _ = self.namespace.delete();
    }
}

impl Machine {
    fn new() -> Option<Self> {
        let program = crate::program(&[])?;
        let namespace = Namespace::named(lab::prefix::unique());
        namespace.create().expect("a namespace");
        let folder = tempfile::tempdir().expect("a folder");
        Some(Machine { namespace, folder, program })
    }

    fn try_firewall(&self, words: &[&str]) -> Output {
        let mut command = self.namespace.command(&self.program).expect("the namespace");
        // A program of the folder goes before those of the system.
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").expect("a path"));
        command.arg("firewall").args(words).current_dir(&self.folder).env("PATH", path);
        command.stdin(Stdio::null()).output().expect("the program")
    }

    fn firewall(&self, words: &[&str]) -> String {
        let output = self.try_firewall(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Writes a file whose only rule lets this port in.
    fn file(&self, port: u16) -> String {
        let name = format!("{port}.toml");
        let rule = format!("[[firewall.rule]]\nservice = \"tcp/{port}\"\naction = \"accept\"\n");
        std::fs::write(self.folder.path().join(&name), format!("{ZONES}{rule}")).expect("a file");
        name
    }

    fn nft(&self, words: &[&str]) -> String {
        let mut command = self.namespace.command("nft").expect("the namespace");
        let output = command.args(words).output().expect("nft");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The port that the table lets in.
    fn port(&self) -> Option<String> {
        let listing = self.nft(&["-n", "list", "chain", "inet", "sidestep-firewall", "rules-1"]);
        Some(listing.split_once("dport ")?.1.split_whitespace().next()?.to_owned())
    }

    fn wait_for_port(&self, port: Option<&str>) {
        wait_until(&format!("port {port:?}"), || self.port().as_deref() == port);
    }
}

/// A list of mixed lengths has sets and chains of its own: they go with it, and come back with it.
#[test]
fn a_list_of_prefixes_goes_and_comes_back_as_a_whole() {
    let Some(machine) = Machine::new() else { return };
    let sources: Vec<String> = (20..50).map(|length| format!("\"2a0{}::/{length}\"", length % 10)).collect();
    let list = format!(
        "{ZONES}[[firewall.rule]]\nsource = [{}]\nservice = [\"tcp/22\", \"udp/500-520\"]\naction = \"accept\"\n",
        sources.join(", ")
    );
    std::fs::write(machine.folder.path().join("list.toml"), list).expect("a file");
    let other = machine.file(1001);
    let has_list = || machine.nft(&["list", "sets"]).contains("near-");
    let elements =
        || machine.nft(&["list", "table", "inet", "sidestep-firewall"]).matches("comment \"r1\"").count();

    machine.firewall(&["apply", "list.toml"]);
    let before = elements();
    assert!(has_list() && before >= 20, "{before} elements");
    machine.firewall(&["apply", "list.toml"]);
    assert_eq!((has_list(), elements()), (true, before), "in the place of itself");
    machine.firewall(&["apply", &other]);
    assert_eq!((has_list(), elements()), (false, 1));

    machine.firewall(&["apply", "list.toml"]);
    machine.firewall(&["apply", &other, "--confirm", "300ms"]);
    assert!(!has_list());
    wait_until("the list", has_list);
    assert_eq!(elements(), before);
}

#[test]
fn a_change_that_nobody_confirms_is_undone() {
    let Some(machine) = Machine::new() else { return };
    machine.nft(&["add", "table", "inet", "foreign"]);
    let (first, second) = (machine.file(1001), machine.file(1002));
    machine.firewall(&["apply", &first, "--confirm", "200ms"]);
    machine.wait_for_port(None);
    let late = machine.try_firewall(&["confirm"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&late.stderr).contains("nothing awaits confirmation"));

    machine.firewall(&["apply", &first]);
    machine.firewall(&["apply", &second, "--confirm", "1s"]);
    assert_eq!(machine.port().as_deref(), Some("1002"));
    let meanwhile = machine.try_firewall(&["apply", &first]);
    assert!(String::from_utf8_lossy(&meanwhile.stderr).contains("a change awaits confirmation"));
    machine.wait_for_port(Some("1001"));

    machine.firewall(&["apply", &second, "--confirm", "1s"]);
    machine.firewall(&["confirm"]);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(machine.port().as_deref(), Some("1002"));
    // Its guard wakes up while another change waits, which is none of its business.
    machine.firewall(&["apply", &first, "--confirm", "1s"]);
    machine.firewall(&["confirm"]);
    machine.firewall(&["apply", &second, "--confirm", "60s"]);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(machine.port().as_deref(), Some("1002"));
    machine.firewall(&["confirm"]);
    machine.firewall(&["remove"]);
    assert_eq!(machine.nft(&["list", "tables"]), "table inet foreign\n");
}

/// On a slow machine `nft` takes longer than the time to confirm: the new table does not come after the one that is restored.
#[test]
fn a_change_that_takes_longer_than_its_confirmation_is_undone_too() {
    let Some(machine) = Machine::new() else { return };
    let nft = lab::command::find("nft").expect("nft");
    let path = machine.folder.path().join("nft");
    // Slow once: the guard's own is not.
    let slow = format!(
        "#!/bin/sh\nif [ \"$1\" = -f ] && mkdir {}.once; then sleep 1; fi\nexec {} \"$@\"\n",
        path.display(),
        nft.display()
    );
    std::fs::write(&path, slow).expect("a program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let file = machine.file(1001);
    machine.firewall(&["apply", &file, "--confirm", "100ms"]);
    machine.wait_for_port(None);
}

#[test]
fn a_guard_that_is_killed_leaves_the_change_and_says_so() {
    let Some(machine) = Machine::new() else { return };
    let (first, second) = (machine.file(1001), machine.file(1002));
    machine.firewall(&["apply", &first, "--confirm", "60s"]);
    let guards = machine.namespace.processes();
    assert_eq!(guards.len(), 1);
    kill(guards[0], Signal::SIGKILL).expect("the guard");
    wait_until_gone(guards[0]);
    assert!(machine.firewall(&["confirm"]).contains("the process that guards this change was killed"));
    machine.firewall(&["apply", &second]);
    assert_eq!(machine.port().as_deref(), Some("1002"));
}

fn wait_until_gone(process: Pid) {
    let limit = Instant::now() + Duration::from_secs(10);
    let state = || std::fs::read_to_string(format!("/proc/{process}/stat"));
    while state().is_ok_and(|state| !state.contains(") Z ")) {
        assert!(Instant::now() < limit, "the guard does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn counters_are_shown_by_rule_and_base_chains_stay() {
    let Some(machine) = Machine::new() else { return };
    let file = machine.file(1001);
    machine.firewall(&["apply", &file]);
    let handle = |machine: &Machine| {
        let chains = machine.nft(&["-a", "list", "chain", "inet", "sidestep-firewall", "input"]);
        chains.lines().find(|line| line.contains("chain input")).map(str::to_owned)
    };
    let before = handle(&machine);
    machine.firewall(&["apply", &file]);
    assert_eq!(handle(&machine), before, "with a base chain, what waits in queues would be dropped");
    let shown: serde_json::Value =
        serde_json::from_str(&machine.firewall(&["show", &file, "--json"])).expect("JSON");
    assert_eq!(shown["rules"][0]["number"], 1);
    assert_eq!((&shown["rules"][0]["packets"], &shown["rules"][0]["action"]), (&0.into(), &"accept".into()));
    let other = machine.try_firewall(&["show", &machine.file(1002)]);
    assert_eq!(other.status.code(), Some(1), "counters of rules that are not in force");
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(said.contains("`sidestep firewall apply 1002.toml`"), "{said}");
    machine.firewall(&["show"]);
}
