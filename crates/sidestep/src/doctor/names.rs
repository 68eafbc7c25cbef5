//! Names of peers: whether they say where the peer is.

use std::time::{SystemTime, UNIX_EPOCH};

use config::{PeerName, TunnelConfig};
use control::tunnel_status::{State, Status};
use dns::{Found, LookupError, lookup};
use mt6d::record::{Record, RecordError};
use tunnel_runtime::names::{kind_of, prefix_of};

use super::finding::Finding;
use crate::seal::pairs_of_keys;

/// Looks up the names of peers, or of this one.
pub(super) fn look(
    config: &TunnelConfig,
    only: Option<&str>,
    status: Option<&Status>,
    findings: &mut Vec<Finding>,
) {
    for name in config.names.iter().filter(|name| only.is_none_or(|only| name.peer == only)) {
        let here = status.and_then(|status| status.peers.iter().find(|peer| peer.name == name.peer));
        // What an established session says is true.
        let here = here.filter(|peer| peer.state == State::Established).map(|peer| peer.hop_prefix);
        let found = lookup(&name.name, kind_of(name));
        // Each name would take seconds.
        let is_over = matches!(found, Err(LookupError::NoAnswer(_)));
        let finding = match found {
            Err(why) => not_found(name, &why),
            Ok(found) => match found.iter().map(|found| place(found, name, config)).reduce(Result::or) {
                Some(Ok(place)) if here.is_some_and(|here| here != place) => Finding::warning(
                    "name_outdated",
                    format!(
                        "{} says that it is in {place}, and it is in {}: have it published anew there{}",
                        name.name,
                        here.unwrap_or_default(),
                        command(name)
                    ),
                ),
                Some(Ok(place)) => Finding::ok("name", format!("{} says that it is in {place}", name.name)),
                Some(Err(why)) => {
                    let says = format!("the record of {} cannot be used: {why}{}", name.name, command(name));
                    Finding::fault("name_unusable", says)
                }
                None => not_found(name, &LookupError::NoRecord(kind_of(name))),
            },
        };
        findings.push(finding.of(&name.peer));
        if is_over {
            return;
        }
    }
}

fn not_found(name: &PeerName, why: &LookupError) -> Finding {
    let (code, remedy) = match why {
        LookupError::NoSuchName | LookupError::NoRecord(_) => {
            ("name_missing", format!("have it published at the peer{}", command(name)))
        }
        _ => {
            ("name_server", "look at the servers in /etc/resolv.conf (getent ahosts example.net)".to_owned())
        }
    };
    Finding::fault(code, format!("{} tells nothing: {why}: {remedy}", name.name))
}

/// What publishes such a record, at the peer.
fn command(name: &PeerName) -> &'static str {
    if name.is_record { " (sidestep seal-prefix TUNNEL PEER, at the other end)" } else { "" }
}

fn place(found: &Found, name: &PeerName, config: &TunnelConfig) -> Result<ipnet::Ipv6Net, RecordError> {
    let peer = config.peer(&name.peer).ok_or(RecordError::Foreign)?;
    match found {
        Found::Address(address) => Ok(prefix_of(*address, peer.hop_prefix.prefix_len())),
        Found::Text(text) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
            let opened = pairs_of_keys(config, peer).map(|keys| {
                Record::open(text, &keys.map_err(|_| RecordError::Foreign)?, 0, now)
                    .map(|record| record.place)
            });
            let best = opened.reduce(|one, other| if one == Err(RecordError::Foreign) { other } else { one });
            best.unwrap_or(Err(RecordError::Foreign))
        }
    }
}
