//! `docs/ipsec.md` and `docs/stack.md`: what they name is there. README: its figures are those of `docs/performance.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect(name)
}

/// All tests of the workspace: by name, the files that they stand in.
fn tests() -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                for name in names_in(&std::fs::read_to_string(&path).expect("a source")) {
                    found.entry(name).or_default().push(path.clone());
                }
            }
        }
    }
    found
}

/// The functions below `#[test]`.
fn names_in(source: &str) -> Vec<String> {
    let mut lines = source.lines().map(str::trim);
    let mut names = Vec::new();
    while lines.by_ref().any(|line| line == "#[test]") {
        let name = lines.by_ref().find_map(|line| line.strip_prefix("fn ")?.split('(').next());
        names.extend(name.map(str::to_owned));
    }
    names
}

/// The words in backquotes of the last column of tables that end in one for tests.
fn named_tests(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_table = false;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
        if !line.starts_with('|') {
            is_table = false;
        } else if cells.last().is_some_and(|cell| cell.trim() == "test") {
            is_table = true;
        } else if let (true, Some(cell)) = (is_table, cells.last()) {
            names.extend(cell.split('`').skip(1).step_by(2));
        }
    }
    names
}

#[test]
fn every_test_that_the_documents_name_is_there() {
    let tests = tests();
    for name in ["ipsec.md", "stack.md"] {
        let text = document(name);
        let named = named_tests(&text);
        assert!(named.len() >= 50, "{name}: {} tests are named", named.len());
        for test in named {
            // FILE::TEST, where the file may be a folder with a page of its own.
            let (file, test) = test.rsplit_once("::").unwrap_or(("", test));
            let files = tests.get(test).unwrap_or_else(|| panic!("{name}: there is no test {test}"));
            let is_there = |path: &PathBuf| {
                let path = path.with_extension("");
                path.iter().any(|part| part == file)
            };
            assert!(file.is_empty() || files.iter().any(is_there), "{name}: {test} is not in {file}");
        }
    }
}

/// The cells of a table's row, from the section with this heading on.
fn row<'a>(text: &'a str, heading: &str, name: &str) -> Vec<&'a str> {
    let section = text.split_once(heading).expect(heading).1;
    let line = section.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let line = line.unwrap_or_else(|| panic!("{heading}: no row {name}"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_figures_of_readme_are_those_of_the_benchmark() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let text = document("performance.md");
    let (_, text) = text.split_once("<!-- bench:begin -->").expect("tables");
    let columns = [
        ("### TCP throughput, Mbit/s", 1),
        ("### UDP in batches without loss, thousand datagrams/s", 2),
        ("### Latency under load, µs", 2),
        ("### Resident memory, MB", 1),
    ];
    for contender in ["none", "sidestep", "wireguard-go", "boringtun"] {
        let said = row(&readme, "| `sidestep-lab bench`, medians", contender);
        for ((heading, column), said) in
            columns.into_iter().zip(&said[1..]).filter(|(_, said)| !said.is_empty())
        {
            // Without the lowest and the highest.
            let measured = row(text, heading, contender)[column].split(" (").next().expect("a median");
            assert_eq!(*said, measured, "README, {contender}: {heading}");
        }
    }
}

#[test]
fn the_examples_stand_in_the_guide_as_they_are() {
    let guide = document("ipsec.md");
    for name in ["site-a", "road-warrior", "gateway", "sensors"] {
        let file = format!("ipsec-{name}.toml");
        let text = std::fs::read_to_string(root().join("examples").join(&file)).expect(&file);
        // Without the comment that it begins with.
        let (_, text) = text.split_once("\n\n").expect("a comment and tables");
        let indented: Vec<String> = text
            .trim_end()
            .lines()
            .map(|line| if line.is_empty() { String::new() } else { format!("    {line}") })
            .collect();
        assert!(guide.contains(&indented.join("\n")), "{file} is not in docs/ipsec.md as it is");
    }
}
