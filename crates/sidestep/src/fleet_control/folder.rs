//! The folder from which a fleet is administered, and the keys that are beside it.

use std::path::{Path, PathBuf};

use clap::Args;
use controller::read_secret;
use fleet::key::SigningKey;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::peer::write_new;

/// The folder of the service, and whose that is.
const SERVICE: &str = "/var/lib/sidestep-control";
const USER: &str = "sidestep-control";
/// An administrator's key, where he works: never in a controller's folder.
pub(super) const KEY: &str = "sidestep-administrator.key";
/// The file of the store.
pub(super) const STORE: &str = "control.db";

/// Where a fleet is administered from.
#[derive(Debug, Args)]
pub(super) struct FolderOption {
    /// Folder with what says which fleet, what lets you in, and at a controller its certificate and its store
    #[arg(long, value_name = "DIR", default_value = SERVICE, global = true)]
    pub(super) dir: PathBuf,
}

/// A key that signs.
pub(super) fn signing_key(path: &Path) -> Result<SigningKey, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::Message(format!("{}: {error}", path.display()));
    let text = read_secret(path).map_err(|error| about(&error))?;
    text.parse().map_err(|error| about(&error))
}

/// Makes a key that signs, and writes it into a file that is not there yet.
pub(super) fn make_key(path: &Path) -> Result<SigningKey, Failure> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|error| Failure::Message(error.to_string()))?;
    let key = SigningKey::from_seed(*seed);
    let text = Zeroizing::new(format!("{}\n", *key.to_text()));
    write_new(path, &text)?;
    Ok(key)
}

/// Gives what was made in the service's folder to the service.
pub(super) fn give_to_service(folder: &Path) -> Result<(), Failure> {
    if folder == Path::new(SERVICE) {
        linux::file::give_away(folder, USER)?;
    }
    Ok(())
}

/// What is in a file.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::Message(format!("{}: {error}", path.display())))
}

/// Runs what waits for others.
pub(super) fn run<T>(what: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    controller::block_on(what)?
}

/// Where the store is that a folder has, unless it is told.
pub(super) fn store_of(folder: &Path, store: Option<String>) -> Result<String, Failure> {
    let path = || -> PathBuf { folder.join(STORE) };
    match store {
        Some(store) => Ok(store),
        None => path()
            .into_os_string()
            .into_string()
            .map_err(|_| Failure::Message(format!("{}: the path is no text", folder.display()))),
    }
}
