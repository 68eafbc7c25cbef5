//! What an attacker on the wire does: change bits, forge, cut, invent.

use proptest::prelude::*;

use super::*;

/// Whether a bit of a packet in transport mode may change on the way under AH.
fn is_mutable(packet: &[u8], byte: usize, bit: usize) -> bool {
    if packet[0] >> 4 == 6 {
        // Traffic class and flow label, hop limit.
        return byte == 0 && bit < 4 || (1..4).contains(&byte) || byte == 7;
    }
    matches!(byte, 1 | 6..=8 | 10 | 11)
}

#[test]
fn each_flipped_bit_is_a_forgery_and_changes_nothing_of_the_association() {
    for suite in suites().into_iter().filter(|suite| !suite.is_historic()) {
        for is_ipv6 in [false, true] {
            let mut pair = Pair::new(|| parameters(suite, Mode::Transport, is_ipv6, true));
            let sealed = pair.seal(&packet(is_ipv6, 9)).unwrap();
            let header = if is_ipv6 { 40 } else { 20 };
            for byte in 0..sealed.len() {
                for bit in 0..8 {
                    // ESP does not cover the IP header.
                    if !suite.is_ah() && byte < header || is_mutable(&sealed, byte, bit) && suite.is_ah() {
                        continue;
                    }
                    let mut changed = sealed.clone();
                    changed[byte] ^= 1 << bit;
                    assert!(pair.open(&changed).is_err(), "{suite:?} {is_ipv6} byte {byte} bit {bit}");
                }
            }
            assert_eq!((pair.receiver.usage().packets, pair.receiver.top()), (0, 0));
            assert!(pair.open(&sealed).is_ok());
        }
    }
}

#[test]
fn routers_may_change_mutable_fields_under_ah() {
    for suite in suites().into_iter().filter(|suite| suite.is_ah() && !suite.is_historic()) {
        for is_ipv6 in [false, true] {
            for mode in [Mode::Transport, Mode::Tunnel] {
                let mut pair = Pair::new(|| parameters(suite, mode, is_ipv6, is_ipv6));
                let plain = packet(is_ipv6, 9);
                let mut sealed = pair.seal(&plain).unwrap();
                if is_ipv6 {
                    sealed[7] -= 3;
                    sealed[1] ^= 0xc0;
                } else {
                    sealed[8] -= 3;
                    sealed[1] ^= 0xc0;
                }
                assert!(pair.open(&sealed).is_ok(), "{suite:?} {mode:?}");
            }
        }
    }
}

#[test]
fn options_of_ipv6_that_may_change_may_and_others_may_not() {
    let suite = Suite::Ah(Authentication::HmacSha256);
    // PadN, then an option of two bytes whose type says that it may change; then one that says it does not.
    for (kind, may_change) in [(0x3e, true), (0x1e, false)] {
        let payload = [protocol::UDP, 0, 1, 0, kind, 2, 0xaa, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8];
        let mut pair = Pair::of(suite, Mode::Transport);
        let mut sealed = pair.seal(&with_payload(true, protocol::HOP_BY_HOP, &payload)).unwrap();
        sealed[40 + 6] ^= 0xff;
        let opened = pair.open(&sealed).map(|_| ());
        assert_eq!(opened, if may_change { Ok(()) } else { Err(OpenError::Forged) });
    }
}

/// An IPv4 packet with options, which are padded to four bytes.
fn with_options(options: &[u8]) -> Vec<u8> {
    let plain = packet(false, 4);
    let mut bytes = [&plain[..20], options, &plain[20..]].concat();
    bytes[0] = 0x45 + (options.len() / 4) as u8;
    let place = crate::headers::Place { offset: 0, type_at: 9, protocol: 0 };
    crate::headers::set_type_and_length(&mut bytes, place, protocol::UDP);
    bytes
}

#[test]
fn options_of_ipv4_that_may_change_may_and_others_may_not() {
    let suite = Suite::Ah(Authentication::HmacSha512);
    let record_route = &[7, 7, 4, 0, 0, 0, 0, 0][..];
    let router_alert = &[148, 4, 0, 0][..];
    for (options, changed, may_change) in [
        (record_route, 2, true),
        (record_route, 4, true),
        (router_alert, 3, false),
        (&[1, 1, 1, 1], 0, false),
    ] {
        let mut pair = Pair::new(|| parameters(suite, Mode::Transport, false, true));
        let plain = with_options(options);
        let mut sealed = pair.seal(&plain).unwrap();
        sealed[20 + changed] ^= 8;
        assert_eq!(pair.open(&sealed).is_ok(), may_change, "{options:?}");
        sealed[20 + changed] ^= 8;
        assert_eq!(pair.open(&sealed).is_ok(), !may_change, "{options:?}");
    }
    let mut pair = Pair::new(|| parameters(suite, Mode::Transport, false, true));
    let routed = with_options(&[131, 7, 4, 10, 0, 0, 1, 0]);
    assert_eq!(pair.seal(&routed), Err(SealError::SourceRoute));
}

