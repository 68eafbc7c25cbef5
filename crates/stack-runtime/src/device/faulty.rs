//! A device with faults.

use std::io;
use std::time::Instant;

use linux::event::Poller;
use stack::faults::{Faults, Line};
use stack::interface::Medium;

use super::Device;

/// A device whose packets meet [`Faults`], each way by itself.
pub struct Faulty<D> {
    device: D,
    outward: Line<Vec<u8>>,
    inward: Line<Vec<u8>>,
    /// What has left the outward line, and found no room in the device.
    waits: Option<Vec<u8>>,
    buffer: Vec<u8>,
    mtu: usize,
}

impl<D: Device> Faulty<D> {
    /// The same faults both ways; what befalls a packet follows from the seed. The MTU of the faults is that of frames.
    pub fn new(device: D, faults: Faults, seed: u64) -> Self {
        Self::with(device, faults, faults, seed)
    }

    /// Others for what is sent and what is received.
    pub fn with(device: D, outward: Faults, inward: Faults, seed: u64) -> Self {
        Faulty {
            mtu: device.mtu(),
            device,
            outward: Line::new(outward, seed),
            inward: Line::new(inward, !seed),
            waits: None,
            buffer: Vec::new(),
        }
    }

    /// Hands on what has arrived at the device's end of the line.
    fn pass_on(&mut self, now: Instant) -> io::Result<()> {
        while let Some(frame) = self.waits.take().or_else(|| self.outward.receive(now)) {
            if !self.device.send(now, &frame)? {
                self.waits = Some(frame);
                break;
            }
        }
        Ok(())
    }
}

impl<D: Device> Device for Faulty<D> {
    fn medium(&self) -> Medium {
        self.device.medium()
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn receive(&mut self, now: Instant, frame: &mut Vec<u8>) -> io::Result<bool> {
        while self.device.receive(now, &mut self.buffer)? {
            self.inward.send(now, self.buffer.clone(), self.buffer.len());
        }
        let Some(arrived) = self.inward.receive(now) else { return Ok(false) };
        *frame = arrived;
        Ok(true)
    }

    fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool> {
        self.outward.send(now, frame.to_vec(), frame.len());
        Ok(true)
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        self.pass_on(now)?;
        self.device.flush(now)
    }

    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        self.device.register(poller, token)
    }

    fn deadline(&self) -> Option<Instant> {
        [self.outward.next_arrival(), self.inward.next_arrival(), self.device.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, now: Instant) -> io::Result<()> {
        if self.device.deadline().is_some_and(|deadline| deadline <= now) {
            self.device.handle_timeout(now)?;
        }
        self.flush(now)
    }
}
