use proptest::prelude::*;
use wire::ethernet::MacAddress;

use super::*;
use crate::delegation::{Client as Requesting, Received, Settings as Asks};
use crate::nat64::{Nat64, Prefix};
use crate::plan::Plan;
use crate::site::{Probing, RouterFrom, Site, StaticRoute, Uplink};
use crate::uplink::UplinkState;

const OFFICE: &str = "office";
/// The gateway's own address there.
const OWN: &str = "fe80::ffff";

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn at(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// A server of a network, with a clock.
struct Scene {
    server: Server,
    settings: Settings,
    prefixes: Vec<LeasedPrefix>,
    now: Instant,
}

impl Scene {
    /// It gives /60s of this prefix, of which the network has the first /64.
    fn new(prefix: &str) -> Self {
        let host = FixedHost {
            name: "nas".into(),
            identity: Identity::Mac(MacAddress([2, 0, 0, 0, 0, 5])),
            host: 5,
        };
        let by_duid = FixedHost { name: "cam".into(), identity: Identity::Duid(vec![0, 4, 9, 9]), host: 6 };
        let settings = Settings { delegate: Some(60), hosts: vec![host, by_duid] };
        let mut scene = Scene {
            server: Server::new(vec![0, 4, 1, 2], Vec::new()),
            settings,
            prefixes: Vec::new(),
            now: Instant::now(),
        };
        scene.renumber(prefix, 86_400);
        scene
    }

    fn renumber(&mut self, prefix: &str, seconds: u32) {
        let leased = LeasedPrefix {
            prefix: net(prefix),
            preferred: Lifetime::from_seconds(seconds, self.now),
            valid: Lifetime::from_seconds(seconds, self.now),
        };
        let own = Ipv6Net::new(leased.prefix.network(), 64).unwrap();
        self.prefixes = vec![LeasedPrefix { prefix: own, ..leased }];
        self.server.set_pool(Pool::of(&[leased], &[own]));
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.server.retain(|_| true, self.now);
    }

    fn handle(&mut self, bytes: &[u8], source: Ipv6Addr) -> Option<Vec<u8>> {
        let servers = [at("2001:db8::53")];
        let link = Link {
            network: OFFICE,
            settings: &self.settings,
            prefixes: &self.prefixes,
            dns_servers: &servers,
            own: &[at(OWN)],
        };
        self.server.handle(bytes, source, &link, self.now)
    }

    /// What a router is answered that asks for prefixes, having these.
    fn asks(
        &mut self,
        kind: MessageType,
        router: u8,
        had: &[DelegatedPrefix],
    ) -> Option<(MessageType, Delegation)> {
        let duid = [0, 4, router];
        let mut message = Builder::new(kind, [1, 2, 3]).client_id(&duid).option_request(false);
        if matches!(kind, MessageType::Request | MessageType::Renew | MessageType::Release) {
            message = message.server_id(&[0, 4, 1, 2]);
        }
        let asked = Delegation { iaid: 7, t1: 0, t2: 0, prefixes: had.to_vec(), status: StatusCode::Success };
        let source = Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, router.into()]);
        let answer = self.handle(&message.delegation(&asked).finish(), source)?;
        let message = Message::parse(&answer).unwrap();
        assert_eq!((message.transaction(), message.client_id()), ([1, 2, 3], Some(&duid[..])));
        assert_eq!(message.dns_servers().next(), Some(at("2001:db8::53")));
        Some((message.message_type(), message.delegation(7)?))
    }

    /// What a host is answered.
    fn host_asks(&mut self, kind: MessageType, duid: &[u8], source: &str, had: &[&str]) -> Option<Vec<u8>> {
        let addresses = had.iter().map(|address| AssignedAddress {
            address: at(address),
            preferred_lifetime: 9,
            valid_lifetime: 9,
        });
        let addresses = addresses.collect();
        let asked = Assignment { iaid: 1, t1: 0, t2: 0, addresses, status: StatusCode::Success };
        let mut message = Builder::new(kind, [0; 3]).client_id(duid).assignment(&asked);
        if matches!(kind, MessageType::Request | MessageType::Renew) {
            message = message.server_id(&[0, 4, 1, 2]);
        }
        self.handle(&message.finish(), at(source))
    }
}

