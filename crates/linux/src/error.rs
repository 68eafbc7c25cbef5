//! The error of every operation here: which call failed, on what, and how.

use std::borrow::Cow;
use std::{fmt, io};

/// What an operation of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call to the kernel (or to a program that stands in for it) that failed.
#[derive(Debug)]
pub struct Error {
    /// The system call and its object, such as `bind [2001:db8::1]:5000`, and what to do about it where that is known.
    pub what: Cow<'static, str>,
    /// What the kernel answered.
    pub source: io::Error,
}

impl Error {
    pub(crate) fn new(what: impl Into<Cow<'static, str>>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: source.into() }
    }

    /// The error of the system call that has just failed, from `errno`.
    pub(crate) fn last(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(what, io::Error::last_os_error())
    }

    /// An error of our own making, where no call to the kernel failed.
    pub(crate) fn other(what: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self::new(what, io::Error::other(reason.into()))
    }

    /// The kernel's error number, if the error came from there.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// The portable kind of the error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether the object was there already: it is somebody else's then.
    #[must_use]
    pub fn already_exists(&self) -> bool {
        self.raw_os_error() == Some(libc::EEXIST)
    }

    /// Whether the kernel knows no such kind of queueing discipline, device, filter or action, and no module that has it.
    #[must_use]
    pub fn is_unknown_kind(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP))
    }

    /// Whether there is no way to an address, as to the router of a route, as long as there is no other address here.
    #[must_use]
    pub fn unreachable(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

// The text above holds the source's, so `source()` stays `None`: a printed chain would repeat it.
impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.kind(), error.to_string())
    }
}

/// Names the call that failed.
pub(crate) trait Context<T> {
    fn context<S: Into<Cow<'static, str>>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context<S: Into<Cow<'static, str>>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error::new(what(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_call_and_the_reason_once() {
        let error = Error::new("bind [::1]:53", io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(error.to_string(), "bind [::1]:53: Permission denied (os error 13)");
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        assert!(std::error::Error::source(&error).is_none());
    }
}
