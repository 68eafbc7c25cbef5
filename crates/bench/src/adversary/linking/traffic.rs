//! What pairs carry: traffic with the sizes and pauses of real kinds, drawn from a seed. All but bulk, which is real TCP, are
//! datagrams that nobody reacts to but as the kind does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use lab::Error;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// The longest payload of a datagram, and how far apart those of one answer are.
const LONGEST: usize = 1200;
const PACE: Duration = Duration::from_micros(1_500);
/// What bulk offers, in pieces.
const PIECE: (usize, Duration) = (16 * 1024, Duration::from_millis(80));
/// How often is looked whether this is to end.
const LOOK: Duration = Duration::from_millis(200);

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Somebody types: single keys, echoed; now and then a screen of output.
    Ssh,
    /// Pages of several objects, and time to read them.
    Web,
    /// Calls: 160 bytes and RTP's header every 20 ms, both ways.
    G711,
    /// Calls of variable rate with pauses of silence, both ways in turn.
    Opus,
    /// A segment of about 300 KB every two seconds.
    Video,
    /// TCP from the server, about 1.6 Mbit/s.
    BulkDown,
    /// TCP to the server.
    BulkUp,
    /// 30 small datagrams a second there, 20 larger ones back.
    Game,
    /// A question every 5 s, and its answer.
    Poll,
    /// Nothing: keepalives alone.
    Idle,
}

impl Kind {
    /// All there are.
    pub(crate) const ALL: [Self; 10] = [
        Self::Ssh,
        Self::Web,
        Self::G711,
        Self::Opus,
        Self::Video,
        Self::BulkDown,
        Self::BulkUp,
        Self::Game,
        Self::Poll,
        Self::Idle,
    ];
}

impl std::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}

/// What an end sends next.
#[derive(Debug, PartialEq)]
struct Step {
    /// After the one before.
    pause: Duration,
    /// Bytes of payload.
    size: usize,
    /// Bytes that the other end is to send back at once.
    answer: u32,
}

/// Draws what an end sends.
struct Source {
    kind: Kind,
    server: bool,
    random: ChaCha8Rng,
    /// Of what comes in groups (keys, objects of a page, frames of a spurt), how many are left.
    left: u32,
}

impl Source {
    fn new(kind: Kind, server: bool, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed << 1 | u64::from(server));
        Self { kind, server, random, left: 0 }
    }

    fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform(0.0, 1.0)).ln()
    }

    /// Large ones are rare: the logarithm is that of a normal distribution, near enough.
    fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| self.uniform(-0.5, 0.5)).sum();
        median * (sigma * normal).exp()
    }

    /// Begins a group of as many when the last is over; whether it did.
    fn group(&mut self, from: f64, to: f64) -> bool {
        let over = self.left == 0;
        if over {
            self.left = self.uniform(from, to) as u32;
        }
        self.left -= 1;
        over
    }

    /// The next, if this end sends by itself at all.
    fn next(&mut self) -> Option<Step> {
        let (pause, size, answer) = match (self.kind, self.server) {
            (Kind::Ssh, false) => {
                let pause =
                    if self.group(3.0, 40.0) { self.exponential(4.0) } else { self.log_normal(0.15, 0.5) };
                let screen = self.left == 0;
                let answer = if screen { self.log_normal(1_500.0, 1.0) } else { 36.0 };
                (pause, 36, answer as u32)
            }
            (Kind::Web, false) => {
                let pause =
                    if self.group(4.0, 20.0) { self.exponential(6.0) } else { self.exponential(0.06) };
                (pause, self.uniform(300.0, 700.0) as usize, self.log_normal(9_000.0, 1.2) as u32)
            }
            (Kind::G711, _) => (0.02 + self.uniform(-0.0004, 0.0004), 172, 0),
            (Kind::Opus, _) => {
                let pause = if self.group(40.0, 250.0) { self.exponential(1.5) } else { 0.02 };
                (pause, self.log_normal(75.0, 0.25).clamp(20.0, 250.0) as usize, 0)
            }
            (Kind::Video, false) => {
                (2.0 + self.uniform(-0.1, 0.1), 420, self.log_normal(300_000.0, 0.2) as u32)
            }
            (Kind::Game, false) => {
                (1.0 / 30.0 + self.uniform(-0.001, 0.001), self.uniform(50.0, 70.0) as usize, 0)
            }
            (Kind::Game, true) => (0.05 + self.uniform(-0.001, 0.001), self.uniform(90.0, 260.0) as usize, 0),
            (Kind::Poll, false) => (5.0 + self.uniform(-0.005, 0.005), 180, 800),
            _ => return None,
        };
        Some(Step { pause: Duration::from_secs_f64(pause), size, answer })
    }
}

