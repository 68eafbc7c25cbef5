//! How many sockets and files a tunnel needs.

use config::TunnelConfig;
use linux::process;
use mt6d::config::PeerConfig;
use mt6d::rendezvous::Tier;
use tracing::warn;

use crate::error::Error;

/// Descriptors that the daemon needs beside its endpoints: TUN queues, netlink, epoll, BPF, the control socket, files.
const OTHER_FILES: u64 = 96;
/// Files of each packet thread: a poller, a waker, and an end of a channel to spare.
const FILES_OF_THREAD: u64 = 3;

/// Endpoints of a session that are open at once, but for one moment in millions: what the daemon needs sockets for.
///
/// A lane's endpoint is open from 1 s before its birth to 3 s behind its death, and births come by chance (docs/protocol.md,
/// "Lanes"), so the number is one of Poisson's. A round trip above 1 s adds to it.
pub fn session_endpoints(peer: &PeerConfig) -> u64 {
    let life = peer.rotation.as_secs_f64().max(1.0);
    // Gaps are cut, and lives prolonged where no other lane is alive.
    let alive = 1.04 * f64::from(peer.most_lanes()) + 0.7;
    let mean = alive * (life + 4.0) / life;
    (mean + 5.0 * mean.sqrt()).ceil() as u64 + 1
}

/// Rendezvous endpoints that are open at once for a pair of keys without a session, at most.
pub fn rendezvous_endpoints(peer: &PeerConfig) -> u64 {
    let tiers = Tier::ALL.into_iter().filter(|&tier| tier != Tier::Days || peer.clockless);
    let of_tier = |tier: Tier| starts_within((2 * tier.tolerance_ms()).into(), tier.interval_ms().into()) + 1;
    tiers.map(|tier| u64::try_from(of_tier(tier)).unwrap_or(u64::MAX)).sum()
}

/// How many epochs begin within `window`, at most: jitter moves each by less than half an interval.
fn starts_within(window: u128, interval: u128) -> u128 {
    (window + interval / 2) / interval + 1
}

/// Rendezvous endpoints of all peers, at most; one more each for a try that outlasts its epoch.
fn all_rendezvous_endpoints(config: &TunnelConfig) -> u64 {
    let own = 1 + u64::from(config.node.previous_key.is_some());
    let pairs = |peer: &PeerConfig| own * (1 + u64::from(peer.next_key.is_some()));
    config.peers.iter().map(|peer| pairs(peer) * rendezvous_endpoints(peer) + 1).sum()
}

/// For how many rendezvous endpoints the daemon prepares one socket: twice what the configuration takes, so that it may
/// grow with a reload, and as many as 1,800 peers take in any case.
pub fn shared_endpoints(config: &TunnelConfig) -> u32 {
    u32::try_from(2 * all_rendezvous_endpoints(config)).unwrap_or(u32::MAX).clamp(1 << 14, 1 << 30)
}

/// Whether the endpoints that are always open can be, `shared` of which on one socket, and those of some session; warns
/// where not all peers can have sessions at once.
pub(crate) fn check(config: &TunnelConfig, shared: u32) -> Result<(), Error> {
    const REMEDY: &str = "raise the limit on open files (ulimit -n, LimitNOFILE= of the service), rotate more slowly, \
                          or use fewer lanes";
    let files = process::raise_open_files()?;
    let (least, most) = open_files(config, shared.into());
    if least > files {
        return Err(Error::Limit(format!(
            "this configuration needs at least {least} open files, {files} are allowed: {REMEDY}"
        )));
    }
    if most > files {
        let part = 100 * (files - least) / (most - least);
        warn!(
            "{files} open files are allowed, enough for sessions with {part} % of the peers at once: {REMEDY}"
        );
    }
    Ok(())
}

/// Files that the daemon may have open at once: at the least, with a session with one peer, the most expensive one; and
/// at most, with all peers in a session that seems dead, so that they look for a new one. Of the rendezvous endpoints,
/// `shared` have but one socket.
pub fn open_files(config: &TunnelConfig, shared: u64) -> (u64, u64) {
    let sessions = || config.peers.iter().map(|peer| 2 * session_endpoints(peer));
    let others = OTHER_FILES + FILES_OF_THREAD * config.tunnel.packet_threads() as u64;
    let always = all_rendezvous_endpoints(config).saturating_sub(shared) + others;
    (always + sessions().max().unwrap_or(0), always + sessions().sum::<u64>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mt6d::births::{Births, Life};

    use super::*;

    fn config(rotation: &str, lanes: u8) -> TunnelConfig {
        let text = format!(
            "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
             hop_prefix = \"2001:db8:a1::/64\"\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
             allowed_ips = [\"2001:db8:b::/64\"]\nrotation = \"{rotation}\"\nlanes = {lanes}\n"
        );
        let no_file = |_: &Path| Err(config::KeyFileError::Missing);
        config::parse(&text, Path::new("a.toml"), &no_file).unwrap().tunnel.unwrap()
    }

    /// Counted over schedules as the protocol draws them.
    #[test]
    fn no_schedule_opens_more_endpoints_than_counted() {
        for (rotation, interval) in [("1s", 1000u64), ("10s", 10_000), ("1h", 3_600_000)] {
            for lanes in [1, 3, 16] {
                let bound = session_endpoints(&config(rotation, lanes).peers[0]);
                let (mut births, mut lives) = (Births::new([5; 32], interval, lanes), Vec::new());
                let mut most = 0;
                for _ in 0..20_000 {
                    let now = births.next_birth().saturating_sub(1_000);
                    lives.push(births.draw());
                    lives.retain(|life: &Life| life.death + 3_000 > now);
                    most = most.max(lives.len() as u64);
                }
                assert!(most <= bound && bound <= 2 * most, "{rotation}, {lanes} lanes: {most} of {bound}");
            }
        }
    }

    #[test]
    fn lanes_add_endpoints() {
        let [one, sixteen] = [1, 16].map(|lanes| session_endpoints(&config("1s", lanes).peers[0]));
        assert!(sixteen > 5 * one, "{one} {sixteen}");
        assert!(open_files(&config("1s", 16), 0).1 > sixteen + OTHER_FILES);
    }
}
