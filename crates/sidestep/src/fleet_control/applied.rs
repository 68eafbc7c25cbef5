//! Waiting for sites to apply that were invited.

use std::time::{Duration, Instant};

use controller::{Folder, Waiting};
use fleet::enrolment::{Application, State};

use crate::failure::Failure;

/// How often it is asked whether they have.
const INTERVAL: Duration = Duration::from_millis(500);

/// Whether an application is the one that somebody means: by its site's name, or the first digits of its own.
pub(super) fn is_meant(one: &Waiting, application: &Application, text: &str) -> bool {
    application.member.name.as_str() == text || (text.len() >= 6 && one.id.starts_with(text))
}

/// Waits until all of these have applied.
///
/// # Errors
/// If some have not in time, with their names.
pub(super) async fn wait_for(folder: &Folder, sites: &[String], patience: Duration) -> Result<(), Failure> {
    let end = Instant::now() + patience;
    loop {
        let all: Vec<Waiting> = folder.get("/v1/applications").await?;
        // One that is not as its site has signed it is refused where it is read to be signed.
        let applied: Vec<(&Waiting, Application)> = all
            .iter()
            .filter(|one| !matches!(one.state, State::Refused { .. }))
            .filter_map(|one| Some((one, one.applied.signed.read().ok()?)))
            .collect();
        let has_applied =
            |text: &&String| applied.iter().any(|(one, application)| is_meant(one, application, text));
        let missing: Vec<&str> = sites.iter().filter(|text| !has_applied(text)).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            let patience = humantime::format_duration(patience);
            let why = format!("not applied within {patience}, so nothing was signed: {}", missing.join(", "));
            return Err(Failure::Message(why));
        }
        // Nothing else is done here meanwhile.
        std::thread::sleep(INTERVAL);
    }
}
