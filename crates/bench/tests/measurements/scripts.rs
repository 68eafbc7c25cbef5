//! The comparison of packet scripts with others, as short as it gets. What takes a large package is compared at full length.

use lab::scale::scaled;

use crate::sidestep_lab;

#[test]
fn who_does_a_job_has_figures_and_who_cannot_says_why() {
    let Some(mut command) = sidestep_lab("bench scripts") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let docs = directory.path().join("page.md");
    std::fs::write(&docs, "before\n<!-- scripts:begin -->\n<!-- scripts:end -->\nafter\n").expect("a page");

    let few = ["--against", "script-kernel,script-both,nftables", "--only", "drop,sni,dns,balance"];
    let output = command
        .args(["--repetitions", "1", "--packets", "1000"])
        .args(scaled(&few[..], &[]))
        .arg("--docs")
        .arg(&docs)
        .arg("--report")
        .arg(directory.path())
        .output()
        .expect("the benchmark");
    let (said, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));

    assert!(output.status.success(), "{said}{complaints}");
    let docs = std::fs::read_to_string(docs).expect("a page");
    assert!(docs.ends_with("<!-- scripts:end -->\nafter\n") && docs.contains("### Load balancing"), "{docs}");
    assert!(docs.contains("| nftables | SNI filter | it compares octets at fixed places"), "{docs}");
    let page = std::fs::read_to_string(directory.path().join("index.html")).expect("a page");
    assert!(page.contains("Drop by prefix list") && page.contains("Who cannot"), "{page}");
    let data = std::fs::read(directory.path().join("data.json")).expect("the values");
    let data: serde_json::Value = serde_json::from_slice(&data).expect("JSON");
    let parts = data["parts"].as_array().expect("parts");
    assert!(parts.iter().all(|part| part["failed"].is_null()), "{data}");
    // Whoever was shown to do a job has been measured.
    for part in parts.iter().filter(|part| part["cannot"].is_null()) {
        let (job, contender) =
            (part["job"].as_str().expect("a job"), part["contender"].as_str().expect("a name"));
        let values = data["samples"].as_array().expect("values").iter();
        let mine = values.filter(|sample| sample["contender"] == contender);
        let mine =
            mine.filter(|sample| sample["metric"].as_str().is_some_and(|metric| metric.starts_with(job)));
        assert!(mine.count() >= 4, "{job}, {contender}: {data}");
    }
}

#[test]
fn somebody_who_is_not_installed_is_named_with_what_installs_him() {
    let Some(mut command) = sidestep_lab("bench scripts") else { return };
    let output = command.args(["--against", "c"]).env("PATH", "/nowhere").output().expect("the benchmark");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && complaints.contains("scripts/setup peers"), "{complaints}");
}
