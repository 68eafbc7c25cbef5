//! One of two gateways of a site: its turn, and the addresses that the active one has (`[standby]`).
//!
//! The kernel is given these addresses for some seconds, again and again. So a daemon that stands still, or was killed, loses them
//! without anybody's doing; until then the other one's announcements count, which come last.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::{MovingAddress, Standby};
use control::standby::{Be, Status, View};
use ipnet::IpNet;
use linux::clock::boottime_ms;
use linux::neighbor::announce;
use linux::netlink::Netlink;
use tracing::{info, warn};

/// How long the kernel is given an address, in seconds, and how often. It counts whole seconds.
const HELD_S: u32 = 3;
const HOLD_EVERY: Duration = Duration::from_millis(500);
/// When an address is announced after it has come, and how often then.
const ANNOUNCED_AFTER: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(150), Duration::from_millis(400)];
const ANNOUNCED_EVERY: Duration = Duration::from_secs(1);
/// How long the tunnel waits until the addresses are there.
const AT_ONCE: Duration = Duration::from_millis(200);

/// This gateway's part.
pub(crate) struct Turns {
    turn: Option<u64>,
    since_ms: u64,
    view: Option<(View, u64)>,
    holder: Option<Holder>,
}

/// What is to be done because of what an agent says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Stay,
    /// The tunnel is met from now on, in this turn.
    Begin(u64),
    /// It is not met any more.
    End,
}

impl Turns {
    /// At the start nobody is met, where there are two.
    pub(crate) fn new() -> Self {
        Turns { turn: None, since_ms: boottime_ms(), view: None, holder: None }
    }

    /// The turn that it has.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.turn
    }

    /// The agent says what it is to be.
    pub(crate) fn told(&mut self, be: Be, standby: &Standby) -> Step {
        let now = boottime_ms();
        let is_over = now >= be.until_ms;
        self.view = Some((be.view, now));
        if be.turn == self.turn {
            if self.turn.is_some() {
                let holder = self.hold(standby);
                if be.announce && !is_over {
                    holder.announce_until(be.until_ms);
                }
            }
            return Step::Stay;
        }
        match be.turn {
            None => {
                self.end();
                Step::End
            }
            // What was said before a later turn, or before this process stood still, is over.
            Some(turn) if is_over || self.turn.is_some_and(|own| own > turn) => Step::Stay,
            Some(turn) => {
                (self.turn, self.since_ms) = (Some(turn), now);
                Step::Begin(turn)
            }
        }
    }

    /// Has the addresses, and tells the links. To be called before the tunnel hops, as answers of peers come to these.
    pub(crate) fn take_addresses(&mut self, be_until_ms: u64, standby: &Standby) {
        self.holder = Some(Holder::start(standby.addresses.clone(), be_until_ms));
    }

    /// The tunnel is where it is to be.
    pub(crate) fn is_met(&self) {
        if let Some(turn) = self.turn {
            info!(event = "turn_begun", "this gateway is the active one of its site now (turn {turn})");
        }
    }

    /// It is not met any more.
    pub(crate) fn end(&mut self) {
        self.holder = None;
        if let Some(turn) = self.turn.take() {
            self.since_ms = boottime_ms();
            info!(event = "turn_ended", "this gateway stands by: its turn {turn} is over");
        }
    }

    fn hold(&mut self, standby: &Standby) -> &Holder {
        // What is written may have changed.
        if self.holder.as_ref().is_some_and(|holder| holder.addresses != standby.addresses) {
            self.holder = None;
        }
        self.holder.get_or_insert_with(|| Holder::start(standby.addresses.clone(), 0))
    }

    /// For the status.
    pub(crate) fn status(&self) -> Status {
        let now = boottime_ms();
        Status {
            turn: self.turn,
            since_s: now.saturating_sub(self.since_ms) / 1000,
            view: self.view.as_ref().map(|(view, _)| view.clone()),
            view_ms: self.view.as_ref().map(|(_, at)| now.saturating_sub(*at)),
        }
    }
}

