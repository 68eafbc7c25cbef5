//! A moving-target tunnel.

use control::tunnel_status::{Carry, Peer, Profile, Shape, State, Status};

use crate::catalogue::*;
use crate::page::{Label, Page};

const STATES: [(State, &str); 4] = [
    (State::Idle, "idle"),
    (State::Handshake, "handshake"),
    (State::Established, "established"),
    (State::Silent, "silent"),
];

/// `at` is when it was asked, in seconds of Unix time.
pub(crate) fn tunnel(page: &mut Page, status: &Status, at: f64) {
    let tunnel = Label::from(status.tunnel.as_str());
    page.add(&TUNNEL_RULES_RESTORED, &[&tunnel], status.rules_restored);
    if let Some(dark) = status.dark {
        page.add(&TUNNEL_DARK, &[&tunnel], u64::from(dark));
    }
    if let Some(standby) = &status.standby {
        page.add(&TUNNEL_ACTIVE, &[&tunnel], u64::from(standby.turn.is_some()));
    }
    page.add(&TUNNEL_PEERS, &[&tunnel], status.peers.len());
    for (reason, count) in &status.drops {
        page.add(&TUNNEL_DROPPED, &[&tunnel, &Label::from(reason.as_str())], *count);
    }
    let states = STATES.map(|(state, name)| (state, Label::from(name)));
    for peer in &status.peers {
        let name = Label::from(peer.name.as_str());
        add_peer(page, &[&tunnel, &name], peer, &states, at);
    }
}

fn add_peer(page: &mut Page, whose: &[&Label; 2], peer: &Peer, states: &[(State, Label)], at: f64) {
    let [tunnel, name] = *whose;
    let profile = match peer.profile {
        Profile::MovingTarget => "moving-target",
        Profile::Classic => "classic",
    };
    let carry = match peer.carry {
        Carry::Encapsulate => "encapsulate",
        Carry::Rewrite => "rewrite",
        Carry::Mask => "mask",
    };
    let shape = peer.shape.as_ref().map_or("none", |shape| &*shape.kind);
    let [profile, carry, shape] = [profile, carry, shape].map(Label::from);
    page.add(&PEER, &[tunnel, name, &profile, &carry, &shape], true);
    for (state, state_name) in states {
        page.add(&PEER_STATE, &[tunnel, name, state_name], peer.state == *state);
    }
    page.add(&PEER_STATE_SINCE, whose, at - peer.state_s);
    for (metric, seconds_ago) in [
        (&PEER_HEARD, peer.last_heard_s),
        (&PEER_ANSWERED, peer.last_answered_s),
        (&SESSION_START, peer.session.as_ref().map(|session| session.age_s as f64)),
    ] {
        if let Some(seconds_ago) = seconds_ago {
            page.add(metric, whose, at - seconds_ago);
        }
    }
    if let Some(fault) = &peer.fault {
        page.add(&PEER_FAULT, &[tunnel, name, &Label::from(fault.code.as_str())], true);
    }
    page.add(&PEER_TRIES, whose, u64::from(peer.trying.as_ref().map_or(0, |trying| trying.tries)));
    page.add(&SESSION_REKEYS, whose, peer.session.as_ref().map_or(0, |session| session.rekeys));
    page.add(&PEER_LANES, whose, peer.local.len());
    for (metric, count) in [
        (&PEER_HANDSHAKES, peer.handshakes),
        (&PEER_ROTATIONS, peer.rotations),
        (&PEER_SKIPS, peer.skips),
        (&PEER_SENT_PACKETS, peer.tx_packets),
        (&PEER_SENT, peer.tx_bytes),
        (&PEER_RECEIVED_PACKETS, peer.rx_packets),
        (&PEER_RECEIVED, peer.rx_bytes),
    ] {
        page.add(metric, whose, count);
    }
    if peer.carry != Carry::Encapsulate {
        for (metric, count) in [
            (&PEER_SENT_REWRITTEN_PACKETS, peer.tx_rewritten_packets),
            (&PEER_SENT_REWRITTEN, peer.tx_rewritten_bytes),
            (&PEER_RECEIVED_REWRITTEN_PACKETS, peer.rx_rewritten_packets),
            (&PEER_RECEIVED_REWRITTEN, peer.rx_rewritten_bytes),
        ] {
            page.add(metric, whose, count);
        }
    }
    for (reason, count) in &peer.drops {
        page.add(&PEER_DROPPED, &[tunnel, name, &Label::from(reason.as_str())], *count);
    }
    if let Some(milliseconds) = peer.rtt_ms {
        page.add(&PEER_ROUND_TRIP, whose, milliseconds / 1e3);
    }
    if let Some(milliseconds) = peer.clock_offset_ms {
        page.add(&PEER_CLOCK_OFFSET, whose, milliseconds as f64 / 1e3);
    }
    page.add(&PEER_PATH_MTU, whose, u64::from(peer.path_mtu));
    page.add(&PEER_PATH_MTU_SETTLED, whose, peer.path_mtu_settled);
    if let Some(shape) = &peer.shape {
        add_shape(page, whose, shape);
    }
}

fn add_shape(page: &mut Page, whose: &[&Label; 2], shape: &Shape) {
    let [tunnel, name] = *whose;
    if let Some(bits) = shape.rate_bits {
        page.add(&SHAPE_RATE, whose, bits as f64 / 8.0);
    }
    if let Some(bytes) = shape.budget_left {
        page.add(&SHAPE_BUDGET, whose, bytes);
    }
    page.add(&SHAPE_DATAGRAMS, whose, shape.tx_datagrams);
    page.add(&SHAPE_PADDING, whose, shape.tx_padding);
    page.add(&SHAPE_WAITING, whose, shape.waiting);
    page.add(&SHAPE_PUT_OFF, whose, shape.put_off);
    for (metric, percentile, milliseconds) in [
        (&SHAPE_DELAY, "50", shape.delay_median_ms),
        (&SHAPE_DELAY, "99", shape.delay_p99_ms),
        (&SHAPE_LATENESS, "50", shape.late_median_ms),
        (&SHAPE_LATENESS, "99", shape.late_p99_ms),
    ] {
        if let Some(milliseconds) = milliseconds {
            page.add(metric, &[tunnel, name, &Label::from(percentile)], milliseconds / 1e3);
        }
    }
}
