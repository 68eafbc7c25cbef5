//! What a test says about this host: lines of a key and its value.
//!
//! | key | value |
//! |---|---|
//! | `local`, `remote` | addresses of the two ends |
//! | `id`, `peer` | names of the two ends; no `peer` is any |
//! | `psk` | the key that both know, or else |
//! | `certificate`, `key`, `authority` | files in DER; the first two may come more than once, the leaf first |
//! | `ike`, `groups`, `esp`, `child-groups` | algorithms, with commas between them |
//! | `local-ts`, `remote-ts` | prefixes, with commas; `address` is what the end has or is given |
//! | `mobile`, `encapsulate`, `request` | `yes` |
//! | `port` | the only one that it has, in place of 500 and 4500 |
//! | `pool`, `dns` | what a client is given: a prefix, an address |
//! | `cookies-from`, `liveness` | a number |
//! | `inner` | source and destination of pings |

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use ike::certificate::Certificates;
use ike::config::{Authentication, ChildConfig, Config, Mode, PeerConfig, Pool};
use ike::crypto::encryption::{Encryption, Integrity};
use ike::crypto::group::Group;
use ike::crypto::secret::Secret;
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;

pub(crate) struct Settings {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) inner: Option<(IpAddr, IpAddr)>,
    pub(crate) config: Config,
}

impl Settings {
    pub(crate) fn read(file: &str) -> Result<Self, Box<dyn Error>> {
        let text = std::fs::read_to_string(file)?;
        let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.trim().split_once(' ')).collect();
        let all = |wanted: &str| -> Vec<&str> {
            lines.iter().filter(|(key, _)| *key == wanted).map(|(_, value)| *value).collect()
        };
        let one = |wanted: &str| all(wanted).first().copied();
        let name = |name: &str| Identity::Fqdn(name.to_owned());

        let authentication = match one("psk") {
            Some(key) => Authentication::SharedKey(Secret::new(key.as_bytes().to_vec())),
            None => {
                let files = |key| all(key).into_iter().map(std::fs::read).collect::<Result<Vec<_>, _>>();
                let key = std::fs::read(one("key").ok_or("no key")?)?;
                let certificates = Certificates::new(files("certificate")?, &key, files("authority")?)?;
                Authentication::Certificates(Box::new(certificates))
            }
        };
        let mut peer =
            PeerConfig::with(name(one("id").ok_or("no id")?), one("peer").map(name), authentication);
        peer.mobile = one("mobile").is_some();
        peer.encapsulate = one("encapsulate").is_some();
        peer.request_addresses = one("request").is_some();
        if let Some(after) = one("liveness") {
            peer.liveness_after = Duration::from_secs(after.parse()?);
        }
        for pool in all("pool") {
            let (address, length) = pool.split_once('/').ok_or("no prefix")?;
            peer.assigned.pools.push(Pool::prefix(address.parse()?, length.parse()?));
        }
        for server in all("dns") {
            peer.assigned.dns.push(server.parse()?);
        }

        let mut child =
            ChildConfig::new(Mode::Tunnel, selectors(one("local-ts"))?, selectors(one("remote-ts"))?);
        let algorithms = &mut child.algorithms;
        algorithms.integrity = Integrity::ALL.map(Into::into).to_vec();
        if let Some(list) = one("esp") {
            let (encryption, integrity) = encryptions(list)?;
            algorithms.encryption = encryption;
            algorithms.integrity = integrity.into_iter().map(Into::into).collect();
        }
        if let Some(list) = one("child-groups") {
            algorithms.groups = groups(list)?;
        }
        peer.children.push(child);

        let mut config = Config::new(vec![peer]);
        if let Some(list) = one("groups") {
            config.algorithms.groups = groups(list)?;
        }
        if let Some(list) = one("ike") {
            (config.algorithms.encryption, config.algorithms.integrity) = encryptions(list)?;
        }
        if let Some(number) = one("cookies-from") {
            config.cookies_from = number.parse()?;
        }
        if let Some(port) = one("port") {
            config.nat_port = port.parse()?;
        }
        let inner = match one("inner").and_then(|inner| inner.split_once(' ')) {
            Some((source, destination)) => Some((source.parse()?, destination.parse()?)),
            None => None,
        };
        let address = |key: &'static str| -> Result<IpAddr, Box<dyn Error>> {
            Ok(one(key).ok_or("no address")?.parse()?)
        };
        Ok(Self { local: address("local")?, remote: address("remote")?, inner, config })
    }
}

fn selectors(list: Option<&str>) -> Result<Vec<TrafficSelector>, Box<dyn Error>> {
    let parse = |prefix: &str| -> Result<TrafficSelector, Box<dyn Error>> {
        let (address, length) = prefix.split_once('/').ok_or("no prefix")?;
        Ok(TrafficSelector::prefix(address.parse()?, length.parse()?))
    };
    match list {
        None => Ok(vec![TrafficSelector::ANY_IPV4, TrafficSelector::ANY_IPV6]),
        Some("address") => Ok(Vec::new()),
        Some(list) => list.split(',').map(parse).collect(),
    }
}

fn groups(list: &str) -> Result<Vec<Group>, Box<dyn Error>> {
    let parse = |name: &str| match name {
        "x25519" => Ok(Group::Curve25519),
        "p256" => Ok(Group::P256),
        "p384" => Ok(Group::P384),
        _ => Err(format!("no group {name}").into()),
    };
    if list == "none" { Ok(Vec::new()) } else { list.split(',').map(parse).collect() }
}

fn encryptions(list: &str) -> Result<(Vec<Encryption>, Vec<Integrity>), Box<dyn Error>> {
    let (mut encryptions, mut integrities) = (Vec::new(), Vec::new());
    for name in list.split(',') {
        match name {
            "aes128gcm" => encryptions.push(Encryption::Aes128Gcm),
            "aes256gcm" => encryptions.push(Encryption::Aes256Gcm),
            "chacha20" => encryptions.push(Encryption::ChaCha20Poly1305),
            "aes128" => encryptions.push(Encryption::Aes128Cbc),
            "aes256" => encryptions.push(Encryption::Aes256Cbc),
            "sha256" => integrities.push(Integrity::HmacSha256),
            "sha384" => integrities.push(Integrity::HmacSha384),
            "sha512" => integrities.push(Integrity::HmacSha512),
            _ => return Err(format!("no algorithm {name}").into()),
        }
    }
    Ok((encryptions, integrities))
}
