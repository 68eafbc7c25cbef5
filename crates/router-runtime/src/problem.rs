//! What could not be done of a configuration.

/// What the kernel refused.
pub(crate) struct Problem {
    pub(crate) text: String,
    /// No reason to refuse a configuration: a route's router is on no network yet, as its address comes later from a DHCP
    /// client, or is what somebody on a link says.
    pub(crate) waits: bool,
}

impl From<linux::Error> for Problem {
    fn from(error: linux::Error) -> Self {
        Problem { text: error.to_string(), waits: false }
    }
}
