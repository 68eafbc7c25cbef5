//! What the node remembers from one run to the next: `<state dir>/<tunnel>.json`.
//!
//! Losing it costs little (a replayed first message may be answered once more, a clock that is off is learned anew), so
//! a file that cannot be read is no reason not to start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ipnet::Ipv6Net;
use mt6d::keys::PublicKey;
use mt6d::{Node, Now, PeerMemory};
use serde::{Deserialize, Serialize};
use tracing::warn;

#[derive(Serialize, Deserialize, Default)]
struct File {
    saved_unix_ms: u64,
    peers: HashMap<String, Peer>,
}

#[derive(Serialize, Deserialize)]
struct Peer {
    accepted: [u64; 3],
    used: [u64; 3],
    clock_offset_ms: Option<i64>,
    hop_prefix: Option<(Ipv6Net, Ipv6Net)>,
}

/// The file and what is in it.
pub(super) struct Memory {
    path: PathBuf,
    peers: HashMap<PublicKey, PeerMemory>,
    saved_ms: u64,
    complained: bool,
}

impl Memory {
    /// Reads the file of a tunnel, if there is one.
    pub(super) fn load(folder: &Path, tunnel: &str) -> Self {
        let path = folder.join(format!("{tunnel}.json"));
        let file: File = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                warn!("{}: {error}: starting without it", path.display());
                File::default()
            }),
            Err(_) => File::default(),
        };
        let peers = file.peers.into_iter().filter_map(|(key, p)| {
            let Peer { accepted, used, clock_offset_ms, hop_prefix } = p;
            Some((key.parse().ok()?, PeerMemory { accepted, used, clock_offset_ms, hop_prefix }))
        });
        Memory { path, peers: peers.collect(), saved_ms: file.saved_unix_ms, complained: false }
    }

    /// What was remembered of the peers.
    pub(super) fn peers(&self) -> &HashMap<PublicKey, PeerMemory> {
        &self.peers
    }

    /// When it was, in Unix milliseconds.
    pub(super) fn saved_ms(&self) -> u64 {
        self.saved_ms
    }

    /// Writes the file if there is something new in it, or in any case.
    pub(super) fn save(&mut self, node: &mut Node, now: Now, anyway: bool) {
        let before = self.peers.len();
        let new: Vec<_> = node.memory(now).collect();
        if new.is_empty() && !(anyway && before > 0) {
            return;
        }
        self.peers.extend(new);
        self.saved_ms = now.unix_ms;
        if let Err(error) = self.write()
            && !std::mem::replace(&mut self.complained, true)
        {
            warn!(
                "{}: {error}: after a restart nothing will be remembered of the peers",
                self.path.display()
            );
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let peers = self.peers.iter().map(|(key, p)| {
            let PeerMemory { accepted, used, clock_offset_ms, hop_prefix } = p.clone();
            (key.to_string(), Peer { accepted, used, clock_offset_ms, hop_prefix })
        });
        let file = File { saved_unix_ms: self.saved_ms, peers: peers.collect() };
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // All or nothing: a crash leaves the old file.
        let new = self.path.with_extension("json.new");
        std::fs::write(&new, serde_json::to_vec(&file)?)?;
        std::fs::rename(&new, &self.path)
    }
}