fn prefix_of(delegation: &Delegation) -> String {
    let told = delegation.prefixes.iter().map(|given| format!("{}/{}", given.prefix, given.prefix_length));
    told.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_router_gets_a_part_that_no_network_has_and_keeps_it() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let (kind, offered) = scene.asks(MessageType::Solicit, 1, &[]).unwrap();
    assert_eq!((kind, prefix_of(&offered).as_str()), (MessageType::Advertise, "2001:db8:100:10::/60"));
    assert!(scene.server.leases().is_empty());
    let (kind, given) = scene.asks(MessageType::Request, 1, &offered.prefixes).unwrap();
    assert_eq!((kind, given.prefixes.clone()), (MessageType::Reply, offered.prefixes));
    assert_eq!((given.prefixes[0].preferred_lifetime, given.prefixes[0].valid_lifetime), (2_700, 5_400));
    assert_eq!((given.t1, given.t2), (300, 2_160));
    // Another one has another.
    let (_, other) = scene.asks(MessageType::Request, 2, &[]).unwrap();
    assert_eq!(prefix_of(&other), "2001:db8:100:20::/60");
    // As long as it asks again it is its own.
    for _ in 0..40 {
        scene.pass(300);
        let (_, again) = scene.asks(MessageType::Renew, 1, &given.prefixes).unwrap();
        assert_eq!(prefix_of(&again), "2001:db8:100:10::/60");
    }
    assert_eq!(scene.server.leases().len(), 1);
    assert_eq!(scene.server.leases()[0].router, at("fe80::1"));
    scene.pass(5_401);
    assert!(scene.server.leases().is_empty());
    // A server that has forgotten it gives it the same.
    let (_, again) = scene.asks(MessageType::Rebind, 2, &other.prefixes).unwrap();
    assert_eq!(prefix_of(&again), "2001:db8:100:20::/60");
}

#[test]
fn with_another_prefix_of_the_uplink_the_same_part_of_that_is_given_and_the_old_one_withdrawn() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let (_, given) = scene.asks(MessageType::Request, 1, &[]).unwrap();
    scene.renumber("2001:db8:200::/56", 600);
    scene.pass(300);
    let (_, renewed) = scene.asks(MessageType::Renew, 1, &given.prefixes).unwrap();
    assert_eq!(prefix_of(&renewed), "2001:db8:200:10::/60 2001:db8:100:10::/60");
    // Nothing is promised for longer than the uplink has it.
    assert_eq!((renewed.prefixes[0].valid_lifetime, renewed.t1), (300, 150));
    assert_eq!((renewed.prefixes[1].preferred_lifetime, renewed.prefixes[1].valid_lifetime), (0, 0));
    // Without any, it is told so at once, and its part is kept for it.
    scene.server.set_pool(Pool::default());
    let (_, none) = scene.asks(MessageType::Renew, 1, &renewed.prefixes[..1]).unwrap();
    assert_eq!((prefix_of(&none).as_str(), none.prefixes[0].valid_lifetime), ("2001:db8:200:10::/60", 0));
    let (_, none) = scene.asks(MessageType::Solicit, 1, &[]).unwrap();
    assert_eq!(none.status, StatusCode::NoPrefixAvail);
    scene.renumber("2001:db8:300::/48", 86_400);
    let (_, again) = scene.asks(MessageType::Request, 1, &[]).unwrap();
    assert_eq!(prefix_of(&again), "2001:db8:300:10::/60");
    // A network that takes it for itself has it; the router gets another.
    let leased = LeasedPrefix { prefix: net("2001:db8:300::/48"), ..scene.prefixes[0] };
    scene.server.set_pool(Pool::of(&[leased], &[net("2001:db8:300::/64"), net("2001:db8:300:1f::/64")]));
    let (_, moved) = scene.asks(MessageType::Renew, 1, &again.prefixes).unwrap();
    assert_eq!(prefix_of(&moved), "2001:db8:300:20::/60 2001:db8:300:10::/60");
    assert_eq!(scene.server.leases().len(), 1);
}