/// A thread that has the addresses, until it is dropped.
struct Holder {
    addresses: Vec<MovingAddress>,
    announce_until: Option<mpsc::Sender<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    /// Returns when the addresses are there, and are announced if it is before `announce_until`.
    fn start(addresses: Vec<MovingAddress>, announce_until: u64) -> Self {
        let (send, until) = mpsc::channel();
        let (is_done, done) = mpsc::channel();
        let held = addresses.clone();
        let thread = std::thread::Builder::new()
            .name("addresses".into())
            .spawn(move || hold(&held, announce_until, &until, is_done));
        if let Err(error) = &thread {
            warn!("the addresses of the active gateway are not here: {error}");
        }
        let _ = done.recv_timeout(AT_ONCE);
        Holder { addresses, announce_until: Some(send), thread: thread.ok() }
    }

    fn announce_until(&self, boot_ms: u64) {
        // Without a thread there was a warning.
        let _ = self.announce_until.as_ref().map(|send| send.send(boot_ms));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.announce_until = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn hold(
    addresses: &[MovingAddress],
    mut until: u64,
    announce_until: &mpsc::Receiver<u64>,
    is_done: mpsc::Sender<()>,
) {
    let mut netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(error) => return warn!("the addresses of the active gateway are not here: {error}"),
    };
    let began = Instant::now();
    let (mut held, mut announced, mut last, mut is_told) = (None, 0, began, false);
    let mut is_done = Some(is_done);
    loop {
        if held.is_none_or(|held: Instant| held.elapsed() >= HOLD_EVERY) {
            held = Some(Instant::now());
            for MovingAddress { interface, address } in addresses {
                let done = netlink.link_by_name(interface).and_then(|link| match link {
                    Some(link) => {
                        netlink.hold_address(link.index, IpNet::V6(*address), HELD_S).map(|()| true)
                    }
                    None => Ok(false),
                });
                // Once: it is tried again and again.
                match done {
                    Ok(true) => continue,
                    Ok(false) if !is_told => warn!("there is no interface {interface} for {address}"),
                    Err(error) if !is_told => warn!("{address} is not on {interface}: {error}"),
                    _ => {}
                }
                is_told = true;
            }
        }
        let due = match ANNOUNCED_AFTER.get(announced) {
            Some(after) => began + *after,
            None => last + ANNOUNCED_EVERY,
        };
        let now = Instant::now();
        if now >= due && boottime_ms() < until {
            (announced, last) = (announced + 1, now);
            for MovingAddress { interface, address } in addresses {
                if let Ok(Some(link)) = netlink.link_by_name(interface)
                    && let Some(mac) = link.mac
                {
                    // A link that is down hears it when it is up, the next time.
                    let _ = announce(link.index, mac, address.addr());
                }
            }
        }
        drop(is_done.take());
        match announce_until.recv_timeout(HOLD_EVERY.min(Duration::from_millis(50))) {
            Ok(boot_ms) => until = boot_ms,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for MovingAddress { interface, address } in addresses {
        if let Ok(Some(link)) = netlink.link_by_name(interface) {
            let _ = netlink.delete_address(link.index, IpNet::V6(*address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn be(turn: Option<u64>, until_ms: u64) -> Be {
        Be { turn, announce: false, until_ms, view: View::default() }
    }

    #[test]
    fn what_is_over_begins_nothing_and_what_is_earlier_neither() {
        let standby = Standby {
            gateways: Vec::new(),
            addresses: Vec::new(),
            silence: Duration::from_millis(300),
            hop_prefix: "2001:db8:a1::/64".parse().unwrap(),
        };
        let mut turns = Turns::new();
        assert_eq!(turns.told(be(Some(5), 0), &standby), Step::Stay, "it was said long ago");
        assert_eq!(turns.told(be(Some(5), u64::MAX), &standby), Step::Begin(5));
        assert_eq!(turns.told(be(Some(5), u64::MAX), &standby), Step::Stay);
        assert_eq!(turns.told(be(Some(4), u64::MAX), &standby), Step::Stay, "an earlier one");
        assert_eq!(turns.turn(), Some(5));
        assert_eq!(turns.told(be(None, 0), &standby), Step::End, "not to be met is always right");
        assert_eq!(turns.told(be(None, 0), &standby), Step::Stay);
    }
}
