//! A client of HTTPS for an identity provider: a question, an answer, within bounds; no redirects, no other scheme.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Octets of an answer.
const LARGEST: usize = 1024 * 1024;

pub(super) struct Https {
    tls: TlsConnector,
}

impl Https {
    /// A client that trusts these authorities, or those of this machine.
    pub(super) fn new(roots: Option<Vec<CertificateDer<'static>>>) -> Result<Self, String> {
        let roots = match roots {
            Some(roots) => roots,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots);
        if store.is_empty() {
            return Err("there is no authority to trust: name one, ca = FILE".to_owned());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Https { tls: TlsConnector::from(Arc::new(config)) })
    }

    pub(super) async fn get<A: DeserializeOwned>(&self, url: &str) -> Result<A, Error> {
        let request = Request::builder().method(Method::GET).header(ACCEPT, "application/json");
        let (status, text) = self.ask(url, request, Bytes::new()).await?;
        if !status.is_success() {
            return Err(unavailable(url, &status));
        }
        serde_json::from_slice(&text).map_err(|error| unavailable(url, &error))
    }

    /// Sends a form.
    pub(super) async fn post(
        &self,
        url: &str,
        form: &str,
        authorization: Option<&String>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        self.ask(url, request, Bytes::copy_from_slice(form.as_bytes())).await
    }

    async fn ask(
        &self,
        url: &str,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Error> {
        match tokio::time::timeout(PATIENCE, self.converse(url, request, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(unavailable(url, &"it does not answer in time")),
        }
    }

    async fn converse(
        &self,
        url: &str,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Error> {
        let uri: Uri = url.parse().map_err(|error| unavailable(url, &error))?;
        let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(unavailable(url, &"it is no https:// address"));
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(443);
        let stream =
            TcpStream::connect((host.as_str(), port)).await.map_err(|error| unavailable(url, &error))?;
        let name = ServerName::try_from(host).map_err(|error| unavailable(url, &error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| unavailable(url, &error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| unavailable(url, &error))?;
        let path = uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
        let request = request.uri(path).header(HOST, authority.as_str()).body(Full::new(body));
        let request = request.map_err(|error| unavailable(url, &error))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|error| unavailable(url, &error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            Ok((status, body.map_err(|error| unavailable(url, &error))?.to_bytes()))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            _ = connection => exchange.await,
        }
    }
}

fn unavailable(url: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Unavailable(format!("the identity provider cannot be asked ({url}): {why}"))
}
