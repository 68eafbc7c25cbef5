//! Files beside a script.

use std::io;
use std::path::{Component, Path, PathBuf};

use script::host::{FileError, Module};
use script::testing::Files;

/// The folder of a script: its modules and captures are read from there, and from nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// That of a script.
    pub fn of(file: &Path) -> Self {
        Self(file.parent().unwrap_or(Path::new("")).to_owned())
    }
}

impl Files for Folder {
    fn module(&self, name: &str) -> Result<Option<Module>, FileError> {
        let path = self.0.join(format!("{}.lua", name.replace('.', "/")));
        match std::fs::read_to_string(&path) {
            Ok(source) => Ok(Some(Module { source, path: path.display().to_string() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn capture(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let path = Path::new(name);
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(FileError::Outside);
        }
        Ok(std::fs::read(self.0.join(path))?)
    }
}
