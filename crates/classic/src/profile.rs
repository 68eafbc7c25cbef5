//! What a stream is configured with (thesis Table 3.1, docs/classic.md sections 11 and 12).

use std::ops::RangeInclusive;

use crate::cipher::Cipher;
use crate::hashed::{Host, Rotation};
use crate::keys::SessionKey;
use crate::packet;

/// Rotation intervals, in seconds.
pub const INTERVAL: RangeInclusive<u32> = 1..=3600;
/// The longest lifetime of a route, in seconds.
pub const LONGEST_LIFETIME: u32 = 86_400;
/// Intervals that a route lives at least: it is made in one, sent on in the next, heard for a third.
pub const LEAST_LIFETIME: u32 = 3;
/// The longest interval and window of key exchanges together, in seconds.
pub const LONGEST_KEY_EXCHANGE: u32 = 31 * 86_400;

/// How packets travel between the nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Carry {
    /// In the payload of packets between hashed addresses, as it was published.
    #[default]
    Encapsulate,
    /// As they are, but with hashed addresses in place of the true ones.
    Rewrite,
}

/// One stream: two protected hosts, and what both ends have agreed on beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// The host on this side.
    pub local: Host,
    /// The host on the other side.
    pub remote: Host,
    /// The session key to begin with.
    pub key: SessionKey,
    /// How inner packets are encrypted; `None` is not at all.
    pub cipher: Option<Cipher>,
    /// How they travel.
    pub carry: Carry,
    /// How often addresses change.
    pub rotation: Rotation,
    /// How long a route is heard after it was made, in seconds.
    pub lifetime: u32,
    /// When this end offers new session keys; `None` is never.
    pub key_exchange: Option<KeyExchange>,
    /// The largest outer packet, in bytes.
    pub outer_mtu: u16,
}

/// When new session keys are offered: `interval` ± `window` seconds apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyExchange {
    /// `regen_interval` of the thesis.
    pub interval: u32,
    /// `regen_window` of the thesis.
    pub window: u32,
}

/// What is wrong with a stream's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A true address is none of a host.
    #[error("a true address is a unicast address that is neither link-local nor loopback")]
    Address,
    /// Both hosts are the same.
    #[error("the local and the remote host have the same address")]
    SameHost,
    /// One MAC address without the other.
    #[error("the hash needs both MAC addresses or neither")]
    OneMac,
    /// Encryption where there is nothing to encrypt.
    #[error("packets whose addresses are replaced cannot be encrypted")]
    Carry,
    /// The rotation interval is out of range.
    #[error("the rotation interval is 1 to 3600 seconds")]
    Rotation,
    /// The lifetime is out of range.
    #[error("a route lives for at least three times the longest interval, and at most a day")]
    Lifetime,
    /// The times of key exchanges are out of range.
    #[error("keys are exchanged at least two lifetimes and at most 31 days apart, the window included")]
    KeyExchange,
    /// The outer MTU is too small.
    #[error("the outer MTU is below the 1280 bytes of IPv6")]
    Mtu,
    /// Two streams are between the same hosts.
    #[error("two streams connect the same hosts")]
    SameStream,
}

impl StreamConfig {
    /// The largest inner packet, in bytes.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu_of(self.outer_mtu)
    }

    /// The same where outer packets may have so many bytes.
    pub(crate) fn inner_mtu_of(&self, outer_mtu: u16) -> u16 {
        match self.carry {
            Carry::Encapsulate => packet::inner_mtu(self.cipher, outer_mtu),
            Carry::Rewrite => outer_mtu,
        }
    }

    /// Says what is wrong with it, if anything is.
    ///
    /// # Errors
    /// The first [`ConfigError`] in the order of that list.
    pub fn check(&self) -> Result<(), ConfigError> {
        for address in [self.local.address, self.remote.address] {
            if address.is_multicast()
                || address.is_unspecified()
                || address.is_loopback()
                || address.is_unicast_link_local()
            {
                return Err(ConfigError::Address);
            }
        }
        if self.local.address == self.remote.address {
            return Err(ConfigError::SameHost);
        }
        if self.local.mac.is_some() != self.remote.mac.is_some() {
            return Err(ConfigError::OneMac);
        }
        if self.carry == Carry::Rewrite && self.cipher.is_some() {
            return Err(ConfigError::Carry);
        }
        let (least, spread) = match self.rotation {
            Rotation::Fixed(seconds) => (seconds, 1),
            Rotation::Randomised { spread, least } => (least, spread),
        };
        let longest = self.rotation.longest();
        if spread == 0 || !INTERVAL.contains(&least) || !INTERVAL.contains(&longest) {
            return Err(ConfigError::Rotation);
        }
        if !(LEAST_LIFETIME * longest..=LONGEST_LIFETIME).contains(&self.lifetime) {
            return Err(ConfigError::Lifetime);
        }
        if let Some(KeyExchange { interval, window }) = self.key_exchange {
            let shortest = interval.checked_sub(window).ok_or(ConfigError::KeyExchange)?;
            let longest = interval.checked_add(window).ok_or(ConfigError::KeyExchange)?;
            if shortest < 2 * self.lifetime || longest > LONGEST_KEY_EXCHANGE {
                return Err(ConfigError::KeyExchange);
            }
        }
        if self.outer_mtu < 1280 {
            return Err(ConfigError::Mtu);
        }
        Ok(())
    }
}
