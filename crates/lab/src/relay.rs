//! The relay on the middle link: a process that carries frames between two interfaces, each direction through an
//! [`Impairer`], or as somebody else decides ([`Middle`]). It runs in a namespace of its own whose kernel has no addresses and says nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Error;
use crate::frame_socket::{FrameSocket, MAXIMUM_FRAME, wait};
use crate::impairment::{Impairer, Impairment};

/// Frames taken from one port before the other gets its turn.
const TURN: usize = 64;

/// The longest sleep, so that a stop is seen soon.
const IDLE: Duration = Duration::from_millis(200);

/// What becomes of the frames between two ports, 0 and 1. Times are those since the relay began.
pub trait Middle {
    /// A frame came in by this port.
    fn push(&mut self, now: Duration, from: usize, frame: &[u8]);

    /// The next frame that is due, and the port that it leaves by.
    fn pop(&mut self, now: Duration) -> Option<(usize, Vec<u8>)>;

    /// When to ask again if nothing comes in.
    fn next_departure(&self) -> Option<Duration>;
}

/// A bad link, each direction in its own way.
struct BadLink([Impairer; 2]);

impl Middle for BadLink {
    fn push(&mut self, now: Duration, from: usize, frame: &[u8]) {
        self.0[from].push(now, frame);
    }

    fn pop(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        (0..2).find_map(|from| Some((1 - from, self.0[from].pop(now)?)))
    }

    fn next_departure(&self) -> Option<Duration> {
        self.0.iter().filter_map(Impairer::next_departure).min()
    }
}

/// Carries frames between the interfaces `left` and `right` over a bad link until `stop` is set.
///
/// # Errors
/// When an interface does not exist or a socket fails.
pub fn run(
    left: &str,
    right: &str,
    to_right: Impairment,
    to_left: Impairment,
    stop: &Arc<AtomicBool>,
) -> Result<(), Error> {
    let mut link = BadLink([Impairer::new(to_right), Impairer::new(to_left)]);
    carry(left, right, &mut link, stop)
}

/// Has `middle` decide on each frame between the interfaces `left` (port 0) and `right` (port 1) until `stop` is set.
///
/// # Errors
/// When an interface does not exist or a socket fails.
pub fn carry(left: &str, right: &str, middle: &mut impl Middle, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let ports = [FrameSocket::open(left, false)?, FrameSocket::open(right, false)?];
    let start = Instant::now();
    let mut buffer = vec![0; MAXIMUM_FRAME];
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for (from, port) in ports.iter().enumerate() {
            for _ in 0..TURN {
                let Some(frame) = port.receive(&mut buffer)? else { break };
                middle.push(start.elapsed(), from, frame);
                busy = true;
            }
            while let Some((to, frame)) = middle.pop(start.elapsed()) {
                ports[to].send(&frame);
            }
        }
        if !busy {
            let now = start.elapsed();
            let sleep = middle.next_departure().map_or(IDLE, |departure| departure.saturating_sub(now));
            wait([&ports[0], &ports[1]], sleep.min(IDLE))?;
        }
    }
    Ok(())
}
