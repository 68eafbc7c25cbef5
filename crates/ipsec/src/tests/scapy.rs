//! Each algorithm that scapy has, too, byte for byte: it opens what is sealed here, seals the same from the same number and
//! IV, and seals what is opened here. It has no GMAC, and extended numbers in ESP only with combined algorithms. AH with GMAC,
//! and the formats of 1995, are compared with what `reference/ipsec_plain.py` makes of the RFCs' texts.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::*;

/// Debian's own, which has scapy.
const PYTHON: &str = "/usr/bin/python3";
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference");

/// Destination options may stand on either side of a security header in transport mode (RFC 4302 §3.1.1, RFC 4303
/// §3.1.1): here they are hidden, scapy leaves them before it.
const DESTINATION: &str = "IPv6 with destination options";

/// What an implementation calls the algorithms of a suite; `None` for those that it has not.
pub(super) type Names = fn(Suite) -> Option<(&'static str, &'static str)>;

struct Case {
    name: String,
    packet: Vec<u8>,
    pair: Pair,
    asked: Value,
    is_same: bool,
}

#[test]
fn scapy_opens_what_is_sealed_and_seals_what_is_opened() {
    assert!(compare("scapy.layers.ipsec", "ipsec_scapy.py", names).is_none_or(|tried| tried > 400));
}

#[test]
fn what_scapy_has_not_is_compared_with_the_texts_of_the_rfcs() {
    let names = |suite| match suite {
        Suite::Ah(Authentication::AesGmac128 | Authentication::AesGmac256) => Some(("NULL", "AES-GMAC")),
        #[cfg(feature = "historic")]
        Suite::Ah(Authentication::KeyedMd5) => Some(("NULL", "KEYED-MD5")),
        #[cfg(feature = "historic")]
        Suite::Esp(Encryption::DesCbc, _) => Some(("DES-CBC", "NULL")),
        #[cfg(feature = "historic")]
        Suite::Esp(Encryption::DesCbcIv32, _) => Some(("DES-CBC-IV32", "NULL")),
        _ => None,
    };
    let module = "cryptography.hazmat.primitives.ciphers.aead";
    assert!(compare(module, "ipsec_plain.py", names).is_none_or(|tried| tried > 90));
}

