//! The impaired link: a process that carries frames between two interfaces, each direction through an
//! [`Impairer`]. It runs in a namespace of its own whose kernel has no addresses and says nothing.

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

/// Carries frames between the interfaces `left` and `right` until `stop` is set.
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
    let ports = [FrameSocket::open(left, false)?, FrameSocket::open(right, false)?];
    let mut links = [Impairer::new(to_right), Impairer::new(to_left)];
    let start = Instant::now();
    let mut buffer = vec![0; MAXIMUM_FRAME];
    while !stop.load(Ordering::Relaxed) {
        let mut busy = false;
        for (from, link) in links.iter_mut().enumerate() {
            for _ in 0..TURN {
                let Some(frame) = ports[from].receive(&mut buffer)? else { break };
                link.push(start.elapsed(), frame);
                busy = true;
            }
            while let Some(frame) = link.pop(start.elapsed()) {
                ports[1 - from].send(&frame);
            }
        }
        if !busy {
            let now = start.elapsed();
            let departures = links.iter().filter_map(Impairer::next_departure);
            let sleep = departures.min().map_or(IDLE, |departure| departure.saturating_sub(now));
            wait([&ports[0], &ports[1]], sleep.min(IDLE))?;
        }
    }
    Ok(())
}
