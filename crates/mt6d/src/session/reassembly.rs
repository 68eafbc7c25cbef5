//! Inner packets that came in two halves (docs/protocol.md, "Split packets").

use std::time::Duration;

use crate::drops::DropReason;
use crate::time::Time;

/// Halves that may wait at once.
const PENDING: usize = 64;
/// How long a half waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is wrong with a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HalfError {
    /// It is neither the first nor the second.
    NoHalf,
    /// It is kept, but another was given up for it.
    GivenUp,
}

impl From<HalfError> for DropReason {
    fn from(_: HalfError) -> Self {
        DropReason::Reassembly
    }
}

/// The halves that wait for their other.
#[derive(Default)]
pub(crate) struct Reassembly {
    pending: Vec<Half>,
}

struct Half {
    id: u32,
    part: u8,
    bytes: Vec<u8>,
    arrived: Time,
}

impl Reassembly {
    /// Takes part 0 or 1 of packet `id`. The packet, if that completes it; an error if another half was given up for
    /// this one, or it is no half.
    pub(crate) fn add(
        &mut self,
        id: u32,
        part: u8,
        bytes: &[u8],
        now: Time,
    ) -> Result<Option<Vec<u8>>, HalfError> {
        if part > 1 {
            return Err(HalfError::NoHalf);
        }
        if let Some(at) = self.pending.iter().position(|h| h.id == id && now.since(h.arrived) < PATIENCE) {
            if self.pending[at].part == part {
                return Ok(None);
            }
            let other = self.pending.swap_remove(at).bytes;
            let (first, second) =
                if part == 1 { (other.as_slice(), bytes) } else { (bytes, other.as_slice()) };
            return Ok(Some([first, second].concat()));
        }
        let before = self.pending.len();
        self.pending.retain(|h| now.since(h.arrived) < PATIENCE);
        if self.pending.len() == PENDING {
            self.pending.remove(0);
        }
        let lost = self.pending.len() < before;
        self.pending.push(Half { id, part, bytes: bytes.to_vec(), arrived: now });
        if lost { Err(HalfError::GivenUp) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_join_in_any_order_and_do_not_wait_for_ever() {
        let mut reassembly = Reassembly::default();
        let now = Time::default();
        assert_eq!(reassembly.add(1, 1, b"second", now), Ok(None));
        assert_eq!(reassembly.add(2, 0, b"other", now), Ok(None));
        assert_eq!(reassembly.add(1, 0, b"first ", now), Ok(Some(b"first second".to_vec())));
        let late = now + PATIENCE;
        assert_eq!(
            reassembly.add(2, 1, b"late", late),
            Err(HalfError::GivenUp),
            "its first half was given up"
        );
        assert_eq!(reassembly.add(3, 2, b"", late), Err(HalfError::NoHalf), "there are two halves");
        for id in 0..1000 {
            let _ = reassembly.add(id, 0, b"half", late);
        }
        assert!(reassembly.pending.len() <= PENDING);
    }
}
