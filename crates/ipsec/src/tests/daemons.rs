//! Daemons that talk PF_KEY with the key engine.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::key_engine::{KeyEngine, Lookup, Random};
use crate::pf_key::extension::{
    Address, Algorithm, Combination, Identity, Lifetime, Policy, PolicyRequest, Proposal, Sa, Sa2,
    SensitivityLevels, SpiRange,
};
use crate::pf_key::message::{Extensions, Message, MessageType, satype, state};
use crate::pf_key::{Clock, MANUAL_REQUEST_ID_MAX, PfKey, policies};
use crate::policy::PolicyDatabase;
use crate::request::{DaemonId, Request, Service, SocketId};
use crate::selector::Traffic;
use crate::setkey::{self, Command};

const RACOON: DaemonId = DaemonId(1);
const SETKEY: DaemonId = DaemonId(2);

struct Fixed;

impl Random for Fixed {
    fn next_u32(&mut self) -> u32 {
        0x1234_5678
    }
}

struct Host {
    engine: KeyEngine,
    policies: PolicyDatabase,
    pf_key: PfKey,
    clock: Clock,
}

impl Host {
    fn new() -> Self {
        let mut pf_key = PfKey::new();
        assert!(pf_key.open(RACOON) && pf_key.open(SETKEY));
        let clock = Clock { now: Instant::now(), since_1970: Duration::from_secs(1_800_000_000) };
        Self { engine: KeyEngine::new(), policies: PolicyDatabase::new(), pf_key, clock }
    }

    /// Has a daemon say something; returns who got what.
    fn say(&mut self, from: DaemonId, message: &Message) -> Vec<(DaemonId, Message)> {
        self.pf_key.handle(
            &mut self.engine,
            &mut self.policies,
            from,
            &message.to_bytes(),
            &mut Fixed,
            self.clock,
        );
        self.heard()
    }

    fn heard(&mut self) -> Vec<(DaemonId, Message)> {
        while let Some(event) = self.engine.next_event() {
            self.pf_key.tell(&event, &self.engine, self.clock);
        }
        std::iter::from_fn(|| self.pf_key.next_output())
            .map(|(daemon, bytes)| (daemon, Message::parse(&bytes).unwrap()))
            .collect()
    }

    fn passes(&mut self, time: Duration) {
        self.clock.now += time;
        self.clock.since_1970 += time;
        self.engine.handle_timeout(self.clock.now);
    }
}

fn message(message_type: MessageType, extensions: Extensions) -> Message {
    Message { message_type, errno: 0, satype: satype::ESP, sequence: 9, pid: 77, extensions }
}

fn address(address: IpAddr) -> Option<Address> {
    let prefix_length = if address.is_ipv6() { 128 } else { 32 };
    Some(Address { protocol: 0, prefix_length, address, port: 0 })
}

fn between_hosts() -> Extensions {
    let (source, destination) = hosts(true);
    Extensions {
        address_source: address(source),
        address_destination: address(destination),
        ..Extensions::default()
    }
}

fn gcm(spi: u32) -> Extensions {
    Extensions {
        sa: Some(Sa { spi, replay: 32, state: state::MATURE, encryption: 20, ..Sa::default() }),
        key_encryption: Some(Key::new(&[7; 20])),
        ..between_hosts()
    }
}

fn errnos(heard: &[(DaemonId, Message)]) -> Vec<(DaemonId, u8)> {
    heard.iter().map(|(daemon, message)| (*daemon, message.errno)).collect()
}

fn request(socket: Option<u64>) -> Request {
    Request {
        service: Service::TransportEncryption,
        traffic: Traffic::of(&packet(true, 8)).unwrap(),
        socket: socket.map(SocketId),
        is_unique: socket.is_some(),
        tunnel: None,
    }
}

