//! `sidestep ipsec run` with a moving tunnel: a program whose only way out is the tunnel.
//!
//! The program has a network namespace of its own with a TUN device in it, whose queue this process holds
//! ([`linux::jail`]). This process speaks with the peers by ordinary UDP sockets from where it was started.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::event::{Events, Interest, Poller, Request as Signal, Signals};
use linux::jail::{Jail, Setup};
use linux::tun;
use tracing::{debug, error};
use wire::virtio_net;

use super::carrier::Carrier;
use super::claim::Claim;
use super::error::Error;
use crate::data::Sink;

/// How long the first session may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Packets, and bytes to be sent, after which a turn reads no more from the TUN device.
const READS: (usize, usize) = (128, 1 << 20);
/// Receives from sockets before the TUN device has its turn.
const RECEIVES: usize = 64;
/// errno(3) of a device that is down.
const EIO: i32 = 5;

const CARRIER: u64 = 0;
const SIGNALS: u64 = 1;
const PROGRAM: u64 = 2;
const TUN: u64 = 3;

/// Runs the program of `jail` through the tunnel of the configuration, and returns its exit status. `dns`: its name servers,
/// which are behind the tunnel as everything is. Call it before the first thread.
///
/// # Errors
/// [`Error`] when there is no tunnel, or the program cannot be run.
pub fn run(mut jail: Jail, file: &Path, dns: &[IpAddr], signals: &Signals) -> Result<u8, Error> {
    let claim = Claim::stake(file)?;
    linux::confine::confine([])?;
    let setup = Setup { addresses: claim.addresses().to_vec(), mtu: claim.mtu().into(), dns: dns.to_vec() };
    let carrier = Carrier::open(claim)?;
    let poller = Poller::new()?;
    poller.add(&carrier, CARRIER, Interest::Readable)?;
    poller.add(signals, SIGNALS, Interest::Readable)?;
    poller.add(jail.ended(), PROGRAM, Interest::Readable)?;
    let mut client = Client {
        carrier,
        poller,
        events: Events::with_capacity(8),
        sink: Sink::new(tun::Offloads::None),
        queue: None,
        buffer: vec![0; tun::MAX_READ],
    };

    let latest = Instant::now() + PATIENCE;
    while !client.carrier.is_up() {
        match client.turn(Some(latest), signals)? {
            Woken::Nothing if Instant::now() >= latest => {
                let why = "no peer has answered within a minute: is it up, does it have this end's key and hop_prefix, and \
                           does that prefix lead here?";
                return Err(Error::NotReached(why.to_owned()));
            }
            Woken::Nothing => {}
            Woken::Stop | Woken::Ended => {
                client.carrier.end();
                return Err(Error::NotReached("stopped before the tunnel was there".to_owned()));
            }
        }
    }
    if let Some((queue, offloads)) = jail.take_queue() {
        client.poller.add(&queue, TUN, Interest::Readable)?;
        client.sink = Sink::new(offloads);
        client.queue = Some(queue);
    }
    if let Err(error) = jail.open(&setup) {
        error!("{error}");
        client.carrier.end();
        return Ok(jail.wait()?);
    }
    loop {
        match client.turn(None, signals)? {
            Woken::Nothing => {}
            Woken::Stop => jail.stop(),
            Woken::Ended => break,
        }
    }
    let status = jail.wait()?;
    client.carrier.end();
    Ok(status)
}

enum Woken {
    Nothing,
    Stop,
    Ended,
}

struct Client {
    carrier: Carrier,
    poller: Poller,
    events: Events,
    sink: Sink,
    queue: Option<tun::Queue>,
    buffer: Vec<u8>,
}

impl Client {
    fn turn(&mut self, latest: Option<Instant>, signals: &Signals) -> Result<Woken, Error> {
        let until = latest.into_iter().fold(self.carrier.deadline(), Instant::min);
        self.poller.wait(&mut self.events, Some(until.saturating_duration_since(Instant::now())))?;
        let (mut woken, mut receives, mut reads) = (Woken::Nothing, false, false);
        for event in self.events.iter() {
            match event.token {
                CARRIER => receives = true,
                TUN => reads = true,
                PROGRAM => woken = Woken::Ended,
                _ if signals.read()? == Some(Signal::Stop) => woken = Woken::Stop,
                _ => {}
            }
        }
        self.carrier.handle_timeout(&mut self.sink);
        self.deliver();
        for _ in 0..if receives { RECEIVES } else { 0 } {
            if !self.carrier.receive(&mut self.sink)? {
                break;
            }
            self.deliver();
        }
        if reads {
            self.read()?;
            self.deliver();
        }
        self.carrier.flush();
        Ok(woken)
    }

    /// What has come out goes to the program.
    fn deliver(&mut self) {
        if let Some(queue) = &self.queue {
            self.sink.write(queue, self.carrier.arena());
        }
    }

    /// What the program sends goes in.
    fn read(&mut self) -> linux::Result<()> {
        let Some(queue) = &self.queue else { return Ok(()) };
        for _ in 0..READS.0 {
            if self.carrier.waiting() >= READS.1 {
                break;
            }
            let length = match queue.read(&mut self.buffer) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                // The device is down; it may come up again.
                Err(error) if error.raw_os_error() == Some(EIO) => break,
                Err(error) => return Err(error),
            };
            let Some((header, packet)) = self.buffer[..length].split_first_chunk_mut() else {
                debug!("a packet of {length} bytes");
                continue;
            };
            let header = virtio_net::Header::from_bytes(header);
            self.carrier.send(&header, packet, &mut self.sink);
        }
        Ok(())
    }
}