#[test]
fn routers_that_go_on_asking_keep_their_parts_however_long_the_uplink_has_none() {
    let mut scene = Scene::new("2001:db8:100::/56");
    scene.renumber("2001:db8:100::/56", 600);
    let parts = [1, 2].map(|router| prefix_of(&scene.asks(MessageType::Request, router, &[]).unwrap().1));
    // With its lease, the uplink's prefix is over at the same moment as what routers were told of it.
    scene.pass(600);
    scene.server.set_pool(Pool::default());
    for _ in 0..12 {
        scene.pass(600);
        for router in [2, 1] {
            let (_, none) = scene.asks(MessageType::Solicit, router, &[]).unwrap();
            assert_eq!(none.status, StatusCode::NoPrefixAvail);
        }
    }
    scene.renumber("2001:db8:100::/56", 600);
    for (router, part) in [2, 1].into_iter().zip(parts.iter().rev()) {
        assert_eq!(prefix_of(&scene.asks(MessageType::Request, router, &[]).unwrap().1), *part);
    }
    // One that has gone keeps nothing.
    scene.server.set_pool(Pool::default());
    scene.pass(5_401);
    assert!(scene.server.leases().is_empty());
    scene.asks(MessageType::Solicit, 1, &[]).unwrap();
    assert!(scene.server.leases().is_empty());
}

#[test]
fn what_a_route_or_the_translator_leads_elsewhere_is_not_given_away() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let uplink = Uplink {
        name: "fibre".into(),
        interface: "wan".into(),
        router: RouterFrom::Advertisements,
        addresses: Vec::new(),
        prefixes: vec![net("2001:db8:100::/56")],
        delegation: None,
        probes: Vec::new(),
        ipv4_router: None,
        masquerade: false,
        tunnel: None,
        bandwidth: None,
    };
    let state = UplinkState::new(&uplink, Probing::default());
    let route = |to: &str| StaticRoute { to: to.parse().unwrap(), via: None, interface: "lan".into() };
    let mut site = Site { uplinks: vec![uplink], ..Site::default() };
    let mut given = |site: &Site, router| {
        scene.server.set_pool(Pool::new(site, &[&state], &Plan::default()));
        prefix_of(&scene.asks(MessageType::Request, router, &[]).unwrap().1)
    };
    assert_eq!(given(&site, 1), "2001:db8:100::/60");
    // What the router has, part of what the next one would get, and all that nothing else leads to.
    site.routes = ["2001:db8:100::/60", "2001:db8:100:1f:8000::/65", "::/0"].map(route).to_vec();
    site.nat64 = Some(Nat64 {
        prefix: Prefix::new(net("2001:db8:100:20::/64")).unwrap(),
        pool: "198.18.0.0/16".parse().unwrap(),
    });
    assert_eq!(given(&site, 2), "2001:db8:100:30::/60");
    assert_eq!(given(&site, 1), "2001:db8:100:40::/60");
}

#[test]
fn of_two_uplinks_the_first_that_works_has_the_preferred_prefix() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let leased = |prefix: &str| LeasedPrefix { prefix: net(prefix), ..scene.prefixes[0] };
    let both = [leased("2001:db8:100::/56"), leased("2001:db8:f00::/60"), leased("2001:db8:a00::/48")];
    scene.server.set_pool(Pool::of(&both, &[net("2001:db8:100::/64")]));
    let (_, given) = scene.asks(MessageType::Request, 1, &[]).unwrap();
    // The /60 is but one such part, whose number is that of the network's.
    assert_eq!(prefix_of(&given), "2001:db8:100:10::/60 2001:db8:a00:10::/60");
    assert_eq!(given.prefixes.iter().map(|given| given.preferred_lifetime).collect::<Vec<_>>(), [2_700, 0]);
}

#[test]
fn what_it_may_remember_for_strangers_is_bounded() {
    let mut scene = Scene::new("2001:db8::/40");
    for number in 0..200u8 {
        scene.pass(1);
        for iaid in 0..4u32 {
            let asked = Delegation { iaid, t1: 0, t2: 0, prefixes: Vec::new(), status: StatusCode::Success };
            let message = Builder::new(MessageType::Request, [0; 3])
                .client_id(&[0, 4, number])
                .server_id(&[0, 4, 1, 2])
                .delegation(&asked)
                .finish();
            scene.handle(&message, Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, u16::from(number)]));
        }
        let of_router = scene.server.leases().iter().filter(|lease| lease.router.octets()[15] == number);
        assert!(of_router.count() <= MOST_OF_A_ROUTER);
    }
    assert_eq!(scene.server.leases().len(), MOST);
    // A flood is not answered for long, and those after it are.
    let answers = (0..1_000).filter(|_| scene.asks(MessageType::Solicit, 250, &[]).is_some()).count();
    assert!(answers < 100, "{answers}");
    scene.pass(10);
    assert!(scene.asks(MessageType::Solicit, 250, &[]).is_some());
}