#[test]
fn a_daemon_registers_is_asked_reserves_and_completes() {
    let mut host = Host::new();
    let heard = host.say(RACOON, &message(MessageType::Register, Extensions::default()));
    assert_eq!(errnos(&heard), [(RACOON, 0)], "setkey has not registered");
    let supported = heard[0].1.extensions.supported_encryption.as_ref().unwrap();
    assert!(supported.contains(&Algorithm { id: 12, iv_length: 16, min_bits: 128, max_bits: 256 }));

    let Ok(Lookup::Delayed(acquire)) = host.engine.lookup(&request(None), host.clock.now) else {
        panic!("it is delayed")
    };
    assert!(host.engine.delay(acquire, b"packet", None));
    let heard = host.heard();
    assert_eq!(errnos(&heard), [(RACOON, 0)]);
    let wanted = &heard[0].1;
    assert_eq!((wanted.message_type, wanted.sequence), (MessageType::Acquire, acquire.0));
    assert_eq!(wanted.extensions.address_destination.unwrap().address, hosts(true).1);
    assert_eq!(wanted.extensions.proposal.as_ref().unwrap().combinations[0].encryption, 20);

    let range = Extensions { spi_range: Some(SpiRange { min: 0x1000, max: 0x1fff }), ..between_hosts() };
    let heard = host.say(RACOON, &message(MessageType::GetSpi, range));
    assert_eq!(errnos(&heard), [(RACOON, 0), (SETKEY, 0)]);
    let spi = heard[0].1.extensions.sa.unwrap().spi;
    assert!((0x1000..0x2000).contains(&spi));

    let heard = host.say(RACOON, &message(MessageType::Update, gcm(spi)));
    assert_eq!(errnos(&heard), [(RACOON, 0), (SETKEY, 0)]);
    assert_eq!(heard[1].1.extensions.key_encryption, None, "keys do not come out");
    assert_eq!(host.engine.next_released().unwrap().packet, b"packet");
    assert!(matches!(host.engine.lookup(&request(None), host.clock.now), Ok(Lookup::Ready(_))));
}

#[test]
fn a_daemon_that_fails_has_what_waits_dropped() {
    let mut host = Host::new();
    host.say(RACOON, &message(MessageType::Register, Extensions::default()));
    let Ok(Lookup::Delayed(acquire)) = host.engine.lookup(&request(None), host.clock.now) else {
        panic!("it is delayed")
    };
    assert!(host.engine.delay(acquire, b"packet", None));
    let failed =
        Message { errno: 111, sequence: acquire.0, ..message(MessageType::Acquire, Extensions::default()) };
    let dropped = host.pf_key.handle(
        &mut host.engine,
        &mut host.policies,
        RACOON,
        &failed.to_bytes(),
        &mut Fixed,
        host.clock,
    );
    assert_eq!(dropped, 1);
    assert!(host.engine.wanted(acquire).is_none());
}

#[test]
fn an_association_is_added_shown_dumped_and_deleted() {
    let mut host = Host::new();
    for spi in [0x1000, 0x2000] {
        assert_eq!(errnos(&host.say(SETKEY, &message(MessageType::Add, gcm(spi)))).len(), 2);
    }
    let name = Extensions { sa: Some(Sa { spi: 0x1000, ..Sa::default() }), ..between_hosts() };
    let heard = host.say(SETKEY, &message(MessageType::Get, name.clone()));
    assert_eq!(errnos(&heard), [(SETKEY, 0)]);
    let shown = &heard[0].1.extensions;
    assert_eq!(shown.sa.map(|sa| (sa.spi, sa.encryption, sa.state)), Some((0x1000, 20, state::MATURE)));
    assert_eq!(shown.lifetime_current.unwrap().added, 1_800_000_000);
    assert_eq!(shown.key_encryption, None);

    let heard = host.say(SETKEY, &message(MessageType::Dump, Extensions::default()));
    let counted: Vec<_> = heard.iter().map(|(daemon, message)| (*daemon, message.sequence)).collect();
    assert_eq!(counted, [(SETKEY, 1), (SETKEY, 0)]);

    assert_eq!(errnos(&host.say(RACOON, &message(MessageType::Delete, name.clone()))).len(), 2);
    let gone = host.say(RACOON, &message(MessageType::Delete, name));
    assert_eq!(errnos(&gone), [(RACOON, 3)]);
    host.say(
        RACOON,
        &Message { satype: satype::UNSPECIFIED, ..message(MessageType::Flush, Extensions::default()) },
    );
    assert_eq!(errnos(&host.say(SETKEY, &message(MessageType::Dump, Extensions::default()))), [(SETKEY, 3)]);
}

