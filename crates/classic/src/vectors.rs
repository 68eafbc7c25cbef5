//! The test vectors beside docs/classic.md, which `reference/classic` computes in another language, checked against
//! this implementation.

use std::net::Ipv6Addr;
use std::path::Path as FilePath;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wire::ipv6;

use crate::cipher::{Cipher, CipherKeys};
use crate::hashed::{HashedHost, Host, Rotation, Salt};
use crate::keys::{SESSION_KEY_LEN, SessionKey};
use crate::packet::{Content, Offer, decapsulate, encapsulate};
use crate::routes::{Hosts, Path, Table, first_salt_after};
use crate::time::UnixTime;

const FILE: &str = include_str!("../../../docs/classic-vectors.json");

/// Every case of a section, computed here.
fn check(section: &str, compute: impl Fn(&Value) -> Value) {
    let published: Value = serde_json::from_str(FILE).unwrap();
    let cases = published[section].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        assert_eq!(compute(&case["given"]), case["then"], "{section}: {}", case["given"]);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| hex::decode(text).unwrap())
}

fn key(value: &Value) -> SessionKey {
    value.as_str().unwrap().parse().unwrap()
}

fn address(value: &Value) -> Ipv6Addr {
    value.as_str().unwrap().parse().unwrap()
}

fn host(given: &Value) -> Host {
    Host { address: address(&given["address"]), mac: bytes(&given["mac"]).map(|mac| mac.try_into().unwrap()) }
}

#[test]
fn rotation() {
    check("rotation", |given| {
        let (spread, least) = (number(&given["c1"]) as u32, number(&given["c2"]) as u32);
        json!({ "interval": Rotation::Randomised { spread, least }.interval(&key(&given["key"])) })
    });
}

#[test]
fn hashed_host() {
    check("host", |given| {
        let hashed = host(given).hashed(&key(&given["key"]), Salt(number(&given["salt"])));
        json!({ "address": hashed.address.to_string(), "port": hashed.port })
    });
}

#[test]
fn ten_thousand_salts() {
    check("hosts", |given| {
        let (host, key, first) = (host(given), key(&given["key"]), number(&given["first_salt"]));
        let mut digest = Sha256::new();
        for salt in first..first + number(&given["count"]) {
            let hashed = host.hashed(&key, Salt(salt));
            digest.update(hashed.address.octets());
            digest.update(hashed.port.to_be_bytes());
        }
        json!({ "sha256": hex::encode(digest.finalize()) })
    });
}

#[test]
fn packet() {
    check("packet", |given| {
        let key = key(&given["key"]);
        let ciphers = CipherKeys::new(&key);
        let end =
            |end: &Value| HashedHost { address: address(&end["address"]), port: number(&end["port"]) as u16 };
        let path = Path::new(&key, end(&given["source"]), end(&given["destination"]));
        let cipher = match given["cipher"].as_str().unwrap() {
            "aes-256-cbc" => Some(Cipher::Aes256Cbc),
            "aes-128-cbc" => Some(Cipher::Aes128Cbc),
            _ => None,
        };
        let inner = bytes(&given["inner"]);
        let offer = given["offer"]
            .as_object()
            .map(|offer| Offer { change: number(&offer["change"]) as u32, key: self::key(&offer["key"]) });
        let flag = given["flag"].as_bool().unwrap();
        let content = Content { flag, inner: inner.as_deref(), offer: offer.as_ref() };
        let mut outer = Vec::new();
        encapsulate(&path, &ciphers, cipher, content, &mut outer);

        let mut opened = Vec::new();
        let hosts = inner.as_deref().map_or((Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED), |inner| {
            let packet = ipv6::Packet::parse(inner).unwrap();
            (packet.source(), packet.destination())
        });
        let packet = ipv6::Packet::parse(&outer).unwrap();
        let what = decapsulate(&path, &ciphers, cipher, &packet, hosts, &mut opened).unwrap();
        assert_eq!((what.flag, what.offer, opened), (flag, offer, inner.unwrap_or_default()));
        json!({ "outer": hex::encode(outer) })
    });
}

#[test]
fn routes() {
    let host = |text: &str| Host { address: text.parse().unwrap(), mac: None };
    check("routes", |given| {
        let hosts = Hosts {
            local: host("2001:468:c80:c111::1"),
            remote: host("2001:468:c80:c111::2"),
            lifetime: number(&given["lifetime"]) as u32,
        };
        let zero = SessionKey::from_bytes([0; SESSION_KEY_LEN]);
        let mut table = Table::new(hosts, zero.clone(), number(&given["interval"]) as u32, Salt(0));
        let times = given["times"].as_array().unwrap().iter();
        let rounds = times.map(|now| {
            table.rehash(UnixTime::from_secs(number(now)), &mut |_| ());
            // What is set aside has lost its salt: found again by its address.
            let salt_of = |path: &Path| {
                (0..300).find(|salt| hosts.local.hashed(&zero, Salt(*salt)) == path.destination).unwrap()
            };
            let mut aside: Vec<u64> = table.aside().iter().map(salt_of).collect();
            aside.sort_unstable();
            json!({
                "live": table.live().map(|route| route.salt.0).collect::<Vec<_>>(),
                "in_use": table.in_use().unwrap().salt.0,
                "aside": aside,
            })
        });
        json!({ "rounds": rounds.collect::<Vec<_>>() })
    });
}

#[test]
fn change() {
    check("change", |given| {
        let first = first_salt_after(number(&given["boundary"]), number(&given["interval"]) as u32);
        json!({ "first_salt": first.0 })
    });
}

/// The reference computes the published file byte for byte.
#[test]
fn the_reference_agrees() {
    let reference = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../reference");
    let python =
        |arguments: &[&str]| Command::new("python3").args(arguments).current_dir(&reference).output();
    let missing = match python(&["-c", "import cryptography"]) {
        Ok(run) if run.status.success() => None,
        Ok(run) => Some(String::from_utf8_lossy(&run.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = missing {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs python3-cryptography: {why}");
        eprintln!("skipped: needs python3-cryptography: {why}");
        return;
    }
    let run = python(&["-B", "-m", "classic.vectors"]).unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&[run.stdout, run.stderr].concat()));
}
