//! The program as a user meets it: commands, exit status, messages.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn sidestep(arguments: &[&str]) -> Output {
    sidestep_in(Path::new("."), arguments, "")
}

fn sidestep_in(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sidestep"))
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read its input may be gone before it is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A folder with the configurations of the examples, at an interface that each machine has, and keys for them.
fn examples() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for site in ["site-a", "site-b"] {
        let text = fs::read_to_string(source.join(format!("{site}.toml"))).unwrap();
        let file = folder.path().join(format!("{site}.toml"));
        fs::write(file, text.replace("external = \"eth0\"", "external = \"lo\"")).unwrap();
        write_secret(&folder.path().join(format!("{site}.key")), &stdout(&sidestep(&["genkey"])));
    }
    folder
}

fn write_secret(path: &Path, secret: &str) {
    fs::write(path, secret).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn keys_are_those_of_wireguard() {
    let private = stdout(&sidestep(&["genkey"]));
    assert_eq!(private.len(), 45);
    assert_ne!(private, stdout(&sidestep(&["genkey"])));
    assert_eq!(stdout(&sidestep(&["genpsk"])).len(), 45);
    // RFC 7748 section 6.1: Alice's pair, in base64.
    let alice = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n";
    let public = stdout(&sidestep_in(Path::new("."), &["pubkey"], alice));
    assert_eq!(public, "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n");
    let wrong = sidestep_in(Path::new("."), &["pubkey"], "nonsense\n");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).starts_with("sidestep: standard input is not a key"), "{}", stderr(&wrong));
}

#[test]
fn usage_errors_have_status_2_and_help_has_examples() {
    assert_eq!(sidestep(&["shoe"]).status.code(), Some(2));
    assert_eq!(sidestep(&["show", "--josn"]).status.code(), Some(2));
    assert!(stdout(&sidestep(&["--version"])).starts_with("sidestep "));
    for command in [
        "genkey",
        "pubkey",
        "genpsk",
        "check",
        "up",
        "reload",
        "confirm",
        "show",
        "endpoints",
        "completions",
        "man",
    ] {
        let help = stdout(&sidestep(&[command, "--help"]));
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
}

#[test]
fn the_laboratory_is_said_to_be_a_program_of_its_own() {
    let gone = sidestep(&["lab", "exec", "ha", "--help", "--", "ping", "-c", "3"]);
    assert_eq!(gone.status.code(), Some(1));
    assert_eq!(stderr(&gone).lines().count(), 1);
    assert!(stderr(&gone).contains("sidestep-lab"), "{}", stderr(&gone));
    let help = stdout(&sidestep(&["--help"]));
    assert!(!help.lines().any(|line| line.trim_start().starts_with("lab")), "{help}");
}

#[test]
fn the_examples_are_right() {
    let folder = examples();
    for site in ["site-a", "site-b"] {
        let file = format!("{site}.toml");
        let plan = stdout(&sidestep_in(folder.path(), &["check", &file], ""));
        assert!(plan.starts_with(&format!("{file} is valid")) && plan.contains("mt6d0"), "{plan}");
    }
}

#[test]
fn the_examples_of_ipsec_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for key in ["site-a-b", "ann", "bob", "sensor-1"] {
        write_secret(&folder.path().join(format!("{key}.psk")), &stdout(&sidestep(&["genpsk"])));
    }
    for name in ["site-a", "road-warrior", "gateway", "sensors"] {
        let file = format!("ipsec-{name}.toml");
        fs::copy(source.join(&file), folder.path().join(&file)).unwrap();
        let output = sidestep_in(folder.path(), &["check", &file], "");
        assert!(stdout(&output).starts_with(&format!("{file} is valid")), "{file}");
        assert_eq!(stderr(&output), "", "{file}");
    }
}

