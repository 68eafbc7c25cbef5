//! Sessions of this implementation send and take the datagrams of the vectors.

use std::ops::Range;

use wire::ecn::Ecn;
use wire::virtio_net;

use super::datagrams::{self, CONTEXT, DELIVERED, ELIDED, FULL, IPV4, LANE};
use super::{handshake, net};
use crate::config::{Padding, Shape};
use crate::control::Control;
use crate::deliver::{Deliver, Discard};
use crate::drops::DropReason;
use crate::env::{Env, Identity};
use crate::host_interface::{Action, HostInterface};
use crate::id::{EndpointId, PairingId, PeerId};
use crate::keys::Role;
use crate::offer::Cipher;
use crate::outbox::Outbox;
use crate::received::Received;
use crate::routes::Routes;
use crate::session::seal::{COUNTER, OpeningKey, SealingKey, TAG};
use crate::session::{Learned, NewSession, Session, Terms};
use crate::time::{Now, Time};

const NOW: Time = Time::from_micros(1_000_000);

#[derive(Default)]
struct Delivered(Vec<String>);

impl Deliver for Delivered {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.push(hex::encode(header) + &hex::encode(&arena[rest]));
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.0.push(hex::encode(packet));
    }
}

/// Whose the session is says nothing about its datagrams.
fn identity() -> Identity {
    Identity {
        hop_prefix: net("2001:db8:a1::/64"),
        link_mtu: 1500,
        hardware_aes: false,
        addresses: Vec::new(),
        rekey_after: crate::config::REKEY_AFTER,
        turn: None,
    }
}

/// The session of the vectors, begun by `L`, as one end has it.
struct End {
    session: Session,
    host: HostInterface,
    outbox: Outbox,
}

impl End {
    fn new(role: Role, cipher: Cipher) -> Self {
        let (l, h) = ("2001:db8:a::1".parse().unwrap(), "2001:db8:b::1".parse().unwrap());
        let (prefix_l, prefix_h) = (net("2001:db8:a1::/64"), net("2001:db8:f1::/48"));
        let at_l = role == Role::L;
        let terms = Terms {
            cipher,
            rotation: std::time::Duration::from_secs(10),
            lanes: 1,
            padding: Padding::None,
            shape: Shape::None,
            local_prefix: if at_l { prefix_l } else { prefix_h },
            remote_prefix: if at_l { prefix_h } else { prefix_l },
            mtu: 1500,
            contexts: 1024,
            rekey_after: crate::config::REKEY_AFTER,
            rewrite: false,
            mask: None,
            turn: None,
            stream: Some(if at_l { (l, h) } else { (h, l) }),
        };
        let (_, secret) = handshake(Role::L);
        let mut host = HostInterface::new(|| [0; 32]);
        let new = NewSession {
            peer: PeerId(0),
            name: "peer",
            pairing: PairingId::default(),
            role,
            initiated_by: Role::L,
            secret: &secret,
            terms,
            round_trip: None,
            learned: Learned::default(),
            keepalive: None,
            budget: &mut None,
            masked: Vec::new(),
        };
        let mut session = Session::begin(new, NOW, &mut host);
        let Some(Action::Open { id, .. }) = host.next_action() else { panic!("the first lane's endpoint") };
        session.opened(id, NOW);
        if !at_l {
            session.answered(NOW);
        }
        End { session, host, outbox: Outbox::new() }
    }

    fn receive(&mut self, datagram: &[u8], delivered: &mut Delivered) -> Result<(), DropReason> {
        let mut arena = datagram.to_vec();
        let (endpoint, source) = (EndpointId { slot: 0, serial: 0 }, "[2001:db8::1]:1024".parse().unwrap());
        let (at, segment) = (0..arena.len(), arena.len());
        let received = Received { endpoint, source, ecn: Ecn::NotEct, at, segment };
        let everywhere = ["::/0", "0.0.0.0/0"].map(|net| net.parse().unwrap());
        let routes =
            Routes::new([(PeerId(0), everywhere.as_slice())], "2001:db8:ffff::/64".parse().unwrap(), []);
        let End { session, host, outbox } = self;
        let receiver = session.receiver(LANE).unwrap().clone();
        let (before, mut punted) = (session.activity.drops.get(), Vec::new());
        receiver.receive(&mut arena, &received, &routes, NOW, delivered, &mut punted);
        let (own, now) = (&identity(), Now { boot: NOW, unix_ms: 0 });
        let mut env = Env { own, routes: &routes, now, host, outbox, deliver: delivered };
        for inner in punted {
            session.receive(&receiver, &mut arena, inner, Ecn::NotEct, &mut env)?;
        }
        let drops = session.activity.drops.get();
        let dropped = DropReason::ALL.into_iter().find(|reason| drops.of(*reason) > before.of(*reason));
        dropped.map_or(Ok(()), Err)
    }

