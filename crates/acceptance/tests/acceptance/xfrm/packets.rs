//! Each algorithm that both have: datagrams of several sizes from the kernel to the host and back, whole and in
//! fragments; and TCP.

use std::io::{Read, Write};
use std::net::{SocketAddrV6, TcpStream};
use std::time::{Duration, Instant};

use ipsec::algorithm::{AhTransform, Authentication, Encryption, EspTransform};
use ipsec::association::{Mode, Protocol, Transform};
use ipsec::key::Key;
use linux::netns;
use stack::tcp;
use wire::protocol;

use super::scene::{Scene, Way, ends, header_of};

/// Algorithms of an association.
#[derive(Clone, Copy, Debug)]
pub(super) enum Suite {
    Esp(Encryption, Authentication),
    Ah(Authentication),
}

use Authentication::{AesGmac128, AesGmac256, HmacSha256, HmacSha384, HmacSha512};
use Encryption::{AesCbc128, AesCbc256, AesGcm128, AesGcm256, ChaCha20Poly1305, Null};

const SUITES: [Suite; 13] = [
    GCM,
    Suite::Esp(AesGcm256, Authentication::None),
    Suite::Esp(ChaCha20Poly1305, Authentication::None),
    Suite::Esp(AesCbc128, HmacSha256),
    Suite::Esp(AesCbc256, HmacSha384),
    Suite::Esp(AesCbc128, HmacSha512),
    Suite::Esp(Null, HmacSha256),
    Suite::Esp(Null, HmacSha512),
    Suite::Esp(Null, AesGmac128),
    Suite::Esp(Null, AesGmac256),
    Suite::Ah(HmacSha256),
    Suite::Ah(HmacSha384),
    Suite::Ah(HmacSha512),
];

const GCM: Suite = Suite::Esp(AesGcm128, Authentication::None);

impl Suite {
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::Esp(..) => Protocol::Esp,
            Self::Ah(_) => Protocol::Ah,
        }
    }

    pub(super) fn proto(self) -> &'static str {
        if self.protocol() == Protocol::Ah { "ah" } else { "esp" }
    }

    pub(super) fn hides(self) -> bool {
        matches!(self, Self::Esp(encryption, _) if encryption != Null)
    }

    /// No two bytes of a key are the same, so that one that is cut elsewhere is another.
    fn key(length: usize) -> Vec<u8> {
        (0x20..).take(length).collect()
    }

    pub(super) fn transform(self) -> Transform {
        let key = |length| Key::new(&Self::key(length));
        match self {
            Self::Esp(encryption, authentication) => {
                let (cipher, integrity) = (key(encryption.key_length()), key(authentication.key_length()));
                let made = EspTransform::new(encryption, &cipher, authentication, &integrity);
                Transform::Esp(made.expect("a transform"))
            }
            Self::Ah(authentication) => {
                let made = AhTransform::new(authentication, &key(authentication.key_length()));
                Transform::Ah(made.expect("a transform"))
            }
        }
    }

    /// As `ip xfrm` calls it.
    pub(super) fn in_kernel(self) -> String {
        let hex = |length| {
            let digits: String = Self::key(length).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        };
        let integrity = |authentication: Authentication| {
            let (name, bits) = match authentication {
                HmacSha256 => ("hmac(sha256)", 128),
                HmacSha384 => ("hmac(sha384)", 192),
                HmacSha512 => ("hmac(sha512)", 256),
                _ => panic!("{authentication:?} is none of the kernel's"),
            };
            format!("auth-trunc {name} {} {bits}", hex(authentication.key_length()))
        };
        let combined = |name: &str, length| format!("aead {name} {} 128", hex(length));
        match self {
            Self::Ah(authentication) => integrity(authentication),
            Self::Esp(Null, AesGmac128 | AesGmac256) => {
                let Self::Esp(_, gmac) = self else { panic!("it is ESP") };
                combined("rfc4543(gcm(aes))", gmac.key_length())
            }
            Self::Esp(encryption, authentication) => match encryption {
                AesGcm128 | AesGcm256 => combined("rfc4106(gcm(aes))", encryption.key_length()),
                ChaCha20Poly1305 => combined("rfc7539esp(chacha20,poly1305)", encryption.key_length()),
                AesCbc128 | AesCbc256 => {
                    format!("{} enc cbc(aes) {}", integrity(authentication), hex(encryption.key_length()))
                }
                _ => format!("{} enc ecb(cipher_null) \"\"", integrity(authentication)),
            },
        }
    }
}

/// Datagrams whole and in fragments go to and fro, protected, and nothing is dropped.
fn assert_exchange(scene: &mut Scene, way: &Way) {
    scene.protect(way);
    assert_exchanged(scene, way);
}

fn assert_exchanged(scene: &mut Scene, way: &Way) {
    let socket = scene.socket(way.is_ipv6);
    for length in [1, 14, 1200, 4000] {
        let data: Vec<u8> = (0..length).map(|at: usize| (at % 251) as u8).collect();
        let answer = scene.echo(&socket, &data);
        let said = || format!("{way:?}, {length} bytes");
        let answer = answer.unwrap_or_else(|| {
            let (ours, theirs) = (scene.drops(), scene.kernel_drops());
            panic!("{}: no answer. Dropped here: {ours}; by the kernel: {theirs}", said())
        });
        assert_eq!(answer, data, "{}", said());
        let crossed = scene.take_crossed();
        assert!(crossed.len() >= if length > 1500 { 6 } else { 2 }, "{}: {}", said(), crossed.len());
        let expected = match way.suite.protocol() {
            Protocol::Ah => protocol::AUTHENTICATION,
            Protocol::Esp if way.in_udp => protocol::UDP,
            Protocol::Esp => protocol::ESP,
        };
        assert!(crossed.iter().all(|packet| header_of(packet) == expected), "{}", said());
        if length > 100 {
            let shows = crossed.iter().any(|packet| packet.windows(100).any(|part| part == &data[..100]));
            assert_eq!(shows, !way.suite.hides(), "{}", said());
        }
    }
    assert_eq!(scene.drops(), "[]", "{way:?}");
}

