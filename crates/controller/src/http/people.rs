//! What people ask, with a token. Who shows one for publishing can still put nothing in force that is not signed.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use fleet::authority::NetworkId;
use fleet::document::{Head, Serial};
use fleet::enrolment::Terms;
use fleet::key::VerifyingKey;
use fleet::name::Name;
use fleet::news::{Have, News};
use fleet::settings::Settings;
use fleet::site::{Contact, Member};
use serde::{Deserialize, Serialize};
use store::Store;

use super::connections::Place;
use super::problem::Failed;
use super::served::Shared;
use crate::access;
use crate::controller::Figures;
use crate::enrol::{Invited, Waiting};
use crate::error::Error;
use crate::heard::Hearing;
use crate::preview::Preview;
use crate::records::{Access, Role};

/// The description of the interface, which a test compares with the routes.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Somebody who has shown a token.
pub(super) struct Person(Access);

impl Person {
    /// As whom he is in the log.
    pub(super) fn name(&self) -> &Name {
        &self.0.name
    }

    /// Who it is, if he may do what those of this role may.
    fn may(&self, role: Role) -> Result<String, Failed> {
        match self.0.role >= role {
            true => Ok(self.0.name.to_string()),
            false => Err(Failed::Forbidden(format!(
                "{} is only a {}: that takes {role}",
                self.0.name, self.0.role
            ))),
        }
    }
}

impl<S: Store> FromRequestParts<Shared<S>> for Person {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, site: &Shared<S>) -> Result<Self, Failed> {
        let place = parts.extensions.get::<Place>().copied().ok_or(Failed::Nobody)?;
        if site.strangers.is_over(place) {
            return Err(Failed::Often);
        }
        match access::who(site.controller.store(), bearer(&parts.headers)).await? {
            Some(access) => Ok(Person(access)),
            None => {
                site.strangers.note(place);
                Err(Failed::Nobody)
            }
        }
    }
}

/// The token that is shown.
pub(super) fn bearer(headers: &HeaderMap) -> &str {
    let field = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    field.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
}

/// The description of this interface.
pub(super) async fn description() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

/// Who asks.
pub(super) async fn me<S: Store>(State(_): State<Shared<S>>, person: Person) -> Json<Access> {
    Json(person.0)
}

/// A fleet in short.
#[derive(Serialize)]
pub(super) struct Short {
    network: NetworkId,
    authority: u64,
    serial: Option<Serial>,
    head: Option<Head>,
    sites: usize,
    settings: Option<Settings>,
    log: Option<crate::log::Head>,
    waiting: usize,
    revision: u64,
}

pub(super) async fn fleet<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Short>, Failed> {
    person.may(Role::Viewer)?;
    let log = site.controller.log_head().await?;
    let Figures { waiting, revision, .. } = site.controller.figures();
    let desk = site.controller.desk();
    let fleet = desk.fleet();
    Ok(Json(Short {
        network: fleet.network(),
        authority: fleet.chain().current().version,
        serial: fleet.serial(),
        head: fleet.document().map(|document| document.head.clone()),
        sites: fleet.sites().len(),
        settings: fleet.settings().cloned(),
        log,
        waiting,
        revision,
    }))
}

/// All that is signed: who asks verifies it by the network's name.
pub(super) async fn news<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<News>, Failed> {
    person.may(Role::Viewer)?;
    Ok(Json(site.controller.all_news(&Have::default())))
}

/// A site as it is now.
#[derive(Serialize)]
pub(super) struct SiteNow {
    member: Member,
    contact: Option<Contact>,
}

pub(super) async fn sites<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Vec<SiteNow>>, Failed> {
    person.may(Role::Viewer)?;
    let desk = site.controller.desk();
    let sites = desk.fleet().sites().into_values();
    let now = sites.map(|site| SiteNow { member: site.member.into_owned(), contact: site.contact.cloned() });
    Ok(Json(now.collect()))
}

