//! User names and passwords, of a file that its owner alone can read: a line for each, `name:password`.

use std::path::{Path, PathBuf};

use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

/// The longest name, and the longest password (RFC 1929).
const LONGEST: usize = 255;

/// A name and a password, with a colon between.
pub type Credentials = Zeroizing<Vec<u8>>;

/// Who may come in, by which password.
pub struct Passwords {
    lines: Vec<Credentials>,
}

/// Why there are no passwords.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The file cannot be read, or others can.
    #[error("{0}")]
    File(#[from] linux::Error),
    /// A line is none.
    #[error("{}, line {line}: write NAME:PASSWORD, each of 1 to {LONGEST} bytes", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// There is no line.
    #[error("{}: it has no password: write NAME:PASSWORD", .0.display())]
    Empty(PathBuf),
}

impl Passwords {
    /// Reads a file. Empty lines count for nothing.
    ///
    /// # Errors
    /// [`PasswordError`].
    pub fn load(path: &Path) -> Result<Self, PasswordError> {
        let bytes = Zeroizing::new(linux::file::read_private(path)?);
        Self::parse(&bytes).map_err(|line| match line {
            Some(line) => PasswordError::Line { path: path.to_owned(), line },
            None => PasswordError::Empty(path.to_owned()),
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, Option<usize>> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':').ok_or(Some(number))?;
            let is_right = |part: &[u8]| (1..=LONGEST).contains(&part.len());
            if !is_right(&line[..colon]) || !is_right(&line[colon + 1..]) {
                return Err(Some(number));
            }
            lines.push(Zeroizing::new(line.to_vec()));
        }
        if lines.is_empty() { Err(None) } else { Ok(Self { lines }) }
    }

    /// Whether a name and a password, with a colon between, are of the file. It takes as long for each that is as long.
    pub fn admit(&self, credentials: &[u8]) -> bool {
        let found =
            self.lines.iter().fold(Choice::from(0), |found, line| found | line.as_slice().ct_eq(credentials));
        found.into()
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_with_its_password_alone() {
        let passwords = Passwords::parse(b"ann:secret\n\nbob:with:colon\r\n").unwrap();
        for right in [&b"ann:secret"[..], b"bob:with:colon"] {
            assert!(passwords.admit(right));
        }
        for wrong in [&b""[..], b"ann:", b"ann:secre", b"ann:secret2", b"bob:secret", b"ann:secret\n", b":"] {
            assert!(!passwords.admit(wrong));
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        assert_eq!(Passwords::parse(b"ann:secret\nbob").unwrap_err(), Some(2));
        assert_eq!(Passwords::parse(b":secret").unwrap_err(), Some(1));
        assert_eq!(Passwords::parse(b"ann:").unwrap_err(), Some(1));
        assert_eq!(Passwords::parse(b"\n\n").unwrap_err(), None);
        let long = [b"ann:".to_vec(), vec![b'x'; LONGEST + 1]].concat();
        assert_eq!(Passwords::parse(&long).unwrap_err(), Some(1));
    }
}
