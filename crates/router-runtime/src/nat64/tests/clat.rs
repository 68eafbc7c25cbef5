//! The program of a CLAT beside the same packets: all of them are 192.0.0.1's.

use programs::nat64::{Clat, clat, clat_end};
use router::transition::CLAT_IPV4;

use super::*;

fn scene() -> Scene {
    let tables = nat64::Tables::of_clat(Map::of).unwrap();
    tables.hosts.set(&[0; 4], &clat_end(Some((host(), PREFIX.get())), None)).unwrap();
    let link = (1, LINK as u8);
    let code = clat(&Clat { device: link, over: link }, &tables);
    Scene { tables, program: Program::load(ProgramKind::SchedCls, &code).unwrap(), pool: CLAT_IPV4 }
}

#[test]
fn a_clat_makes_of_packets_what_the_other_end_makes_packets_of() {
    if !netns::available_to_tests() {
        return;
    }
    for prefix in prefixes() {
        let scene = scene();
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
        let agrees = |packet: Packet| {
            let out = scene.run(4, &packet.four(CLAT_IPV4, SERVER, false));
            let out = out.map_err(|refusal| TestCaseError::fail(format!("to IPv6: {refusal:?}")))?;
            prop_assert_eq!(same_sum(&out), same_sum(&packet.six_from(host(), six(SERVER))), "to IPv6");
            let out = scene.run(6, &packet.six_from(six(SERVER), host()));
            let out = out.map_err(|refusal| TestCaseError::fail(format!("to IPv4: {refusal:?}")))?;
            let expected = with_identification(packet.four(SERVER, CLAT_IPV4, false), &out);
            prop_assert_eq!(same_sum(&out), same_sum(&expected), "to IPv4");
            Ok(())
        };
        runner.run(&any_packet(), agrees).unwrap_or_else(|error| panic!("{prefix}: {error}"));
    }
}

/// The prefix is another while the program runs, and of another length: it is not made anew for that.
#[test]
fn the_prefix_changes_below_the_program() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = scene();
    let udp = || Packet::of(Upper::Udp(vec![1, 2, 3]));
    for prefix in prefixes() {
        scene.tables.hosts.set(&[0; 4], &clat_end(Some((host(), prefix)), None)).unwrap();
        let out = scene.run(4, &udp().four(CLAT_IPV4, SERVER, false)).expect("a packet of IPv6");
        assert_eq!(out[24..40], prefix.embed(SERVER).octets(), "{prefix}");
        let out = scene.run(6, &udp().six_from(prefix.embed(SERVER), host())).expect("a packet of IPv4");
        assert_eq!(out[12..16], SERVER.octets(), "{prefix}");
        let beside = Ipv6Addr::from_bits(prefix.embed(SERVER).to_bits() ^ (1 << 56));
        assert_eq!(scene.run(6, &udp().six_from(beside, host())), Err(Refusal::Source), "{prefix}");
    }
}

#[test]
fn errors_come_from_routers_of_both_versions_and_go_to_servers() {
    if !netns::available_to_tests() {
        return;
    }
    for _ in prefixes() {
        errors_come_from_routers();
    }
}

fn errors_come_from_routers() {
    let scene = scene();
    QUOTED.set((CLAT_IPV4, SERVER));
    let error = |from_host, of_six, four| {
        let source = if from_host { host() } else { six(SERVER) };
        let quoted = Packet { source, hop_limit: 3, ..Packet::of(Upper::Udp(vec![5; 40])) };
        Packet::of(Upper::Error { six: of_six, four, quoted: Box::new(quoted) })
    };
    for (of_six, four) in [
        ((1, 0, 0), (3, 1, 0)),
        ((1, 4, 0), (3, 3, 0)),
        ((2, 0, 1500), (3, 4, 1480)),
        ((3, 0, 0), (11, 0, 0)),
    ] {
        // On the way to the translator, which have no address of IPv4, and behind it.
        let no_address = Ipv4Addr::new(192, 0, 0, 8);
        for (router, known_as) in [
            ("2001:db8:9::1".parse().unwrap(), no_address),
            (six(ROUTER), ROUTER),
            (six(no_address), no_address),
        ] {
            let packet = error(true, of_six, four);
            let out = scene.run(6, &packet.six_from(router, host())).expect("an error");
            let expected = with_identification(packet.four(known_as, CLAT_IPV4, false), &out);
            assert_eq!(same_sum(&out), same_sum(&expected), "{of_six:?} from {router}");
        }
        // Of a host here, about a packet of the server's.
        let packet = error(false, of_six, four);
        let out = scene.run(4, &packet.four(CLAT_IPV4, SERVER, false)).expect("an error");
        assert_eq!(same_sum(&out), same_sum(&packet.six_from(host(), six(SERVER))), "{four:?}");
        // About a packet that is not of here.
        let packet = error(false, of_six, four);
        assert_eq!(scene.run(6, &packet.six_from(six(ROUTER), host())), Err(Refusal::Icmp));
        let packet = error(true, of_six, four);
        assert_eq!(scene.run(4, &packet.four(CLAT_IPV4, SERVER, false)), Err(Refusal::Icmp));
    }
}

#[test]
fn what_is_not_between_here_and_the_translator_is_refused() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = scene();
    let udp = || Packet::of(Upper::Udp(vec![1, 2, 3]));
    assert_eq!(scene.run(4, &udp().four(Ipv4Addr::new(192, 168, 1, 9), SERVER, false)), Err(Refusal::Source));
    for private in ["10.0.0.1", "192.168.1.1", "127.0.0.1", "224.0.0.1", "192.0.0.1"] {
        let private: Ipv4Addr = private.parse().unwrap();
        assert_eq!(scene.run(4, &udp().four(CLAT_IPV4, private, false)), Err(Refusal::Destination));
        assert_eq!(scene.run(6, &udp().six_from(six(private), host())), Err(Refusal::Source));
    }
    let stranger = "2001:db8::7".parse().unwrap();
    assert_eq!(scene.run(6, &udp().six_from(stranger, host())), Err(Refusal::Source));
    assert_eq!(scene.run(6, &udp().six_from(six(SERVER), stranger)), Err(Refusal::Destination));
    scene.tables.hosts.set(&[0; 4], &clat_end(None, None)).unwrap();
    assert_eq!(scene.run(4, &udp().four(CLAT_IPV4, SERVER, false)), Err(Refusal::NoHost));
}
