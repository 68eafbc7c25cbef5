//! The status as text, in the manner of `wg show`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use control::tunnel_status::{Carry, Endpoint, Peer, Profile, Shape, State, Status};

use super::standby;

/// Bytes that WireGuard adds to a packet over IPv6.
const WIREGUARD: u16 = 40 + 8 + 32;

/// The status as text for a terminal.
pub(crate) fn describe(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_status(&mut text, status);
    text
}

/// A peer of a tunnel with this public key.
pub(crate) fn peer(peer: &Peer, own_key: &str) -> String {
    let mut text = String::new();
    let _ = write_peer(&mut text, peer, own_key);
    text
}

fn write_status(text: &mut String, status: &Status) -> fmt::Result {
    writeln!(text, "tunnel: {}", status.tunnel)?;
    writeln!(text, "  public key: {}", status.public_key)?;
    if let Some(standby) = &status.standby {
        writeln!(text, "  of two gateways: {}", standby::describe(standby))?;
    }
    match &status.waits_for {
        Some(uplink) => writeln!(text, "  hopping prefix: none yet, waits for one of uplink {uplink}")?,
        None if stands_by(status) => writeln!(text, "  hopping prefix: none, until it is its turn")?,
        None => writeln!(text, "  hopping prefix: {} on {}", status.hop_prefix, status.external)?,
    }
    writeln!(text, "  running for: {}, version {}", duration(status.uptime_s), status.version)?;
    write_drops(text, &status.drops)?;
    if status.keylog {
        writeln!(text, "  KEYS ARE LOGGED (up --keylog): whoever has the file reads the recorded traffic")?;
    }
    for peer in &status.peers {
        write_peer(text, peer, &status.public_key)?;
    }
    Ok(())
}

/// Whether the other gateway of its site is the one that is met, or none is.
pub(crate) fn stands_by(status: &Status) -> bool {
    status.standby.as_ref().is_some_and(|standby| standby.turn.is_none())
}

fn write_peer(text: &mut String, peer: &Peer, own_key: &str) -> fmt::Result {
    writeln!(text, "\npeer: {}", peer.name)?;
    match peer.profile {
        Profile::MovingTarget => writeln!(text, "  public key: {}", peer.public_key)?,
        Profile::Classic => writeln!(text, "  profile: classic, nothing is authenticated")?,
    }
    writeln!(text, "  hopping prefix: {}", peer.hop_prefix)?;
    write!(text, "  session: {}", state(peer.state))?;
    if let Some(session) = &peer.session {
        write!(
            text,
            " for {}, {}, keys changed {}",
            duration(session.age_s),
            session.cipher,
            times(session.rekeys)
        )?;
    }
    writeln!(text)?;
    if let Some(session) = &peer.session {
        // A daemon from before says nothing of them.
        if ![own_key, ""].contains(&session.own_key.as_str()) {
            writeln!(text, "  with our previous key: {}", session.own_key)?;
        }
        if ![peer.public_key.as_str(), ""].contains(&session.peer_key.as_str()) {
            writeln!(text, "  with its next key: {}", session.peer_key)?;
        }
    }
    if let Some(fault) = &peer.fault {
        writeln!(text, "  fault: {} ({})", fault.says, fault.code)?;
    }
    if let Some(heard) = peer.last_heard_s {
        writeln!(text, "  last heard: {} ago", milliseconds(heard * 1000.0))?;
    }
    if let Some(trying) = &peer.trying {
        let to = trying.to.map_or(String::new(), |to| format!(", the last to {to}"));
        writeln!(text, "  tries: {} in {}{to}", trying.tries, duration(trying.since_s as u64))?;
    }
    for local in &peer.local {
        let remote = peer.remote.iter().find(|remote| remote.lane == local.lane);
        let remote = remote.map_or("?".to_owned(), endpoint);
        writeln!(text, "  lane {}: {} <-> {remote}", local.lane, endpoint(local))?;
    }
    if peer.profile == Profile::Classic {
        writeln!(text, "  rotations: {}, keys changed {}", peer.rotations, times(peer.handshakes))?;
    }
    if let Some(next) = peer.next_rotation_ms {
        write!(text, "  rotations: {}, next in {}", peer.rotations, milliseconds(next as f64))?;
        if peer.skips > 0 {
            write!(text, ", {} skipped", peer.skips)?;
        }
        writeln!(text)?;
    }
    if let Some(rtt) = peer.rtt_ms {
        write!(text, "  path: round trip {}, MTU {}", milliseconds(rtt), peer.path_mtu)?;
        if let Some(offset) = peer.clock_offset_ms.filter(|offset| *offset != 0) {
            write!(text, ", clock off by {}", milliseconds(offset as f64))?;
        }
        writeln!(text)?;
    }
    if peer.tx_packets + peer.rx_packets > 0 {
        let (received, sent) = (bytes(peer.rx_bytes as f64), bytes(peer.tx_bytes as f64));
        let (rx_packets, tx_packets) = (peer.rx_packets, peer.tx_packets);
        writeln!(
            text,
            "  transfer: {received} received ({rx_packets} packets), {sent} sent ({tx_packets} packets)"
        )?;
    }
    if let Some(masked) = &peer.masked {
        // The path's MTU less what WireGuard adds over IPv6: then nothing of it is too large for a mask.
        let mtu = peer.path_mtu.saturating_sub(WIREGUARD);
        writeln!(
            text,
            "  carry: masks the packets of {} to {}; WireGuard's MTU: {mtu} at most",
            masked.local, masked.remote
        )?;
    }
    if peer.carry == Carry::Rewrite {
        writeln!(text, "  carry: addresses are replaced, nothing is encrypted or authenticated")?;
    }
    if peer.carry != Carry::Encapsulate {
        let what = if peer.carry == Carry::Rewrite { "rewritten" } else { "masked" };
        let (received, sent) = (bytes(peer.rx_rewritten_bytes as f64), bytes(peer.tx_rewritten_bytes as f64));
        let (rx_packets, tx_packets) = (peer.rx_rewritten_packets, peer.tx_rewritten_packets);
        writeln!(
            text,
            "    {what}: {received} received ({rx_packets} packets), {sent} sent ({tx_packets} packets)"
        )?;
    }
    if let Some(shape) = &peer.shape {
        writeln!(text, "  shape: {}", self::shape(shape))?;
    }
    writeln!(text, "  handshakes: {}", peer.handshakes)?;
    write_drops(text, &peer.drops)
}

