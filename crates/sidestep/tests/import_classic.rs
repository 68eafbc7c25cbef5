//! The files of the published MT6D become a configuration that `check` accepts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn sidestep(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidestep")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn sample(name: &str) -> String {
    format!("{}/tests/classic/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn import() -> Output {
    let files = ["mt6d.ini", "users", "ethers", "profiles"].map(sample);
    let [ini, users, ethers, profiles] = &files;
    sidestep(&["import-classic", ini, users, ethers, profiles])
}

#[test]
fn the_files_of_the_thesis_are_imported() {
    let run = import();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).unwrap();
    let none = |_: &Path| Err(config::KeyFileError::Missing);
    let whole = config::parse(&text, Path::new("mt6d0.toml"), &none).unwrap();
    let config = whole.tunnel.unwrap();
    assert!(whole.warnings.is_empty() && config.is_classic());
    assert_eq!(config.node.external, "eth0");
    let [peer] = &config.classic[..] else { panic!("{} peers", config.classic.len()) };
    assert_eq!(peer.name, "mt6d-host-a-mt6d-host-b");
    let stream = &peer.stream;
    assert_eq!(stream.local.address, "2001:468:c80:c111::1".parse::<std::net::Ipv6Addr>().unwrap());
    assert_eq!(stream.remote.mac, Some([0, 0xab, 0xcd, 0x11, 0x22, 2]));
    assert_eq!((stream.cipher, stream.lifetime), (None, 30));
    let exchange = stream.key_exchange.unwrap();
    assert_eq!((exchange.interval, exchange.window), (86_400, 30));
}

#[test]
fn settings_without_a_counterpart_are_named_with_file_and_line() {
    let run = import();
    let warnings = String::from_utf8(run.stderr).unwrap();
    for part in [
        "mt6d.ini:3: `bridging_nic` has no counterpart here: hashed addresses are bound to no interface",
        "mt6d.ini:14: `flow_label` has no counterpart here",
        "mt6d.ini:29: unknown setting `polling`",
    ] {
        assert!(warnings.contains(part), "{part} is missing in:\n{warnings}");
    }
    assert!(!warnings.contains("rotation_time"), "{warnings}");
}

#[test]
fn an_import_is_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mt6d0.toml");
    fs::write(&file, import().stdout).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();

    let check = sidestep(&["check", file]);
    let plan = String::from_utf8(check.stdout).unwrap();
    // It is valid; whether this machine has the interface is another question.
    assert!(matches!(check.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&check.stderr));
    for part in
        ["not authenticated", "move every 10 s, not encrypted", "up to 1484 bytes", "86400 s, 30 s more"]
    {
        assert!(plan.contains(part), "{part} is missing in:\n{plan}");
    }
    assert!(!plan.contains("00010203"), "a secret is shown");
}
