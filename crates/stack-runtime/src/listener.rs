//! Listeners.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use stack::host::ListenerHandle;
use stack::security::{NoSecurity, Security};

use crate::blocking::block_on;
use crate::error::{of_listening, of_stale};
use crate::stack_handle::{Stack, from_stack, to_stack};
use crate::state::{self, wait};
use crate::tcp::{TcpOptions, TcpStream};

/// Connections that wait for [`TcpListener::accept`], as in the standard library.
const BACKLOG: usize = 128;

/// A listener, as [`std::net::TcpListener`] is one. Those of `[::]` take IPv4, too.
pub struct TcpListener<S: Security = NoSecurity> {
    stack: Stack<S>,
    handle: ListenerHandle,
    local: SocketAddr,
}

impl<S: Security> TcpListener<S> {
    /// Takes connections to an address and port.
    ///
    /// # Errors
    /// When somebody does so already, or the port is 0.
    pub fn bind(stack: &Stack<S>, local: SocketAddr) -> io::Result<Self> {
        Self::bind_with(stack, local, &TcpOptions::default(), BACKLOG)
    }

    /// The same with options, and with room for so many that wait to be accepted.
    ///
    /// # Errors
    /// When somebody does so already, or the port is 0.
    pub fn bind_with(
        stack: &Stack<S>,
        local: SocketAddr,
        options: &TcpOptions,
        backlog: usize,
    ) -> io::Result<Self> {
        let at = to_stack(local);
        let handle = stack.try_with(|_, host| {
            host.tcp_listen_asking(at, options.config, backlog, options.asked()).map_err(of_listening)
        })?;
        Ok(TcpListener { stack: stack.clone(), handle, local: from_stack(at) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a connection, and who is at its other end.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn accept(&self) -> io::Result<(TcpStream<S>, SocketAddr)> {
        block_on(None, |context| self.poll_accept(context))
    }

    /// The connection that has waited longest.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream<S>, SocketAddr)>> {
        let shared = self.stack.shared();
        let mut state = shared.lock();
        let Some(handle) = state.host.tcp_accept(self.handle).map_err(of_stale)? else {
            state.check()?;
            wait(&mut state.waiting.listeners, self.handle, context.waker());
            return Poll::Pending;
        };
        let (_, remote) = state.host.tcp_ends(handle).map_err(of_stale)?;
        shared.wake(&mut state);
        drop(state);
        Poll::Ready(Ok((TcpStream::new(self.stack.clone(), handle), from_stack(remote))))
    }
}

impl<S: Security> Drop for TcpListener<S> {
    fn drop(&mut self) {
        let shared = self.stack.shared();
        let mut state = shared.lock();
        let _ = state.host.tcp_unlisten(self.handle);
        let waited = state.waiting.listeners.remove(&self.handle);
        shared.wake(&mut state);
        drop(state);
        state::wake(waited);
    }
}
