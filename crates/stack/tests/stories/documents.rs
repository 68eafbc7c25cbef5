//! The tables of `docs/stack.md` and `docs/stack-musts.md` name tests that are there.

use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The texts of all files of this name, and of all that is in the folders of this name. `tests` are those of addresses.
fn text_of(module: &str, under: &Path, found: &mut String) {
    for entry in std::fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        let is_it = path.file_stem().is_some_and(|stem| stem == module);
        if path.is_dir() {
            // Tests beside the code have their own file.
            text_of(if is_it { "tests" } else { module }, &path, found);
            text_of(module, &path, found);
        } else if is_it && path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn each_test_that_a_table_of_rules_names_is_there() {
    for table in ["stack.md", "stack-musts.md"] {
        let document = std::fs::read_to_string(folder("../../docs").join(table)).unwrap();
        let rows = document.lines().filter(|line| line.starts_with('|'));
        let codes = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let names: Vec<_> = codes.filter_map(|code| code.split_once("::")).collect();
        assert!(names.len() > 100, "{table}: {}", names.len());
        for (module, name) in names {
            let mut text = String::new();
            for under in ["src", "tests", "../wire/src"] {
                text_of(module, &folder(under), &mut text);
            }
            assert!(text.contains(&format!("fn {name}(")), "{table}: no {module}::{name}");
        }
    }
}
