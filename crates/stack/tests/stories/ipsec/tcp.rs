//! What TCP sockets ask of security: levels of connections and listeners, at the call and on the wire.

use ipsec::association::Protocol;
use ipsec::key_engine::Event;
use ipsec::policy::Level;
use ipsec::request::{DaemonId, Request};
use stack::host::{Asked, ConnectError, Host, ListenError, ListenerHandle, TcpHandle, WriteError};
use stack::tcp::{Error, State};
use wire::ethernet::Frame;
use wire::icmp_error::{self, Reason};

use super::*;
use crate::hosts::{Segment, TCP, too_big};
use crate::link::{MINUTE, frame, mac};

const UNIQUE: Levels = Levels { transport_encryption: Level::Unique, ..Levels::NONE };

fn asking(levels: Levels) -> Asked {
    Asked { levels, bypasses: false }
}

/// Two hosts, A and B, that have these associations.
pub(super) fn pair(file: &str) -> Segment<Ipsec> {
    let now = Instant::now();
    let host = |number: u8, address| {
        let security = Ipsec::new(now, KeyEngine::new(), PolicyDatabase::new());
        let mut host = Host::with_security(now, config(number), [number; 32], security);
        let interface = host.interface_mut();
        interface.add_address(now, address, 64);
        interface.set_on_link(now, "2001:db8::/64".parse().unwrap(), Lifetime::Infinite);
        apply(now, interface, file);
        host
    };
    Segment::with(now, vec![host(0, A), host(1, B)], 0)
}

/// Two hosts without associations; A has a daemon.
fn with_daemon() -> Segment<Ipsec> {
    let mut segment = pair("");
    segment.hosts[0].interface_mut().security().engine().register(DaemonId(1), Protocol::Esp).unwrap();
    segment
}

fn add(segment: &mut Segment<Ipsec>, host: usize, file: &str) {
    apply(segment.now, segment.hosts[host].interface_mut(), file);
}

fn asked_for(segment: &mut Segment<Ipsec>) -> Option<Request> {
    loop {
        match segment.hosts[0].interface_mut().security().next_event()? {
            Event::Acquire { request, .. } => return Some(request),
            _ => continue,
        }
    }
}

fn listen(segment: &mut Segment<Ipsec>, levels: Levels) -> ListenerHandle {
    segment.hosts[1].tcp_listen_asking(at(ANY, 80), TCP, 4, asking(levels)).unwrap()
}

fn connect(segment: &mut Segment<Ipsec>, levels: Levels) -> Result<TcpHandle, ConnectError> {
    segment.hosts[0].tcp_connect_asking(segment.now, at(B, 80), TCP, asking(levels))
}

pub(super) fn connected(segment: &mut Segment<Ipsec>, levels: Levels) -> [TcpHandle; 2] {
    let listener = listen(segment, levels);
    let ours = connect(segment, levels).unwrap();
    let theirs = segment.accept(listener);
    [ours, theirs]
}

/// The first header of packets between the two that are not of neighbor discovery.
fn headers(segment: &mut Segment<Ipsec>) -> Vec<u8> {
    let frames = std::mem::take(&mut segment.seen);
    between(frames.iter().map(|bytes| Frame::parse(bytes).unwrap().payload().to_vec()).collect())
        .iter()
        .map(|packet| packet[6])
        .collect()
}

fn refused(segment: &mut Segment<Ipsec>, host: usize, reason: DropReason) -> u64 {
    segment.hosts[host].interface_mut().security().drops().of(reason)
}

/// An association of A's with the number of a socket, as a daemon answers, and the other end of it.
fn answer(segment: &mut Segment<Ipsec>, request: &Request, spi: u32) {
    let file = format!("add {A} {B} esp {spi} -m transport -r 64 {GCM};\n");
    add(segment, 1, &file);
    let Some(Command::Add(parameters, _)) = setkey::parse(&file).unwrap().into_iter().next() else {
        panic!("an association")
    };
    let owner = request.is_unique.then_some(request.socket).flatten();
    let now = segment.now;
    segment.hosts[0].interface_mut().security().engine().add(*parameters, owner, now).unwrap();
}

#[test]
fn what_both_ends_require_is_on_the_wire_and_a_megabyte_arrives() {
    for (levels, file, header) in ways() {
        let mut segment = pair(&file);
        segment.weather.loss = 0.01;
        let ends = connected(&mut segment, levels);
        segment.transfer(ends, 1 << 17);
        let sent = headers(&mut segment);
        assert!(sent.len() > 100 && sent.iter().all(|first| *first == header), "{file}");
    }
}

