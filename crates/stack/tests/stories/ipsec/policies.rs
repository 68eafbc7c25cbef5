//! Levels at both ends, associations that are missing, and who hears of errors.

use ipsec::acquire::{ACQUIRE_TIMEOUT, AcquireId, MAX_DELAYED_PACKETS};
use ipsec::association::Protocol;
use ipsec::key_engine::Event;
use ipsec::request::{DaemonId, Service};
use stack::icmpv6::{ErrorKind, ErrorReport};
use stack::interface::{Outgoing, Received, SendError, UdpError, Upper, Verdict};
use wire::icmp_error::{self, Reason};
use wire::icmpv6::code;

use super::*;
use crate::link::mac;

fn acquire(link: &mut Link<Ipsec>) -> Option<(AcquireId, ipsec::request::Request)> {
    match link.hosts[0].security().next_event()? {
        Event::Acquire { acquire, request } => Some((acquire, request)),
        other => panic!("{other:?}"),
    }
}

/// Two hosts without associations; A has a daemon.
fn with_daemon() -> Link<Ipsec> {
    let mut link = pair("");
    for protocol in [Protocol::Esp, Protocol::Ah] {
        link.hosts[0].security().engine().register(DaemonId(1), protocol).unwrap();
    }
    link
}

#[test]
fn a_socket_that_requires_security_does_not_hear_who_has_none() {
    for (levels, reason) in
        [(AH, DropReason::NotAuthentic), (ESP, DropReason::NotEncrypted), (TUNNEL, DropReason::NotTunnelled)]
    {
        let mut link = pair("");
        let (from, to) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, levels));
        send(&mut link, from, b"in clear");
        assert_eq!(received(&mut link, 1, to), [b""; 0]);
        assert_eq!(dropped(&mut link, 1, reason), 1);
        assert_eq!(link.hosts[1].drops().of(stack::DropReason::Security), 1);
        assert_eq!(between(link.sent()).len(), 1, "nobody is told");
        assert_eq!(link.hosts[0].udp_error(from), None);
    }
}

#[test]
fn what_the_system_requires_is_required_of_ping_too() {
    let mut link = pair(&esp(GCM));
    link.hosts[1].security().policies().set_system_levels(ESP);
    assert!(!link.ping(0, B));
    assert_eq!(dropped(&mut link, 1, DropReason::NotEncrypted), 1);
    require(&mut link, ESP);
    assert!(link.ping(0, B));
    link.hosts[0].ping(link.now, A, 1, 3, b"").unwrap();
    link.run(SECOND);
    assert_eq!(link.replies(0), [(A, 3)], "what never leaves the host needs no protection");
}

#[test]
fn what_is_used_where_it_can_be_had_goes_in_clear_where_it_cannot() {
    let used = Levels { transport_encryption: Level::Use, ..Levels::NONE };
    let mut link = with_daemon();
    let (from, to) = (socket(&mut link, 0, used), socket(&mut link, 1, used));
    send(&mut link, from, b"one");
    assert_eq!(acquire(&mut link), None);
    let (now, file) = (link.now, esp(GCM));
    for host in &mut link.hosts {
        apply(now, host, &file);
    }
    send(&mut link, from, b"two");
    assert_eq!(received(&mut link, 1, to), [b"one", b"two"]);
    let headers: Vec<u8> = between(link.sent()).iter().map(|packet| packet[6]).collect();
    assert_eq!(headers, [protocol::UDP, protocol::ESP]);
}

#[test]
fn a_datagram_waits_for_its_associations_and_arrives_once() {
    let mut link = with_daemon();
    let levels = ESP.stricter(AH);
    let (from, to) = (socket(&mut link, 0, levels), socket(&mut link, 1, levels));
    send(&mut link, from, b"waits");
    let (_, request) = acquire(&mut link).expect("the daemon is asked");
    assert_eq!((request.service, request.traffic.destination), (Service::TransportEncryption, B.into()));
    assert!(between(link.sent()).is_empty());
    let now = link.now;
    apply(now, &mut link.hosts[1], &(esp(GCM) + &ah(GMAC)));

    apply(now, &mut link.hosts[0], &esp(GCM));
    link.run(SECOND);
    assert!(between(link.sent()).is_empty());
    assert_eq!(acquire(&mut link).expect("now for the other").1.service, Service::Authentication);

    apply(link.now, &mut link.hosts[0], &ah(GMAC));
    link.run(SECOND * 60);
    assert_eq!(received(&mut link, 1, to), [b"waits"]);
    assert_eq!(between(link.sent()).len(), 1);
    assert_eq!(acquire(&mut link), None);
}