#[test]
fn a_missing_or_open_key_file_is_told_with_the_remedy() {
    let folder = examples();
    let key = folder.path().join("site-a.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let open = sidestep_in(folder.path(), &["check", "site-a.toml"], "");
    assert_eq!(open.status.code(), Some(1));
    assert!(stderr(&open).contains("chmod 600 site-a.key"), "{}", stderr(&open));
    fs::remove_file(&key).unwrap();
    let missing = sidestep_in(folder.path(), &["check", "site-a.toml"], "");
    assert!(stderr(&missing).contains("sidestep genkey > site-a.key"), "{}", stderr(&missing));
}

#[test]
fn a_copy_is_checked_with_the_files_of_the_folder_that_it_is_for() {
    let folder = examples();
    let text = fs::read_to_string(folder.path().join("site-a.toml")).unwrap();
    let piped = sidestep_in(folder.path(), &["check", "-"], &text);
    assert!(stdout(&piped).starts_with("standard input is valid"), "{}", stdout(&piped));
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy.toml");
    fs::write(&copy, &text).unwrap();
    let (copy, base) = (copy.to_str().unwrap(), folder.path().to_str().unwrap());
    assert!(stdout(&sidestep(&["check", "--base", base, copy])).contains("copy.toml is valid"));
    let alone = sidestep_in(elsewhere.path(), &["check", "copy.toml"], "");
    assert!(stderr(&alone).contains("no such file"), "{}", stderr(&alone));
    let piped = sidestep_in(elsewhere.path(), &["check", "--base", base, "-"], &text);
    assert!(stdout(&piped).starts_with("standard input is valid"));
    let wrong =
        sidestep_in(elsewhere.path(), &["check", "--base", base, "-"], "[node]\nexternl = \"eth0\"\n");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("standard input:2:1"), "{}", stderr(&wrong));
}

#[test]
fn secrets_in_a_file_that_others_can_read_are_warned_of() {
    let folder = examples();
    let file = folder.path().join("inline.toml");
    let secret = stdout(&sidestep(&["genkey"]));
    let text = fs::read_to_string(folder.path().join("site-a.toml")).unwrap();
    let from = "private_key_file = \"site-a.key\"";
    assert!(text.contains(from));
    let inline = text.replace(from, &format!("private_key = \"{}\"", secret.trim()));
    fs::write(&file, inline).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let warned = sidestep_in(folder.path(), &["check", "inline.toml"], "");
    assert!(warned.status.success());
    assert!(stderr(&warned).contains("chmod 600 inline.toml"), "{}", stderr(&warned));
    assert!(!stderr(&warned).contains(secret.trim()));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(stderr(&sidestep_in(folder.path(), &["check", "inline.toml"], "")), "");
}

