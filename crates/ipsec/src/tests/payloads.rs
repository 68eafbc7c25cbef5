//! ESP without outer headers is the same ESP.

use wire::ecn::{self, Ecn};

use super::*;
use crate::outcome::OpenError;
use crate::replay::ReplayError;
use crate::tunnel_payload::{self, Opened};

fn tunnels() -> impl Iterator<Item = Suite> {
    suites().into_iter().filter(|suite| matches!(suite, Suite::Esp(..)))
}

fn sealed(association: &mut Association, packet: &[u8], now: Instant) -> Vec<u8> {
    let mut out = vec![0xee; tunnel_payload::sealed_length(association, packet.len()).unwrap()];
    let (head, rest) = packet.split_at(packet.len() / 2);
    tunnel_payload::seal(association, [head, rest], &mut out, now).unwrap();
    out
}

#[test]
fn what_one_form_seals_the_other_opens() {
    for suite in tunnels() {
        for (is_ipv6, length) in [(true, 0), (true, 7), (false, 1), (false, 1000)] {
            let packet = packet(is_ipv6, length);
            let mut pair = Pair::new(|| parameters(suite, Mode::Tunnel, is_ipv6, true));
            let now = pair.now;
            let whole = pair.seal(&packet).unwrap();
            let mut payload = whole[ipv6::HEADER_LEN..].to_vec();
            let opened = tunnel_payload::open(&mut pair.receiver, &mut payload, Ecn::NotEct, now).unwrap();
            assert_eq!(payload[opened.packet.clone()], packet, "{suite:?}");
            assert!(opened.marks.authentic || suite.is_historic());

            let outer = &whole[..ipv6::HEADER_LEN];
            let whole = [outer, &sealed(&mut pair.sender, &packet, now)].concat();
            assert_eq!(pair.open(&whole).unwrap().0, packet, "{suite:?}");
        }
    }
}

/// RFC 4303 §2.6.
#[test]
fn a_dummy_is_as_long_as_a_packet_and_dropped_without_an_error_of_its_own() {
    for suite in tunnels() {
        let mut pair = Pair::of(suite, Mode::Tunnel);
        let now = pair.now;
        for length in [0, 1, 40, 1400] {
            let real = sealed(&mut pair.sender, &packet(true, length), now);
            let mut dummy = vec![0xee; real.len()];
            tunnel_payload::seal_dummy(&mut pair.sender, &mut dummy, now).unwrap();
            let opened = tunnel_payload::open(&mut pair.receiver, &mut dummy.clone(), Ecn::NotEct, now);
            assert_eq!(opened, Err(OpenError::Dummy), "{suite:?}");
            if !suite.is_historic() {
                let again = tunnel_payload::open(&mut pair.receiver, &mut dummy, Ecn::NotEct, now);
                assert_eq!(again, Err(OpenError::Replay(ReplayError::Replayed)));
            }
        }
        let room = tunnel_payload::sealed_length(&pair.sender, 100).unwrap();
        let refused = tunnel_payload::seal_dummy(&mut pair.sender, &mut vec![0; room + 1], now);
        assert_eq!(refused, Err(SealError::NoRoom(crate::packet_buffer::NoRoom)));
    }
}

#[test]
fn the_largest_packet_that_fits_fits_and_no_larger_one() {
    for suite in tunnels() {
        let association = Pair::of(suite, Mode::Tunnel).sender;
        for room in [1400, 1401, 1402, 1403, 1417] {
            let largest = tunnel_payload::largest_packet(&association, room).unwrap();
            assert!(tunnel_payload::sealed_length(&association, largest).unwrap() <= room, "{suite:?}");
            assert!(tunnel_payload::sealed_length(&association, largest + 1).unwrap() > room, "{suite:?}");
        }
    }
}

#[test]
fn replays_forgeries_and_strangers_are_refused_and_change_nothing() {
    for suite in tunnels().filter(|suite| !suite.is_historic()) {
        let mut pair = Pair::of(suite, Mode::Tunnel);
        let now = pair.now;
        let good = sealed(&mut pair.sender, &packet(true, 100), now);
        let mut open =
            |bytes: &[u8]| tunnel_payload::open(&mut pair.receiver, &mut bytes.to_vec(), Ecn::NotEct, now);
        for at in 0..good.len() {
            let mut forged = good.clone();
            forged[at] ^= 1;
            assert!(open(&forged).is_err(), "{suite:?}, byte {at}");
            assert!(open(&good[..at]).is_err(), "{suite:?}, {at} bytes");
        }
        assert!(open(&good).is_ok());
        assert_eq!(open(&good), Err(OpenError::Replay(ReplayError::Replayed)));
    }
}

#[test]
fn congestion_outside_is_told_inside() {
    let suite = tunnels().next().unwrap();
    let mut pair = Pair::of(suite, Mode::Tunnel);
    let now = pair.now;
    let mut capable = packet(true, 10);
    ecn::set(&mut capable, Ecn::Ect0);
    let mut bytes = sealed(&mut pair.sender, &capable, now);
    let Opened { packet, .. } = tunnel_payload::open(&mut pair.receiver, &mut bytes, Ecn::Ce, now).unwrap();
    assert_eq!(ecn::get(&bytes[packet]), Some(Ecn::Ce));
}

#[test]
fn what_the_association_is_not_for_has_no_marks() {
    let suite = tunnels().next().unwrap();
    let mut pair = Pair::of(suite, Mode::Tunnel);
    let now = pair.now;
    let mut other = packet(true, 10);
    other[23] ^= 1;
    let mut bytes = sealed(&mut pair.sender, &other, now);
    let opened = tunnel_payload::open(&mut pair.receiver, &mut bytes, Ecn::NotEct, now).unwrap();
    assert_eq!(opened.marks, Marks::NONE);
}

#[test]
fn transport_mode_and_ah_have_no_such_form() {
    for suite in suites() {
        let association = Pair::of(suite, Mode::Transport).sender;
        assert_eq!(tunnel_payload::sealed_length(&association, 100), None);
    }
}
