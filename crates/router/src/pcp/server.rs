//! The server: a host's datagram in, an answer out. It knows no sockets; whoever calls it has the kernel do what
//! [`Server::mappings`] says before the answer is sent.

use std::collections::btree_map::Iter;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use ipnet::IpNet;

use super::message::{self, Operation, ResultCode};
use super::table::{Internal, Mapping, Table, Transport, Wish};
use super::{Limits, nat_pmp};

/// Where a datagram has come from: a network whose hosts may ask.
#[derive(Clone, Copy)]
pub struct Link<'l> {
    /// The network's name.
    pub network: &'l str,
    /// What its hosts may ask for.
    pub limits: Limits,
    /// The gateway's own addresses there, each with its network.
    pub own: &'l [IpNet],
    /// Which ports at the gateway's IPv4 address lead elsewhere: forwards, and what the gateway itself serves.
    pub taken: &'l dyn Fn(Transport, u16) -> bool,
}

/// The server of a gateway, for all its networks.
#[derive(Clone, Debug)]
pub struct Server {
    table: Table,
    /// When it has last lost what hosts rely on.
    epoch: Instant,
    external: Option<Ipv4Addr>,
    /// That of mappings, also while there is none.
    last_external: Option<Ipv4Addr>,
    revision: u64,
}

