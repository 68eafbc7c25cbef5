//! `endpoints`: where both ends of a pair listen for each other.

use std::net::SocketAddrV6;

use mt6d::keys::PairKeys;
use mt6d::rendezvous::{Rendezvous, Tier, endpoint};
use serde::Serialize;

use crate::failure::Failure;
use crate::place;
use crate::terminal::print;
use config::TunnelConfig;

/// One epoch of a tier.
#[derive(Debug, Serialize)]
struct Epoch {
    tier: u8,
    epoch: u64,
    from_unix_ms: u64,
    to_unix_ms: u64,
    local: Endpoint,
    remote: Endpoint,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    address: std::net::Ipv6Addr,
    port: u16,
}

impl From<SocketAddrV6> for Endpoint {
    fn from(address: SocketAddrV6) -> Self {
        Endpoint { address: *address.ip(), port: address.port() }
    }
}

pub(crate) fn print_endpoints(
    config: &TunnelConfig,
    peer: &str,
    at_unix_ms: u64,
    count: u16,
    json: bool,
) -> Result<(), Failure> {
    let epochs = epochs(config, peer, at_unix_ms, count)?;
    if json {
        return print(format_args!("{}\n", serde_json::to_string_pretty(&epochs)?));
    }
    print(format_args!(
        "{:<5} {:<10} {:<14} {:<48} {}\n",
        "tier", "epoch", "from (ms)", "this end", "the other end"
    ))?;
    for epoch in epochs {
        let Epoch { tier, epoch, from_unix_ms, local, remote, .. } = epoch;
        let (local, remote) = (text(&local), text(&remote));
        print(format_args!("{tier:<5} {epoch:<10} {from_unix_ms:<14} {local:<48} {remote}\n"))?;
    }
    Ok(())
}

fn text(endpoint: &Endpoint) -> String {
    format!("[{}]:{}", endpoint.address, endpoint.port)
}

fn epochs(config: &TunnelConfig, name: &str, at_unix_ms: u64, count: u16) -> Result<Vec<Epoch>, Failure> {
    let Some(peer) = config.peer(name) else {
        let names: Vec<&str> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
        return Err(Failure::Message(format!("no peer is named {name:?}; there are: {}", names.join(", "))));
    };
    let keys = PairKeys::derive(&config.node.private_key, &peer.public_key, peer.preshared_key.as_ref())?;
    let rendezvous = Rendezvous::new(&keys);
    let tiers = Tier::ALL.into_iter().filter(|&tier| tier != Tier::Days || peer.clockless);
    let of_tier = |tier| {
        let first = rendezvous.current(tier, at_unix_ms);
        (0..count).map(move |later| (tier, first + later.into()))
    };
    let hop_prefix = place::hop_prefix(config)?;
    let epochs = tiers.flat_map(of_tier).map(|(tier, epoch)| Epoch {
        tier: tier.number(),
        epoch: epoch.0,
        from_unix_ms: rendezvous.start(tier, epoch),
        to_unix_ms: rendezvous.start(tier, epoch.next()),
        local: endpoint(&keys, keys.role, hop_prefix, tier, epoch).into(),
        remote: endpoint(&keys, keys.role.other(), peer.hop_prefix, tier, epoch).into(),
    });
    Ok(epochs.collect())
}
