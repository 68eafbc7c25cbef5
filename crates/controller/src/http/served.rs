//! What requests are answered from.

use std::sync::Arc;

use fleet::key::Digest;
use store::Store;

use super::challenge::Challenges;
use super::connections::Strangers;
use crate::controller::Controller;
use crate::error::Error;
use crate::oidc::Provider;

/// What is served.
pub(super) struct Site<S: Store> {
    pub(super) controller: Controller<S>,
    /// The digest of the certificate that it is served with.
    pub(super) certificate: Digest,
    pub(super) challenges: Challenges,
    pub(super) strangers: Strangers,
    /// Where people log in, if anywhere.
    pub(super) provider: Option<Provider>,
}

impl<S: Store> Site<S> {
    /// Where nobody logs in.
    pub(super) fn new(controller: Controller<S>, certificate: Digest) -> Result<Self, Error> {
        let (challenges, strangers) = (Challenges::new()?, Strangers::default());
        Ok(Site { controller, certificate, challenges, strangers, provider: None })
    }
}

/// The same for all requests.
pub(super) type Shared<S> = Arc<Site<S>>;
