//! Configurations as commands have them: loaded, with warnings told.

use std::path::Path;

use config::ipsec::IpsecConfig;
use config::{Config, Error, Source, TunnelConfig};

use crate::failure::Failure;
use crate::terminal::complain;

/// Loads a configuration; warnings go to standard error.
pub(crate) fn load(file: &Path) -> Result<Config, Failure> {
    told(file, config::load(file))
}

/// The same for one that may not be a file in its folder.
pub(crate) fn load_source(source: &Source) -> Result<Config, Failure> {
    told(source.name(), config::load_source(source))
}

fn told(file: &Path, loaded: Result<Config, Error>) -> Result<Config, Failure> {
    let config = loaded.map_err(|error| not_loaded(file, error))?;
    complain(&config.warnings);
    Ok(config)
}

/// Loads a configuration that describes a tunnel, too.
pub(crate) fn load_tunnel(file: &Path) -> Result<TunnelConfig, Failure> {
    let no_tunnel = config::Error::NoTunnel { path: file.to_owned() };
    load(file)?.tunnel.ok_or_else(|| no_tunnel.into())
}

/// Loads a configuration of IPsec; warnings go to standard error.
pub(crate) fn load_ipsec(source: &Source) -> Result<IpsecConfig, Failure> {
    let config = config::ipsec::load_source(source).map_err(|error| not_loaded(source.name(), error))?;
    complain(&config.warnings);
    Ok(config)
}

/// Why a file cannot be used, as it is told.
pub(crate) fn not_loaded(file: &Path, error: config::Error) -> Failure {
    match error {
        config::Error::Invalid(report) => {
            let count = report.errors();
            let errors = if count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
            Failure::Report(report, format!("{}: {errors}", file.display()))
        }
        error => error.into(),
    }
}
