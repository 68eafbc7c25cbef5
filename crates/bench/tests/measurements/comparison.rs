//! The benchmark, as short as it gets: it compares, and writes what it measured to all the places it was told.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sidestep_lab;

#[test]
fn what_was_measured_before_an_interruption_is_kept() {
    let Some(mut command) = sidestep_lab("bench") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.md");
    std::fs::write(&page, "<!-- bench:begin -->\n<!-- bench:end -->\n").expect("a page");

    let mut bench = command
        .args(["--seconds", "1", "--against", "sidestep-chacha"])
        .args(["--only", "ping,memory", "--report"])
        .arg(directory.path())
        .arg("--docs")
        .arg(&page)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the benchmark");
    let progress = BufReader::new(bench.stderr.take().expect("its progress"));
    let mut said = Vec::new();
    for line in progress.lines() {
        said.push(line.expect("a line"));
        if said.last().is_some_and(|line| line.starts_with("[  2 of")) {
            kill(Pid::from_raw(bench.id() as i32), Signal::SIGINT).expect("a signal");
        }
    }
    let output = bench.wait_with_output().expect("an end");

    assert_eq!(output.status.code(), Some(130), "{said:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("Interrupted: 2 of 24 measurements were made"), "{told}{said:?}");
    let data = std::fs::read(directory.path().join("data.json")).expect("the values");
    let data: serde_json::Value = serde_json::from_slice(&data).expect("JSON");
    let flood = |name| {
        let samples = data["samples"].as_array().expect("values").iter();
        samples.filter(|sample| sample["metric"] == "flood_p50" && sample["contender"] == name).count()
    };
    assert_eq!([flood("none"), flood("sidestep"), flood("sidestep-chacha")], [1, 1, 0]);
    assert!(data["failures"].as_array().is_some_and(Vec::is_empty), "what was cut short is no failure");
    for file in ["index.html", "page.md"] {
        let text = std::fs::read_to_string(directory.path().join(file)).expect("a page");
        assert!(text.contains("Interrupted: 2 of 24"), "{file}");
    }
}

#[test]
fn a_short_comparison_ends_in_tables_a_report_and_a_page() {
    let Some(mut command) = sidestep_lab("bench") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.md");
    std::fs::write(&page, "before\n<!-- bench:begin -->\n<!-- bench:end -->\nafter\n").expect("a page");

    let output = command
        .args(["--quick", "--repetitions", "1", "--seconds", "1"])
        .args(["--against", "sidestep-chacha", "--only", "ping,memory", "--report"])
        .arg(directory.path())
        .arg("--docs")
        .arg(&page)
        .output()
        .expect("the benchmark");
    let (said, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));

    assert!(output.status.success(), "{said}{complaints}");
    assert!(said.contains("Latency of paced echoes: of none"), "{said}");
    let report = std::fs::read_to_string(directory.path().join("index.html")).expect("a report");
    assert!(report.contains("sidestep-chacha") && report.contains("Resident memory"));
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("| none |") && page.ends_with("<!-- bench:end -->\nafter\n"), "{page}");
    let data = std::fs::read(directory.path().join("data.json")).expect("the values");
    let data: serde_json::Value = serde_json::from_slice(&data).expect("JSON");
    let lost = data["samples"].as_array().expect("values").iter();
    let lost = lost.filter(|sample| sample["metric"] == "paced_lost").map(|sample| sample["value"].as_f64());
    assert_eq!(lost.collect::<Vec<_>>(), [Some(0.0); 3], "one of each contender, and nothing lost");
}
