//! The configuration file: TOML in, values that cannot be wrong out.
//!
//! [`load`] reads a file and the key files that it names; [`parse`] is the same without touching the file system.
//! A configuration goes from [`document`] (its tables and keys, with their places) by [`converter`] (what each value
//! means by itself) and [`cross`] (what concerns several values) to [`whole`] (what it describes). Each step reports
//! everything that it finds, so that a user mends a file in one round. What is found is a [`Report`]: where, what, and
//! what to do about it. Secrets are never part of it.
//!
//! A key is declared once, in the file of its section ([`node`], [`peer`], [`uplink`] …): its type, its default, and what
//! it means. The [`section`](mod@section) reads it by that, an unknown key is compared with the names of those declared,
//! and the tables of `docs/` are written from the same words.

mod assemble;
pub mod attachment;
mod bandwidth;
mod classic;
mod config;
mod converter;
mod cross;
mod dhcp;
mod dhcp6;
mod digest;
mod dns;
mod document;
mod error;
mod event;
mod firewall;
mod fleet;
mod flows;
pub mod folder;
mod follows;
mod forward;
mod hops;
mod include;
mod introduce;
pub mod ipsec;
mod key;
mod meeting;
mod names;
mod nat64;
mod network;
mod node;
mod offload;
mod part;
mod peer;
mod port_mapping;
pub mod reference;
mod report;
mod route;
mod router;
pub mod run;
mod script;
mod section;
mod source;
mod standby;
mod text_file;
mod transition;
mod transparent;
mod tunnel;
mod uplink;
mod value;
mod wrap;

use std::io;
use std::path::Path;

use zeroize::Zeroizing;

pub use classic::{ClassicPeer, KernelUse};
pub use config::{Config, TunnelConfig};
pub use converter::{KeyFileError, ReadKey};
pub use error::Error;
pub use firewall::{DEFAULT, Expectation, Firewall};
pub use mt6d::overhead::CONTEXT as INNER_OVERHEAD;
pub use names::PeerName;
pub use node::{Mode, Node, previous_key_file};
pub use report::Report;
pub use router::RouterConfig;
pub use script::Configured;
pub use source::Source;
pub use standby::{MovingAddress, Standby};
pub use transparent::{ProtectedHost, Transparent};
pub use tunnel::Tunnel;
pub use value::{DurationError, parse_duration};
pub use wrap::{Wrap, inner_ends};

/// Reads the configuration file at `path` and the key files that it names, which are relative to its folder.
pub fn load(path: &Path) -> Result<Config, Error> {
    load_source(&Source::read(path)?)
}

/// Reads a configuration that is not yet a file in its folder, and the key files that it names.
pub fn load_source(source: &Source) -> Result<Config, Error> {
    let Source { folder, text, parts } = source;
    let report = Report::of_parts(parts, text);
    let digest = digest::Digest::of(text);
    let read_key = |path: &Path| {
        let key = read_key_file(path)?;
        digest.add(&key);
        Ok(key)
    };
    let mut config = parse_in(text, report, folder, &read_key).map_err(Error::Invalid)?;
    if let Some(tunnel) = &mut config.tunnel {
        tunnel.digest = digest.end();
    }
    let scripts = match (&mut config.tunnel, &mut config.gateway) {
        (Some(tunnel), _) => &mut tunnel.scripts[..],
        (None, Some(gateway)) => &mut gateway.scripts[..],
        (None, None) => &mut [],
    };
    script::check_files(scripts, &mut config.warnings);
    if config.warnings.has_errors() {
        return Err(Error::Invalid(config.warnings));
    }
    cross::warn_of_readable_secrets(text, parts, &mut config.warnings);
    Ok(config)
}

/// Parses a configuration. `path` is the file's name in messages and gives the folder of relative key files, which
/// are had from `read_key`. Never panics, whatever `text` is.
pub fn parse(text: &str, path: &Path, read_key: &ReadKey<'_>) -> Result<Config, Report> {
    parse_in(text, Report::new(path, text), source::folder_of(path), read_key)
}

fn parse_in(text: &str, mut report: Report, folder: &Path, read_key: &ReadKey<'_>) -> Result<Config, Report> {
    let config = read(text, &mut report)
        .and_then(|document| assemble::assemble(&document, text, folder, read_key, &mut report));
    match config {
        Some(config) if !report.has_errors() => Ok(Config { warnings: report, ..config }),
        _ => Err(report),
    }
}

/// Reads the document. Where it is none, nobody knows which values are secrets.
fn read(text: &str, report: &mut Report) -> Option<document::Document> {
    let document = document::read(text, report);
    if document.is_none() {
        report.show_only(&reference::is_name);
    }
    document
}

/// Reads the tests of another file, which has nothing but `[[firewall.test]]` tables, for this firewall.
pub fn load_tests(path: &Path, firewall: &Firewall) -> Result<Vec<Expectation>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let text = text_file::read_file(path).map_err(unreadable)?;
    let mut report = Report::new(path, &text);
    let document = read(&text, &mut report);
    let tests = document.as_ref().and_then(|document| document.firewall.get()).and_then(|table| {
        let no_key: &ReadKey<'_> = &|_| Err(KeyFileError::Missing);
        converter::Converter::new(Path::new(""), no_key, &mut report).tests(table, &text, &firewall.policy)
    });
    if report.has_errors() { Err(Error::Invalid(report)) } else { Ok(tests.unwrap_or_default()) }
}

fn read_key_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    linux::file::read_private(path).map(Zeroizing::new).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing,
        _ => KeyFileError::Unusable(error.source.to_string()),
    })
}
