//! A device whose packets are written down.

use std::io;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use linux::event::Poller;
use stack::interface::Medium;
use wire::pcap::{Header, LINKTYPE_ETHERNET, LINKTYPE_RAW, Record};

use super::Device;

/// No frame has more octets.
const LONGEST: u32 = 65_535 + 14;

/// A packet that has passed.
#[derive(Debug, Clone, Copy)]
pub struct Captured<'a> {
    /// When, and what.
    pub record: Record<'a>,
    /// Whether the host has sent it.
    pub sent: bool,
    /// What it begins with.
    pub medium: Medium,
}

/// A device that shows each packet that passes to somebody: what was taken by the device, and what came from it.
pub struct Recorded<D, F> {
    device: D,
    show: F,
}

impl<D: Device, F: FnMut(Captured<'_>) -> io::Result<()> + Send> Recorded<D, F> {
    /// Each packet goes to `show`, too, whose error ends the stack.
    pub fn new(device: D, show: F) -> Self {
        Recorded { device, show }
    }

    fn show(&mut self, sent: bool, octets: &[u8]) -> io::Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let medium = self.device.medium();
        (self.show)(Captured { record: Record { time, octets }, sent, medium })
    }
}

impl Recorded<(), ()> {
    /// Writes packets of a medium to a pcap file: what [`Recorded::new`] wants. It is flushed with each packet, so that it can
    /// be read meanwhile.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn to_pcap<W: io::Write + Send>(
        mut file: W,
        medium: Medium,
    ) -> io::Result<impl FnMut(Captured<'_>) -> io::Result<()> + Send> {
        let link_type = match medium {
            Medium::Ethernet(_) => LINKTYPE_ETHERNET,
            Medium::Ip => LINKTYPE_RAW,
        };
        file.write_all(&Header { link_type, longest: LONGEST }.to_bytes())?;
        file.flush()?;
        Ok(move |captured: Captured<'_>| {
            file.write_all(&captured.record.header())?;
            file.write_all(captured.record.octets)?;
            file.flush()
        })
    }
}

impl<D: Device, F: FnMut(Captured<'_>) -> io::Result<()> + Send> Device for Recorded<D, F> {
    fn medium(&self) -> Medium {
        self.device.medium()
    }

    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    fn receive(&mut self, now: Instant, frame: &mut Vec<u8>) -> io::Result<bool> {
        let received = self.device.receive(now, frame)?;
        if received {
            self.show(false, frame)?;
        }
        Ok(received)
    }

    fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool> {
        let sent = self.device.send(now, frame)?;
        if sent {
            self.show(true, frame)?;
        }
        Ok(sent)
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        self.device.flush(now)
    }

    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        self.device.register(poller, token)
    }

    fn deadline(&self) -> Option<Instant> {
        self.device.deadline()
    }

    fn handle_timeout(&mut self, now: Instant) -> io::Result<()> {
        self.device.handle_timeout(now)
    }
}
