//! How fast to send and let come in on a line that carries now more, now less (mobile, satellite, cable in the evening):
//! the rate of CAKE follows how long a host behind the line takes to answer.
//!
//! Where answers take longer while a direction is in full use, a queue grows in front of the line: that direction gets less.
//! Where they do not, it gets more, slowly once it comes near to what was too much last. Nothing is changed while nobody
//! needs more than there is. So does [cake-autorate](https://github.com/lynxthecat/cake-autorate), by other numbers.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// From one question to the next while a direction is in use, and while none is.
const ASKS: Duration = Duration::from_millis(200);
const ASKS_IDLE: Duration = Duration::from_secs(1);
/// A question that was not answered for this long is not answered any more.
const LOST: Duration = Duration::from_secs(3);
/// Nothing follows from questions that are not answered if none was for this long: the host is not there, or the line.
const GONE: Duration = Duration::from_secs(10);
/// In each direction an answer may wait behind two packets of 1500 bytes, which are no queue; in bits.
const TWO_PACKETS: f64 = 2.0 * 1_500.0 * 8.0;
/// So many of the newest answers count; so many late ones of them say that a queue grows, and no more than so many that none
/// does.
const ANSWERS: usize = 6;
const LATE_ANSWERS: usize = 3;
const LATE_BY_CHANCE: usize = 1;
/// Of its rate a direction uses this much: it would use more.
const FULL: f64 = 0.75;
/// Of the least that the line carries a direction uses this much: a queue may be of that.
const IN_USE: f64 = 0.5;
/// A queue that is no longer than this part of what it was gets shorter.
const SHORTER: f64 = 0.9;
/// What is left of a rate where a queue grows.
const LESS: f64 = 0.85;
/// How much more a second without one gives: before there was one, far from the rate that was too much last, and near it.
const MORE_AT_FIRST: f64 = 1.5;
const MORE: f64 = 1.1;
const MORE_NEARBY: f64 = 1.01;
/// What is near it.
const NEARBY: RangeInclusive<f64> = 0.9..=1.1;
/// What is carried is a mean over about so many seconds.
const SMOOTH: f64 = 0.5;
/// What is usual follows each answer by this much of the difference: longer ones slowly, as they may be of a queue.
const USUAL_LONGER: f64 = 0.001;
const USUAL_SHORTER: f64 = 0.5;

/// A direction of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What comes in.
    Down,
    /// What goes out.
    Up,
}

/// What is known of one direction.
#[derive(Clone, Debug)]
struct Rate {
    /// Bits per second, at least and at most.
    limits: RangeInclusive<u64>,
    /// Bits per second now.
    now: f64,
    /// Those at which a queue grew last.
    too_much: Option<f64>,
    /// Bytes that had gone when it was looked last.
    counted: Option<u64>,
    /// Bits per second that have gone since, and which part of the rate that is.
    carried: f64,
    used: f64,
}

/// What follows how long a host behind a line takes to answer.
#[derive(Clone, Debug)]
pub struct Autorate {
    /// Down and up.
    sides: [Option<Rate>; 2],
    /// An answer is late that takes this much longer than usual, in seconds.
    delay: f64,
    began: Instant,
    asks: Instant,
    looked: Instant,
    sequence: u16,
    /// Questions that were not answered yet, oldest first, and when each left.
    open: VecDeque<(u16, Instant)>,
    /// Whether each of the newest answers came late, oldest first; of questions that left since a rate was adapted to late ones.
    late: VecDeque<bool>,
    since: Instant,
    /// How long an answer takes usually, and how long the newest took; in seconds.
    usual: Option<f64>,
    newest: Option<f64>,
    /// How much longer the newest took when answers were late last.
    queue: f64,
    /// What is full was given as little as shows that the queue is not its, if it is still there.
    is_cleared: bool,
    answered: Option<Instant>,
}

