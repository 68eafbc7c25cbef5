//! All controllers, each asked by itself: who it lets in, how far it is, and which sites it has heard.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::{Access, Client, ClientError, Folder, FolderError, Heard, Hearing};
use fleet::document::Serial;
use fleet::name::Name;
use fleet::settings::Controller;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// How long a controller may take for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// After so many seconds a site that does not wait for an answer is silent: where nobody answers it, it tries again after one
/// minute at the latest.
const SILENT_AFTER: u64 = 90;
/// After so many a site that waits has gone without a word: each answer comes earlier.
const GONE_AFTER: u64 = fleet::agent::WAIT.as_secs() + SILENT_AFTER;

/// Why something cannot be had, in words.
pub(crate) type Why = String;

/// A controller that was asked.
pub(super) struct Asked {
    pub(super) name: Name,
    pub(super) places: Vec<String>,
    /// What it has told, or why not.
    pub(super) answer: Result<Told, Why>,
}

/// What it has told.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) client: Client,
    pub(super) you: Access,
    pub(super) short: Short,
    hearing: Hearing,
}

/// How far it is.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Short {
    pub(super) serial: Option<Serial>,
    pub(super) revision: u64,
}

/// Asks them at once.
pub(super) async fn ask_all(folder: &Folder, controllers: &[Controller]) -> Vec<Asked> {
    let mut asking = JoinSet::new();
    for (at, controller) in controllers.iter().enumerate() {
        let (folder, controller) = (folder.clone(), controller.clone());
        asking.spawn(async move {
            let answer = ask(&folder, &controller).await;
            (at, Asked { name: controller.name.clone(), places: places(&controller), answer })
        });
    }
    let mut asked = BTreeMap::new();
    while let Some(done) = asking.join_next().await {
        asked.extend(done.ok());
    }
    asked.into_values().collect()
}

/// Asks one where it can be reached first.
async fn ask(folder: &Folder, controller: &Controller) -> Result<Told, Why> {
    let mut why = "it is told nowhere how to reach it".to_owned();
    for client in folder.clients(controller).map_err(said)? {
        let client = client.with_patience(PATIENCE);
        match client.get("/v1/me").await {
            Ok(you) => {
                let short = client.get("/v1/fleet").await.map_err(said)?;
                let hearing = client.get("/v1/heard").await.map_err(said)?;
                return Ok(Told { client, you, short, hearing });
            }
            Err(error) => why = said(error),
        }
    }
    Err(why)
}

/// What a controller says to who asks it something, in words.
#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
pub(super) fn said(error: ClientError) -> Why {
    error.to_string()
}

/// Where a controller is, for people.
fn places(controller: &Controller) -> Vec<String> {
    let inside = controller.inside.map(|address| address.to_string());
    inside.into_iter().chain(controller.outside.clone()).collect()
}

/// Asks the first controller of a folder that answers; with a body, sends it.
pub(super) async fn ask_first<A: DeserializeOwned>(
    folder: &Folder,
    path: &str,
    body: Option<&(impl Serialize + Sync)>,
) -> Result<A, Why> {
    let mut why = FolderError::Nobody.to_string();
    for controller in &folder.network.controllers {
        for client in folder.clients(controller).map_err(said)? {
            let answer = match body {
                Some(body) => client.post(path, body).await,
                None => client.get(path).await,
            };
            match answer {
                Err(error @ ClientError::Unreachable { .. }) => why = said(error),
                other => return other.map_err(said),
            }
        }
    }
    Err(why)
}

/// Where a site stands, as far as those controllers know that have answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Standing {
    pub(super) state: State,
    /// How many seconds ago it asked last.
    ago_s: Option<u64>,
    /// The document that it had then.
    serial: Option<Serial>,
    /// The controller that it asked.
    by: Option<Name>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It asks, and has the document in force.
    Current,
    /// It asks, and had an older one.
    Behind,
    /// It asks no controller any more, or has not for as long as one of them runs.
    Silent,
    /// Those that have answered have not heard it: another may have, or they run for a short while only.
    #[default]
    Unknown,
}

