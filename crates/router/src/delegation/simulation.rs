//! A client and a server over a lossy link, in virtual time.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use wire::dhcpv6::{Builder, DelegatedPrefix, Delegation, Message, MessageType, StatusCode};

use super::{Client, Lease, LeasedPrefix, Received, Settings};
use crate::lifetime::Lifetime;

const DUID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const IAID: u32 = 1;

/// A server that gives out one prefix for so many seconds.
#[derive(Clone)]
struct Server {
    id: Vec<u8>,
    preference: u8,
    prefix: DelegatedPrefix,
    rapid: bool,
    /// Whether it remembers what it gave before.
    remembers: bool,
    /// Renewed prefixes that it takes back.
    takes_back: bool,
    /// Says instead of giving anything.
    refuses: Option<(StatusCode, &'static str)>,
}

impl Server {
    fn new(id: u8, third: u16) -> Self {
        let prefix = DelegatedPrefix {
            prefix: std::net::Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, 0),
            prefix_length: 56,
            preferred_lifetime: 1_800,
            valid_lifetime: 3_600,
        };
        Server {
            id: vec![id],
            preference: 0,
            prefix,
            rapid: false,
            remembers: true,
            takes_back: false,
            refuses: None,
        }
    }

    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let message = Message::parse(bytes).unwrap();
        let asked = message.message_type();
        if message.server_id().is_some_and(|server| server != self.id) {
            return None;
        }
        let rapid = self.rapid && message.rapid_commit();
        let kind = match asked {
            MessageType::Solicit if !rapid => MessageType::Advertise,
            _ => MessageType::Reply,
        };
        let mut answer =
            Delegation { iaid: IAID, t1: 0, t2: 0, prefixes: vec![self.prefix], status: StatusCode::Success };
        let extends = matches!(asked, MessageType::Renew | MessageType::Rebind);
        if extends && !self.remembers {
            answer = Delegation { prefixes: Vec::new(), status: StatusCode::NoBinding, ..answer };
        } else if extends && self.takes_back {
            let old = message.delegation(IAID).unwrap().prefixes[0];
            answer.prefixes.push(DelegatedPrefix { preferred_lifetime: 0, valid_lifetime: 0, ..old });
        }
        let mut builder = Builder::new(kind, message.transaction())
            .client_id(message.client_id().unwrap())
            .server_id(&self.id)
            .preference(self.preference);
        builder = match self.refuses {
            Some((status, words)) => builder.status(status, words),
            None => builder.delegation(&answer),
        };
        if rapid && asked == MessageType::Solicit {
            builder = builder.rapid_commit();
        }
        Some(builder.finish())
    }
}

/// The link: what is sent, and who answers.
struct Scene {
    start: Instant,
    now: Instant,
    client: Client,
    servers: Vec<Server>,
    /// Datagrams of both directions are lost when this says so.
    lost: Box<dyn FnMut() -> bool>,
    sent: Vec<(u64, MessageType)>,
    random: u64,
}

fn settings() -> Settings {
    Settings { duid: DUID.to_vec(), iaid: IAID, prefix_length_hint: Some(56), aftr: false }
}

impl Scene {
    fn new(servers: Vec<Server>) -> Self {
        let now = Instant::now();
        let client = Client::new(settings(), now, 0);
        Scene { start: now, now, client, servers, lost: Box::new(|| false), sent: Vec::new(), random: 1 }
    }

    /// Until so many seconds after the start.
    fn run(&mut self, until: u64) {
        let end = self.start + Duration::from_secs(until);
        while let Some(next) = self.client.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut turns = 0;
            while let Some(datagram) = self.client.poll(self.now, self.random) {
                let kind = Message::parse(&datagram).unwrap().message_type();
                self.sent.push(((self.now - self.start).as_secs(), kind));
                for server in &self.servers {
                    if (self.lost)() {
                        continue;
                    }
                    if let Some(answer) = server.answer(&datagram).filter(|_| !(self.lost)()) {
                        self.client.handle_datagram(&answer, self.now, self.random >> 1);
                    }
                }
                turns += 1;
                assert!(turns < 10, "it sends without an end");
            }
            assert!(
                self.client.deadline().is_none_or(|deadline| deadline > self.now),
                "nothing is done in time"
            );
        }
        self.now = end;
    }

    fn prefix(&self) -> Option<String> {
        self.client.lease().map(|lease: &Lease| lease.prefixes[0].prefix.to_string())
    }

    /// Prefixes that new connections may be from.
    fn preferred(&self) -> Vec<String> {
        let prefixes = self.client.lease().into_iter().flat_map(|lease| &lease.prefixes);
        let preferred = prefixes.filter(|leased| !leased.preferred.is_expired(self.now));
        preferred.map(|leased| leased.prefix.to_string()).collect()
    }

    fn kinds(&self) -> Vec<MessageType> {
        self.sent.iter().map(|(_, kind)| *kind).collect()
    }
}

