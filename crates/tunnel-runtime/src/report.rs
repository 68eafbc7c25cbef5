//! The protocol's status as the document of `sidestep show --json`.

use std::collections::BTreeMap;
use std::path::Path;

use classic::hashed::HashedHost;
use ipnet::Ipv6Net;
use mt6d::config::NOWHERE;
use mt6d::{Drops, LaneStatus, Node, Now, PeerState, PeerStatus, ShapeStatus, Time};

use super::classic::{ClassicStatus, Traffic};
use super::evidence::Evidence;
use super::happened;
use super::wrap::Wrapped;
use config::{ClassicPeer, TunnelConfig};
use control::tunnel_status::{
    Carry, Endpoint, Fault, Masked, Peer, Profile, Session, Shape, State, Status, Trying,
};

/// The daemon as it is now, without its peers.
pub(super) fn node(
    file: &Path,
    config: &TunnelConfig,
    node: &Node,
    now: Now,
    started: Time,
    rules_restored: u64,
) -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        file: std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string(),
        file_digest: config.digest.clone(),
        tunnel: config.tunnel.name.clone(),
        network_namespace: control::network_namespace().unwrap_or_default(),
        public_key: config.node.private_key.public().to_string(),
        previous_public_key: config.node.previous_key.as_ref().map(|key| key.public().to_string()),
        external: config.node.external.clone(),
        hop_prefix: node.hop_prefix(),
        waits_for: waits_for(config, node),
        uptime_s: now.boot.since(started).as_secs(),
        drops: drops(&node.drops()),
        rules_restored,
        dark: None,
        keylog: false,
        standby: None,
        peers: Vec::new(),
    }
}

fn waits_for(config: &TunnelConfig, node: &Node) -> Option<String> {
    let follows = config.node.follows.as_ref().filter(|_| node.hop_prefix() == NOWHERE)?;
    Some(follows.uplink.clone())
}

/// Adds whether the kernel keeps the hopping prefix dark, where there is one; and what it dropped since its source is behind
/// the tunnel, and it came from elsewhere.
pub(super) fn add_kernel(status: &mut Status, config: &TunnelConfig, dark: bool) {
    let hops = !config.is_classic() && status.hop_prefix != NOWHERE;
    status.dark = hops.then_some(dark);
    let packets = linux::nft::inner_drops(&status.tunnel) + linux::outside::arrived(&status.tunnel);
    if packets > 0 {
        status.drops.insert("outside_tunnel".to_owned(), packets);
    }
}

/// One of its peers.
pub(super) fn peer(status: PeerStatus, evidence: &Evidence, wrapped: &Wrapped) -> Peer {
    let end = |pick: fn(&LaneStatus) -> std::net::SocketAddrV6| {
        let endpoint =
            |l: &LaneStatus| Endpoint { lane: l.lane.0, address: *pick(l).ip(), port: pick(l).port() };
        status.lanes.iter().map(endpoint).collect()
    };
    Peer {
        profile: Profile::MovingTarget,
        public_key: status.public_key.to_string(),
        hop_prefix: status.hop_prefix,
        state: match status.state {
            PeerState::Idle => State::Idle,
            PeerState::Handshake => State::Handshake,
            PeerState::Established => State::Established,
            PeerState::Silent(_) => State::Silent,
        },
        state_s: status.state_for.as_secs_f64(),
        last_heard_s: status.last_heard.map(|heard| heard.as_secs_f64()),
        last_answered_s: status.last_answered.map(|answered| answered.as_secs_f64()),
        fault: fault(&status, evidence),
        trying: status.attempts.map(|attempts| Trying {
            since_s: attempts.since.as_secs_f64(),
            tries: attempts.tries,
            to: attempts.to.map(|to| *to.ip()),
        }),
        session: status.session.map(|s| Session {
            own_key: s.keys.own.to_string(),
            peer_key: s.keys.peer.to_string(),
            age_s: s.age.as_secs(),
            rekeys: s.rekeys,
            cipher: s.cipher.to_owned(),
        }),
        epoch: status.lanes.iter().map(|l| l.lane.0).max(),
        rotations: status.rotations,
        skips: status.skips,
        local: end(|l| l.local),
        remote: end(|l| l.remote),
        next_rotation_ms: status.next_rotation.map(|d| d.as_millis() as u64),
        tx_packets: status.tx_packets,
        tx_bytes: status.tx_bytes,
        rx_packets: status.rx_packets,
        rx_bytes: status.rx_bytes,
        carry: match (status.rewrites, status.masked) {
            (true, _) => Carry::Rewrite,
            (false, Some(_)) => Carry::Mask,
            (false, None) => Carry::Encapsulate,
        },
        masked: status.masked.map(|flow| Masked { local: flow.local, remote: flow.remote }),
        wrapped: wrapped.status(&status.name),
        tx_rewritten_packets: status.rewritten.tx_packets,
        tx_rewritten_bytes: status.rewritten.tx_bytes,
        rx_rewritten_packets: status.rewritten.rx_packets,
        rx_rewritten_bytes: status.rewritten.rx_bytes,
        shape: status.shape.map(shape),
        drops: drops(&status.drops),
        rtt_ms: status.rtt.map(|d| d.as_micros() as f64 / 1000.0),
        clock_offset_ms: status.clock_offset_ms,
        path_mtu: status.path_mtu.unwrap_or(0),
        path_mtu_settled: status.path_mtu_settled,
        handshakes: status.handshakes,
        allowed_ips: status.allowed_ips,
        name: status.name,
    }
}