/// What a script of `reference` opens, seals and seals next is right in each case that it has names for. How many there
/// were; `None` where Python is without a module that it needs.
pub(super) fn compare(module: &str, script: &str, names: Names) -> Option<usize> {
    let missing = match Command::new(PYTHON).args(["-c", &format!("import {module}")]).output() {
        Ok(run) if run.status.success() => None,
        Ok(run) => Some(String::from_utf8_lossy(&run.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = missing {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs {module} of Python: {why}");
        eprintln!("skipped: needs {module} of Python: {why}");
        return None;
    }
    let mut cases = cases(names);
    let asked: Vec<String> = cases.iter().map(|case| case.asked.to_string()).collect();
    for (case, answer) in cases.iter_mut().zip(ask(script, &asked)) {
        let name = &case.name;
        let bytes = |field: &str| {
            let text = answer[field].as_str().unwrap_or_else(|| panic!("{name}: {answer}"));
            hex::decode(text).unwrap()
        };
        assert_eq!(hex::encode(bytes("opened")), hex::encode(&case.packet), "{name}");
        if case.is_same {
            assert_eq!(answer["sealed"], case.asked["sealed"], "{name}");
        }
        let (opened, _) = case.pair.open(&bytes("next")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(hex::encode(opened), hex::encode(&case.packet), "{name}");
    }
    Some(cases.len())
}

/// A line to a script for each line from it.
fn ask(script: &str, lines: &[String]) -> Vec<Value> {
    let mut python = Command::new(PYTHON)
        .args(["-B", &format!("{REFERENCE}/{script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    let text = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let run = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    let answers: Vec<Value> = run
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!(answers.len(), lines.len(), "{errors}");
    answers
}

fn cases(names: Names) -> Vec<Case> {
    let mut cases = Vec::new();
    for suite in suites() {
        let Some(names) = names(suite) else { continue };
        for (kind, packet) in packets() {
            for mode in [Mode::Transport, Mode::Tunnel] {
                for outer_ipv6 in [false, true] {
                    for in_udp in [false, true] {
                        for sequence in [0, 7, u64::from(u32::MAX) + 7] {
                            let without_udp = suite.is_ah() || suite.is_historic();
                            let needless = mode == Mode::Transport && outer_ipv6 || without_udp && in_udp;
                            if !needless && (sequence == 0 || has_extended(suite)) {
                                let case = (suite, mode, outer_ipv6, in_udp, sequence);
                                cases.push(Case::new(kind, &packet, names, case));
                            }
                        }
                    }
                }
            }
        }
    }
    cases
}

/// Packets of both versions, and with what AH takes as zero or leaves as it is.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let udp = |is_ipv6, length| {
        let packet = packet(is_ipv6, length);
        packet[if is_ipv6 { 40 } else { 20 }..].to_vec()
    };
    // A router alert, which stays, and an option that may change on the way.
    let hop_by_hop = [protocol::UDP, 1, 5, 2, 0, 0, 0x3e, 6, 1, 2, 3, 4, 5, 6, 1, 0];
    let for_routers = [&hop_by_hop[..], &udp(true, 29)].concat();
    let for_the_end = [&[protocol::UDP, 0, 1, 4, 0, 0, 0, 0], &udp(true, 29)[..]].concat();
    vec![
        ("IPv6", packet(true, 100)),
        ("IPv6 of an odd length", packet(true, 13)),
        ("IPv6 with hop-by-hop options", with_payload(true, protocol::HOP_BY_HOP, &for_routers)),
        (DESTINATION, with_payload(true, protocol::DESTINATION_OPTIONS, &for_the_end)),
        ("IPv4", packet(false, 100)),
        ("IPv4 with options", with_ipv4_options(&udp(false, 30))),
    ]
}

/// A router alert, which stays, and a timestamp, which may change.
fn with_ipv4_options(payload: &[u8]) -> Vec<u8> {
    let options = [148, 4, 0, 0, 68, 8, 9, 0, 1, 2, 3, 4];
    let mut packet = with_payload(false, protocol::UDP, &[&options, payload].concat());
    packet[0] = 0x48;
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..32]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn names(suite: Suite) -> Option<(&'static str, &'static str)> {
    let authentication = |authentication| match authentication {
        Authentication::None => Some("NULL"),
        Authentication::HmacSha256 => Some("SHA2-256-128"),
        Authentication::HmacSha384 => Some("SHA2-384-192"),
        Authentication::HmacSha512 => Some("SHA2-512-256"),
        _ => None,
    };
    match suite {
        Suite::Ah(name) => Some(("NULL", authentication(name)?)),
        Suite::Esp(encryption, name) => {
            let encryption = match encryption {
                Encryption::Null => "NULL",
                Encryption::AesCbc128 | Encryption::AesCbc256 => "AES-CBC",
                Encryption::AesGcm128 | Encryption::AesGcm256 => "AES-GCM",
                Encryption::ChaCha20Poly1305 => "CHACHA20-POLY1305",
                #[cfg(feature = "historic")]
                Encryption::DesCbc | Encryption::DesCbcIv32 => return None,
            };
            Some((encryption, authentication(name)?))
        }
    }
}

fn has_extended(suite: Suite) -> bool {
    match suite {
        Suite::Ah(_) => !suite.is_historic(),
        Suite::Esp(encryption, _) => encryption.is_combined(),
    }
}

/// A key of which no two bytes are the same, so that one that is cut elsewhere is another.
fn key(length: usize) -> Vec<u8> {
    (0x11..).take(length).collect()
}

fn transform(suite: Suite) -> (Transform, Vec<u8>, Vec<u8>) {
    match suite {
        Suite::Ah(authentication) => {
            let key = key(authentication.key_length());
            let transform = AhTransform::new(authentication, &Key::new(&key)).unwrap();
            (Transform::Ah(transform), Vec::new(), key)
        }
        Suite::Esp(encryption, authentication) => {
            let (cipher, key) = (key(encryption.key_length()), key(authentication.key_length()));
            let transform =
                EspTransform::new(encryption, &Key::new(&cipher), authentication, &Key::new(&key)).unwrap();
            (Transform::Esp(transform), cipher, key)
        }
    }
}

impl Case {
    /// `skipped`: how many numbers the association has used before, extended ones if any.
    fn new(
        kind: &str,
        packet: &[u8],
        (encryption, authentication): (&str, &str),
        (suite, mode, outer_ipv6, in_udp, skipped): (Suite, Mode, bool, bool, u64),
    ) -> Self {
        let name =
            format!("{kind} {suite:?} {mode:?} outer IPv6 {outer_ipv6}, UDP {in_udp}, after {skipped}");
        let is_ipv6 = packet[0] >> 4 == 6;
        let mut pair = Pair::new(|| {
            let mut parameters = parameters(suite, mode, is_ipv6, outer_ipv6);
            parameters.transform = transform(suite).0;
            parameters.extended_sequence = skipped > 0;
            parameters.encapsulation =
                in_udp.then_some(UdpEncapsulation { source_port: 4500, destination_port: 4500 });
            parameters
        });
        pair.sender.skip(skipped);
        pair.receiver.skip(skipped);
        let sealed = pair.seal(packet).unwrap();
        let (_, cipher, key) = transform(suite);
        let asked = json!({
            "protocol": if suite.is_ah() { "ah" } else { "esp" },
            "spi": pair.sender.parameters().spi.0,
            "encryption": encryption,
            "encryption_key": hex::encode(cipher),
            "authentication": authentication,
            "authentication_key": hex::encode(key),
            "tunnel": mode == Mode::Tunnel,
            "in_udp": in_udp,
            "extended": skipped > 0,
            "sequence": pair.sender.last_sent().0,
            "packet": hex::encode(packet),
            "sealed": hex::encode(sealed),
        });
        let is_same = kind != DESTINATION || mode == Mode::Tunnel;
        Self { name, packet: packet.to_vec(), pair, asked, is_same }
    }
}
