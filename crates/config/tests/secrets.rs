//! What must not be shown: values of keys that nobody knows, which may be secrets under whatever name.

#![allow(missing_docs, reason = "a test's name says what it is about")]

use std::path::Path;

use config::KeyFileError;
use proptest::prelude::*;

/// What both kinds of configuration say of a text.
fn said(text: &str) -> [String; 2] {
    let path = Path::new("home.toml");
    let tunnel = config::parse(text, path, &|_| Err(KeyFileError::Missing));
    let ipsec = config::ipsec::parse(text, path, &|_, _| Err(KeyFileError::Missing));
    [
        tunnel.map_or_else(|report| report.to_string(), |config| config.warnings.to_string()),
        ipsec.map_or_else(|report| report.to_string(), |config| config.warnings.to_string()),
    ]
}

#[test]
fn a_misspelt_name_of_a_secret_does_not_give_it_away() {
    for name in [
        "shared_kay",
        "shared_ke",
        "shared_kee",
        "sharedkye",
        "Shared_Key",
        "shared-key",
        "pre_shared",
        "password",
        "passphrase",
        "key",
        "\"shared key\"",
    ] {
        for (before, after) in [("[[remote]]\n", "\n"), ("[[peer]]\n", "\n"), ("", ""), ("", "\n[remote\n")] {
            let line = format!("{name} = \"supersecret-in-file\" # not old-secret");
            for said in said(&format!("{before}{line}{after}")) {
                assert!(!said.contains("secret-in-file") && !said.contains("old-secret"), "{said}");
            }
        }
    }
}

#[test]
fn where_the_file_is_no_toml_no_value_is_shown_but_those_of_known_keys() {
    for broken in
        ["shared_key: hunter2", "shared_key hunter2", "password = hunter2", "port = 500x\nk = [\n\"hunter2\""]
    {
        for said in said(&format!("[ipsec]\naddress = \"::1\"\n{broken}\n")) {
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
    let [said, _] = said("[node]\nexternal = eth0\nexternl = eth1\n");
    assert!(said.contains("external = eth0"), "{said}");
}

proptest! {
    #[test]
    fn no_value_under_an_unknown_key_is_shown(
        name in "[A-Z][A-Za-z_-]{0,11}|zz[a-z_-]{0,9}|\"zz[a-z .=]{0,9}\"",
        middle in "[A-Z0-9ж=]{0,30}",
        form in 0..8_usize,
        place in 0..9_usize,
        end in prop::sample::select(vec!["", "\n", " # QJXZ", "\n[node", "\nx = ", "\n[ipsec]\n", "\n]"]),
    ) {
        let secret = format!("QJXZ{middle}QJXZ");
        let value = match form {
            0 => format!("\"{secret}\""),
            1 => format!("'{secret}'"),
            2 => format!("[\"{secret}\", \n  \"{secret}\",\n]"),
            3 => format!("{{ address = \"{secret}\" }}"),
            4 => format!("\"\"\"\n{secret}\n{secret}\"\"\""),
            5 => format!("'''{secret}\n{secret}'''"),
            6 => format!("\"{secret}"),
            _ => secret.clone(),
        };
        let text = match place {
            0 => format!("{name} = {value}{end}"),
            1 => format!("[node]\nexternal = \"eth0\"\n{name} = {value}{end}"),
            2 => format!("[[peer]]\n{name} = {value}{end}"),
            3 => format!("[ipsec]\n[[remote]]\n  {name} = {value}{end}"),
            4 => format!("node = {{ mode = 1, {name} = {value} }}{end}"),
            5 => format!("remote.{name} = {value}{end}"),
            6 => format!("[{name}]\nadress = {value}{end}"),
            7 => format!("[[remote]]\naddress = {{ {name} = {value} }}{end}"),
            _ => format!("ipsec = [{{ {name} = {value} }}]{end}"),
        };
        for said in said(&text) {
            prop_assert!(!said.contains("QJXZ") && !said.contains('ж'), "{}\n{}", text, said);
        }
    }
}
