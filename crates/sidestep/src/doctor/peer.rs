//! A peer, by what the daemon knows of it.

use control::tunnel_status::{Peer, Profile, State, Status};

use super::finding::Finding;

/// The smallest path MTU that there is, in bytes: one of which somebody had better know why.
const SMALLEST_MTU: u16 = 1280;
/// A clock that is wrong by more is one that is not set.
const CLOCK_MS: u64 = 60_000;

/// Whether a fault says no more than that it does not work.
pub(super) fn is_vague(code: &str) -> bool {
    ["no_answer", "nothing_comes", "nothing_arrives"].contains(&code)
}

/// Whether it is reached, and if not, why.
pub(super) fn look_at_state(peer: &Peer, findings: &mut Vec<Finding>) {
    let mut find = |finding: Finding| findings.push(finding.of(&peer.name));
    if peer.profile == Profile::Classic {
        let says = "of the classic profile, which has no sessions: nothing is known of whether it is there";
        return find(Finding::ok("classic", says));
    }
    match (peer.state, &peer.fault) {
        (State::Established, _) => {
            let round_trip = peer.rtt_ms.map_or(String::new(), |ms| format!(", round trip {ms:.1} ms"));
            let heard = peer.last_heard_s.map_or(String::new(), |s| format!(", heard {s:.1} s ago"));
            find(Finding::ok("established", format!("session established{heard}{round_trip}")));
        }
        (_, Some(fault)) => find(Finding::fault(&fault.code, &fault.says)),
        (State::Idle, None) => find(Finding::warning(
            "idle",
            "no session, and no reason to have one: send something, or set `keepalive`",
        )),
        (State::Handshake | State::Silent, None) => {
            find(Finding::fault(
                "no_answer",
                format!("no session yet, and nothing comes back from {}", peer.hop_prefix),
            ));
        }
    }
}

/// What else is wrong with it.
pub(super) fn look(peer: &Peer, status: &Status, findings: &mut Vec<Finding>) {
    if peer.profile == Profile::Classic {
        return;
    }
    let mut find = |finding: Finding| findings.push(finding.of(&peer.name));
    if let Some(offset) = peer.clock_offset_ms.filter(|offset| offset.unsigned_abs() > CLOCK_MS) {
        let (seconds, ahead) = (offset.unsigned_abs() / 1000, if offset > 0 { "ahead of" } else { "behind" });
        let says = format!(
            "its clock is {seconds} s {ahead} this machine's: more than an hour keeps the two apart (timedatectl, at both)"
        );
        find(Finding::warning("clock", says));
    }
    let dropped = |reason: &str| peer.drops.get(reason).copied().unwrap_or(0);
    let count = dropped("source_not_allowed");
    if count > 0 {
        let says = format!(
            "{count} of its packets came from addresses that are not in its allowed_ips here: add their network, or fix the source at the peer ([tunnel] addresses)"
        );
        find(Finding::fault("source_not_allowed", says));
    }
    let count = dropped("destination_not_allowed");
    if count > 0 {
        find(Finding::warning(
            "destination_not_allowed",
            format!(
                "{count} of its packets were for link-local, multicast or hopping addresses: fix the route at the peer"
            ),
        ));
    }
    if peer.state == State::Established && peer.path_mtu_settled && peer.path_mtu <= SMALLEST_MTU {
        let says = format!(
            "the path carries no more than {} bytes: a link on it is narrow, or drops what is larger",
            peer.path_mtu
        );
        find(Finding::warning("path_mtu", says));
    }
    if peer.skips > 0 && peer.skips * 20 > peer.rotations {
        let says = format!(
            "{} lanes were left out since the start because their endpoint could not be opened: a program listens on all addresses (ss -lunp), or the interface was down",
            peer.skips
        );
        find(Finding::warning("ports_taken", says));
    }
    if dropped("handshake_limit") > 0 || peer.handshakes > 20 && peer.handshakes * 60 > status.uptime_s {
        let says = format!(
            "{} sessions in {} s: two machines run with the peer's key, or one is restarted again and again",
            peer.handshakes, status.uptime_s
        );
        find(Finding::warning("sessions", says));
    }
}
