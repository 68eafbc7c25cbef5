//! The configuration, and whether it is what runs.

use std::path::Path;

use config::TunnelConfig;
use control::tunnel_status::{Profile, Status};

use super::finding::Finding;

/// Reads it, and compares it with what runs. None if it is wrong, or not there.
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
    match status.and_then(|status| difference(&tunnel, status)) {
        Some((code, says)) => {
            findings.push(Finding::fault(code, format!("{shown} has changed since it was read: {says}")));
        }
        None => findings.push(Finding::ok("configuration", format!("{shown} is valid"))),
    }
    if let Some(status) = status.filter(|_| tunnel.node.follows.is_some()) {
        tunnel.node.hop_prefix = status.hop_prefix;
    }
    Some(Box::new(tunnel))
}

/// How what runs differs from the file.
fn difference(config: &TunnelConfig, status: &Status) -> Option<(&'static str, String)> {
    let reload = format!("sidestep reload {}", status.tunnel);
    let own = config.node.private_key.public().to_string();
    if own != status.public_key {
        let kept = config.node.previous_key.as_ref().map(|key| key.public().to_string());
        let remedy = match kept.is_some_and(|kept| kept == status.public_key) {
            true => reload,
            false => format!("systemctl restart sidestep@{}", status.tunnel),
        };
        let says = format!("the private key is another ({remedy})");
        return Some(("not_reloaded", says));
    }
    let running: Vec<_> = status.peers.iter().filter(|peer| peer.profile == Profile::MovingTarget).collect();
    for peer in &config.peers {
        let Some(other) = running.iter().find(|other| other.name == peer.name) else {
            return Some(("not_reloaded", format!("the peer {} is new ({reload})", peer.name)));
        };
        if other.public_key != peer.public_key.to_string() {
            return Some(("not_reloaded", format!("{} has another public key ({reload})", peer.name)));
        }
    }
    let gone = running.iter().find(|other| config.peers.iter().all(|peer| peer.name != other.name))?;
    Some(("not_reloaded", format!("the peer {} is gone from it ({reload})", gone.name)))
}