#[test]
fn what_is_wrong_is_answered_to_its_sender_alone_with_the_rfcs_number() {
    let mut host = Host::new();
    host.say(RACOON, &message(MessageType::Add, gcm(0x1000)));
    let wrong = [
        (gcm(0x1000), 17, "it is there"),
        (gcm(255), 22, "a reserved SPI"),
        (Extensions { key_encryption: None, ..gcm(0x1001) }, 22, "no key"),
        (Extensions { key_encryption: Some(Key::new(&[7; 16])), ..gcm(0x1001) }, 22, "no salt"),
        (Extensions { sa: None, ..gcm(0x1001) }, 22, "no SA"),
        (Extensions { address_source: None, ..gcm(0x1001) }, 22, "no source"),
        (Extensions { address_source: address(hosts(false).0), ..gcm(0x1001) }, 22, "of different versions"),
        (
            Extensions { sa: Some(Sa { state: state::LARVAL, ..gcm(0x1001).sa.unwrap() }), ..gcm(0x1001) },
            22,
            "not mature",
        ),
        (Extensions { sa2: Some(Sa2 { mode: 3, ..Sa2::default() }), ..gcm(0x1001) }, 22, "no mode"),
        (Extensions { nat_t_type: Some(2), ..gcm(0x1001) }, 22, "no ports"),
    ];
    for (extensions, errno, why) in wrong {
        let heard = host.say(RACOON, &message(MessageType::Add, extensions));
        assert_eq!(errnos(&heard), [(RACOON, errno)], "{why}");
        assert_eq!((heard[0].1.sequence, heard[0].1.pid), (9, 77));
        assert_eq!(heard[0].1.extensions, Extensions::default());
    }
    let of_no_protocol = Message { satype: satype::UNSPECIFIED, ..message(MessageType::Add, gcm(0x1001)) };
    assert_eq!(errnos(&host.say(RACOON, &of_no_protocol)), [(RACOON, 22)]);
    let unknown = message(MessageType::Update, gcm(0x3000));
    assert_eq!(errnos(&host.say(RACOON, &unknown)), [(RACOON, 3)]);
}

#[test]
fn what_is_no_message_is_answered_with_einval_and_a_wrong_length_with_emsgsize() {
    let mut host = Host::new();
    let good = message(MessageType::Add, gcm(0x1000)).to_bytes();
    let mut version = good.clone();
    version[0] = 1;
    let mut long = good.clone();
    long[4] = 200;
    let mut kind = good.clone();
    kind[1] = 99;
    let mut empty_extension = good.clone();
    empty_extension[16] = 0;
    let mut twice = message(MessageType::Add, between_hosts()).to_bytes();
    let extension = twice[16..].to_vec();
    twice.extend(extension);
    let units = (twice.len() / 8) as u16;
    twice[4..6].copy_from_slice(&units.to_ne_bytes());
    let mut cut = good.clone();
    cut.truncate(good.len() - 8);
    let (einval, emsgsize) = (22, 90);
    for (bytes, errno) in [
        (version, einval),
        (long, emsgsize),
        (cut, emsgsize),
        (kind, einval),
        (empty_extension, einval),
        (twice, einval),
    ] {
        host.pf_key.handle(&mut host.engine, &mut host.policies, RACOON, &bytes, &mut Fixed, host.clock);
        let (daemon, answer) = host.pf_key.next_output().unwrap();
        assert_eq!((daemon, answer[2], answer.len()), (RACOON, errno, 16));
        assert_eq!(host.pf_key.next_output(), None);
    }
    host.pf_key.handle(&mut host.engine, &mut host.policies, RACOON, &good[..15], &mut Fixed, host.clock);
    assert_eq!(host.pf_key.next_output(), None, "nothing to answer with");
    assert_eq!(host.engine.associations().count(), 0);
}