impl Server {
    /// A server that knows of nothing.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Server { table: Table::default(), epoch: now, external: None, last_external: None, revision: 0 }
    }

    /// One that goes on: with these mappings, what was the external address, and since when.
    #[must_use]
    pub fn going_on(
        mappings: impl IntoIterator<Item = (Internal, Mapping)>,
        last_external: Option<Ipv4Addr>,
        epoch: Instant,
    ) -> Self {
        let table = Table(mappings.into_iter().collect());
        Server { table, epoch, external: None, last_external, revision: 1 }
    }

    /// What is mapped.
    pub fn mappings(&self) -> Iter<'_, Internal, Mapping> {
        self.table.0.iter()
    }

    /// Another one whenever something of [`Server::mappings`] is.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Since when everything that was mapped still is.
    #[must_use]
    pub fn epoch(&self) -> Instant {
        self.epoch
    }

    /// The address outside, now.
    #[must_use]
    pub fn external(&self) -> Option<Ipv4Addr> {
        self.external
    }

    /// The same, or when there last was one.
    #[must_use]
    pub fn last_external(&self) -> Option<Ipv4Addr> {
        self.last_external
    }

    /// The first address of IPv4 that hosts are reached at, if there is one. With another one a new epoch begins, by which
    /// clients know to ask again (RFC 6887 section 8.5).
    pub fn set_external(&mut self, address: Option<Ipv4Addr>, now: Instant) {
        self.external = address;
        if address.is_none() || address == self.last_external {
            return;
        }
        if self.last_external.is_some() {
            self.epoch = now;
        }
        self.last_external = address;
    }

    /// When [`Server::retain`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.table.0.values().map(|mapping| mapping.until).min()
    }

    /// Ends what is over, and what may not be.
    pub fn retain(&mut self, may_be: impl Fn(&Internal, &Mapping) -> bool, now: Instant) {
        let before = self.table.0.len();
        self.table.0.retain(|internal, mapping| mapping.until > now && may_be(internal, mapping));
        self.revision += u64::from(before != self.table.0.len());
    }

    /// The answer to a datagram, if there is to be one.
    pub fn handle(
        &mut self,
        datagram: &[u8],
        source: IpAddr,
        link: &Link<'_>,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let (&version, &opcode) = (datagram.first()?, datagram.get(1)?);
        let epoch = self.epoch_seconds(now);
        if version == nat_pmp::VERSION && source.is_ipv4() {
            let answer = match nat_pmp::parse(datagram)? {
                Ok(nat_pmp::Request::ExternalAddress) => {
                    nat_pmp::external_address(self.external.filter(|_| link.has(source)), epoch)
                }
                Ok(nat_pmp::Request::Map(map)) => self.nat_pmp(map, source, link, now),
                Err(result) => nat_pmp::refusal(opcode, result, epoch),
            };
            return Some(answer);
        }
        if opcode & message::RESPONSE != 0 {
            return None;
        }
        let answer = match version {
            message::VERSION => self.pcp(datagram, source, link, now),
            _ => Err((ResultCode::UnsuppVersion, None)),
        };
        Some(answer.unwrap_or_else(|(result, lifetime)| {
            message::refusal(datagram, result, lifetime.unwrap_or(result.lifetime()), epoch)
        }))
    }

    fn pcp(
        &mut self,
        datagram: &[u8],
        source: IpAddr,
        link: &Link<'_>,
        now: Instant,
    ) -> Result<Vec<u8>, (ResultCode, Option<u32>)> {
        let epoch = self.epoch_seconds(now);
        let request = message::parse(datagram).map_err(|result| (result, None))?;
        if request.client != source {
            return Err((ResultCode::AddressMismatch, None));
        }
        if !link.has(source) {
            return Err((ResultCode::NotAuthorized, None));
        }
        let map = match request.operation {
            Operation::Announce => return Ok(message::announce(epoch)),
            Operation::Map(map) => map,
        };
        let port = map.internal_port;
        let is_anothers = |known: &Mapping| known.nonce != Some(map.nonce);
        match self.map(&map, source, request.lifetime, link, now) {
            Ok((map, lifetime)) => Ok(map.success(lifetime, epoch)),
            Err(result) => {
                let known = Transport::of(map.protocol)
                    .and_then(|transport| self.table.0.get(&Internal { address: source, transport, port }));
                // How long another one has it (section 11.3).
                Err((result, known.filter(|known| is_anothers(known)).map(|known| known.seconds(now))))
            }
        }
    }

    /// Does what MAP says. The mapping, and for how many seconds.
    fn map(
        &mut self,
        map: &message::Map,
        source: IpAddr,
        lifetime: u32,
        link: &Link<'_>,
        now: Instant,
    ) -> Result<(message::Map, u32), ResultCode> {
        let transport = match (Transport::of(map.protocol), map.protocol, lifetime) {
            (None, 0, 0) => None,
            (None, ..) => return Err(ResultCode::UnsuppProtocol),
            (transport, ..) => transport,
        };
        let (port, nonce) = (map.internal_port, Some(map.nonce));
        let Some(transport) = transport.filter(|_| lifetime > 0) else {
            let before = self.table.0.len();
            self.table.remove(source, transport, port, nonce)?;
            self.revision += u64::from(before != self.table.0.len());
            return Ok((map.clone(), 0));
        };
        let external_address = match source {
            IpAddr::V4(_) => IpAddr::V4(self.external.ok_or(ResultCode::NetworkFailure)?),
            IpAddr::V6(_) => source,
        };
        let wished = map.external_address;
        if map.prefer_failure && !wished.is_unspecified() && wished != external_address {
            return Err(ResultCode::CannotProvideExternal);
        }
        let internal = Internal { address: source, transport, port };
        let (exact, filters) = (map.prefer_failure, &map.filters[..]);
        let wish = Wish { internal, lifetime, nonce, port: map.external_port, exact, filters };
        let granted = self.table.grant(&wish, (link.network, &link.limits), link.taken, now)?;
        self.revision += 1;
        let external_port = granted.external_port;
        Ok((message::Map { external_port, external_address, ..map.clone() }, granted.seconds(now)))
    }

    fn nat_pmp(&mut self, map: nat_pmp::Map, source: IpAddr, link: &Link<'_>, now: Instant) -> Vec<u8> {
        use nat_pmp::ResultCode::{NetworkFailure, NotAuthorized, OutOfResources, Success};
        let epoch = self.epoch_seconds(now);
        // The same by the other protocol: nobody has a nonce here.
        let (transport, port) = (map.transport, map.internal_port);
        let internal = Internal { address: source, transport, port };
        let before = self.table.0.len();
        let done = if !link.has(source) {
            Err(ResultCode::NotAuthorized)
        } else if map.lifetime == 0 {
            self.table.remove(source, Some(transport), port, None).map(|()| (0, 0))
        } else if self.external.is_none() {
            Err(ResultCode::NetworkFailure)
        } else {
            let (lifetime, filters) = (map.lifetime, &[][..]);
            let wish =
                Wish { internal, lifetime, nonce: None, port: map.external_port, exact: false, filters };
            let granted = self.table.grant(&wish, (link.network, &link.limits), link.taken, now);
            granted.map(|granted| (granted.external_port, granted.seconds(now)))
        };
        let ((external_port, lifetime), result) = match done {
            Ok(done) => {
                self.revision += u64::from(map.lifetime > 0 || before != self.table.0.len());
                (done, Success)
            }
            Err(ResultCode::NetworkFailure) => ((0, 0), NetworkFailure),
            Err(ResultCode::NoResources | ResultCode::UserExQuota) => ((0, 0), OutOfResources),
            Err(_) => ((0, 0), NotAuthorized),
        };
        nat_pmp::Map { external_port, lifetime, ..map }.answer(result, epoch)
    }

    fn epoch_seconds(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.epoch).as_secs()).unwrap_or(u32::MAX)
    }
}

