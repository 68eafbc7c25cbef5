//! A gateway set up by commands, and what they leave where something is in the way. Nothing runs here; sessions are tried in
//! crates/acceptance.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What `sidestep` says to these arguments and this input, and what it writes goes to `out`.
fn sidestep_to(out: Stdio, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sidestep"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(out)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input may be gone before it is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What it prints, where it succeeds.
fn sidestep(arguments: &[&str]) -> String {
    let output = sidestep_to(Stdio::piped(), arguments, "");
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says, where it refuses.
fn refused(arguments: &[&str]) -> String {
    let output = sidestep_to(Stdio::piped(), arguments, "");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    stderr(&output)
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A folder for configurations, of tunnels that do not run.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Site {
        Site(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn init(&self, tunnel: &str) -> String {
        let words = ["init", "--tunnel", tunnel, "--external", "lo", "--hop-prefix", "2001:db8:a1::/64"];
        sidestep(&[&words[..], &["--address", "2001:db8:a::1", "--folder", &self.path("")]].concat())
    }

    /// The words of `init` with these of its options.
    fn init_with(&self, external: &str, hop_prefix: &str) -> String {
        refused(&["init", "--external", external, "--hop-prefix", hop_prefix, "--folder", &self.path("")])
    }

    /// The words that invite a site whose prefix and network have this letter.
    fn invite(config: &str, letter: char) -> Vec<String> {
        let prefixes = [format!("2001:db8:{letter}1::/64"), format!("2001:db8:{letter}::/64")];
        let name = format!("site-{letter}");
        let words =
            ["invite", &name, "--hop-prefix", &prefixes[0], "--allowed", &prefixes[1], "--as", "site-a"];
        let more = ["--own", "2001:db8:a::/64", "--config", config];
        words.iter().chain(&more).map(|word| (*word).to_owned()).collect()
    }

    fn peers(&self, config: &str) -> Vec<String> {
        let list = sidestep(&["peer", "list", "--config", config]);
        list.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn two_tunnels_in_one_folder_have_peers_of_their_own() {
    let site = Site::new();
    let [one, other] = ["pt-one.toml", "pt-two.toml"].map(|file| site.path(file));
    site.init("pt-one");
    sidestep(&words(&Site::invite(&one, 'b')));
    site.init("pt-two");
    assert_eq!(site.peers(&one), ["site-b"]);
    assert_eq!(site.peers(&other), [""; 0]);
    sidestep(&words(&Site::invite(&other, 'b')));
    sidestep(&["peer", "remove", "site-b", "--config", &one]);
    assert_eq!((site.peers(&one).len(), site.peers(&other).len()), (0, 1));
}

#[test]
fn a_folder_that_two_files_share_stays_where_it_is_written() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("pt-one.d/", "conf.d/")).unwrap();
    sidestep(&words(&Site::invite(&config, 'b')));
    assert!(Path::new(&site.path("conf.d/site-b.toml")).exists());
    assert_eq!(site.peers(&config), ["site-b"]);
}

#[test]
fn a_peer_that_two_add_at_once_is_the_one_of_one_of_them() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    let keys: Vec<String> = (0..8).map(|_| public_key()).collect();
    let adders = keys.iter().map(|key| {
        let words = ["peer", "add", "site-b", "--public-key", key, "--hop-prefix", "2001:db8:b1::/64"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep"));
        command.args(words).args(["--allowed", "2001:db8:b::/64", "--config", &config]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    // All begin before the first is waited for.
    let adders: Vec<_> = adders.collect();
    let added = adders.into_iter().map(|mut adder| adder.wait().unwrap().success());
    let added: Vec<bool> = added.collect();
    assert_eq!(added.iter().filter(|added| **added).count(), 1, "{added:?}");
    let text = fs::read_to_string(site.path("pt-one.d/site-b.toml")).unwrap();
    let first = added.iter().position(|added| *added).unwrap();
    assert!(text.contains(&keys[first]), "{text}");
    assert_eq!(fs::read_dir(site.path("pt-one.d")).unwrap().count(), 1);
}

#[test]
fn who_was_not_named_is_not_removed() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    for letter in ['b', 'c'] {
        sidestep(&words(&Site::invite(&config, letter)));
    }
    let [b, c] = ["site-b", "site-c"].map(|name| site.path(&format!("pt-one.d/{name}.toml")));
    let [of_b, of_c] = [&b, &c].map(|file| fs::read_to_string(file).unwrap());
    // Somebody has put both into one file, or has given each the other's name.
    let both = format!("{of_b}{}", of_c.split_once('\n').unwrap().1);
    for (b_has, c_has) in [(both.as_str(), ""), (&of_c, &of_b)] {
        fs::write(&b, b_has).unwrap();
        fs::write(&c, c_has).unwrap();
        let said = refused(&["peer", "remove", "site-b", "--config", &config]);
        assert!(said.contains("pt-one.d/site-b.toml"), "{said}");
        assert_eq!(site.peers(&config).len(), 2);
        assert_eq!(fs::read_to_string(&b).unwrap(), b_has);
    }
    fs::write(&b, &of_b).unwrap();
    fs::write(&c, &of_c).unwrap();
    sidestep(&["peer", "remove", "site-b", "--config", &config]);
    assert_eq!(site.peers(&config), ["site-c"]);
}

#[test]
fn what_is_wrapped_is_removed_only_where_the_rest_is_valid_without_it() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    sidestep(&words(&Site::invite(&config, 'b')));
    sidestep(&["wrap", "wg7", "--peer", "site-b", "--config", &config]);
    let [peer, wrap] = ["site-b", "wrap-wg7"].map(|name| site.path(&format!("pt-one.d/{name}.toml")));
    let text = fs::read_to_string(&peer).unwrap();
    fs::write(&peer, format!("{text}carry = \"mask\"\n")).unwrap();
    let remove = ["wrap", "wg7", "--remove", "--config", &config];
    let said = refused(&remove);
    assert!(said.contains("nothing says which packets"), "{said}");
    assert_eq!(fs::read_dir(site.path("pt-one.d")).unwrap().count(), 2);
    assert_eq!(site.peers(&config), ["site-b"]);

    fs::write(&peer, text).unwrap();
    sidestep(&remove);
    assert!(!Path::new(&wrap).exists());
    assert_eq!(fs::read_dir(site.path("pt-one.d")).unwrap().count(), 1);
}

#[test]
fn an_invitation_that_cannot_be_written_leaves_no_peer() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    let invite = Site::invite(&config, 'b');
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let nobody = || Stdio::from(std::io::pipe().unwrap().1);
    for (out, why) in
        [(full(), "No space left"), (nobody(), "nobody reads it"), (Stdio::null(), "nobody would read")]
    {
        let output = sidestep_to(out, &words(&invite), "");
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert_eq!(site.peers(&config), [""; 0], "{why}");
    }
    // Nothing is in the way of another try, here into a file that others may read.
    let open = fs::File::create(site.path("invitation.txt")).unwrap();
    open.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    let output = sidestep_to(Stdio::from(open), &words(&invite), "");
    assert!(stderr(&output).contains("others can read the file"), "{}", stderr(&output));
    assert_eq!(site.peers(&config), ["site-b"]);
}

#[test]
fn a_site_joins_with_what_was_written() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    let written = sidestep(&words(&Site::invite(&config, 'b')));
    // The key is on the line to paste, not on the one to run.
    assert!(written.contains("\n    sidestep join -\n\nsidestep1-"), "{written}");
    let of_b = ["join", "-", "--tunnel", "pt-two", "--external", "lo", "--folder", &site.path("b")];
    let output = sidestep_to(Stdio::piped(), &of_b, &written);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(site.peers(&site.path("b/pt-two.toml")), ["site-a"]);
    let output = sidestep_to(Stdio::piped(), &of_b, "Dear colleague,\n\nI have lost it.\n");
    assert!(stderr(&output).contains("this is no invitation"), "{}", stderr(&output));
}

fn public_key() -> String {
    let public = sidestep_to(Stdio::piped(), &["pubkey"], &sidestep(&["genkey"]));
    String::from_utf8(public.stdout).unwrap().trim().to_owned()
}

/// An invitation that is whole, and says something else than the one that it was: what these fields have now.
fn forged(written: &str, fields: &[(&str, Value)]) -> String {
    let text = written.lines().find_map(|line| line.strip_prefix("sidestep1-")).unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
    let mut document: Value = serde_json::from_slice(&bytes[..bytes.len() - 4]).unwrap();
    for (name, value) in fields {
        assert!(document[name] != Value::Null, "{name}");
        document[name] = value.clone();
    }
    let mut bytes = serde_json::to_vec(&document).unwrap();
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum[..4]);
    format!("sidestep1-{}", URL_SAFE_NO_PAD.encode(bytes))
}

#[test]
fn what_an_invitation_says_is_told_before_it_is_trusted() {
    let site = Site::new();
    site.init("pt-one");
    let written = sidestep(&words(&Site::invite(&site.path("pt-one.toml"), 'b')));
    let join = |fields: &[(&str, Value)], more: &[&str]| {
        let words = ["join", "-", "--tunnel", "pt-two", "--external", "lo", "--folder", &site.path("b")];
        sidestep_to(Stdio::piped(), &[&words[..], more].concat(), &forged(&written, fields))
    };
    // Names that a terminal would obey, or that leave the folder.
    for name in ["b\u{1b}[2Jc", "b\nStart it", "../b", "", "b\u{9b}1m"] {
        for field in ["name", "peer"] {
            let output = join(&[(field, name.into())], &[]);
            assert_eq!(output.status.code(), Some(1), "{field} {name:?}");
            let said = [output.stdout.clone(), output.stderr.clone()].concat();
            assert!(!said.contains(&0x1b), "{field}: {}", stderr(&output));
            assert!(stderr(&output).contains("is no name for a file"), "{}", stderr(&output));
            assert!(!Path::new(&site.path("b")).exists(), "{field} {name:?}");
        }
    }
    // A prefix that this machine is in.
    let own = [("hop_prefix", Value::from("::/96"))];
    let said = stderr(&join(&own, &[]));
    assert!(said.contains("which is ::1 at lo") && said.contains("--on-link"), "{said}");
    assert!(!Path::new(&site.path("b")).exists());
    // All that goes into the tunnel, also where it is more than one thought.
    let all = ["2001:db8:a::/64", "::/0", "0.0.0.0/0"];
    let output = join(&[("peer_networks", all[..].into())], &["--on-link"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("Packets for {} go to site-a", all.join(", "))), "{said}");
    assert!(said.contains("change the key"), "{said}");
    assert!(fs::read_to_string(site.path("b/pt-two.toml")).unwrap().contains("\non_link          = true\n"));
}

#[test]
fn an_invitation_is_told_before_a_daemon_is_waited_for_and_says_what_is_behind_the_site() {
    let site = Site::new();
    site.init("pt-one");
    let written = sidestep(&words(&Site::invite(&site.path("pt-one.toml"), 'b')));
    let [behind, invitation, added] =
        ["behind site-a are 2001:db8:a::/64.", "\nsidestep1-", "site-b is added"]
            .map(|part| written.find(part).unwrap_or_else(|| panic!("{part}: {written}")));
    assert!(behind < invitation && invitation < added, "{written}");
}

#[test]
fn nobody_is_invited_who_could_not_join() {
    let site = Site::new();
    site.init("pt-one");
    let config = site.path("pt-one.toml");
    for (own, why) in [
        ("2001:db8:a::1/64", "2001:db8:a::/64"),
        ("2001:db8:a1::/64", "hopping prefix"),
        ("2001:db8:a1:0:8000::/65", "hopping prefix"),
        ("2001:db8:b1::/64", "hop"),
        ("fe80::/64", "link-local"),
    ] {
        let mut invite = Site::invite(&config, 'b');
        let at = invite.iter().position(|word| word == "--own").unwrap();
        invite[at + 1] = own.to_owned();
        let said = refused(&words(&invite));
        assert!(
            said.contains("site-b could not join: nothing is added") && said.contains(why),
            "{own}: {said}"
        );
        assert_eq!(site.peers(&config), [""; 0], "{own}");
    }
}

#[test]
fn init_refuses_what_cannot_work_on_this_machine_and_writes_nothing() {
    let site = Site::new();
    let said = site.init_with("nowhere0", "2001:db8:a1::/64");
    assert!(said.contains("there is no interface nowhere0: there are lo"), "{said}");
    let said = site.init_with("lo", "::/96");
    assert!(said.contains("is a network of this machine, which is ::1 at lo"), "{said}");
    assert_eq!(fs::read_dir(site.path("")).unwrap().count(), 0);
}
