//! A folder from which a fleet is administered: which network, where its controllers are, and what lets somebody in.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fleet::authority::{Chain, NetworkId};
use fleet::fleet::Fleet;
use fleet::news::News;
use fleet::settings::Controller;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::client::{Client, ClientError};

/// The file that says which network, and where its controllers are.
pub const NETWORK: &str = "network.toml";
/// The file with the token.
pub const ACCESS: &str = "access";

/// A fleet, as who administers it knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The digest of its first authority: what is told is verified by it.
    pub network: NetworkId,
    /// Where its controllers are, as long as nothing newer is known.
    #[serde(rename = "controller")]
    pub controllers: Vec<Controller>,
}

/// A fleet that is administered from a folder.
#[derive(Clone)]
pub struct Folder {
    /// Which one.
    pub network: Network,
    token: Option<Zeroizing<String>>,
}

/// Why a fleet cannot be administered from here.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file of the folder.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No controller answers, or the one that does refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is none.
    #[error("there is no controller that can be asked from here")]
    Nobody,
    /// What is told is not signed by who has to.
    #[error("what the controller tells is not right: {0}")]
    NotRight(String),
}

impl Folder {
    /// Reads it.
    ///
    /// # Errors
    /// If it is none, or others may read its token.
    pub fn read(folder: &Path) -> Result<Self, FolderError> {
        let path = folder.join(NETWORK);
        let about = |path: &Path, why: String| FolderError::File { path: path.to_owned(), why };
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let next = "`sidestep control init` makes one, or copy it from where it is";
            about(&path, format!("{error}: {next}"))
        })?;
        let network = toml::from_str(&text).map_err(|error| about(&path, error.to_string()))?;
        let access = folder.join(ACCESS);
        let token = match read_secret(&access) {
            Ok(token) => Some(token),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(about(&access, error.to_string())),
        };
        Ok(Folder { network, token })
    }

    /// The same fleet, as somebody asks who has this token.
    #[must_use]
    pub fn with_token(&self, token: String) -> Self {
        Folder { network: self.network.clone(), token: Some(Zeroizing::new(token)) }
    }

    /// Who asks a controller at its places: inside of the tunnels, then outside.
    ///
    /// # Errors
    /// If TLS cannot be had.
    pub fn clients(&self, controller: &Controller) -> Result<Vec<Client>, ClientError> {
        let inside = controller.inside.map(|address| address.to_string());
        let places = inside.into_iter().chain(controller.outside.clone());
        places.map(|at| Client::new(&at, controller.certificate, self.token.clone())).collect()
    }

    /// Asks the first controller that answers.
    ///
    /// # Errors
    /// If none does, or it refuses.
    pub async fn ask<A>(
        &self,
        question: impl AsyncFn(Client) -> Result<A, ClientError>,
    ) -> Result<A, FolderError> {
        let mut why = FolderError::Nobody;
        for controller in &self.network.controllers {
            for client in self.clients(controller)? {
                match question(client).await {
                    Err(error @ ClientError::Unreachable { .. }) => why = error.into(),
                    other => return Ok(other?),
                }
            }
        }
        Err(why)
    }

    /// Asks for something.
    ///
    /// # Errors
    /// If no controller answers, or one refuses.
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, FolderError> {
        self.ask(async |client: Client| client.get(path).await).await
    }

    /// Sends something.
    ///
    /// # Errors
    /// If no controller answers, or one refuses.
    pub async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, FolderError> {
        self.ask(async |client: Client| client.post(path, body).await).await
    }

    /// The fleet as it is, verified by the network's name, with what says so.
    ///
    /// # Errors
    /// If no controller answers, one refuses, or what it tells is not signed by who has to.
    pub async fn fleet(&self) -> Result<(Fleet, News), FolderError> {
        let news: News = self.get("/v1/news").await?;
        Ok((verified(self.network.network, news.clone())?, news))
    }
}

/// A fleet of this name, out of what somebody tells.
///
/// # Errors
/// If it is not signed by who has to.
pub fn verified(network: NetworkId, mut news: News) -> Result<Fleet, FolderError> {
    let not_right = |why: &dyn std::fmt::Display| FolderError::NotRight(why.to_string());
    let chain = Chain::of(network, std::mem::take(&mut news.authorities));
    let mut fleet = Fleet::new(chain.map_err(|error| not_right(&error))?);
    match fleet.take(news).refused.first() {
        Some(refusal) => Err(not_right(refusal)),
        None => Ok(fleet),
    }
}

/// A secret in a file, which others may not read.
///
/// # Errors
/// If they may, or it cannot be read.
pub fn read_secret(path: &Path) -> io::Result<Zeroizing<String>> {
    // Of credentials systemd says who may read them by an access list, of which the group's bits are the mask.
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let is_credential = credentials.is_some_and(|folder| path.parent() == Some(Path::new(&folder)));
    if !is_credential && std::fs::metadata(path)?.mode() & 0o077 != 0 {
        return Err(io::Error::other("can be read by others: chmod 600 it"));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path)?);
    Ok(Zeroizing::new(text.trim().to_owned()))
}
