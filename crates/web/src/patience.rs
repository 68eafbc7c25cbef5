//! A connection whose other end must read what it is sent: one that takes nothing for a while, or an octet now and then, is
//! ended, and what it held comes free.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep, sleep};

/// A connection, how long it may take nothing, and how long it may take over all that waits for it.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    in_all: Duration,
    /// Since when something has waited. All of an answer has been taken when it is flushed; of a feed, all so far.
    since: Option<Instant>,
    /// Runs while nothing is taken.
    waits: bool,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration, in_all: Duration) -> Patient<S> {
        let deadline = Box::pin(sleep(patience));
        Patient { stream, patience, in_all, since: None, waits: false, deadline }
    }

    /// What a write has come to; an error where it waits too long.
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let now = Instant::now();
        let end = *self.since.get_or_insert(now) + self.in_all;
        if now >= end {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.deadline.as_mut().reset(end.min(now + self.patience));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Read + Unpin> Read for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, octets);
        self.judge(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        let judged = self.judge(context, flushed);
        if judged.is_ready() {
            self.since = None;
        }
        judged
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(200);

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    async fn write(patient: &mut Patient<TokioIo<DuplexStream>>) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *patient).poll_write(context, &[0; 64])).await
    }

    /// Writes without an end, until that fails.
    async fn write_on(patient: &mut Patient<TokioIo<DuplexStream>>) -> io::ErrorKind {
        for _ in 0..10_000 {
            if let Err(error) = write(patient).await {
                return error.kind();
            }
        }
        panic!("it goes on");
    }

    #[test]
    fn one_that_takes_nothing_or_an_octet_now_and_then_is_ended() {
        run(async {
            let (near, _far) = duplex(64);
            let mut patient = Patient::new(TokioIo::new(near), SHORT, LONG);
            assert_eq!(write_on(&mut patient).await, io::ErrorKind::TimedOut);

            let (near, mut far) = duplex(64);
            tokio::spawn(async move {
                while far.read_u8().await.is_ok() {
                    sleep(SHORT / 40).await;
                }
            });
            let mut patient = Patient::new(TokioIo::new(near), LONG, SHORT);
            assert_eq!(write_on(&mut patient).await, io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn one_that_has_taken_all_may_wait_for_more() {
        run(async {
            let (near, _far) = duplex(256);
            let mut patient = Patient::new(TokioIo::new(near), SHORT, SHORT);
            for _ in 0..3 {
                assert_eq!(write(&mut patient).await.unwrap(), 64);
                poll_fn(|context| Pin::new(&mut patient).poll_flush(context)).await.unwrap();
                sleep(SHORT * 2).await;
            }
        });
    }
}
