//! What an agent keeps: a folder of its own.
//!
//! ```text
//! site.json      who it is, of which network
//! identity.key   what it signs with
//! fleet.json     what it knows of the fleet
//! taken.json     what its gateway has taken of that, and what it refuses
//! turn.json      the last turn that this machine had, where the site has two gateways; it is not for the other one
//! peers.toml     what its gateway takes (`fleet = "…/peers.toml"`); its group is the folder's, which is the daemon's
//! ```

use std::io;
use std::path::{Path, PathBuf};

use fleet::agent::Taken;
use fleet::authority::{Authority, NetworkId};
use fleet::fleet::Fleet;
use fleet::key::{Digest, SigningKey, TextError};
use fleet::name::Name;
use fleet::news::News;
use fleet::signed::Signed;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The folder.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

/// Who a site is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its name.
    pub site: Name,
    /// The network that it is a member of, or wants to be.
    pub network: NetworkId,
    /// The tunnel of its gateway.
    pub tunnel: String,
}

/// A turn, and whose it was.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    turn: u64,
    machine: Digest,
}

/// What tells this machine from others (machine-id(5)), which is not to be shown as it is. Not all systems have that.
fn machine() -> Option<Digest> {
    let id = std::fs::read("/etc/machine-id").ok().filter(|id| !id.is_empty())?;
    Some(Digest::of(&[b"sidestep standby\n", id.as_slice()].concat()))
}

/// The turn that was this machine's; 0 if none was, or nobody knows whose it was.
fn turn_of(text: &str, machine: Option<Digest>) -> u64 {
    let kept = serde_json::from_str::<Kept>(text).ok();
    kept.filter(|kept| machine == Some(kept.machine)).map_or(0, |kept| kept.turn)
}

/// What it knows, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    authorities: Vec<Signed<Authority>>,
    news: News,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nobody has enrolled.
    #[error("{} is no folder of an agent: `sidestep enroll` makes one", .0.display())]
    NotEnrolled(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file says something else than it should.
    #[error("{}: {why}: take it from a backup, or enroll anew", path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Folder {
    /// The folder at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Folder(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the gateway's peers are.
    #[must_use]
    pub fn peers(&self) -> PathBuf {
        self.0.join("peers.toml")
    }

    /// Whose it is.
    ///
    /// # Errors
    /// If that is not known.
    pub fn identity(&self) -> Result<(Identity, SigningKey), FolderError> {
        let (path, text) = self.read("site.json")?;
        let Some(text) = text else { return Err(FolderError::NotEnrolled(self.0.clone())) };
        let identity = serde_json::from_str(&text)
            .map_err(|error| FolderError::Damaged { path, why: error.to_string() })?;
        let path = self.0.join("identity.key");
        let bytes = linux::file::read_private(&path)
            .map_err(|error| FolderError::File { path: path.clone(), source: io::Error::other(error) })?;
        let text = Zeroizing::new(String::from_utf8(bytes).unwrap_or_default());
        let key =
            text.parse().map_err(|error: TextError| FolderError::Damaged { path, why: error.to_string() })?;
        Ok((identity, key))
    }

    /// Keeps who it is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_identity(&self, identity: &Identity, key: &SigningKey) -> Result<(), FolderError> {
        self.write("identity.key", key.to_text().as_bytes())?;
        self.write("site.json", &serde_json::to_vec_pretty(identity).expect("names and digests"))
    }

    /// The last turn that this machine had, of the two gateways of its site; 0 if none. What another machine has written, from
    /// whose folder this one was copied, says nothing.
    #[must_use]
    pub fn turn(&self) -> u64 {
        let text = self.read("turn.json").ok().and_then(|(_, text)| text);
        text.map_or(0, |text| turn_of(&text, machine()))
    }

    /// Keeps it, where the machine can be told from others.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_turn(&self, turn: u64) -> Result<(), FolderError> {
        let Some(machine) = machine() else { return Ok(()) };
        let kept = Kept { turn, machine };
        self.write("turn.json", &serde_json::to_vec(&kept).expect("numbers and texts"))
    }

    /// What is known of the fleet of this network; nothing yet where the site has only applied. It is verified again: what
    /// somebody has put there is not believed.
    ///
    /// # Errors
    /// If the file is not what was kept.
    pub fn fleet(&self, network: NetworkId) -> Result<Option<Fleet>, FolderError> {
        let (path, text) = self.read("fleet.json")?;
        let Some(text) = text else { return Ok(None) };
        let damaged = |why: String| FolderError::Damaged { path: path.clone(), why };
        let memory: Memory = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let fleet = Fleet::restore(network, &memory.authorities, memory.news);
        fleet.map(Some).map_err(|refusal| damaged(refusal.to_string()))
    }

    /// Keeps what is known of the fleet.
    ///
    /// # Errors
    /// If it cannot be written; what was kept before stays.
    pub fn keep_fleet(&self, fleet: &Fleet) -> Result<(), FolderError> {
        let (authorities, news) = fleet.memory();
        let memory = Memory { authorities, news };
        self.write("fleet.json", &serde_json::to_vec(&memory).expect("texts and signatures"))
    }

    /// What the gateway has taken; nothing yet where it was given nothing.
    ///
    /// # Errors
    /// If the file is not what was kept.
    pub fn taken(&self) -> Result<Taken, FolderError> {
        let (path, text) = self.read("taken.json")?;
        let Some(text) = text else { return Ok(Taken::default()) };
        serde_json::from_str(&text).map_err(|error| FolderError::Damaged { path, why: error.to_string() })
    }

    /// Keeps what the gateway has taken.
    ///
    /// # Errors
    /// If it cannot be written; what was kept before stays.
    pub fn keep_taken(&self, taken: &Taken) -> Result<(), FolderError> {
        self.write("taken.json", &serde_json::to_vec(taken).expect("texts and numbers"))
    }

    /// Gives the gateway its peers. The daemon, which is root without root's rights over others' files, reads them as a member
    /// of the folder's group.
    ///
    /// # Errors
    /// If they cannot be written; what was there before stays.
    pub fn write_peers(&self, text: &str) -> Result<(), FolderError> {
        let path = self.peers();
        linux::file::replace_for_group(&path, text.as_bytes())
            .map_err(|source| FolderError::File { path, source })
    }

    fn read(&self, name: &str) -> Result<(PathBuf, Option<String>), FolderError> {
        let path = self.0.join(name);
        // Root looks at it, too, who follows no link of an agent that was taken over.
        match linux::file::open_of_another(&path).and_then(io::read_to_string) {
            Ok(text) => Ok((path, Some(text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path, None)),
            Err(source) => Err(FolderError::File { path, source }),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let path = self.0.join(name);
        match linux::file::replace(&path, bytes) {
            Ok(_) => Ok(()),
            Err(source) => Err(FolderError::File { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_of_another_machine_whose_folder_was_copied_says_nothing() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let kept = serde_json::to_string(&Kept { turn: 7, machine: one }).unwrap();
        assert_eq!(turn_of(&kept, Some(one)), 7);
        assert_eq!(turn_of(&kept, Some(other)), 0);
        assert_eq!(turn_of(&kept, None), 0, "nobody knows whose it was");
        assert_eq!(turn_of("", Some(one)), 0);
    }
}
