//! Peers of the classic profile (docs/classic.md section 11): their values, and what concerns several of them.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use classic::hashed::{Host, Rotation};
use classic::profile::{ConfigError, KeyExchange, LEAST_LIFETIME, StreamConfig};
use toml::Spanned;

use super::convert::{Converter, SecretKind};
use super::document::{Document, Peer, Text};
use super::report::{Finding, Report};
use super::value;

/// Interval when none is given, in seconds.
const ROTATION: u32 = 10;
/// Interval and window of key exchanges when none are given, in seconds: those of the thesis's tests.
const KEY_EXCHANGE: KeyExchange = KeyExchange { interval: 86_400, window: 30 };
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
    pub(super) fn classic_peer(&mut self, table: &Spanned<Peer>) -> Option<ClassicPeer> {
        let (peer, header) = (table.get_ref(), table.span());
        let owner =
            peer.name.as_ref().map_or("[[peer]]".to_owned(), |name| format!("peer {:?}", name.get_ref()));
        let name =
            self.required(&peer.name, &header, &owner, "name", "any name that tells you which peer it is");
        let name = self.value("name", name, |text| value::peer_name(text));
        let mut address = |name: &'static str, given: &Text, help: &str| {
            let given = self.required(given, &header, &owner, name, help);
            self.value(name, given, |text| value::host_address(text))
        };
        let local = address("local_address", &peer.local_address, "the protected host on this side");
        let remote = address("remote_address", &peer.remote_address, "the protected host on the other side");
        let local_mac = self.optional("local_mac", peer.local_mac.as_ref(), |text| value::mac(text));
        let remote_mac = self.optional("remote_mac", peer.remote_mac.as_ref(), |text| value::mac(text));
        let (inline, file) = (peer.session_key.as_ref(), peer.session_key_file.as_ref());
        if inline.is_none() && file.is_none() {
            self.missing(&header, &owner, "session_key_file", "a file with the key that both ends have");
        }
        let key = self.secret(&SESSION_KEY, inline, file);
        let cipher = self.optional("cipher", peer.cipher.as_ref(), |text| value::cipher(text));
        let rotation = self.optional("rotation", peer.rotation.as_ref(), |text| value::seconds(text));
        let spread =
            self.optional("rotation_spread", peer.rotation_spread.as_ref(), |text| value::seconds(text));
        let lifetime = self.optional("lifetime", peer.lifetime.as_ref(), |text| value::seconds(text));
        let interval =
            self.optional("key_exchange", peer.key_exchange.as_ref(), |text| value::key_exchange(text));
        let window = self
            .optional("key_exchange_window", peer.key_exchange_window.as_ref(), |text| value::seconds(text));

        let carry = self.optional("carry", peer.carry.as_ref(), |text| value::carry(text));
        let kernel = self.optional("kernel", peer.kernel.as_ref(), |text| value::kernel(text));

        let least = rotation?.unwrap_or(ROTATION);
        let rotation =
            spread?.map_or(Rotation::Fixed(least), |spread| Rotation::Randomised { spread, least });
        let shortest_lifetime = rotation.longest().saturating_mul(LEAST_LIFETIME);
        let window = window?.unwrap_or(KEY_EXCHANGE.window);
        let interval = interval?.unwrap_or(Some(KEY_EXCHANGE.interval));
        Some(ClassicPeer {
            name: name?,
            stream: StreamConfig {
                local: Host { address: local?, mac: local_mac? },
                remote: Host { address: remote?, mac: remote_mac? },
                key: key?,
                cipher: cipher?.unwrap_or(Some(classic::cipher::Cipher::Aes256Cbc)),
                carry: carry?.unwrap_or_default(),
                rotation,
                lifetime: lifetime?.unwrap_or(shortest_lifetime),
                key_exchange: interval.map(|interval| KeyExchange { interval, window }),
                outer_mtu: OUTER_MTU,
            },
            session_key_file: file.map(|file| self.folder().join(file.get_ref())),
            kernel: kernel?.unwrap_or_default(),
        })
    }
}

/// Has the protocol check each stream, and all of them for hosts that meet twice.
pub(super) fn check(document: &Document, peers: &[(usize, ClassicPeer)], report: &mut Report) {
    let mut earlier: HashMap<_, Range<usize>> = HashMap::new();
    for (index, peer) in peers {
        let Some(table) = document.peer.get(*index).map(Spanned::get_ref) else { continue };
        let stream = &peer.stream;
        if let Err(error) = stream.check() {
            report.add(finding(error, table));
        }
        if peer.kernel == KernelUse::Required && stream.cipher.is_some() {
            report.add(Finding::error(
                span(table.kernel.as_ref()),
                "an encrypted stream cannot be carried in the kernel",
                "required here",
                "write cipher = \"none\", or leave `kernel` out",
            ));
        }
        let span = span(table.remote_address.as_ref());
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

fn finding(error: ConfigError, peer: &Peer) -> Finding {
    let (key, help) = match error {
        ConfigError::Address => (&peer.local_address, "give the addresses that the two hosts have"),
        ConfigError::SameHost => (&peer.remote_address, "give the address of the host on the other side"),
        ConfigError::OneMac => (&peer.local_mac, "give local_mac and remote_mac, or neither"),
        ConfigError::Carry => {
            (&peer.carry, "write cipher = \"none\": what is to be secret must be encrypted by the hosts")
        }
        ConfigError::Rotation => (&peer.rotation, "with rotation_spread, their sum counts"),
        ConfigError::Lifetime => (&peer.lifetime, "leave the line out, or write more"),
        ConfigError::KeyExchange => (&peer.key_exchange, "write \"24h\", or \"off\" for never"),
        ConfigError::Mtu | ConfigError::SameStream => (&peer.name, ""),
    };
    let key = key.as_ref().or(peer.remote_mac.as_ref().filter(|_| error == ConfigError::OneMac));
    Finding::error(span(key.or(peer.name.as_ref())), error.to_string(), "", help)
}

fn span<T>(value: Option<&Spanned<T>>) -> Range<usize> {
    value.map_or(0..0, Spanned::span)
}
