//! Inner traffic: numbered packets that can be told from their number alone, so that who receives one knows whether
//! each byte is as it was sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::checksum::Sum;
use wire::ecn::{self, Ecn};
use wire::{ipv4, ipv6, protocol, tcp, udp, virtio_net};

use super::random::Random;

const NUMBERED: u32 = 0x5eed_ca5e;
/// Mark, stream, number.
const NUMBER: usize = 4 + 4 + 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Udp,
    Tcp,
    Ping,
}

/// A row of packets from one site to another.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) kind: Kind,
    pub(crate) ipv4: bool,
    /// Length of each packet, IP header included.
    pub(crate) length: usize,
    /// From one to the next, in microseconds.
    pub(crate) every: u64,
    /// How many the sending host hands over as one GSO packet.
    pub(crate) batch: u64,
    /// Source and destination port of UDP.
    pub(crate) ports: (u16, u16),
    /// Port pairs, used in turn: the source's goes up.
    pub(crate) flows: u64,
    /// Source addresses, used in turn.
    pub(crate) hosts: u64,
    /// The only source and destination, in place of hosts.
    pub(crate) ends: Option<(Ipv6Addr, Ipv6Addr)>,
    pub(crate) ecn: Ecn,
}

impl Stream {
    /// UDP over IPv6, 200 bytes each, 100 a second.
    pub(crate) fn udp() -> Self {
        Stream {
            kind: Kind::Udp,
            ipv4: false,
            length: 200,
            every: 10_000,
            batch: 1,
            ports: (10_000, 7),
            flows: 1,
            hosts: 1,
            ends: None,
            ecn: Ecn::NotEct,
        }
    }

    pub(crate) fn tcp() -> Self {
        Stream { kind: Kind::Tcp, ..Self::udp() }
    }

    pub(crate) fn ping() -> Self {
        Stream { kind: Kind::Ping, ..Self::udp() }
    }

    pub(crate) fn over_ipv4(self) -> Self {
        Stream { ipv4: true, ..self }
    }

    pub(crate) fn of(self, length: usize) -> Self {
        Stream { length, ..self }
    }

    pub(crate) fn every_ms(self, ms: u64) -> Self {
        Stream { every: ms * 1000, ..self }
    }

    pub(crate) fn batches(self, batch: u64) -> Self {
        Stream { batch, ..self }
    }

    pub(crate) fn ports(self, source: u16, destination: u16) -> Self {
        Stream { ports: (source, destination), ..self }
    }

    pub(crate) fn flows(self, flows: u64) -> Self {
        Stream { flows, ..self }
    }

    pub(crate) fn hosts(self, hosts: u64) -> Self {
        Stream { hosts, ..self }
    }

    pub(crate) fn between(self, source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Stream { ends: Some((source, destination)), ..self }
    }

    pub(crate) fn marked(self, ecn: Ecn) -> Self {
        Stream { ecn, ..self }
    }
}

/// A host behind a site.
pub(crate) fn host(site: usize, number: u64, ipv4: bool) -> IpAddr {
    if ipv4 {
        IpAddr::V4(Ipv4Addr::new(10, (site >> 8) as u8, site as u8, number as u8))
    } else {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, site as u16, 0, 0, (number >> 16) as u16, number as u16))
    }
}

/// A stream and what became of it.
pub(crate) struct Flow {
    pub(crate) stream: Stream,
    pub(crate) index: u32,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) running: bool,
    pub(crate) paused: bool,
    first_host: u64,
    /// When each packet was sent.
    pub(crate) sent: Vec<u64>,
    /// How often each packet arrived.
    pub(crate) arrived: Vec<u8>,
    /// When packets arrived.
    pub(crate) arrivals: Vec<u64>,
    pub(crate) corrupted: u64,
    /// Packets that arrived marked with congestion.
    pub(crate) congested: u64,
}

impl Flow {
    pub(crate) fn new(stream: Stream, index: u32, from: usize, to: usize) -> Self {
        assert!(stream.length >= 40 + 20 + NUMBER, "room for headers and the number");
        Flow {
            stream,
            index,
            from,
            to,
            running: true,
            paused: false,
            first_host: 1,
            sent: Vec::new(),
            arrived: Vec::new(),
            arrivals: Vec::new(),
            corrupted: 0,
            congested: 0,
        }
    }