fn assert_all(mode: Mode, extended: bool) {
    if !super::is_there() {
        return;
    }
    let mut scene = Scene::new();
    // In tunnel mode policy knows no AH.
    let suites =
        SUITES.into_iter().filter(|suite| mode == Mode::Transport || suite.protocol() == Protocol::Esp);
    for suite in suites {
        for is_ipv6 in [true, false] {
            let way = Way { suite, mode, is_ipv6, extended, in_udp: false, used: 0 };
            assert_exchange(&mut scene, &way);
        }
    }
}

#[test]
fn each_algorithm_in_transport_mode() {
    assert_all(Mode::Transport, false);
}

#[test]
fn each_algorithm_in_tunnel_mode() {
    assert_all(Mode::Tunnel, false);
}

#[test]
fn each_algorithm_with_extended_sequence_numbers() {
    assert_all(Mode::Transport, true);
}

#[test]
fn extended_sequence_numbers_cross_two_to_the_32() {
    if !super::is_there() {
        return;
    }
    let mut scene = Scene::new();
    for suite in [GCM, Suite::Esp(AesCbc128, HmacSha256), Suite::Esp(Null, AesGmac128), Suite::Ah(HmacSha256)]
    {
        for mode in [Mode::Transport, Mode::Tunnel] {
            if mode == Mode::Tunnel && suite.protocol() == Protocol::Ah {
                continue;
            }
            let mut way =
                Way { suite, mode, is_ipv6: true, extended: true, in_udp: false, used: u32::MAX - 5000 };
            assert_exchange(&mut scene, &way);
            // Numbers near the end of the lower half are the next ones only to who has got far already (RFC 4303
            // appendix A2.2). Of the kernel's packets now the second is the last one of that half.
            way.used = u32::MAX - 2;
            scene.let_kernel_skip(&way);
            assert_exchanged(&mut scene, &way);
        }
    }
}

#[test]
fn esp_in_udp() {
    if !super::is_there() {
        return;
    }
    let mut scene = Scene::new();
    scene.take_udp();
    for suite in [GCM, Suite::Esp(AesCbc128, HmacSha256)] {
        for mode in [Mode::Transport, Mode::Tunnel] {
            for is_ipv6 in [true, false] {
                let way = Way { suite, mode, is_ipv6, extended: true, in_udp: true, used: 0 };
                assert_exchange(&mut scene, &way);
            }
        }
    }
}

#[test]
fn a_tcp_connection_carries_data_both_ways() {
    if !super::is_there() {
        return;
    }
    for (suite, mode) in
        [(GCM, Mode::Transport), (GCM, Mode::Tunnel), (Suite::Ah(HmacSha256), Mode::Transport)]
    {
        let mut scene = Scene::new();
        scene.protect(&Way { suite, mode, is_ipv6: true, extended: true, in_udp: false, used: 0 });
        let (_, host) = ends(true);
        let local = SocketAddrV6::new("::".parse().expect("an address"), 80, 0, 0);
        let config = tcp::Config::new(u16::MAX);
        let listener = scene.host().tcp_listen(local, config, 1).expect("a listener");
        let namespace = netns::Namespace::open(scene.namespace().name()).expect("the namespace");
        let data: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let sent = data.clone();
        let client = std::thread::spawn(move || {
            let connect = || TcpStream::connect((host, 80));
            let mut stream = namespace.run(connect).expect("a thread").expect("a connection");
            let mut reader = stream.try_clone().expect("a handle");
            let reading = std::thread::spawn(move || {
                let mut all = Vec::new();
                reader.read_to_end(&mut all).map(|_| all)
            });
            stream.write_all(&sent).expect("to be sent");
            stream.shutdown(std::net::Shutdown::Write).expect("an end");
            reading.join().expect("the reader").expect("an answer")
        });
        let mut server = None;
        let mut waiting = Vec::new();
        let mut chunk = vec![0; 16_384];
        let end = Instant::now() + Duration::from_secs(120);
        while !client.is_finished() {
            assert!(Instant::now() < end, "{suite:?}: {}; {}", scene.drops(), scene.kernel_drops());
            scene.run_once();
            server = server.or_else(|| scene.host().tcp_accept(listener).expect("the listener"));
            let Some(handle) = server else { continue };
            if waiting.is_empty() {
                let read = scene.host().read(handle, &mut chunk).expect("the connection");
                waiting.extend_from_slice(&chunk[..read]);
            }
            let written = scene.host().write(handle, &waiting).expect("the connection");
            waiting.drain(..written);
            if waiting.is_empty() && scene.host().tcp(handle).expect("the connection").has_ended() {
                scene.host().close(handle).expect("the connection");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(client.join().expect("the client"), data, "{suite:?} {mode:?}");
        scene.host().tcp_unlisten(listener).expect("the listener");
        if let Some(handle) = server {
            scene.host().abort(handle).expect("the connection");
        }
        let header = if suite.protocol() == Protocol::Ah { protocol::AUTHENTICATION } else { protocol::ESP };
        let headers: std::collections::BTreeSet<u8> =
            scene.take_crossed().iter().map(|packet| header_of(packet)).collect();
        assert_eq!(headers, [header].into(), "{suite:?} {mode:?}");
    }
}
