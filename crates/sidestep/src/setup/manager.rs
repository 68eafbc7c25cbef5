//! Which program configures an interface of this machine.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use linux::netlink::Link;

/// Where networkd looks for files; of two with the same name the first counts.
const FOLDERS: [&str; 3] = ["etc/systemd/network", "run/systemd/network", "usr/lib/systemd/network"];

/// This machine, or a folder that looks like it.
pub(super) struct Machine {
    /// Where its files are.
    pub(super) root: PathBuf,
    /// Its interfaces.
    pub(super) links: Vec<Link>,
}

/// Who configures an interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConfiguredBy {
    /// networkd, or nobody yet; the file that it takes for it.
    Networkd(Option<PathBuf>),
    /// NetworkManager.
    NetworkManager,
    /// ifupdown.
    Ifupdown {
        /// The file that has it configure IPv6.
        ipv6: Option<PathBuf>,
    },
}

impl Machine {
    /// Who configures this interface.
    pub(super) fn configured_by(&self, interface: &str) -> ConfiguredBy {
        let index = self.links.iter().find(|link| link.name == interface).map(|link| link.index);
        let state = |folder: &str| {
            let path = self.root.join(folder).join(index?.to_string());
            std::fs::read_to_string(path).ok()
        };
        let is_managed = |text: String| text.lines().any(|line| line.trim() == "managed=true");
        if state("run/NetworkManager/devices").is_some_and(is_managed) {
            return ConfiguredBy::NetworkManager;
        }
        let used = state("run/systemd/netif/links").and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("NETWORK_FILE=")).map(PathBuf::from)
        });
        match self.ifupdown(interface) {
            Some(ifupdown) if used.is_none() => ifupdown,
            _ => ConfiguredBy::Networkd(used),
        }
    }

    /// Whether networkd runs.
    pub(super) fn runs_networkd(&self) -> bool {
        self.root.join("run/systemd/netif/state").exists()
    }

    /// A file of networkd's, with what is added to it in files beside it (drop-ins).
    ///
    /// # Errors
    /// The file that cannot be read.
    pub(super) fn network_file(&self, path: &Path) -> Result<String, (PathBuf, io::Error)> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| (path.to_owned(), error));
        let in_root = |path: &Path| self.root.join(path.strip_prefix("/").unwrap_or(path));
        let mut text = read(&in_root(path))?;
        let folder = path.file_name().map(|name| format!("{}.d", name.to_string_lossy())).unwrap_or_default();
        let mut more = BTreeMap::new();
        for place in FOLDERS.iter().rev() {
            for added in files(&self.root.join(place).join(&folder)) {
                if added.extension().is_some_and(|extension| extension == "conf") {
                    more.insert(added.file_name().map(ToOwned::to_owned), added);
                }
            }
        }
        for added in more.values() {
            text.push('\n');
            text += &read(added)?;
        }
        Ok(text)
    }

    /// What ifupdown does with this interface, if anything.
    fn ifupdown(&self, interface: &str) -> Option<ConfiguredBy> {
        let more = files(&self.root.join("etc/network/interfaces.d"));
        let mut found = None;
        for path in [self.root.join("etc/network/interfaces")].into_iter().chain(more) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for line in text.lines() {
                let words: Vec<_> = line.split_whitespace().collect();
                let ["iface", name, family, method, ..] = words[..] else { continue };
                if name != interface {
                    continue;
                }
                let before = match found.take() {
                    Some(ConfiguredBy::Ifupdown { ipv6 }) => ipv6,
                    _ => None,
                };
                let ipv6 = (family == "inet6" && method != "manual").then(|| path.clone());
                found = Some(ConfiguredBy::Ifupdown { ipv6: before.or(ipv6) });
            }
        }
        found
    }
}

/// The files in a folder, if there is one, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}
