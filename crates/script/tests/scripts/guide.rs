//! The scripts of `docs/scripting-guide.md`, with their tests.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use script::host::{FileError, Module};
use script::testing::{self, Files};

/// The folder of the examples, whose modules the guide uses.
struct Examples(PathBuf);

impl Files for Examples {
    fn module(&self, name: &str) -> Result<Option<Module>, FileError> {
        let path = self.0.join(format!("{}.lua", name.replace('.', "/")));
        let source = std::fs::read_to_string(&path)?;
        Ok(Some(Module { source, path: path.display().to_string() }))
    }

    fn capture(&self, _: &str) -> Result<Vec<u8>, FileError> {
        Err(io::Error::from(io::ErrorKind::NotFound).into())
    }
}

#[test]
fn every_script_of_the_guide_passes_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/scripting-guide.md")).expect("the guide");
    let files: Rc<dyn Files> = Rc::new(Examples(root.join("examples/scripts")));
    let mut scripts = 0;
    for script in guide.split("```lua\n").skip(1) {
        let source = script.split("```").next().unwrap_or_default();
        let path = source.lines().next().unwrap_or_default();
        let tests = testing::inspect(path, source, &files).unwrap_or_else(|error| panic!("{error}")).tests;
        assert!(!tests.is_empty(), "{path}: a script without a test");
        for name in tests {
            let outcome = testing::run(path, source, &name, &files);
            assert_eq!(outcome.error.map(|error| error.message), None, "{name}");
        }
        scripts += 1;
    }
    assert_eq!(scripts, guide.matches("\n## ").count() - 2, "one in each section but the last two");
}
