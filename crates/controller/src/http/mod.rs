//! HTTP/1.1 and JSON over TLS: for agents, whose requests are signed, and for people, who show a token.

mod agents;
mod challenge;
mod connections;
mod login;
mod people;
mod problem;
mod served;
mod tls;

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::response::Response;
use axum::routing::{delete, get, post};
use fleet::key::Digest;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use store::Store;

use crate::controller::Controller;
use crate::oidc::Provider;
use connections::Place;
use served::{Shared, Site};

pub use login::Session;
pub use people::OPENAPI;
pub use tls::{Identity, IdentityError};

/// Octets of what a stranger may send.
const STRANGERS_BODY: usize = 64 * 1024;
/// Octets of a document with thousands of sites.
const PUBLISHERS_BODY: usize = 32 * 1024 * 1024;

/// A controller's interface, which listens, and does not answer yet.
pub struct Server<S: Store> {
    site: Site<S>,
    listener: TcpListener,
    identity: Identity,
    connections: usize,
}

impl<S: Store> Server<S> {
    /// Serves a controller at a listener, with so many connections at the most.
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub fn new(
        controller: Controller<S>,
        listener: TcpListener,
        identity: Identity,
        connections: usize,
    ) -> Result<Self, crate::Error> {
        let site = Site::new(controller, identity.digest())?;
        Ok(Server { site, listener, identity, connections })
    }

    /// Lets people in who have logged in at an identity provider.
    #[must_use]
    pub fn with_provider(mut self, provider: Option<Provider>) -> Self {
        self.site.provider = provider;
        self
    }

    /// Follows the store, and answers, until the listener fails.
    ///
    /// # Errors
    /// If it cannot listen any more.
    pub async fn serve(self) -> std::io::Result<()> {
        let controller = self.site.controller.clone();
        let router = router(Arc::new(self.site));
        let serving = connections::serve(self.listener, self.identity.acceptor(), router, self.connections);
        tokio::select! {
            result = serving => result,
            () = controller.follow() => Err(std::io::Error::other("the store is followed no more")),
        }
    }
}

/// A controller's interface without what carries it: a request in, an answer out. [`Server`] has the same behind TLS.
#[derive(Debug, Clone)]
pub struct Interface(Router);

impl Interface {
    /// Of a controller with a certificate of this digest. [`Controller::follow`] has to run beside it.
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub fn new<S: Store>(controller: Controller<S>, certificate: Digest) -> Result<Self, crate::Error> {
        Ok(Interface(router(Arc::new(Site::new(controller, certificate)?))))
    }

    /// Answers what comes from an address.
    pub async fn answer(&self, from: IpAddr, mut request: Request) -> Response {
        request.extensions_mut().insert(Place::of(from));
        let Ok(response) = TowerToHyperService::new(self.0.clone()).call(request).await;
        response
    }
}

/// All paths, with who may ask for them.
fn router<S: Store>(site: Shared<S>) -> Router {
    let strangers = Router::new()
        .route("/v1/sync", post(agents::sync::<S>))
        .route("/v1/turn", post(agents::turn::<S>))
        .route("/v1/enrol", post(agents::enrol::<S>))
        .route("/v1/enrol/{id}", get(agents::status::<S>))
        .route("/v1/login", get(login::begin::<S>))
        .route("/v1/session", post(login::log_in::<S>).delete(login::log_out::<S>))
        .route("/v1/openapi.json", get(people::description))
        .layer(DefaultBodyLimit::max(STRANGERS_BODY));
    let people = Router::new()
        .route("/v1/me", get(people::me::<S>))
        .route("/v1/fleet", get(people::fleet::<S>))
        .route("/v1/news", get(people::news::<S>))
        .route("/v1/sites", get(people::sites::<S>))
        .route("/v1/heard", get(people::heard::<S>))
        .route("/v1/documents", get(people::documents::<S>))
        .route("/v1/documents/{serial}", get(people::document::<S>))
        .route("/v1/preview", post(people::preview::<S>))
        .route("/v1/publish", post(people::publish::<S>))
        .route("/v1/applications", get(people::applications::<S>))
        .route("/v1/applications/{id}/refuse", post(people::refuse::<S>))
        .route("/v1/invitations", get(people::invitations::<S>).post(people::invite::<S>))
        .route("/v1/invitations/{id}", delete(people::uninvite::<S>))
        .route("/v1/log", get(people::log::<S>))
        .route("/v1/access", get(people::access::<S>))
        .layer(DefaultBodyLimit::max(PUBLISHERS_BODY));
    strangers
        .merge(people)
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_path)
        .with_state(site)
}
