//! Files of text, whole, with an end, and with who can read them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::error::Error;

/// A longer file is no configuration, in bytes. 10,000 rules of a firewall take one of its 16 MB.
const MAX_LENGTH: u64 = 1 << 24;

/// The whole file at `path`, and whether others than its owner can read it.
pub(crate) fn read_with_mode(path: &Path) -> Result<(Zeroizing<String>, bool), Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let text = Zeroizing::new(read_file(path).map_err(unreadable)?);
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
    Ok((text, mode & 0o044 != 0))
}

/// The whole file at `path`.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    read_text(file, length)
}

/// All of `input`, which probably has `length` bytes, unless it has no end, such as /dev/zero.
pub(crate) fn read_text(input: impl Read, length: u64) -> io::Result<String> {
    // No copies of what may be a secret, where the length is known.
    let mut text = String::with_capacity(usize::try_from(length.min(MAX_LENGTH)).unwrap_or_default() + 1);
    input.take(MAX_LENGTH + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_LENGTH {
        return Err(io::Error::other(format!(
            "it has more than {MAX_LENGTH} bytes, which no configuration needs"
        )));
    }
    Ok(text)
}
