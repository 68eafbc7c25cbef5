//! One program at a time is one end: of two with one identity, each would end the other's conversation (INITIAL_CONTACT).

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// This end, which no other program on this machine is by the same file while this lives: the file is locked, and whoever
/// ends, however, lets go of it.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

/// Why this program is not that end.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another one is.
    #[error(
        "{} is in use by another program, and a second one with its identity would end that one's tunnel: end the other, or \
         give this one a file with an identity of its own", .0.display()
    )]
    InUse(PathBuf),
    /// It cannot be read or locked.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Claim {
    /// Takes the end that a configuration describes.
    ///
    /// # Errors
    /// [`ClaimError`] if another program has it.
    pub fn stake(file: &Path) -> Result<Self, ClaimError> {
        let failed = |source| ClaimError::File { path: file.to_owned(), source };
        let lock = File::open(file).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _file: lock }),
            Err(TryLockError::WouldBlock) => Err(ClaimError::InUse(file.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("laptop.toml");
        assert!(matches!(Claim::stake(&file), Err(ClaimError::File { .. })));
        std::fs::write(&file, "").unwrap();
        let first = Claim::stake(&file).unwrap();
        let refused = Claim::stake(&file).unwrap_err();
        assert!(refused.to_string().contains("laptop.toml is in use by another program"), "{refused}");
        drop(first);
        assert!(Claim::stake(&file).is_ok());
    }
}
