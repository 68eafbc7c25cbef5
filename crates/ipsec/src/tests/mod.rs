//! Stories of packets through both ends of an association.

mod daemons;
mod engine;
mod hostile;
mod many;
mod order;
mod payloads;
mod policies;
mod scapy;
mod setkey_files;
mod vectors;

use std::net::IpAddr;
use std::time::Instant;

use wire::checksum::Sum;
use wire::{ipv4, ipv6, protocol, udp};

use crate::algorithm::{AhTransform, Authentication, Encryption, EspTransform};
use crate::association::{Association, Mode, Parameters, Protocol, Spi, Transform, UdpEncapsulation};
use crate::key::Key;
use crate::marks::Marks;
use crate::outcome::{OpenError, SealError};
use crate::packet_buffer::PacketBuffer;
use crate::{ah, esp};

/// What the headers are said to need at most, and no more.
const HEADROOM: usize =
    if esp::MAX_HEADROOM > ah::MAX_HEADROOM { esp::MAX_HEADROOM } else { ah::MAX_HEADROOM };
const TAILROOM: usize = esp::MAX_TAILROOM;

/// Algorithms by name, without keys.
#[derive(Debug, Clone, Copy)]
pub(super) enum Suite {
    Esp(Encryption, Authentication),
    Ah(Authentication),
}

pub(super) fn suites() -> Vec<Suite> {
    use Authentication::{AesGmac128, AesGmac256, HmacSha256, HmacSha384, HmacSha512, None};
    use Encryption::{AesCbc128, AesCbc256, AesGcm128, AesGcm256, ChaCha20Poly1305, Null};
    let mut suites = vec![
        Suite::Esp(AesGcm128, None),
        Suite::Esp(AesGcm256, None),
        Suite::Esp(ChaCha20Poly1305, None),
        Suite::Esp(Null, AesGmac128),
        Suite::Esp(Null, AesGmac256),
    ];
    for hmac in [HmacSha256, HmacSha384, HmacSha512] {
        suites.extend([AesCbc128, AesCbc256, Null].map(|cipher| Suite::Esp(cipher, hmac)));
        suites.push(Suite::Ah(hmac));
    }
    suites.extend([Suite::Ah(AesGmac128), Suite::Ah(AesGmac256)]);
    #[cfg(feature = "historic")]
    suites.extend([
        Suite::Esp(Encryption::DesCbc, None),
        Suite::Esp(Encryption::DesCbcIv32, None),
        Suite::Ah(Authentication::KeyedMd5),
    ]);
    suites
}

impl Suite {
    fn is_historic(self) -> bool {
        match self {
            #[cfg(feature = "historic")]
            Self::Esp(Encryption::DesCbc | Encryption::DesCbcIv32, _)
            | Self::Ah(Authentication::KeyedMd5) => true,
            _ => false,
        }
    }

    fn is_ah(self) -> bool {
        matches!(self, Self::Ah(_))
    }

    fn transform(self) -> Transform {
        let key = |authentication: Authentication| Key::new(&vec![0xa5; authentication.key_length()]);
        match self {
            Self::Esp(encryption, authentication) => {
                let cipher_key = Key::new(&vec![0x5a; encryption.key_length()]);
                let transform =
                    EspTransform::new(encryption, &cipher_key, authentication, &key(authentication));
                Transform::Esp(transform.unwrap())
            }
            Self::Ah(authentication) => {
                Transform::Ah(AhTransform::new(authentication, &key(authentication)).unwrap())
            }
        }
    }
}

/// Addresses of two hosts, and of two gateways.
pub(super) fn hosts(is_ipv6: bool) -> (IpAddr, IpAddr) {
    let (a, b) = if is_ipv6 { ("2001:db8:a::1", "2001:db8:b::2") } else { ("192.0.2.1", "198.51.100.2") };
    (a.parse().unwrap(), b.parse().unwrap())
}

fn gateways(is_ipv6: bool) -> (IpAddr, IpAddr) {
    let (a, b) = if is_ipv6 { ("2001:db8:f::1", "2001:db8:f::2") } else { ("203.0.113.1", "203.0.113.2") };
    (a.parse().unwrap(), b.parse().unwrap())
}

/// A UDP datagram in a packet from host to host, with a traffic class and a payload of so many bytes.
pub(super) fn packet(is_ipv6: bool, length: usize) -> Vec<u8> {
    let mut datagram = udp::Header {
        source_port: 4000,
        destination_port: 53,
        length: (udp::HEADER_LEN + length) as u16,
        checksum: 0,
    }
    .to_bytes()
    .to_vec();
    datagram.extend((0..length).map(|at| at as u8));
    with_payload(is_ipv6, protocol::UDP, &datagram)
}

