//! The benchmark, as short as it gets: it compares, and writes what it measured to all the places it was told.

use std::process::Command;

#[test]
fn a_short_comparison_ends_in_tables_a_report_and_a_page() {
    let program = std::env::var_os("SIDESTEP_BIN").filter(|_| nix::unistd::geteuid().is_root());
    let Some(program) = program else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root and the program, in SIDESTEP_BIN");
        eprintln!("skipped: needs root and the program, in SIDESTEP_BIN");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.md");
    std::fs::write(&page, "before\n<!-- bench:begin -->\n<!-- bench:end -->\nafter\n").expect("a page");

    let output = Command::new(program)
        .args(["lab", "bench", "--prefix", "tb", "--quick", "--repetitions", "1", "--seconds", "1"])
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