impl Autorate {
    /// For the directions, down and up, that have limits, in bits per second. Each begins with the least, so that it is seen
    /// how long answers take without a queue. One that takes `delay` longer than usual is late.
    #[must_use]
    pub fn new(limits: [Option<RangeInclusive<u64>>; 2], delay: Duration, now: Instant) -> Self {
        let side = |limits: RangeInclusive<u64>| {
            let now = *limits.start() as f64;
            Rate { limits, now, too_much: None, counted: None, carried: 0.0, used: 0.0 }
        };
        Autorate {
            sides: limits.map(|limits| limits.map(side)),
            delay: delay.as_secs_f64(),
            began: now,
            asks: now,
            looked: now,
            sequence: 0,
            open: VecDeque::new(),
            late: VecDeque::new(),
            since: now,
            usual: None,
            newest: None,
            queue: 0.0,
            is_cleared: false,
            answered: None,
        }
    }

    /// The rate of a direction now, in bits per second; none where it has no limits.
    #[must_use]
    pub fn rate(&self, side: Side) -> Option<u64> {
        self.sides[side as usize].as_ref().map(|rate| rate.now as u64)
    }

    /// How long an answer takes usually, and how long the newest took.
    #[must_use]
    pub fn delays(&self) -> Option<(Duration, Duration)> {
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
        Some((seconds(self.usual?), seconds(self.newest?)))
    }

    /// Whether the host has answered lately.
    #[must_use]
    pub fn is_answered(&self, now: Instant) -> bool {
        self.answered.is_some_and(|at| now.saturating_duration_since(at) < GONE)
    }

    /// Whether nobody answers.
    #[must_use]
    pub fn asks_in_vain(&self, now: Instant) -> bool {
        !self.is_answered(now) && now.saturating_duration_since(self.began) >= GONE
    }

    /// Another host is asked from now on, which takes another time to answer.
    pub fn ask_another(&mut self, now: Instant) {
        (self.usual, self.newest, self.answered, self.queue) = (None, None, None, 0.0);
        (self.began, self.since, self.is_cleared) = (now, now, false);
        self.late.clear();
        self.open.clear();
    }

