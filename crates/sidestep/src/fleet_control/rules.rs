//! The rules of a fleet, and where its controllers are, as people write them: docs/fleet.md has the form.

use std::path::Path;

use fleet::settings::{Controller, Link, Policy, Reach, Selector, Settings};
use serde::{Deserialize, Serialize};

use super::folder::read;
use crate::failure::Failure;

/// The rules of most fleets.
const USUAL: &str = r#"
link = [{ between = { roles = ["hub"] }, and = { roles = ["hub", "spoke"] } }]
relay = [{ roles = ["hub"] }]
"#;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signposts: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    link: Vec<Link>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    relay: Vec<Selector>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reach: Vec<Reach>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    controller: Vec<Controller>,
}

/// Rules from a file, or those of most fleets.
pub(super) fn settings_of(path: Option<&Path>) -> Result<Settings, Failure> {
    let (text, place) = match path {
        Some(path) => (read(path)?, path.display().to_string()),
        None => (USUAL.to_owned(), String::new()),
    };
    let Rules { signposts, link, relay, reach, controller } =
        toml::from_str(&text).map_err(|error| Failure::Message(format!("{place}: {error}")))?;
    Ok(Settings { signposts, policy: Policy { links: link, relays: relay, reach }, controllers: controller })
}

/// As a file.
pub(super) fn text_of(settings: Settings) -> Result<String, Failure> {
    let Settings { signposts, policy: Policy { links, relays, reach }, controllers } = settings;
    Ok(toml::to_string(&Rules { signposts, link: links, relay: relays, reach, controller: controllers })?)
}
