//! The text of a configuration, before it is known of which kind it is: where it came from, and where its files are.

use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::part::Part;
use crate::text_file::{read_text, read_with_mode};
use crate::{fleet, include};

/// A configuration that was read, once: standard input cannot be read again.
pub struct Source {
    /// What names of files in it are relative to.
    pub(crate) folder: PathBuf,
    /// With what it includes behind it.
    pub(crate) text: Zeroizing<String>,
    /// Where its parts came from: the first is its own.
    pub(crate) parts: Vec<Part>,
}

impl Source {
    /// The file at `path`; those that it names are relative to its folder.
    pub fn read(path: &Path) -> Result<Source, Error> {
        Source::read_in(path, folder_of(path))
    }

    /// The same, with the files that it names relative to `folder`: a copy of a file that is to be there.
    pub fn read_in(path: &Path, folder: &Path) -> Result<Source, Error> {
        let (text, is_open) = read_with_mode(path)?;
        Source::with_included(text, path.to_owned(), folder, is_open)
    }

    /// Standard input; the files that it names are relative to `folder`.
    pub fn standard_input(folder: &Path) -> Result<Source, Error> {
        let name = PathBuf::from("standard input");
        let text = read_text(io::stdin().lock(), 0);
        let text = text.map_err(|source| Error::Unreadable { path: name.clone(), source })?;
        Source::with_included(Zeroizing::new(text), name, folder, false)
    }

    fn with_included(
        text: Zeroizing<String>,
        name: PathBuf,
        folder: &Path,
        is_open: bool,
    ) -> Result<Source, Error> {
        let mut parts = vec![Part { name, start: 0, is_open }];
        let text = fleet::join(include::join(text, folder, &mut parts)?, folder, &mut parts)?;
        Ok(Source { folder: folder.to_owned(), text, parts })
    }

    /// The first folder of which it includes all files.
    pub fn included_folder(&self) -> Option<PathBuf> {
        include::folder(&self.text).map(|folder| self.folder.join(folder))
    }

    /// The file of a fleet's peers that it takes.
    pub fn fleet(&self) -> Option<PathBuf> {
        fleet::file(&self.text).map(|file| self.folder.join(file))
    }

    /// The file of this gateway's private key, where that has one of its own.
    pub fn private_key_file(&self) -> Option<PathBuf> {
        let table = DeTable::parse(&self.text).ok()?;
        let node = table.get_ref().get("node")?.get_ref().as_table()?;
        let file = node.get("private_key_file")?.get_ref().as_str()?;
        Some(self.folder.join(file))
    }

    /// Its name in messages.
    pub fn name(&self) -> &Path {
        &self.parts[0].name
    }

    /// Whether it has a table `[ipsec]` or `[[remote]]`, and is for [`crate::ipsec`].
    pub fn is_ipsec(&self) -> bool {
        DeTable::parse(&self.text).is_ok_and(|table| crate::document::is_ipsec(table.get_ref()))
    }
}

/// The folder that names in the file at `path` are relative to.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
