//! `sidestep firewall` as a user meets it, and whatever stands in its tables.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use config::KeyFileError;
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("../../../examples/firewall.toml");

/// The text with `to` wherever it has `from`, which it must have: otherwise nothing would be tried.
fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "nothing to change, `{from}` is not in:\n{text}");
    text.replace(from, to)
}

fn firewall(arguments: &[&str], file: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), file).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_sidestep"))
        .arg("firewall")
        .args(arguments)
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_example_is_right_and_becomes_what_it_says() {
    let checked = firewall(&["check", "gateway.toml"], EXAMPLE);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("3 zones, 5 rules, 3 tests"));
    let tested = firewall(&["test", "gateway.toml"], EXAMPLE);
    assert!(tested.status.success(), "{}", text(&tested.stdout));
    assert!(text(&tested.stdout).ends_with("3 passed, 0 failed\n"));
}

#[test]
fn a_packet_is_explained_with_the_place_of_its_rule() {
    let words = "tcp from 2a00:1450::1 to 2a02:8100:1::443 port 443 in wan out lan";
    let said = text(&firewall(&["explain", "gateway.toml", words], EXAMPLE).stdout);
    let line = EXAMPLE.lines().position(|line| line.contains("the web server")).expect("a rule") - 6 + 1;
    assert!(said.starts_with(&format!("accept: rule 2, gateway.toml:{line} (the web server)\n")), "{said}");
    let said = text(&firewall(&["explain", "gateway.toml", "--json", words], EXAMPLE).stdout);
    let document: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (document["verdict"].as_str(), document["rule"]["number"].as_u64()),
        (Some("accept"), Some(2))
    );
    let said = text(
        &firewall(&["explain", "gateway.toml", "tcp from 2a02::1 to 2a00::1 port 25 in lan"], EXAMPLE).stdout,
    );
    assert!(said.starts_with("accept: no rule decides; inside may open connections everywhere\n"), "{said}");
    let wrong = firewall(&["explain", "gateway.toml", "tcp form 2a02::1"], EXAMPLE);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).starts_with("sidestep: `form` is not understood"), "{}", text(&wrong.stderr));
}

#[test]
fn a_forwarded_packet_is_explained_by_its_forward() {
    let file = include_str!("../../../examples/forward.toml");
    let explained = |words| text(&firewall(&["explain", "gateway.toml", words], file).stdout);
    let said = explained("tcp from 198.51.100.7 to gateway port 443 in wan");
    let line = file.lines().position(|line| line.starts_with("[[forward]]")).expect("a forward") + 1;
    let expected = format!(
        "accept: rule 1, gateway.toml:{line} (forward web)\n  from wan to lan\n  forward web sends it on to 192.168.1.5:8443\n"
    );
    assert_eq!(said, expected);
    let words = "tcp from 203.0.113.9 to fibre port 3389 in wan";
    let document: serde_json::Value =
        serde_json::from_slice(&firewall(&["explain", "gateway.toml", "--json", words], file).stdout)
            .expect("JSON");
    assert_eq!(document["forward"], serde_json::json!({ "name": "desk", "to": "192.168.1.5" }));
    assert!(explained("tcp from 203.0.113.9 to cable port 3389 in wan").starts_with("drop: no rule decides"));
    let tested = firewall(&["test", "gateway.toml"], file);
    assert!(tested.status.success(), "{}", text(&tested.stdout));

    let refusing = "\n[[firewall.rule]]\nfrom = \"wan\"\nto = \"lan\"\naction = \"drop\"\n";
    let checked = firewall(&["check", "gateway.toml"], &format!("{file}{refusing}"));
    assert!(checked.status.success());
    let said = text(&checked.stderr);
    assert_eq!(said.matches("a rule refuses what is forwarded").count(), 3, "{said}");
}

#[test]
fn hosts_with_fixed_addresses_are_named_in_rules_and_in_packets() {
    let file = include_str!("../../../examples/hosts.toml");
    let explained = |words| text(&firewall(&["explain", "gateway.toml", words], file).stdout);
    let said = explained("tcp from 192.168.2.130 to printer port 631 in guests out lan");
    assert!(said.starts_with("accept: rule 1, ") && said.contains("(guests print)"), "{said}");
    assert!(
        explained("tcp from 192.168.2.130 to printer port 80 in guests out lan")
            .starts_with("reject: no rule decides")
    );
    let tested = firewall(&["test", "gateway.toml"], file);
    assert!(tested.status.success(), "{}", text(&tested.stdout));
    let list = "[firewall.addresses]\nprinter = \"192.168.1.9\"\n\n[[firewall.rule]]";
    let twice = firewall(&["check", "gateway.toml"], &edited(file, "[[firewall.rule]]", list));
    assert!(
        text(&twice.stderr).contains("a host of a network have the name \"printer\""),
        "{}",
        text(&twice.stderr)
    );
}

#[test]
fn a_test_that_fails_names_its_line_and_what_decides() {
    let file = edited(EXAMPLE, "rule   = \"the web server\"", "rule   = \"no games by day\"");
    let tested = firewall(&["test", "gateway.toml"], &file);
    assert_eq!(tested.status.code(), Some(1));
    let said = text(&tested.stdout);
    assert!(said.contains("by \"no games by day\"\n") && said.contains("it is accept: rule 2, "), "{said}");
    assert!(said.ends_with("2 passed, 1 failed\n"), "{said}");
}

