//! What the thread and the callers share: the host, and who waits for what.
//!
//! Wakers are called and dropped without the lock: they may be of a task that holds sockets itself.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use stack::host::{Host, ListenerHandle, TcpEvent, TcpHandle};
use stack::interface::Event;
use stack::security::Security;
use stack::udp::SocketId;

/// Events that wait for somebody; of more, the oldest are lost.
const MAX_EVENTS: usize = 1024;

/// What the thread and the callers share.
pub(crate) struct Shared<S: Security> {
    state: Mutex<State<S>>,
    /// Wakes the thread.
    waker: linux::event::Waker,
}

/// What the lock guards.
pub(crate) struct State<S: Security> {
    pub(crate) host: Host<S>,
    pub(crate) waiting: Waiting,
    /// What has happened to the interface, and when.
    pub(crate) events: VecDeque<(Instant, Event)>,
    /// The thread sleeps, or is about to.
    pub(crate) asleep: bool,
    /// It is to end.
    pub(crate) stops: bool,
    /// Why there is no thread any longer.
    pub(crate) ended: Option<(io::ErrorKind, String)>,
}

/// Who waits for what.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) tcp: HashMap<TcpHandle, Vec<Waker>>,
    pub(crate) listeners: HashMap<ListenerHandle, Vec<Waker>>,
    pub(crate) udp: HashMap<SocketId, Vec<Waker>>,
    /// For anything.
    pub(crate) any: Vec<Waker>,
}

impl<S: Security> Shared<S> {
    pub(crate) fn new(host: Host<S>, waker: linux::event::Waker) -> Self {
        let state = State {
            host,
            waiting: Waiting::default(),
            events: VecDeque::new(),
            asleep: false,
            stops: false,
            ended: None,
        };
        Shared { state: Mutex::new(state), waker }
    }

    /// A panic of another thread leaves a host that works: its functions do not panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have to be sent, or its time be another.
    pub(crate) fn wake(&self, state: &mut State<S>) {
        if std::mem::take(&mut state.asleep) {
            self.waker.wake();
        }
    }

    pub(crate) fn waker(&self) -> &linux::event::Waker {
        &self.waker
    }
}

impl<S: Security> State<S> {
    /// Whether there is a thread that drives the host.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.ended {
            None => Ok(()),
            Some((kind, message)) => Err(io::Error::new(*kind, message.clone())),
        }
    }

    /// Takes those who wait for what has happened to sockets and interface.
    pub(crate) fn take_woken(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        while let Some(event) = self.host.poll_tcp() {
            let list = match event {
                TcpEvent::Connection(handle) => self.waiting.tcp.get_mut(&handle),
                TcpEvent::Listener(handle) => self.waiting.listeners.get_mut(&handle),
            };
            woken.extend(list.into_iter().flat_map(|list| list.drain(..)));
        }
        while let Some(event) = self.host.interface_mut().poll_event() {
            if self.events.len() >= MAX_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back((now, event));
        }
        let interface = self.host.interface();
        for (id, list) in &mut self.waiting.udp {
            if !list.is_empty() && interface.udp_is_readable(*id) {
                woken.append(list);
            }
        }
        woken.append(&mut self.waiting.any);
    }

    /// Takes all who wait.
    pub(crate) fn take_all(&mut self) -> Waiting {
        std::mem::take(&mut self.waiting)
    }
}

impl Waiting {
    pub(crate) fn wake(self) {
        let Waiting { tcp, listeners, udp, any } = self;
        let lists = tcp.into_values().chain(listeners.into_values()).chain(udp.into_values());
        lists.flatten().chain(any).for_each(Waker::wake);
    }
}

/// Adds one who waits, once.
pub(crate) fn wait<K: Eq + Hash>(waiting: &mut HashMap<K, Vec<Waker>>, key: K, waker: &Waker) {
    add(waiting.entry(key).or_default(), waker);
}

/// The same, in one list.
pub(crate) fn add(list: &mut Vec<Waker>, waker: &Waker) {
    if !list.iter().any(|known| known.will_wake(waker)) {
        list.push(waker.clone());
    }
}

/// Wakes those whose socket is gone.
pub(crate) fn wake(waited: Option<Vec<Waker>>) {
    waited.into_iter().flatten().for_each(Waker::wake);
}
