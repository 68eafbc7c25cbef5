//! A video stream as browsers play it: segments over HTTP, fetched ahead into a buffer; stalls are counted.

use std::time::{Duration, Instant};

use crate::experiment::http::fetch;
use crate::experiment::nginx::Server;
use crate::experiment::scene::{ExperimentScene, Outcome};
use lab::Error;

/// Bits per second of a usual stream of 720p.
const RATE: u64 = 3_000_000;

/// A segment is so long to play.
const SEGMENT: Duration = Duration::from_secs(1);

/// The player fetches ahead until it has so much.
const BUFFER: Duration = Duration::from_secs(3);

/// How long the film is: as published, or so that the stream has several rotations.
const PUBLISHED: Duration = Duration::from_secs(597);
const SCALED: Duration = Duration::from_secs(9);

/// A segment that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Plays the film.
pub(crate) fn play(scene: &ExperimentScene) -> Result<Outcome, Error> {
    let film = if scene.full { PUBLISHED } else { SCALED };
    let bytes = RATE / 8 * SEGMENT.as_secs();
    let server = Server::start(scene, &[bytes])?;
    let before = server.segments()?;
    let begun = Instant::now();
    let mut player = Player::default();
    let mut slowest: f64 = 0.0;
    while player.fetched < film && !scene.stopped() {
        scene.sleep(player.full_for(begun.elapsed()));
        let download = fetch(scene, bytes, PATIENCE)?;
        slowest = slowest.max(download.seconds);
        if download.bytes < bytes as f64 {
            return Err(Error::output("video", format!("a segment did not come within {PATIENCE:?}")));
        }
        player.got_a_segment(begun.elapsed());
    }
    let again = server.segments()?.retransmitted_since(before);
    Ok(Outcome::new(
        [
            ("stalls", player.stalls as f64),
            ("stalled_s", player.stalled.as_secs_f64()),
            ("start_ms", player.start.unwrap_or_default().as_secs_f64() * 1e3),
            ("slowest_segment_ms", slowest * 1e3),
            ("retransmitted_percent", again),
            ("film_s", player.fetched.as_secs_f64()),
        ],
        format!("{player:?}"),
    ))
}

/// A player that begins with its first segment. Times are since the first request.
#[derive(Debug, Default)]
struct Player {
    /// When it began to play.
    start: Option<Duration>,
    /// How much of the film it has or has played.
    fetched: Duration,
    /// How often it had nothing to play, and how long in all.
    stalls: u32,
    stalled: Duration,
}

impl Player {
    /// When it will have played all that it has.
    fn dry_at(&self) -> Option<Duration> {
        self.start.map(|start| start + self.stalled + self.fetched)
    }

    /// How long it fetches nothing, since its buffer has no room for a segment.
    fn full_for(&self, now: Duration) -> Duration {
        self.dry_at().map_or(Duration::ZERO, |dry| (dry + SEGMENT).saturating_sub(now + BUFFER))
    }

    fn got_a_segment(&mut self, now: Duration) {
        match self.dry_at() {
            None => self.start = Some(now),
            Some(dry) if now > dry => {
                self.stalls += 1;
                self.stalled += now - dry;
            }
            Some(_) => {}
        }
        self.fetched += SEGMENT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(value: f64) -> Duration {
        Duration::from_secs_f64(value)
    }

    #[test]
    fn a_fast_network_fills_the_buffer_and_then_waits() {
        let mut player = Player::default();
        for now in [0.1, 0.2, 0.3] {
            assert_eq!(player.full_for(seconds(now)), Duration::ZERO);
            player.got_a_segment(seconds(now));
        }
        // Three seconds from 0.1 on: at 0.3 it has 2.8 left, and room for another one when 2 are left.
        assert_eq!(player.full_for(seconds(0.3)), seconds(0.8));
        assert_eq!(player.stalls, 0);
    }

    #[test]
    fn a_late_segment_is_a_stall_and_delays_the_rest() {
        let mut player = Player::default();
        player.got_a_segment(seconds(0.5));
        player.got_a_segment(seconds(2.0));
        assert_eq!((player.stalls, player.stalled), (1, seconds(0.5)));
        assert_eq!(player.dry_at(), Some(seconds(3.0)));
        player.got_a_segment(seconds(2.9));
        assert_eq!(player.stalls, 1);
    }
}
