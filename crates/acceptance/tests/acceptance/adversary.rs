//! The observer who tries to follow pairs of gateways (docs/unlinkability.md): `sidestep-lab adversary` runs to its end, in a
//! hurry, and leaves nothing behind. What he finds is no condition: that takes more pairs and more time.

use std::process::Command;

use serde_json::Value;

/// As many as there must be.
const PAIRS: &str = "8";

#[test]
fn all_judges_say_what_they_find_and_nothing_is_left() {
    let judges = Command::new("/usr/bin/python3").args(["-c", "import sklearn"]).output();
    if !judges.is_ok_and(|run| run.status.success()) {
        return crate::skip("python3-sklearn");
    }
    let Some(program) = crate::program(&[]) else { return };
    let (folder, prefix) = (tempfile::tempdir().expect("a folder"), lab::prefix::unique());
    let json = folder.path().join("verdicts.json");
    let mut command = Command::new(lab::helper::program().expect("sidestep-lab"));
    command.args([
        "adversary",
        "--quick",
        "--pairs",
        PAIRS,
        "--prefix",
        &prefix,
        "--peer",
        "padding = \"full\"",
    ]);
    command.arg("--json").arg(&json).arg("--report").arg(folder.path()).env("SIDESTEP_BIN", program);
    let output = command.output().expect("sidestep-lab");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");

    let verdicts: Value = serde_json::from_slice(&std::fs::read(&json).expect("verdicts")).expect("JSON");
    let verdicts = verdicts["verdicts"].as_array().expect("a list");
    // Which flow is the next of its pair is asked of each of them; other questions only where there is enough to ask about.
    for judge in [
        "nearest beginning",
        "instants",
        "openers",
        "beat of a sender",
        "rate",
        "sizes",
        "pauses",
        "directions",
        "phase of probes",
        "ports and addresses",
        "at the same time",
        "all",
    ] {
        let asked = |v: &&Value| v["question"] == "succession" && v["judge"] == judge;
        let verdict = verdicts.iter().find(asked).unwrap_or_else(|| panic!("no {judge} in {said}"));
        let share = |value: &Value| value.as_f64().filter(|share| (0.0..=1.0).contains(share));
        let is_within = |interval: &Value| match (share(&interval[0]), share(&interval[1])) {
            (Some(low), Some(high)) => low <= high,
            _ => false,
        };
        assert!(share(&verdict["auc"]).is_some() && share(&verdict["first"]).is_some(), "{verdict}");
        assert!(is_within(&verdict["auc_95"]) && is_within(&verdict["first_95"]), "{verdict}");
        assert_eq!(verdict["first_chance"], 1.0 / 8.0, "{verdict}");
        assert!(verdict["asked"].as_u64() >= Some(16), "{verdict}");
        assert!(said.contains(&format!("| succession | {judge} |")), "{said}");
    }
    let page = std::fs::read_to_string(folder.path().join("index.html")).expect("a page");
    assert!(page.contains("succession: area under the curve"), "{page}");
    assert!(page.contains("<code>padding = &quot;full&quot;</code>") && !page.contains('`'), "{page}");

    for place in ["/run/netns", "/run/sidestep", "/run/sidestep-lab"] {
        let names = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(&prefix)).collect();
        assert!(left.is_empty(), "{left:?} in {place}");
    }
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let commands =
        processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    let left: Vec<_> = commands.filter(|command| command.contains(&prefix)).collect();
    assert!(left.is_empty(), "{left:?}");
}
