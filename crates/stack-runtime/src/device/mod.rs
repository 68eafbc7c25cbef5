//! What carries a host's packets.
//!
//! | device | carries |
//! |---|---|
//! | [`kernel`] | a TAP or TUN device of Linux, with the kernel at its other end |
//! | [`pair`] | two devices in memory, connected to each other |
//! | [`Faulty`] | another device, with faults |
//! | [`Recorded`] | another device, and writes what passes to a pcap file |
//!
//! Others implement [`Device`], such as one that puts the packets into a tunnel.

mod faulty;
pub mod kernel;
mod pair;
mod recorded;

pub use faulty::Faulty;
pub use pair::{Pair, pair};
pub use recorded::{Captured, Recorded};

use std::io;
use std::time::Instant;

use linux::event::Poller;
use stack::interface::Medium;

/// A device: frames or packets in and out. One thread uses it, which sleeps until one of its descriptors is readable, or
/// its deadline has come.
///
/// An error ends the stack: what concerns one packet only is no error, but a lost packet.
pub trait Device: Send {
    /// What it carries.
    fn medium(&self) -> Medium;

    /// The largest IP packet that it carries.
    fn mtu(&self) -> usize;

    /// Puts the next frame or packet in place of what is in `frame`, whose buffer is used again; `false` if there is none.
    ///
    /// # Errors
    /// When the device is gone.
    fn receive(&mut self, now: Instant, frame: &mut Vec<u8>) -> io::Result<bool>;

    /// Sends a frame or packet. `false`: there is no room now. It is offered again when the device wakes its thread, or
    /// after a millisecond.
    ///
    /// # Errors
    /// When the device is gone.
    fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool>;

    /// There is nothing more to send now: a device that gathers packets sends them.
    ///
    /// # Errors
    /// When the device is gone.
    fn flush(&mut self, _now: Instant) -> io::Result<()> {
        Ok(())
    }

    /// Adds its descriptors to what the thread sleeps on, all with this number.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn register(&self, poller: &Poller, token: u64) -> io::Result<()>;

    /// When [`Device::handle_timeout`] has something to do, or something will have arrived.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    ///
    /// # Errors
    /// When the device is gone.
    fn handle_timeout(&mut self, _now: Instant) -> io::Result<()> {
        Ok(())
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn medium(&self) -> Medium {
        (**self).medium()
    }

    fn mtu(&self) -> usize {
        (**self).mtu()
    }

    fn receive(&mut self, now: Instant, frame: &mut Vec<u8>) -> io::Result<bool> {
        (**self).receive(now, frame)
    }

    fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool> {
        (**self).send(now, frame)
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        (**self).flush(now)
    }

    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        (**self).register(poller, token)
    }

    fn deadline(&self) -> Option<Instant> {
        (**self).deadline()
    }

    fn handle_timeout(&mut self, now: Instant) -> io::Result<()> {
        (**self).handle_timeout(now)
    }
}