#[test]
fn all_daemons_are_told_of_the_end_of_lifetimes_registered_or_not() {
    let mut host = Host::new();
    host.say(RACOON, &message(MessageType::Register, Extensions::default()));
    let lifetimes = Extensions {
        lifetime_soft: Some(Lifetime { added: 60, ..Lifetime::default() }),
        lifetime_hard: Some(Lifetime { added: 90, ..Lifetime::default() }),
        ..gcm(0x1000)
    };
    host.say(RACOON, &message(MessageType::Add, lifetimes));
    host.passes(Duration::from_secs(60));
    let heard = host.heard();
    assert_eq!(errnos(&heard), [(RACOON, 0), (SETKEY, 0)]);
    assert_eq!(heard[0].1.message_type, MessageType::Expire);
    assert_eq!(heard[0].1.extensions.lifetime_soft.unwrap().added, 60);
    assert_eq!(heard[0].1.extensions.lifetime_current.unwrap().added, 1_800_000_000);
    host.pf_key.close(SETKEY, &mut host.engine);
    host.passes(Duration::from_secs(30));
    let heard = host.heard();
    assert_eq!(errnos(&heard), [(RACOON, 0)]);
    assert!(heard[0].1.extensions.lifetime_hard.is_some());
    assert_eq!(host.engine.associations().count(), 0);
}

#[test]
fn an_update_of_what_is_used_changes_lifetimes_and_never_its_numbers() {
    let mut host = Host::new();
    host.say(RACOON, &message(MessageType::Add, gcm(0x1000)));
    let (id, _) = host.engine.associations().next().unwrap();
    let now = host.clock.now;
    seal(host.engine.get_mut(id).unwrap(), &packet(true, 8), now).unwrap();
    let longer =
        Extensions { lifetime_hard: Some(Lifetime { added: 90, ..Lifetime::default() }), ..gcm(0x1000) };
    assert_eq!(errnos(&host.say(RACOON, &message(MessageType::Update, longer))).len(), 2);
    let association = host.engine.get(id).unwrap();
    assert_eq!(association.last_sent().0, 1);
    assert_eq!(host.engine.deadline(), Some(now + Duration::from_secs(90)));
}

#[test]
fn a_sockets_own_association_is_asked_for_and_added_by_request_number() {
    let mut host = Host::new();
    host.say(RACOON, &message(MessageType::Register, Extensions::default()));
    let wish = request(Some(5));
    assert!(matches!(host.engine.lookup(&wish, host.clock.now), Ok(Lookup::Delayed(_))));
    let heard = host.heard();
    let asked = &heard[0].1.extensions;
    assert_eq!(asked.sa2.unwrap().request_id, MANUAL_REQUEST_ID_MAX + 1 + 5);
    assert_eq!(asked.address_source.unwrap().port, 4000);
    host.say(RACOON, &message(MessageType::Add, Extensions { sa2: asked.sa2, ..gcm(0x1000) }));
    assert!(host.engine.available(&wish, host.clock.now).is_some());
    assert!(host.engine.available(&request(None), host.clock.now).is_none());
}

