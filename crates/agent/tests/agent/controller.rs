//! A controller that says whatever a test wants.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use fleet::key::Digest;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::Serialize;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::TLS13;

/// What is answered.
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Said {
    pub(crate) fn of(status: u16, value: &impl Serialize) -> Self {
        Said { status, body: serde_json::to_vec(value).unwrap() }
    }

    pub(crate) fn ok(value: &impl Serialize) -> Self {
        Self::of(200, value)
    }
}

/// A certificate that somebody has made for himself.
pub(crate) struct Certificate(rcgen::CertifiedKey<rcgen::KeyPair>);

impl Certificate {
    pub(crate) fn new() -> Self {
        Certificate(rcgen::generate_simple_self_signed(vec!["controller".into()]).unwrap())
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.0.cert.der())
    }

    fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.0.signing_key.serialize_der()));
        let chain = vec![CertificateDer::from(self.0.cert.der().to_vec())];
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A controller in a thread, until the test ends.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: Digest,
}

impl Fake {
    /// One that answers so to a path with its query, and a body.
    pub(crate) fn start(
        certificate: Certificate,
        answers: impl Fn(&str, &[u8]) -> Said + Send + Sync + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (acceptor, digest, answers) = (certificate.acceptor(), certificate.digest(), Arc::new(answers));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, answers) = (acceptor.clone(), Arc::clone(&answers));
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
                            let answers = Arc::clone(&answers);
                            async move {
                                let path = request.uri().to_string();
                                let body = request.into_body().collect().await.unwrap().to_bytes();
                                let said = answers(&path, &body);
                                let response = Response::builder().status(said.status);
                                Ok::<_, Infallible>(response.body(Full::new(Bytes::from(said.body))).unwrap())
                            }
                        });
                        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            });
        });
        Fake { address, certificate: digest }
    }
}
