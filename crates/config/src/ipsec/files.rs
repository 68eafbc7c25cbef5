//! Files that a configuration of IPsec names: shared keys, certificates, setkey's.

use std::path::{Path, PathBuf};

use ike::certificate::{CertificateError, Certificates};
use ike::crypto::secret::Secret;
use rustls_pki_types::pem::{Error as PemError, PemObject as _, SectionKind, SliceIter};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use toml::Spanned;
use zeroize::Zeroizing;

use super::document::{IpsecTable, RemoteTable};
use super::value;
use crate::converter::{Converter, KeyFileError};
use crate::report::Finding;
use crate::section::Given;
use crate::value::Problem;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// Its owner alone: it holds a secret.
    Private,
    /// Anybody.
    Public,
}

/// What reads a file.
pub type ReadFile = dyn Fn(&Path, Secrecy) -> Result<Zeroizing<Vec<u8>>, KeyFileError>;

/// Shorter keys can be guessed (RFC 7296 §2.15: as random as the strongest key that is negotiated).
const SHORT_KEY: usize = 16;

/// The most certificates in a file: a bundle of all public authorities has a few hundred.
const MAX_CERTIFICATES: usize = 1000;

/// What this end proves itself with: `[ipsec]`.
pub(super) struct Own {
    chain: Vec<Vec<u8>>,
    private_key: Zeroizing<Vec<u8>>,
    /// With the authorities of `[ipsec]`, if that has some.
    certificates: Option<Certificates>,
}

/// Reads the files.
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
    pub(super) read: &'a ReadFile,
}

