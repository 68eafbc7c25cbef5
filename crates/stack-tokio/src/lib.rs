//! Tokio's traits for the sockets of [`stack_runtime`]: what speaks through a [`tokio::net::TcpStream`] speaks through a host
//! of one's own as well, with IPsec if it has some.
//!
//! A [`Stack`](stack_runtime::Stack) has a thread that drives it, and wakes the tasks that wait: nothing here needs a
//! feature of tokio's, and any executor does.
//!
//! ```
//! use std::time::Duration;
//!
//! use stack_runtime::device::pair;
//! use stack_runtime::{Options, Stack};
//! use stack_tokio::{TcpListener, TcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let (a, b) = pair(1500)?;
//! let a = Stack::start(a, Options::new("a"))?;
//! let b = Stack::start(b, Options::new("b"))?;
//! let address = b.wait_for_address(Duration::from_secs(10))?;
//! a.wait_for_address(Duration::from_secs(10))?;
//!
//! let listener = TcpListener::bind(&b, "[::]:80".parse().unwrap())?;
//! let client = TcpStream::connect(&a, (address, 80).into());
//! let (client, accepted) = tokio::join!(client, listener.accept());
//! let (mut client, (mut server, _)) = (client?, accepted?);
//! client.write_all(b"question").await?;
//! client.shutdown().await?;
//! let mut question = Vec::new();
//! server.read_to_end(&mut question).await?;
//! assert_eq!(question, b"question");
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - Nothing blocks, but for the lock of a stack, which is held for a batch of packets at most.
//! - A future that is dropped leaves nothing behind: [`TcpStream::connect`] then gives the connection up.

#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ipsec::policy::Levels;
use stack::security::{NoSecurity, Security};
use stack_runtime::{Stack, TcpOptions};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection, as [`tokio::net::TcpStream`] is one. `tokio::io::split` gives each half to a task.
pub struct TcpStream<S: Security = NoSecurity> {
    inner: stack_runtime::TcpStream<S>,
}

impl<S: Security> TcpStream<S> {
    /// Connects, and waits until the other end has answered.
    ///
    /// # Errors
    /// When it cannot be tried, or nobody takes the connection.
    pub async fn connect(stack: &Stack<S>, to: SocketAddr) -> io::Result<Self> {
        Self::connect_with(stack, to, &TcpOptions::default()).await
    }

    /// The same with options: buffers, timeouts, levels of security.
    ///
    /// # Errors
    /// When it cannot be tried, or nobody takes the connection; [`stack_runtime::is_security`] tells whether security is why.
    pub async fn connect_with(stack: &Stack<S>, to: SocketAddr, options: &TcpOptions) -> io::Result<Self> {
        let inner = stack_runtime::TcpStream::start(stack, to, options)?;
        poll_fn(|context| inner.poll_connected(context)).await?;
        Ok(Self { inner })
    }

    /// Writes no more, and waits until the other end has everything: what a program does before it ends, and the stack
    /// with it.
    ///
    /// # Errors
    /// When the connection has failed.
    pub async fn finish(&self) -> io::Result<()> {
        self.inner.shutdown(Shutdown::Write)?;
        poll_fn(|context| self.inner.poll_finished(context)).await
    }

    /// Asks for security for what is sent and received from now on, beside what the system asks for.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn set_levels(&self, levels: Levels) -> io::Result<()> {
        self.inner.set_levels(levels)
    }

    /// Whether small segments are sent at once (no Nagle's algorithm).
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.set_nodelay(nodelay)
    }

    /// Our end.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The other end.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }
}

impl<S: Security> From<stack_runtime::TcpStream<S>> for TcpStream<S> {
    fn from(inner: stack_runtime::TcpStream<S>) -> Self {
        Self { inner }
    }
}

impl<S: Security> AsyncRead for TcpStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = ready!(self.inner.poll_read(context, out.initialize_unfilled()))?;
        out.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: Security> AsyncWrite for TcpStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.inner.poll_write(context, data)
    }

    /// Does nothing: what was written is sent without that.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.inner.shutdown(Shutdown::Write))
    }
}

/// A listener, as [`tokio::net::TcpListener`] is one. Those of `[::]` take IPv4, too.
pub struct TcpListener<S: Security = NoSecurity> {
    inner: stack_runtime::TcpListener<S>,
}

impl<S: Security> TcpListener<S> {
    /// Takes connections to an address and port.
    ///
    /// # Errors
    /// When somebody does so already, or the port is 0.
    pub fn bind(stack: &Stack<S>, local: SocketAddr) -> io::Result<Self> {
        Ok(Self { inner: stack_runtime::TcpListener::bind(stack, local)? })
    }

    /// Waits for a connection, and who is at its other end.
    ///
    /// # Errors
    /// When the stack has ended.
    pub async fn accept(&self) -> io::Result<(TcpStream<S>, SocketAddr)> {
        let (inner, from) = poll_fn(|context| self.inner.poll_accept(context)).await?;
        Ok((TcpStream { inner }, from))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }
}

impl<S: Security> From<stack_runtime::TcpListener<S>> for TcpListener<S> {
    fn from(inner: stack_runtime::TcpListener<S>) -> Self {
        Self { inner }
    }
}