    /// Makes the stream come from other hosts.
    pub(crate) fn shift_hosts(&mut self, by: u64) {
        self.first_host += by;
    }

    pub(crate) fn lost(&self) -> usize {
        self.arrived.iter().filter(|n| **n == 0).count()
    }

    /// How many of those sent from `from` on were lost.
    pub(crate) fn lost_since(&self, from: u64) -> usize {
        self.sent.iter().zip(&self.arrived).filter(|(sent, n)| **sent >= from && **n == 0).count()
    }

    pub(crate) fn duplicated(&self) -> usize {
        self.arrived.iter().filter(|n| **n > 1).count()
    }

    /// The first arrival from `from` on.
    pub(crate) fn first_arrival_since(&self, from: u64) -> Option<u64> {
        self.arrivals.iter().copied().find(|at| *at >= from)
    }

    /// The next packet or GSO packet, as the sending host hands it over.
    pub(crate) fn next(&mut self, now: u64) -> (virtio_net::Header, Vec<u8>) {
        let first = self.sent.len() as u64;
        for _ in 0..self.stream.batch {
            self.sent.push(now);
            self.arrived.push(0);
        }
        if self.stream.batch == 1 {
            return (virtio_net::Header::NONE, self.packet(first));
        }
        let headers = self.ip_header() + self.transport_header();
        let payload: Vec<u8> =
            (first..first + self.stream.batch).flat_map(|n| self.packet(n).split_off(headers)).collect();
        let mut packet = self.build(first, &payload, true);
        let (gso_type, csum_offset) = match (self.stream.kind, self.stream.ipv4) {
            (Kind::Tcp, true) => (virtio_net::GSO_TCPV4, tcp::CHECKSUM_OFFSET),
            (Kind::Tcp, false) => (virtio_net::GSO_TCPV6, tcp::CHECKSUM_OFFSET),
            _ => (virtio_net::GSO_UDP_L4, udp::CHECKSUM_OFFSET),
        };
        let start = self.ip_header();
        let partial = self.pseudo_header(first, packet.len() - start).value();
        packet[start + csum_offset..][..2].copy_from_slice(&partial.to_be_bytes());
        let header = virtio_net::Header {
            flags: virtio_net::NEEDS_CSUM,
            gso_type,
            hdr_len: headers as u16,
            gso_size: (self.stream.length - headers) as u16,
            csum_start: start as u16,
            csum_offset: csum_offset as u16,
        };
        (header, packet)
    }

    /// Packet `number` as it travels.
    pub(crate) fn packet(&self, number: u64) -> Vec<u8> {
        let mut payload = vec![0; self.stream.length - self.ip_header() - self.transport_header()];
        payload[..4].copy_from_slice(&NUMBERED.to_be_bytes());
        payload[4..8].copy_from_slice(&self.index.to_be_bytes());
        payload[8..16].copy_from_slice(&number.to_be_bytes());
        let mut random = Random::new(number);
        for chunk in payload[NUMBER..].chunks_mut(8) {
            chunk.copy_from_slice(&random.next().to_be_bytes()[..chunk.len()]);
        }
        let last_of_batch = number % self.stream.batch == self.stream.batch - 1;
        self.build(number, &payload, last_of_batch)
    }

    /// A packet of this stream arrived.
    pub(crate) fn arrives(&mut self, number: u64, packet: &[u8], now: u64) {
        let Some(count) = self.arrived.get_mut(number as usize) else {
            self.corrupted += 1;
            return;
        };
        *count = count.saturating_add(1);
        self.arrivals.push(now);
        let mut expected = self.packet(number);
        let codepoint = ecn::get(packet).expect("it was parsed");
        if codepoint != self.stream.ecn && codepoint == Ecn::Ce {
            self.congested += 1;
            ecn::set(&mut expected, Ecn::Ce);
        }
        if packet != expected {
            self.corrupted += 1;
        }
    }

    fn ip_header(&self) -> usize {
        if self.stream.ipv4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
    }

    fn transport_header(&self) -> usize {
        if self.stream.kind == Kind::Tcp { tcp::HEADER_LEN } else { udp::HEADER_LEN }
    }

    fn protocol(&self) -> u8 {
        match (self.stream.kind, self.stream.ipv4) {
            (Kind::Udp, _) => protocol::UDP,
            (Kind::Tcp, _) => protocol::TCP,
            (Kind::Ping, true) => protocol::ICMPV4,
            (Kind::Ping, false) => protocol::ICMPV6,
        }
    }

