//! When each lane of a shape sends: slots, drawn for each lane by itself.
//!
//! What a lane does follows from a seed, from its number and from when it was born: not from what there is to carry, and not
//! from other lanes. Gaps are uniform between a half and one and a half of their mean.
//!
//! Where the process was kept from running, slots of several lanes are overdue. If they left together when it runs again,
//! or hurried to catch up, each such moment would show which lanes belong together. So an overdue slot is put off by a
//! time drawn for it, again if it is overdue then, and what lies further back is left out: nothing is made up for.

use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use super::delays::Delays;
use crate::id::LaneId;
use crate::time::Time;

/// A slot that is later than this is put off.
const LATE: Duration = Duration::from_micros(250);
/// One that was put off is put off again if it is later than this again; and further slots that are, are left out.
const STALL: Duration = Duration::from_millis(1);
/// How often a slot is put off: on a busy machine standstills follow each other.
const PUT_OFF: u8 = 3;

/// The slots of all lanes that are alive.
pub(crate) struct Slots {
    seed: Zeroizing<[u8; 32]>,
    lanes: Vec<LaneSlots>,
    /// How long after they were due slots were seen.
    pub(super) late: Delays,
    /// How many were put off.
    pub(super) put_off: u64,
}

struct LaneSlots {
    lane: LaneId,
    rng: ChaCha20Rng,
    mean: Duration,
    /// When the slot is drawn to be.
    due: Time,
    /// When it is: later, if it was put off.
    leaves: Time,
    /// How often it was.
    put_off: u8,
}

impl Slots {
    pub(crate) fn new(seed: [u8; 32], now: Time) -> Self {
        Slots { seed: Zeroizing::new(seed), lanes: Vec::new(), late: Delays::new(now), put_off: 0 }
    }

    /// A lane begins at `birth`, with a slot within the first gap, and has one every `mean` from then on.
    pub(crate) fn add(&mut self, lane: LaneId, birth: Time, mean: Duration) {
        let mut rng = ChaCha20Rng::from_seed(*self.seed);
        rng.set_stream(lane.0);
        let due = birth + draw(&mut rng, Duration::ZERO, mean);
        self.lanes.push(LaneSlots { lane, rng, mean, due, leaves: due, put_off: 0 });
    }

    /// Ends those lanes that are not to stay.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(LaneId) -> bool) {
        self.lanes.retain(|slots| stays(slots.lane));
    }

    /// Whether a lane has slots.
    pub(crate) fn has(&self, lane: LaneId) -> bool {
        self.lanes.iter().any(|slots| slots.lane == lane)
    }

    /// When the next slot is.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.lanes.iter().map(|slots| slots.leaves).min()
    }

    /// The lane of a slot whose time has come; to be asked until there is none.
    pub(crate) fn next(&mut self, now: Time) -> Option<LaneId> {
        loop {
            let slots = self.lanes.iter_mut().min_by_key(|slots| (slots.leaves, slots.lane))?;
            if slots.leaves > now {
                return None;
            }
            let late = now.since(slots.leaves);
            self.late.add(late, now);
            let most = if slots.put_off == 0 { LATE } else { STALL };
            if late > most && slots.put_off < PUT_OFF {
                self.put_off += u64::from(slots.put_off == 0);
                slots.put_off += 1;
                slots.leaves = now + draw(&mut slots.rng, Duration::from_micros(1), slots.mean / 2);
                continue;
            }
            slots.advance(now);
            return Some(slots.lane);
        }
    }
}

impl LaneSlots {
    fn advance(&mut self, now: Time) {
        let gap = draw(&mut self.rng, self.mean / 2, self.mean * 3 / 2);
        self.due = self.due + gap;
        if now.since(self.due) > STALL {
            self.due = now + gap;
        }
        self.leaves = self.due;
        self.put_off = 0;
    }
}

