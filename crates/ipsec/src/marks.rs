//! What a received packet has been through: the flags M_AUTHENTIC and M_DECRYPTED of NRL's stack.
//!
//! A packet begins with none. Each security header that is opened adds those that it stands for. A packet out of a tunnel,
//! or of a sender, that the association is not for loses them all: its peer, who is genuine, has wrapped up a forged one.
//!
//! What surrounds a tunnel lends its marks to what is inside only if it is of the tunnel's own peer.
//!
//! A stack that takes apart tunnels of other kinds (IP in IP, 6in4) gives what comes out of them [`Marks::NONE`]: nobody has
//! compared its source with an association.

use std::ops::BitOr;

/// Which security a packet arrived with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Marks {
    /// It is as its sender sent it (M_AUTHENTIC).
    pub authentic: bool,
    /// Nobody else could read it (M_DECRYPTED), by ESP in transport mode.
    pub decrypted: bool,
    /// Nobody else could read it (M_DECRYPTED), by ESP in tunnel mode.
    pub decrypted_from_tunnel: bool,
}

impl Marks {
    /// None, as a packet arrives.
    pub const NONE: Self = Self { authentic: false, decrypted: false, decrypted_from_tunnel: false };
}

impl BitOr for Marks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            authentic: self.authentic || other.authentic,
            decrypted: self.decrypted || other.decrypted,
            decrypted_from_tunnel: self.decrypted_from_tunnel || other.decrypted_from_tunnel,
        }
    }
}