pub(super) fn with_payload(is_ipv6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = match hosts(is_ipv6) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
            traffic_class: 0xba,
            flow_label: 0x1_2345,
            payload_length: payload.len() as u16,
            next_header: protocol,
            hop_limit: 61,
            source,
            destination,
        }
        .to_bytes()
        .to_vec(),
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Header {
            type_of_service: 0xba,
            total_length: (20 + payload.len()) as u16,
            identification: 77,
            dont_fragment: true,
            time_to_live: 61,
            protocol,
            source,
            destination,
        }
        .to_bytes()
        .to_vec(),
        _ => unreachable!("hosts are of one version"),
    };
    [&header[..], payload].concat()
}

pub(super) fn parameters(suite: Suite, mode: Mode, inner_ipv6: bool, outer_ipv6: bool) -> Parameters {
    let (source, destination) = match mode {
        Mode::Transport => hosts(inner_ipv6),
        Mode::Tunnel => gateways(outer_ipv6),
    };
    let mut parameters = Parameters::new(Spi(0x1234), source, destination, mode, suite.transform());
    let (from, to) = hosts(inner_ipv6);
    parameters.selectors = vec![crate::selector::Selector::between(from.into(), to.into())];
    parameters
}

/// Both ends of an association.
pub(super) struct Pair {
    pub(super) sender: Association,
    pub(super) receiver: Association,
    pub(super) now: Instant,
}

impl Pair {
    pub(super) fn new(make: impl Fn() -> Parameters) -> Self {
        let now = Instant::now();
        let end = || Association::new(make(), now).unwrap();
        Self { sender: end(), receiver: end(), now }
    }

    pub(super) fn of(suite: Suite, mode: Mode) -> Self {
        Self::new(|| parameters(suite, mode, true, true))
    }

    pub(super) fn seal(&mut self, packet: &[u8]) -> Result<Vec<u8>, SealError> {
        seal(&mut self.sender, packet, self.now)
    }

    pub(super) fn open(&mut self, packet: &[u8]) -> Result<(Vec<u8>, Marks), OpenError> {
        open(&mut self.receiver, packet, Marks::NONE, self.now)
    }
}

pub(super) fn seal(association: &mut Association, packet: &[u8], now: Instant) -> Result<Vec<u8>, SealError> {
    let mut buffer = [&[0xee; HEADROOM], packet, &[0xee; TAILROOM]].concat();
    let mut place = PacketBuffer::new(&mut buffer, HEADROOM..HEADROOM + packet.len()).unwrap();
    let sealed = match association.protocol() {
        Protocol::Esp => esp::seal(association, &mut place, now),
        Protocol::Ah => ah::seal(association, &mut place, now),
    };
    if sealed.is_err() {
        assert_eq!(place.packet(), packet, "what is refused is as before");
    }
    sealed.map(|()| place.packet().to_vec())
}

pub(super) fn open(
    association: &mut Association,
    packet: &[u8],
    marks: Marks,
    now: Instant,
) -> Result<(Vec<u8>, Marks), OpenError> {
    let mut buffer = packet.to_vec();
    let mut place = PacketBuffer::new(&mut buffer, 0..packet.len()).unwrap();
    let opened = match association.protocol() {
        Protocol::Esp => esp::open(association, &mut place, marks, now),
        Protocol::Ah => ah::open(association, &mut place, marks, now),
    };
    opened.map(|marks| (place.packet().to_vec(), marks))
}

#[test]
fn a_packet_opens_to_itself_with_each_algorithm_mode_and_ip_version() {
    let mut cases = 0;
    for suite in suites() {
        for extended in [false, true] {
            for (mode, outers) in [(Mode::Transport, &[true][..]), (Mode::Tunnel, &[false, true])] {
                for inner in [false, true] {
                    for &outer in outers {
                        for in_udp in [false, true] {
                            if suite.is_historic() && extended || suite.is_ah() && in_udp {
                                continue;
                            }
                            let mut pair = Pair::new(|| {
                                let mut parameters = parameters(suite, mode, inner, outer);
                                parameters.extended_sequence = extended;
                                parameters.encapsulation = in_udp.then_some(UdpEncapsulation {
                                    source_port: 4500,
                                    destination_port: 4500,
                                });
                                parameters
                            });
                            for length in [0, 1, 2, 5, 13, 14, 15, 16, 100, 1400] {
                                let packet = packet(inner, length);
                                let case = format!("{suite:?} {mode:?} {inner} {outer} {in_udp} {length}");
                                let sealed = pair.seal(&packet).unwrap();
                                assert_valid(&sealed, in_udp);
                                let (opened, marks) = pair.open(&sealed).expect(&case);
                                assert_eq!(opened, packet, "{case}");
                                assert_eq!(marks, expected_marks(suite, mode), "{case}");
                                cases += 1;
                            }
                            assert_eq!(pair.sender.usage(), pair.receiver.usage());
                        }
                    }
                }
            }
        }
    }
    assert!(cases > 3000, "{cases}");
}

