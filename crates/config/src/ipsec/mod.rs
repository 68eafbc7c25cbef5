//! The configuration of IPsec: who this end is, its peers and their children, what must be protected.
//!
//! It is a file of its own kind: `[ipsec]`, `[[remote]]` with `[[remote.child]]`, and `[[policy]]`, with none of the tables of
//! a moving-target tunnel. [`load`] reads it and the files that it names, [`parse`] does the same without a file system, and
//! [`is_ipsec`] tells it from the other kind. It is read as the other one is (see the crate's page): by its declared sections
//! (`document`), value by value (`value`, `algorithms`, `files`, `remote`, `pool`, `rules`), then what concerns several (`cross`).

mod algorithms;
mod config;
mod cross;
pub(crate) mod document;
mod files;
mod pool;
mod remote;
mod rules;
mod value;

use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ike::config::{Authentication, PeerConfig};
use ike::message::body::Identity;
use toml::Spanned;
use zeroize::Zeroizing;

use crate::converter::{Converter, KeyFileError};
use crate::report::{Finding, Report};
use crate::section::Given;
use crate::source::Source;
use crate::{Error, read_key_file};

pub use algorithms::{encryption_name, group_name, integrity_name, prf_name};
pub use config::{IpsecConfig, Place, Ports, Remote, Start};
pub use files::{ReadFile, Secrecy};
pub use router::firewall::service::protocol_name;
pub use value::{Shown, level_name};

use document::{IpsecDocument, IpsecTable};
use files::Files;
use remote::{Converted, ThisEnd};

/// The device's name where neither the file gives one nor its name can be one.
const OTHERWISE: &str = "ipsec0";

/// The longest file of certificates that is read.
const MAX_PUBLIC_FILE: u64 = 1024 * 1024;

/// Reads the file at `path` and those that it names, which are relative to its folder.
///
/// # Errors
/// All that is wrong with it, in one report.
pub fn load(path: &Path) -> Result<IpsecConfig, Error> {
    load_source(&Source::read(path)?)
}

/// Reads a configuration that is not yet a file in its folder, and the files that it names.
///
/// # Errors
/// All that is wrong with it, in one report.
pub fn load_source(source: &Source) -> Result<IpsecConfig, Error> {
    let Source { folder, text, parts } = source;
    let name = source.name();
    let mut config = parse_in(text, name, folder, &read_file).map_err(Error::Invalid)?;
    if parts[0].is_open {
        warn_of_readable_secrets(text, name, &mut config.warnings);
    }
    if let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        warn_of_outdated(text, &mut config, now);
    }
    Ok(config)
}

/// Warns of a certificate of this end that is not valid now, so long after 1970: all remotes refuse it. `text` is that of the
/// configuration.
pub fn warn_of_outdated(text: &str, config: &mut IpsecConfig, now: Duration) {
    let is_outdated = |peer: &PeerConfig| match &peer.authentication {
        Authentication::Certificates(certificates) => certificates.is_outdated(now),
        Authentication::SharedKey(_) => false,
    };
    let document = document::read(text, &mut Report::default());
    let table = document.as_ref().and_then(|document| document.ipsec.get());
    if let Some(table) = table.filter(|_| config.ike.peers.iter().any(is_outdated)) {
        config.warnings.add(Finding::warning(
            table.certificate_file.span_or_table(),
            "this end's certificate, or one behind it, is not valid now",
            "remotes will refuse it",
            "get a new one, or set the clock: `date` and `openssl x509 -noout -dates -in FILE` show the times",
        ));
    }
}

/// Whether the file at `path` is of this kind: it has a table `[ipsec]` or `[[remote]]`. One that cannot be read is not.
pub fn is_ipsec(path: &Path) -> bool {
    Source::read(path).is_ok_and(|source| source.is_ipsec())
}

/// Parses a configuration. `path` is the file's name in messages, and gives the name of the device and the folder of other
/// files, which are had from `read`. Never panics, whatever `text` is.
///
/// # Errors
/// All that is wrong with it, in one report.
pub fn parse(text: &str, path: &Path, read: &ReadFile) -> Result<IpsecConfig, Report> {
    parse_in(text, path, crate::source::folder_of(path), read)
}

fn parse_in(text: &str, path: &Path, folder: &Path, read: &ReadFile) -> Result<IpsecConfig, Report> {
    let mut report = Report::new(path, text);
    let document = document::read(text, &mut report);
    if document.is_none() {
        // Nobody knows which values are secrets.
        report.show_only(&crate::reference::is_name);
    }
    let config = document.and_then(|document| assemble(&document, path, folder, read, &mut report));
    match config {
        Some(config) if !report.has_errors() => Ok(IpsecConfig { warnings: report, ..config }),
        _ => Err(report),
    }
}

