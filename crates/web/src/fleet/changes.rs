//! Changes: made here as drafts, which are shown and handed out; signed elsewhere; shown once more, and handed in. None of it puts
//! anything in force that is not signed: controllers, sites and this page verify that, each for itself.

use controller::{Draft, Role, Waiting, rules};
use fleet::enrolment::{self, Application, State};
use fleet::fleet::Fleet;
use fleet::name::Name;
use serde::Deserialize;
use serde_json::{Value, json};

use super::desk::{Desk, in_force, run};
use super::hearing::{Why, said};
use super::known::Known;
use super::shown;

/// What is to be different.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Wanted {
    /// Other rules, as text.
    Rules(String),
    /// Sites that have applied, by their applications.
    Approve(Vec<String>),
    /// Sites that leave.
    Revoke(Vec<Name>),
}

/// An application that is turned down.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnedDown {
    id: String,
    why: String,
}

impl Desk {
    /// Keeps others from changing something at the same time: to be held from before what was sent is read.
    pub(crate) async fn alone(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.one.acquire().await.ok()
    }

    /// Does what was sent to one of these paths, below `/api/fleet/`. Nothing, if there is no such path.
    pub(crate) async fn change(&self, path: &str, sent: &[u8]) -> Option<Result<Value, Why>> {
        Some(match path {
            "draft" => self.draft(sent).await,
            "check" => self.check(sent).await,
            "publish" => self.publish(sent).await,
            "refuse" => self.refuse(sent).await,
            _ => return None,
        })
    }

    /// A draft of a change, with what it would do. Nobody has signed it.
    async fn draft(&self, sent: &[u8]) -> Result<Value, Why> {
        let wanted: Wanted = serde_json::from_slice(sent).map_err(|error| error.to_string())?;
        let (known, fleet) = self.fleet().await?;
        let applications = match &wanted {
            Wanted::Approve(ids) => verified(&known, &fleet, ids)?,
            _ => Vec::new(),
        };
        run(move || {
            let before = in_force(&fleet);
            let (draft, name) = match wanted {
                Wanted::Rules(text) => {
                    let settings = rules::read(&text).map_err(|error| error.to_string())?;
                    (Draft::settings(&fleet, before, settings), "rules".to_owned())
                }
                Wanted::Approve(_) => {
                    let name = name_of(applications.iter().map(|one| &one.member.name));
                    (Draft::approve(&fleet, before, applications), name)
                }
                Wanted::Revoke(sites) => {
                    let name = format!("revoke-{}", name_of(sites.iter()));
                    (Draft::revoke(&fleet, before, &sites, false), name)
                }
            };
            let draft = draft.map_err(|error| error.to_string())?;
            let preview = draft.preview(&fleet).map_err(|error| error.to_string())?;
            let text = draft.to_text().map_err(|error| error.to_string())?;
            Ok(json!({ "file": format!("{name}.draft"), "text": text, "difference": shown::difference(&preview) }))
        })
        .await
    }

    /// What a draft would do that somebody has here: who has signed it, and whether that is enough.
    async fn check(&self, sent: &[u8]) -> Result<Value, Why> {
        let (known, fleet) = self.fleet().await?;
        let may_publish = known.you().is_some_and(|you| you.role >= Role::Publisher);
        let text = text_of(sent)?;
        run(move || {
            let (draft, before) = Draft::parse(&text).map_err(|error| error.to_string())?;
            if draft.network != fleet.network() {
                return Err("this draft is of another network".to_owned());
            }
            let is_now = digest(&before) == digest(&fleet);
            let of = if is_now { &*fleet } else { &before };
            let preview = draft.preview(of).map_err(|error| error.to_string())?;
            let lacks = draft.lacks(of);
            let overtaken = (!is_now).then(|| {
                let serial = |fleet: &Fleet| fleet.serial().map_or(0, |serial| serial.0);
                let (now, then) = (serial(&fleet), serial(&before));
                format!("it is a change of document {then}, and {now} is in force: make it anew from that")
            });
            Ok(json!({
                "difference": shown::difference(&preview),
                "signers": draft.signers(of).map_err(|error| error.to_string())?,
                "threshold": of.chain().current().threshold,
                "lacks": lacks,
                "overtaken": overtaken,
                "may_publish": may_publish,
            }))
        })
        .await
    }