#[test]
fn four_messages_make_a_lease_which_is_renewed_at_half_its_time() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    assert_eq!(scene.kinds(), [MessageType::Solicit, MessageType::Request]);
    assert_eq!(scene.prefix().as_deref(), Some("2001:db8:1::/56"));
    scene.run(1_000);
    assert_eq!(scene.kinds()[2..], [MessageType::Renew]);
    let at = scene.sent[2].0;
    assert!((900..=903).contains(&at), "{at}");
}

#[test]
fn two_messages_are_enough_for_a_server_that_commits_rapidly() {
    let mut scene = Scene::new(vec![Server { rapid: true, ..Server::new(1, 1) }]);
    scene.run(10);
    assert_eq!(scene.kinds(), [MessageType::Solicit]);
    assert!(scene.prefix().is_some());
}

#[test]
fn the_server_that_wants_most_to_be_chosen_is_chosen() {
    let mut scene = Scene::new(vec![
        Server::new(1, 1),
        Server { preference: 9, ..Server::new(2, 2) },
        Server { preference: 3, ..Server::new(3, 3) },
    ]);
    scene.run(10);
    assert_eq!(scene.prefix().as_deref(), Some("2001:db8:2::/56"));
}

#[test]
fn without_a_server_it_asks_ever_more_seldom() {
    let mut scene = Scene::new(Vec::new());
    scene.run(24 * 3_600);
    assert!(scene.kinds().iter().all(|kind| *kind == MessageType::Solicit));
    assert!((30..45).contains(&scene.sent.len()), "{}", scene.sent.len());
    scene.servers.push(Server::new(1, 1));
    scene.run(26 * 3_600);
    assert!(scene.prefix().is_some());
}

#[test]
fn a_client_that_waits_knows_how_long_and_what_servers_say() {
    let mut scene = Scene::new(Vec::new());
    scene.run(40);
    let wait = scene.client.wait().unwrap();
    assert_eq!((wait.since, &wait.answer), (scene.start, &None));
    let says = (StatusCode::NoPrefixAvail, "no contract");
    scene.servers.push(Server { refuses: Some(says), ..Server::new(1, 1) });
    scene.run(200);
    let wait = scene.client.wait().unwrap();
    assert_eq!((wait.since, &wait.answer), (scene.start, &Some((says.0, says.1.to_owned()))));
    scene.servers[0].refuses = None;
    scene.run(600);
    assert_eq!((scene.client.wait(), scene.prefix().is_some()), (None, true));
    scene.servers.clear();
    scene.run(4_300);
    assert!(scene.client.wait().is_some_and(|wait| wait.since > scene.start && wait.answer.is_none()));
}

#[test]
fn when_its_server_is_gone_another_one_extends_the_lease() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    scene.servers[0].id = vec![2];
    scene.run(1_700);
    assert!(scene.kinds()[2..].contains(&MessageType::Renew));
    assert_eq!(scene.kinds().last(), Some(&MessageType::Rebind));
    assert_eq!(scene.client.lease().unwrap().server, [2]);
}

#[test]
fn when_all_servers_are_gone_the_lease_ends_when_it_was_to_end() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    scene.servers.clear();
    scene.run(3_590);
    assert!(scene.prefix().is_some());
    scene.run(3_610);
    assert_eq!(scene.prefix(), None);
    assert_eq!(scene.kinds().last(), Some(&MessageType::Solicit));
}

#[test]
fn a_server_that_has_forgotten_is_asked_for_the_same_prefix() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    scene.servers[0].remembers = false;
    scene.run(1_000);
    assert_eq!(scene.kinds()[2..], [MessageType::Renew, MessageType::Request]);
    assert_eq!(scene.prefix().as_deref(), Some("2001:db8:1::/56"));
}

/// Days, so that nothing is over by itself.
fn long(server: Server) -> Server {
    let prefix = DelegatedPrefix { preferred_lifetime: 86_400, valid_lifetime: 10 * 86_400, ..server.prefix };
    Server { prefix, ..server }
}

