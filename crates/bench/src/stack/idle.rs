//! What a connection that nobody uses keeps of the memory.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::accounting::resident;
use lab::command::{check, text};
use lab::{Error, helper};
use stack::host::{Host, ListenerHandle, TcpHandle};
use stack::tcp;

use super::ours;

/// Connections that are there before it is measured: tables have grown, buffers are warm.
const BEFORE: usize = 2_000;
/// Connections that are measured.
const MEASURED: usize = 10_000;
/// What each of them has carried, each way, before it is idle.
const BYTES: usize = 4_000;
/// After that long all that was sent is acknowledged, and no timer is left.
const LATER: Duration = Duration::from_secs(5);
const PORT: u16 = 7;

/// Bytes of memory for each end of a connection, by a process of its own, which has nothing else.
///
/// # Errors
/// When that has failed.
pub(super) fn measure() -> Result<f64, Error> {
    let said = text(&check(Command::new(helper::program()?).arg("stack-idle"))?);
    said.parse().map_err(|error| Error::output("stack-idle", error))
}

/// The same in this process, for `sidestep-lab stack-idle`.
///
/// # Errors
/// When there is no connection.
pub(crate) fn run() -> Result<f64, Error> {
    let failed = || Error::Usage("the host stack makes no connection".into());
    let mut two = Two::new().ok_or_else(failed)?;
    let mut open = Vec::with_capacity(BEFORE + MEASURED);
    let mut connect = |count: usize| -> Option<()> {
        for _ in 0..count {
            open.push(two.connect_and_use()?);
        }
        two.rest();
        Some(())
    };
    connect(BEFORE).ok_or_else(failed)?;
    let before = resident(std::process::id())?;
    connect(MEASURED).ok_or_else(failed)?;
    let grown = resident(std::process::id())?.saturating_sub(before);
    Ok(grown as f64 / (2 * MEASURED) as f64)
}

/// Two hosts with nothing between them.
struct Two {
    hosts: [Host; 2],
    listener: ListenerHandle,
    packet: Vec<u8>,
    data: Vec<u8>,
    now: Instant,
}

impl Two {
    fn new() -> Option<Self> {
        let now = Instant::now();
        let mut hosts = [1, 2].map(|seed| Host::new(now, ours::config(), [seed; 32]));
        for (number, host) in (1..).zip(&mut hosts) {
            host.interface_mut().add_address(now, address(number), 64);
        }
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT, 0, 0);
        let listener = hosts[1].tcp_listen(any, tcp::Config::new(u16::MAX), 16).ok()?;
        Some(Self { hosts, listener, packet: Vec::new(), data: vec![1; BYTES], now })
    }

    /// A connection that has carried something both ways, all of which was read.
    fn connect_and_use(&mut self) -> Option<[TcpHandle; 2]> {
        let to = SocketAddrV6::new(address(2), PORT, 0, 0);
        let client = self.hosts[0].tcp_connect(self.now, to, tcp::Config::new(u16::MAX)).ok()?;
        self.carry();
        let server = self.hosts[1].tcp_accept(self.listener).ok()??;
        for (from, handle, to, peer) in [(0, client, 1, server), (1, server, 0, client)] {
            let (mut sent, mut received) = (0, 0);
            let mut taken = [0; BYTES];
            while received < BYTES {
                sent += self.hosts[from].write(handle, &self.data[sent..]).ok()?;
                self.carry();
                received += self.hosts[to].read(peer, &mut taken).ok().filter(|length| *length > 0)?;
            }
        }
        Some([client, server])
    }

    /// Lets time pass until nothing is left to be done.
    fn rest(&mut self) {
        let end = self.now + LATER;
        while let Some(next) = self.hosts.iter().filter_map(Host::deadline).min().filter(|next| *next <= end)
        {
            self.now = self.now.max(next);
            self.carry();
        }
        self.now = end;
    }

    fn carry(&mut self) {
        let [a, b] = &mut self.hosts;
        for host in [&mut *a, &mut *b] {
            if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                host.handle_timeout(self.now);
            }
            while host.poll_tcp().is_some() {}
        }
        let mut busy = true;
        while std::mem::take(&mut busy) {
            while a.poll_transmit(self.now, &mut self.packet) {
                b.receive(self.now, &self.packet);
                busy = true;
            }
            while b.poll_transmit(self.now, &mut self.packet) {
                a.receive(self.now, &self.packet);
                busy = true;
            }
        }
    }
}

fn address(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number)
}
