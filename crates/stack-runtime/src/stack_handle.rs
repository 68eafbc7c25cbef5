//! A host that runs.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::event::Waker;
use stack::autoconf::{self, Phase};
use stack::host::Host;
use stack::interface::{Config, Event, Medium};
use stack::random::Key;
use stack::security::{NoSecurity, Security};

use crate::blocking::block_on;
use crate::device::Device;
use crate::runner;
use crate::state::{Shared, State, add};

/// What a host is like.
#[derive(Clone)]
pub struct Options {
    /// The link's name, a part of what stable addresses are made of (RFC 7217).
    pub name: String,
    /// The secret that stable addresses are made of. Without one they are others in each run.
    pub stable_key: Option<Key>,
    /// Whether routers are asked for, and believed.
    pub routers: bool,
    /// Whether there are temporary addresses, too (RFC 8981).
    pub temporary: bool,
    /// How often somebody else is asked for before an address is used (RFC 4862 DupAddrDetectTransmits).
    pub duplicate_transmits: u8,
    /// The largest packet, if less than the device carries.
    pub mtu: Option<usize>,
}

impl Options {
    /// As hosts are: they ask for routers, and for others who have their address.
    pub fn new(name: impl Into<String>) -> Self {
        Options {
            name: name.into(),
            stable_key: None,
            routers: true,
            temporary: false,
            duplicate_transmits: 1,
            mtu: None,
        }
    }

    fn into_config(self, device: &impl Device) -> io::Result<Config> {
        let stable_key = match self.stable_key {
            Some(key) => key,
            None => Key::new(random()?),
        };
        Ok(Config {
            medium: device.medium(),
            mtu: device.mtu().min(self.mtu.unwrap_or(usize::MAX)),
            autoconf: autoconf::Config {
                stable_key,
                interface: self.name.into_bytes(),
                temporary: self.temporary,
                duplicate_transmits: self.duplicate_transmits,
            },
            routers: self.routers,
        })
    }
}

/// A host that runs on a device, in a thread of its own. Clones are the same host; it ends with the last of them and of its
/// sockets.
pub struct Stack<S: Security = NoSecurity> {
    running: Arc<Running<S>>,
}

struct Running<S: Security> {
    shared: Arc<Shared<S>>,
    medium: Medium,
    thread: Option<JoinHandle<()>>,
}

impl<S: Security> Clone for Stack<S> {
    fn clone(&self) -> Self {
        Stack { running: Arc::clone(&self.running) }
    }
}

impl Stack {
    /// Starts a host without security.
    ///
    /// # Errors
    /// When the system has no more descriptors or threads.
    pub fn start(device: impl Device + 'static, options: Options) -> io::Result<Self> {
        Self::start_with(device, options, NoSecurity)
    }
}

impl<S: Security + Send + 'static> Stack<S> {
    /// Starts a host whose packets go through `security`.
    ///
    /// # Errors
    /// When the system has no more descriptors or threads.
    pub fn start_with(device: impl Device + 'static, options: Options, security: S) -> io::Result<Self> {
        let config = options.into_config(&device)?;
        let host = Host::with_security(Instant::now(), config, random()?, security);
        let medium = device.medium();
        let shared = Arc::new(Shared::new(host, Waker::new().map_err(io::Error::other)?));
        let poller = runner::poller(&device, &shared)?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("stack".into())
            .spawn(move || runner::run(device, &poller, &of_thread))?;
        Ok(Stack { running: Arc::new(Running { shared, medium, thread: Some(thread) }) })
    }
}

impl<S: Security> Stack<S> {
    /// What the device carries.
    pub fn medium(&self) -> Medium {
        self.running.medium
    }

    /// Works on the host itself, for what has no function here: addresses, routes, security. Nobody else has a turn
    /// meanwhile, so that it must not block.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn with<T>(&self, work: impl FnOnce(Instant, &mut Host<S>) -> T) -> io::Result<T> {
        self.try_with(|now, host| Ok(work(now, host)))
    }

    /// The same, for work that can fail.
    pub(crate) fn try_with<T>(
        &self,
        work: impl FnOnce(Instant, &mut Host<S>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.shared().lock();
        state.check()?;
        let result = work(Instant::now(), &mut state.host);
        self.shared().wake(&mut state);
        result
    }

    /// Waits until the host answers a question with something; it is asked again after whatever happens.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or when the stack has ended.
    pub fn wait_until<T>(
        &self,
        timeout: Duration,
        mut question: impl FnMut(Instant, &mut Host<S>) -> Option<T>,
    ) -> io::Result<T> {
        let ask = |state: &mut State<S>| question(Instant::now(), &mut state.host);
        self.wait(Some(timeout), ask)
    }

    /// Waits until an address is there to be used, a global one if there is one, and returns it.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or when the stack has ended.
    pub fn wait_for_address(&self, timeout: Duration) -> io::Result<Ipv6Addr> {
        self.wait_until(timeout, |now, host| {
            let all = host.interface().addresses().iter();
            let usable = all.filter(|known| known.phase(now) != Phase::Tentative);
            usable.map(|known| known.address).min_by_key(Ipv6Addr::is_unicast_link_local)
        })
    }

    /// Sends an echo request; the answer is a [`Event::EchoReply`].
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn ping(&self, to: IpAddr, identifier: u16, sequence: u16, data: &[u8]) -> io::Result<()> {
        self.try_with(|now, host| {
            let sent = host.interface_mut().ping(now, mapped(to), identifier, sequence, data);
            sent.map_err(|error| crate::error::of_udp(error.into()))
        })
    }

    /// Waits for the next event of the interface, and when it came. Each is given to one caller.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or when the stack has ended.
    pub fn next_event(&self, timeout: Duration) -> io::Result<(Instant, Event)> {
        self.wait(Some(timeout), |state| state.events.pop_front())
    }

    fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut ask: impl FnMut(&mut State<S>) -> Option<T>,
    ) -> io::Result<T> {
        block_on(timeout, |context: &mut Context<'_>| {
            let mut state = self.shared().lock();
            if let Some(answer) = ask(&mut state) {
                return Poll::Ready(Ok(answer));
            }
            state.check()?;
            add(&mut state.waiting.any, context.waker());
            Poll::Pending
        })
    }

    pub(crate) fn shared(&self) -> &Shared<S> {
        &self.running.shared
    }
}

impl<S: Security> Drop for Running<S> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stops = true;
        state.asleep = false;
        drop(state);
        self.shared.waker().wake();
        // A waker that holds the last handle is dropped by the thread itself, which then ends without being waited for.
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

/// The address as the stack knows it: those of IPv4 are mapped ones.
pub(crate) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

pub(crate) fn to_stack(address: SocketAddr) -> SocketAddrV6 {
    SocketAddrV6::new(mapped(address.ip()), address.port(), 0, 0)
}

pub(crate) fn from_stack(address: SocketAddrV6) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(*address.ip()).to_canonical(), address.port())
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    getrandom::fill(&mut octets).map_err(io::Error::other)?;
    Ok(octets)
}
