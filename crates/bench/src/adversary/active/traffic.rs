//! Traffic that does not react: datagrams of drawn sizes at drawn times, and nobody answers.
//!
//! A dropped segment of TCP would show how TCP reacts, not the tunnel.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::process::Process;
use lab::{Error, Lab, Site, helper};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::draw::{below, bytes, uniform};

/// Bytes of a datagram: at least, and so much more at most.
const SHORTEST: usize = 30;
const MORE: usize = 1_000;

/// The port of both hosts.
const PORT: u16 = 4_242;

/// Senders on both hosts of a lab; they end with the value.
#[derive(Debug)]
pub(crate) struct Sending(Vec<Process>);

/// Starts them: each sends so many datagrams a second in the mean.
///
/// # Errors
/// When a sender does not start.
pub(crate) fn between(lab: &Lab, rate: f64, seed: u64) -> Result<Sending, Error> {
    let program = helper::program()?.to_string_lossy().into_owned();
    let mut sending = Sending(Vec::new());
    for site in [Site::A, Site::B] {
        let [listen, to] = [site, site.other()].map(|end| SocketAddr::new(lab.host(end), PORT).to_string());
        let (rate, seed) = (rate.to_string(), seed.wrapping_add(site as u64).to_string());
        let words =
            [&program, "udp-drawn", "--listen", &listen, "--to", &to, "--rate", &rate, "--seed", &seed];
        sending.0.push(lab.spawn(site.host_node(), words, &format!("traffic-{}", site.letter()))?);
    }
    Ok(sending)
}

impl Drop for Sending {
    fn drop(&mut self) {
        for process in self.0.drain(..) {
            process.kill();
        }
    }
}

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
