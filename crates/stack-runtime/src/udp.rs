//! Datagrams.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ipsec::policy::Levels;
use stack::interface::Interface;
use stack::security::{NoSecurity, Security};
use stack::udp::SocketId;

use crate::blocking::block_on;
use crate::error::{of_icmp, of_socket, of_udp};
use crate::stack_handle::{Stack, from_stack, to_stack};
use crate::state::{self, wait};

/// A socket, as [`std::net::UdpSocket`] is one. Those of `[::]` take IPv4, too.
pub struct UdpSocket<S: Security = NoSecurity> {
    stack: Stack<S>,
    id: SocketId,
    read_timeout: Mutex<Option<Duration>>,
}

impl<S: Security> UdpSocket<S> {
    /// Opens a socket; port 0 is any that is free.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(stack: &Stack<S>, local: SocketAddr) -> io::Result<Self> {
        let id =
            stack.try_with(|_, host| host.interface_mut().udp_bind(to_stack(local)).map_err(of_socket))?;
        Ok(UdpSocket { stack: stack.clone(), id, read_timeout: Mutex::default() })
    }

    /// From now on only what comes from there is taken, and [`UdpSocket::send`] sends there.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.with(|_, interface, id| interface.udp_connect(id, to_stack(to)).map_err(of_socket))
    }

    /// Asks for security for what it sends and receives from now on, beside what the system asks for.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn set_levels(&self, levels: Levels) -> io::Result<()> {
        self.with(|_, interface, id| interface.udp_set_levels(id, levels).map_err(of_socket))
    }

    /// Sends to where it is connected.
    ///
    /// # Errors
    /// When it cannot be sent, or what was sent before has met an error.
    pub fn send(&self, data: &[u8]) -> io::Result<()> {
        self.transmit(None, data)
    }

    /// Sends to somebody.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        self.transmit(Some(to), data)
    }

    /// Waits for a datagram, which is put in place of what is in `out`, and who has sent it.
    ///
    /// # Errors
    /// When what was sent has met an error, by ICMP; after the timeout.
    pub fn receive(&self, out: &mut Vec<u8>) -> io::Result<SocketAddr> {
        let timeout = *self.read_timeout.lock().unwrap_or_else(PoisonError::into_inner);
        block_on(timeout, |context| self.poll_receive(context, out))
    }

    /// The same; what does not fit is lost.
    ///
    /// # Errors
    /// As those of [`UdpSocket::receive`].
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut data = Vec::new();
        let from = self.receive(&mut data)?;
        let length = data.len().min(out.len());
        out[..length].copy_from_slice(&data[..length]);
        Ok((length, from))
    }

    /// The next datagram, which is put in place of what is in `out`, and who has sent it.
    ///
    /// # Errors
    /// As those of [`UdpSocket::receive`].
    pub fn poll_receive(&self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<SocketAddr>> {
        let mut state = self.stack.shared().lock();
        let interface = state.host.interface_mut();
        if let Some(metadata) = interface.udp_receive(self.id, out) {
            return Poll::Ready(Ok(from_stack(metadata.from)));
        }
        if let Some((kind, _)) = interface.udp_error(self.id) {
            return Poll::Ready(Err(of_icmp(kind)));
        }
        state.check()?;
        wait(&mut state.waiting.udp, self.id, context.waker());
        Poll::Pending
    }

    /// How long a read may wait; `None`: for ever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        *self.read_timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Its address and port.
    ///
    /// # Errors
    /// When the stack has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(|_, interface, id| {
            interface.udp_local(id).map(from_stack).ok_or_else(|| io::ErrorKind::NotConnected.into())
        })
    }

    fn transmit(&self, to: Option<SocketAddr>, data: &[u8]) -> io::Result<()> {
        self.with(|now, interface, id| interface.udp_send(now, id, to.map(to_stack), data).map_err(of_udp))
    }

    fn with<T>(
        &self,
        act: impl FnOnce(Instant, &mut Interface<S>, SocketId) -> io::Result<T>,
    ) -> io::Result<T> {
        self.stack.try_with(|now, host| act(now, host.interface_mut(), self.id))
    }
}

impl<S: Security> Drop for UdpSocket<S> {
    fn drop(&mut self) {
        let shared = self.stack.shared();
        let mut state = shared.lock();
        state.host.interface_mut().udp_close(self.id);
        let waited = state.waiting.udp.remove(&self.id);
        drop(state);
        state::wake(waited);
    }
}
