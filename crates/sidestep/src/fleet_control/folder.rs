//! A folder from which a fleet is administered: which network, where its controllers are, and what lets somebody in.

use std::path::{Path, PathBuf};

use clap::Args;
use controller::{Client, ClientError};
use fleet::authority::{Chain, NetworkId};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::news::News;
use fleet::settings::Controller;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::peer::write_new;

/// The folder of the service, and whose that is.
const SERVICE: &str = "/var/lib/sidestep-control";
const USER: &str = "sidestep-control";
/// The file that says which network, and where its controllers are.
pub(super) const NETWORK: &str = "network.toml";
/// The file with the token.
pub(super) const ACCESS: &str = "access";
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

/// A fleet, as who administers it knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Network {
    /// The digest of its first authority: what is told is verified by it.
    pub(super) network: NetworkId,
    /// Where its controllers are, as long as nothing newer is known.
    #[serde(rename = "controller")]
    pub(super) controllers: Vec<Controller>,
}

/// A fleet that is administered from a folder.
pub(super) struct Folder {
    pub(super) network: Network,
    token: Option<Zeroizing<String>>,
}

impl Folder {
    /// Reads it.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(NETWORK);
        let text = read(&path).map_err(|failure| {
            Failure::Message(format!(
                "{failure}: `sidestep control init` makes one, or copy it from where it is"
            ))
        })?;
        let network: Network = toml::from_str(&text)
            .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
        let access = folder.join(ACCESS);
        let token = if access.exists() { Some(read_secret(&access)?) } else { None };
        Ok(Folder { network, token })
    }

    /// Asks the first controller that answers.
    pub(super) async fn ask<A>(
        &self,
        question: impl AsyncFn(Client) -> Result<A, ClientError>,
    ) -> Result<A, Failure> {
        let mut why = "there is no controller that can be asked from here".to_owned();
        for controller in &self.network.controllers {
            let inside = controller.inside.map(|address| address.to_string());
            for at in inside.into_iter().chain(controller.outside.clone()) {
                let client = Client::new(&at, controller.certificate, self.token.clone())?;
                match question(client).await {
                    Err(error @ ClientError::Unreachable { .. }) => why = error.to_string(),
                    other => return Ok(other?),
                }
            }
        }
        Err(Failure::Message(why))
    }

    /// Asks for something.
    pub(super) async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, Failure> {
        self.ask(async |client: Client| client.get(path).await).await
    }

    /// Sends something.
    pub(super) async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, Failure> {
        self.ask(async |client: Client| client.post(path, body).await).await
    }

    /// The fleet as it is, verified by the network's name.
    pub(super) async fn fleet(&self) -> Result<(Fleet, News), Failure> {
        let news: News = self.get("/v1/news").await?;
        Ok((verified(self.network.network, news.clone())?, news))
    }
}

/// A fleet of this name, out of what somebody tells.
pub(super) fn verified(network: NetworkId, mut news: News) -> Result<Fleet, Failure> {
    let chain = Chain::of(network, std::mem::take(&mut news.authorities))?;
    let mut fleet = Fleet::new(chain);
    let taken = fleet.take(news);
    match taken.refused.first() {
        Some(refusal) => Err(Failure::Message(format!("what the controller tells is not right: {refusal}"))),
        None => Ok(fleet),
    }
}

/// A key that signs.
pub(super) fn signing_key(path: &Path) -> Result<SigningKey, Failure> {
    let text = read_secret(path)?;
    text.parse().map_err(|error| Failure::Message(format!("{}: {error}", path.display())))
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

/// A secret in a file, which others may not read.
fn read_secret(path: &Path) -> Result<Zeroizing<String>, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let about = |error: std::io::Error| Failure::Message(format!("{}: {error}", path.display()));
    if std::fs::metadata(path).map_err(about)?.mode() & 0o077 != 0 {
        let why = format!("{} can be read by others: chmod 600 it", path.display());
        return Err(Failure::Message(why));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(about)?);
    Ok(Zeroizing::new(text.trim().to_owned()))
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
