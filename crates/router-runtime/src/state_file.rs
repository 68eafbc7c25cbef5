//! What a gateway remembers from one run to the next, `<state dir>/<configuration>-gateway.json`: leases, so that hosts keep
//! their addresses; routers that answered, so that hosts keep their default route; and prefixes that hosts may still have, so
//! that they are told to drop them (RFC 9096 section 3.3).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use router::advertise::VALID_LIMIT;
use router::delegation::{Lease, LeasedPrefix};
use router::dhcp6::Delegated;
use router::lifetime::Lifetime;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::random::Uuid;

/// The file, and what was last written.
pub(super) struct StateFile {
    path: PathBuf,
    written: Contents,
}

/// Leases by the name of the uplink, prefixes by the interface of the network: hosts there have them, whatever it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    leases: BTreeMap<String, Remembered>,
    pub(super) prefixes: BTreeMap<String, Vec<Ipv6Net>>,
    /// Routers by the name of the uplink.
    #[serde(default)]
    pub(super) routers: BTreeMap<String, Ipv6Addr>,
    #[serde(default)]
    pub(super) uuid: Option<Uuid>,
    /// What routers behind this one have.
    #[serde(default)]
    delegated: Vec<RememberedDelegation>,
}

/// A part of the uplinks' prefixes that a router behind this one has; `expires` is in Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedDelegation {
    network: String,
    duid: Vec<u8>,
    iaid: u32,
    router: Ipv6Addr,
    number: u64,
    length: u8,
    expires: u64,
}

/// A lease; times are Unix seconds, none is for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    #[serde(default = "first_iaid")]
    iaid: u32,
    server: Vec<u8>,
    prefixes: Vec<(Ipv6Net, Option<u64>, Option<u64>)>,
    renew: Option<u64>,
    rebind: Option<u64>,
    dns_servers: Vec<Ipv6Addr>,
    #[serde(default)]
    aftr: Option<String>,
}

/// That of leases from when each uplink had the same.
fn first_iaid() -> u32 {
    1
}

impl StateFile {
    /// Reads the file, if there is one. Without it, leases are asked for anew.
    pub(super) fn load(path: PathBuf) -> Self {
        let written = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                warn!("{}: {error}: starting without it", path.display());
                Contents::default()
            }),
            Err(_) => Contents::default(),
        };
        StateFile { path, written }
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.written
    }

    /// Writes it, if it is another than before: never less than the old or the new one.
    pub(super) fn save(&mut self, contents: Contents) {
        if contents == self.written {
            return;
        }
        if let Err(error) = write(&self.path, &contents) {
            warn!("{}: {error}: leases will be requested anew after a restart", self.path.display());
        }
        self.written = contents;
    }
}

impl Contents {
    pub(super) fn set_lease(&mut self, uplink: &str, lease: &Lease, clock: Clock) {
        let remembered = Remembered {
            iaid: lease.iaid,
            server: lease.server.clone(),
            prefixes: lease
                .prefixes
                .iter()
                .map(|leased| (leased.prefix, clock.unix(leased.preferred), clock.unix(leased.valid)))
                .collect(),
            renew: clock.unix(lease.renew),
            rebind: clock.unix(lease.rebind),
            dns_servers: lease.dns_servers.clone(),
            aftr: lease.aftr.clone(),
        };
        self.leases.insert(uplink.to_owned(), remembered);
    }

    pub(super) fn set_delegated(&mut self, leases: &[Delegated], clock: Clock) {
        let remembered = |lease: &Delegated| RememberedDelegation {
            network: lease.network.clone(),
            duid: lease.duid.clone(),
            iaid: lease.iaid,
            router: lease.router,
            number: lease.number,
            length: lease.length,
            // To the minute: the same moment is the same each time that it is written.
            expires: clock.unix(Lifetime::Until(lease.expires)).unwrap_or_default().next_multiple_of(60),
        };
        self.delegated = leases.iter().map(remembered).collect();
    }

    pub(super) fn delegated(&self, clock: Clock) -> Vec<Delegated> {
        let known = self.delegated.iter().filter(|lease| lease.length <= 64);
        let lease = |lease: &RememberedDelegation| Delegated {
            network: lease.network.clone(),
            duid: lease.duid.clone(),
            iaid: lease.iaid,
            router: lease.router,
            number: lease.number,
            length: lease.length,
            // However far the clock was set back meanwhile.
            expires: clock.now
                + Duration::from_secs(lease.expires.saturating_sub(clock.unix)).min(VALID_LIMIT),
        };
        known.map(lease).collect()
    }

    pub(super) fn lease(&self, uplink: &str, clock: Clock) -> Option<Lease> {
        let Remembered { iaid, server, prefixes, renew, rebind, dns_servers, aftr } =
            self.leases.get(uplink)?.clone();
        let prefixes = prefixes.into_iter().map(|(prefix, preferred, valid)| LeasedPrefix {
            prefix,
            preferred: clock.lifetime(preferred),
            valid: clock.lifetime(valid),
        });
        let (renew, rebind) = (clock.lifetime(renew), clock.lifetime(rebind));
        Some(Lease { iaid, server, prefixes: prefixes.collect(), renew, rebind, dns_servers, aftr })
    }
}

/// One moment by both clocks.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) now: Instant,
    pub(super) unix: u64,
}

impl Clock {
    pub(super) fn read() -> Self {
        Clock { now: Instant::now(), unix: linux::clock::unix_ms() / 1_000 }
    }

    fn unix(self, lifetime: Lifetime) -> Option<u64> {
        lifetime.remaining(self.now).map(|left| self.unix + left.as_secs())
    }

    fn lifetime(self, unix: Option<u64>) -> Lifetime {
        match unix {
            None => Lifetime::Infinite,
            Some(end) => Lifetime::Until(
                self.now + Duration::from_secs(end.saturating_sub(self.unix).min(u32::MAX.into())),
            ),
        }
    }
}

fn write(path: &Path, contents: &Contents) -> std::io::Result<()> {
    linux::file::replace(path, &serde_json::to_vec(contents)?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_from_before_iaids_had_names_is_read() {
        let file = r#"{"leases": {"fibre": {"server": [1], "prefixes": [["2001:db8::/56", null, null]],
            "renew": null, "rebind": null, "dns_servers": []}}, "prefixes": {}}"#;
        let mut contents: Contents = serde_json::from_str(file).expect("a file");
        let clock = Clock::read();
        let mut lease = contents.lease("fibre", clock).expect("a lease");
        assert_eq!((lease.iaid, contents.uuid), (1, None));
        (lease.iaid, contents.uuid) = (7, Some([5; 16]));
        contents.set_lease("fibre", &lease, clock);
        let written = serde_json::to_string(&contents).expect("a file");
        let read: Contents = serde_json::from_str(&written).expect("a file");
        assert_eq!((read.lease("fibre", clock), read.uuid), (Some(lease), Some([5; 16])));
    }
}
