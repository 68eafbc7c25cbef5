//! A new configuration: the key, the file, and the folder for peers.

use std::fs::{self, DirBuilder};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ipnet::Ipv6Net;
use tunnel_runtime::{obstacles, surroundings};

use crate::failure::Failure;
use crate::load::{load_tunnel, not_loaded};
use crate::peer::write_new;
use crate::ssh;

/// What a new gateway is.
pub(super) struct Gateway<'g> {
    /// The tunnel's name.
    pub(super) tunnel: &'g str,
    /// The interface towards the Internet.
    pub(super) external: &'g str,
    /// Where it hops.
    pub(super) hop_prefix: Ipv6Net,
    /// Whether that is the prefix of the link.
    pub(super) on_link: bool,
    /// Its addresses inside.
    pub(super) addresses: &'g [IpAddr],
    /// Its private key.
    pub(super) private_key: &'g str,
    /// The file of a fleet's peers.
    pub(super) fleet: Option<&'g Path>,
}

/// Where they are in this folder.
pub(super) fn configuration(folder: &Path, tunnel: &str) -> PathBuf {
    folder.join(format!("{tunnel}.toml"))
}

impl Gateway<'_> {
    /// Writes its files; where one is there already, or the whole would not be valid, none is left.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let about = |error: std::io::Error| Failure::Message(format!("{}: {error}", folder.display()));
        DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(about)?;
        let file = configuration(folder, self.tunnel);
        let key = folder.join(format!("{}.key", self.tunnel));
        if file.exists() {
            let why = format!(
                "{} exists already: add peers to it (sidestep invite, sidestep peer add)",
                file.display()
            );
            return Err(Failure::Message(why));
        }
        write_new(&key, &format!("{}\n", self.private_key))?;
        let written = write_new(&file, &self.text())
            .and_then(|()| config::load(&file).map_err(|error| not_loaded(&file, error)));
        if let Err(error) = written {
            let _ = fs::remove_file(&key);
            let _ = fs::remove_file(&file);
            return Err(error);
        }
        Ok(file)
    }

    /// As it is written.
    pub(super) fn text(&self) -> String {
        let Gateway { tunnel, external, hop_prefix, .. } = self;
        let addresses = self.addresses.iter().map(|address| {
            let length = if address.is_ipv6() { 128 } else { 32 };
            format!("\"{address}/{length}\"")
        });
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let on_link = if self.on_link { "on_link          = true\n" } else { "" };
        let fleet = self.fleet.map(|file| {
            let file = file.display();
            format!("# The sites of its fleet, which `sidestep agent` writes.\nfleet = \"{file}\"\n")
        });
        let fleet = fleet.unwrap_or_default();
        format!(
            "# Peers are in files of their own there: `sidestep invite`, `sidestep peer add`.\n\
             include = [\"{tunnel}.d/*.toml\"]\n{fleet}\n\
             [node]\nprivate_key_file = \"{tunnel}.key\"\nexternal         = \"{external}\"\nhop_prefix       = \"{hop_prefix}\"\n{on_link}\n\
             [tunnel]\nname      = \"{tunnel}\"\naddresses = [{addresses}]\n"
        )
    }
}

/// What is left to be done on this machine and its router, as commands.
///
/// # Errors
/// Where the file that was written cannot be read.
pub(super) fn next_steps(file: &Path) -> Result<String, Failure> {
    let config = load_tunnel(file)?;
    let (name, node) = (&config.tunnel.name, &config.node);
    let mut text = String::new();
    if !node.on_link {
        let (hop_prefix, external) = (node.hop_prefix, &node.external);
        text += &format!(
            "\nThe prefix must lead to this machine. On its router, if that is Linux:\n    ip -6 route add {hop_prefix} via THIS_MACHINE\n\
             To see whether it does: tcpdump -ni {external} dst net {hop_prefix}, and ping one of its addresses from elsewhere.\n"
        );
    }
    let refused = surroundings::refuse_to_start(&config).err().map(|why| why.to_string());
    let refused = refused.or_else(|| ssh::taken_away(&config));
    let is_refused = refused.is_some();
    let obstacles = obstacles::find(&config, false).into_iter().map(|found| found.says);
    let found: Vec<_> = refused.into_iter().chain(obstacles).collect();
    if !found.is_empty() {
        text += "\nWhat is in the way on this machine:\n";
        found.iter().for_each(|says| text += &format!("    {says}\n"));
    }
    text += &if is_refused {
        format!(
            "\n`sidestep up` refuses it, because of the first of these. Mend that, until this no longer tells it:\n    sidestep check {}\n",
            file.display()
        )
    } else {
        format!(
            "\nStart it, now and at each boot:\n    systemctl enable --now sidestep@{name}\nIf something does not work:\n    sidestep doctor\n"
        )
    };
    Ok(text)
}
