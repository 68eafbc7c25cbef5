//! Streams for the tests of [`segment`](crate::segment) and [`coalesce`](crate::coalesce): packets as hosts
//! send them, built by etherparse, and GSO packets as a kernel hands them over.

use etherparse::{IpHeaders, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader};
use etherparse::{IpNumber, TcpOptionElement};

use crate::checksum::Sum;
use crate::virtio_net::{self, Header};
use crate::{ipv4, ipv6, protocol, tcp, udp};

/// One flow; its packets differ in offset, index, payload and flags alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) ipv6: bool,
    pub(crate) tcp: bool,
    pub(crate) source_port: u16,
    /// Sequence number of the byte at offset 0.
    pub(crate) sequence: u32,
    /// IPv4 identification of the packet with index 0.
    pub(crate) identification: u16,
    pub(crate) dont_fragment: bool,
}

impl Stream {
    pub(crate) const TCP6: Self = Self {
        ipv6: true,
        tcp: true,
        source_port: 40000,
        sequence: u32::MAX - 1000,
        identification: 0xfffe,
        dont_fragment: true,
    };
    pub(crate) const TCP4: Self = Self { ipv6: false, ..Self::TCP6 };
    pub(crate) const UDP6: Self = Self { tcp: false, ..Self::TCP6 };
    pub(crate) const UDP4: Self = Self { ipv6: false, ..Self::UDP6 };
    pub(crate) const ALL: [Self; 4] = [Self::TCP6, Self::TCP4, Self::UDP6, Self::UDP4];

    pub(crate) fn ip_header_len(self) -> usize {
        if self.ipv6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN }
    }

    /// Of IP and transport header; the TCP header has 12 bytes of options.
    pub(crate) fn headers_len(self) -> usize {
        self.ip_header_len() + if self.tcp { 32 } else { udp::HEADER_LEN }
    }

    /// The packet that carries `payload` at `offset` of the stream, being the one with `index`.
    pub(crate) fn packet(self, index: u16, offset: usize, payload: &[u8], flags: u8) -> Vec<u8> {
        let ip = if self.ipv6 {
            IpHeaders::Ipv6(
                Ipv6Header {
                    traffic_class: 0x02,
                    flow_label: Ipv6FlowLabel::try_new(0x54321).unwrap(),
                    hop_limit: 61,
                    source: [0x20; 16],
                    destination: [0x21; 16],
                    ..Default::default()
                },
                Default::default(),
            )
        } else {
            let protocol = if self.tcp { IpNumber::TCP } else { IpNumber::UDP };
            let mut header = Ipv4Header::new(0, 61, protocol, [192, 0, 2, 1], [198, 51, 100, 1]).unwrap();
            header.identification = self.identification.wrapping_add(index);
            header.dont_fragment = self.dont_fragment;
            IpHeaders::Ipv4(header, Default::default())
        };
        let builder = PacketBuilder::ip(ip);
        let mut bytes = Vec::new();
        if !self.tcp {
            builder.udp(self.source_port, 443).write(&mut bytes, payload).unwrap();
            return bytes;
        }
        let sequence = self.sequence.wrapping_add(offset as u32);
        let mut header = TcpHeader::new(self.source_port, 443, sequence, 0x1234);
        header.acknowledgment_number = 77;
        header.ack = flags & tcp::ACK != 0;
        header.psh = flags & tcp::PSH != 0;
        header.fin = flags & tcp::FIN != 0;
        header.ece = flags & tcp::ECE != 0;
        header.cwr = flags & tcp::CWR != 0;
        use TcpOptionElement::{Noop, Timestamp};
        header.set_options(&[Noop, Noop, Timestamp(1, 2)]).unwrap();
        builder.tcp_header(header).write(&mut bytes, payload).unwrap();
        bytes
    }

    /// All of `payload` in one packet, to become segments of `size`, as a TUN device gives it.
    pub(crate) fn gso_packet(self, payload: &[u8], size: u16, flags: u8) -> (Header, Vec<u8>) {
        let mut packet = self.packet(0, 0, payload, flags);
        let start = self.ip_header_len();
        let (gso_type, csum_offset) = match (self.tcp, self.ipv6) {
            (true, true) => (virtio_net::GSO_TCPV6, tcp::CHECKSUM_OFFSET),
            (true, false) => (virtio_net::GSO_TCPV4, tcp::CHECKSUM_OFFSET),
            (false, _) => (virtio_net::GSO_UDP_L4, udp::CHECKSUM_OFFSET),
        };
        let transport_len = (packet.len() - start) as u32;
        let protocol = if self.tcp { protocol::TCP } else { protocol::UDP };
        let addresses = if self.ipv6 { &packet[8..40] } else { &packet[12..20] };
        let partial = Sum::of(addresses) + Sum::dword(transport_len) + Sum::word(u16::from(protocol));
        packet[start + csum_offset..][..2].copy_from_slice(&partial.value().to_be_bytes());
        let header = Header {
            flags: virtio_net::NEEDS_CSUM,
            gso_type,
            hdr_len: self.headers_len() as u16,
            gso_size: size,
            csum_start: start as u16,
            csum_offset: csum_offset as u16,
        };
        (header, packet)
    }

    /// What a kernel would make of [`gso_packet`](Self::gso_packet).
    pub(crate) fn segments(self, payload: &[u8], size: u16, flags: u8) -> Vec<Vec<u8>> {
        let chunks: Vec<_> = payload.chunks(size.into()).collect();
        let last = chunks.len() - 1;
        chunks
            .iter()
            .enumerate()
            .map(|(index, chunk)| {
                let mut flags = flags;
                if index != 0 {
                    flags &= !tcp::CWR;
                }
                if index != last {
                    flags &= !(tcp::FIN | tcp::PSH);
                }
                self.packet(index as u16, index * usize::from(size), chunk, flags)
            })
            .collect()
    }
}

/// Bytes that differ from each other.
pub(crate) fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}
