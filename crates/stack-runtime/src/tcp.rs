//! Connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ipsec::policy::Levels;
use stack::host::{Asked, Host, TcpHandle};
use stack::security::{NoSecurity, Security};
use stack::tcp::{Config, Connection, State};

use crate::blocking::block_on;
use crate::error::{of_connecting, of_connection, of_stale, of_writing};
use crate::stack_handle::{Stack, from_stack, to_stack};
use crate::state::{self, wait};

/// Options of a connection, or of those that a listener takes.
#[derive(Debug, Clone, Copy)]
pub struct TcpOptions {
    /// Buffers, Nagle's algorithm, keepalives, timeouts.
    pub config: Config,
    /// Security, beside what the system asks for.
    pub levels: Levels,
}

impl Default for TcpOptions {
    fn default() -> Self {
        // As large as the path carries.
        TcpOptions { config: Config::new(u16::MAX), levels: Levels::NONE }
    }
}

impl TcpOptions {
    pub(crate) fn asked(&self) -> Asked {
        Asked { levels: self.levels, bypasses: false }
    }
}

/// A connection, as [`std::net::TcpStream`] is one. Clones are the same connection; it is closed with the last of them.
pub struct TcpStream<S: Security = NoSecurity> {
    socket: Arc<Socket<S>>,
}

struct Socket<S: Security> {
    stack: Stack<S>,
    handle: TcpHandle,
    timeouts: Mutex<Timeouts>,
}

#[derive(Clone, Copy, Default)]
struct Timeouts {
    read: Option<Duration>,
    write: Option<Duration>,
}

impl<S: Security> Clone for TcpStream<S> {
    fn clone(&self) -> Self {
        TcpStream { socket: Arc::clone(&self.socket) }
    }
}

impl<S: Security> TcpStream<S> {
    /// Connects, and waits until the other end has answered.
    ///
    /// # Errors
    /// When it cannot be tried, or nobody takes the connection.
    pub fn connect(stack: &Stack<S>, to: SocketAddr) -> io::Result<Self> {
        Self::connect_with(stack, to, &TcpOptions::default(), None)
    }

    /// The same with options, and within a time.
    ///
    /// # Errors
    /// When it cannot be tried, nobody takes the connection, or it takes too long.
    pub fn connect_with(
        stack: &Stack<S>,
        to: SocketAddr,
        options: &TcpOptions,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let stream = Self::start(stack, to, options)?;
        block_on(timeout, |context| stream.poll_connected(context))?;
        Ok(stream)
    }

    /// Begins to connect; [`TcpStream::poll_connected`] says how it went.
    ///
    /// # Errors
    /// When it cannot be tried.
    pub fn start(stack: &Stack<S>, to: SocketAddr, options: &TcpOptions) -> io::Result<Self> {
        let handle = stack.try_with(|now, host| {
            host.tcp_connect_asking(now, to_stack(to), options.config, options.asked()).map_err(of_connecting)
        })?;
        Ok(Self::new(stack.clone(), handle))
    }

    pub(crate) fn new(stack: Stack<S>, handle: TcpHandle) -> Self {
        TcpStream { socket: Arc::new(Socket { stack, handle, timeouts: Mutex::default() }) }
    }

