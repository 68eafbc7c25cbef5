//! What of a configuration `ipsec up` carries, and what carries it.

use std::time::Instant;

use config::ipsec::{IpsecConfig, Place, Ports};
use ike::config::Mode;

use crate::carrier::Carrier;
use crate::error::Error;
use crate::machine::tell_time;
use crate::manual::Manual;
use crate::random::System;

/// Whether `ipsec up` carries all of it; nothing is set up, and privileges are not looked at.
///
/// # Errors
/// What is not carried, and what to do.
pub fn check(config: &IpsecConfig) -> Result<(), Error> {
    refuse(config)?;
    carrier(config, config.ports).map(drop)
}

/// What is not carried, said before anything is set up.
pub(super) fn refuse(config: &IpsecConfig) -> Result<(), Error> {
    for (peer, remote) in config.ike.peers.iter().zip(&config.remotes) {
        let is_transport = peer.children.iter().any(|child| child.mode == Mode::Transport);
        if is_transport && !matches!(remote.address, Some(Place::Address(_))) {
            let what = format!(
                "remote {:?}: transport mode protects what this machine sends to a certain host: write its IP \
                 address as `address` (with start = \"wait\" if it is to begin), or take mode = \"tunnel\"",
                remote.name
            );
            return Err(Error::NotCarried(what));
        }
    }
    Ok(())
}

/// A carrier with all that the configuration and the files that it names say.
pub(super) fn carrier(config: &IpsecConfig, ports: Ports) -> Result<Carrier<System>, Error> {
    let now = Instant::now();
    let mut carrier = Carrier::with_raw(config, ports, System::new()?, now);
    tell_time(&mut carrier);
    if let Some(path) = &config.setkey {
        carrier.load(Manual::read(path)?, now)?;
    }
    Ok(carrier)
}