impl Link<'_> {
    /// Whether it is the address of a host there.
    fn has(&self, source: IpAddr) -> bool {
        self.own.iter().any(|net| net.contains(&source)) && self.own.iter().all(|net| net.addr() != source)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pcp::message::{Filter, Map, Request};

    const HOST: &str = "192.168.1.5";
    const OTHER: &str = "192.168.1.7";
    const HOST6: &str = "2001:db8::5";

    struct Story {
        server: Server,
        now: Instant,
        limits: Limits,
    }

    impl Story {
        fn new() -> Self {
            let now = Instant::now();
            let mut server = Server::new(now);
            server.set_external(Some([192, 0, 2, 2].into()), now);
            Story { server, now, limits: Limits { per_host: 3, ..Limits::default() } }
        }

        fn ask(&mut self, source: &str, datagram: &[u8]) -> Option<Vec<u8>> {
            let own = ["192.168.1.1/24", "2001:db8::1/64"].map(|net| net.parse().unwrap());
            let taken = |transport, port| transport == Transport::Tcp && port == 8_443;
            let link = Link { network: "lan", limits: self.limits, own: &own, taken: &taken };
            self.server.handle(datagram, source.parse().unwrap(), &link, self.now)
        }

        /// Result, lifetime, external port.
        fn map(&mut self, source: &str, lifetime: u32, map: Map) -> (u8, u32, u16) {
            let request =
                Request { client: source.parse().unwrap(), lifetime, operation: Operation::Map(map) };
            let answer = self.ask(source, &request.to_bytes()).unwrap();
            assert_eq!((answer[0], answer[1]), (2, 0x81));
            let port = u16::from_be_bytes([answer[42], answer[43]]);
            (answer[3], u32::from_be_bytes(*answer[4..].first_chunk().unwrap()), port)
        }

        /// Result, external port, lifetime.
        fn nat_pmp(&mut self, source: &str, internal: u16, external: u16, lifetime: u32) -> (u8, u16, u32) {
            let (internal_port, external_port) = (internal, external);
            let map = nat_pmp::Map { transport: Transport::Udp, internal_port, external_port, lifetime };
            let answer = self.ask(source, &map.to_bytes()).unwrap();
            let port = u16::from_be_bytes([answer[10], answer[11]]);
            (answer[3], port, u32::from_be_bytes(*answer[12..].first_chunk().unwrap()))
        }
    }

    fn tcp(nonce: u8, internal_port: u16, external_port: u16) -> Map {
        Map {
            nonce: [nonce; 12],
            protocol: 6,
            internal_port,
            external_port,
            external_address: [0, 0, 0, 0].into(),
            prefer_failure: false,
            filters: Vec::new(),
        }
    }

    #[test]
    fn a_mapping_lasts_as_long_as_its_host_wants_and_is_changed_by_nobody_else() {
        let mut story = Story::new();
        assert_eq!(story.map(HOST, 600, tcp(1, 5_000, 6_000)), (0, 600, 6_000));
        // Another program of the host, which does not know the nonce, learns how long it lasts.
        story.now += Duration::from_secs(100);
        assert_eq!(story.map(HOST, 600, tcp(2, 5_000, 0)).0, 2);
        assert_eq!(story.map(HOST, 0, tcp(2, 5_000, 0)), (2, 500, 0));
        assert_eq!(story.nat_pmp(HOST, 5_000, 0, 0).0, 0, "of UDP, there is none");
        // Another host gets another port, and does not end what is not its own.
        assert_eq!(story.map(OTHER, 600, tcp(1, 5_000, 6_000)), (0, 600, 5_000));
        assert_eq!(story.map(OTHER, 600, Map { prefer_failure: true, ..tcp(1, 5_001, 6_000) }).0, 11);
        assert_eq!(story.map(OTHER, 0, Map { protocol: 0, ..tcp(1, 0, 0) }).0, 0);
        assert_eq!(story.server.mappings().count(), 1);
        // It is renewed with the port that it has.
        assert_eq!(story.map(HOST, 600, tcp(1, 5_000, 7_000)), (0, 600, 6_000));
        assert_eq!(story.server.deadline(), Some(story.now + Duration::from_secs(600)));
        let before = story.server.revision();
        story.now += Duration::from_secs(600);
        story.server.retain(|_, _| true, story.now);
        assert!(story.server.mappings().count() == 0 && story.server.revision() != before);
    }

    #[test]
    fn limits_hold() {
        let mut story = Story::new();
        assert_eq!(story.map(HOST, u32::MAX, tcp(1, 5_000, 0)), (0, 86_400, 5_000));
        assert_eq!(story.map(HOST, 9, tcp(1, 22, 2_222)).0, 2, "the host's own port is low");
        assert_eq!(story.map(HOST, 9, tcp(1, 5_001, 22)), (0, 9, 5_001), "a low port is not given");
        assert_eq!(story.map(HOST, 9, tcp(1, 0, 0)).0, 2, "all ports");
        assert_eq!(story.map(HOST, 9, Map { protocol: 0, ..tcp(1, 0, 0) }).0, 9);
        assert_eq!(story.map(HOST, 9, Map { protocol: 132, ..tcp(1, 5_000, 0) }).0, 9);
        let exact = Map { prefer_failure: true, ..tcp(1, 5_002, 8_443) };
        assert_eq!(story.map(HOST, 9, exact).0, 11, "a port that leads elsewhere");
        assert_eq!(story.map(HOST, 9, tcp(1, 8_443, 0)), (0, 9, 8_444));
        assert_eq!(story.map(HOST, 9, tcp(1, 5_003, 0)), (10, 30, 0));
        assert_eq!(story.map(HOST, 9, tcp(1, 5_001, 0)).0, 0, "what there is goes on");
        // As many addresses as a link has are no way around it.
        for host in 0..1_100u32 {
            let source = format!("2001:db8::1:{host:x}");
            let result = story.map(&source, 9, tcp(1, 5_000, 0)).0;
            assert_eq!(result, if host < 1_021 { 0 } else { 8 }, "{host}");
        }
    }

    #[test]
    fn who_asks_is_who_is_mapped() {
        let mut story = Story::new();
        let of = |client: &str| {
            let operation = Operation::Map(tcp(1, 5_000, 0));
            Request { client: client.parse().unwrap(), lifetime: 9, operation }.to_bytes()
        };
        let mut result = |source: &str, datagram: &[u8]| story.ask(source, datagram).map(|answer| answer[3]);
        assert_eq!(result(HOST, &of(OTHER)), Some(12));
        // THIRD_PARTY, whoever it names.
        let third_party = [&of(HOST)[..], &[1, 0, 0, 16], &[0x20; 16]].concat();
        assert_eq!(result(HOST, &third_party), Some(5));
        for stranger in ["203.0.113.9", "192.168.1.1", "fe80::5", "2001:db8::1"] {
            assert_eq!(result(stranger, &of(stranger)), Some(2), "{stranger}");
        }
        assert_eq!(story.nat_pmp("203.0.113.9", 5_000, 0, 9).0, 2);
        assert_eq!(story.ask("203.0.113.9", &[0, 0]).unwrap()[3], 3, "not even the address");
        assert_eq!(story.server.mappings().count(), 0);
    }

    #[test]
    fn an_ipv6_host_has_its_own_address_and_port_and_filters() {
        let mut story = Story::new();
        story.server.set_external(None, story.now);
        let filters = vec![Filter::Peers("2001:db8:9::/48".parse().unwrap(), 0)];
        let any = Map { external_address: [0; 16].into(), filters, ..tcp(1, 5_000, 6_000) };
        assert_eq!(story.map(HOST6, 9, any.clone()), (0, 9, 5_000));
        assert_eq!(story.map(HOST6, 9, Map { prefer_failure: true, ..any.clone() }).0, 11);
        let exact = Map { prefer_failure: true, external_address: HOST6.parse().unwrap(), ..any };
        assert_eq!(story.map(HOST6, 9, Map { external_port: 5_000, ..exact }).0, 0);
        let (_, mapping) = story.server.mappings().next().unwrap();
        assert_eq!(mapping.peers, [("2001:db8:9::/48".parse().unwrap(), 0)]);
        // Without an external address there is nothing for IPv4.
        assert_eq!(story.map(HOST, 9, tcp(1, 5_000, 0)), (7, 30, 0));
        assert_eq!(story.nat_pmp(HOST, 5_000, 0, 9), (3, 0, 0));
    }

    #[test]
    fn both_protocols_and_no_others_are_answered() {
        let mut story = Story::new();
        assert_eq!(story.ask(HOST, &[0, 0]).unwrap(), [0, 128, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2]);
        assert_eq!(story.nat_pmp(HOST, 5_000, 6_000, 9), (0, 6_000, 9));
        assert_eq!(story.map(HOST, 9, Map { protocol: 17, ..tcp(1, 5_000, 0) }).0, 2, "without its nonce");
        assert_eq!(story.nat_pmp(HOST, 5_000, 0, 0), (0, 0, 0));
        assert_eq!(story.ask(HOST, &[0, 9]).unwrap()[..4], [0, 137, 0, 5]);
        // Other versions get the one that is known, with what is wrong with theirs.
        assert_eq!(story.ask(HOST, &[1, 0]).unwrap()[..4], [2, 128, 0, 1]);
        assert_eq!(story.ask(HOST6, &[0, 0]).unwrap()[..4], [2, 128, 0, 1]);
        assert_eq!(story.ask(HOST, &[2, 1, 0, 0]).unwrap()[..4], [2, 129, 0, 3]);
        let announce = |opcode| [&[2, opcode][..], &[0; 16], &[255, 255, 192, 168, 1, 5]].concat();
        assert_eq!(story.ask(HOST, &announce(0)).unwrap()[..4], [2, 128, 0, 0]);
        assert_eq!(story.ask(HOST, &announce(2)).unwrap()[..4], [2, 130, 0, 4], "PEER");
        for answer in [&[][..], &[2], &[2, 129, 0, 0], &[0, 128], &[0, 1, 0, 0], &[7, 129]] {
            assert_eq!(story.ask(HOST, answer), None, "{answer:?}");
        }
    }

    #[test]
    fn another_address_outside_begins_another_epoch() {
        let mut story = Story::new();
        story.now += Duration::from_secs(50);
        let epoch = |story: &mut Story| story.ask(HOST, &[0, 0]).unwrap()[7];
        for (address, seconds) in [(None, 50), (Some([192, 0, 2, 2]), 50), (Some([192, 0, 2, 3]), 0)] {
            story.server.set_external(address.map(Into::into), story.now);
            assert_eq!(epoch(&mut story), seconds, "{address:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_asked_for_limits_hold(
            asked in proptest::collection::vec(
                (0u8..6, 0u16..6, 0u16..6, 0u32..3, 0u8..2, proptest::prelude::any::<bool>()), 0..60)
        ) {
            let mut story = Story::new();
            story.limits.lowest_port = 2;
            for (host, internal, external, lifetime, nonce, prefer_failure) in asked {
                let source = format!("192.168.1.{}", 5 + host % 3);
                if host < 3 {
                    story.map(&source, lifetime, Map { prefer_failure, ..tcp(nonce, internal, external) });
                } else {
                    story.nat_pmp(&source, internal, external, lifetime);
                }
                let mut ports = std::collections::BTreeSet::new();
                for (internal, mapping) in story.server.mappings() {
                    proptest::prop_assert!(ports.insert((internal.transport, mapping.external_port)));
                    proptest::prop_assert!(internal.port >= 2 && mapping.external_port >= 2);
                    let same = story.server.mappings().filter(|(other, _)| other.address == internal.address);
                    proptest::prop_assert!(same.count() <= 3);
                }
            }
        }
    }
}
