//! The configuration, and whether it is what runs.

use std::collections::BTreeMap;
use std::path::Path;

use config::{Mode, TunnelConfig};
use control::tunnel_status::{Peer, Status};

use super::finding::Finding;
use crate::running::unit_of;
use crate::show::text::stands_by;

/// Reads it, and compares it with what runs: as that is what is returned. None if it is wrong, or not there.
pub(super) fn look(
    file: Option<&Path>,
    status: Option<&Status>,
    findings: &mut Vec<Finding>,
) -> Option<Box<TunnelConfig>> {
    let Some(file) = file else {
        if status.is_none() {
            let says = "no configuration of a tunnel is in /etc/sidestep, or there are several: name one with --config FILE";
            findings.push(Finding::fault("no_configuration", says));
        }
        return None;
    };
    let shown = file.display();
    let config = match config::load(file) {
        Ok(config) => config,
        Err(error) => {
            let text = error.to_string();
            let what = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let says =
                if file.exists() { format!("{what} (sidestep check {shown})") } else { what.to_owned() };
            findings.push(Finding::fault("configuration", says));
            return None;
        }
    };
    let Some(mut tunnel) = config.tunnel else {
        findings.push(Finding::fault("no_tunnel", format!("{shown} describes no tunnel: it has no [node]")));
        return None;
    };
    match status {
        Some(status) if is_another(&tunnel, status) => {
            let says =
                format!("{shown} was changed since the daemon read it: {}", difference(&tunnel, status));
            findings.push(Finding::warning("not_reloaded", says));
            as_it_runs(&mut tunnel, status);
        }
        Some(_) => findings.push(Finding::ok("configuration", format!("{shown} is valid, and is what runs"))),
        None => findings.push(Finding::ok("configuration", format!("{shown} is valid"))),
    }
    if let Some(status) = status.filter(|status| tunnel.node.follows.is_some() || stands_by(status)) {
        tunnel.node.hop_prefix = status.hop_prefix;
    }
    Some(Box::new(tunnel))
}

/// Whether the file is not what runs. An older daemon does not say what it has read.
fn is_another(config: &TunnelConfig, status: &Status) -> bool {
    match status.file_digest.as_str() {
        "" => change(config, status).is_some(),
        read => read != config.digest,
    }
}

/// What in the file is another than what runs, and the command that applies it.
fn difference(config: &TunnelConfig, status: &Status) -> String {
    let name = &status.tunnel;
    let (change, needs_restart) = change(config, status).unzip();
    let change = change.map_or(String::new(), |change| format!("{change}: "));
    match needs_restart {
        Some(true) => {
            format!("{change}`systemctl restart {}` applies it", unit_of(Path::new(&status.file)))
        }
        _ => format!("{change}`sidestep reload {name}` applies it, or says why not"),
    }
}

/// A change that the status shows, and whether it needs a restart.
fn change(config: &TunnelConfig, status: &Status) -> Option<(String, bool)> {
    let node = &config.node;
    if node.private_key.public().to_string() != status.public_key {
        let kept = node.previous_key.as_ref().map(|key| key.public().to_string());
        return Some(("the private key is another".to_owned(), kept.as_ref() != Some(&status.public_key)));
    }
    if node.external != status.external {
        return Some((format!("[node] external is {}", node.external), true));
    }
    let is_written = node.follows.is_none() && node.mode != Mode::Host && !stands_by(status);
    if is_written && node.hop_prefix != status.hop_prefix {
        return Some((format!("[node] hop_prefix is {}", node.hop_prefix), false));
    }
    let mut running = peers(status);
    for peer in &config.peers {
        let name = &peer.name;
        let Some(other) = running.remove(name.as_str()) else {
            return Some((format!("the peer {name} is new"), false));
        };
        if other.public_key != peer.public_key.to_string() {
            return Some((format!("{name} has another public key"), false));
        }
        if !status.file_digest.is_empty() && other.allowed_ips != peer.allowed_ips {
            return Some((format!("{name} has other allowed_ips"), false));
        }
    }
    let (gone, _) = running.pop_first()?;
    Some((format!("the peer {gone} is gone from it"), false))
}

/// Puts what runs in the place of what the file says, where it is known: what is found of this machine concerns that.
fn as_it_runs(config: &mut TunnelConfig, status: &Status) {
    config.tunnel.name.clone_from(&status.tunnel);
    config.node.external.clone_from(&status.external);
    config.node.hop_prefix = status.hop_prefix;
    let running = peers(status);
    config.peers.retain_mut(|peer| {
        let Some(other) = running.get(peer.name.as_str()) else { return false };
        peer.hop_prefix = other.hop_prefix;
        peer.allowed_ips.clone_from(&other.allowed_ips);
        true
    });
}

/// Those with sessions, by their names.
fn peers(status: &Status) -> BTreeMap<&str, &Peer> {
    let moving = status.peers.iter().filter(|peer| !peer.is_classic());
    moving.map(|peer| (peer.name.as_str(), peer)).collect()
}
