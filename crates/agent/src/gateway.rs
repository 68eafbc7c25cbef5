//! The gateway beside the agent: what it is, and that it takes what it is given.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::standby::{Be, Turn};
use control::tunnel_status::Status;
use control::{FOLDER, Others, Request, ask_for, ask_within};
use fleet::site::{Contact, TunnelKey};
use ipnet::IpNet;
use mt6d::config::NOWHERE;

/// How long a reload of a thousand peers may take.
const RELOAD: Duration = Duration::from_secs(40);
/// How long a status may take.
const ANSWER: Duration = Duration::from_secs(10);

/// The gateway of a tunnel.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    socket: Arc<Path>,
}

/// What came of a reload.
#[derive(Debug)]
pub(crate) enum Reloaded {
    /// It has what its file says.
    Taken,
    /// It keeps what it had, and says why.
    Refused(String),
    /// It does not run.
    Absent,
}

/// A gateway as it is found.
#[derive(Debug)]
pub(crate) struct Found {
    /// How it is met; not while it waits for a prefix, or for its turn.
    pub(crate) contact: Option<Contact>,
    /// The networks that its machine is in, and its addresses there.
    pub(crate) inner: Vec<(IpNet, IpAddr)>,
}

impl Gateway {
    /// Of the tunnel of this name, by the socket that is there for agents.
    pub(crate) fn of(tunnel: &str, folder: Option<&Path>) -> Self {
        let socket = folder.unwrap_or(Path::new(FOLDER)).join(format!("{tunnel}.sock"));
        let socket: PathBuf = Others::Agents.socket(&socket).unwrap_or(socket);
        Gateway { socket: socket.into() }
    }

    /// Has it take its configuration anew.
    pub(crate) async fn reload(&self) -> Reloaded {
        let socket = Arc::clone(&self.socket);
        let reload = move || match ask_within(&socket, &Request::Reload { confirm_ms: None }, RELOAD) {
            Ok(_) => Reloaded::Taken,
            Err(control::Error::NotRunning { .. }) => Reloaded::Absent,
            Err(error) => Reloaded::Refused(error.to_string()),
        };
        let reloaded = tokio::task::spawn_blocking(reload).await;
        reloaded.unwrap_or_else(|error| Reloaded::Refused(error.to_string()))
    }

    /// Has it be met or not, of the two gateways of a site, or asks what it is.
    pub(crate) async fn turn(&self, be: Option<Be>, patience: Duration) -> Result<Turn, control::Error> {
        let socket = Arc::clone(&self.socket);
        let ask = move || ask_for::<Turn>(&socket, &Request::Turn { be }, patience);
        let asked = tokio::task::spawn_blocking(ask).await;
        asked.unwrap_or_else(|error| Err(control::Error::Refused(error.to_string())))
    }

    /// How it is found now; nothing while it does not run.
    pub(crate) async fn look(&self) -> Option<Found> {
        let socket = Arc::clone(&self.socket);
        let look = move || {
            let status = ask_for::<Status>(&socket, &Request::Show, ANSWER).ok()?;
            let inner = linux::inner::networks(&status.external);
            let inner = inner.into_iter().map(|inner| (inner.network, inner.address)).collect();
            Some(Found { contact: contact_of(&status), inner })
        };
        tokio::task::spawn_blocking(look).await.ok()?
    }
}

/// While it changes its key it is met by both: the one before is the one that all know.
fn contact_of(status: &Status) -> Option<Contact> {
    let read = |text: &String| text.parse().ok().map(TunnelKey);
    let key = read(&status.public_key)?;
    let hop_prefix = Some(status.hop_prefix).filter(|prefix| *prefix != NOWHERE)?;
    Some(match status.previous_public_key.as_ref().and_then(read) {
        Some(previous) => Contact { key: previous, next_key: Some(key), hop_prefix },
        None => Contact { key, next_key: None, hop_prefix },
    })
}
