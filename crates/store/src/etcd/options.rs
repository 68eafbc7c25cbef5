//! How etcd is reached.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::messages::AuthenticateRequest;
use crate::error::OpenError;
use crate::key::Key;

/// How etcd is reached.
#[derive(Clone)]
pub struct EtcdOptions {
    pub(super) prefix: String,
    pub(super) patience: Duration,
    endpoints: Vec<String>,
    user: Option<(String, String)>,
    tls: Option<EtcdTls>,
}

/// How its members are known, and how they know us. All in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificates of the authorities that the members' are signed by. No others are believed.
    pub authorities: Vec<u8>,
    /// Our certificate and its private key, where members ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Without what is secret.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("patience", &self.patience)
            .finish()
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EtcdTls, identity: {}", self.identity.is_some())
    }
}

impl EtcdOptions {
    /// The members' URLs (`https://etcd-1.example:2379`), all of them, and the name below which all keys are, such as
    /// `sidestep/fleet`: different fleets in one etcd have different ones, none below another.
    #[must_use]
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>, below: &Key) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        let patience = Duration::from_secs(6);
        Self { prefix: format!("{below}/"), patience, endpoints, user: None, tls: None }
    }

    /// With a name and a password.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// With TLS, for URLs with `https`.
    #[must_use]
    pub fn tls(mut self, tls: EtcdTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How long a request may take, with all tries at several members; 6 s by default. An election of a new leader has to fit in,
    /// which takes etcd one or two seconds with its own defaults.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(super) fn authentication(&self) -> Option<AuthenticateRequest> {
        let (name, password) = self.user.clone()?;
        Some(AuthenticateRequest { name, password })
    }

    pub(super) fn parsed(&self) -> Result<Vec<Endpoint>, OpenError> {
        if self.endpoints.is_empty() {
            return Err(OpenError::Options("no endpoint of etcd is named".to_owned()));
        }
        self.endpoints.iter().map(|url| self.endpoint(url)).collect()
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint, OpenError> {
        let wrong = |why: &dyn fmt::Display| OpenError::Options(format!("{url}: {why}"));
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(&error))?;
        match (endpoint.uri().scheme_str(), &self.tls) {
            (Some("http"), None) => Ok(endpoint),
            (Some("https"), Some(tls)) => {
                let mut config =
                    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authorities));
                if let Some((certificate, key)) = &tls.identity {
                    config = config.identity(Identity::from_pem(certificate, key));
                }
                endpoint.tls_config(config).map_err(|error| wrong(&cause(&error)))
            }
            (Some("http"), Some(_)) => Err(wrong(&"there are certificates, but the URL is not https")),
            (Some("https"), None) => Err(wrong(&"https needs the certificate of an authority")),
            _ => Err(wrong(&"an endpoint is like https://etcd-1.example:2379")),
        }
    }
}

/// The innermost reason.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}
