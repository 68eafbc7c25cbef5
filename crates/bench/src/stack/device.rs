//! A TCP/IP stack at a TUN device, in a thread.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::event::{Events, Interest, Poller};
use linux::tun::{self, MAX_READ, Offloads, VNET_HEADER};

use super::scene;
use lab::Error;

/// The longest sleep, so that a stop is seen soon.
const IDLE: Duration = Duration::from_millis(200);
/// Packets taken from the device before others get their turn.
pub(super) const TURN: usize = 64;

/// A TCP/IP stack at a TUN device.
pub(super) trait Stack {
    /// Takes a packet.
    fn receive(&mut self, now: Instant, packet: &[u8]);
    /// Does what is due, and moves the data of connections.
    fn run(&mut self, now: Instant);
    /// Gives the next packet to send.
    fn transmit(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool;
    /// When it is to be called again at the latest.
    fn deadline(&mut self, now: Instant) -> Option<Instant>;
}

/// Runs a stack until `stop` is set.
///
/// # Errors
/// When there is no device.
pub(super) fn run(stack: &mut impl Stack, stop: &AtomicBool) -> Result<(), Error> {
    let queue = tun::create(scene::DEVICE, 1, Offloads::None)?.queues.remove(0);
    let poller = Poller::new()?;
    poller.add(queue.as_fd(), 0, Interest::Readable)?;
    let mut events = Events::with_capacity(4);
    let (mut buffer, mut packet) = (vec![0; MAX_READ], Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let mut taken = 0;
        while taken < TURN
            && let Some(length) = queue.read(&mut buffer)?
        {
            stack.receive(now, &buffer[VNET_HEADER..length]);
            taken += 1;
        }
        stack.run(now);
        while stack.transmit(now, &mut packet) {
            // Before the device is up there is nobody to send to; what is lost then is sent again.
            let _ = queue.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&packet)]);
        }
        if taken == 0 {
            let deadline = stack.deadline(now).map_or(IDLE, |at| at.saturating_duration_since(now));
            poller.wait(&mut events, Some(deadline.min(IDLE)))?;
        }
    }
    Ok(())
}
