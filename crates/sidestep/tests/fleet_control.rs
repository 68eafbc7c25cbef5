//! A fleet that is administered by commands: over a controller that runs, and with drafts that are signed elsewhere.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fleet::enrolment::Invitation;
use fleet::key::SigningKey;
use fleet::site::{Contact, Member, TunnelKey};
use mt6d::keys::PrivateKey;
use tempfile::TempDir;

/// A fleet in a folder, with its controller.
struct Fleet {
    folder: TempDir,
    at: String,
    controller: Option<Child>,
}

impl Fleet {
    fn new() -> Self {
        let free = TcpListener::bind("[::1]:0").unwrap();
        let at = free.local_addr().unwrap().to_string();
        drop(free);
        let mut fleet = Fleet { folder: tempfile::tempdir().unwrap(), at: at.clone(), controller: None };
        let told = fleet.done(&["init", "--outside", &at, "--administrator", "ada", "--key", "ada.key"]);
        assert!(told.contains("ada.key") && !told.contains("private"), "{told}");
        fleet.up();
        fleet
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep"));
        command.arg("control").args(arguments).current_dir(self.folder.path());
        // Who signs needs nothing but his key.
        if !matches!(arguments[0], "key" | "sign") {
            command.args(["--dir", "control"]);
        }
        command.stdin(Stdio::null());
        command
    }