/// What is known to be wrong with a peer.
fn fault(status: &PeerStatus, evidence: &Evidence) -> Option<Fault> {
    match status.state {
        PeerState::Idle | PeerState::Established => None,
        PeerState::Handshake => evidence.fault(&status.name),
        PeerState::Silent(silence) => Some(evidence.fault(&status.name).unwrap_or_else(|| Fault {
            code: happened::code(silence).to_owned(),
            says: happened::says(silence).to_owned(),
        })),
    }
}

/// What was dropped of peers of the classic profile; it is not known of whose.
pub(super) fn add_classic_drops(status: &mut Status, drops: &classic::Drops) {
    for (reason, count) in drops.nonzero() {
        *status.drops.entry(reason.name().to_owned()).or_default() += count;
    }
}

/// A peer of the classic profile.
pub(super) fn classic_peer(peer: &ClassicPeer, status: Option<&ClassicStatus>) -> Peer {
    let path = status.and_then(|s| s.stream.path.as_ref());
    let traffic = status.map(|s| s.traffic).unwrap_or_default();
    let rewrites = peer.stream.carry == classic::profile::Carry::Rewrite;
    let rewritten = if rewrites { traffic } else { Traffic::default() };
    let end = |host: &HashedHost| vec![Endpoint { lane: 0, address: host.address, port: host.port }];
    Peer {
        name: peer.name.clone(),
        profile: Profile::Classic,
        public_key: String::new(),
        hop_prefix: Ipv6Net::new_assert(peer.stream.remote.address, 64).trunc(),
        allowed_ips: Vec::new(),
        state: if path.is_some() { State::Established } else { State::Idle },
        state_s: 0.0,
        last_heard_s: None,
        last_answered_s: None,
        fault: None,
        trying: None,
        session: None,
        epoch: status.map(|s| s.salt),
        rotations: status.map_or(0, |s| s.rotations),
        skips: 0,
        local: path.map_or_else(Vec::new, |(local, _)| end(local)),
        remote: path.map_or_else(Vec::new, |(_, remote)| end(remote)),
        next_rotation_ms: None,
        tx_packets: traffic.tx_packets,
        tx_bytes: traffic.tx_bytes,
        rx_packets: traffic.rx_packets,
        rx_bytes: traffic.rx_bytes,
        carry: if rewrites { Carry::Rewrite } else { Carry::Encapsulate },
        masked: None,
        wrapped: None,
        tx_rewritten_packets: rewritten.tx_packets,
        tx_rewritten_bytes: rewritten.tx_bytes,
        rx_rewritten_packets: rewritten.rx_packets,
        rx_rewritten_bytes: rewritten.rx_bytes,
        shape: None,
        drops: BTreeMap::new(),
        rtt_ms: None,
        clock_offset_ms: None,
        path_mtu: status.map_or(0, |s| s.stream.outer_mtu),
        path_mtu_settled: true,
        handshakes: status.map_or(0, |s| s.stream.keys_adopted),
    }
}

fn shape(status: ShapeStatus) -> Shape {
    let ms = |delay: std::time::Duration| delay.as_micros() as f64 / 1000.0;
    let (kind, rate_bits) = match status.shape {
        mt6d::config::Shape::None => ("none", None),
        mt6d::config::Shape::Adaptive(_) => ("adaptive", None),
        mt6d::config::Shape::Constant(rate) => ("constant", Some(rate.bits())),
    };
    Shape {
        kind: kind.to_owned(),
        rate_bits,
        budget_left: status.budget,
        tx_datagrams: status.datagrams,
        tx_padding: status.padding,
        waiting: status.waiting as u64,
        delay_median_ms: status.delay.map(|delay| ms(delay.median)),
        delay_p99_ms: status.delay.map(|delay| ms(delay.p99)),
        late_median_ms: status.late.map(|late| ms(late.median)),
        late_p99_ms: status.late.map(|late| ms(late.p99)),
        put_off: status.put_off,
    }
}

fn drops(drops: &Drops) -> BTreeMap<String, u64> {
    drops.nonzero().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}
