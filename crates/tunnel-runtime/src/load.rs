//! A configuration that is read again, beside the thread that carries packets.

use std::path::Path;

use config::{Config, Gateway};
use router_runtime::Handle;

use crate::error::Error;

/// A configuration that was read again: the tunnel's is to be applied, the gateway's is in force.
pub(crate) struct Loaded {
    pub(crate) tunnel: Box<Config>,
    /// The gateway's from before, if there is a gateway.
    pub(crate) gateway_before: Option<Box<Gateway>>,
}

/// Reads the file, and applies what concerns the gateway: not on the thread that carries packets.
pub(crate) fn load(file: &Path, gateway: Option<&Handle>) -> Result<Loaded, Error> {
    let whole = config::load(file)?;
    let no_tunnel = || config::Error::NoTunnel { path: file.to_owned() };
    let tunnel = Box::new(whole.tunnel.ok_or_else(no_tunnel)?);
    let gateway_before = match (gateway, whole.gateway) {
        (Some(running), Some(new)) => Some(running.reload(Box::new(new))?),
        (None, None) => None,
        _ => {
            return Err(Error::NeedsRestart("whether there is an [[uplink]], a [[network]] or a [[zone]]"));
        }
    };
    Ok(Loaded { tunnel, gateway_before })
}
