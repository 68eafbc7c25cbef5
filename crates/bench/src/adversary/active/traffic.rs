//! Traffic that does not react: datagrams of drawn sizes at drawn times, and nobody answers.
//!
//! A dropped segment of TCP would show how TCP reacts, not the tunnel.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::Error;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::attacker::{below, bytes, uniform};

/// Bytes of a datagram: at least, and so much more at most.
const SHORTEST: usize = 30;
const MORE: usize = 1_000;

/// Sends from a socket of its own, which takes what comes and leaves it there, until `stop` is set: `rate` datagrams a
/// second in the mean, as a Poisson process.
///
/// # Errors
/// When the socket cannot be had.
pub(crate) fn run(
    listen: SocketAddr,
    to: SocketAddr,
    rate: f64,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let socket = UdpSocket::bind(listen).map_err(|source| Error::system("a socket for traffic", source))?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        next += gap(&mut random, rate);
        sleep(next.saturating_duration_since(Instant::now()));
        let size = SHORTEST + below(&mut random, MORE);
        // What the network does not take is lost, as any datagram is.
        let _: io::Result<usize> = socket.send_to(&bytes(&mut random, size), to);
    }
    Ok(())
}

/// The time to the next datagram: at most a second, so that a stop is seen.
fn gap(random: &mut ChaCha8Rng, rate: f64) -> Duration {
    let seconds = -(1.0 - uniform(random)).ln() / rate.max(1.0);
    Duration::from_secs_f64(seconds.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean_and_no_pattern() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let gaps: Vec<f64> = (0..10_000).map(|_| gap(&mut random, 20.0).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / 10_000.0;
        assert!((0.048..0.052).contains(&mean), "{mean}");
        let short = gaps.iter().filter(|gap| **gap < 0.05).count();
        assert!((6_100..6_500).contains(&short), "{short}");
    }
}
