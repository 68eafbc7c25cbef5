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

/// Endpoints of a session that are open at once, at most: what the daemon needs sockets for.
///
/// An endpoint is open from T before its epoch, 1 s to 10 s, to 3 s behind it, and two epochs of a lane begin at least
/// T/2 apart (docs/protocol.md, "Endpoints"). A round trip above 1 s adds to it.
pub fn session_endpoints(peer: &PeerConfig) -> u64 {
    let interval = peer.rotation.as_millis().max(1);
    let open = interval.clamp(1000, 10_000) + 3000;
    let per_lane = starts_within(open, interval) + 1;
    u64::try_from(per_lane).unwrap_or(u64::MAX).saturating_mul(peer.lanes.into())
}

/// Rendezvous endpoints that are open at once for a peer without a session, at most.
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
    config.peers.iter().map(|peer| rendezvous_endpoints(peer) + 1).sum()
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

    /// Counted by brute force over schedules as the protocol draws them, with every jitter at its extremes.
    #[test]
    fn no_schedule_opens_more_endpoints_than_counted() {
        for (rotation, interval) in [("1s", 1000i64), ("1500ms", 1500), ("10s", 10_000), ("1h", 3_600_000)] {
            let bound = session_endpoints(&config(rotation, 1).peers[0]);
            let mut most = 0;
            for pattern in 0u32..1 << 10 {
                let start = |e: i64| e * interval + if pattern >> e & 1 == 1 { interval / 2 - 1 } else { 0 };
                for now in (0..9).map(start) {
                    let open = |e: &i64| {
                        start(*e) - interval.clamp(1000, 10_000) <= now && now < start(e + 1) + 3000
                    };
                    most = most.max((0..9).filter(open).count() as u64);
                }
            }
            assert!(most <= bound && bound <= most + 1, "{rotation}: {most} {bound}");
        }
    }

    #[test]
    fn lanes_multiply_endpoints() {
        let one = session_endpoints(&config("1s", 1).peers[0]);
        assert_eq!(session_endpoints(&config("1s", 16).peers[0]), 16 * one);
        assert!(open_files(&config("1s", 16), 0).1 > 16 * one + OTHER_FILES);
    }
}