#[test]
fn a_syn_without_protection_meets_silence_and_is_counted() {
    for (levels, reason) in
        [(AH, DropReason::NotAuthentic), (ESP, DropReason::NotEncrypted), (TUNNEL, DropReason::NotTunnelled)]
    {
        let mut segment = pair("");
        listen(&mut segment, levels);
        let ours = connect(&mut segment, Levels::NONE).unwrap();
        segment.run(SECOND / 2);
        assert_eq!(headers(&mut segment), [protocol::TCP], "the SYN, and nothing comes back");
        assert_eq!(refused(&mut segment, 1, reason), 1);
        assert_eq!(segment.hosts[1].interface().drops().of(stack::DropReason::Security), 1);
        assert_eq!(segment.hosts[0].tcp(ours).unwrap().state(), State::SynSent);
    }
}

#[test]
fn segments_of_an_accepted_connection_need_what_its_listener_asked_for() {
    let mut segment = pair(&esp(GCM));
    let [_, theirs] = connected(&mut segment, ESP);
    let (local, remote) = segment.hosts[1].tcp_ends(theirs).unwrap();
    // A segment in clear, with the right numbers or not: it is not looked at.
    let header = wire::tcp::Header {
        source_port: remote.port(),
        destination_port: local.port(),
        flags: wire::tcp::RST,
        ..wire::tcp::Header::default()
    };
    let outgoing = stack::interface::Outgoing {
        source: Some(A),
        destination: B,
        protocol: protocol::TCP,
        hop_limit: None,
        traffic_class: 0,
        flow_label: 0,
    };
    let now = segment.now;
    segment.hosts[0].interface_mut().send(now, &outgoing, &[&header.to_bytes()]).unwrap();
    segment.run(SECOND);
    assert_eq!(refused(&mut segment, 1, DropReason::NotEncrypted), 1);
    assert_eq!(segment.hosts[1].tcp(theirs).unwrap().state(), State::Established);
}

#[test]
fn without_association_and_daemon_connect_and_write_say_eipsec() {
    let mut segment = pair("");
    assert_eq!(connect(&mut segment, ESP), Err(ConnectError::Security));
    assert_eq!(refused(&mut segment, 0, DropReason::NoDaemon), 1);

    let [ours, _] = connected(&mut segment, Levels::NONE);
    let now = segment.now;
    segment.hosts[0].tcp_set_levels(ours, ESP).unwrap();
    assert_eq!(segment.hosts[0].write_secured(now, ours, b"secret"), Err(WriteError::Security));
    segment.run(SECOND);
    let sent = headers(&mut segment);
    assert!(sent.iter().all(|first| *first == protocol::TCP));
    assert_eq!(segment.hosts[0].tcp(ours).unwrap().unacknowledged(), 0, "nothing was written");
}

#[test]
fn what_the_system_forbids_no_connection_does() {
    let mut segment = pair("");
    add(&mut segment, 0, &format!("spdadd {A} {B}[80] tcp -P out discard;"));
    assert_eq!(connect(&mut segment, Levels::NONE), Err(ConnectError::Security));
    let other = segment.hosts[0].tcp_connect(segment.now, at(B, 81), TCP);
    assert!(other.is_ok());
}

#[test]
fn a_syn_waits_for_its_association() {
    let mut segment = with_daemon();
    let listener = listen(&mut segment, ESP);
    let ours = connect(&mut segment, ESP).unwrap();
    segment.run(SECOND / 2);
    assert!(headers(&mut segment).is_empty());
    let request = asked_for(&mut segment).expect("the daemon is asked");
    assert_eq!(request.traffic.destination, std::net::IpAddr::V6(B));
    assert_eq!(asked_for(&mut segment), None, "once");
    add(&mut segment, 1, &esp(GCM));
    add(&mut segment, 0, &esp(GCM));
    segment.run(SECOND / 100);
    let theirs = segment.accept(listener);
    segment.transfer([ours, theirs], 10_000);
    assert!(headers(&mut segment).iter().all(|first| *first == protocol::ESP));
}

