//! The rules of a fleet, and where its controllers are, as people write them: docs/fleet.md has the form.

use fleet::settings::{Controller, Link, Policy, Reach, Selector, Settings};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The rules of most fleets.
pub const USUAL: &str = r#"
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

/// Rules from a text.
///
/// # Errors
/// Where, and why, it is none.
pub fn read(text: &str) -> Result<Settings, Error> {
    let rules: Rules = toml::from_str(text).map_err(|error| Error::Refused(error.to_string()))?;
    let Rules { signposts, link, relay, reach, controller } = rules;
    let policy = Policy { links: link, relays: relay, reach };
    Ok(Settings { signposts, policy, controllers: controller })
}

/// Each rule and each controller as a line by itself: to show which come and go. Their order has no meaning.
pub(crate) fn lines(settings: &Settings) -> Vec<String> {
    let Settings { signposts, policy: Policy { links, relays, reach }, controllers } = settings;
    let mut lines: Vec<String> = links.iter().map(|link| line("link", link)).collect();
    lines.extend(relays.iter().map(|relay| line("relay", relay)));
    lines.extend(reach.iter().map(|reach| line("reach", reach)));
    if reach.is_empty() {
        // The last rule that goes is no limit more, but none.
        lines.push("no reach: everybody may reach everybody".to_owned());
    }
    lines.extend(signposts.iter().map(|domain| line("signposts", domain)));
    lines.extend(controllers.iter().map(|controller| line("controller", controller)));
    lines
}

/// Something in a line, as it stands in a file of rules. What cannot be seen is escaped: somebody else may have written it.
pub(crate) fn line(what: &str, value: &impl Serialize) -> String {
    let mut text = String::new();
    match value.serialize(toml::ser::ValueSerializer::new(&mut text)) {
        Ok(_) => {}
        Err(error) => text = error.to_string(),
    }
    let visible = text.chars().map(|sign| match sign {
        '"' | '\'' | '\\' => sign.to_string(),
        other => other.escape_debug().to_string(),
    });
    format!("{what} = {}", visible.collect::<String>())
}

/// As a text.
///
/// # Errors
/// None that anybody has seen: rules are tables.
pub fn write(settings: Settings) -> Result<String, Error> {
    let Settings { signposts, policy: Policy { links, relays, reach }, controllers } = settings;
    let rules = Rules { signposts, link: links, relay: relays, reach, controller: controllers };
    toml::to_string(&rules).map_err(|error| Error::Refused(error.to_string()))
}
