//! The published test plan, as little of it as there can be: it measures, reports, and goes on where it stopped.

use std::path::Path;
use std::process::Output;

use crate::sidestep_lab;

fn experiment(name: &str, out: &Path, further: &[&str]) -> Option<Output> {
    let mut command = sidestep_lab("experiment")?;
    command.args([name, "--against", "none,sidestep", "--out"]).arg(out);
    Some(command.args(further).output().expect("the experiment"))
}

#[test]
fn downloads_are_measured_reported_and_not_measured_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let page = directory.path().join("page.md");
    std::fs::write(&page, "before\n<!-- experiments:begin -->\n<!-- experiments:end -->\nafter\n")
        .expect("a page");
    let docs = page.to_str().expect("a path");

    let Some(first) = experiment("http", &out, &["--runs", "1", "--docs", docs]) else { return };

    let (said, complaints) =
        (String::from_utf8_lossy(&first.stdout).into_owned(), String::from_utf8_lossy(&first.stderr));
    assert!(first.status.success(), "{said}{complaints}");
    assert!(said.contains("Throughput, MB/s") && said.contains("paper: Python, encrypted"), "{said}");
    let report = std::fs::read_to_string(out.join("index.html")).expect("a report");
    assert!(report.contains("sidestep") && report.contains("What the documents' text has lost"));
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("| sidestep |") && page.ends_with("<!-- experiments:end -->\nafter\n"), "{page}");
    let raw = std::fs::read(out.join("raw/routed-r10-sidestep-http_500k-1.json")).expect("a measurement");
    let raw: serde_json::Value = serde_json::from_slice(&raw).expect("JSON");
    assert_eq!(raw["values"]["complete"], 1.0, "{raw}");
    assert!(raw["values"]["private_mb_a"].as_f64().is_some_and(|mb| mb > 0.1), "{raw}");

    // One measurement is missing: it alone is made again.
    std::fs::remove_file(out.join("raw/routed-r10-none-http_1M-1.json")).expect("removed");
    let again = experiment("http", &out, &["--runs", "1"]).expect("as before");
    let complaints = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && complaints.contains("1 measurements, about"), "{complaints}");
    assert!(out.join("raw/routed-r10-none-http_1M-1.json").exists());

    let other = experiment("http", &out, &["--runs", "2"]).expect("as before");
    let complaints = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && complaints.contains("runs 1 instead of 2"), "{complaints}");
}

#[test]
fn floods_between_transparent_gateways_on_one_link_lose_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(mut command) = sidestep_lab("experiment") else { return };
    command.args(["loss", "--topology", "switched", "--out"]);

    let output = command.arg(directory.path()).args(["--against", "classic-transparent"]).output();

    let output = output.expect("the experiment");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("Pings lost"), "{said}");
    for interval in ["r10", "r1"] {
        let name = format!("raw/loss-switched-{interval}-classic-transparent-1.json");
        let raw = std::fs::read(directory.path().join(name)).expect("a measurement");
        let raw: serde_json::Value = serde_json::from_slice(&raw).expect("JSON");
        let value = |name: &str| raw["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {raw}"));
        assert!(value("sent") >= 5_000.0 && value("rotations") >= 3.0, "{said}");
        // What other tests' floods displace from the processor's queue is not the gateways' loss.
        assert!(value("lost") <= value("backlog_drops"), "{said}");
    }
}

#[test]
fn a_long_run_of_seconds_counts_rotations_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");

    let Some(output) = experiment("soak", directory.path(), &["--duration", "12s"]) else { return };

    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let raw = std::fs::read(directory.path().join("raw/soak-sidestep-1.json")).expect("a measurement");
    let raw: serde_json::Value = serde_json::from_slice(&raw).expect("JSON");
    let value = |name: &str| raw["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {raw}"));
    assert!(value("rotations") >= 1.0 && value("sent") >= 45.0, "{raw}");
    for name in ["lost", "addresses_left", "routes_left", "sockets_left", "rules_left"] {
        assert_eq!(value(name), 0.0, "{name}: {raw}");
    }
}

/// As little as there can be, which says nothing about speed.
#[test]
fn nat64_stands_beside_forwarding_and_masquerading_in_a_report_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("page.md");
    std::fs::write(&page, "<!-- nat64:begin -->\n<!-- nat64:end -->\n").expect("a page");
    let Some(mut command) = sidestep_lab("experiment") else { return };
    command.args(["nat64", "--quick", "--out"]).arg(directory.path().join("out"));
    let output = command.arg("--docs").arg(&page).output().expect("the experiment");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !said.contains("nothing came through"), "{said}");

    let markdown = std::fs::read_to_string(page).expect("a page");
    for name in ["NAT64", "CLAT"] {
        let aim = format!("| {name}: at least 90 % of ");
        assert_eq!(markdown.lines().filter(|line| line.starts_with(&aim)).count(), 4 * 3, "{markdown}");
    }
    let row = |what: &str| markdown.lines().find(|line| line.starts_with(&format!("| {what}, ")));
    for what in ["TCP with offloads", "UDP, frames of 1024", "round trip of a connection's first packet"] {
        let cells = row(what).unwrap_or_else(|| panic!("{what}: {markdown}"));
        // And more where the kernel has flowtables.
        assert!(cells.matches('×').count() >= 6, "{cells}");
    }
}

/// As little of each part as there can be. How fast anything is does not matter here.
#[test]
fn the_gateways_three_parts_share_a_report_with_all_sections_and_finite_ratios() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out");
    let page = directory.path().join("page.md");
    std::fs::write(&page, "before\n<!-- gateway:begin -->\n<!-- gateway:end -->\nafter\n").expect("a page");

    for part in ["t1", "t2", "t3"] {
        let Some(mut command) = sidestep_lab("experiment") else { return };
        command.args([part, "--quick", "--out"]).arg(&out);
        let output = command.arg("--docs").arg(&page).output().expect("the experiment");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
    }

    let report = std::fs::read_to_string(out.join("index.html")).expect("a report");
    let markdown = std::fs::read_to_string(page).expect("a page");
    for title in ["What was aimed at", "T1: native router", "T2: native firewall", "T3: IPv6-in-IPv4 tunnel"]
    {
        assert!(report.contains(&format!("<h2>{title}</h2>")), "{title}");
        assert!(markdown.contains(&format!("### {title}\n")), "{title}");
    }
    for column in ["IPv6 / IPv4", "IPv6 / by hand", "sidestep / native", "sidestep / user-space"] {
        assert!(report.contains(&format!("<th>{column}</th>")), "{column}");
    }
    assert!(report.contains("frames of the same size</figcaption>"), "the parity of IPv6 and IPv4");
    assert!(!report.contains("NaN") && !report.contains("inf×") && report.contains("×</td>"), "{markdown}");
    // Each aim has a ratio, and each ratio is one.
    let is_aim = |line: &&str| line.starts_with("| T1: ") || line.starts_with("| T3: ");
    let aims = markdown.lines().filter(is_aim).map(|line| {
        let ratio = line.split('|').nth(2).and_then(|cell| cell.split_whitespace().next());
        ratio.and_then(|ratio| ratio.parse::<f64>().ok()).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    });
    let aims: Vec<Option<f64>> = aims.collect();
    assert!(aims.len() == 8 && aims.iter().all(Option::is_some), "{markdown}");
}