#[test]
fn a_connection_that_no_daemon_gets_an_association_for_ends_with_eipsec() {
    let mut segment = with_daemon();
    let ours = connect(&mut segment, ESP).unwrap();
    segment.run(SECOND / 2);
    segment.hosts[0].interface_mut().security().engine().unregister(DaemonId(1));
    segment.run(MINUTE);
    let connection = segment.hosts[0].tcp(ours).unwrap();
    assert_eq!((connection.state(), connection.error()), (State::Closed, Some(Error::Security)));
    assert!(headers(&mut segment).is_empty());
}

#[test]
fn a_connection_outlives_its_association_and_goes_on_with_the_next() {
    let mut segment = pair(&esp(GCM));
    let [ours, theirs] = connected(&mut segment, ESP);
    segment.run(SECOND);
    add(&mut segment, 0, "flush;");
    let now = segment.now;
    assert_eq!(segment.hosts[0].write_secured(now, ours, b"lost"), Err(WriteError::Security));
    // What is written nevertheless is sent when it can be.
    segment.hosts[0].write(ours, b"later").unwrap();
    segment.run(SECOND * 2);
    assert_eq!(segment.hosts[1].tcp(theirs).unwrap().readable(), 0);
    assert_eq!(segment.hosts[0].tcp(ours).unwrap().error(), None);
    add(&mut segment, 0, &esp(GCM).replace("0x1000", "0x1100"));
    let other = both_ways("esp", 0x5000, "transport", GCM);
    add(&mut segment, 0, &other);
    add(&mut segment, 1, &other);
    segment.run(SECOND * 10);
    assert_eq!(segment.hosts[1].tcp(theirs).unwrap().readable(), 5);
}

#[test]
fn at_level_3_a_connection_has_an_association_of_its_own_which_is_replaced_on_demand() {
    let mut segment = with_daemon();
    // There is one for all, which does not do.
    add(&mut segment, 0, &esp(GCM));
    add(&mut segment, 1, &esp(GCM));
    let listener = listen(&mut segment, ESP);
    let ours = connect(&mut segment, UNIQUE).unwrap();
    segment.run(SECOND / 2);
    let request = asked_for(&mut segment).expect("the daemon is asked");
    assert!(request.is_unique && request.socket.is_some());
    answer(&mut segment, &request, 0x7000);
    segment.run(SECOND / 100);
    let theirs = segment.accept(listener);
    segment.hosts[0].write(ours, b"one").unwrap();
    segment.run(SECOND);

    // It is gone: the next data asks for another, of the same socket, and waits.
    let name = ipsec::key_engine::Name {
        destination: B.into(),
        protocol: Protocol::Esp,
        spi: ipsec::association::Spi(0x7000),
    };
    segment.hosts[0].interface_mut().security().engine().delete(&name).unwrap();
    let now = segment.now;
    assert_eq!(segment.hosts[0].write_secured(now, ours, b"two"), Ok(3));
    segment.run(SECOND / 10);
    let again = asked_for(&mut segment).expect("the daemon is asked again");
    assert_eq!((again.is_unique, again.socket), (true, request.socket));
    answer(&mut segment, &again, 0x7001);
    segment.run(SECOND);
    let mut read = [0; 10];
    assert_eq!(segment.hosts[1].read(theirs, &mut read), Ok(6));
    assert_eq!(&read[..6], b"onetwo");

    // When the connection has ended, nobody has it.
    segment.hosts[0].abort(ours).unwrap();
    segment.run(SECOND);
    let name = ipsec::key_engine::Name { spi: ipsec::association::Spi(0x7001), ..name };
    assert!(segment.hosts[0].interface_mut().security().engine().by_name(&name).is_none());
    let event = segment.hosts[0].interface_mut().security().next_event();
    assert!(matches!(event, Some(Event::HardExpired(ended)) if ended.name == name), "{event:?}");

    // Another connection does not get it.
    connect(&mut segment, UNIQUE).unwrap();
    let other = asked_for(&mut segment).expect("another's own");
    assert_ne!(other.socket, request.socket);
}

#[test]
fn accepted_connections_have_associations_of_their_own_if_their_listener_asks_for_them() {
    let mut segment = pair(&esp(GCM));
    segment.hosts[1].interface_mut().security().engine().register(DaemonId(1), Protocol::Esp).unwrap();
    let listener = listen(&mut segment, UNIQUE);
    let ours = connect(&mut segment, ESP).unwrap();
    let theirs = segment.accept(listener);
    assert_eq!(segment.hosts[0].tcp(ours).unwrap().state(), State::Established, "the SYN-ACK had one of all");
    segment.hosts[1].write(theirs, b"answer").unwrap();
    segment.run(SECOND / 10);
    let event = segment.hosts[1].interface_mut().security().next_event();
    let Some(Event::Acquire { request, .. }) = event else { panic!("{event:?}") };
    assert!(request.is_unique && request.socket.is_some());
    assert_eq!(segment.hosts[0].tcp(ours).unwrap().readable(), 0);
}

