//! How a command ends: its sockets go with it, also when SIGTERM, SIGINT or SIGHUP ends it.

use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};

use linux::event::{Events, Interest, Poller, Signals};

use super::key_socket::Keys;
use super::status::Answering;
use crate::failure::Failure;

/// The sockets of a host, until they are removed.
#[derive(Clone)]
struct Sockets(Arc<Mutex<Option<Open>>>);

struct Open {
    _answering: Option<Answering>,
    _keys: Option<Keys>,
}

/// Removes the sockets when it is dropped.
pub(crate) struct Held(Sockets);

impl Held {
    pub(crate) fn new(answering: Option<Answering>, keys: Option<Keys>) -> Self {
        Held(Sockets(Arc::new(Mutex::new(Some(Open { _answering: answering, _keys: keys })))))
    }

    /// From now on a signal ends the process, with this status, when the sockets are removed. `signals` were made before
    /// the first thread.
    pub(crate) fn end_at(&self, signals: Signals, status: i32) -> Result<(), Failure> {
        let poller = Poller::new()?;
        poller.add(&signals, 0, Interest::Readable)?;
        let sockets = self.0.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let mut events = Events::with_capacity(1);
            while !matches!(signals.read(), Ok(Some(_))) {
                if poller.wait(&mut events, None).is_err() {
                    break;
                }
            }
            sockets.remove(|| exit(status));
        })?;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.remove(|| ());
    }
}

impl Sockets {
    /// Removes them, then does the rest; who comes second waits for that.
    fn remove(&self, then: impl FnOnce()) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(open.take());
        then();
    }
}