    fn up(&mut self) {
        let log = fs::File::create(self.path("up.log")).unwrap();
        let mut command = self.command(&["up", "--listen", &self.at]);
        self.controller = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let begin = Instant::now();
        while !self.run(&["sites"]).status.success() {
            let log = fs::read_to_string(self.path("up.log")).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(60), "{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it prints, where it succeeds.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {why}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says, where it refuses.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// A site applies, as `sidestep enroll` does.
    fn apply(&self, invitation: &str, who: &str, number: u8) {
        let invitation: Invitation = invitation.parse().unwrap();
        let member = Member {
            name: who.parse().unwrap(),
            identity: identity(number).public(),
            role: invitation.terms.role.clone(),
            region: None,
            zone: None,
            standby: None,
            networks: vec![format!("fd00:{number:x}::/48").parse().unwrap()],
            may_take: Vec::new(),
            address: None,
            notices_after: 0,
            revoked: None,
        };
        let contact = Contact {
            key: TunnelKey(PrivateKey::from_bytes([number; 32]).public()),
            next_key: None,
            hop_prefix: format!("2001:db8:{number:x}::/64").parse().unwrap(),
        };
        let controller = &invitation.controllers[0];
        let client =
            controller::Client::new(controller.outside.as_deref().unwrap(), controller.certificate, None)
                .unwrap();
        let signed = invitation.apply(&identity(number), member, contact).unwrap();
        let applied = client.post::<fleet::enrolment::Status>(fleet::enrolment::APPLY, &signed);
        controller::block_on(applied).unwrap().unwrap();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(mut child) = self.controller.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn identity(number: u8) -> SigningKey {
    SigningKey::from_seed([number; 32])
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_site_is_invited_let_in_and_taken_out() {
    let fleet = Fleet::new();
    assert_eq!(mode(&fleet.path("ada.key")), 0o600);
    assert!(!fleet.path("control/ada.key").exists());
    let invitation = fleet.done(&["invite", "--site", "kiel", "--expires", "1h"]);
    assert_eq!(invitation.lines().count(), 1);
    fleet.apply(&invitation, "kiel", 2);
    assert!(fleet.done(&["applications"]).contains("kiel (spoke), waiting"));
    let unasked = fleet.refused(&["approve", "kiel", "--key", "ada.key"]);
    assert!(unasked.contains("nothing was signed"), "{unasked}");
    let shown = fleet.done(&["approve", "kiel", "--key", "ada.key", "--yes"]);
    assert!(shown.contains("+ site kiel") && shown.contains("published"), "{shown}");
    assert!(fleet.done(&["applications"]).contains("nobody waits"));
    let hub = fleet.done(&["invite", "--site", "hub", "--role", "hub"]);
    fleet.apply(&hub, "hub", 3);
    let shown = fleet.done(&["approve", "--all", "--key", "ada.key", "--yes"]);
    assert!(shown.contains("at the gateway of kiel: +peer hub +network fd00:3::/48"), "{shown}");
    assert!(fleet.done(&["sites", "kiel"]).contains("peer hub: fd00:3::/48"));
    let shown = fleet.done(&["revoke", "kiel", "--key", "ada.key", "--yes"]);
    assert!(shown.contains("- site kiel (revoked)") && shown.contains("-peer kiel"), "{shown}");
    let log = fleet.done(&["log"]);
    let head = log.lines().last().unwrap().strip_prefix("head ").unwrap();
    fleet.done(&["log", "--noted", head]);
    let (number, _) = head.split_once(':').unwrap();
    let other = format!("{number}:{}", fleet::key::Digest::of(b"another"));
    assert!(fleet.refused(&["log", "--noted", &other]).contains("written anew"));
}

#[test]
fn two_of_two_sign_on_machines_of_their_own() {
    let fleet = Fleet::new();
    let ben = fleet.done(&["key", "ben.key"]);
    let mut authority = fleet.done(&["authority"]).replace("threshold = 1", "threshold = 2");
    authority += &format!("[[administrators]]\nname = \"ben\"\nkey = \"{}\"\n", ben.trim());
    fs::write(fleet.path("authority.toml"), authority).unwrap();
    // Ada alone cannot: from then on both have to sign.
    let alone = fleet.refused(&["authority", "authority.toml", "--key", "ada.key", "--yes"]);
    assert!(alone.contains("1 administrators of version 2 have signed, 2 have to"), "{alone}");
    let draft = fleet.done(&["draft", "authority", "authority.toml"]);
    fs::write(fleet.path("draft"), draft).unwrap();
    assert!(fleet.refused(&["publish", "draft"]).contains("have signed"));
    assert!(fleet.done(&["sign", "draft", "--key", "ada.key", "--yes"]).contains("not enough yet"));
    assert!(fleet.done(&["sign", "draft", "--key", "ben.key", "--yes"]).contains("control publish"));
    fleet.done(&["key", "eve.key"]);
    assert!(
        fleet.refused(&["sign", "draft", "--key", "eve.key", "--yes"]).contains("no administrator's key")
    );
    fleet.done(&["publish", "draft"]);
    assert!(fleet.done(&["sites"]).contains("ada, ben may sign"));
    // A draft of before is overtaken.
    let policy = fleet.done(&["policy"]);
    fs::write(fleet.path("rules.toml"), policy.replace("keepalive = 25", "keepalive = 20")).unwrap();
    for name in ["one", "two"] {
        fs::write(fleet.path(name), fleet.done(&["draft", "policy", "rules.toml"])).unwrap();
        for key in ["ada.key", "ben.key"] {
            fleet.done(&["sign", name, "--key", key, "--yes"]);
        }
    }
    fleet.done(&["publish", "one"]);
    fleet.done(&["publish", "one"]);
    let policy = fleet.done(&["policy"]);
    assert!(policy.contains("keepalive = 20"), "{policy}");
}

#[test]
fn a_delegate_lets_in_within_its_limits() {
    let fleet = Fleet::new();
    let robot = fleet.done(&["key", "robot.key"]);
    let limits = "most = 1\nroles = [\"spoke\"]\nwithin = [\"fd00::/16\"]\n";
    let authority = fleet.done(&["authority"])
        + &format!("[[delegates]]\nname = \"robot\"\nkey = \"{}\"\n{limits}", robot.trim());
    fs::write(fleet.path("authority.toml"), authority).unwrap();
    fleet.done(&["authority", "authority.toml", "--key", "ada.key", "--yes"]);
    for (who, number) in [("kiel", 2), ("bonn", 3)] {
        fleet.apply(&fleet.done(&["invite", "--site", who]), who, number);
    }
    let why = fleet.refused(&["approve", "--all", "--delegate-key", "robot.key", "--yes"]);
    assert!(why.contains("it may add 1 sites with one document"), "{why}");
    assert_eq!(fleet.done(&["sites"]).matches("hops in").count(), 1);
    let why = fleet.refused(&["revoke", "kiel", "--delegate-key", "robot.key", "--yes"]);
    assert!(why.contains("it may not take sites out"), "{why}");
    let sites = fleet.done(&["sites"]);
    let added = if sites.contains("kiel") { "kiel" } else { "bonn" };
    let why = fleet.refused(&["revoke", added, "--remove", "--key", "ada.key", "--yes"]);
    assert!(why.contains("a delegate has let"), "{why}");
    // What it has added stands in the next document.
    fleet.done(&["approve", "--all", "--key", "ada.key", "--yes"]);
    assert_eq!(fleet.done(&["sites"]).matches("hops in").count(), 2);
    // Whoever is taken out is not let in again with all that wait, as none does.
    fleet.done(&["revoke", "kiel", "--key", "ada.key", "--yes"]);
    fleet.done(&["revoke", "bonn", "--remove", "--key", "ada.key", "--yes"]);
    for key in [["--key", "ada.key"], ["--delegate-key", "robot.key"]] {
        let why = fleet.refused(&["approve", "--all", key[0], key[1], "--yes"]);
        assert!(why.contains("no such application waits"), "{why}");
    }
    fleet.done(&["revoke", "kiel", "--remove", "--key", "ada.key", "--yes"]);
    fleet.refused(&["approve", "--all", "--key", "ada.key", "--yes"]);
}

#[test]
fn a_controller_is_lost_and_comes_back() {
    let mut fleet = Fleet::new();
    fleet.apply(&fleet.done(&["invite", "--site", "kiel"]), "kiel", 2);
    fleet.done(&["approve", "kiel", "--key", "ada.key", "--yes"]);
    fs::write(fleet.path("fleet.backup"), fleet.done(&["backup"])).unwrap();
    assert!(fleet.refused(&["restore", "fleet.backup"]).contains("has a network"));
    if let Some(mut child) = fleet.controller.take() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(fleet.refused(&["sites"]).contains("cannot be reached"));
    for name in ["control.db", "control.db-wal", "control.db-shm"] {
        let _ = fs::remove_file(fleet.path("control").join(name));
    }
    assert!(fleet.refused(&["up", "--listen", "[::1]:0"]).contains("no network in this store"));
    assert!(fleet.done(&["restore", "fleet.backup"]).contains("document 2, 1 sites"));
    fleet.up();
    assert!(fleet.done(&["sites"]).contains("kiel"));
}

#[test]
fn what_is_wrong_is_said() {
    let fleet = Fleet::new();
    let said = |arguments: &[&str], what: &str| {
        let why = fleet.refused(arguments);
        assert!(why.contains(what), "{arguments:?}: {why}");
    };
    fs::write(fleet.path("nonsense"), "nonsense").unwrap();
    fs::write(fleet.path("empty.toml"), "").unwrap();
    said(&["init", "--outside", "[::1]:1"], "there is a fleet already");
    said(&["approve", "nobody", "--key", "ada.key"], "no such application waits");
    said(&["revoke", "nobody", "--key", "ada.key"], "there is no site nobody");
    said(&["policy", "nonsense", "--key", "ada.key"], "nonsense");
    said(&["policy", "empty.toml", "--key", "ada.key"], "no [[controller]]");
    said(&["authority", "empty.toml", "--key", "ada.key"], "missing field");
    said(&["sign", "nonsense", "--key", "ada.key"], "no draft");
    said(&["restore", "nonsense", "--store", "new.db"], "no backup");
    said(&["invite", "--site", "kiel", "--expires", "90days"], "30 days");
    said(&["token", "remove", "nobody"], "token of nobody");
    said(&["sites", "nobody"], "there is no site nobody");
    fs::write(fleet.path("rules.toml"), fleet.done(&["policy"])).unwrap();
    said(&["policy", "rules.toml"], "there is no key");
    said(&["policy", "rules.toml", "--key", "nonsense"], "can be read by others");
    // A viewer looks, and does no more.
    let token = fleet.done(&["token", "add", "vera", "--role", "viewer"]);
    fs::write(fleet.path("control/access"), token).unwrap();
    fleet.done(&["sites"]);
    said(&["invite", "--site", "kiel"], "vera is only a viewer: that takes inviter");
}
