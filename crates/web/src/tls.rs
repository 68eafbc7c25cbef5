//! TLS, by rustls: 1.3 alone, which every browser of the last years has.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::TLS13;

use crate::error::Error;

/// Reads a chain of certificates and its private key, both in PEM.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, Error> {
    let about = |path: &Path, why: String| Error::Certificate { path: path.to_owned(), why };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| about(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(about(certificate, "there is no certificate in it (PEM)".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| about(key, error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| about(certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| about(key, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
