//! What the path to the other end of a tunnel takes, as routers on it have said (RFC 1191, RFC 8201).

use std::time::{Duration, Instant};

/// How long what a router said is believed; then larger packets are tried again (RFC 1191 section 6.3, RFC 8201
/// section 4).
const BELIEVED: Duration = Duration::from_secs(600);

/// The path MTU of a tunnel with one other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    learned: Option<(u32, Instant)>,
}

impl PathMtu {
    /// A router has said that inner packets of so many bytes get there.
    pub fn learn(&mut self, mtu: u32, now: Instant) {
        let lower = self.limit().map_or(mtu, |known| known.min(mtu));
        self.learned = Some((lower, now + BELIEVED));
    }

    /// The largest inner packet, if a router has said something.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        self.learned.map(|(mtu, _)| mtu)
    }

    /// When it is to be forgotten.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.learned.map(|(_, until)| until)
    }

    /// Forgets what is old. Whether there was something.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.learned.take_if(|(_, until)| *until <= now).is_some()
    }

    /// Forgets it: the way is another now.
    pub fn forget(&mut self) {
        self.learned = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_believed_for_ten_minutes_from_the_last() {
        let start = Instant::now();
        let mut path = PathMtu::default();
        path.learn(1_400, start);
        path.learn(1_380, start + Duration::from_secs(60));
        path.learn(1_440, start + Duration::from_secs(120));
        assert_eq!(path.limit(), Some(1_380));
        assert!(!path.expire(start + Duration::from_secs(719)));
        assert_eq!(path.deadline(), Some(start + Duration::from_secs(720)));
        assert!(path.expire(start + Duration::from_secs(720)));
        assert_eq!((path.limit(), path.deadline()), (None, None));
    }
}
