//! Waiting: epoll with a number per descriptor, a waker for other threads, signals as events.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

use crate::error::{Context, Result};

/// What to wait for on a descriptor. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read.
    Readable,
    /// Something can be written.
    Writable,
    /// Either of the two.
    Both,
    /// Errors and hang-ups only.
    None,
}

impl Interest {
    fn flags(self) -> EpollFlags {
        match self {
            Interest::Readable => EpollFlags::EPOLLIN,
            Interest::Writable => EpollFlags::EPOLLOUT,
            Interest::Both => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
            Interest::None => EpollFlags::empty(),
        }
    }
}

/// One descriptor that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number it was added with.
    pub token: u64,
    /// Something can be read without blocking.
    pub readable: bool,
    /// Something can be written without blocking.
    pub writable: bool,
    /// An error is pending; on an endpoint socket usually a message in the error queue
    /// (see [`crate::udp::EndpointSocket::recv_error`]). It is reported until it is read.
    pub error: bool,
    /// The other side is gone: a terminal that was closed, a pipe that nobody writes to.
    pub hung_up: bool,
}

/// Room for the events of one wait, kept between waits so that none allocates.
#[derive(Debug)]
pub struct Events {
    buffer: Vec<EpollEvent>,
    ready: usize,
}

impl Events {
    /// Room for `capacity` events of one wait; more than that wait for the next one.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { buffer: vec![EpollEvent::empty(); capacity.max(1)], ready: 0 }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.buffer[..self.ready].iter().map(|event| {
            let flags = event.events();
            Event {
                token: event.data(),
                readable: flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP),
                writable: flags.contains(EpollFlags::EPOLLOUT),
                error: flags.contains(EpollFlags::EPOLLERR),
                hung_up: flags.contains(EpollFlags::EPOLLHUP),
            }
        })
    }
}

/// A set of descriptors to wait for (epoll, level triggered). Any thread may add or remove while another waits.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
}

impl Poller {
    /// An empty set.
    pub fn new() -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(|| "epoll_create1")?;
        Ok(Self { epoll })
    }

    /// Waits for `fd` from now on. It leaves the set by [`Poller::remove`] or when its last copy is closed.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        self.epoll.add(fd, EpollEvent::new(interest.flags(), token)).context(|| "epoll_ctl add")
    }

    /// Changes what is waited for.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let mut event = EpollEvent::new(interest.flags(), token);
        self.epoll.modify(fd, &mut event).context(|| "epoll_ctl modify")
    }

    /// Waits for `fd` no longer.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        self.epoll.delete(fd).context(|| "epoll_ctl delete")
    }

    /// Waits until a descriptor is ready or the time is over (`None`: for ever), and returns how many are.
    /// A signal that is not blocked ends the wait early with 0. Times are kept to some ten microseconds, as
    /// [`precise_timers`] says; before Linux 5.11 they are rounded up to whole milliseconds.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> Result<usize> {
        events.ready = 0;
        let result = match timeout {
            Some(timeout) if !timeout.is_zero() => match self.wait_precisely(&mut events.buffer, timeout) {
                Err(Errno::ENOSYS) => {
                    let ms = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
                    self.epoll
                        .wait(&mut events.buffer, EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::MAX))
                }
                result => result,
            },
            Some(_) => self.epoll.wait(&mut events.buffer, EpollTimeout::ZERO),
            None => self.epoll.wait(&mut events.buffer, EpollTimeout::NONE),
        };
        events.ready = match result {
            Err(Errno::EINTR) => 0,
            result => result.context(|| "epoll_wait")?,
        };
        Ok(events.ready)
    }

    /// epoll_pwait2(2), which is told nanoseconds.
    fn wait_precisely(&self, buffer: &mut [EpollEvent], timeout: Duration) -> nix::Result<usize> {
        let timeout = TimeSpec::from_duration(timeout);
        let no_mask: *const libc::sigset_t = std::ptr::null();
        // SAFETY: an `EpollEvent` is laid out as the kernel's `epoll_event` (nix makes it transparent), and there are as many
        // as is stated. The timeout is a `timespec` that lives until the call returns. Without a mask its size counts for
        // nothing.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.0.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len() as libc::c_int,
                std::ptr::from_ref(timeout.as_ref()),
                no_mask,
                0usize,
            )
        };
        Errno::result(ready).map(|ready| ready as usize)
    }
}

/// Has timers of this thread, and of those that it starts from now on, end when they are due: the kernel lets them wait for
/// 50 microseconds more to have several end together.
pub fn precise_timers() -> Result<()> {
    nix::sys::prctl::set_timerslack(1).context(|| "prctl PR_SET_TIMERSLACK")
}

impl AsFd for Poller {
    /// Readable when something in the set is ready: a set in another.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Wakes a thread that waits in a [`Poller`]: add it there as readable, [`Waker::drain`] it when it is.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<EventFd>,
}

impl Waker {
    /// A waker that is quiet.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { event: Arc::new(EventFd::from_flags(flags).context(|| "eventfd")?) })
    }

    /// Makes the waker readable. Any number of calls before it is drained count as one.
    pub fn wake(&self) {
        // The only failure is a counter at its limit, which is readable already.
        let _ = self.event.write(1);
    }

    /// Makes the waker quiet again.
    pub fn drain(&self) {
        // The only failure is a counter at zero.
        let _ = self.event.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// A signal that the program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// SIGTERM, SIGINT and SIGHUP as something to read.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks the three signals in this thread and those it starts from now on: call it before the first thread.
    pub fn new() -> Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block().context(|| "pthread_sigmask")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { fd: SignalFd::with_flags(&mask, flags).context(|| "signalfd")? })
    }

    /// The next signal that came, if any.
    pub fn read(&self) -> Result<Option<Request>> {
        let Some(info) = self.fd.read_signal().context(|| "read signalfd")? else { return Ok(None) };
        Ok(Some(if info.ssi_signo == libc::SIGHUP as u32 { Request::Reload } else { Request::Stop }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_wakes_from_another_thread_and_is_quiet_once_drained() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(&waker, 7, Interest::Readable).unwrap();
        let mut events = Events::with_capacity(4);
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);

        let other = waker.clone();
        std::thread::spawn(move || (0..3).for_each(|_| other.wake())).join().unwrap();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
        let event = events.iter().next().unwrap();
        assert_eq!(event, Event { token: 7, readable: true, writable: false, error: false, hung_up: false });

        waker.drain();
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        poller.remove(&waker).unwrap();
    }

    #[test]
    fn a_wait_is_not_shorter_than_asked_for() {
        let poller = Poller::new().unwrap();
        let start = std::time::Instant::now();
        poller.wait(&mut Events::with_capacity(1), Some(Duration::from_micros(1500))).unwrap();
        assert!(start.elapsed() >= Duration::from_micros(1500));
    }

    #[test]
    fn most_waits_are_kept_to_less_than_a_millisecond() {
        precise_timers().unwrap();
        let poller = Poller::new().unwrap();
        let mut late: Vec<Duration> = (0..50)
            .map(|_| {
                let start = std::time::Instant::now();
                poller.wait(&mut Events::with_capacity(1), Some(Duration::from_micros(300))).unwrap();
                start.elapsed() - Duration::from_micros(300)
            })
            .collect();
        late.sort();
        // Whole milliseconds would make it 700 microseconds every time.
        assert!(late[5] < Duration::from_micros(500), "{late:?}");
    }
}
