//! Peers of the classic profile (docs/classic.md section 11): their values, and what concerns several of them.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use classic::cipher::Cipher;
use classic::hashed::{Host, Rotation};
use classic::profile::{Carry, ConfigError, KeyExchange, LEAST_LIFETIME, StreamConfig};
use toml::Spanned;

use crate::converter::{Converter, SecretKind};
use crate::peer::{Encapsulation, PeerTable, carry};
use crate::report::{Finding, Report};
use crate::value::{self, Problem, parse_duration, problem};

/// The outer MTU as long as that of the path is not known, in bytes.
const OUTER_MTU: u16 = 1500;

const SESSION_KEY: SecretKind = SecretKind {
    name: "session_key",
    command: "openssl rand -hex 64",
    form: "a session key is 128 hexadecimal digits, as `openssl rand -hex 64` prints them, the same at both ends",
};

/// Whether packets of an unencrypted stream are carried in the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KernelUse {
    /// If the kernel can.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Or sidestep does not start.
    Required,
}

/// A peer of the classic profile: one stream between two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassicPeer {
    /// The name that the user gave it.
    pub name: String,
    /// What the protocol needs of it. The outer MTU is 1500 until somebody knows better.
    pub stream: StreamConfig,
    /// Where the session key came from, and an adopted one is to be stored; None if it stands in the configuration.
    pub session_key_file: Option<PathBuf>,
    /// Whether its packets are carried in the kernel.
    pub kernel: KernelUse,
}

impl Converter<'_> {
    /// A peer of the classic profile.
    pub(crate) fn classic_peer(&mut self, peer: &PeerTable) -> Option<ClassicPeer> {
        let name = self.value(&peer.name, value::peer_name);
        let local = self.value(&peer.local_address, value::host_address);
        let remote = self.value(&peer.remote_address, value::host_address);
        let local_mac = self.optional(&peer.local_mac, value::mac);
        let remote_mac = self.optional(&peer.remote_mac, value::mac);
        if peer.session_key.is_absent() {
            self.require(&peer.session_key_file, "a file with the key that both ends share");
        }
        let key = self.secret(&SESSION_KEY, &peer.session_key, &peer.session_key_file);
        let cipher = self.value(&peer.cipher, cipher);
        let rotation = self.value(&peer.rotation, seconds);
        let spread = self.optional(&peer.rotation_spread, seconds);
        let lifetime = self.optional(&peer.lifetime, seconds);
        let interval = self.value(&peer.key_exchange, key_exchange);
        let window = self.value(&peer.key_exchange_window, seconds);
        let carry = self.value(&peer.carry, carry);
        let kernel = self.value(&peer.kernel, kernel);

        let least = rotation?;
        let rotation =
            spread?.map_or(Rotation::Fixed(least), |spread| Rotation::Randomised { spread, least });
        let shortest_lifetime = rotation.longest().saturating_mul(LEAST_LIFETIME);
        let window = window?;
        Some(ClassicPeer {
            name: name?,
            stream: StreamConfig {
                local: Host { address: local?, mac: local_mac? },
                remote: Host { address: remote?, mac: remote_mac? },
                key: key?,
                cipher: cipher?,
                carry: match carry? {
                    // A mask is refused with the tables of what is to be masked: there is none for such a peer.
                    Encapsulation::Encapsulate | Encapsulation::Mask => Carry::Encapsulate,
                    Encapsulation::Rewrite => Carry::Rewrite,
                },
                rotation,
                lifetime: lifetime?.unwrap_or(shortest_lifetime),
                key_exchange: interval?.map(|interval| KeyExchange { interval, window }),
                outer_mtu: OUTER_MTU,
            },
            session_key_file: peer.session_key_file.text().map(|file| self.folder().join(file)),
            kernel: kernel?,
        })
    }
}

/// Has the protocol check each stream, and all of them for hosts that meet twice.
pub(crate) fn check(tables: &[Spanned<PeerTable>], peers: &[(usize, ClassicPeer)], report: &mut Report) {
    let mut earlier: HashMap<_, Range<usize>> = HashMap::new();
    for (index, peer) in peers {
        let Some(table) = tables.get(*index).map(Spanned::get_ref) else { continue };
        let stream = &peer.stream;
        if let Err(error) = stream.check() {
            report.add(finding(error, table));
        }
        if peer.kernel == KernelUse::Required && stream.cipher.is_some() {
            report.add(Finding::error(
                table.kernel.span(),
                "an encrypted stream cannot be carried in the kernel",
                "required here",
                "write cipher = \"none\", or leave `kernel` out",
            ));
        }
        let span = table.remote_address.span();
        let hosts = (stream.local.address, stream.remote.address);
        if let Some(first) = earlier.insert(hosts, span.clone()) {
            let help = "each pair of hosts has one stream; remove one of the peers";
            report.add(
                Finding::error(span, ConfigError::SameStream.to_string(), "the second", help)
                    .related(first, "the first"),
            );
        }
    }
}

fn finding(error: ConfigError, peer: &PeerTable) -> Finding {
    let (place, help) = match error {
        ConfigError::Address => (peer.local_address.place(), "give the addresses that the two hosts have"),
        ConfigError::SameHost => {
            (peer.remote_address.place(), "give the address of the host on the other side")
        }
        ConfigError::OneMac => {
            (peer.local_mac.place().or(peer.remote_mac.place()), "give local_mac and remote_mac, or neither")
        }
        ConfigError::Carry => {
            (peer.carry.place(), "write cipher = \"none\"; the hosts must encrypt what is to be secret")
        }
        ConfigError::Rotation => (peer.rotation.place(), "with rotation_spread, the sum of both counts"),
        ConfigError::Lifetime => (peer.lifetime.place(), "leave the line out, or write a longer time"),
        ConfigError::KeyExchange => (peer.key_exchange.place(), "write \"24h\", or \"off\" for never"),
        ConfigError::Mtu | ConfigError::SameStream => (None, ""),
    };
    let span = place.map_or_else(|| peer.name.span(), |(_, span)| span);
    Finding::error(span, error.to_string(), "", help)
}

/// A number of whole seconds, as the classic profile counts.
fn seconds(text: &str) -> Result<u32, Problem> {
    const HELP: &str = "write whole seconds, like 10s, 1m or 24h";
    match parse_duration(text) {
        Ok(duration) if duration.subsec_nanos() == 0 => {
            u32::try_from(duration.as_secs()).map_or_else(|_| problem("out of range", HELP), Ok)
        }
        Ok(_) => problem("not whole seconds", HELP),
        Err(error) => problem("not a duration", error.to_string()),
    }
}

/// When keys of the classic profile are exchanged, in seconds; None is never.
fn key_exchange(text: &str) -> Result<Option<u32>, Problem> {
    if text == "off" { Ok(None) } else { seconds(text).map(Some) }
}

/// The encryption of the classic profile.
fn cipher(text: &str) -> Result<Option<Cipher>, Problem> {
    match text {
        "aes-256-cbc" => Ok(Some(Cipher::Aes256Cbc)),
        "aes-128-cbc" => Ok(Some(Cipher::Aes128Cbc)),
        "none" => Ok(None),
        _ => problem("not a cipher", r#"write "aes-256-cbc", "aes-128-cbc" or "none""#),
    }
}

/// Where packets of a peer of the classic profile are carried.
fn kernel(text: &str) -> Result<KernelUse, Problem> {
    match text {
        "auto" => Ok(KernelUse::Auto),
        "off" => Ok(KernelUse::Off),
        "required" => Ok(KernelUse::Required),
        _ => problem("not a choice", r#"write "auto", "off" or "required""#),
    }
}