/// That lengths and checksums of a packet are right.
fn assert_valid(packet: &[u8], in_udp: bool) {
    if packet[0] >> 4 == 4 {
        let view = ipv4::Packet::parse(packet).unwrap();
        assert!(view.has_valid_checksum());
        assert_eq!(usize::from(view.total_length()), packet.len());
        assert_eq!(view.protocol() == protocol::UDP, in_udp);
        return;
    }
    let view = ipv6::Packet::parse(packet).unwrap();
    assert_eq!(ipv6::HEADER_LEN + view.payload().len(), packet.len());
    if in_udp {
        let sum = view.pseudo_header(view.payload().len() as u32, protocol::UDP) + Sum::of(view.payload());
        assert!(sum.is_valid());
        assert_eq!(usize::from(udp::Datagram::parse(view.payload()).unwrap().length()), view.payload().len());
    }
}

fn expected_marks(suite: Suite, mode: Mode) -> Marks {
    let hidden = matches!(suite, Suite::Esp(encryption, _) if encryption != Encryption::Null);
    Marks {
        authentic: suite.is_ah() || !suite.is_historic(),
        decrypted: hidden && mode == Mode::Transport,
        decrypted_from_tunnel: hidden && mode == Mode::Tunnel,
    }
}

#[test]
fn the_esp_packet_of_rfc_7634_appendix_a_opens() {
    let esp = hex::decode(
        "0102030400000005101112131415161724039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c6\
         14ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da\
         9165b82829f641e076aaa8266b7fb0f7b11b369907e1ad43",
    )
    .unwrap();
    let key =
        hex::decode("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3").unwrap();
    let transform =
        EspTransform::new(Encryption::ChaCha20Poly1305, &Key::new(&key), Authentication::None, &Key::empty());
    let (source, destination) = gateways(false);
    let mut parameters = Parameters::new(
        Spi(0x0102_0304),
        source,
        destination,
        Mode::Tunnel,
        Transform::Esp(transform.unwrap()),
    );
    // From 198.51.100.5 to 192.0.2.5.
    parameters.selectors = vec![crate::selector::Selector::between(
        "198.51.100.0/24".parse().unwrap(),
        "192.0.2.0/24".parse().unwrap(),
    )];
    let now = Instant::now();
    let mut receiver = Association::new(parameters, now).unwrap();
    let mut arrived = with_payload(false, protocol::ESP, &esp);
    arrived[1] = 0;
    let (opened, marks) = open(&mut receiver, &arrived, Marks::NONE, now).unwrap();
    assert_eq!(hex::encode(&opened[..28]), "45000054a6f200004001e778c6336405c000020508005b7a3a080000");
    assert_eq!(opened.len(), 84);
    assert!(marks.authentic && marks.decrypted_from_tunnel);
}

#[test]
fn the_outer_header_of_a_tunnel_is_that_of_rfc_4301_section_5_1_2() {
    let suite = Suite::Esp(Encryption::AesGcm128, Authentication::None);
    for inner in [false, true] {
        let mut pair = Pair::new(|| parameters(suite, Mode::Tunnel, inner, true));
        let sealed = pair.seal(&packet(inner, 10)).unwrap();
        let outer = ipv6::Packet::parse(&sealed).unwrap();
        assert_eq!((outer.traffic_class(), outer.flow_label(), outer.hop_limit()), (0xba, 0, 64));
        assert_eq!(
            (outer.source(), outer.destination()),
            match gateways(true) {
                (IpAddr::V6(a), IpAddr::V6(b)) => (a, b),
                _ => unreachable!("gateways are of one version"),
            }
        );
        for (setting, expected) in [
            (crate::association::DontFragment::Copy, true),
            (crate::association::DontFragment::Set, true),
            (crate::association::DontFragment::Clear, false),
        ] {
            let mut pair = Pair::new(|| Parameters {
                dont_fragment: setting,
                ..parameters(suite, Mode::Tunnel, inner, false)
            });
            let first = pair.seal(&packet(inner, 10)).unwrap();
            let second = pair.seal(&packet(inner, 10)).unwrap();
            let (first, second) =
                (ipv4::Packet::parse(&first).unwrap(), ipv4::Packet::parse(&second).unwrap());
            assert_eq!((first.type_of_service(), first.time_to_live()), (0xba, 64));
            assert_eq!(first.dont_fragment(), expected);
            assert_ne!(first.identification(), second.identification());
        }
    }
}
