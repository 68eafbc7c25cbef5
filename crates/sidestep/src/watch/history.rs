//! What has been so lately, and how it is drawn.

use std::collections::VecDeque;
use std::time::Instant;

use control::tunnel_status::Peer;

/// Values that are kept of each kind, one a second: as many as a wide screen has columns.
const LENGTH: usize = 240;
/// Characters that are filled by so many eighths.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What was measured, the oldest first; nothing where nothing was known.
#[derive(Debug, Clone, Default)]
pub(super) struct Series(VecDeque<Option<f32>>);

impl Series {
    fn push(&mut self, value: Option<f64>) {
        if self.0.len() == LENGTH {
            self.0.pop_front();
        }
        self.0.push_back(value.map(|value| value as f32));
    }

    /// The last that is known.
    pub(super) fn last(&self) -> Option<f64> {
        self.0.back().copied().flatten().map(f64::from)
    }

    /// The largest of the last so many.
    pub(super) fn most(&self, width: usize) -> f64 {
        self.0.iter().rev().take(width).flatten().fold(0.0, |most, value| most.max(f64::from(*value)))
    }

    /// The last so many as bars in lines, from the top down: the largest as high as all lines, the last at the right end.
    pub(super) fn bars(&self, width: usize, height: usize) -> Vec<String> {
        let most = self.most(width);
        let eighths = |value: f32| match f64::from(value) / most {
            share if share > 0.0 => ((share * 8.0 * height as f64).round() as usize).max(1),
            _ => 0,
        };
        let recent = self.0.iter().skip(self.0.len().saturating_sub(width));
        let heights: Vec<usize> = recent.map(|value| value.map_or(0, eighths)).collect();
        let line = |above: usize| {
            let mut line = " ".repeat(width - heights.len());
            line.extend(heights.iter().map(|height| LEVELS[height.saturating_sub(8 * above).min(8)]));
            line
        };
        (0..height).rev().map(line).collect()
    }
}

/// What several statuses tell of a peer.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// Round trips in milliseconds.
    pub(super) rtt: Series,
    /// Bits received in a second.
    pub(super) received: Series,
    /// Bits sent in a second.
    pub(super) sent: Series,
    /// Both.
    pub(super) traffic: Series,
    /// The longest time to a rotation that was seen, in milliseconds: what the countdown's full bar stands for.
    pub(super) longest_wait_ms: u64,
    /// When it was last counted, and what.
    before: Option<(Instant, u64, u64)>,
}

impl History {
    /// Takes what is now.
    pub(super) fn update(&mut self, peer: &Peer, now: Instant) {
        let rates = self.before.map(|(at, received, sent)| {
            let seconds = now.saturating_duration_since(at).as_secs_f64().max(0.001);
            // A daemon that was restarted has counted from 0.
            let bits = |before: u64, after: u64| 8.0 * after.saturating_sub(before) as f64 / seconds;
            (bits(received, peer.rx_bytes), bits(sent, peer.tx_bytes))
        });
        self.before = Some((now, peer.rx_bytes, peer.tx_bytes));
        self.rtt.push(peer.rtt_ms);
        self.received.push(rates.map(|(received, _)| received));
        self.sent.push(rates.map(|(_, sent)| sent));
        self.traffic.push(rates.map(|(received, sent)| received + sent));
        self.longest_wait_ms = self.longest_wait_ms.max(peer.next_rotation_ms.unwrap_or(0));
    }

    /// Bits received and sent in a second, lately.
    pub(super) fn rates(&self) -> Option<(f64, f64)> {
        self.received.last().zip(self.sent.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::tunnel_status::example;
    use std::time::Duration;

    #[test]
    fn bars_are_as_high_as_their_values() {
        let mut series = Series::default();
        for value in [None, Some(0.0), Some(0.01), Some(4.0), Some(8.0)] {
            series.push(value);
        }
        assert_eq!(series.bars(6, 1), ["   ▁▄█"]);
        assert_eq!(series.bars(3, 2), ["  █", "▁██"]);
        assert_eq!(series.bars(2, 1), ["▄█"]);
        assert_eq!((series.most(1), series.last()), (8.0, Some(8.0)));
        assert_eq!(Series::default().bars(3, 1), ["   "]);
    }

    #[test]
    fn rates_are_what_was_counted_in_a_second() {
        let mut peer = example().peers[0].clone();
        let (mut history, start) = (History::default(), Instant::now());
        history.update(&peer, start);
        assert_eq!(history.rates(), None);
        peer.rx_bytes += 1_000_000;
        history.update(&peer, start + Duration::from_secs(2));
        assert_eq!(history.rates(), Some((4_000_000.0, 0.0)));
        // After a restart it is less than before.
        (peer.rx_bytes, peer.tx_bytes) = (5, 5);
        history.update(&peer, start + Duration::from_secs(3));
        assert_eq!(history.rates(), Some((0.0, 0.0)));
        for second in 4..1000 {
            history.update(&peer, start + Duration::from_secs(second));
        }
        assert_eq!(history.rtt.0.len(), LENGTH);
    }
}