#[test]
fn a_route_with_stations_left_is_not_sealed_by_ah_and_one_without_is() {
    let mut pair = Pair::of(Suite::Ah(Authentication::HmacSha256), Mode::Transport);
    for left in [1, 0] {
        let mut payload = vec![protocol::UDP, 2, 4, left, 0, 0, 0, 0];
        payload.extend([0; 16]);
        payload.extend([9; 8]);
        let plain = with_payload(true, protocol::ROUTING, &payload);
        match pair.seal(&plain) {
            Err(error) => assert_eq!((error, left), (SealError::SourceRoute, 1)),
            Ok(sealed) => assert_eq!((pair.open(&sealed).unwrap().0, left), (plain, 0)),
        }
    }
}

/// A router, or who translates IPv4, may put a fragment header before what it does not cut apart (RFC 6946).
#[test]
fn ah_opens_behind_the_fragment_header_of_a_whole_packet() {
    let udp = packet(true, 20)[40..].to_vec();
    let options = [&[protocol::UDP, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat();
    for suite in suites().into_iter().filter(|suite| suite.is_ah()) {
        for (plain, at) in [(packet(true, 20), 40), (with_payload(true, protocol::HOP_BY_HOP, &options), 48)]
        {
            let mut pair = Pair::of(suite, Mode::Transport);
            let with_fragment_header = |packet: &[u8]| {
                let type_at = if at == 40 { 6 } else { 40 };
                let mut with = packet[..at].to_vec();
                with[type_at] = protocol::FRAGMENT;
                with.extend([packet[type_at], 0, 0, 0, 0, 0, 0, 1]);
                with.extend(&packet[at..]);
                let length = with.len() as u16 - 40;
                with[4..6].copy_from_slice(&length.to_be_bytes());
                with
            };
            let arrived = with_fragment_header(&pair.seal(&plain).unwrap());
            let mut forged = arrived.clone();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(pair.open(&forged), Err(OpenError::Forged));
            let (opened, _) = pair.open(&arrived).unwrap();
            assert_eq!(opened, with_fragment_header(&plain), "{suite:?}");
        }
    }
}

/// RFC 4302 appendix A2: its sender leaves it out of the ICV, since its receiver may take it away before AH is verified.
#[test]
fn ah_behind_the_fragment_header_of_a_whole_packet_opens_with_it_and_without() {
    let whole = with_payload(true, protocol::FRAGMENT, &[protocol::UDP, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4]);
    let bare = with_payload(true, protocol::UDP, &[1, 2, 3, 4]);
    for suite in suites().into_iter().filter(|suite| suite.is_ah()) {
        let mut pair = Pair::of(suite, Mode::Transport);
        let sealed = pair.seal(&whole).unwrap();
        assert_eq!((sealed[6], sealed[40]), (protocol::FRAGMENT, protocol::AUTHENTICATION));
        assert_eq!(pair.open(&sealed).unwrap().0, whole, "{suite:?}");
        let sealed = pair.seal(&whole).unwrap();
        let mut taken = [&sealed[..40], &sealed[48..]].concat();
        taken[6] = protocol::AUTHENTICATION;
        let length = taken.len() as u16 - 40;
        taken[4..6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(pair.open(&taken).unwrap().0, bare, "{suite:?}");
    }
}

/// RFC 1826 §4: of the fixed headers, 1995 left out less than RFC 4302 does.
#[cfg(feature = "historic")]
#[test]
fn ah_of_1995_covers_the_traffic_class_and_leaves_out_what_each_router_changes() {
    let suite = Suite::Ah(Authentication::KeyedMd5);
    for (is_ipv6, changed, may_change) in [
        (true, 7, true),
        (true, 1, false),
        (true, 3, false),
        (false, 8, true),
        (false, 1, false),
        (false, 5, false),
    ] {
        let mut pair = Pair::new(|| parameters(suite, Mode::Transport, is_ipv6, true));
        let mut sealed = pair.seal(&packet(is_ipv6, 9)).unwrap();
        sealed[changed] ^= 4;
        assert_eq!(pair.open(&sealed).is_ok(), may_change, "{is_ipv6} {changed}");
    }
}

#[test]
fn options_that_leave_their_header_are_refused_by_ah_before_the_packet_is_changed() {
    let mut pair = Pair::of(Suite::Ah(Authentication::HmacSha256), Mode::Transport);
    let hop_by_hop = [protocol::UDP, 0, 5, 200, 0, 0, 0, 0];
    let refused = pair.seal(&with_payload(true, protocol::HOP_BY_HOP, &hop_by_hop));
    assert_eq!(refused, Err(SealError::Headers(wire::ParseError::Truncated.into())));
    let mut options = with_options(&[7, 1, 0, 0]);
    options.truncate(24);
    options[3] = 24;
    let mut pair =
        Pair::new(|| parameters(Suite::Ah(Authentication::HmacSha256), Mode::Transport, false, true));
    assert_eq!(pair.seal(&options), Err(SealError::Headers(wire::ParseError::Length.into())));
}

#[test]
fn a_packet_cut_short_is_refused_at_each_length() {
    for suite in suites() {
        let mut pair = Pair::of(suite, Mode::Transport);
        let sealed = pair.seal(&packet(true, 9)).unwrap();
        for length in 0..sealed.len() {
            let mut cut = sealed[..length].to_vec();
            assert!(pair.open(&cut).is_err());
            if length >= 40 {
                cut[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
                // Without an ICV a packet of RFC 1829 that ends with a block is as good as another.
                if !suite.is_historic() {
                    assert!(pair.open(&cut).is_err());
                }
            }
        }
    }
}

#[test]
fn packets_of_other_associations_are_not_touched() {
    let gcm = Suite::Esp(Encryption::AesGcm128, Authentication::None);
    let mut pair = Pair::of(gcm, Mode::Transport);
    let mut other =
        Pair::new(|| Parameters { spi: Spi(0x5678), ..parameters(gcm, Mode::Transport, true, true) });
    let sealed = other.seal(&packet(true, 9)).unwrap();
    assert_eq!(pair.open(&sealed), Err(OpenError::Association));
    assert_eq!(pair.open(&packet(true, 9)), Err(OpenError::Association));
    let mut ah = Pair::of(Suite::Ah(Authentication::HmacSha256), Mode::Transport);
    let sealed = ah.seal(&packet(true, 9)).unwrap();
    assert_eq!(pair.open(&sealed), Err(OpenError::Association));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_panic(
        payload in proptest::collection::vec(any::<u8>(), 0..160),
        is_ipv6: bool,
        protocol in prop_oneof![Just(50u8), Just(51), Just(17), Just(0), Just(43), Just(44), Just(60)],
        with_spi: bool,
        raw: bool,
        tunnel: bool,
        which in 0usize..100,
    ) {
        let mut payload = payload;
        let at = if protocol == 51 { 4 } else { 0 };
        if with_spi && payload.len() >= at + 4 {
            payload[at..at + 4].copy_from_slice(&0x1234u32.to_be_bytes());
        }
        let bytes = if raw { payload } else { with_payload(is_ipv6, protocol, &payload) };
        let suites = suites();
        let suite = suites[which % suites.len()];
        let mode = if tunnel { Mode::Tunnel } else { Mode::Transport };
        let mut pair = Pair::of(suite, mode);
        let opened = pair.open(&bytes);
        if !suite.is_historic() {
            prop_assert!(opened.is_err());
            prop_assert_eq!(pair.receiver.usage().packets, 0);
        }
        let _ = pair.seal(&bytes);
    }

    #[test]
    fn what_is_sealed_opens_to_itself_whatever_is_in_it(
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        is_ipv6: bool,
        tunnel: bool,
        protocol in 61u8..130,
        which in 0usize..100,
    ) {
        let suites = suites();
        let suite = suites[which % suites.len()];
        let mode = if tunnel { Mode::Tunnel } else { Mode::Transport };
        let mut pair = Pair::new(|| parameters(suite, mode, is_ipv6, !is_ipv6));
        let plain = with_payload(is_ipv6, protocol, &payload);
        let sealed = pair.seal(&plain).unwrap();
        prop_assert_eq!(pair.open(&sealed).unwrap().0, plain);
    }
}

#[test]
fn a_peer_cannot_lend_its_marks_to_what_it_has_caught_of_another() {
    let now = Instant::now();
    let hidden_by_nobody = Suite::Esp(Encryption::Null, Authentication::HmacSha256);
    let mut tunnel = Pair::of(hidden_by_nobody, Mode::Tunnel);
    let caught = tunnel.seal(&packet(true, 20)).unwrap();

    let (honest, receiver) = gateways(true);
    for (source, is_lent) in [("2001:db8:bad::1".parse().unwrap(), false), (honest, true)] {
        let mut around = Pair::new(|| {
            let transform = Suite::Esp(Encryption::AesGcm128, Authentication::None).transform();
            Parameters::new(Spi(0x9999), source, receiver, Mode::Transport, transform)
        });
        let mut tunnel = Pair::of(hidden_by_nobody, Mode::Tunnel);
        let mut wrapped = caught.clone();
        if let IpAddr::V6(address) = source {
            wrapped[8..24].copy_from_slice(&address.octets());
        }
        let wrapped = seal(&mut around.sender, &wrapped, now).unwrap();
        let (opened, marks) = open(&mut around.receiver, &wrapped, Marks::NONE, now).unwrap();
        assert!(marks.decrypted);
        let (opened, marks) = open(&mut tunnel.receiver, &opened, marks, now).unwrap();
        assert_eq!(opened, packet(true, 20));
        assert_eq!((marks.authentic, marks.decrypted), (true, is_lent));
    }
}
