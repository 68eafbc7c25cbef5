//! The way to the collector: datagrams, and what is known of those that did not arrive.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::exporter::Exporter;

/// How often it is looked whether packets to the collector have another source now, as of a gateway that was renumbered.
const SOURCE_EVERY: Duration = Duration::from_secs(60);

/// Who is told.
pub(super) struct Collector {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    next_source: Instant,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reached,
    /// A datagram could not be sent, or was answered with an error.
    Lost,
    /// Something was sent since, without records.
    Tried,
}

impl Collector {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, socket: None, next_source: Instant::now(), state: State::Reached }
    }

    /// Whether nothing is known that keeps datagrams from it.
    pub(super) fn is_reached(&self) -> bool {
        self.state == State::Reached
    }

    /// Sends what waits, as far as it goes now. After an error all of it waits until there is none any more, which the next
    /// calls find out: they send what records are made of, and nothing else. That way a collector that was started anew
    /// understands the first record that it gets.
    ///
    /// # Errors
    /// What keeps datagrams from the collector.
    pub(super) fn send(&mut self, exporter: &mut Exporter, now_ms: u64) -> io::Result<()> {
        self.try_to_send(exporter, now_ms).inspect_err(|_| (self.socket, self.state) = (None, State::Lost))
    }

    fn try_to_send(&mut self, exporter: &mut Exporter, now_ms: u64) -> io::Result<()> {
        if self.is_reached() && self.socket.is_none() && !exporter.waits() {
            return Ok(());
        }
        let now = Instant::now();
        if self.socket.is_none() || now >= self.next_source {
            let current = connect(self.address)?;
            self.next_source = now + SOURCE_EVERY;
            let own = |socket: &UdpSocket| socket.local_addr().map(|place| place.ip()).ok();
            if self.socket.as_ref().is_none_or(|socket| own(socket) != own(&current)) {
                self.socket = Some(current);
            }
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        // What an earlier datagram was answered with: nobody listens.
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if self.state == State::Lost {
            socket.send(&exporter.templates(now_ms))?;
            self.state = State::Tried;
            return Ok(());
        }
        self.state = State::Reached;
        while let Some(message) = exporter.next(now_ms) {
            match socket.send(message) {
                Ok(_) => exporter.sent(),
                // The interface is slower.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn connect(collector: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match collector {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.connect(collector)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::super::exporter::tests::{carried, connection};
    use super::*;

    #[test]
    fn what_a_collector_that_is_away_has_missed_it_is_told_when_it_is_back() {
        let listening = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listening.local_addr().unwrap();
        drop(listening);
        let (mut exporter, mut collector) = (Exporter::new(7), Collector::new(address));
        for port in 0..100 {
            exporter.ended(&connection(port, 1, 0), 1_000);
        }
        // The first datagram is answered by this machine, at once.
        while collector.send(&mut exporter, 1_000).is_ok() {
            assert!(exporter.waits());
        }
        let into_nothing = exporter.records;
        assert!(into_nothing < 100);
        for later in 1..6 {
            let _ = collector.send(&mut exporter, 1_000 + later * 1_000);
            assert!(!collector.is_reached());
        }
        assert_eq!(exporter.records, into_nothing);

        let listening = UdpSocket::bind(address).unwrap();
        let mut now_ms = 10_000;
        while exporter.waits() {
            let _ = collector.send(&mut exporter, now_ms);
            now_ms += 1_000;
            assert!(now_ms < 30_000);
        }
        assert!(collector.is_reached());
        listening.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2_000];
        let received =
            std::iter::from_fn(|| listening.recv(&mut buffer).ok().map(|count| buffer[..count].to_vec()));
        let received: Vec<_> = received.collect();
        assert_eq!(received[0][17], 2, "templates come first");
        assert_eq!(carried(&received).len() as u32, 100 - into_nothing);
    }
}
