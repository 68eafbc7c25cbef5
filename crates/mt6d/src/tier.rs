//! The tiers of rendezvous: how far apart two clocks may be (docs/protocol.md, "Rendezvous").

use crate::id::Epoch;

/// How far apart two clocks may be, at the price of how long a rendezvous endpoint lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Epochs of 30 s, for clocks up to a minute apart.
    Seconds = 0,
    /// Epochs of an hour, for clocks up to an hour apart.
    Hours = 1,
    /// Epochs of 32 days, for devices without a clock; only where both ends opt in.
    Days = 2,
}

impl Tier {
    /// All tiers, in the order in which they are tried.
    pub const ALL: [Tier; 3] = [Tier::Seconds, Tier::Hours, Tier::Days];

    /// The tier's number on the wire and in derivations.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The average length of its epochs, in milliseconds.
    pub fn interval_ms(self) -> u64 {
        match self {
            Tier::Seconds => 30_000,
            Tier::Hours => 3_600_000,
            Tier::Days => 32 * 86_400_000,
        }
    }

    /// How far the initiator's clock may be from the listener's, in milliseconds. A minute above the hour in the
    /// second tier, so that "an hour apart" holds to the last second.
    pub fn tolerance_ms(self) -> u64 {
        match self {
            Tier::Seconds => 60_000,
            Tier::Hours => 3_660_000,
            Tier::Days => 32 * 86_400_000,
        }
    }
}

/// An epoch of a tier: both ends have a rendezvous endpoint in each that they think current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TierEpoch {
    pub(crate) tier: Tier,
    pub(crate) epoch: Epoch,
}
