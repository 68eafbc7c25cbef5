//! A PF_KEY socket for a host: its associations and policies are in the hands of key management daemons.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use ipsec::key_engine::Event;
use ipsec_runtime::key_socket::{KeySocket, clock};
use linux::event::{Events, Interest, Poller, Waker};
use stack::ipsec::Ipsec;
use stack_runtime::Stack;

/// How often the thread that hears the host looks whether that is over.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const WAKER: u64 = 0;
const SOCKET: u64 = 1;

/// The socket, served by two threads: one hears what the engine has to say, the other talks with daemons.
pub(crate) struct Keys {
    is_over: Arc<AtomicBool>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

impl Keys {
    /// Listens at `path` until it is dropped.
    pub(crate) fn open(stack: &Stack<Ipsec>, path: &Path) -> io::Result<Self> {
        let (poller, waker) = (Poller::new()?, Waker::new()?);
        poller.add(&waker, WAKER, Interest::Readable)?;
        let keys = KeySocket::open(path, &poller, SOCKET)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (send, events) = mpsc::channel();
        let mut this = Self { is_over: Arc::clone(&is_over), waker: waker.clone(), threads: Vec::new() };
        let (of_host, of_waker, until) = (stack.clone(), waker.clone(), Arc::clone(&is_over));
        let hears = move || hear(&of_host, &send, &of_waker, &until);
        this.threads.push(std::thread::Builder::new().name("key-events".into()).spawn(hears)?);
        let (of_host, of_waker) = (stack.clone(), waker);
        let serves = move || serve(&of_host, keys, &poller, &events, &of_waker, &is_over);
        this.threads.push(std::thread::Builder::new().name("keys".into()).spawn(serves)?);
        Ok(this)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.waker.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn hear(stack: &Stack<Ipsec>, send: &mpsc::Sender<Event>, waker: &Waker, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match stack.wait_until(LOOK_EVERY, |_, host| host.interface_mut().security().next_event()) {
            Ok(event) => {
                if send.send(event).is_err() {
                    return;
                }
                waker.wake();
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(_) => return,
        }
    }
}

/// Until the host ends, or this is over.
fn serve(
    stack: &Stack<Ipsec>,
    mut keys: KeySocket,
    poller: &Poller,
    news: &mpsc::Receiver<Event>,
    waker: &Waker,
    is_over: &AtomicBool,
) {
    let mut events = Events::with_capacity(16);
    while !is_over.load(Ordering::Relaxed) && poller.wait(&mut events, None).is_ok() {
        waker.drain();
        let worked = stack.with(|_, host| {
            let security = host.interface_mut().security();
            let mut dropped = 0;
            for event in events.iter().filter(|event| event.token >= SOCKET) {
                let (engine, policies) = security.parts();
                dropped += keys.handle(poller, event, engine, policies, clock());
            }
            while let Ok(event) = news.try_recv() {
                keys.tell(poller, &event, security.engine(), clock());
            }
            security.count_unkeyed(dropped);
        });
        if worked.is_err() {
            return;
        }
    }
}