    fn addresses(&self, number: u64) -> (IpAddr, IpAddr) {
        if let Some((source, destination)) = self.stream.ends {
            return (source.into(), destination.into());
        }
        let batch = number / self.stream.batch;
        let (source, ipv4) = (self.first_host + batch % self.stream.hosts, self.stream.ipv4);
        (host(self.from, source, ipv4), host(self.to, 1, ipv4))
    }

    fn pseudo_header(&self, number: u64, length: usize) -> Sum {
        match self.addresses(number) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Sum::pseudo_ipv6(source, destination, length as u32, self.protocol())
            }
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Sum::pseudo_ipv4(source, destination, length as u16, self.protocol())
            }
            _ => unreachable!("both of one family"),
        }
    }

    fn build(&self, number: u64, payload: &[u8], push: bool) -> Vec<u8> {
        let port = self.stream.ports.0 + (number / self.stream.batch % self.stream.flows) as u16;
        let length = self.transport_header() + payload.len();
        let mut transport = match self.stream.kind {
            Kind::Udp => {
                let length = length as u16;
                udp::Header { source_port: port, destination_port: self.stream.ports.1, length, checksum: 0 }
                    .to_bytes()
                    .to_vec()
            }
            Kind::Tcp => {
                let mut header = vec![0; tcp::HEADER_LEN];
                header[..2].copy_from_slice(&port.to_be_bytes());
                header[2..4].copy_from_slice(&7u16.to_be_bytes());
                let size = self.stream.length - self.ip_header() - self.transport_header();
                header[4..8].copy_from_slice(&(number as u32).wrapping_mul(size as u32).to_be_bytes());
                header[12] = 5 << 4;
                header[13] = tcp::ACK | if push { tcp::PSH } else { 0 };
                header[14..16].copy_from_slice(&64_000u16.to_be_bytes());
                header
            }
            Kind::Ping => {
                let mut header = vec![if self.stream.ipv4 { 8 } else { 128 }, 0, 0, 0];
                header.extend_from_slice(&port.to_be_bytes());
                header.extend_from_slice(&(number as u16).to_be_bytes());
                header
            }
        };
        transport.extend_from_slice(payload);
        let covered = if self.protocol() == protocol::ICMPV4 {
            Sum::of(&transport)
        } else {
            self.pseudo_header(number, length) + Sum::of(&transport)
        };
        let (at, checksum) = match self.stream.kind {
            Kind::Udp => (udp::CHECKSUM_OFFSET, covered.udp_checksum()),
            Kind::Tcp => (tcp::CHECKSUM_OFFSET, covered.checksum()),
            Kind::Ping => (2, covered.checksum()),
        };
        transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = self.ip(number, length);
        packet.extend_from_slice(&transport);
        packet
    }

    fn ip(&self, number: u64, length: usize) -> Vec<u8> {
        match self.addresses(number) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
                traffic_class: 0x88 | self.stream.ecn.bits(),
                flow_label: 0x1_2345,
                payload_length: length as u16,
                next_header: self.protocol(),
                hop_limit: 61,
                source,
                destination,
            }
            .to_bytes()
            .to_vec(),
            (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Header {
                type_of_service: 0x88 | self.stream.ecn.bits(),
                total_length: (ipv4::HEADER_LEN + length) as u16,
                identification: number as u16,
                dont_fragment: true,
                time_to_live: 61,
                protocol: self.protocol(),
                source,
                destination,
            }
            .to_bytes()
            .to_vec(),
            _ => unreachable!("both of one family"),
        }
    }
}

/// Stream and number of a numbered packet.
pub(crate) fn number(packet: &[u8]) -> Option<(usize, u64)> {
    let (protocol, transport) = match packet.first()? >> 4 {
        6 => (*packet.get(6)?, ipv6::HEADER_LEN),
        _ => (*packet.get(9)?, ipv4::HEADER_LEN),
    };
    let header = if protocol == protocol::TCP { tcp::HEADER_LEN } else { udp::HEADER_LEN };
    let number = packet.get(transport + header..)?.first_chunk::<NUMBER>()?;
    if number[..4] != NUMBERED.to_be_bytes() {
        return None;
    }
    let stream = u32::from_be_bytes(number[4..8].try_into().ok()?);
    Some((stream as usize, u64::from_be_bytes(number[8..].try_into().ok()?)))
}