#[test]
fn rules_without_effect_are_warned_of_with_both_places() {
    let more = "\n[[firewall.rule]]\nfrom = \"wan\"\nto = \"lan\"\ndestination = \"web\"\nservice = \"tcp/443\"\naction = \"drop\"\n";
    let checked = firewall(&["check", "gateway.toml"], &format!("{EXAMPLE}{more}"));
    assert!(checked.status.success());
    let said = text(&checked.stderr);
    assert!(
        said.contains("warning: a rule never decides, and the one that does has another action"),
        "{said}"
    );
    assert!(said.contains("decides before it") && said.contains("this rule"), "{said}");
}

#[test]
fn a_peer_is_in_the_zone_that_it_names() {
    let text = "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\nhop_prefix = \"2001:db8:a::/64\"\n\
         [[peer]]\nname = \"branch\"\npublic_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b::/64\"\n\
         allowed_ips = [\"fd00:b::/48\", \"10.2.0.0/16\"]\nzone = \"branches\"\n\
         [[zone]]\nname = \"branches\"\ntrust = \"guest\"\n";
    let no_key: &config::ReadKey = &|_| Err(KeyFileError::Missing);
    let whole = config::parse(text, Path::new("/etc/gateway.toml"), no_key).expect("a configuration");
    let firewall = whole.gateway.and_then(|gateway| gateway.firewall).expect("a firewall");
    let zone = &firewall.policy.zones()[0];
    assert_eq!(zone.interfaces, ["mt6d0"]);
    assert_eq!(
        zone.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["fd00:b::/48", "10.2.0.0/16"]
    );
}

#[test]
fn a_firewall_alone_can_be_checked() {
    let run = |command: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("gateway.toml"), EXAMPLE).expect("a file");
        let mut sidestep = Command::new(env!("CARGO_BIN_EXE_sidestep"));
        sidestep.args([command, "gateway.toml"]).current_dir(folder.path()).output().expect("the program")
    };
    assert!(run("check").status.success());
}

#[test]
fn addresses_that_the_firewall_drops_are_warned_of() {
    let warnings = |more: &str| {
        let no_key: &config::ReadKey = &|_| Err(KeyFileError::Missing);
        let text = format!("[[uplink]]\ninterface = \"eth0\"\n{more}\n[[network]]\ninterface = \"eth1\"\n");
        let whole = config::parse(&text, Path::new("/etc/gateway.toml"), no_key).expect("a configuration");
        whole.warnings.render(false)
    };
    for dropped in [
        "prefixes = [\"2001:db8:1::/48\"]",
        "addresses = [\"fe80::2/64\", \"2001:db8:1::2/64\"]",
        "tunnel = { kind = \"6rd\", over = \"eth2\", prefix = \"2001:db8::/32\", relay = \"192.0.2.1\" }",
    ] {
        let said = warnings(dropped);
        assert!(said.contains("add accept_special = [\"2001:db8::/32\"] to [firewall]"), "{dropped}: {said}");
        assert_eq!(warnings(&format!("{dropped}\n[firewall]\naccept_special = [\"2001:db8::/32\"]")), "");
        assert_eq!(warnings(&format!("{dropped}\n[firewall]\nenabled = false")), "");
    }
    assert_eq!(warnings("addresses = [\"fe80::2/64\", \"2a00:1450::2/64\"]"), "");
}

#[test]
fn what_is_not_there_is_said() {
    let zones = "[[zone]]\nname = \"lan\"\ntrust = \"inside\"\ninterfaces = [\"eth1\"]\n";
    let checked = text(&firewall(&["check", "gateway.toml"], zones).stdout);
    assert!(checked.contains("0 rules") && !checked.contains("sets"), "{checked}");
    let tested = firewall(&["test", "gateway.toml"], zones);
    assert!(tested.status.success());
    assert!(text(&tested.stdout).contains("there are no tests"), "{}", text(&tested.stdout));
    let asked = firewall(&["explain", "gateway.toml", "tcp from 2a00::1 to gateway in eth9"], zones);
    assert!(text(&asked.stderr).ends_with("there are lan (eth1), gateway\n"), "{}", text(&asked.stderr));
    let applied = firewall(&["apply", "gateway.toml", "--confirm", "0s"], zones);
    assert_eq!(applied.status.code(), Some(2));
    assert!(text(&applied.stderr).contains("write a time like 60s"), "{}", text(&applied.stderr));
}

fn survives(text: &str) {
    let no_key: &config::ReadKey = &|_| Err(KeyFileError::Missing);
    match config::parse(text, Path::new("/etc/gateway.toml"), no_key) {
        Ok(whole) => {
            let _ = whole.warnings.render(false);
            if let Some(firewall) = whole.gateway.and_then(|gateway| gateway.firewall) {
                let zone = router::firewall::TimeZone { ahead: 90, kernel_behind: -60 };
                let _ = router::firewall::compile(&firewall.policy, zone);
            }
        }
        Err(report) => {
            assert!(report.errors() > 0);
            let _ = report.render(true);
        }
    }
}

proptest! {
    /// Bytes of the example changed, removed, inserted.
    #[test]
    fn mutated_examples(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, any::<u8>()), 1..12)
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (index, edit, byte) in edits {
            let at = index.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        survives(&String::from_utf8_lossy(&bytes));
    }

    /// Any value for any key.
    #[test]
    fn any_value(value in "(-?[0-9]{1,20}|\"\\PC{0,30}\"|\\[\"[0-9a-f:./*-]{0,20}\"\\]|\"[0-9a-z/ -]{0,20}\"|true)") {
        for known in ["trust", "source", "destination", "service", "rate", "schedule", "from", "web", "game", "packet", "refuse"] {
            survives(&edited(EXAMPLE, &format!("{known} "), &format!("{known} = {value} # ")));
        }
    }
}
