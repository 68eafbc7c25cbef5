//! Where this end hops now: as its configuration says or, where that follows an uplink or a link, as the daemon does.

use config::{Mode, TunnelConfig};
use control::Request;
use control::tunnel_status::Status;
use ipnet::Ipv6Net;
use mt6d::config::NOWHERE;

use crate::failure::Failure;

/// This end's hopping prefix.
///
/// # Errors
/// If it is not written down, and the daemon does not run, or has none yet.
pub(crate) fn hop_prefix(config: &TunnelConfig) -> Result<Ipv6Net, Failure> {
    let node = &config.node;
    if node.hop_prefix != NOWHERE {
        return Ok(node.hop_prefix);
    }
    let whose = match (&node.follows, node.mode) {
        (Some(follows), _) => format!("that of uplink {}", follows.uplink),
        (None, Mode::Host) => "that of the link".to_owned(),
        (None, Mode::Routed | Mode::Transparent) => {
            return Err(Failure::Message("it has no hopping prefix".into()));
        }
    };
    let name = &config.tunnel.name;
    let value = control::ask(&control::socket_of(name), &Request::Show).map_err(|error| {
        Failure::Message(format!("the hopping prefix is {whose}, which is known while {name} runs: {error}"))
    })?;
    let status: Status = serde_json::from_value(value)?;
    if status.hop_prefix == NOWHERE {
        return Err(Failure::Message(format!("the hopping prefix is {whose}, which has none yet")));
    }
    Ok(status.hop_prefix)
}
