//! Configurations as commands have them: loaded, with warnings told.

use std::path::{Path, PathBuf};

use config::ipsec::IpsecConfig;
use config::{Config, Error, Source, TunnelConfig};

use crate::failure::Failure;
use crate::terminal::complain;

/// Where configurations are.
const FOLDER: &str = "/etc/sidestep";

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

/// The only configuration of a tunnel that there is, or that of the one named.
pub(crate) fn only_tunnel(tunnel: Option<&str>) -> Option<PathBuf> {
    if let Some(tunnel) = tunnel {
        return Some(Path::new(FOLDER).join(format!("{tunnel}.toml")));
    }
    let mut files = configurations().filter(|file| tunnel_of(file).is_some());
    let only = files.next();
    only.filter(|_| files.next().is_none())
}

/// The files where configurations are; none where the user may not look.
pub(crate) fn configurations() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten();
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|file| file.extension().is_some_and(|end| end == "toml"))
}

/// The name of the tunnel that a file describes, if it can be read.
pub(crate) fn tunnel_of(file: &Path) -> Option<String> {
    config::load(file).ok()?.tunnel.map(|tunnel| tunnel.tunnel.name)
}
