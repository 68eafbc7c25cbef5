//! People who log in at an identity provider, and come back with a code.

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use fleet::name::Name;
use serde::{Deserialize, Serialize};
use store::Store;

use super::connections::Place;
use super::people::{Person, bearer};
use super::problem::Failed;
use super::served::{Shared, Site};
use crate::access;
use crate::error::Error;
use crate::oidc::{Login, OIDC, Provider, Returned};
use crate::records::Role;

/// Somebody who has logged in.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// What he shows from now on.
    pub token: String,
    /// As whom he is in the log.
    pub name: Name,
    /// What he may.
    pub role: Role,
    /// Until when, in seconds of Unix time.
    pub expires: u64,
}

/// Where a browser is sent to.
pub(super) async fn begin<S: Store>(
    State(site): State<Shared<S>>,
    Extension(place): Extension<Place>,
) -> Result<Json<Login>, Failed> {
    if site.strangers.is_over(place) {
        return Err(Failed::Often);
    }
    Ok(Json(provider(&site)?.login().await?))
}

/// What the browser has brought back.
pub(super) async fn log_in<S: Store>(
    State(site): State<Shared<S>>,
    Extension(place): Extension<Place>,
    returned: Result<Json<Returned>, JsonRejection>,
) -> Result<impl IntoResponse, Failed> {
    if site.strangers.is_over(place) {
        return Err(Failed::Often);
    }
    let session = redeem(&site, returned?.0).await;
    if session.as_ref().is_err_and(|error| !matches!(error, Error::Unavailable(_))) {
        site.strangers.note(place);
    }
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(session?)))
}

/// Nobody comes with this token any more.
pub(super) async fn log_out<S: Store>(
    State(site): State<Shared<S>>,
    person: Person,
    headers: HeaderMap,
) -> Result<StatusCode, Failed> {
    access::log_out(site.controller.store(), person.name(), bearer(&headers)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn redeem<S: Store>(site: &Site<S>, returned: Returned) -> Result<Session, Error> {
    let person = provider(site)?.redeem(&returned).await?;
    let (name, role, expires) = (person.name.clone(), person.role, person.until);
    let token = access::log_in(site.controller.store(), person).await?;
    Ok(Session { token: token.to_string(), name, role, expires })
}

fn provider<S: Store>(site: &Site<S>) -> Result<&Provider, Error> {
    let missing = || Error::Missing(format!("identity provider: a file {OIDC} beside tls.pem says which"));
    site.provider.as_ref().ok_or_else(missing)
}
