//! The tables of `docs/ipsec-ike.md` and `docs/ipsec-ike-musts.md` name tests that are there.

use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn sources(under: &Path, into: &mut String) {
    for entry in std::fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// All that is in the files and folders of this name.
fn text_of(module: &str) -> String {
    let mut text = String::new();
    let candidates = [
        folder("tests").join(format!("{module}.rs")),
        folder("tests").join(module),
        folder("src").join(format!("{module}.rs")),
        folder("src").join(module),
        folder("../ipsec/src").join(format!("{module}.rs")),
        folder("../ipsec/src/tests").join(format!("{module}.rs")),
        folder("../config/src/ipsec").join(format!("{module}.rs")),
    ];
    match module {
        "kernel" => sources(&folder("../acceptance/tests/acceptance/xfrm"), &mut text),
        "up" => sources(&folder("../acceptance/tests/acceptance/ipsec"), &mut text),
        "strongswan" => sources(&folder("../acceptance/tests/acceptance/ike"), &mut text),
        _ => {
            for path in candidates.iter().filter(|path| path.exists()) {
                if path.is_dir() {
                    sources(path, &mut text);
                } else {
                    text.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
    }
    text
}

#[test]
fn each_test_that_a_table_of_rules_names_is_there() {
    for table in ["ipsec-ike.md", "ipsec-ike-musts.md"] {
        let document = std::fs::read_to_string(folder("../../docs").join(table)).unwrap();
        let names: Vec<_> =
            document.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect();
        assert!(names.len() > 100);
        for (module, name) in names {
            assert!(text_of(module).contains(&format!("fn {name}(")), "{table}: no {module}::{name}");
        }
    }
}