/// What this controller itself has heard: others have heard others.
pub(super) async fn heard<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Hearing>, Failed> {
    person.may(Role::Viewer)?;
    Ok(Json(site.controller.heard()))
}

pub(super) async fn documents<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Vec<Head>>, Failed> {
    person.may(Role::Viewer)?;
    Ok(Json(site.controller.documents().await?))
}

/// A document, and what was different from the one before.
#[derive(Serialize)]
pub(super) struct Past {
    head: Head,
    difference: Preview,
}

pub(super) async fn document<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    Path(serial): Path<u64>,
) -> Result<Json<Past>, Failed> {
    person.may(Role::Viewer)?;
    let (head, difference) = site.controller.past(Serial(serial)).await?;
    Ok(Json(Past { head, difference }))
}

pub(super) async fn preview<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    news: Result<Json<News>, JsonRejection>,
) -> Result<Json<Preview>, Failed> {
    person.may(Role::Viewer)?;
    let before = site.controller.fleet();
    let mut after = before.clone();
    match after.take(news?.0).refused.first() {
        Some(refusal) => Err(Error::Refused(refusal.to_string()).into()),
        None => Ok(Json(Preview::computed(before, after).await?)),
    }
}

pub(super) async fn publish<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    news: Result<Json<News>, JsonRejection>,
) -> Result<StatusCode, Failed> {
    let who = person.may(Role::Publisher)?;
    site.controller.publish(&who, news?.0).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn applications<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Vec<Waiting>>, Failed> {
    person.may(Role::Viewer)?;
    Ok(Json(site.controller.applications().await?))
}

/// Why an application is turned down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refusal {
    why: String,
}

pub(super) async fn refuse<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    Path(id): Path<String>,
    refusal: Result<Json<Refusal>, JsonRejection>,
) -> Result<StatusCode, Failed> {
    let who = person.may(Role::Inviter)?;
    site.controller.refuse(&who, &id, &refusal?.0.why).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn invitations<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Vec<Invited>>, Failed> {
    person.may(Role::Viewer)?;
    Ok(Json(site.controller.invitations().await?))
}

/// An invitation to be taken note of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToInvite {
    /// The public half of its key.
    key: VerifyingKey,
    terms: Terms,
    expires: u64,
}

/// How something is named.
#[derive(Serialize)]
pub(super) struct Id {
    id: String,
}

pub(super) async fn invite<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    invitation: Result<Json<ToInvite>, JsonRejection>,
) -> Result<impl IntoResponse, Failed> {
    let who = person.may(Role::Inviter)?;
    let ToInvite { key, terms, expires } = invitation?.0;
    let id = site.controller.invite(&who, key, terms, expires).await?;
    Ok((StatusCode::CREATED, Json(Id { id })))
}

pub(super) async fn uninvite<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    Path(id): Path<String>,
) -> Result<StatusCode, Failed> {
    let who = person.may(Role::Inviter)?;
    site.controller.uninvite(&who, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
pub(super) struct From {
    #[serde(default)]
    from: u64,
}

/// Records of the log, as texts: their digests are those of the texts.
#[derive(Serialize)]
pub(super) struct Log {
    records: Vec<String>,
    head: Option<crate::log::Head>,
}

pub(super) async fn log<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    from: Result<Query<From>, QueryRejection>,
) -> Result<Json<Log>, Failed> {
    person.may(Role::Viewer)?;
    let head = site.controller.log_head().await?;
    Ok(Json(Log { records: site.controller.log(from?.0.from).await?, head }))
}

/// Who may ask.
#[derive(Serialize)]
pub(super) struct Accesses {
    people: Vec<Access>,
    you: Name,
}

pub(super) async fn access<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
) -> Result<Json<Accesses>, Failed> {
    person.may(Role::Viewer)?;
    Ok(Json(Accesses { people: access::list(site.controller.store()).await?, you: person.0.name }))
}