#[test]
fn what_waits_is_bounded_in_number_and_time() {
    let mut link = with_daemon();
    let from = socket(&mut link, 0, ESP);
    for _ in 0..MAX_DELAYED_PACKETS {
        send(&mut link, from, b"waits");
    }
    let refused = link.hosts[0].udp_send(link.now, from, Some(at(B, PORT)), b"too many");
    assert_eq!(refused, Err(UdpError::Send(SendError::Security)));
    assert_eq!(dropped(&mut link, 0, DropReason::TooMany), 1);
    link.run(ACQUIRE_TIMEOUT);
    assert_eq!(dropped(&mut link, 0, DropReason::NotKeyed), MAX_DELAYED_PACKETS as u64);
    apply(link.now, &mut link.hosts[0], &esp(GCM));
    link.run(SECOND);
    assert!(between(link.sent()).is_empty());
}

#[test]
fn what_a_daemon_gives_up_is_dropped() {
    let mut link = with_daemon();
    let from = socket(&mut link, 0, ESP);
    send(&mut link, from, b"waits");
    let (wish, _) = acquire(&mut link).unwrap();
    link.hosts[0].security().give_up(wish);
    assert_eq!(dropped(&mut link, 0, DropReason::NotKeyed), 1);
    apply(link.now, &mut link.hosts[0], &esp(GCM));
    link.run(SECOND);
    assert!(between(link.sent()).is_empty());
}

#[test]
fn without_a_daemon_the_call_says_so() {
    let mut link = pair("");
    let from = socket(&mut link, 0, ESP);
    let refused = link.hosts[0].udp_send(link.now, from, Some(at(B, PORT)), b"never");
    assert_eq!(refused, Err(UdpError::Send(SendError::Security)));
    require(&mut link, AH);
    assert_eq!(link.hosts[0].ping(link.now, B, 1, 1, b""), Err(SendError::Security));
    assert_eq!(dropped(&mut link, 0, DropReason::NoDaemon), 2);
    link.run(SECOND);
    assert!(between(link.sent()).is_empty());
}

#[test]
fn a_socket_has_an_association_of_its_own_if_it_asks_for_one() {
    let unique = Levels { transport_encryption: Level::Unique, ..Levels::NONE };
    let mut link = with_daemon();
    apply(link.now, &mut link.hosts[0], &esp(GCM));
    let from = socket(&mut link, 0, unique);
    send(&mut link, from, b"waits");
    let (_, request) = acquire(&mut link).unwrap();
    let own = link.hosts[0].udp_policy(from).unwrap().id;
    assert_eq!((request.is_unique, request.socket), (true, Some(own)));
    let parameters = |spi: u32| {
        let file = format!("add {A} {B} esp {spi} {GCM};");
        let Some(Command::Add(parameters, _)) = setkey::parse(&file).unwrap().into_iter().next() else {
            panic!()
        };
        *parameters
    };
    let now = link.now;
    link.hosts[0].security().engine().add(parameters(7000), Some(own), now).unwrap();
    link.run(SECOND);
    let sent = between(link.sent());
    assert_eq!((sent.len(), &sent[0][40..44]), (1, &7000_u32.to_be_bytes()[..]));
    let other = link.hosts[0].udp_bind(at(ANY, PORT + 1)).unwrap();
    link.hosts[0].udp_set_levels(other, unique).unwrap();
    send(&mut link, other, b"not by that one");
    assert!(acquire(&mut link).is_some() && between(link.sent()).is_empty());
}

