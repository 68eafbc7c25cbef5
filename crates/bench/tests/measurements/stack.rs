//! The benchmark of the host stack, as short as it gets.

use lab::scale::scaled;

use crate::sidestep_lab;

#[test]
fn what_was_measured_is_beside_what_was_to_be_reached() {
    let Some(mut command) = sidestep_lab("bench stack") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let docs = directory.path().join("page.md");
    std::fs::write(&docs, "before\n<!-- stack:begin -->\n<!-- stack:end -->\nafter\n").expect("a page");

    // Tunnels take half a minute.
    let parts = scaled("idle,section7", "idle,section7,tunnels");
    let output = command
        .args(["--only", parts, "--repetitions", "1", "--seconds", "1", "--children", "3", "--rounds", "1"])
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
    assert!(docs.contains("| memory of an idle connection of the stack | at most 2,048 bytes |"), "{docs}");
    assert!(docs.ends_with("<!-- stack:end -->\nafter\n"), "{docs}");
    let page = std::fs::read_to_string(directory.path().join("index.html")).expect("a page");
    assert!(page.contains("at most 2,048 bytes") && page.contains("Table 5: impact of IPv6 security"));
    let data = std::fs::read(directory.path().join("data.json")).expect("the values");
    let data: serde_json::Value = serde_json::from_slice(&data).expect("JSON");
    assert!(data["idle"].as_f64().is_some_and(|bytes| bytes > 100.0), "{data}");
    let values = data["section7"]["values"].as_array().expect("values");
    let plain = values.iter().filter(|value| value["security"] == "none" && value["is_ipv6"] == false);
    assert_eq!(plain.count(), 23, "a value of each row of tables 1 to 4: {data}");
    assert!(values.iter().all(|value| value["value"].as_f64().is_some_and(|value| value > 0.0)), "{data}");
    if scaled(false, true) {
        assert!(page.contains("ipsec-up") && page.contains("of the moving tunnel"), "{page}");
        let samples = data["tunnels"]["results"]["samples"].as_array().expect("values").iter();
        let associations = samples.filter(|sample| sample["metric"] == "association");
        assert!(associations.count() > 0, "{data}");
    }
}
