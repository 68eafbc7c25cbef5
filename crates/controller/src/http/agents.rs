//! What agents ask. Nobody is believed: questions are signed by a site, applications by who was invited.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, response::IntoResponse};
use fleet::authority::NetworkId;
use fleet::enrolment::{Application, Status};
use fleet::exchange::{FromController, ToController};
use fleet::key::{Digest, VerifyingKey};
use fleet::name::Name;
use fleet::signed::Signed;
use fleet::standby::{FromRegister, ToRegister};
use serde::Deserialize;
use store::Store;
use tracing::{debug, warn};

use super::connections::Place;
use super::problem::Failed;
use super::served::Shared;
use crate::error::Error;

/// The longest that an answer is held back.
const LONGEST_WAIT: Duration = fleet::agent::WAIT;
/// The same where what the site has told was not kept: then it tells it again, here or at another controller.
const NOT_KEPT_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
pub(super) struct Wait {
    /// Seconds.
    #[serde(default)]
    wait: u64,
}

/// News for a site, and from it.
pub(super) async fn sync<S: Store>(
    State(site): State<Shared<S>>,
    Extension(place): Extension<Place>,
    wait: Result<Query<Wait>, QueryRejection>,
    request: Result<Json<ToController>, JsonRejection>,
) -> Result<(StatusCode, Json<FromController>), Failed> {
    if site.strangers.is_over(place) {
        return Err(Failed::Often);
    }
    let answer = sync_inner(&site, wait?.0.wait, request?.0).await;
    if answer.as_ref().is_err_and(is_refused) {
        site.strangers.note(place);
    }
    answer
}

async fn sync_inner<S: Store>(
    site: &Shared<S>,
    wait: u64,
    request: ToController,
) -> Result<(StatusCode, Json<FromController>), Failed> {
    let signed = &request.asking;
    let asking = signed.read().map_err(|error| Error::Refused(error.to_string()))?;
    let bound = (asking.certificate, asking.challenge.as_str());
    recognize(site, bound, (asking.network, &asking.site), |key| signed.is_signed_by(key))?;
    // Neither what it may not say nor a store that does not answer keeps it from hearing.
    let (status, longest) = match site.controller.hear(&asking.site, request.news).await {
        Ok(()) => (StatusCode::OK, LONGEST_WAIT),
        Err(Error::Refused(why)) => {
            warn!("{}: {why}", asking.site);
            (StatusCode::OK, LONGEST_WAIT)
        }
        Err(why) => {
            debug!("{}: {why}", asking.site);
            (StatusCode::ACCEPTED, NOT_KEPT_WAIT)
        }
    };
    let wait = Duration::from_secs(wait).min(longest);
    let answer = site.controller.answer(&asking.site, &asking.question, wait).await;
    Ok((status, Json(FromController { answer, challenge: site.challenges.give() })))
}

/// Whose turn it is, of a site's two gateways.
pub(super) async fn turn<S: Store>(
    State(site): State<Shared<S>>,
    Extension(place): Extension<Place>,
    wait: Result<Query<Wait>, QueryRejection>,
    request: Result<Json<ToRegister>, JsonRejection>,
) -> Result<Json<FromRegister>, Failed> {
    if site.strangers.is_over(place) {
        return Err(Failed::Often);
    }
    let answer = turn_inner(&site, wait?.0.wait, &request?.0).await;
    if answer.as_ref().is_err_and(is_refused) {
        site.strangers.note(place);
    }
    answer
}

async fn turn_inner<S: Store>(
    site: &Shared<S>,
    wait: u64,
    signed: &ToRegister,
) -> Result<Json<FromRegister>, Failed> {
    let wishing = signed.read().map_err(|error| Error::Refused(error.to_string()))?;
    let bound = (wishing.certificate, wishing.challenge.as_str());
    recognize(site, bound, (wishing.network, &wishing.site), |key| signed.is_signed_by(key))?;
    let wait = Duration::from_secs(wait).min(LONGEST_WAIT);
    let registered = site.controller.turn(&wishing.site, wishing.wish, wait).await?;
    Ok(Json(FromRegister { registered, challenge: site.challenges.give() }))
}

/// Whether it counts as one of the refusals of which nothing more is looked at after some. A challenge is none: each agent that
/// comes back needs one, and many may be behind one address.
fn is_refused(failed: &Failed) -> bool {
    !matches!(failed, Failed::Not(Error::Unavailable(_)) | Failed::Unbound(_))
}

/// Sees that a question is for this controller, was made lately, and is a site's own.
fn recognize<S: Store>(
    site: &Shared<S>,
    (certificate, challenge): (Digest, &str),
    (network, who): (NetworkId, &Name),
    is_signed_by: impl Fn(VerifyingKey) -> bool,
) -> Result<(), Failed> {
    if certificate != site.certificate {
        return Err(Failed::Forbidden("the question is for another controller".to_owned()));
    }
    if !site.challenges.is_good(challenge) {
        return Err(Failed::Unbound(site.challenges.give()));
    }
    let identity = {
        let desk = site.controller.desk();
        let fleet = desk.fleet();
        let known = fleet.site(who).filter(|_| network == fleet.network());
        known.map(|known| known.member.identity)
    };
    match identity.is_some_and(is_signed_by) {
        true => Ok(()),
        false => Err(Failed::Forbidden("no site of this fleet has signed the question".to_owned())),
    }
}

/// A site applies.
pub(super) async fn enrol<S: Store>(
    State(site): State<Shared<S>>,
    Extension(place): Extension<Place>,
    signed: Result<Json<Signed<Application>>, JsonRejection>,
) -> Result<impl IntoResponse, Failed> {
    if site.strangers.is_over(place) {
        return Err(Failed::Often);
    }
    match site.controller.apply(signed?.0).await {
        Ok(status) => Ok((StatusCode::ACCEPTED, Json(status))),
        Err(error) => {
            site.strangers.note(place);
            Err(error.into())
        }
    }
}

/// What became of an application.
pub(super) async fn status<S: Store>(
    State(site): State<Shared<S>>,
    Extension(place): Extension<Place>,
    Path(id): Path<String>,
) -> Result<Json<Status>, Failed> {
    if site.strangers.is_over(place) {
        return Err(Failed::Often);
    }
    match site.controller.status(&id).await {
        Ok(status) => Ok(Json(status)),
        Err(error) => {
            site.strangers.note(place);
            Err(error.into())
        }
    }
}