#[test]
fn what_is_given_back_is_free_and_what_is_not_ours_is_not_answered() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let (_, given) = scene.asks(MessageType::Request, 1, &[]).unwrap();
    assert!(scene.asks(MessageType::Release, 1, &given.prefixes).is_none());
    assert!(scene.server.leases().is_empty());
    let (_, unknown) = scene.asks(MessageType::Release, 1, &given.prefixes).unwrap();
    assert_eq!(unknown.status, StatusCode::NoBinding);
    let asked = Delegation { status: StatusCode::Success, ..given };
    let message = |kind, server: Option<&[u8]>| {
        let message = Builder::new(kind, [0; 3]).client_id(&[0, 4, 1]).delegation(&asked);
        match server {
            Some(server) => message.server_id(server).finish(),
            None => message.finish(),
        }
    };
    let router = at("fe80::1");
    assert!(scene.handle(&message(MessageType::Request, Some(&[0, 4, 9])), router).is_none());
    assert!(scene.handle(&message(MessageType::Request, None), router).is_none());
    assert!(scene.handle(&message(MessageType::Solicit, Some(&[0, 4, 1, 2])), router).is_none());
    assert!(scene.handle(&message(MessageType::Reply, None), router).is_none());
    // From elsewhere, from an address of the gateway's own, or without a name.
    assert!(scene.handle(&message(MessageType::Solicit, None), at("2001:db8::9")).is_none());
    assert!(scene.handle(&message(MessageType::Solicit, None), at(OWN)).is_none());
    assert!(scene.handle(&Builder::new(MessageType::Solicit, [0; 3]).finish(), router).is_none());
    let settings = scene.handle(
        &Builder::new(MessageType::InformationRequest, [0; 3]).option_request(false).finish(),
        router,
    );
    assert!(Message::parse(&settings.unwrap()).unwrap().dns_servers().next().is_some());
    assert!(scene.server.leases().is_empty());
}

#[test]
fn hosts_of_the_configuration_have_their_address_and_others_none() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let addresses = |answer: Option<Vec<u8>>| {
        let answer = answer.unwrap();
        let assigned = Message::parse(&answer).unwrap().assignments().next().unwrap();
        let told =
            assigned.addresses.iter().map(|given| format!("{} {}", given.address, given.valid_lifetime));
        (told.collect::<Vec<_>>().join(", "), assigned.status)
    };
    let nas = [0, 3, 0, 1, 2, 0, 0, 0, 0, 5];
    let own = ("2001:db8:100::5 5400".to_owned(), StatusCode::Success);
    assert_eq!(addresses(scene.host_asks(MessageType::Solicit, &nas, "fe80::77", &[])), own);
    assert_eq!(addresses(scene.host_asks(MessageType::Request, &[0, 4, 3], "fe80::ff:fe00:5", &[])), own);
    assert_eq!(
        addresses(scene.host_asks(MessageType::Request, &[0, 4, 9, 9], "fe80::1", &[])).0,
        "2001:db8:100::6 5400"
    );
    let others =
        addresses(scene.host_asks(MessageType::Solicit, &[0, 4, 9, 8], "fe80::1", &["2001:db8:100::5"]));
    assert_eq!(others, (String::new(), StatusCode::NoAddrsAvail));
    // What it has from another prefix is over.
    scene.renumber("2001:db8:200::/56", 86_400);
    let renewed = addresses(scene.host_asks(MessageType::Renew, &nas, "fe80::77", &["2001:db8:100::5"]));
    assert_eq!(renewed.0, "2001:db8:200::5 5400, 2001:db8:100::5 0");
    let confirmed = |scene: &mut Scene, address: &str| {
        let answer = scene.host_asks(MessageType::Confirm, &nas, "fe80::77", &[address]).unwrap();
        Message::parse(&answer).unwrap().status()
    };
    assert_eq!(confirmed(&mut scene, "2001:db8:200::5"), StatusCode::Success);
    assert_eq!(confirmed(&mut scene, "2001:db8:100::5"), StatusCode::NotOnLink);
    assert_eq!(scene.host_asks(MessageType::Confirm, &nas, "fe80::77", &[]), None);
}

