//! Session keys that were adopted since the configuration was written: `<state dir>/<tunnel>-classic.json`, for its
//! owner's eyes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use classic::keys::SessionKey;
use serde::{Deserialize, Serialize};
use tracing::warn;
use zeroize::Zeroizing;

use config::ClassicPeer;

/// The keys of each stream, by its hosts.
pub(super) struct StoredKeys {
    path: PathBuf,
    streams: BTreeMap<String, Stored>,
}

/// What the user has written since counts for more: a key goes with the configured one that it began with.
#[derive(Serialize, Deserialize)]
struct Stored {
    configured: Zeroizing<String>,
    key: Zeroizing<String>,
}

fn stream(peer: &ClassicPeer) -> String {
    format!("{} {}", peer.stream.local.address, peer.stream.remote.address)
}

impl StoredKeys {
    /// Those that were stored, if any were.
    pub(super) fn load(folder: &Path, tunnel: &str) -> Self {
        let path = folder.join(format!("{tunnel}-classic.json"));
        let mut streams = BTreeMap::new();
        if path.exists() {
            let read = linux::file::read_private(&path).map_err(|error| error.to_string());
            let parsed =
                read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
            match parsed {
                Ok(stored) => streams = stored,
                Err(error) => warn!("{}: {error}: starting with the configured session keys", path.display()),
            }
        }
        StoredKeys { path, streams }
    }

    /// Gives a peer the key that it had last.
    pub(super) fn recall(&mut self, peer: &mut ClassicPeer) {
        let configured = peer.stream.key.to_hex();
        let stored = self.streams.entry(stream(peer));
        let stored =
            stored.or_insert_with(|| Stored { configured: configured.clone(), key: configured.clone() });
        if stored.configured != configured {
            *stored = Stored { configured: configured.clone(), key: configured };
        }
        if let Ok(key) = stored.key.parse() {
            peer.stream.key = key;
        }
    }

    /// Stores the key that a peer has from now on.
    pub(super) fn store(&mut self, peer: &ClassicPeer, key: &SessionKey) -> std::io::Result<()> {
        if let Some(stored) = self.streams.get_mut(&stream(peer)) {
            stored.key = key.to_hex();
        }
        linux::file::replace(&self.path, &Zeroizing::new(serde_json::to_vec(&self.streams)?)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use classic::hashed::{Host, Rotation};
    use classic::profile::StreamConfig;

    fn peer(key: u8) -> ClassicPeer {
        let host = |address: &str| Host { address: address.parse().unwrap(), mac: None };
        ClassicPeer {
            name: "b".into(),
            stream: StreamConfig {
                local: host("2001:db8:a::1"),
                remote: host("2001:db8:b::1"),
                key: SessionKey::from_bytes([key; 64]),
                cipher: None,
                carry: classic::profile::Carry::Encapsulate,
                rotation: Rotation::Fixed(10),
                lifetime: 30,
                key_exchange: None,
                outer_mtu: 1500,
            },
            session_key_file: None,
            kernel: config::KernelUse::Auto,
        }
    }

    #[test]
    fn an_adopted_key_outlives_a_restart_but_not_another_configured_one() {
        let folder = tempfile::tempdir().unwrap();
        let adopted = SessionKey::from_bytes([9; 64]);
        let mut first = peer(1);
        let mut keys = StoredKeys::load(folder.path(), "mt6d0");
        keys.recall(&mut first);
        assert_eq!(first, peer(1));
        keys.store(&first, &adopted).unwrap();

        let mut again = peer(1);
        StoredKeys::load(folder.path(), "mt6d0").recall(&mut again);
        assert_eq!(again.stream.key, adopted);
        let mut other = peer(2);
        StoredKeys::load(folder.path(), "mt6d0").recall(&mut other);
        assert_eq!(other, peer(2));
    }
}