#[test]
fn a_socket_bypasses_security_only_where_the_host_permits_it() {
    let mut segment = pair("");
    let bypassing = Asked { bypasses: true, ..Asked::default() };
    for host in &mut segment.hosts {
        host.interface_mut().security().policies().set_system_levels(ESP);
    }
    let now = segment.now;
    let connect = |host: &mut Host<Ipsec>| host.tcp_connect_asking(now, at(B, 80), TCP, bypassing);
    let listen = |host: &mut Host<Ipsec>| host.tcp_listen_asking(at(ANY, 80), TCP, 1, bypassing);
    assert_eq!(connect(&mut segment.hosts[0]), Err(ConnectError::NotPermitted));
    assert_eq!(listen(&mut segment.hosts[1]), Err(ListenError::NotPermitted));
    for host in &mut segment.hosts {
        host.interface_mut().permit_bypass();
    }
    let listener = listen(&mut segment.hosts[1]).unwrap();
    let ours = connect(&mut segment.hosts[0]).unwrap();
    let theirs = segment.accept(listener);
    segment.transfer([ours, theirs], 1000);
    assert!(headers(&mut segment).iter().all(|first| *first == protocol::TCP));
}

/// The last packet of A's that begins with this header, in which B does not find whom it is for.
fn unreachable(segment: &mut Segment<Ipsec>, first: u8) -> Vec<u8> {
    let is_ours = |bytes: &&Vec<u8>| bytes[6..12] == mac(0).0 && bytes[14 + 6] == first;
    let sent = segment.seen.iter().rfind(is_ours).unwrap().clone();
    let mut error = [0; icmp_error::MAX_LEN];
    let reason = Reason::HopLimitExceeded;
    let length = icmp_error::build(reason, B.into(), &sent[14..], &mut error).unwrap();
    frame(mac(1), mac(0), &error[..length])
}

#[test]
fn an_error_about_what_is_authenticated_finds_the_connection_as_its_policy_allows() {
    for (levels, believed) in [(Levels::NONE, true), (AH, false)] {
        let mut segment = pair(&ah(GMAC));
        add(&mut segment, 0, &format!("spdadd {A} {B} tcp -P out ipsec ah/transport//require;"));
        // Nobody answers.
        listen(&mut segment, TUNNEL);
        let ours = connect(&mut segment, levels).unwrap();
        segment.seen.clear();
        segment.run(SECOND / 2);
        let error = unreachable(&mut segment, protocol::AUTHENTICATION);
        let now = segment.now;
        let before = segment.hosts[0].interface().drops().of(stack::DropReason::Security);
        segment.hosts[0].receive(now, &error);
        let after = segment.hosts[0].interface().drops().of(stack::DropReason::Security);
        assert_eq!(after - before, u64::from(!believed));
        segment.run(MINUTE * 4);
        let reason = if believed { Error::Unreachable } else { Error::TimedOut };
        assert_eq!(segment.hosts[0].tcp(ours).unwrap().error(), Some(reason));
    }
}

#[test]
fn a_smaller_path_of_what_is_encrypted_is_known_to_its_connections_at_once() {
    let mut segment = pair(&esp(GCM));
    let [ours, theirs] = connected(&mut segment, ESP);
    segment.seen.clear();
    segment.hosts[0].write(ours, &[1; 1400]).unwrap();
    segment.weather.loss = 1.0;
    segment.run(SECOND / 100);
    let sent = segment.seen.iter().max_by_key(|bytes| bytes.len()).unwrap().clone();
    assert_eq!(sent[14 + 6], protocol::ESP);
    segment.weather.loss = 0.0;
    let now = segment.now;
    segment.hosts[0].receive(now, &too_big(&sent[14..], 1300));
    segment.run(SECOND / 100);
    assert_eq!(segment.hosts[1].tcp(theirs).unwrap().readable(), 1400, "sooner than by any timeout");
    assert_eq!(segment.hosts[0].tcp(ours).unwrap().statistics().timeouts, 0);
}
