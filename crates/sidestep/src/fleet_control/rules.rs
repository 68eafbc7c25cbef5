//! The rules of a fleet in a file: docs/fleet.md has the form.

use std::path::Path;

use controller::rules;
use fleet::settings::Settings;

use super::folder::read;
use crate::failure::Failure;

/// Rules from a file, or those of most fleets.
pub(super) fn settings_of(path: Option<&Path>) -> Result<Settings, Failure> {
    let Some(path) = path else { return Ok(rules::read(rules::USUAL)?) };
    rules::read(&read(path)?).map_err(|error| Failure::Message(format!("{}: {error}", path.display())))
}
