//! A client of a controller, which it knows by the digest of its certificate, whatever name or authority that has.

use std::sync::Arc;
use std::time::Duration;

use fleet::exchange::Problem;
use fleet::key::Digest;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};
use zeroize::Zeroizing;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Octets of an answer: a document of thousands of sites.
const LARGEST: usize = 64 * 1024 * 1024;

/// A controller as it is asked.
#[derive(Clone)]
pub struct Client {
    /// Where it is: `control.example.net:4160`, `[2001:db8::1]:4160`.
    at: String,
    certificate: Digest,
    tls: TlsConnector,
    token: Option<Zeroizing<String>>,
    patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there, or somebody else.
    #[error("the controller at {at} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        at: String,
        /// Why not.
        why: String,
    },
    /// It has refused, and says why.
    #[error("{error}")]
    Refused {
        /// How.
        status: StatusCode,
        /// Why.
        error: String,
    },
}

impl Client {
    /// A client of the controller at an address, with this certificate.
    ///
    /// # Errors
    /// If TLS cannot be had.
    pub fn new(at: &str, certificate: Digest, token: Option<Zeroizing<String>>) -> Result<Self, ClientError> {
        let provider = Arc::new(ring::default_provider());
        let no =
            |error: rustls::Error| ClientError::Unreachable { at: at.to_owned(), why: error.to_string() };
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(no)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { certificate, provider }))
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Client { at: at.to_owned(), certificate, tls, token, patience: Duration::from_secs(60) })
    }

    /// How long an answer may take.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The digest of its certificate.
    #[must_use]
    pub fn certificate(&self) -> Digest {
        self.certificate
    }

    /// Asks for something.
    ///
    /// # Errors
    /// If there is no answer, or it says no.
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClientError> {
        let (status, text) = self.ask(Method::GET, path, Bytes::new()).await?;
        self.read(status, &text)
    }

    /// Sends something, and is answered with something.
    ///
    /// # Errors
    /// If there is no answer, or it says no.
    pub async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unreachable(&error))?;
        let (status, text) = self.ask(Method::POST, path, body.into()).await?;
        // Nothing is the same as null.
        self.read(status, if text.is_empty() { b"null" } else { &text })
    }

    /// Removes something.
    ///
    /// # Errors
    /// If there is no answer, or it says no.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let (status, text) = self.ask(Method::DELETE, path, Bytes::new()).await?;
        self.read(status, if text.is_empty() { b"null" } else { &text })
    }

    fn read<A: DeserializeOwned>(&self, status: StatusCode, text: &[u8]) -> Result<A, ClientError> {
        if !status.is_success() {
            let problem = serde_json::from_slice::<Problem>(text);
            let error: String =
                problem.map_or_else(|_| String::from_utf8_lossy(text).into_owned(), |one| one.error);
            // Whoever it is, it does not draw on a terminal.
            let error = error.chars().filter(|c| !c.is_control()).collect();
            return Err(ClientError::Refused { status, error });
        }
        serde_json::from_slice(text).map_err(|error| self.unreachable(&error))
    }

    /// Asks, and answers status and text, whatever they are.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        match tokio::time::timeout(self.patience, self.converse(method, path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable(&"it does not answer in time")),
        }
    }

    async fn converse(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(&self.at));
        let stream = match connecting.await {
            Ok(stream) => stream.map_err(|error| self.unreachable(&error))?,
            Err(_) => return Err(self.unreachable(&"nobody answers")),
        };
        let _ = stream.set_nodelay(true);
        // The digest says who it is; the name is only for who looks from outside.
        let name = ServerName::try_from("sidestep").map_err(|error| self.unreachable(&error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| self.unreachable(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.unreachable(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.at)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", **token));
        }
        let request = request.body(Full::new(body)).map_err(|error| self.unreachable(&error))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|error| self.unreachable(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            Ok((status, body.map_err(|error| self.unreachable(&error))?.to_bytes()))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            _ = connection => exchange.await,
        }
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> ClientError {
        ClientError::Unreachable { at: self.at.clone(), why: why.to_string() }
    }
}

/// A certificate is the one, or is refused.
#[derive(Debug)]
struct Pinned {
    certificate: Digest,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match Digest::of(end_entity) == self.certificate {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General(
                "it has another certificate than the one that is known".to_owned(),
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
