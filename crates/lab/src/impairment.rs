//! What a bad network does to packets, in virtual time: delay, jitter, loss, reordering, duplication, a
//! limited rate, replay by an attacker on the path. One [`Impairer`] is one direction of a link.
//!
//! Invariants: without `reorder` no frame overtakes another, jitter or not; the same seed and the same frames
//! at the same times give the same result.

use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// A frame that would wait longer than this for a rate-limited link is dropped, as a full queue would.
const QUEUE: Duration = Duration::from_millis(200);

/// How one direction of a link treats frames. Written as `delay=20ms,jitter=5ms,loss=2%,reorder=1%`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Impairment {
    /// One-way delay.
    pub delay: Duration,
    /// Added to the delay: uniformly 0 … jitter, order preserved.
    pub jitter: Duration,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is held back by `reorder_by`, so that later ones overtake it.
    pub reorder: f64,
    /// How long a reordered frame is held back.
    pub reorder_by: Duration,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Bits per second; 0 is unlimited.
    pub rate: u64,
    /// An attacker sends every UDP or 6in4 frame a second time after this long.
    pub replay: Option<Duration>,
    /// Frames longer than this (bytes of IP packet) vanish; 0 is unlimited.
    pub mtu: usize,
    /// Seed of the random decisions.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(5),
            duplicate: 0.0,
            rate: 0,
            replay: None,
            mtu: 0,
            seed: 1,
        }
    }
}

/// Why a text is no impairment; each names the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImpairmentError {
    /// A name without a value.
    #[error("`{0}`: expected NAME=VALUE")]
    NoValue(String),
    /// A name of nothing.
    #[error("`{0}`: expected delay, jitter, loss, reorder, reorder-by, duplicate, rate, replay, mtu or seed")]
    Name(String),
    /// No duration, or one that is too long.
    #[error("`{0}`: expected a duration such as 20ms")]
    Duration(String),
    /// More than 1, or less than 0.
    #[error("`{0}`: expected a probability such as 2% or 0.02")]
    Probability(String),
    /// Less than 0.
    #[error("`{0}`: expected a rate such as 10mbit")]
    Rate(String),
    /// A fraction, or no number.
    #[error("`{0}`: expected a whole number")]
    Count(String),
    /// No number.
    #[error("`{0}`: expected a number with a unit")]
    Number(String),
    /// Infinite, or not a number.
    #[error("`{0}`: expected a finite number")]
    Infinite(String),
}

impl FromStr for Impairment {
    type Err = ImpairmentError;

    fn from_str(text: &str) -> Result<Self, ImpairmentError> {
        let mut impairment = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| ImpairmentError::NoValue(part.to_owned()))?;
            match name {
                "delay" => impairment.delay = parse_duration(value)?,
                "jitter" => impairment.jitter = parse_duration(value)?,
                "loss" => impairment.loss = parse_probability(value)?,
                "reorder" => impairment.reorder = parse_probability(value)?,
                "reorder-by" => impairment.reorder_by = parse_duration(value)?,
                "duplicate" => impairment.duplicate = parse_probability(value)?,
                "rate" => impairment.rate = parse_rate(value)?,
                "replay" => impairment.replay = Some(parse_duration(value)?),
                "mtu" => impairment.mtu = parse_count(value)?,
                "seed" => impairment.seed = parse_count(value)?,
                _ => return Err(ImpairmentError::Name(name.to_owned())),
            }
        }
        Ok(impairment)
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Duration| format!("{}us", time.as_micros());
        write!(f, "delay={},jitter={},loss={}%", micros(self.delay), micros(self.jitter), self.loss * 100.0)?;
        write!(f, ",reorder={}%,reorder-by={}", self.reorder * 100.0, micros(self.reorder_by))?;
        write!(f, ",duplicate={}%,rate={},mtu={}", self.duplicate * 100.0, self.rate, self.mtu)?;
        if let Some(replay) = self.replay {
            write!(f, ",replay={}", micros(replay))?;
        }
        write!(f, ",seed={}", self.seed)
    }
}

impl TryFrom<String> for Impairment {
    type Error = ImpairmentError;
    fn try_from(text: String) -> Result<Self, ImpairmentError> {
        text.parse()
    }
}

impl From<Impairment> for String {
    fn from(impairment: Impairment) -> Self {
        impairment.to_string()
    }
}