#[test]
fn the_socket_of_a_daemon_speaks_before_there_are_associations() {
    let mut link = pair("");
    require(&mut link, AH.stricter(ESP));
    let (from, to) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, Levels::NONE));
    for (host, id) in [(0, from), (1, to)] {
        link.hosts[host].permit_bypass();
        link.hosts[host].udp_bypass_security(id).unwrap();
    }
    send(&mut link, from, b"keys?");
    assert_eq!(received(&mut link, 1, to), [b"keys?"]);
    let other = link.hosts[0].udp_bind(at(ANY, PORT + 1)).unwrap();
    assert!(link.hosts[0].udp_send(link.now, other, Some(at(B, PORT)), b"I, too").is_err());
}

/// The error of B that a port of its has no socket, about a packet of A as it was before it was protected.
fn port_unreachable() -> Vec<u8> {
    let mut plain = pair("");
    let from = socket(&mut plain, 0, Levels::NONE);
    send(&mut plain, from, b"anybody?");
    let sent = between(plain.sent());
    let mut error = vec![0; icmp_error::MAX_LEN];
    let length = icmp_error::build(Reason::PortUnreachable, B.into(), &sent[0], &mut error).unwrap();
    error.truncate(length);
    error
}

#[test]
fn an_error_that_nobody_vouches_for_does_not_reach_a_socket_that_requires_security() {
    let error = port_unreachable();
    for (levels, expected) in [(Levels::NONE, true), (AH, false), (ESP, false)] {
        let mut link = pair(&(esp(GCM) + &ah(GMAC)));
        let from = socket(&mut link, 0, levels);
        send(&mut link, from, b"anybody?");
        link.hosts[0].udp_error(from);
        let before = link.hosts[0].drops().of(stack::DropReason::Security);
        link.inject(mac(1), mac(0), &error);
        assert_eq!(link.hosts[0].udp_error(from).is_some(), expected, "{levels:?}");
        let refused = link.hosts[0].drops().of(stack::DropReason::Security) - before;
        assert_eq!(refused, u64::from(!expected));
    }
}

#[test]
fn an_error_that_is_protected_reaches_the_socket() {
    let mut link = pair(&esp(GCM));
    require(&mut link, ESP);
    let from = socket(&mut link, 0, ESP);
    send(&mut link, from, b"anybody?");
    let error = link.hosts[0].udp_error(from);
    assert_eq!(error, Some((ErrorKind::Unreachable(code::PORT_UNREACHABLE), at(B, PORT))));
    assert!(between(link.sent()).iter().all(|packet| packet[6] == protocol::ESP));
}

#[test]
fn what_came_encrypted_is_not_quoted_in_clear() {
    let mut link = pair(&esp(GCM));
    let from = socket(&mut link, 0, ESP);
    send(&mut link, from, b"a secret");
    assert_eq!(between(link.sent()).len(), 1);
    assert_eq!(dropped(&mut link, 1, DropReason::Secret), 1);
    assert_eq!(link.hosts[1].drops().of(stack::DropReason::NoSocket), 1);
}

#[test]
fn strangers_make_nobody_ask_for_associations() {
    let mut link = with_daemon();
    // A lets in what is not protected, but must not answer so.
    let rule = format!("spdadd {A} {B} any -P out ipsec ah/transport//require;");
    apply(link.now, &mut link.hosts[0], &rule);
    assert!(!link.ping(1, A));
    assert_eq!(dropped(&mut link, 0, DropReason::NotAsked), 1);
    assert_eq!(acquire(&mut link), None);
}

