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

/// Reads the file, and applies what concerns the gateway if nothing is known by then that refuses the whole: not on the
/// thread that carries packets.
pub(crate) fn load(
    file: &Path,
    gateway: Option<&RouterHandle>,
    check: impl FnOnce(&TunnelConfig) -> Result<(), Error>,
) -> Result<Loaded, Error> {
    let config = config::load(file)?;
    let no_tunnel = || config::Error::NoTunnel { path: file.to_owned() };
    let tunnel = Box::new(config.tunnel.ok_or_else(no_tunnel)?);
    // Before anything is in force.
    check(&tunnel)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_anyway_is_refused_before_the_gateway_hears_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        // With a gateway's part, which would be refused next.
        let text = "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
                    hop_prefix = \"2001:db8:a1::/64\"\n[[uplink]]\nname = \"fibre\"\ninterface = \"eth0\"\n";
        linux::file::create(&file, text.as_bytes()).unwrap();
        let refused = |check: fn(&TunnelConfig) -> Result<(), Error>| match load(&file, None, check) {
            Err(Error::NeedsRestart(what)) => what,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is taken"),
        };
        assert_eq!(refused(|_| Err(Error::NeedsRestart("spin"))), "spin");
        assert!(refused(|_| Ok(())).contains("[[uplink]]"));
    }
}
