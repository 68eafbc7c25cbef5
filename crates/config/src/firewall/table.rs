//! The shape of `[[zone]]` and `[firewall]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::document::Text;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Zone {
    pub(super) name: Text,
    pub(super) trust: Text,
    #[serde(default)]
    pub(super) interfaces: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) networks: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Firewall {
    pub(super) enabled: Option<bool>,
    pub(super) refuse: Text,
    #[serde(default)]
    pub(super) log: bool,
    #[serde(default)]
    pub(super) accept_special: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) addresses: BTreeMap<String, Spanned<Words>>,
    #[serde(default)]
    pub(super) services: BTreeMap<String, Spanned<Words>>,
    #[serde(default)]
    pub(super) schedules: BTreeMap<String, Spanned<Schedule>>,
    #[serde(default)]
    pub(super) rule: Vec<Spanned<Rule>>,
    #[serde(default)]
    pub(super) test: Vec<Spanned<Test>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) from: Option<Spanned<Words>>,
    pub(super) to: Option<Spanned<Words>>,
    pub(super) source: Option<Spanned<Words>>,
    pub(super) destination: Option<Spanned<Words>>,
    pub(super) service: Option<Spanned<Words>>,
    pub(super) rate: Text,
    pub(super) schedule: Text,
    #[serde(default)]
    pub(super) log: bool,
    pub(super) comment: Text,
    pub(super) action: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Schedule {
    pub(super) days: Option<Spanned<Words>>,
    pub(super) from: Text,
    pub(super) to: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    pub(super) packet: Text,
    pub(super) expect: Text,
    pub(super) rule: Text,
}

/// One text, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected text in quotes, or a list of such")]
pub(super) enum Words {
    One(String),
    Many(Vec<String>),
}

impl Words {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
        .iter()
        .map(String::as_str)
    }
}