    /// When the next question is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.asks
    }

    /// Takes what each direction has carried so far, in bytes (none: not known now), and adapts the rates. Returns the sequence
    /// number of the question to send now.
    pub fn ask(&mut self, carried: [Option<u64>; 2], now: Instant) -> u16 {
        let elapsed = now.saturating_duration_since(self.looked).as_secs_f64();
        if elapsed > 0.0 {
            for (side, carried) in self.sides.iter_mut().zip(carried) {
                side.iter_mut().for_each(|side| side.count(carried, elapsed));
            }
            self.looked = now;
        }
        while let Some((_, sent)) =
            self.open.pop_front_if(|(_, sent)| now.saturating_duration_since(*sent) >= LOST)
        {
            self.note(sent, true);
        }
        self.adapt(elapsed, now);
        self.sequence = self.sequence.wrapping_add(1);
        self.open.push_back((self.sequence, now));
        let in_use = self.sides.iter().flatten().any(Rate::is_in_use);
        self.asks = now + if in_use { ASKS } else { ASKS_IDLE };
        self.sequence
    }

    /// The answer to a question has come.
    pub fn answer(&mut self, sequence: u16, now: Instant) {
        let Some(place) = self.open.iter().position(|(open, _)| *open == sequence) else { return };
        let Some((_, sent)) = self.open.remove(place) else { return };
        let took = now.saturating_duration_since(sent).as_secs_f64();
        let usual = self.usual.get_or_insert(took);
        *usual += (took - *usual) * if took < *usual { USUAL_SHORTER } else { USUAL_LONGER };
        let longer = took - *usual;
        let late = longer >= self.late_after();
        (self.newest, self.answered) = (Some(took), Some(now));
        self.note(sent, late);
    }

    /// How much longer than usual an answer takes that is late, in seconds.
    fn late_after(&self) -> f64 {
        self.delay + self.sides.iter().flatten().map(|rate| TWO_PACKETS / rate.now).sum::<f64>()
    }

    fn note(&mut self, sent: Instant, late: bool) {
        if sent < self.since {
            return;
        }
        if self.late.len() == ANSWERS {
            self.late.pop_front();
        }
        self.late.push_back(late);
    }

    fn adapt(&mut self, elapsed: f64, now: Instant) {
        let Some((usual, newest)) = self.usual.zip(self.newest).filter(|_| self.is_answered(now)) else {
            return;
        };
        let age = |sent: &Instant| now.saturating_duration_since(*sent).as_secs_f64() - usual;
        let overdue = self.open.iter().map(|(_, sent)| sent).filter(|sent| **sent >= self.since);
        let overdue: Vec<_> = overdue.map(age).filter(|age| *age >= self.late_after()).collect();
        let late = self.late.iter().filter(|late| **late).count() + overdue.len();
        let is_late = late >= LATE_ANSWERS;
        let queue = overdue.into_iter().fold(newest - usual, f64::max);
        // One that gets shorter is on its way out: what more there is of it came before.
        let grows = is_late && queue > self.queue * SHORTER;
        let is_clear = late <= LATE_BY_CHANCE && self.late.len() == ANSWERS;
        // Whose queue it is does not show in how long both ways take together: that of what is full, or most so. If less of that
        // does not help it is the other's, whose rate may be so far beyond what the line carries that it does not look full.
        let most_used = self.sides.iter().flatten().map(|rate| rate.used).fold(0.0, f64::max);
        let is_full = |rate: &Rate| rate.is_in_use() && rate.used >= most_used.min(FULL);
        if grows {
            if self.is_cleared {
                self.sides.iter_mut().flatten().filter(|rate| !is_full(rate)).for_each(Rate::look_full);
            }
            let [down, up] = &mut self.sides;
            let mut full = [down, up].map(|side| side.as_mut().filter(|rate| is_full(rate)));
            full.iter_mut().flatten().for_each(|rate| rate.reduce());
            // What comes in has come through the line: less than that empties its queue. What goes out is counted before, and
            // may be more than the line carries until there is no less.
            self.is_cleared = match full {
                [Some(_), _] => true,
                [None, Some(up)] => up.now <= *up.limits.start() as f64,
                [None, None] => false,
            };
        } else if is_clear {
            let full = self.sides.iter_mut().flatten().filter(|rate| rate.is_in_use() && rate.used >= FULL);
            full.for_each(|rate| rate.raise(elapsed));
        }
        if is_late {
            // What is on its way says nothing of the new rate.
            (self.queue, self.since) = (queue, now);
            self.late.clear();
        } else if is_clear {
            (self.queue, self.is_cleared) = (0.0, false);
        }
    }
}

impl Rate {
    fn count(&mut self, counted: Option<u64>, elapsed: f64) {
        let before = std::mem::replace(&mut self.counted, counted);
        // Counts begin anew where a queueing discipline was made anew.
        let bytes = before.zip(counted).and_then(|(before, counted)| counted.checked_sub(before));
        let carried = bytes.map_or(0.0, |bytes| bytes as f64 * 8.0 / elapsed);
        self.carried += (carried - self.carried) * (elapsed / SMOOTH).min(1.0);
        self.used = self.carried / self.now;
    }

    fn is_in_use(&self) -> bool {
        self.carried >= IN_USE * *self.limits.start() as f64
    }

    fn reduce(&mut self) {
        let too_much = self.now.min(self.carried);
        self.too_much = Some(too_much);
        self.set(too_much * LESS);
    }

    /// Gives a direction that does not look full, and carries more than the line is sure to, no more than makes it look so. If the
    /// queue is its, it is reduced next; if not, it has what it uses.
    fn look_full(&mut self) {
        if self.carried >= *self.limits.start() as f64 {
            self.set(self.now.min(self.carried / FULL));
        }
    }

    fn raise(&mut self, elapsed: f64) {
        let more = match self.too_much.map(|too_much| self.now / too_much) {
            None => MORE_AT_FIRST,
            Some(part) if NEARBY.contains(&part) => MORE_NEARBY,
            Some(_) => MORE,
        };
        self.set(self.now * more.powf(elapsed.min(1.0)));
    }