#[test]
fn a_path_mtu_is_believed_of_what_was_sent_protected() {
    let mut link = pair(&esp(GCM));
    let (from, to) = (socket(&mut link, 0, ESP), socket(&mut link, 1, ESP));
    send(&mut link, from, &[1; 1000]);
    let mut packet = between(link.sent()).remove(0);
    let mut error = vec![0; icmp_error::MAX_LEN];
    let mut inject = |link: &mut Link<Ipsec>, packet: &[u8]| {
        error.resize(icmp_error::MAX_LEN, 0);
        let reason = Reason::PacketTooBig { mtu: 1300 };
        let length = icmp_error::build(reason, B.into(), packet, &mut error).unwrap();
        link.inject(mac(1), mac(0), &error[..length]);
    };
    packet[43] ^= 1;
    inject(&mut link, &packet);
    assert_eq!(link.hosts[0].path_mtu(link.now, B), 1500, "an SPI that nobody has");
    packet[43] ^= 1;
    inject(&mut link, &packet);
    assert_eq!(link.hosts[0].path_mtu(link.now, B), 1300);
    received(&mut link, 1, to);
    send(&mut link, from, &[1; 1400]);
    assert_eq!(received(&mut link, 1, to).len(), 1);
    assert!(between(link.sent()).iter().all(|packet| packet.len() <= 1300));
}

/// A transport of the caller's with one socket.
struct Transport {
    socket: ipsec::policy::Socket,
    received: usize,
    errors: usize,
}

impl Upper for Transport {
    fn receive(&mut self, _: Instant, _: &Received<'_>) -> Verdict {
        self.received += 1;
        Verdict::Taken
    }

    fn error(&mut self, _: Instant, _: &ErrorReport<'_>) -> bool {
        self.errors += 1;
        true
    }

    fn socket(&self, _: &Received<'_>) -> Option<ipsec::policy::Socket> {
        Some(self.socket)
    }

    fn socket_of_error(&self, _: &ErrorReport<'_>) -> Option<ipsec::policy::Socket> {
        Some(self.socket)
    }
}

#[test]
fn a_transport_of_the_callers_has_security_for_its_sockets() {
    const EXPERIMENT: u8 = 253;
    let mut link = pair(&esp(GCM));
    assert!(link.ping(0, B), "neighbors know each other");
    let id = link.hosts[1].number_socket();
    let socket = ipsec::policy::Socket { id, levels: ESP, bypasses: false };
    let mut transport = Transport { socket, received: 0, errors: 0 };
    let outgoing = Outgoing {
        source: None,
        destination: B,
        protocol: EXPERIMENT,
        hop_limit: None,
        traffic_class: 0,
        flow_label: 0,
    };
    let mut frame = Vec::new();
    for (of_sender, expected) in [(None, 0), (Some(&socket), 1)] {
        link.hosts[0]
            .send_for(link.now, &outgoing, &[b"data"], stack::security::Sender::Own(of_sender))
            .unwrap();
        assert!(link.hosts[0].poll_transmit(&mut frame));
        link.hosts[1].receive(link.now, &frame, &mut transport);
        assert_eq!(transport.received, expected);
    }
    assert_eq!(dropped(&mut link, 1, DropReason::NotEncrypted), 1);

    link.hosts[0].send(link.now, &outgoing, &[b"in clear"]).unwrap();
    assert!(link.hosts[0].poll_transmit(&mut frame));
    let mut error = vec![0; icmp_error::MAX_LEN];
    let length = icmp_error::build(Reason::PortUnreachable, B.into(), &frame[14..], &mut error).unwrap();
    let error = crate::link::frame(mac(1), mac(0), &error[..length]);
    for (levels, expected) in [(ESP, 0), (Levels::NONE, 1)] {
        transport.socket.levels = levels;
        link.hosts[0].receive(link.now, &error, &mut transport);
        assert_eq!(transport.errors, expected);
    }
}

#[test]
fn a_daemon_is_told_of_lifetimes_and_then_there_is_no_association() {
    let mut link = pair(&format!("add {A} {B} esp 0x1000 {GCM} -ls 20 -lh 30;"));
    let from = socket(&mut link, 0, ESP);
    send(&mut link, from, b"in time");
    link.run(SECOND * 15);
    assert_eq!(link.hosts[0].security().next_event(), None);
    link.run(SECOND * 5);
    assert!(matches!(link.hosts[0].security().next_event(), Some(Event::SoftExpired(_))));
    link.run(SECOND * 10);
    assert!(matches!(link.hosts[0].security().next_event(), Some(Event::HardExpired(_))));
    assert!(link.hosts[0].udp_send(link.now, from, Some(at(B, PORT)), b"too late").is_err());
}