/// A time between two, in whole microseconds.
fn draw(rng: &mut ChaCha20Rng, least: Duration, most: Duration) -> Duration {
    let (least, most) = (least.as_micros() as u64, most.as_micros() as u64);
    Duration::from_micros(least + rng.next_u64() % (most.saturating_sub(least) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BIRTH: Time = Time::from_micros(1_000_000);

    fn slots(lanes: u64, mean: Duration) -> Slots {
        let mut slots = Slots::new([7; 32], BIRTH);
        (0..lanes).for_each(|lane| slots.add(LaneId(lane), BIRTH, mean));
        slots
    }

    /// What leaves when, by a process that wakes `late` behind each deadline.
    fn run(mut slots: Slots, time: Duration, mut late: impl FnMut() -> Duration) -> Vec<(u64, LaneId)> {
        let mut left = Vec::new();
        let mut now = BIRTH;
        while now < BIRTH + time {
            now = slots.deadline().expect("there are lanes").max(now) + late();
            while let Some(lane) = slots.next(now) {
                left.push((now.micros(), lane));
            }
        }
        left
    }

    #[test]
    fn a_lane_has_its_rate_and_no_gap_is_out_of_range() {
        let mean = Duration::from_micros(5_120);
        let left = run(slots(1, mean), Duration::from_secs(100), || Duration::ZERO);
        let expected = 100_000_000 / 5_120;
        assert!(left.len().abs_diff(expected) < expected / 100, "{} of {expected}", left.len());
        for gap in left.windows(2).map(|pair| pair[1].0 - pair[0].0) {
            assert!((2_560..=7_680).contains(&gap), "{gap}");
        }
    }

    #[test]
    fn a_lane_does_not_depend_on_others() {
        let alone = run(slots(1, Duration::from_millis(5)), Duration::from_secs(9), || Duration::ZERO);
        let beside = run(slots(4, Duration::from_millis(5)), Duration::from_secs(9), || Duration::ZERO);
        let beside: Vec<_> = beside.into_iter().filter(|(_, lane)| *lane == LaneId(0)).collect();
        let both = alone.len().min(beside.len());
        assert!(both > 1_700);
        assert_eq!(alone[..both], beside[..both]);
    }

    #[test]
    fn after_a_stall_lanes_neither_hurry_nor_begin_together() {
        let mean = Duration::from_millis(20);
        let mut wakes = 0;
        let left = run(slots(16, mean), Duration::from_secs(10), || {
            wakes += 1;
            if wakes == 100 { Duration::from_millis(300) } else { Duration::ZERO }
        });
        let pause = left.windows(2).find(|pair| pair[1].0 - pair[0].0 > 100_000).expect("the stall");
        let after: Vec<_> =
            left.iter().filter(|(at, _)| (pause[1].0..pause[1].0 + 1_000).contains(at)).collect();
        // Within half a gap there is one of each lane, so in a tenth of that 1.6 or so.
        assert!(after.len() <= 6, "{after:?}");
        for (number, (at, lane)) in left.iter().enumerate() {
            if let Some((next, _)) = left[number + 1..].iter().find(|(_, other)| other == lane) {
                assert!(next - at >= 1_000, "lane {lane} sends twice in {} us", next - at);
            }
        }
    }

    #[test]
    fn a_process_that_is_a_little_late_keeps_the_rate() {
        for mean in [200, 1_000, 5_000] {
            let left = run(slots(3, Duration::from_micros(mean)), Duration::from_secs(20), || {
                Duration::from_micros(120)
            });
            let expected = 3 * 20_000_000 / mean as usize;
            assert!(left.len() * 100 >= expected * 98, "{} of {expected}", left.len());
        }
    }

    /// How many of 90,000 datagrams follow one of another lane within 50 us, at a process that is `late`.
    fn together(late: impl FnMut() -> Duration) -> usize {
        let left = run(slots(3, Duration::from_millis(16)), Duration::from_secs(540), late);
        let left = &left[..90_000];
        left.windows(2).filter(|pair| pair[1].0 - pair[0].0 < 50 && pair[0].1 != pair[1].1).count()
    }

    #[test]
    fn standstills_that_follow_each_other_do_not_bring_lanes_together() {
        let calm = together(|| Duration::from_micros(30));
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let busy = together(|| match rng.next_u64() % 10 {
            0 => draw(&mut rng, Duration::from_millis(1), Duration::from_millis(8)),
            _ => Duration::from_micros(30),
        });
        assert!(busy * 10 < calm * 13, "{busy} and, by chance, {calm}");
    }

    proptest! {
        #[test]
        fn whenever_it_is_called_no_slot_is_early_and_the_rate_is_not_exceeded(
            waits in prop::collection::vec(0u64..40_000, 1..400),
            mean in 100u64..30_000,
        ) {
            let mut slots = slots(3, Duration::from_micros(mean));
            let mut now = BIRTH;
            let mut left = 0;
            for wait in waits {
                now = now + Duration::from_micros(wait);
                let due = slots.deadline().unwrap();
                let mut any = false;
                while slots.next(now).is_some() {
                    left += 1;
                    any = true;
                }
                prop_assert!(!any || due <= now);
                prop_assert!(slots.deadline().unwrap() > now);
            }
            let most = 3 * (now.since(BIRTH).as_micros() as u64 / (mean / 2).max(1) + 2);
            prop_assert!(left <= most, "{} of {}", left, most);
        }
    }
}