impl Files<'_> {
    /// What this end proves itself with; `Some(None)`: it has no certificate.
    pub(super) fn own(&self, table: &IpsecTable, converter: &mut Converter<'_>) -> Option<Option<Own>> {
        let keys = [&table.certificate_file, &table.private_key_file];
        if keys.iter().all(|key| key.is_absent()) {
            // Authorities may be there for nothing.
            return Some(None);
        }
        converter.require(keys[0], "the PEM file with this end's certificate");
        converter.require(keys[1], "the PEM file with the certificate's private key");
        let chain = keys[0].given().map(|file| self.certificates(keys[0], file, converter));
        let private_key = keys[1].given().map(|file| self.private_key(keys[1], file, converter));
        let authorities = table
            .authority_file
            .given()
            .map(|file| self.certificates(&table.authority_file, file, converter));
        let (chain, private_key) = (chain??, private_key??);
        let certificates = match authorities {
            Some(authorities) => {
                let made = Certificates::new(chain.clone(), &private_key, authorities?);
                Some(made.map_err(|error| refuse(table, &table.authority_file, error, converter)).ok()?)
            }
            None if table.authority_file.is_wrong() => return None,
            None => None,
        };
        Some(Some(Own { chain, private_key, certificates }))
    }

    /// What the two ends prove themselves with by certificate.
    pub(super) fn certificates_for(
        &self,
        remote: &RemoteTable,
        table: &IpsecTable,
        own: &Own,
        converter: &mut Converter<'_>,
    ) -> Option<Certificates> {
        let Some(file) = remote.authority_file.given() else {
            if remote.authority_file.is_absent() && own.certificates.is_none() {
                let help = "the PEM file with the authority that the remote's certificate must lead to";
                converter.require(&table.authority_file, help);
            }
            return own.certificates.clone();
        };
        let authorities = self.certificates(&remote.authority_file, file, converter)?;
        let made = Certificates::new(own.chain.clone(), &own.private_key, authorities);
        made.map_err(|error| refuse(table, &remote.authority_file, error, converter)).ok()
    }

    /// The key that is shared with a remote; None if something is wrong with it, or it has none.
    pub(super) fn shared_key(&self, remote: &RemoteTable, converter: &mut Converter<'_>) -> Option<Secret> {
        let (inline, file) = (&remote.shared_key, &remote.shared_key_file);
        let (key, span) = match (inline.given(), file.given()) {
            (Some(text), Some(path)) => {
                let help = "remove `shared_key` or `shared_key_file`";
                converter.report(
                    Finding::error(path.span(), "shared_key is given twice", "here as a file", help)
                        .related(text.span(), "here inline"),
                );
                return None;
            }
            (Some(text), None) => (converter.value(inline, value::shared_key)?, text.span()),
            (None, Some(path)) => {
                let make =
                    |shown: &Path| format!("make one with: umask 077; sidestep genpsk > {}", shown.display());
                let (bytes, shown) = self.bytes(file, path, Secrecy::Private, make, converter)?;
                let problem = |label: &str| Problem { label: label.to_owned(), help: make(&shown) };
                let key = match std::str::from_utf8(&bytes) {
                    Ok(text) => value::shared_key(text),
                    Err(_) => Err(problem("the file holds no text")),
                };
                let refuse = |problem| converter.refuse(path.span(), file.key.name, problem);
                (key.map_err(refuse).ok()?, path.span())
            }
            (None, None) => return None,
        };
        if key.as_bytes().len() < SHORT_KEY {
            converter.report(Finding::warning(
                span,
                format!("the shared key of {} is short", remote.name.table.owner),
                format!("less than {SHORT_KEY} bytes"),
                "whoever poses as the other end once can try all words at leisure: make a key with `sidestep genpsk`",
            ));
        }
        Some(key)
    }

    /// The file in setkey's language, which must make sense now: it is read again at the start.
    pub(super) fn setkey(
        &self,
        table: &IpsecTable,
        converter: &mut Converter<'_>,
    ) -> Option<Option<PathBuf>> {
        let given = &table.setkey_file;
        if given.is_wrong() {
            return None;
        }
        let Some(path) = given.given() else { return Some(None) };
        let help = |_: &Path| "write the associations there, as `sidestep key` takes them".to_owned();
        let (bytes, shown) = self.bytes(given, path, Secrecy::Private, help, converter)?;
        let problem = match std::str::from_utf8(&bytes).map(ipsec::setkey::parse) {
            Ok(Ok(_)) => return Some(Some(shown)),
            Ok(Err(error)) => {
                let place = error.position;
                let label = format!("line {}, column {}: {}", place.line, place.column, error.message);
                Problem { label, help: error.remedy }
            }
            Err(_) => Problem { label: "the file holds no text".to_owned(), help: help(&shown) },
        };
        converter.refuse(path.span(), given.key.name, problem);
        None
    }

    fn certificates(
        &self,
        key: &Given<String>,
        path: &Spanned<String>,
        converter: &mut Converter<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        let help = |_: &Path| "write the path of a PEM file with certificates".to_owned();
        let (bytes, shown) = self.bytes(key, path, Secrecy::Public, help, converter)?;
        let read: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&bytes).take(MAX_CERTIFICATES + 1).collect();
        let from_der = || {
            let shown = shown.display();
            format!(
                "a PEM file has lines of -----BEGIN CERTIFICATE-----; one in DER becomes one with: openssl x509 -inform der -in {shown} -out {shown}.pem"
            )
        };
        let (label, help) = match read {
            Ok(read) if read.len() > MAX_CERTIFICATES => (
                format!("more than {MAX_CERTIFICATES} certificates"),
                "leave only the authorities that remotes have".to_owned(),
            ),
            Ok(read) if !read.is_empty() => return Some(read.iter().map(|der| der.to_vec()).collect()),
            Ok(_) => ("no certificate in it".to_owned(), from_der()),
            Err(error) => (format!("not PEM: {error}"), from_der()),
        };
        converter.refuse(path.span(), key.key.name, Problem { label, help });
        None
    }

    fn private_key(
        &self,
        key: &Given<String>,
        path: &Spanned<String>,
        converter: &mut Converter<'_>,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let help = |_: &Path| "write the path of the PEM file with the private key".to_owned();
        let (bytes, shown) = self.bytes(key, path, Secrecy::Private, help, converter)?;
        let shown = shown.display();
        let label = match PrivatePkcs8KeyDer::from_pem_slice(&bytes) {
            Ok(der) => return Some(Zeroizing::new(der.secret_pkcs8_der().to_vec())),
            Err(PemError::NoItemsFound) => match first_section(&bytes) {
                Some(SectionKind::EcPrivateKey | SectionKind::RsaPrivateKey) => "a key in an old form",
                _ if bytes.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) => "the key has a password",
                _ => "no private key in it",
            },
            Err(_) => "not PEM",
        };
        let help = format!(
            "make one with: umask 077; openssl pkcs8 -topk8 -nocrypt -in {shown} -out {shown}.pk8; and name that"
        );
        converter.refuse(path.span(), key.key.name, Problem { label: label.to_owned(), help });
        None
    }

    /// What is in a file, and its whole path. `help` says what to do if it is not there.
    fn bytes(
        &self,
        key: &Given<String>,
        path: &Spanned<String>,
        secrecy: Secrecy,
        help: impl Fn(&Path) -> String,
        converter: &mut Converter<'_>,
    ) -> Option<(Zeroizing<Vec<u8>>, PathBuf)> {
        let whole = self.folder.join(path.get_ref());
        let (label, help) = match (self.read)(&whole, secrecy) {
            Ok(bytes) => return Some((bytes, whole)),
            Err(KeyFileError::Missing) => ("no such file", help(&whole)),
            Err(KeyFileError::Unusable(why)) => ("the file cannot be used", why),
        };
        let title = format!("{} {} cannot be used", key.key.name, whole.display());
        converter.report(Finding::error(path.span(), title, label, help));
        None
    }
}

/// How a key with a password begins.
const ENCRYPTED: &[u8] = b"BEGIN ENCRYPTED PRIVATE KEY";

fn first_section(pem: &[u8]) -> Option<SectionKind> {
    SliceIter::<(SectionKind, Vec<u8>)>::new(pem).next()?.ok().map(|(kind, _)| kind)
}

/// Reports what certificates cannot be used for.
fn refuse(
    table: &IpsecTable,
    authorities: &Given<String>,
    error: CertificateError,
    converter: &mut Converter<'_>,
) {
    let (key, help) = match error {
        CertificateError::NotACertificate => (
            authorities,
            "the first certificate of `certificate_file`, or one of the authorities, is no X.509",
        ),
        CertificateError::NotAPrivateKey => (
            &table.private_key_file,
            "use a key of ECDSA P-256 or P-384, Ed25519, or RSA of 2048 bits or more",
        ),
        CertificateError::OtherKey => (
            &table.private_key_file,
            "name the key that the first certificate of `certificate_file` was made for",
        ),
    };
    let problem = Problem { label: error.to_string(), help: help.to_owned() };
    converter.refuse(key.span_or_table(), key.key.name, problem);
}

impl Own {
    /// This end's certificates with the authorities of `[ipsec]`.
    pub(super) fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }
}