    /// Hands a draft in that enough have signed.
    async fn publish(&self, sent: &[u8]) -> Result<Value, Why> {
        let (_, told) = self.controller().await?;
        let text = text_of(sent)?;
        let (draft, _) = run(move || Draft::parse(&text).map_err(|error| error.to_string())).await?;
        if draft.network != self.folder.network.network {
            return Err("this draft is of another network".to_owned());
        }
        told.client.post::<()>("/v1/publish", &draft.change).await.map_err(said)?;
        // What is shown next is asked for anew.
        *self.known.lock().await = None;
        Ok(json!({}))
    }

    /// Turns an application down.
    async fn refuse(&self, sent: &[u8]) -> Result<Value, Why> {
        let TurnedDown { id, why } = serde_json::from_slice(sent).map_err(|error| error.to_string())?;
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("an application is named by hexadecimal digits".to_owned());
        }
        let (_, told) = self.controller().await?;
        let path = format!("/v1/applications/{id}/refuse");
        told.client.post::<()>(&path, &json!({ "why": why })).await.map_err(said)?;
        *self.known.lock().await = None;
        Ok(json!({}))
    }

    /// The applications, with what their sites have signed, where that is right.
    pub(crate) async fn applications(&self) -> Result<Value, Why> {
        let (known, _) = self.controller().await?;
        let all = &known.applications;
        let one = |waiting: &Waiting| {
            let mut shown = json!({
                "id": waiting.id, "invited_by": waiting.applied.invited_by, "at_s": waiting.applied.at,
                "state": waiting.state, "refused": waiting.applied.refused,
            });
            match right(waiting, self.folder.network.network) {
                Some(Application { member, contact, .. }) => {
                    shown["site"] = json!({
                        "name": member.name, "identity": member.identity, "role": member.role, "region": member.region,
                        "zone": member.zone, "networks": member.networks, "may_take": member.may_take,
                        "hops_in": contact.hop_prefix,
                    });
                }
                None => {
                    shown["fault"] = "it was changed at the controller: its site has not signed this".into();
                }
            }
            shown
        };
        Ok(json!({ "applications": all.iter().map(one).collect::<Vec<_>>(), "you": known.you() }))
    }
}

/// Applications that wait, verified.
fn verified(known: &Known, fleet: &Fleet, ids: &[String]) -> Result<Vec<Application>, Why> {
    let find = |id: &String| {
        let found = known.applications.iter().find(|one| one.id == *id && one.state == State::Waiting);
        let found = found.ok_or_else(|| format!("no application {} waits any more", short(id)))?;
        right(found, fleet.network())
            .ok_or_else(|| format!("application {} was changed at the controller", short(id)))
    };
    ids.iter().map(find).collect()
}

/// What a site has signed, if it has: a controller may say anything.
fn right(waiting: &Waiting, network: fleet::authority::NetworkId) -> Option<Application> {
    let signed = &waiting.applied.signed;
    let application = enrolment::check(signed, network).ok()?;
    (enrolment::id(signed) == waiting.id).then_some(application)
}

fn digest(fleet: &Fleet) -> Option<fleet::key::Digest> {
    fleet.document().map(|document| document.signed.digest())
}

fn text_of(sent: &[u8]) -> Result<String, Why> {
    String::from_utf8(sent.to_vec()).map_err(|_| "this is no draft: it is no text".to_owned())
}

/// As much of an identification as people compare.
fn short(id: &str) -> String {
    id.chars().take(8).collect()
}

/// What a file about sites is called.
fn name_of<'n>(mut names: impl Iterator<Item = &'n Name>) -> String {
    match (names.next(), names.next()) {
        (Some(one), None) => one.to_string(),
        _ => "sites".to_owned(),
    }
}
