//! The option `--socket` of programs that listen.

use std::path::PathBuf;

/// Where a daemon is to listen. What else is about it is beside that, under the same name with other endings: names that differ
/// in theirs alone, `a.1` and `a.2`, would have one journal.
pub(crate) fn parse(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(ending) if ending != "sock" => Err("give it a name that ends in .sock".to_owned()),
        _ => Ok(path),
    }
}