#[test]
fn a_prefix_that_its_server_has_forgotten_is_not_preferred_beside_the_new_one() {
    let mut scene = Scene::new(vec![long(Server::new(1, 1))]);
    scene.run(10);
    scene.servers[0] = long(Server { remembers: false, ..Server::new(1, 2) });
    scene.run(43_300);
    assert_eq!(scene.kinds()[2..], [MessageType::Renew, MessageType::Request]);
    assert_eq!(scene.preferred(), ["2001:db8:2::/56"]);
    // What has begun may go on for a while, if somebody still routes it.
    assert_eq!(scene.client.lease().unwrap().prefixes.len(), 2);
    scene.run(43_300 + 7_200);
    assert_eq!(scene.client.lease().unwrap().prefixes.len(), 1);
}

#[test]
fn a_prefix_that_another_server_does_not_mention_is_not_preferred_beside_its_own() {
    let mut scene = Scene::new(vec![long(Server::new(1, 1))]);
    scene.run(10);
    scene.servers[0] = long(Server::new(2, 2));
    scene.client.handle_link_up(scene.now, 5);
    scene.run(20);
    assert_eq!(
        (scene.kinds()[2..].to_vec(), scene.preferred()),
        (vec![MessageType::Rebind], vec!["2001:db8:2::/56".into()])
    );
    // Its own server may give one more.
    scene.servers[0] = long(Server::new(2, 3));
    scene.client.handle_link_up(scene.now, 5);
    scene.run(30);
    assert_eq!(scene.preferred(), ["2001:db8:3::/56", "2001:db8:2::/56"]);
}

#[test]
fn a_server_that_takes_something_else_back_is_asked_again_before_the_lease_ends() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    let ours = scene.servers[0].clone();
    scene.servers[0] = Server::new(1, 9);
    let prefix = &mut scene.servers[0].prefix;
    (prefix.preferred_lifetime, prefix.valid_lifetime) = (0, 0);
    scene.run(950);
    assert_eq!(scene.prefix().as_deref(), Some("2001:db8:1::/56"));
    scene.servers[0] = ours;
    scene.run(3_650);
    assert!(!scene.kinds()[2..].contains(&MessageType::Solicit), "{:?}", scene.kinds());
    assert_eq!(scene.prefix().as_deref(), Some("2001:db8:1::/56"));
}

#[test]
fn a_prefix_that_is_taken_back_is_gone_at_once() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    scene.servers[0] = Server { takes_back: true, ..Server::new(1, 2) };
    scene.run(1_000);
    let lease = scene.client.lease().unwrap();
    assert_eq!(
        lease.prefixes.iter().map(|leased| leased.prefix.to_string()).collect::<Vec<_>>(),
        ["2001:db8:2::/56"]
    );
}

#[test]
fn after_a_restart_the_lease_is_confirmed_and_used_even_without_an_answer() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    let lease = scene.client.lease().unwrap().clone();
    scene.client = Client::resume(settings(), lease.clone(), scene.now, 0);
    scene.sent.clear();
    scene.servers.clear();
    scene.run(100);
    assert!(scene.kinds().iter().all(|kind| *kind == MessageType::Rebind));
    let in_haste = scene.sent.iter().filter(|(at, _)| *at < 20).count();
    assert!((4..=5).contains(&in_haste) && scene.sent.len() < 12, "{:?}", scene.sent);
    assert_eq!(scene.client.lease(), Some(&lease));
}

#[test]
fn a_lease_that_nobody_confirms_is_asked_about_until_somebody_answers() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    let lease = scene.client.lease().unwrap().clone();
    // As it is remembered where the clock was set back meanwhile.
    let years = Lifetime::Until(scene.now + Duration::from_secs(10 * 365 * 86_400));
    let prefixes =
        lease.prefixes.iter().map(|leased| LeasedPrefix { preferred: years, valid: years, ..*leased });
    let lease = Lease { prefixes: prefixes.collect(), renew: years, rebind: years, ..lease };
    scene.client = Client::resume(settings(), lease, scene.now, 0);
    scene.servers.clear();
    scene.run(130);
    assert_eq!(scene.preferred(), ["2001:db8:1::/56"]);
    // The line comes up later than the gateway, with another prefix.
    scene.servers.push(Server { remembers: false, ..Server::new(1, 2) });
    scene.run(130 + 180);
    assert_eq!(scene.preferred(), ["2001:db8:2::/56"]);
}

