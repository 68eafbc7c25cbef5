//! The gateway beside the agent: what it is, and that it takes what it is given.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::tunnel_status::Status;
use control::{FOLDER, Others, Request, ask_for, ask_within};
use fleet::site::{Contact, TunnelKey};
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

impl Gateway {
    /// Of the tunnel of this name, by the socket that is there for agents.
    pub(crate) fn of(tunnel: &str, folder: Option<&Path>) -> Self {
        let socket = folder.unwrap_or(Path::new(FOLDER)).join(format!("{tunnel}.sock"));
        let socket: PathBuf = Others::Agents.socket(&socket).unwrap_or(socket);
        Gateway { socket: socket.into() }
    }

    /// Has it take its configuration anew. Where it does not run, it will when it starts.
    pub(crate) async fn reload(&self) -> Result<(), String> {
        let socket = Arc::clone(&self.socket);
        let reload = move || match ask_within(&socket, &Request::Reload { confirm_ms: None }, RELOAD) {
            Ok(_) | Err(control::Error::NotRunning { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        tokio::task::spawn_blocking(reload).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// How it is met now; nothing while it does not run, or waits for a prefix.
    pub(crate) async fn contact(&self) -> Option<Contact> {
        let socket = Arc::clone(&self.socket);
        let status = tokio::task::spawn_blocking(move || ask_for::<Status>(&socket, &Request::Show, ANSWER));
        contact_of(&status.await.ok()?.ok()?)
    }
}

fn contact_of(status: &Status) -> Option<Contact> {
    let key = status.public_key.parse().ok()?;
    let hop_prefix = Some(status.hop_prefix).filter(|prefix| *prefix != NOWHERE)?;
    Some(Contact { key: TunnelKey(key), next_key: None, hop_prefix })
}
