//! What a transparent gateway has learned of its link, for the next start: `<state dir>/<tunnel>-link.json`. Without it
//! the router is asked, and a host whose hardware address is not configured is known with its first solicitation.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;
use wire::ethernet::MacAddress;

pub(super) struct LinkFile {
    path: PathBuf,
    file: File,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    router: Option<(Ipv6Addr, [u8; 6])>,
    hosts: BTreeMap<Ipv6Addr, [u8; 6]>,
}

impl LinkFile {
    /// What was remembered, if anything was.
    pub(super) fn load(folder: &Path, tunnel: &str) -> Self {
        let path = folder.join(format!("{tunnel}-link.json"));
        let file = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                warn!("{}: {error}: starting without it", path.display());
                File::default()
            }),
            Err(_) => File::default(),
        };
        LinkFile { path, file }
    }

    pub(super) fn router(&self) -> Option<(Ipv6Addr, MacAddress)> {
        self.file.router.map(|(address, mac)| (address, MacAddress(mac)))
    }

    pub(super) fn host(&self, address: Ipv6Addr) -> Option<MacAddress> {
        self.file.hosts.get(&address).copied().map(MacAddress)
    }

    pub(super) fn remember_router(&mut self, address: Ipv6Addr, mac: MacAddress) {
        if self.file.router.replace((address, mac.0)) != Some((address, mac.0)) {
            self.save();
        }
    }

    pub(super) fn remember_host(&mut self, address: Ipv6Addr, mac: MacAddress) {
        if self.file.hosts.insert(address, mac.0) != Some(mac.0) {
            self.save();
        }
    }

    fn save(&self) {
        let write = || -> std::io::Result<()> {
            linux::file::replace(&self.path, &serde_json::to_vec(&self.file)?).map(drop)
        };
        if let Err(error) = write() {
            warn!("{}: {error}: what was learned of the link is not stored", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_is_there_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let (host, router) = ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
        let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
        let mut link_file = LinkFile::load(folder.path(), "mt6d0");
        assert_eq!((link_file.host(host), link_file.router()), (None, None));
        link_file.remember_host(host, mac(1));
        link_file.remember_router(router, mac(2));
        let link_file = LinkFile::load(folder.path(), "mt6d0");
        assert_eq!((link_file.host(host), link_file.router()), (Some(mac(1)), Some((router, mac(2)))));
    }
}