/// What a shape does, and what it costs.
fn shape(shape: &Shape) -> String {
    let share = shape.tx_padding as f64 * 100.0 / shape.tx_datagrams.max(1) as f64;
    let mut text = shape.kind.clone();
    if let Some(bits) = shape.rate_bits {
        text += &format!(" {}", rate(bits as f64));
    }
    text += &format!(", {share:.0} % padding");
    if let Some(left) = shape.budget_left {
        text += &format!(", {} left of its budget", bytes(left as f64));
    }
    if let (Some(median), Some(p99)) = (shape.delay_median_ms, shape.delay_p99_ms) {
        text += &format!(", delay {} (p99 {})", milliseconds(median), milliseconds(p99));
    }
    if let (Some(median), Some(p99)) = (shape.late_median_ms, shape.late_p99_ms) {
        text += &format!(", late {} (p99 {})", milliseconds(median), milliseconds(p99));
    }
    text
}

fn write_drops(text: &mut String, counts: &BTreeMap<String, u64>) -> fmt::Result {
    let counts = drops(counts);
    if counts.is_empty() { Ok(()) } else { writeln!(text, "  dropped: {counts}") }
}

/// Counts of dropped packets by reason, without those that are zero.
pub(super) fn drops(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().filter(|(_, count)| **count > 0);
    counts.map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Handshake => "in handshake",
        State::Established => "established",
        State::Silent => "silent",
    }
}

fn endpoint(endpoint: &Endpoint) -> String {
    format!("[{}]:{}", endpoint.address, endpoint.port)
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Seconds as `1 d 2 h`, `3 h 4 min`, `5 min 6 s`, `7 s`.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Milliseconds as `1.25 ms` or `4.2 s`.
pub(crate) fn milliseconds(ms: f64) -> String {
    if ms.abs() < 1000.0 {
        let digits = if ms.fract() == 0.0 { 0 } else { 2 };
        format!("{ms:.digits$} ms")
    } else {
        format!("{:.1} s", ms / 1000.0)
    }
}

/// Bytes with a binary unit.
pub(crate) fn bytes(count: f64) -> String {
    scaled(count, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// Bits per second.
pub(crate) fn rate(bits: f64) -> String {
    scaled(bits, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A number with one digit after the point, in the unit in which it is below `step`, also when it is rounded.
pub(super) fn scaled(mut count: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while (count * 10.0).round() / 10.0 >= step && unit + 1 < units.len() {
        count /= step;
        unit += 1;
    }
    let digits = usize::from(unit > 0);
    format!("{count:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_established_and_an_idle_peer() {
        let expected = "\
tunnel: mt6d0
  public key: mGn4LbuqcRyPHFAwrQYdKkNZqPS+XKUJG9Zn8BS2Yl4=
  hopping prefix: 2001:db8:a1::/64 on eth0
  running for: 1 d 1 h, version 0.1.0
  dropped: 2 no route

peer: site-b
  public key: 7zJkXoPE0tJj2hoGLLeV9QT8CVQk6ZRVVaWBAsoRKDo=
  hopping prefix: 2001:db8:b1::/64
  session: established for 1 h 2 min, AES-256-GCM, keys changed 31 times
  last heard: 250 ms ago
  lane 0: [2001:db8:a1::1234]:4321 <-> [2001:db8:b1::abcd]:1234
  rotations: 372, next in 4.2 s, 1 skipped
  path: round trip 1.25 ms, MTU 1500, clock off by -40 ms
  transfer: 38.1 MiB received (500000 packets), 1.4 GiB sent (1000000 packets)
  shape: constant 2.0 Mbit/s, 90 % padding, delay 2.50 ms (p99 12 ms), late 0.06 ms (p99 0.25 ms)
  handshakes: 1
  dropped: 3 replay

peer: site-c
  public key: 7zJkXoPE0tJj2hoGLLeV9QT8CVQk6ZRVVaWBAsoRKDo=
  hopping prefix: 2001:db8:c1::/64
  session: idle
  handshakes: 0
";
        assert_eq!(describe(&control::tunnel_status::example()), expected);
    }

    #[test]
    fn replaced_addresses_are_told_with_what_travels_so() {
        let mut status = control::tunnel_status::example();
        (status.peers[0].carry, status.peers[0].tx_rewritten_packets) = (Carry::Rewrite, 7);
        let text = describe(&status);
        assert!(
            text.contains("addresses are replaced") && text.contains("rewritten: 0 B received"),
            "{text}"
        );
    }

    #[test]
    fn quantities() {
        assert_eq!(
            (bytes(0.0), bytes(1023.0), bytes(1024.0)),
            ("0 B".into(), "1023 B".into(), "1.0 KiB".into())
        );
        assert_eq!((rate(999.0), rate(4.0e9)), ("999 bit/s".into(), "4.0 Gbit/s".into()));
        assert_eq!(
            (duration(59), duration(61), duration(3600)),
            ("59 s".into(), "1 min 1 s".into(), "1 h 0 min".into())
        );
    }
}
