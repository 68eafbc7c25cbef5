//! What a gateway remembers from one run to the next, `<state dir>/<configuration>-gateway.json`: leases, so that hosts keep
//! their addresses; routers that answered, so that hosts keep their default route; and prefixes that hosts may still have, so
//! that they are told to drop them (RFC 9096 section 3.3).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use ipnet::Ipv6Net;
use router::advertise::VALID_LIMIT;
use router::delegation::{Lease, LeasedPrefix};
use router::dhcp6::Delegated;
use router::lifetime::Lifetime;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::random::Uuid;

/// The same moment is told by two clocks, each to the second: it differs by less from one time to the next.
const JITTER: u64 = 2;
/// Times alone are written again after this at the soonest: who renews a lease all the time wears out no flash memory, and
/// after a crash a lease of a minute is still known.
pub(super) const TIMES_EVERY: Duration = Duration::from_secs(10);

/// The file, and what was last written.
pub(super) struct StateFile {
    path: PathBuf,
    written: Contents,
    /// When that was, in Unix seconds.
    written_unix: u64,
    /// When that was, if this process has written it.
    written_at: Option<Instant>,
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
        let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let written_unix = modified.map_or(0, |since| since.as_secs());
        StateFile { path, written, written_unix, written_at: None }
    }

    /// The clock that [`StateFile::contents`] are read by. It is never before the moment at which they were written: however
    /// far the machine's was set back since then, as where one has no battery, nothing lasts longer than was promised then.
    pub(super) fn clock(&self) -> Clock {
        let clock = Clock::read();
        Clock { unix: clock.unix.max(self.written_unix), ..clock }
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.written
    }

    /// Writes it, if it is another than before: never less than the old or the new one. Where times alone are others, not
    /// before `times_every` has passed since it was written last.
    pub(super) fn save(&mut self, contents: Contents, clock: Clock, times_every: Duration) {
        let waits = self.written_at.is_some_and(|at| clock.now.saturating_duration_since(at) < times_every);
        if contents.times_apart(&self.written).is_some_and(|seconds| seconds <= JITTER || waits) {
            return;
        }
        if let Err(error) = write(&self.path, &contents) {
            warn!("{}: {error}: leases will be requested anew after a restart", self.path.display());
        }
        self.written = contents;
        (self.written_unix, self.written_at) = (clock.unix, Some(clock.now));
    }
}