#[test]
fn a_message_has_the_layout_of_linux() {
    let bytes = message(MessageType::Add, gcm(0x1000)).to_bytes();
    let sa_at = 16;
    assert_eq!(bytes[..4], [2, 3, 0, 3]);
    assert_eq!(bytes[sa_at..sa_at + 4], [2u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
    assert_eq!(bytes[sa_at + 4..sa_at + 12], [0, 0, 0x10, 0, 32, 1, 0, 20]);
    // sadb_address with sockaddr_in6: 8 + 28, padded to 40.
    assert_eq!(bytes[32..36], [5u16.to_ne_bytes(), 5u16.to_ne_bytes()].concat());
    assert_eq!(bytes[40..42], 10u16.to_ne_bytes());
    assert_eq!(bytes[48..52], [0x20, 0x01, 0x0d, 0xb8]);
    // sadb_key: 8 + 20, padded to 32.
    let key_at = 32 + 80;
    assert_eq!(bytes[key_at..key_at + 4], [4u16.to_ne_bytes(), 9u16.to_ne_bytes()].concat());
    assert_eq!(bytes[key_at + 4..key_at + 6], 160u16.to_ne_bytes());
    assert_eq!(bytes.len(), key_at + 32);
}

#[test]
fn each_extension_comes_back_as_it_was() {
    let lifetime = Lifetime { allocations: 1, bytes: 2, added: 3, used: 4 };
    let (from, to) = (hosts(false).0, hosts(false).1);
    let tunnel = PolicyRequest { protocol: 50, mode: 2, level: 3, request_id: 9, ends: Some((from, to)) };
    let plain = PolicyRequest { protocol: 51, mode: 1, level: 2, request_id: 0, ends: None };
    let requests = vec![tunnel, plain, PolicyRequest { ends: Some(hosts(true)), ..tunnel }];
    let identity = Identity { kind: 2, id: 5, name: b"peer.example\0\0\0\0".to_vec() };
    let all = Extensions {
        lifetime_current: Some(lifetime),
        lifetime_hard: Some(lifetime),
        lifetime_soft: Some(lifetime),
        address_proxy: address(hosts(false).0),
        key_authentication: Some(Key::new(&[1; 48])),
        identity_source: Some(identity.clone()),
        identity_destination: Some(identity),
        sensitivity: Some(SensitivityLevels { domain: 1, sensitivity: 2, integrity: 3 }),
        proposal: Some(Proposal {
            replay: 32,
            combinations: vec![Combination {
                authentication: 5,
                encryption: 12,
                flags: 1,
                authentication_bits: (256, 256),
                encryption_bits: (128, 256),
                soft: lifetime,
                hard: Lifetime { bytes: 9, ..lifetime },
            }],
        }),
        supported_authentication: Some(vec![Algorithm { id: 5, iv_length: 0, min_bits: 256, max_bits: 256 }]),
        supported_encryption: Some(vec![]),
        spi_range: Some(SpiRange { min: 1, max: 2 }),
        policy: Some(Policy { kind: 2, direction: 1, id: 8, priority: 3, requests }),
        sa2: Some(Sa2 { mode: 2, sequence: 1, request_id: 4 }),
        nat_t_type: Some(2),
        nat_t_source_port: Some(4500),
        nat_t_destination_port: Some(4501),
        nat_t_original_address: address(hosts(true).0),
        ..gcm(0x1000)
    };
    let message = message(MessageType::Dump, all);
    assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
}

#[test]
fn policies_are_put_in_shown_and_taken_away() {
    let mut host = Host::new();
    let rule = |text: &str| match setkey::parse(text).unwrap().pop() {
        Some(Command::PolicyAdd(rule)) => rule,
        _ => panic!("a policy"),
    };
    let web = rule("spdadd 2001:db8:a::/48 2001:db8:b::/48[80] tcp -P out ipsec esp/transport//require;");
    let rest = rule("spdadd ::/0 ::/0 any -P in discard;");
    for rule in [&web, &rest] {
        let add = message(MessageType::PolicyAdd, policies::extensions(rule).unwrap());
        assert_eq!(errnos(&host.say(SETKEY, &add)), [(RACOON, 0), (SETKEY, 0)]);
        assert_eq!(errnos(&host.say(SETKEY, &add)), [(SETKEY, 17)]);
    }
    assert_eq!(host.policies.rules(), [web.clone(), rest.clone()]);
    let heard = host.say(RACOON, &message(MessageType::PolicyDump, Extensions::default()));
    let shown: Vec<_> =
        heard.iter().map(|(_, message)| policies::rule(&message.extensions).unwrap()).collect();
    assert_eq!((shown, heard[1].1.sequence), (vec![web.clone(), rest], 0));
    let delete = message(MessageType::PolicyDelete, policies::extensions(&web).unwrap());
    assert_eq!(errnos(&host.say(SETKEY, &delete)), [(RACOON, 0), (SETKEY, 0)]);
    assert_eq!(errnos(&host.say(SETKEY, &delete)), [(SETKEY, 2)]);
    let mut without_requests = policies::extensions(&web).unwrap();
    without_requests.policy.as_mut().unwrap().requests.clear();
    let add = message(MessageType::PolicyAdd, without_requests);
    assert_eq!(errnos(&host.say(SETKEY, &add)), [(SETKEY, 22)], "it would let pass what it is to protect");
    assert_eq!(errnos(&host.say(SETKEY, &message(MessageType::PolicyFlush, Extensions::default()))).len(), 2);
    assert!(host.policies.rules().is_empty());
}

#[test]
fn daemons_cannot_put_in_policies_without_end() {
    let mut host = Host::new();
    for number in 0..=policies::MAX_POLICIES as u32 {
        let address = Address {
            protocol: 255,
            prefix_length: 32,
            address: std::net::Ipv4Addr::from(number).into(),
            port: 0,
        };
        let extensions = Extensions {
            address_source: Some(address),
            address_destination: Some(address),
            policy: Some(Policy { direction: 1, ..Policy::default() }),
            ..Extensions::default()
        };
        let errno = if number < policies::MAX_POLICIES as u32 { 0 } else { 105 };
        assert_eq!(
            host.say(SETKEY, &message(MessageType::PolicyAdd, extensions)).pop().unwrap().1.errno,
            errno
        );
    }
}

#[test]
fn who_listens_to_all_hears_what_others_are_told_and_no_keys() {
    let mut host = Host::new();
    host.say(RACOON, &message(MessageType::Register, Extensions::default()));
    let listen = Message { satype: 1, ..message(MessageType::Promiscuous, Extensions::default()) };
    assert_eq!(errnos(&host.say(SETKEY, &listen)), [(SETKEY, 0)]);
    assert!(matches!(host.engine.lookup(&request(None), host.clock.now), Ok(Lookup::Delayed(_))));
    assert_eq!(errnos(&host.heard()), [(RACOON, 0), (SETKEY, 0)]);
    let heard = host.say(RACOON, &message(MessageType::Add, gcm(0x1000)));
    assert!(heard.iter().all(|(_, message)| message.extensions.key_encryption.is_none()));
    assert_eq!(host.engine.daemons(crate::association::Protocol::Esp).count(), 1, "it makes no associations");
}

#[test]
fn a_daemon_that_does_not_read_has_overrun() {
    let mut host = Host::new();
    let flush = message(MessageType::Flush, Extensions::default()).to_bytes();
    for _ in 0..crate::pf_key::MAX_QUEUED {
        host.pf_key.handle(&mut host.engine, &mut host.policies, RACOON, &flush, &mut Fixed, host.clock);
        host.pf_key.sent(RACOON);
    }
    assert!(!host.pf_key.has_overrun(SETKEY));
    host.pf_key.handle(&mut host.engine, &mut host.policies, RACOON, &flush, &mut Fixed, host.clock);
    assert!(host.pf_key.has_overrun(SETKEY) && !host.pf_key.has_overrun(RACOON));
}

#[test]
fn lengths_of_keys_are_shown_and_all_between_two_ends_are_taken_away() {
    let mut host = Host::new();
    for spi in [0x1000, 0x2000] {
        host.say(SETKEY, &message(MessageType::Add, gcm(spi)));
    }
    let heard = host.say(SETKEY, &message(MessageType::Dump, Extensions::default()));
    let shown = heard[0].1.extensions.supported_encryption.as_ref().unwrap()[0];
    assert_eq!((shown.id, shown.min_bits, shown.max_bits), (20, 160, 160));
    assert_eq!(errnos(&host.say(SETKEY, &message(MessageType::Delete, between_hosts()))).len(), 2);
    assert_eq!(host.engine.associations().count(), 0);
    assert_eq!(errnos(&host.say(SETKEY, &message(MessageType::Delete, between_hosts()))), [(SETKEY, 3)]);
}

/// Messages that are nearly right: extensions of all types with any content.
fn nearly_messages() -> impl Strategy<Value = Vec<u8>> {
    let extension = (1u16..26, proptest::collection::vec(any::<u8>(), 0..90), 0u8..3);
    (1u8..20, 0u8..5, proptest::collection::vec(extension, 0..6)).prop_map(|(kind, satype, extensions)| {
        let mut bytes = vec![2, kind, 0, satype, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        for (kind, mut body, family) in extensions {
            body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
            if body.len() > 6 && family > 0 {
                body[4..6].copy_from_slice(&if family == 1 { 2u16 } else { 10 }.to_ne_bytes());
            }
            bytes.extend((((body.len() + 4) / 8) as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(body);
        }
        let units = (bytes.len() / 8) as u16;
        bytes[4..6].copy_from_slice(&units.to_ne_bytes());
        bytes
    })
}

proptest! {
    #[test]
    fn no_message_panics(bytes in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        nearly_messages(),
    ]) {
        let mut host = Host::new();
        host.pf_key.handle(&mut host.engine, &mut host.policies, RACOON, &bytes, &mut Fixed, host.clock);
        while host.pf_key.next_output().is_some() {}
    }

    #[test]
    fn what_is_read_is_written_and_read_as_the_same(bytes in nearly_messages()) {
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
    }
}
