//! What the node remembers from one run to the next: `<state dir>/<tunnel>.json`.
//!
//! Losing it costs little (a replayed first message may be answered once more, a clock that is off is learned anew), so
//! a file that cannot be read is no reason not to start.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use ipnet::Ipv6Net;
use mt6d::keys::{PublicKey, PublicPair};
use mt6d::{Epoch, Node, Now, PeerMemory};
use serde::{Deserialize, Serialize};
use tracing::warn;

#[derive(Serialize, Deserialize, Default)]
struct File {
    saved_unix_ms: u64,
    /// By [`pair`].
    peers: HashMap<String, Peer>,
}

#[derive(Serialize, Deserialize)]
struct Peer {
    accepted: [u64; 3],
    used: [u64; 3],
    clock_offset_ms: Option<i64>,
    hop_prefix: Option<(Ipv6Net, Ipv6Net)>,
    #[serde(default)]
    turn: u64,
}

/// What was read from the file, and the thread that writes it: with many peers that is more than packets can wait for.
pub(super) struct PeerFile {
    peers: HashMap<PublicPair, PeerMemory>,
    saved_ms: u64,
    /// Dropped, it ends the thread.
    writer: Option<mpsc::Sender<Snapshot>>,
    thread: Option<JoinHandle<()>>,
}

/// Changes since the last time, and when that is, in Unix milliseconds.
struct Snapshot {
    peers: Vec<(PublicPair, PeerMemory)>,
    unix_ms: u64,
}

impl PeerFile {
    /// Reads the file of a tunnel whose key is `own`, if there is one.
    pub(super) fn load(folder: &Path, tunnel: &str, own: PublicKey) -> Self {
        let path = folder.join(format!("{tunnel}.json"));
        let file: File = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                warn!("{}: {error}: starting without it", path.display());
                File::default()
            }),
            Err(_) => File::default(),
        };
        let peers = file.peers.iter().filter_map(|(key, p)| {
            let Peer { accepted, used, clock_offset_ms, hop_prefix, turn } = *p;
            let (accepted, used) = (accepted.map(Epoch), used.map(Epoch));
            Some((pair(key, own)?, PeerMemory { accepted, used, clock_offset_ms, hop_prefix, turn }))
        });
        let (peers, saved_ms) = (peers.collect(), file.saved_unix_ms);
        let (writer, snapshots) = mpsc::channel();
        let write = move || {
            // Before the main thread can give up its own: a thread has those of the one that starts it.
            if let Err(error) = linux::process::keep_capabilities(&[]) {
                warn!("{error}");
            }
            write_all(&path, file, &snapshots);
        };
        let thread = std::thread::Builder::new().name("memory".into()).spawn(write);
        if let Err(error) = &thread {
            warn!("nothing about the peers will be stored: {error}");
        }
        PeerFile { peers, saved_ms, writer: Some(writer), thread: thread.ok() }
    }

    /// What was remembered of the peers. Asked for once.
    pub(super) fn take_peers(&mut self) -> HashMap<PublicPair, PeerMemory> {
        std::mem::take(&mut self.peers)
    }

    /// When it was, in Unix milliseconds.
    pub(super) fn saved_ms(&self) -> u64 {
        self.saved_ms
    }

    /// Sees that the file is written if there is something new.
    pub(super) fn save(&self, node: &mut Node, now: Now) {
        let peers: Vec<_> = node.memory(now).collect();
        if !peers.is_empty() {
            self.write(Snapshot { peers, unix_ms: now.unix_ms });
        }
    }

    /// Writes it in any case, with the time, and waits for that.
    pub(super) fn end(&mut self, node: &mut Node, now: Now) {
        self.write(Snapshot { peers: node.memory(now).collect(), unix_ms: now.unix_ms });
        self.writer = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn write(&self, snapshot: Snapshot) {
        // Without a thread there was a warning.
        let _ = self.writer.as_ref().map(|writer| writer.send(snapshot));
    }
}

fn write_all(path: &Path, mut file: File, snapshots: &mpsc::Receiver<Snapshot>) {
    let mut complained = false;
    while let Ok(first) = snapshots.recv() {
        for Snapshot { peers, unix_ms } in std::iter::once(first).chain(snapshots.try_iter()) {
            file.saved_unix_ms = unix_ms;
            file.peers.extend(peers.into_iter().map(|(key, p)| {
                let PeerMemory { accepted, used, clock_offset_ms, hop_prefix, turn } = p;
                let (accepted, used) = (accepted.map(|epoch| epoch.0), used.map(|epoch| epoch.0));
                (
                    format!("{} {}", key.own, key.peer),
                    Peer { accepted, used, clock_offset_ms, hop_prefix, turn },
                )
            }));
        }
        if file.peers.is_empty() {
            continue;
        }
        if let Err(error) = write(path, &file)
            && !std::mem::replace(&mut complained, true)
        {
            warn!("{}: {error}: after a restart nothing will be known of the peers", path.display());
        }
    }
}

/// Both ends' public keys, `own` first. Before there could be several, the peer's alone was written.
fn pair(text: &str, own: PublicKey) -> Option<PublicPair> {
    match text.split_once(' ') {
        Some((own, peer)) => Some(PublicPair { own: own.parse().ok()?, peer: peer.parse().ok()? }),
        None => Some(PublicPair { own, peer: text.parse().ok()? }),
    }
}

fn write(path: &Path, file: &File) -> std::io::Result<()> {
    linux::file::replace(path, &serde_json::to_vec(file)?).map(drop)
}
