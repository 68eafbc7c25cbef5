//! Names: of sites, roles, regions, zones, groups, administrators.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name: 1 to 63 letters, digits, `.`, `_` and `-`, of which a `.` is not the first. It does for a file, a peer, a zone, a
/// metric's label and a terminal. Copies share it: a fleet's documents and tables have each name many times.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name: take 1 to 63 letters, digits, `.`, `_` and `-`, and no `.` at its beginning")]
pub struct NoName(String);

impl Name {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for Name {
    type Error = NoName;

    fn try_from(text: String) -> Result<Self, NoName> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_name = (1..=63).contains(&text.len()) && !text.starts_with('.') && text.chars().all(is_good);
        if is_name { Ok(Name(text.into())) } else { Err(NoName(text)) }
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_for_a_file_and_a_terminal() {
        for good in ["kiel", "site-7", "a.b_c", "7"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", ".kiel", "a b", "a/b", "straße", "a\u{1b}[2J", &"a".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