/// One direction of an impaired link. Times are measured from any fixed moment.
#[derive(Debug)]
pub struct Impairer {
    impairment: Impairment,
    random: ChaCha8Rng,
    held: BinaryHeap<Held>,
    /// Makes the order of frames that leave at the same instant the order of their arrival.
    arrivals: u64,
    last_departure: Duration,
    link_free: Duration,
}

/// A frame and when it leaves; ordered so that a heap gives the earliest first.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    departure: Duration,
    arrival: u64,
    frame: Vec<u8>,
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.departure, other.arrival).cmp(&(self.departure, self.arrival))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Impairer {
    /// A link that nothing is on yet.
    pub fn new(impairment: Impairment) -> Self {
        let random = ChaCha8Rng::seed_from_u64(impairment.seed);
        Self {
            impairment,
            random,
            held: BinaryHeap::new(),
            arrivals: 0,
            last_departure: Duration::ZERO,
            link_free: Duration::ZERO,
        }
    }

    /// A frame enters the link.
    pub fn push(&mut self, now: Duration, frame: &[u8]) {
        const ETHERNET: usize = 14;
        let mtu = self.impairment.mtu;
        if mtu > 0 && frame.len() > mtu + ETHERNET || self.happens(self.impairment.loss) {
            return;
        }
        let Some(mut departure) = self.transmit(now, frame.len()) else { return };
        departure += self.impairment.delay + self.impairment.jitter.mul_f64(self.uniform());
        if self.happens(self.impairment.reorder) {
            departure += self.impairment.reorder_by;
        } else {
            departure = departure.max(self.last_departure);
            self.last_departure = departure;
        }
        self.hold(departure, frame);
        if self.happens(self.impairment.duplicate) {
            self.hold(departure, frame);
        }
        if let Some(replay) = self.impairment.replay
            && worth_replaying(frame)
        {
            self.hold(departure + replay, frame);
        }
    }

    /// The next frame that has left the link by now.
    pub fn pop(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.next_departure()? > now {
            return None;
        }
        self.held.pop().map(|held| held.frame)
    }

    /// When the next frame leaves the link.
    pub fn next_departure(&self) -> Option<Duration> {
        self.held.peek().map(|held| held.departure)
    }

    /// When the last bit of a frame is on a rate-limited link; `None` if its queue is full.
    fn transmit(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        if self.impairment.rate == 0 {
            return Some(now);
        }
        let start = self.link_free.max(now);
        if start - now > QUEUE {
            return None;
        }
        self.link_free = start + Duration::from_secs_f64(bytes as f64 * 8.0 / self.impairment.rate as f64);
        Some(self.link_free)
    }

    fn hold(&mut self, departure: Duration, frame: &[u8]) {
        self.arrivals += 1;
        self.held.push(Held { departure, arrival: self.arrivals, frame: frame.to_vec() });
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.uniform() < probability
    }

    /// Uniform in 0 … 1.
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// UDP over IPv6, or IPv6 in IPv4: what an attacker on the path of a tunnel would record. Neighbor discovery
/// is spared.
fn worth_replaying(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x86, 0xdd]) => frame.get(20) == Some(&17),
        Some([0x08, 0x00]) => frame.get(23) == Some(&41),
        _ => false,
    }
}

/// `20ms`, `500us`, `1.5s`.
fn parse_duration(text: &str) -> Result<Duration, ImpairmentError> {
    humantime::parse_duration(text).map_err(|_| ImpairmentError::Duration(text.to_owned()))
}

/// `2%` or `0.02`.
fn parse_probability(text: &str) -> Result<f64, ImpairmentError> {
    let (number, scale) = split_unit(text, &[("%", 0.01)], 1.0)?;
    let probability = number * scale;
    if (0.0..=1.0).contains(&probability) {
        Ok(probability)
    } else {
        Err(ImpairmentError::Probability(text.to_owned()))
    }
}

/// `10mbit`, `1gbit`, bits per second without a unit.
fn parse_rate(text: &str) -> Result<u64, ImpairmentError> {
    let (number, scale) = split_unit(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)], 1.0)?;
    if number >= 0.0 { Ok((number * scale) as u64) } else { Err(ImpairmentError::Rate(text.to_owned())) }
}

fn parse_count<T: FromStr>(text: &str) -> Result<T, ImpairmentError> {
    text.parse().map_err(|_| ImpairmentError::Count(text.to_owned()))
}

