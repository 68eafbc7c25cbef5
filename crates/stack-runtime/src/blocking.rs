//! Calls that block, on top of those that say when to ask again.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: RefCell<Waker> = RefCell::new(Waker::from(Arc::new(Unpark(thread::current()))));
}

/// Asks until there is an answer, and sleeps in between.
///
/// # Errors
/// That of the answer, or [`io::ErrorKind::TimedOut`].
pub(crate) fn block_on<T>(
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    let waker = WAKER.with_borrow(Waker::clone);
    let mut context = Context::from_waker(&waker);
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return result;
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
            Some(left) => thread::park_timeout(left),
        }
    }
}
