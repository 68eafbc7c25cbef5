//! How a site becomes a member: it applies, waits for what administrators say, and fetches the document.

use std::time::Duration;

use fleet::agent::Asker;
use fleet::enrolment::{Application, ApplicationError, Invitation, State, Status, id, pause};
use fleet::exchange::Question;
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::news::News;
use fleet::settings::Controller as Place;
use fleet::signed::Signed;
use fleet::site::{Contact, Member};
use hyper::StatusCode;
use tokio::time::Instant;

use crate::controller::Controller;
use crate::folder::{Folder, FolderError};
use crate::http::HttpError;

/// How long until it applies again where a controller is busy.
const BETWEEN: Duration = Duration::from_secs(2);

/// A site that wants to be a member.
#[derive(Debug)]
pub struct Enrolment<'i> {
    invitation: &'i Invitation,
    site: Name,
    identity: SigningKey,
    application: Signed<Application>,
}

/// Why a site is no member.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// It cannot apply.
    #[error(transparent)]
    Application(#[from] ApplicationError),
    /// No controller answers.
    #[error("no controller of the fleet answers: {}", .0.join("; "))]
    Nobody(Vec<String>),
    /// A controller has refused it.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// It was turned down.
    #[error("the fleet's administrators have turned this site down: {0}")]
    TurnedDown(String),
    /// Nobody has decided in time.
    #[error("nobody has decided about this site yet: `sidestep enroll --wait` goes on waiting")]
    Waiting,
    /// What the controller says is not signed by this network's administrators.
    #[error("what the controller says of the fleet is not to be believed: {0}")]
    Forged(String),
    /// Its folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl<'i> Enrolment<'i> {
    /// Of a site with this identity, which is met so.
    ///
    /// # Errors
    /// If it asks for what it was not invited to, or could not be configured.
    pub fn new(
        invitation: &'i Invitation,
        identity: SigningKey,
        member: Member,
        contact: Contact,
    ) -> Result<Self, EnrolError> {
        let site = member.name.clone();
        let application = invitation.apply(&identity, member, contact)?;
        Ok(Enrolment { invitation, site, identity, application })
    }

    /// Applies, waits so long for a decision, and keeps what there is to know in a folder. Applying again is harmless.
    ///
    /// # Errors
    /// If it is no member then.
    pub fn run(&self, folder: &Folder, patience: Duration) -> Result<(), EnrolError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let begin = Instant::now();
            let (end, mut random) = (begin + patience, fastrand::Rng::new());
            let (mut controller, status) = self.apply(end).await?;
            let mut told = Some(status);
            let member = loop {
                match told.take() {
                    Some(status) if status.state == State::Member => break status,
                    Some(Status { state: State::Refused { why }, .. }) => {
                        return Err(EnrolError::TurnedDown(why.escape_debug().to_string()));
                    }
                    _ if Instant::now() >= end => return Err(EnrolError::Waiting),
                    _ => {
                        let next = Instant::now() + pause(begin.elapsed(), &mut random);
                        tokio::time::sleep_until(next.min(end)).await;
                    }
                }
                match controller.status(&id(&self.application)).await {
                    Ok(status) => told = Some(status),
                    // It may have gone away, and another be there; or the connection was idle for too long.
                    Err(HttpError::Unreachable { .. }) => {
                        controller = self.reach().await?;
                        told = controller.status(&id(&self.application)).await.ok();
                    }
                    Err(error) if is_busy(&error) => {}
                    Err(error) => return Err(error.into()),
                }
            };
            let fleet = self.fetch(&mut controller, member).await?;
            Ok(folder.keep_fleet(&fleet)?)
        })
    }

    /// Applies; again until then, where many do at once or the store has no majority.
    async fn apply(&self, end: Instant) -> Result<(Controller, Status), EnrolError> {
        loop {
            let mut controller = self.reach().await?;
            match controller.apply(&self.application).await {
                Ok(status) => return Ok((controller, status)),
                Err(error) if is_busy(&error) && Instant::now() < end => tokio::time::sleep(BETWEEN).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A controller that answers: thousands that enrol at once do not all ask the same.
    async fn reach(&self) -> Result<Controller, EnrolError> {
        let mut why = Vec::new();
        let mut places: Vec<&Place> = self.invitation.controllers.iter().collect();
        fastrand::shuffle(&mut places);
        for Place { outside, certificate, .. } in places {
            let Some(place) = outside else { continue };
            match Controller::at(place, *certificate).await {
                Ok(controller) => return Ok(controller),
                Err(error) => why.push(error.to_string()),
            }
        }
        Err(EnrolError::Nobody(why))
    }

    /// The fleet as administrators have signed it, with this site in it.
    async fn fetch(&self, controller: &mut Controller, status: Status) -> Result<Fleet, EnrolError> {
        let forged = |why: String| EnrolError::Forged(why);
        let network = self.invitation.network;
        let chain = self.invitation.chain(status.authorities).map_err(|error| forged(error.to_string()))?;
        let mut fleet = Fleet::new(chain);
        let identity = self.identity.to_text().parse().expect("a key's text");
        let asker = Asker::new(network, self.site.clone(), identity);
        let question = Question { have: fleet.have(), since: None };
        let (answer, _) = controller.sync(&asker, question, &News::default(), Duration::ZERO).await?;
        if let Some(refusal) = fleet.take(answer.news).refused.first() {
            return Err(forged(refusal.to_string()));
        }
        match fleet.site(&self.site) {
            Some(site) if site.member.identity == self.identity.public() => Ok(fleet),
            _ => Err(forged(format!("there is no site {} with this identity in the document", self.site))),
        }
    }
}

/// Whether the same may be answered a moment later.
fn is_busy(error: &HttpError) -> bool {
    matches!(error, HttpError::Refused { status, .. } if *status == StatusCode::SERVICE_UNAVAILABLE.as_u16())
}