#[test]
fn a_lease_from_before_keeps_its_iaid_and_a_new_one_has_that_of_the_settings() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    let lease = scene.client.lease().unwrap().clone();
    assert_eq!(lease.iaid, IAID);
    let others = || Settings { iaid: 7, ..settings() };
    scene.client = Client::resume(others(), lease.clone(), scene.now, 0);
    scene.sent.clear();
    scene.run(20);
    assert_eq!((scene.kinds(), scene.prefix()), (vec![MessageType::Rebind], Some("2001:db8:1::/56".into())));
    let mut later = Client::resume(others(), lease, scene.now + Duration::from_secs(4_000), 0);
    let solicit = later.poll(scene.now + Duration::from_secs(4_001), 0).unwrap();
    assert!(Message::parse(&solicit).unwrap().delegation(7).is_some());
}

#[test]
fn on_another_network_the_new_server_decides() {
    let mut scene = Scene::new(vec![Server::new(1, 1)]);
    scene.run(10);
    scene.servers = vec![Server { takes_back: true, ..Server::new(2, 2) }];
    scene.client.handle_link_up(scene.now, 5);
    scene.run(20);
    assert_eq!(scene.prefix().as_deref(), Some("2001:db8:2::/56"));
    assert_eq!(scene.client.lease().unwrap().prefixes.len(), 1);
}

#[test]
fn a_lease_without_an_end_needs_no_more_messages() {
    let mut server = Server::new(1, 1);
    (server.prefix.preferred_lifetime, server.prefix.valid_lifetime) = (u32::MAX, u32::MAX);
    let mut scene = Scene::new(vec![server]);
    scene.run(10 * 86_400);
    assert_eq!(scene.sent.len(), 2);
    assert_eq!(scene.client.lease().unwrap().expires(), Lifetime::Infinite);
    assert_eq!(scene.client.deadline(), None);
}

#[test]
fn a_server_that_gives_seconds_is_not_flooded() {
    let mut server = Server::new(1, 1);
    (server.prefix.preferred_lifetime, server.prefix.valid_lifetime) = (1, 1);
    let mut scene = Scene::new(vec![server]);
    scene.run(60);
    assert!(scene.sent.len() < 130, "{}", scene.sent.len());
}

#[test]
fn answers_to_others_and_to_nothing_are_ignored() {
    let mut scene = Scene::new(Vec::new());
    scene.run(2);
    let solicit = Builder::new(MessageType::Solicit, [9, 9, 9]).client_id(&DUID).finish();
    let answer = Server { rapid: true, ..Server::new(1, 1) }.answer(&solicit).unwrap();
    assert_eq!(scene.client.handle_datagram(&answer, scene.now, 0), Received::Ignored);
    assert_eq!(scene.client.handle_datagram(&[], scene.now, 0), Received::Ignored);
}

/// How many of 19 hours end with a lease, where half of all datagrams are lost.
fn hours_with_a_lease(seed: u64) -> usize {
    let mut scene = Scene::new(vec![Server::new(1, 1), Server::new(2, 2)]);
    let mut state = seed;
    scene.lost = Box::new(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 63 == 0
    });
    (1..20)
        .filter(|hour| {
            scene.run(hour * 3_600);
            scene.client.lease().is_some()
        })
        .count()
}

#[test]
fn with_half_of_the_datagrams_lost_there_is_a_lease_nearly_always() {
    let hours: Vec<usize> = (0..200).map(hours_with_a_lease).collect();
    let (all, least) = (hours.iter().sum::<usize>(), hours.iter().min());
    println!("{all} of {} hours, at the least {least:?} of 19", 200 * 19);
    assert!(all * 100 >= 200 * 19 * 98, "{all}");
}

proptest! {
    #[test]
    fn any_answers_leave_it_running(
        answers in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..80), any::<(u32, u32, u32, u32)>(), 0..4u8), 1..60),
    ) {
        let mut scene = Scene::new(vec![Server::new(1, 1)]);
        for (junk, (t1, t2, preferred_lifetime, valid_lifetime), kind) in answers {
            scene.run((scene.now - scene.start).as_secs() + 7);
            // What is being asked just now is answered by somebody mad.
            let super::State::Exchanging(exchange) = &scene.client.state else { continue };
            let kind = if kind == 0 { MessageType::Advertise } else { MessageType::Reply };
            let prefix = DelegatedPrefix { preferred_lifetime, valid_lifetime, ..Server::new(1, 3).prefix };
            let status = if kind == MessageType::Reply && t1 % 3 == 0 { StatusCode::NoBinding } else { StatusCode::Success };
            let delegation = Delegation { iaid: IAID, t1, t2, prefixes: vec![prefix], status };
            let answer = Builder::new(kind, exchange.transaction).client_id(&DUID).server_id(&junk).delegation(&delegation);
            scene.client.handle_datagram(&answer.finish(), scene.now, u64::from(t1));
        }
        scene.run((scene.now - scene.start).as_secs() + 100);
    }
}