/// What the document describes; None if something of it cannot be. All of it is looked at, so that one report has all.
fn assemble(
    document: &IpsecDocument,
    path: &Path,
    folder: &Path,
    read: &ReadFile,
    report: &mut Report,
) -> Option<IpsecConfig> {
    let private = |path: &Path| read(path, Secrecy::Private);
    let mut converter = Converter::new(folder, &private, report);
    let rules = rules::of_file(document.policy.list(), &mut converter);
    if document.ipsec.is_absent() {
        let help = "begin with [ipsec] and `identity = …`: who this end is";
        converter.report(Finding::error(0..0, "the table [ipsec] is missing", "", help));
    }
    let table = document.ipsec.get()?;
    let files = Files { folder, read };
    let name = converter.device_name(table, path);
    let address = converter.optional(&table.address, value::address);
    let ports = converter.ports(&table.port, &table.nat_port, true);
    let addresses = converter.each(&table.addresses, crate::value::interface_address);
    let mtu = converter.optional(&table.mtu, crate::value::mtu);
    let proposals = converter.each(&table.algorithms, algorithms::ike_proposal);
    let levels =
        converter.levels(&table.authentication, &table.transport_encryption, &table.tunnel_encryption);
    let setkey = files.setkey(table, &mut converter);
    let identity = converter.identity(table, address);
    let own = files.own(table, &mut converter);
    if own.is_some() && table.certificate_file.is_absent() && table.authority_file.given().is_some() {
        converter.require(&table.certificate_file, "the PEM file with this end's certificate");
    }
    if let (Some(Some(own)), Some(identity)) = (&own, &identity)
        && own.certificates().is_some_and(|certificates| !certificates.is_of(identity))
    {
        converter.report(Finding::warning(
            table.identity.span_or_table(),
            format!("this end's certificate is not of {}", Shown(identity)),
            "remotes will refuse it",
            "write a domain name or an address among the names of the certificate (subjectAltName)",
        ));
    }
    let nothing = document.remote.is_absent() && document.policy.is_absent() && table.setkey_file.is_absent();
    if nothing {
        let help =
            "add a [[remote]] with its address, shared_key_file and [[remote.child]], or a setkey_file";
        converter.report(Finding::error(0..0, "there is nobody to talk to", "", help));
    }
    // Without an identity, or with certificates that cannot be used, remotes can still be looked at.
    let this = ThisEnd {
        table,
        identity: identity.clone().unwrap_or_else(|| Identity::KeyId(Vec::new())),
        own: own.unwrap_or_default(),
    };
    let tables = document.remote.list();
    let mut converted: Vec<_> = tables
        .iter()
        .map(Spanned::get_ref)
        .filter_map(|table| Some((table, converter.remote(table, &this, &files)?)))
        .collect();
    let (address, addresses) = (address?, addresses?);
    converter.pools(&mut converted, &addresses);
    cross::check(document, &converted, identity.as_ref(), (address, &addresses), report);
    if converted.len() < tables.len() {
        return None;
    }
    let converted: Vec<Converted> = converted.into_iter().map(|(_, remote)| remote).collect();
    let child_rules = rules::of_children(&converted, address);
    let (peers, remotes) = converted.into_iter().map(|remote| (remote.peer, remote.remote)).unzip();
    let (ports, _) = (ports?, identity?);
    let ike = ike::config::Config {
        algorithms: algorithms::ike_algorithms(proposals?),
        nat_port: ports.nat,
        ..ike::config::Config::new(peers)
    };
    Some(IpsecConfig {
        name: name?,
        local: address,
        ports,
        addresses,
        mtu: mtu?,
        ike,
        remotes,
        rules: rules?,
        child_rules,
        levels: levels?,
        setkey: setkey?,
        warnings: Report::default(),
    })
}

impl Converter<'_> {
    /// The device's name: the file's, if it is not given and that can be one.
    fn device_name(&mut self, table: &IpsecTable, path: &Path) -> Option<String> {
        let given = self.optional(&table.interface, crate::value::tunnel_name)?;
        let stem = || path.file_stem().and_then(|stem| stem.to_str());
        let by_file = || stem().and_then(|stem| crate::value::tunnel_name(stem).ok());
        Some(given.or_else(by_file).unwrap_or_else(|| OTHERWISE.to_owned()))
    }

    /// Who this end is: its address, if nothing else is said.
    fn identity(&mut self, table: &IpsecTable, address: Option<Option<IpAddr>>) -> Option<Identity> {
        match (self.optional(&table.identity, value::identity)?, address) {
            (Some(identity), _) => Some(identity),
            (None, Some(Some(address))) => Some(Identity::Address(address)),
            (None, Some(None)) => {
                self.require(&table.identity, "who this end is, like \"a.example\"");
                None
            }
            (None, None) => None,
        }
    }
}

fn read_file(path: &Path, secrecy: Secrecy) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    if secrecy == Secrecy::Private {
        return read_key_file(path);
    }
    let unusable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing,
        _ => KeyFileError::Unusable(error.to_string()),
    };
    let metadata = std::fs::metadata(path).map_err(unusable)?;
    if !metadata.is_file() || metadata.len() > MAX_PUBLIC_FILE {
        return Err(KeyFileError::Unusable(format!("not a plain file of at most {MAX_PUBLIC_FILE} bytes")));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path).map_err(unusable)?;
    file.take(MAX_PUBLIC_FILE).read_to_end(&mut bytes).map_err(unusable)?;
    Ok(bytes)
}

/// Warns if a file that others can read holds secrets.
fn warn_of_readable_secrets(text: &str, path: &Path, warnings: &mut Report) {
    let Some(document) = document::read(text, &mut Report::default()) else { return };
    let mut keys = document.remote.list().iter().map(|remote| &remote.get_ref().shared_key);
    if let Some(secret) = keys.find_map(Given::given) {
        warnings.add(Finding::warning(
            secret.span(),
            "others can read this file, which contains a secret",
            "",
            format!("chmod 600 {}", path.display()),
        ));
    }
}
