//! A configuration that is read again, beside the thread that carries packets.

use std::path::Path;

use config::{RouterConfig, TunnelConfig};
use router_runtime::RouterHandle;

use crate::error::Error;
use crate::surroundings;

/// A configuration that was read again: the tunnel's is to be applied, the gateway's is in force.
pub(crate) struct Loaded {
    pub(crate) tunnel: Box<TunnelConfig>,
    /// The gateway's from before, if there is a gateway.
    pub(crate) router_before: Option<Box<RouterConfig>>,
}

/// Reads the file, and applies what concerns the gateway: not on the thread that carries packets.
pub(crate) fn load(file: &Path, gateway: Option<&RouterHandle>) -> Result<Loaded, Error> {
    let config = config::load(file)?;
    let no_tunnel = || config::Error::NoTunnel { path: file.to_owned() };
    let tunnel = Box::new(config.tunnel.ok_or_else(no_tunnel)?);
    // Before anything is in force.
    surroundings::refuse(&tunnel)?;
    let router_before = match (gateway, config.gateway) {
        (Some(running), Some(new)) => Some(running.reload(Box::new(new))?),
        (None, None) => None,
        _ => {
            return Err(Error::NeedsRestart("whether there is an [[uplink]], a [[network]] or a [[zone]]"));
        }
    };
    Ok(Loaded { tunnel, router_before })
}