fn split_unit(text: &str, units: &[(&str, f64)], default: f64) -> Result<(f64, f64), ImpairmentError> {
    let (number, scale) = units
        .iter()
        .find_map(|(unit, scale)| text.strip_suffix(unit).map(|number| (number, *scale)))
        .unwrap_or((text, default));
    let number: f64 = number.parse().map_err(|_| ImpairmentError::Number(text.to_owned()))?;
    if number.is_finite() { Ok((number, scale)) } else { Err(ImpairmentError::Infinite(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> Impairer {
        Impairer::new(text.parse().expect("a valid impairment"))
    }

    /// Sends numbered frames, one a millisecond, and returns (number, arrival in ms) in order of arrival.
    fn send(link: &mut Impairer, count: u32) -> Vec<(u32, u128)> {
        let mut arrived = Vec::new();
        for step in 0..count + 2_000 {
            let now = Duration::from_millis(u64::from(step));
            if step < count {
                link.push(now, &frame(step));
            }
            while let Some(frame) = link.pop(now) {
                arrived.push((number(&frame), now.as_millis()));
            }
        }
        arrived
    }

    /// A UDP over IPv6 frame that carries a number.
    fn frame(number: u32) -> Vec<u8> {
        let mut frame = vec![0; 62];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[20] = 17;
        frame[58..62].copy_from_slice(&number.to_be_bytes());
        frame
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes([frame[58], frame[59], frame[60], frame[61]])
    }

    #[test]
    fn delay_is_exact_and_jitter_keeps_the_order() {
        for (number, arrival) in send(&mut link("delay=20ms"), 100) {
            assert_eq!(arrival, u128::from(number) + 20);
        }
        let arrived = send(&mut link("delay=20ms,jitter=10ms"), 1000);
        assert_eq!(arrived.len(), 1000);
        assert!(arrived.is_sorted_by_key(|(number, _)| *number));
        let late = arrived.iter().map(|(number, arrival)| arrival - u128::from(*number));
        assert!(late.clone().all(|late| (20..=31).contains(&late)));
        assert!(late.clone().min() < late.max());
    }

    #[test]
    fn loss_and_duplication_come_at_their_rates() {
        let arrived = send(&mut link("loss=10%"), 10_000);
        assert!((8_800..9_200).contains(&arrived.len()), "{}", arrived.len());
        let arrived = send(&mut link("duplicate=10%"), 10_000);
        assert!((10_800..11_200).contains(&arrived.len()), "{}", arrived.len());
    }

    #[test]
    fn a_reordered_frame_is_overtaken_by_those_behind_it() {
        let arrived = send(&mut link("reorder=5%,reorder-by=5ms"), 1_000);
        assert_eq!(arrived.len(), 1_000);
        let late = arrived.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        assert!((20..90).contains(&late), "{late}");
    }

    #[test]
    fn replay_gives_every_datagram_a_second_time() {
        let arrived = send(&mut link("replay=50ms"), 100);
        assert_eq!(arrived.len(), 200);
        assert_eq!(arrived.iter().filter(|(number, _)| *number == 7).count(), 2);
    }

    #[test]
    fn a_rate_spaces_frames_and_a_full_queue_drops() {
        // 62 bytes at 49,600 bit/s take 10 ms; one comes each ms, so nine of ten find the queue full in the end.
        let arrived = send(&mut link("rate=49600"), 1_000);
        assert!((100..150).contains(&arrived.len()), "{}", arrived.len());
        assert!(arrived.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 10));
    }

    #[test]
    fn the_same_seed_gives_the_same_losses() {
        assert_eq!(send(&mut link("loss=50%,seed=3"), 200), send(&mut link("loss=50%,seed=3"), 200));
        assert_ne!(send(&mut link("loss=50%,seed=3"), 200), send(&mut link("loss=50%,seed=4"), 200));
    }

    #[test]
    fn text_form_goes_there_and_back() {
        let impairment: Impairment =
            "delay=20ms,jitter=1.5ms,loss=2%,rate=10mbit,replay=1s,mtu=1400,seed=9".parse().expect("valid");
        assert_eq!(impairment.to_string().parse(), Ok(impairment));
        for bad in ["delay", "delay=x", "loss=200%", "delay=-1s", "colour=red", "rate=-1", "delay=infs"] {
            assert!(bad.parse::<Impairment>().is_err(), "{bad}");
        }
    }
}
