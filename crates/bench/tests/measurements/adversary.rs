//! The adversaries, as short as they get.

use lab::scale::scaled;

use crate::measuring;

/// Some of each sort.
const SOME: &str =
    "replay,duplicate,drop,delay,truncate,tamper.body,spoof,oracle,error.2,scan.echo,scan.hop-by-hop";

#[test]
fn each_kind_of_try_is_made_and_judged() {
    let Some(mut command) = measuring("adversary attack") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (json, page) = (directory.path().join("attack.json"), directory.path().join("page.md"));
    std::fs::write(&page, "before\n<!-- active:begin -->\n<!-- active:end -->\nafter\n").expect("a page");

    let output = command
        .args([
            "--quick",
            "--pairs",
            "1",
            "--tries",
            "1",
            "--rotation",
            "1s",
            "--kinds",
            scaled(SOME, ""),
            "--json",
        ])
        .arg(&json)
        .arg("--docs")
        .arg(&page)
        .output()
        .expect("the attack");

    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{complaints}", String::from_utf8_lossy(&output.stdout));
    let judged = std::fs::read(json).expect("results");
    let judged: Vec<serde_json::Value> = serde_json::from_slice(&judged).expect("JSON");
    assert_eq!(judged.len(), scaled(18, 59));
    for one in &judged {
        assert_eq!((&one["tries"], &one["baseline"]), (&1.into(), &1.into()), "{one}");
    }
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(
        page.contains("| `oracle` | 1 / 1 |") && page.ends_with("<!-- active:end -->\nafter\n"),
        "{page}"
    );
}

#[test]
fn a_kind_that_there_is_not_and_captures_that_are_not_there_are_said() {
    let Some(mut attack) = measuring("adversary attack --kinds lightning") else { return };
    let attack = attack.output().expect("the attack");
    let said = String::from_utf8_lossy(&attack.stderr);
    assert!(!attack.status.success() && said.contains("no kind of try begins with lightning"), "{said}");

    let Some(mut recognise) = measuring("adversary recognise --foreign /nowhere") else { return };
    let recognise = recognise.output().expect("the comparison");
    let said = String::from_utf8_lossy(&recognise.stderr);
    assert!(!recognise.status.success() && said.contains("run scripts/captures"), "{said}");
}
