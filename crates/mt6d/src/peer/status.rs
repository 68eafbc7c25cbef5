//! What there is to know about a peer: for the user, and to remember.

use std::net::SocketAddrV6;
use std::time::Duration;

use super::Peer;
use crate::contact::AttemptStatus;
use crate::drops::Drops;
use crate::event::PeerState;
use crate::id::LaneId;
use crate::keys::{PublicKey, PublicPair};
use crate::mask::Flow;
use crate::session::{Session, ShapeStatus, Traffic};
use crate::time::Now;

/// A session, as the status shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionStatus {
    /// The keys of both ends that it was made with: more than one pair may be good for a while.
    pub keys: PublicPair,
    /// Since its handshake.
    pub age: Duration,
    /// How often its keys were renewed.
    pub rekeys: u64,
    /// The name of its cipher.
    pub cipher: &'static str,
}

/// A lane in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneStatus {
    /// The lane's number.
    pub lane: LaneId,
    /// Ours.
    pub local: SocketAddrV6,
    /// The peer's.
    pub remote: SocketAddrV6,
}

/// A peer, as the status shows it.
#[derive(Debug, Clone)]
pub struct PeerStatus {
    /// The configured name.
    pub name: String,
    /// The peer's identity, as configured.
    pub public_key: PublicKey,
    /// Whether there is a session.
    pub state: PeerState,
    /// For how long that has been so.
    pub state_for: Duration,
    /// When something that was the peer's for certain came last, in this run.
    pub last_heard: Option<Duration>,
    /// When it last answered a question in the session in use: until then both directions worked.
    pub last_answered: Option<Duration>,
    /// What leads to a session, if there is none or it is silent.
    pub attempts: Option<AttemptStatus>,
    /// The session in use.
    pub session: Option<SessionStatus>,
    /// Its lanes.
    pub lanes: Vec<LaneStatus>,
    /// Until a lane is born or dies.
    pub next_rotation: Option<Duration>,
    /// Lanes of all sessions that were born, but for those that these began with.
    pub rotations: u64,
    /// Lanes that were left out because our endpoint could not be opened.
    pub skips: u64,
    /// Inner packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Inner packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Whether packets of pairs of hosts travel as they are but for their addresses.
    pub rewrites: bool,
    /// The other tunnel's flow, where its packets travel with a mask.
    pub masked: Option<Flow>,
    /// What travelled so, of the packets above.
    pub rewritten: Traffic,
    /// What was dropped, by reason.
    pub drops: Drops,
    /// Round-trip time to the peer.
    pub rtt: Option<Duration>,
    /// How far the peer's clock is ahead of ours, in milliseconds, as far as it was heard in this run; 0 where the difference
    /// may as well come from the time that its message took.
    pub clock_offset_ms: Option<i64>,
    /// The largest outer packet that is known to arrive, in bytes.
    pub path_mtu: Option<u16>,
    /// Whether a search for it has come to an end: until then it is a cautious guess.
    pub path_mtu_settled: bool,
    /// What the shape does, if the session has one.
    pub shape: Option<ShapeStatus>,
    /// Handshakes that led to a session.
    pub handshakes: u64,
    /// The prefix that the peer hops in, as far as we know.
    pub hop_prefix: ipnet::Ipv6Net,
    /// What is behind it, as configured.
    pub allowed_ips: Vec<ipnet::IpNet>,
}

impl Peer {
    /// The peer as it is.
    pub(crate) fn status(&self, now: Now) -> PeerStatus {
        let session = self.in_use().map(|at| &self.sessions[at]);
        let (mut traffic, mut drops) = (self.past, self.drops.clone());
        let (mut rotations, mut skips) = self.past_rotations;
        let mut rewritten = self.past_rewritten;
        for session in &self.sessions {
            traffic.add(session.activity.traffic());
            rewritten.add(session.activity.rewritten());
            drops.add(&session.activity.drops.get());
            let (more, skipped) = session.rotations();
            (rotations, skips) = (rotations + more, skips + skipped);
        }
        PeerStatus {
            name: self.config.name.clone(),
            public_key: self.config.public_key,
            state: self.state(now.boot),
            state_for: self.state_for(now.boot),
            last_heard: self.last_heard().map(|at| now.boot.since(at)),
            last_answered: session.and_then(Session::last_answered).map(|at| now.boot.since(at)),
            attempts: self.attempts.status(now.boot),
            session: session.zip(session.and_then(|s| self.pairing(s.pairing))).map(|(s, p)| SessionStatus {
                keys: p.public,
                age: now.boot.since(s.begun),
                rekeys: s.rekeys,
                cipher: s.terms.cipher.name(),
            }),
            lanes: session.map_or_else(Vec::new, |s| {
                let lane = |(lane, local, remote)| LaneStatus { lane, local, remote };
                s.endpoints(now.boot).map(lane).collect()
            }),
            next_rotation: session.map(|s| s.next_rotation(now.boot)),
            rotations,
            skips,
            tx_packets: traffic.tx_packets,
            tx_bytes: traffic.tx_bytes,
            rx_packets: traffic.rx_packets,
            rx_bytes: traffic.rx_bytes,
            rewrites: session.is_some_and(|s| s.terms.rewrite),
            masked: self.masked(),
            rewritten,
            drops,
            rtt: session.and_then(|s| s.round_trip.measured()),
            clock_offset_ms: self.shown_clock_offset(now),
            path_mtu: session.map(|s| s.path_mtu.get()),
            path_mtu_settled: session.is_some_and(|s| s.path_mtu.settled()),
            shape: session.and_then(|s| s.shape_status(now.boot)),
            handshakes: self.handshakes,
            hop_prefix: self.remote_prefix,
            allowed_ips: self.config.allowed_ips.clone(),
        }
    }

    /// The other tunnel whose packets are masked in the session in use, if they are.
    pub(crate) fn masked(&self) -> Option<Flow> {
        self.in_use().and_then(|at| self.sessions[at].terms.mask)
    }

    /// How far it is ahead for certain.
    fn shown_clock_offset(&self, now: Now) -> Option<i64> {
        let clock = self.clock?;
        let least = clock.ahead_ms.saturating_sub(own_ms(now));
        let most = least.saturating_add_unsigned(clock.delay_ms);
        Some(if least > 0 { least } else { most.min(0) })
    }

    /// How far the peer's clock is ahead of ours, in milliseconds: as it told in this run, otherwise in an earlier one.
    pub(super) fn clock_offset(&self, now: Now) -> Option<i64> {
        let learned = self.clock.map(|clock| clock.ahead_ms.saturating_sub(own_ms(now)));
        learned.or(self.clock_before)
    }
}

/// Our CLOCK_REALTIME minus our CLOCK_BOOTTIME, in milliseconds.
fn own_ms(now: Now) -> i64 {
    i64::try_from(now.unix_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(now.boot.micros() / 1000)
}
