//! The controller's certificate: self-made, and known by its digest. TLS 1.3 alone.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet::key::Digest;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::TLS13;
use zeroize::Zeroizing;

/// What a controller shows who it is with.
pub struct Identity {
    digest: Digest,
    acceptor: TlsAcceptor,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or made.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("{} can be read by others: chmod 600 it", .0.display())]
    Open(PathBuf),
    /// It has not what it should have.
    #[error("{}: a certificate and its private key are expected, in PEM: {why}", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl Identity {
    /// The certificate and key of a folder, made if they are not there.
    ///
    /// # Errors
    /// If they cannot be read or made.
    pub fn of_folder(folder: &Path, names: &[String]) -> Result<Self, IdentityError> {
        let path = folder.join("tls.pem");
        match path.exists() {
            true => Identity::read(&path),
            false => Identity::make(&path, names),
        }
    }

    /// Reads certificate and key out of one file in PEM.
    ///
    /// # Errors
    /// If it has none, or can be read by others.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let about = |source| IdentityError::File { path: path.to_owned(), source };
        let pem = |why: String| IdentityError::Pem { path: path.to_owned(), why };
        if std::fs::metadata(path).map_err(about)?.mode() & 0o077 != 0 {
            return Err(IdentityError::Open(path.to_owned()));
        }
        let text = Zeroizing::new(std::fs::read(path).map_err(about)?);
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|error| pem(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| pem(error.to_string()))?;
        let first = chain.first().ok_or_else(|| pem("there is no certificate in it".to_owned()))?;
        let digest = Digest::of(first);
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| pem(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| pem(error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Identity { digest, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Makes certificate and key, for these names, and writes them into a file that nobody else may read.
    ///
    /// # Errors
    /// If they cannot be made or written.
    pub fn make(path: &Path, names: &[String]) -> Result<Self, IdentityError> {
        let pem = |why: String| IdentityError::Pem { path: path.to_owned(), why };
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| pem(error.to_string()))?;
        let key = Zeroizing::new(made.signing_key.serialize_pem());
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(made.cert.pem().as_bytes())?;
            file.write_all(key.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| IdentityError::File { path: path.to_owned(), source })?;
        Self::read(path)
    }

    /// The digest of the certificate, by which it is known.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
}
