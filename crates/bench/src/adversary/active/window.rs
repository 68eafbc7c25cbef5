//! What both ends send after a moment, as numbers.

use std::time::Duration;

/// Times after a moment up to which is counted.
pub(super) const WINDOWS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];

/// The IPv6 packet that path MTU probes exceed, and the traffic of the lab does not.
const LARGE: usize = 1_280;

/// What [`Window::features`] has, in its order.
pub(super) const FEATURES: [&str; 21] = [
    "datagrams of the sender in 200 ms",
    "datagrams of the receiver in 200 ms",
    "bytes of the sender in 200 ms",
    "bytes of the receiver in 200 ms",
    "largest of the sender in 200 ms",
    "largest of the receiver in 200 ms",
    "new flows in 200 ms",
    "other packets in 200 ms",
    "datagrams of the sender in 2 s",
    "datagrams of the receiver in 2 s",
    "bytes of the sender in 2 s",
    "bytes of the receiver in 2 s",
    "largest of the sender in 2 s",
    "largest of the receiver in 2 s",
    "new flows in 2 s",
    "other packets in 2 s",
    "time to the sender's next",
    "time to the receiver's next",
    "time to the first of 1280 bytes or more",
    "time to the first new flow",
    "time to the first other packet",
];

/// A packet that one of the ends sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// After the moment.
    pub(super) after: Duration,
    /// By the end whose datagram made the moment, not by the other one.
    pub(super) by_sender: bool,
    /// Bytes of the IPv6 packet.
    pub(super) length: usize,
    /// What it is.
    pub(super) what: What,
}

/// What a packet is to an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A datagram of addresses and ports that were there before.
    Datagram,
    /// The first datagram of these addresses and ports.
    NewFlow,
    /// Anything but UDP, such as an answer of the kernel.
    Other,
}

/// What is sent after a moment.
#[derive(Debug, Default)]
pub(super) struct Window {
    sent: Vec<Sent>,
}

impl Window {
    pub(super) fn add(&mut self, sent: Sent) {
        self.sent.push(sent);
    }

    /// The numbers; nothing that comes is at the end of the longest window. `scale` is by how much the windows are
    /// shorter than they are called, for tests.
    pub(super) fn features(&self, scale: u32) -> Vec<f64> {
        let mut features = Vec::with_capacity(FEATURES.len());
        let windows = WINDOWS.map(|window| window / scale);
        for window in windows {
            let within = || self.sent.iter().filter(|sent| sent.after <= window);
            let of = |sender| {
                let udp = move |sent: &&Sent| sent.by_sender == sender && sent.what != What::Other;
                within().filter(udp).map(|sent| sent.length as f64)
            };
            features.extend([of(true).count() as f64, of(false).count() as f64]);
            features.extend([of(true).sum::<f64>(), of(false).sum()]);
            features.extend([of(true).fold(0.0, f64::max), of(false).fold(0.0, f64::max)]);
            for what in [What::NewFlow, What::Other] {
                features.push(within().filter(|sent| sent.what == what).count() as f64);
            }
        }
        let end = windows[1];
        let first = |suits: &dyn Fn(&Sent) -> bool| {
            let times = self.sent.iter().filter(|sent| suits(sent)).map(|sent| sent.after);
            times.min().unwrap_or(end).min(end).as_secs_f64()
        };
        features.extend([
            first(&|sent| sent.by_sender && sent.what != What::Other),
            first(&|sent| !sent.by_sender && sent.what != What::Other),
            first(&|sent| sent.length >= LARGE),
            first(&|sent| sent.what == What::NewFlow),
            first(&|sent| sent.what == What::Other),
        ]);
        features
    }

    /// Whether a packet of full size came within the shorter window.
    pub(super) fn large_at_once(&self, scale: u32) -> bool {
        self.sent.iter().any(|sent| sent.length >= LARGE && sent.after <= WINDOWS[0] / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_their_window_and_end() {
        let mut window = Window::default();
        let sent =
            |ms, by_sender, length, what| Sent { after: Duration::from_millis(ms), by_sender, length, what };
        window.add(sent(5, true, 100, What::Datagram));
        window.add(sent(150, false, 1_500, What::NewFlow));
        window.add(sent(700, true, 300, What::Datagram));
        window.add(sent(800, false, 90, What::Other));
        let features = window.features(1);
        assert_eq!(features.len(), FEATURES.len());
        let of = |name: &str| features[FEATURES.iter().position(|feature| *feature == name).expect("one")];
        assert_eq!(
            [of("datagrams of the sender in 200 ms"), of("datagrams of the sender in 2 s")],
            [1.0, 2.0]
        );
        assert_eq!(
            [of("largest of the receiver in 200 ms"), of("bytes of the sender in 2 s")],
            [1_500.0, 400.0]
        );
        assert_eq!([of("other packets in 200 ms"), of("other packets in 2 s")], [0.0, 1.0]);
        assert_eq!(
            [of("time to the first of 1280 bytes or more"), of("time to the first new flow")],
            [0.15; 2]
        );
        assert!(window.large_at_once(1) && !window.large_at_once(10));
        assert_eq!(Window::default().features(1)[16..], [2.0; 5]);
    }
}