/// Carries traffic of a kind until `stop` is set.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) fn run(
    kind: Kind,
    server: bool,
    [own, other]: [SocketAddr; 2],
    seed: u64,
    stop: &AtomicBool,
) -> Result<(), Error> {
    if matches!(kind, Kind::BulkDown | Kind::BulkUp) {
        let sends = server == (kind == Kind::BulkDown);
        while !stop.load(Ordering::Relaxed) {
            // An end that is gone comes back.
            let _ = bulk([own, other], server, sends, stop);
            std::thread::sleep(LOOK);
        }
        return Ok(());
    }
    let failed = |source| Error::output("traffic", source);
    let socket = UdpSocket::bind(own).map_err(failed)?;
    socket.connect(other).map_err(failed)?;
    socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&socket, stop));
        let mut source = Source::new(kind, server, seed);
        let mut at = Instant::now();
        while let Some(step) = source.next() {
            at += step.pause;
            if !sleep_until(at, stop) {
                break;
            }
            let mut payload = vec![0; step.size];
            payload[..4].copy_from_slice(&step.answer.to_be_bytes());
            // What does not get through is lost, as any datagram may be.
            let _ = socket.send(&payload);
        }
    });
    Ok(())
}

/// Sends what was asked for.
fn answer(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let Some(wanted) = buffer[..length].first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
            continue;
        };
        let (mut left, mut at) = (wanted as usize, Instant::now());
        while left > 0 && sleep_until(at, stop) {
            let size = left.clamp(4, LONGEST);
            let _ = socket.send(&vec![0; size]);
            left = left.saturating_sub(size);
            at += PACE;
        }
    }
}

fn bulk([own, other]: [SocketAddr; 2], server: bool, sends: bool, stop: &AtomicBool) -> std::io::Result<()> {
    let mut stream = if server {
        let listener = TcpListener::bind(own)?;
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if !stop.load(Ordering::Relaxed) => std::thread::sleep(LOOK / 10),
                Err(error) => return Err(error),
            }
        }
    } else {
        TcpStream::connect_timeout(&other, Duration::from_secs(2))?
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let (mut buffer, mut at) = (vec![0; PIECE.0], Instant::now());
    while !stop.load(Ordering::Relaxed) {
        if sends {
            stream.write_all(&buffer)?;
            at += PIECE.1;
            sleep_until(at, stop);
        } else {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// False if it was told to stop meanwhile.
fn sleep_until(at: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_again_and_each_end_its_own() {
        for kind in Kind::ALL {
            let steps = |server, seed| {
                let mut source = Source::new(kind, server, seed);
                (0..100).map_while(|_| source.next()).collect::<Vec<_>>()
            };
            assert_eq!(steps(false, 7), steps(false, 7));
            if kind != Kind::Idle && !matches!(kind, Kind::BulkDown | Kind::BulkUp) {
                assert_ne!(steps(false, 7), steps(false, 8));
                assert_ne!(steps(false, 7), steps(true, 7));
            }
        }
    }

    #[test]
    fn rates_are_those_of_their_kinds() {
        let rate = |kind, server| {
            let mut source = Source::new(kind, server, 1);
            let steps: Vec<Step> = (0..5_000).map_while(|_| source.next()).collect();
            steps.len() as f64 / steps.iter().map(|step| step.pause.as_secs_f64()).sum::<f64>()
        };
        for (kind, server, least, most) in [
            (Kind::G711, false, 49.0, 51.0),
            (Kind::Opus, true, 20.0, 45.0),
            (Kind::Game, false, 29.0, 31.0),
            (Kind::Ssh, false, 1.0, 6.0),
            (Kind::Web, false, 1.0, 4.0),
            (Kind::Poll, false, 0.19, 0.21),
        ] {
            let rate = rate(kind, server);
            assert!((least..most).contains(&rate), "{kind}: {rate} a second");
        }
    }
}