/// What controllers have heard, by the sites.
pub(super) struct Ears<'a> {
    heard: BTreeMap<&'a Name, (&'a Name, &'a Heard)>,
    /// Whether all have answered, and one has listened long enough to say that somebody is silent.
    can_tell: bool,
    in_force: Option<Serial>,
}

impl<'a> Ears<'a> {
    pub(super) fn of(controllers: &'a [Asked], in_force: Option<Serial>) -> Self {
        let mut heard: BTreeMap<&Name, (&Name, &Heard)> = BTreeMap::new();
        let mut longest = 0;
        for asked in controllers {
            let Ok(told) = &asked.answer else { continue };
            longest = longest.max(told.hearing.for_s);
            for one in &told.hearing.sites {
                let known = heard.entry(&one.site).or_insert((&asked.name, one));
                if one.ago_s < known.1.ago_s {
                    *known = (&asked.name, one);
                }
            }
        }
        let all = !controllers.is_empty() && controllers.iter().all(|asked| asked.answer.is_ok());
        Ears { heard, can_tell: all && longest >= GONE_AFTER, in_force }
    }

    pub(super) fn standing(&self, site: &Name) -> Standing {
        let silent = if self.can_tell { State::Silent } else { State::Unknown };
        let Some((by, heard)) = self.heard.get(site) else {
            return Standing { state: silent, ..Standing::default() };
        };
        let is_gone = heard.ago_s > if heard.waits { GONE_AFTER } else { SILENT_AFTER };
        let state = match heard.serial >= self.in_force {
            // It was heard, and is not any more, whoever has listened for how long; unless another hears it that is not reached.
            _ if is_gone => silent,
            true => State::Current,
            false => State::Behind,
        };
        let by = Some((*by).clone());
        Standing { state, ago_s: Some(heard.ago_s), serial: heard.serial, by }
    }
}

impl Told {
    /// For how many seconds it has listened, and how many sites it has heard.
    pub(super) fn heard(&self) -> (u64, usize) {
        (self.hearing.for_s, self.hearing.sites.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn heard(site: &str, ago_s: u64, serial: u64, waits: bool) -> Heard {
        Heard { site: name(site), ago_s, serial: Some(Serial(serial)), waits }
    }

    fn asked(who: &str, answer: Result<(u64, Vec<Heard>), Why>) -> Asked {
        let told = |(for_s, sites)| Told {
            client: Client::new("[::1]:1", fleet::key::Digest::of(b""), None).unwrap(),
            you: Access { name: name("vera"), role: controller::Role::Viewer, expires: None },
            short: Short { serial: None, revision: 1 },
            hearing: Hearing { for_s, sites },
        };
        Asked { name: name(who), places: Vec::new(), answer: answer.map(told) }
    }

    #[test]
    fn a_site_is_silent_only_where_all_controllers_say_so() {
        let one = vec![
            heard("a", 3, 7, true),
            heard("b", 3, 6, true),
            heard("c", 91, 7, false),
            heard("d", 391, 7, true),
        ];
        let state = |controllers: &[Asked], site: &str| {
            Ears::of(controllers, Some(Serial(7))).standing(&name(site)).state
        };
        let alone = [asked("c1", Ok((5000, one.clone())))];
        let expected = [State::Current, State::Behind, State::Silent, State::Silent, State::Silent];
        for (site, expected) in ["a", "b", "c", "d", "e"].iter().zip(expected) {
            assert_eq!(state(&alone, site), expected, "{site}");
        }
        // Another may have heard them.
        let half = [asked("c1", Ok((5000, one.clone()))), asked("c2", Err("it is away".into()))];
        let young = [asked("c1", Ok((100, one.clone())))];
        for site in ["c", "d", "e"] {
            assert_eq!(state(&half, site), State::Unknown, "{site}");
            assert_eq!(state(&young, site), State::Unknown, "{site}");
        }
        let both = [asked("c1", Ok((5000, one))), asked("c2", Ok((5, vec![heard("c", 2, 7, true)])))];
        assert_eq!(state(&both, "c"), State::Current);
        assert_eq!(Ears::of(&both, None).standing(&name("c")).by, Some(name("c2")));
        assert_eq!(state(&[], "a"), State::Unknown);
    }
}