#[test]
fn both_ends_agree_on_their_rendezvous_endpoints() {
    let folder = examples();
    for (site, other) in [("site-a", "site-b"), ("site-b", "site-a")] {
        let key = fs::read_to_string(folder.path().join(format!("{other}.key"))).unwrap();
        let public = stdout(&sidestep_in(Path::new("."), &["pubkey"], &key));
        let file = folder.path().join(format!("{site}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        let is_key = |line: &str| line.starts_with("public_key = ");
        let lines = text.lines().map(|line| {
            if is_key(line) { format!("public_key = \"{}\"\n", public.trim()) } else { format!("{line}\n") }
        });
        fs::write(&file, lines.collect::<String>()).unwrap();
    }
    let ask = |site: &str, other: &str| -> serde_json::Value {
        let file = format!("{site}.toml");
        let arguments =
            ["endpoints", &file, "--peer", other, "--at", "1700000000000", "--count", "3", "--json"];
        serde_json::from_str(&stdout(&sidestep_in(folder.path(), &arguments, ""))).unwrap()
    };
    let (a, b) = (ask("site-a", "site-b"), ask("site-b", "site-a"));
    let (a, b) = (a.as_array().unwrap(), b.as_array().unwrap());
    assert_eq!((a.len(), b.len()), (6, 6));
    for (at_a, at_b) in a.iter().zip(b) {
        assert_eq!(at_a["local"], at_b["remote"]);
        assert_eq!(at_a["remote"], at_b["local"]);
        assert_eq!(at_a["from_unix_ms"], at_b["from_unix_ms"]);
        assert!(at_a["local"]["address"].as_str().unwrap().starts_with("2001:db8:a1:"));
    }
    let nobody = sidestep_in(folder.path(), &["endpoints", "site-a.toml", "--peer", "x", "--at", "0"], "");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("there are: site-b"), "{}", stderr(&nobody));
}

#[test]
fn without_a_daemon_show_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    for command in ["show", "reload"] {
        let output = sidestep(&[command, "--socket", socket.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("is sidestep running"), "{}", stderr(&output));
    }
}

/// What else belongs to them is beside them, by their names but for the ending.
#[test]
fn daemons_listen_at_sockets_with_names_of_their_own() {
    for words in [&["up"][..], &["ipsec", "up"]] {
        for (socket, refused) in
            [("a.1", true), ("a.socket", true), ("/nowhere/a", false), ("/nowhere/a.1.sock", false)]
        {
            let said = stderr(&sidestep(&[words, &["nothing.toml", "--socket", socket]].concat()));
            assert_eq!(said.contains("a name that ends in .sock"), refused, "{said}");
        }
    }
}

#[test]
fn what_is_no_socket_was_not_killed_and_what_has_ended_says_what_it_keeps_closed() {
    let folder = tempfile::tempdir().unwrap();
    let status = |name: &str| {
        let socket = folder.path().join(name).display().to_string();
        stderr(&sidestep(&["ipsec", "status", "--socket", &socket]))
    };
    for name in ["file.sock", "ended.closed"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let told = status("file.sock");
    assert!(told.contains("file.sock is not a socket") && !told.contains("killed"), "{told}");
    let told = status("ended.sock");
    assert!(
        told.contains("what it carried is refused until") && told.contains("ended.sock --open`"),
        "{told}"
    );
    assert!(status("never.sock").contains("there is no socket"));
}

#[test]
fn a_file_without_an_end_is_not_read_for_ever() {
    for words in [["check", "/dev/zero"], ["up", "/dev/zero"]] {
        let told = stderr(&sidestep(&words));
        assert!(told.contains("cannot read /dev/zero: it has more than 16777216 bytes"), "{told}");
    }
}

#[test]
fn addresses_that_are_none_are_told_with_what_is_expected() {
    let ping = |address: &str, target: &str| {
        stderr(&sidestep(&["stack", "ping", "--dev", "tap0", "--address", address, target]))
    };
    assert!(ping("2001:db8::2", "::1").contains("with its prefix length, like 2001:db8::2/64"));
    assert!(ping("2001:db8::2/64", "www.example").contains("names are not looked up"));
    let fetched = sidestep(&["stack", "http", "--dev", "tap0", "http://[2001:db8::1]:0/"]);
    assert!(stderr(&fetched).contains("not a port: expected 1 to 65535"));
}

#[test]
fn interfaces_that_are_not_there_yet_are_told_by_check() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[uplink]]\ninterface = \"lo\"\n[[network]]\ninterface = \"later0\"\n";
    fs::write(folder.path().join("home.toml"), text).unwrap();
    let checked = sidestep_in(folder.path(), &["check", "home.toml"], "");
    let plan = String::from_utf8_lossy(&checked.stdout);
    assert!(plan.ends_with("\nThere is no interface later0 yet (`ip link` lists them).\n"), "{plan}");
    assert!(!plan.contains("no interface lo "), "{plan}");
    assert_eq!(checked.status.code(), Some(3));
    assert!(stderr(&checked).contains("`up` would refuse this here: network"), "{}", stderr(&checked));
}

#[test]
fn what_this_machine_would_refuse_has_an_exit_status_of_its_own() {
    let folder = examples();
    let file = folder.path().join("site-a.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("external = \"lo\"", "external = \"later0\"")).unwrap();
    let checked = sidestep_in(folder.path(), &["check", "site-a.toml"], "");
    assert_eq!(checked.status.code(), Some(3), "{}", stderr(&checked));
    assert!(
        stderr(&checked).contains("external = \"later0\": there is no such interface"),
        "{}",
        stderr(&checked)
    );
}