/// Our own requesting router, which speaks to providers, behind this server for a day.
#[test]
fn a_requesting_router_is_served_through_a_day_of_renumbering() {
    let mut scene = Scene::new("2001:db8:100::/56");
    let asks = Asks { duid: vec![0, 4, 7], iaid: 3, prefix_length_hint: Some(60), aftr: false };
    let mut router = Requesting::new(asks, scene.now, 1);
    let end = scene.now + Duration::from_secs(86_400);
    let mut random = 1u64;
    let mut renumbered = 0;
    while scene.now < end {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        while let Some(datagram) = router.poll(scene.now, random) {
            if let Some(answer) = scene.handle(&datagram, at("fe80::7")) {
                assert!(router.handle_datagram(&answer, scene.now, random) != Received::Ignored);
            }
        }
        let hour = (scene.now + Duration::from_secs(86_400) - end).as_secs() / 3_600;
        if hour > renumbered {
            renumbered = hour;
            scene.renumber(&format!("2001:db8:{hour:x}00::/56"), 7_200);
        }
        scene.pass(10);
        // Never longer than until its next Renew it has what is not the uplink's.
        if let Some(lease) = router.lease() {
            let current = format!("2001:db8:{:x}00:10::/60", if renumbered == 0 { 1 } else { renumbered });
            let valid: Vec<_> =
                lease.prefixes.iter().filter(|leased| !leased.valid.is_expired(scene.now)).collect();
            assert!(valid.len() <= 2 && valid.iter().any(|leased| leased.preferred > Lifetime::Expired));
            let since = (scene.now + Duration::from_secs(86_400) - end).as_secs() % 3_600;
            if since > 320 {
                assert_eq!(valid.iter().map(|leased| leased.prefix).collect::<Vec<_>>(), [net(&current)]);
            }
        }
    }
    assert!(router.lease().is_some() && renumbered == 23);
}

proptest! {
    #[test]
    fn whatever_is_asked_nobody_has_what_another_has(
        asked in proptest::collection::vec((0..12u8, 0..6u8, 0..4u32, 0..18u64, 0..2_000u64), 1..80),
        noise in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut scene = Scene::new("2001:db8:100::/56");
        for (kind, router, iaid, number, seconds) in asked {
            let bits = 0x2001_0db8_0100 << 80 | u128::from(number) << 68;
            let had = DelegatedPrefix {
                prefix: Ipv6Addr::from_bits(bits),
                prefix_length: 60,
                preferred_lifetime: 9,
                valid_lifetime: 9,
            };
            let asked = Delegation { iaid, t1: 0, t2: 0, prefixes: vec![had], status: StatusCode::Success };
            let mut bytes = Builder::new(MessageType::Request, [0; 3])
                .client_id(&[0, 4, router])
                .server_id(&[0, 4, 1, 2])
                .delegation(&asked)
                .finish();
            bytes[0] = kind;
            let source = Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, router.into()]);
            if let Some(answer) = scene.handle(&bytes, source) {
                prop_assert!(Message::parse(&answer).is_ok());
            }
            scene.handle(&[&[kind, 0, 0, 0], &noise[..]].concat(), source);
            scene.pass(seconds);
            let leases = scene.server.leases();
            let parts: Vec<_> =
                leases.iter().flat_map(|lease| scene.server.prefixes(lease, scene.now)).map(|part| part.prefix).collect();
            for (place, part) in parts.iter().enumerate() {
                prop_assert!(!part.contains(&net("2001:db8:100::/64")) && net("2001:db8:100::/56").contains(part));
                prop_assert!(!parts[..place].iter().any(|other| other.contains(part) || part.contains(other)));
            }
            for router in 0..6u16 {
                let own = leases.iter().filter(|lease| lease.router.segments()[7] == router).count();
                prop_assert!(own <= MOST_OF_A_ROUTER);
            }
        }
    }
}