impl Contents {
    /// By how many seconds times differ at most, where nothing else does.
    fn times_apart(&self, other: &Contents) -> Option<u64> {
        let (mut a, mut b) = (self.clone(), other.clone());
        let take = |contents: &mut Contents| contents.times().map(std::mem::take).collect::<Vec<_>>();
        let (of_a, of_b) = (take(&mut a), take(&mut b));
        (a == b).then(|| of_a.iter().zip(&of_b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or_default())
    }

    fn times(&mut self) -> impl Iterator<Item = &mut u64> {
        let of_leases = self.leases.values_mut().flat_map(|lease| {
            let of_prefixes = lease.prefixes.iter_mut().flat_map(|(_, preferred, valid)| [preferred, valid]);
            of_prefixes.chain([&mut lease.renew, &mut lease.rebind]).flatten()
        });
        of_leases.chain(self.delegated.iter_mut().map(|lease| &mut lease.expires))
    }

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
            expires: clock.unix(Lifetime::Until(lease.expires)).unwrap_or_default(),
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
            // However far the clock has ever been ahead.
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
        match lifetime {
            Lifetime::Expired => Some(0),
            Lifetime::Until(end) => {
                let left = end.saturating_duration_since(self.now).as_secs();
                let over = self.now.saturating_duration_since(end).as_secs();
                Some((self.unix + left).saturating_sub(over))
            }
            Lifetime::Infinite => None,
        }
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

    const UNIX: u64 = 1_800_000_000;

    /// A lease of so many seconds.
    fn lease(seconds: u64, now: Instant) -> Lease {
        let until = |seconds| Lifetime::Until(now + Duration::from_secs(seconds));
        let prefix = "2001:db8::/56".parse().expect("a prefix");
        Lease {
            iaid: 1,
            server: vec![1],
            prefixes: vec![
                LeasedPrefix { prefix, preferred: Lifetime::Expired, valid: until(seconds) },
                LeasedPrefix { prefix, preferred: until(1), valid: Lifetime::Infinite },
            ],
            renew: until(seconds / 2),
            rebind: until(seconds / 2),
            dns_servers: Vec::new(),
            aftr: None,
        }
    }

    /// A folder for the file, and the file.
    fn state_file() -> (tempfile::TempDir, StateFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StateFile::load(folder.path().join("gw-gateway.json"));
        (folder, file)
    }

    /// Whether it was written just now; it is taken away.
    fn is_written(file: &StateFile) -> bool {
        std::fs::remove_file(&file.path).is_ok()
    }

    #[test]
    fn the_same_lease_is_written_once_whenever_it_is_looked_at() {
        let (_folder, mut file) = state_file();
        let start = Instant::now();
        let lease = lease(3_600, start);
        let router = Delegated {
            network: "lan".to_owned(),
            duid: vec![0, 4, 1],
            iaid: 1,
            router: Ipv6Addr::LOCALHOST,
            number: 16,
            length: 60,
            expires: start + Duration::from_millis(5_399_500),
        };
        // Beyond the end of what is preferred, and of any wait.
        for quarter in 0..400 {
            let millis = 250 * quarter + quarter % 3;
            let clock =
                Clock { now: start + Duration::from_millis(millis), unix: UNIX + (millis + 300) / 1_000 };
            let mut contents = Contents::default();
            contents.set_lease("fibre", &lease, clock);
            contents.set_delegated(std::slice::from_ref(&router), clock);
            file.save(contents, clock, TIMES_EVERY);
            assert_eq!(is_written(&file), quarter == 0, "after {millis} ms");
        }
    }

    #[test]
    fn a_lease_that_is_renewed_all_the_time_is_written_now_and_then_and_another_one_at_once() {
        let (_folder, mut file) = state_file();
        let start = Instant::now();
        let mut save = |second, uplink: &str, times_every| {
            let clock = Clock { now: start + Duration::from_secs(second), unix: UNIX + second };
            let mut contents = Contents::default();
            contents.set_lease(uplink, &lease(10, clock.now), clock);
            file.save(contents, clock, times_every);
            is_written(&file)
        };
        let written = (0..=30).filter(|second| save(*second, "fibre", TIMES_EVERY));
        assert_eq!(written.collect::<Vec<_>>(), [0, 10, 20, 30]);
        assert!(save(31, "cable", TIMES_EVERY));
        assert!(
            !save(40, "cable", TIMES_EVERY) && save(40, "cable", Duration::ZERO),
            "the end comes at once"
        );
    }

    #[test]
    fn with_a_clock_that_was_set_back_nothing_lasts_longer_than_it_was_promised() {
        let (folder, mut file) = state_file();
        let ahead = Clock { now: Instant::now(), unix: Clock::read().unix + 10 * 365 * 86_400 };
        let mut contents = Contents::default();
        contents.set_lease("fibre", &lease(600, ahead.now), ahead);
        file.save(contents, ahead, TIMES_EVERY);
        let written = std::fs::File::options().append(true).open(&file.path).expect("a file");
        written.set_modified(UNIX_EPOCH + Duration::from_secs(ahead.unix)).expect("a time");
        let again = StateFile::load(folder.path().join("gw-gateway.json"));
        // By the file's time after a restart, and without one by what is known.
        for file in [file, again] {
            let clock = file.clock();
            let lease = file.contents().lease("fibre", clock).expect("a lease");
            let left = lease.prefixes[0].valid.remaining(clock.now).expect("an end");
            assert!((590..=600).contains(&left.as_secs()), "{left:?}");
            assert_eq!(lease.prefixes[1].valid, Lifetime::Infinite);
        }
    }

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
