//! What becomes of a packet.

/// What becomes of a packet, with the values that netfilter gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is discarded.
    Drop,
    /// It goes on.
    Accept,
    /// The script keeps it: as [`Drop`](Self::Drop) for whoever carries packets.
    Stolen,
    /// It goes to a program that reads a queue.
    Queue,
    /// It goes through the same hook again.
    Repeat,
    /// The next rule has it.
    Continue,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 6] =
        [Self::Drop, Self::Accept, Self::Stolen, Self::Queue, Self::Repeat, Self::Continue];

    /// Name of the constant.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "NF_DROP",
            Self::Accept => "NF_ACCEPT",
            Self::Stolen => "NF_STOLEN",
            Self::Queue => "NF_QUEUE",
            Self::Repeat => "NF_REPEAT",
            Self::Continue => "XT_CONTINUE",
        }
    }

    /// Value of the constant, as in linux/netfilter.h and linux/netfilter/x_tables.h.
    pub const fn value(self) -> i64 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Stolen => 2,
            Self::Queue => 3,
            Self::Repeat => 4,
            Self::Continue => 0xffff_ffff,
        }
    }

    /// The verdict of this value.
    pub fn from_value(value: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.value() == value)
    }
}