    fn set(&mut self, rate: f64) {
        self.now = rate.clamp(*self.limits.start() as f64, *self.limits.end() as f64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELAY: Duration = Duration::from_millis(30);
    const LEAST: u64 = 2_000_000;
    const MOST: u64 = 100_000_000;
    /// A step of virtual time, in seconds.
    const STEP: f64 = 0.005;

    /// A direction of a line, with a queue in front of it that holds a second.
    #[derive(Clone, Default)]
    struct Way {
        /// Bits per second.
        capacity: f64,
        /// Bits that wait, bytes that CAKE has let through, and bits that have come through.
        queue: f64,
        counted: f64,
        through: f64,
    }

    /// A line, and somebody who would send without end in these directions.
    struct Line {
        sides: Vec<Side>,
        ways: [Way; 2],
        autorate: Autorate,
        now: Instant,
        /// Answers on their way: when they come.
        answers: Vec<(f64, u16)>,
        answers_at_all: bool,
        greedy: bool,
        /// Bits per second that are sent at the most.
        most: [f64; 2],
        time: f64,
    }

    impl Line {
        fn new(sides: &[Side], capacity: f64) -> Self {
            let now = Instant::now();
            let limits = [Side::Down, Side::Up].map(|side| sides.contains(&side).then_some(LEAST..=MOST));
            let way = Way { capacity, ..Way::default() };
            Line {
                sides: sides.to_vec(),
                ways: [way.clone(), way],
                autorate: Autorate::new(limits, DELAY, now),
                now,
                answers: Vec::new(),
                answers_at_all: true,
                greedy: true,
                most: [f64::INFINITY; 2],
                time: 0.0,
            }
        }

        fn carries(&mut self, capacity: f64) {
            self.ways.iter_mut().for_each(|way| way.capacity = capacity);
        }

        fn rate(&self) -> f64 {
            self.autorate.rate(self.sides[0]).expect("it has limits") as f64
        }

        /// For so many seconds: the part of the time in which packets waited for more than 60 ms, and the part of what the line
        /// could carry that it carried, in the direction of which that is less.
        fn run(&mut self, seconds: f64) -> (f64, f64) {
            let steps = (seconds / STEP) as u32;
            let mut waited = 0;
            self.ways.iter_mut().for_each(|way| way.through = 0.0);
            for _ in 0..steps {
                for side in &self.sides {
                    let way = &mut self.ways[*side as usize];
                    let rate = self.autorate.rate(*side).expect("it has limits") as f64;
                    let offered = if self.greedy { rate.min(self.most[*side as usize]) * STEP } else { 0.0 };
                    // What comes in waits before CAKE, what goes out behind it.
                    let out = (way.queue + offered).min(way.capacity * STEP);
                    way.queue = (way.queue + offered - out).min(way.capacity);
                    way.counted += if *side == Side::Down { out } else { offered } / 8.0;
                    way.through += out;
                }
                let delay: f64 = self.ways.iter().map(|way| way.queue / way.capacity).sum();
                waited += u32::from(delay > 0.06);
                self.time += STEP;
                let now = self.now + Duration::from_secs_f64(self.time);
                let time = self.time;
                for (_, sequence) in self.answers.extract_if(.., |(at, _)| *at <= time) {
                    self.autorate.answer(sequence, now);
                }
                if now >= self.autorate.deadline() {
                    let counted = [Side::Down, Side::Up].map(|side| {
                        let counted = self.ways[side as usize].counted as u64;
                        self.sides.contains(&side).then_some(counted)
                    });
                    let sequence = self.autorate.ask(counted, now);
                    if self.answers_at_all {
                        self.answers.push((time + 0.02 + delay, sequence));
                    }
                }
            }
            let used = |side: &Side| {
                let Way { through, capacity, .. } = self.ways[*side as usize];
                through / (capacity * seconds)
            };
            (f64::from(waited) / f64::from(steps), self.sides.iter().map(used).fold(1.0, f64::min))
        }
    }

    #[test]
    fn the_rate_follows_what_the_line_carries() {
        // Of two full directions the one is reduced for the other's queue, too, and recovers slowly.
        for (sides, part) in [(&[Side::Down][..], 0.8), (&[Side::Up], 0.8), (&[Side::Down, Side::Up], 0.1)] {
            let settle = 40.0 * sides.len() as f64;
            let mut line = Line::new(sides, 120e6);
            let (waited, _) = line.run(30.0);
            assert_eq!((waited, line.rate()), (0.0, MOST as f64), "it carries more than the most");
            for capacity in [60e6, 12e6, 30e6, 90e6] {
                line.carries(capacity);
                line.run(settle);
                let (waited, used) = line.run(60.0);
                assert!(waited < 0.1, "{sides:?}, {capacity}: {waited} of the time");
                assert!(used > part, "{sides:?}, {capacity}: {used} of the line");
            }
        }
    }

    /// The rate of one direction is so far beyond what the line carries that it does not look full, and the other does.
    #[test]
    fn a_queue_of_what_does_not_look_full_is_found() {
        for (narrow, wide) in [(Side::Down, Side::Up), (Side::Up, Side::Down)] {
            let mut line = Line::new(&[narrow, wide], 120e6);
            line.run(30.0);
            line.ways[narrow as usize].capacity = 20e6;
            line.run(80.0);
            let (waited, _) = line.run(60.0);
            assert!(waited < 0.1, "{narrow:?}: {waited} of the time");
        }
    }

    /// A call beside an upload whose line gets worse, and acknowledgments beside a download: what uses little keeps what it uses.
    #[test]
    fn what_uses_little_keeps_it_while_the_other_direction_gets_less() {
        for (full, light) in [(Side::Up, Side::Down), (Side::Down, Side::Up)] {
            let mut line = Line::new(&[Side::Down, Side::Up], 120e6);
            line.run(30.0);
            line.most[light as usize] = 3e6;
            line.run(10.0);
            line.ways[full as usize].capacity = 20e6;
            for _ in 0..100 {
                line.run(1.0);
                let rate = line.autorate.rate(light).expect("it has limits");
                assert!(rate >= 3_000_000, "{light:?} beside {full:?}: {rate}");
            }
            assert!(line.autorate.rate(full).expect("it has limits") < 22_000_000);
        }
    }

    #[test]
    fn nothing_changes_while_nobody_needs_it_or_nothing_is_known() {
        let mut line = Line::new(&[Side::Up], 10e6);
        line.run(30.0);
        let rate = line.rate();
        assert!(rate < 11e6, "{rate}");
        line.greedy = false;
        line.carries(90e6);
        line.run(1.0);
        let rate = line.rate();
        line.run(3_600.0);
        assert_eq!(line.rate(), rate, "nobody sends");
        line.greedy = true;
        line.answers_at_all = false;
        // Until it is known that the host is gone, questions without an answer may be in a queue.
        line.run(20.0);
        let rate = line.rate();
        line.run(60.0);
        assert_eq!(line.rate(), rate, "nobody answers");
        let now = line.now + Duration::from_secs_f64(line.time);
        assert!(!line.autorate.is_answered(now) && line.autorate.open.len() <= 16);
    }

    proptest! {
        #[test]
        fn a_rate_stays_within_its_limits(
            steps in prop::collection::vec((any::<Option<u64>>(), 0u64..5_000_000, any::<u16>()), 0..200)
        ) {
            let start = Instant::now();
            let mut autorate = Autorate::new([Some(LEAST..=MOST), None], DELAY, start);
            let mut now = start;
            for (carried, micros, answered) in steps {
                now += Duration::from_micros(micros);
                let sequence = autorate.ask([carried, carried], now);
                autorate.answer(if answered % 3 == 0 { answered } else { sequence }, now);
                let rate = autorate.rate(Side::Down).expect("it has limits");
                prop_assert!((LEAST..=MOST).contains(&rate));
                prop_assert!(autorate.open.len() <= 16);
            }
        }
    }
}