/// A file with so many peers, each of its own, half of which have a shape.
fn hub(folder: &Path, peers: usize) {
    let mut text = fs::read_to_string(folder.join("site-a.toml")).unwrap();
    text.truncate(text.find("[[peer]]").unwrap());
    for number in 0..peers {
        let mut key = [0x40; 32];
        key[..8].copy_from_slice(&(number as u64 + 9).to_le_bytes());
        let shape = if number % 2 == 0 { "" } else { "shape = \"adaptive\"\n" };
        text += &format!(
            "[[peer]]\nname = \"site-{number}\"\npublic_key = \"{}\"\nhop_prefix = \"2001:db8:{:x}::/64\"\n\
             allowed_ips = [\"fd00:{:x}::/32\"]\n{shape}",
            base64(&key),
            number + 0x1000,
            number + 1,
        );
    }
    fs::write(folder.join("hub.toml"), text).unwrap();
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let chunk = |chunk: &[u8]| {
        let bits =
            chunk.iter().fold(0, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digit = |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63]);
        (0..4).map(|at| if at <= chunk.len() { digit(at) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(chunk).collect()
}

#[test]
fn the_plan_of_a_thousand_peers_is_a_page() {
    let folder = examples();
    hub(folder.path(), 1000);
    let check = |more: &[&str]| {
        let output = sidestep_in(folder.path(), &[&["check", "hub.toml"], more].concat(), "");
        String::from_utf8(output.stdout).unwrap()
    };
    let page = check(&[]);
    assert!(page.lines().count() <= 50, "{page}");
    for part in
        ["Peers     1000", "route 1000 prefixes to mt6d0", "site-0, site-2, site-4, site-6 and 496 more"]
    {
        assert!(page.contains(part), "{part} is missing in:\n{page}");
    }
    let one = check(&["--peer", "site-77"]);
    assert!(one.contains("Peer      site-77, which hops in") && !one.contains("site-76"), "{one}");
    assert_eq!(check(&["--all"]).matches("\nPeer  ").count(), 1000);
    let stranger = sidestep_in(folder.path(), &["check", "hub.toml", "--peer", "site-x"], "");
    assert_eq!(stranger.status.code(), Some(1));
    assert!(stderr(&stranger).contains("no peer \"site-x\"; there are: site-0,"), "{}", stderr(&stranger));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sidestep"))
        .arg("man")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn completions_and_the_manual_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&sidestep(&["completions", shell]));
        assert!(script.contains("COMPLETE"), "{shell}");
    }
    let manual = stdout(&sidestep(&["man"]));
    assert!(manual.contains(".TH") && manual.contains("CONFIGURATION"));
}

#[test]
fn a_shell_is_told_commands_options_and_values() {
    let complete = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep"));
        let index = words.len() - 1;
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index.to_string()).env("_CLAP_IFS", "\n");
        String::from_utf8(command.arg("--").args(words).output().unwrap().stdout).unwrap()
    };
    assert!(complete(&["sidestep", "end"]).contains("endpoints"));
    assert!(complete(&["sidestep", "show", "--so"]).contains("--sort"));
    assert!(complete(&["sidestep", "show", "--state", ""]).contains("silent"));
}

/// Each `tests/wrong/NAME.toml` has its message in `NAME.stderr`. To accept new messages, run with UPDATE_MESSAGES=1
/// and read the difference.
#[test]
fn every_wrong_configuration_gets_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= 20);
    let mut different = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let output = sidestep_in(&folder, &["check", name], "");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains(&format!("{name}:")), "{name}: no place: {said}");
        let expected = file.with_extension("stderr");
        if std::env::var_os("UPDATE_MESSAGES").is_some() {
            fs::write(expected, said).unwrap();
        } else if fs::read_to_string(&expected).ok().as_deref() != Some(said.as_str()) {
            different.push(format!("{name} says:\n{said}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
