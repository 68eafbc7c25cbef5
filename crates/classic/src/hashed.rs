//! What follows from a session key and the time: rotation interval, hashed addresses and ports (thesis sections 2.5.2,
//! 2.7.4 and 3.2.2; docs/classic.md sections 3 and 4).

use std::net::Ipv6Addr;

use sha2::{Digest, Sha256};

use crate::keys::SessionKey;

/// How long an interval is, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// Always the same.
    Fixed(u32),
    /// From `least` to `least + spread - 1`, chosen by the session key.
    Randomised {
        /// c1 of the document, at least 1.
        spread: u32,
        /// c2 of the document.
        least: u32,
    },
}

impl Rotation {
    /// The interval under a session key, in seconds.
    pub fn interval(self, key: &SessionKey) -> u32 {
        match self {
            Rotation::Fixed(seconds) => seconds,
            Rotation::Randomised { spread, least } => {
                let hash = Sha256::digest(key.as_bytes());
                let spread = u64::from(spread.max(1));
                let remainder = hash.iter().fold(0, |sum, byte| (sum << 8 | u64::from(*byte)) % spread);
                least.saturating_add(remainder as u32)
            }
        }
    }

    /// The shortest interval under any key.
    pub fn shortest(self) -> u32 {
        match self {
            Rotation::Fixed(seconds) => seconds,
            Rotation::Randomised { least, .. } => least,
        }
    }

    /// The longest interval under any key.
    pub fn longest(self) -> u32 {
        match self {
            Rotation::Fixed(seconds) => seconds,
            Rotation::Randomised { spread, least } => least.saturating_add(spread.saturating_sub(1)),
        }
    }
}

/// Number of an interval since 1970: what changes the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Salt(pub u64);

/// A protected host, as it enters the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// The true address.
    pub address: Ipv6Addr,
    /// The MAC address, if the stream hashes it, as the C version did.
    pub mac: Option<[u8; 6]>,
}

/// What stands for a host outside during an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashedHost {
    /// The hashed address, in the /64 of the true one.
    pub address: Ipv6Addr,
    /// The port as a destination. As a source, [`HashedHost::source_port`].
    pub port: u16,
}

impl Host {
    /// The host under a session key and salt.
    pub fn hashed(&self, key: &SessionKey, salt: Salt) -> HashedHost {
        let octets = self.address.octets();
        let mut hash = Sha256::new();
        hash.update(&octets[8..]);
        hash.update(key.as_bytes());
        if let Some(mac) = self.mac {
            hash.update(mac);
        }
        hash.update(salt.0.to_be_bytes());
        let hash = hash.finalize();
        let mut address = octets;
        address[8..].copy_from_slice(&hash[..8]);
        let port = u16::from_be_bytes([hash[8], hash[9]]);
        let port = if port & 0x7fff == 0 { port + 1 } else { port };
        HashedHost { address: address.into(), port }
    }
}

impl HashedHost {
    /// The port of packets from this host: the top bit is the flag of the key exchange.
    pub fn source_port(&self, flag: bool) -> u16 {
        self.port & 0x7fff | u16::from(flag) << 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SESSION_KEY_LEN;
    use proptest::prelude::*;

    fn key(byte: u8) -> SessionKey {
        SessionKey::from_bytes([byte; SESSION_KEY_LEN])
    }

    #[test]
    fn each_ingredient_changes_the_address() {
        let host = Host { address: "2001:468:c80:c111::1".parse().unwrap(), mac: None };
        let plain = host.hashed(&key(1), Salt(7)).address;
        for other in [
            host.hashed(&key(2), Salt(7)),
            host.hashed(&key(1), Salt(8)),
            Host { mac: Some([0; 6]), ..host }.hashed(&key(1), Salt(7)),
            Host { address: "2001:468:c80:c111::2".parse().unwrap(), mac: None }.hashed(&key(1), Salt(7)),
        ] {
            assert_ne!(other.address, plain);
            assert_eq!(other.address.segments()[..4], plain.segments()[..4]);
        }
    }

    proptest! {
        #[test]
        fn an_interval_lies_in_its_range(byte: u8, spread in 1u32..3600, least in 1u32..3600) {
            let rotation = Rotation::Randomised { spread, least };
            prop_assert!((least..=rotation.longest()).contains(&rotation.interval(&key(byte))));
        }

        #[test]
        fn no_port_is_zero(byte: u8, salt: u64, flag: bool) {
            let host = Host { address: Ipv6Addr::LOCALHOST, mac: None }.hashed(&key(byte), Salt(salt));
            prop_assert!(host.port != 0 && host.source_port(flag) & 0x7fff != 0);
        }
    }
}