    fn send(&mut self, packet: &str) {
        let mut packet = hex::decode(packet).unwrap();
        let End { session, host, outbox } = self;
        let (own, routes, now) = (&identity(), &Routes::default(), Now { boot: NOW, unix_ms: 0 });
        let mut env = Env { own, routes, now, host, outbox, deliver: &mut Discard };
        session.send(&virtio_net::Header::NONE, &mut packet, &mut env).unwrap();
    }
}

#[test]
fn a_session_takes_the_datagrams_of_the_vectors_once() {
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        let mut end = End::new(Role::H, cipher);
        let mut delivered = Delivered::default();
        for case in datagrams::sealed_with(cipher) {
            let datagram = hex::decode(case["then"]["datagram"].as_str().unwrap()).unwrap();
            assert_eq!(end.receive(&datagram, &mut delivered), Ok(()), "{case}");
            assert!(matches!(end.receive(&datagram, &mut delivered), Err(DropReason::Replayed)));
        }
        assert_eq!(delivered.0, DELIVERED);
    }
}

#[test]
fn a_session_sends_inner_packets_in_the_forms_of_the_vectors() {
    let cipher = Cipher::ChaCha20Poly1305;
    let mut end = End::new(Role::L, cipher);
    end.send(ELIDED);
    end.send(IPV4);
    end.send(FULL);
    for _ in 0..3 {
        end.send(CONTEXT);
    }
    let (_, secret) = handshake(Role::L);
    let keys = secret.lanes(Role::H);
    let answers = SealingKey::new(cipher, &keys.data(LANE), &keys.header(LANE), None);
    let known = datagrams::control(&Control::ContextKnown { context: 1 }, 1, 0);
    let mut datagram = [&[0; COUNTER], known.as_slice(), &[0; TAG]].concat();
    assert!(answers.seal(&mut datagram));
    end.receive(&datagram, &mut Delivered::default()).unwrap();
    end.send(CONTEXT);

    let keys = secret.lanes(Role::L);
    let mut key = OpeningKey::new(cipher, &keys.data(LANE), &keys.header(LANE), None);
    let mut inners = Vec::new();
    for (batch, bytes) in end.outbox.batches() {
        for datagram in bytes.chunks(batch.segment) {
            let mut copy = datagram.to_vec();
            let length = key.open(&mut copy).unwrap();
            inners.push(copy[COUNTER..COUNTER + length].to_vec());
        }
    }
    for (form, context, packet) in
        [("elided", None, ELIDED), ("ipv4", None, IPV4), ("full", None, FULL), ("context", Some(1), CONTEXT)]
    {
        assert!(inners.contains(&datagrams::inner(form, context, packet, 0)), "{form}");
    }
    let (source, destination) = datagrams::context_pair();
    let announcement = Control::Context { context: 1, retires: 0, source, destination };
    let announcement = datagrams::control(&announcement, 1, 0);
    assert!(inners.iter().any(|inner| inner.starts_with(&announcement)), "the context was announced");
}

#[test]
fn the_full_form_carries_ipv6_alone() {
    let cipher = Cipher::Aes256Gcm;
    let mut end = End::new(Role::H, cipher);
    let (_, secret) = handshake(Role::L);
    let keys = secret.lanes(Role::L);
    let key = SealingKey::new(cipher, &keys.data(LANE), &keys.header(LANE), None);
    let ipv4 = format!("45000030{}", "00".repeat(44));
    let mut outcomes = Vec::new();
    for packet in [FULL, &ipv4] {
        let inner = datagrams::inner("full", None, packet, 0);
        let mut datagram = [&[0; COUNTER], inner.as_slice(), &[0; TAG]].concat();
        assert!(key.seal(&mut datagram));
        outcomes.push(end.receive(&datagram, &mut Delivered::default()));
    }
    assert_eq!(outcomes, [Ok(()), Err(DropReason::Malformed)]);
}