    /// Whether the other end has answered.
    ///
    /// # Errors
    /// When nobody takes the connection.
    pub fn poll_connected(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, |host, handle| {
            let connection = host.tcp(handle).map_err(of_stale)?;
            match connection.state() {
                State::SynSent | State::SynReceived => Ok(None),
                _ => failure(connection).map_or(Ok(Some(())), Err),
            }
        })
    }

    /// Reads what has arrived. 0: the other end has closed.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn poll_read(&self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(context, |host, handle| {
            let length = host.read(handle, out).map_err(of_stale)?;
            if length > 0 {
                return Ok(Some(length));
            }
            let connection = host.tcp(handle).map_err(of_stale)?;
            match failure(connection) {
                Some(error) => Err(error),
                None if connection.has_ended() || connection.is_closed() => Ok(Some(0)),
                None => Ok(None),
            }
        })
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// When the connection has failed, or was shut down.
    pub fn poll_write(&self, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(context, |host, handle| {
            let length = host.write_secured(Instant::now(), handle, data).map_err(of_writing)?;
            if length > 0 {
                return Ok(Some(length));
            }
            let connection = host.tcp(handle).map_err(of_stale)?;
            match (failure(connection), connection.state()) {
                (Some(error), _) => Err(error),
                (None, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
                    if !connection.is_closed() =>
                {
                    Ok(None)
                }
                _ => Err(ErrorKind::BrokenPipe.into()),
            }
        })
    }

    /// Whether the other end has acknowledged everything, and that nothing more comes: [`TcpStream::shutdown`] before.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn poll_finished(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, |host, handle| {
            let connection = host.tcp(handle).map_err(of_stale)?;
            match (failure(connection), connection.state()) {
                (Some(error), _) => Err(error),
                (None, State::FinWait2 | State::TimeWait | State::Closed) => Ok(Some(())),
                (None, _) => Ok(None),
            }
        })
    }

    /// Writes no more, and waits until the other end has everything: what a program does before it ends, and the stack
    /// with it.
    ///
    /// # Errors
    /// When the connection has failed, or [`ErrorKind::TimedOut`].
    pub fn finish(&self, patience: Duration) -> io::Result<()> {
        self.shutdown(Shutdown::Write)?;
        block_on(Some(patience), |context| self.poll_finished(context))
    }

    /// Writes no more. What arrives can still be read: to refuse it, drop the connection.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match how {
            Shutdown::Read => Ok(()),
            Shutdown::Write | Shutdown::Both => {
                self.with(|_, host, handle| host.close(handle).map_err(of_stale))
            }
        }
    }

    /// Ends the connection at once: the other end gets a reset.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn abort(self) -> io::Result<()> {
        self.with(|_, host, handle| host.abort(handle).map_err(of_stale))
    }

    /// How long a read may wait; `None`: for ever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.socket.timeouts.lock().unwrap_or_else(PoisonError::into_inner).read = timeout;
    }

    /// How long a write may wait; `None`: for ever.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.socket.timeouts.lock().unwrap_or_else(PoisonError::into_inner).write = timeout;
    }

    /// Whether small segments are sent at once (no Nagle's algorithm).
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.with(|_, host, handle| host.set_nagle(handle, !nodelay).map_err(of_stale))
    }

    /// Asks for security for what is sent and received from now on, beside what the system asks for.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn set_levels(&self, levels: Levels) -> io::Result<()> {
        self.with(|_, host, handle| host.tcp_set_levels(handle, levels).map_err(of_stale))
    }

    /// Our end.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(|_, host, handle| Ok(from_stack(host.tcp_ends(handle).map_err(of_stale)?.0)))
    }

    /// The other end.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with(|_, host, handle| Ok(from_stack(host.tcp_ends(handle).map_err(of_stale)?.1)))
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        act: impl FnOnce(&mut Host<S>, TcpHandle) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        let (shared, handle) = (self.socket.stack.shared(), self.socket.handle);
        let mut state = shared.lock();
        if let Some(result) = act(&mut state.host, handle).transpose() {
            shared.wake(&mut state);
            return Poll::Ready(result);
        }
        state.check()?;
        wait(&mut state.waiting.tcp, handle, context.waker());
        Poll::Pending
    }

    fn with<T>(&self, act: impl FnOnce(Instant, &mut Host<S>, TcpHandle) -> io::Result<T>) -> io::Result<T> {
        let handle = self.socket.handle;
        self.socket.stack.try_with(|now, host| act(now, host, handle))
    }

    fn timeouts(&self) -> Timeouts {
        *self.socket.timeouts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failure(connection: &Connection) -> Option<io::Error> {
    connection.error().map(of_connection)
}

impl<S: Security> Read for &TcpStream<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        block_on(self.timeouts().read, |context| self.poll_read(context, out))
    }
}

impl<S: Security> Write for &TcpStream<S> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        block_on(self.timeouts().write, |context| self.poll_write(context, data))
    }

    /// Does nothing: what was written is sent without that.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Security> Read for TcpStream<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl<S: Security> Write for TcpStream<S> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Security> Drop for Socket<S> {
    fn drop(&mut self) {
        let shared = self.stack.shared();
        let mut state = shared.lock();
        // Aborted already: nothing to release.
        let _ = state.host.release(Instant::now(), self.handle);
        let waited = state.waiting.tcp.remove(&self.handle);
        shared.wake(&mut state);
        drop(state);
        state::wake(waited);
    }
}
