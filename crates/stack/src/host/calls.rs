//! TCP sockets, as the caller uses them.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::time::Instant;

use ipsec::policy::{self, Levels};
use wire::{ipv6, tcp};

use super::Host;
use super::sockets::{
    Endpoint, Holder, ListenerHandle, Listening, Marks, Socket, Stale, TcpHandle, end, flow, traffic,
};
use crate::security::Security;
use crate::tcp::{Config, Connection, Listener};

/// The longest queue of connections that wait for being accepted. Strangers fill it: each holds 2 KB, and 64 KB of what it
/// has sent at most, as a receive buffer grows only while somebody reads.
pub const MAX_BACKLOG: usize = 1024;
/// Ports for connections (RFC 6056 §3.2).
const EPHEMERAL: (u16, u16) = (49_152, 65_535);

/// Why there is no connection to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// TCP goes to one host and a port that is not 0.
    #[error("no destination for a connection")]
    Destination,
    /// No address of ours can be its source.
    #[error("no source address")]
    NoSource,
    /// All ports are taken by connections to the same destination.
    #[error("no free port")]
    NoPort,
    /// Security forbids it, or there is neither an association nor a daemon to make one: NRL's `EIPSEC`
    /// ([`ipsec::key_engine::EIPSEC`]).
    #[error("security forbids the connection, or is not there")]
    Security,
    /// The host lets no socket past its security.
    #[error("not permitted to bypass security")]
    NotPermitted,
}

/// Why nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The handle has been given up.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Security forbids it, or there is neither an association nor a daemon to make one: NRL's `EIPSEC`. The connection
    /// is still there, and what it lacks may come.
    #[error("security forbids the data, or is not there")]
    Security,
}

/// What a socket asks of security, beside what the system asks of all; by default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// A level for each service. At [`Unique`](ipsec::policy::Level::Unique) each connection has an association of its own.
    pub levels: Levels,
    /// It wants to go past all that, which the host must permit
    /// ([`Interface::permit_bypass`](crate::interface::Interface::permit_bypass)): for key management daemons.
    pub bypasses: bool,
}

/// Why nobody can listen there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Connections come to an address, or any, and to a port that is not 0.
    #[error("nothing to listen at")]
    Local,
    /// Somebody listens there.
    #[error("the address is in use")]
    InUse,
    /// The host lets no socket past its security.
    #[error("not permitted to bypass security")]
    NotPermitted,
}

/// Something has happened to a socket, since this was last said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpEvent {
    /// A connection may have changed its state, have something to read or have room for writing.
    Connection(TcpHandle),
    /// A connection may wait to be accepted.
    Listener(ListenerHandle),
}

impl<S: Security> Host<S> {
    /// Opens a connection, from the address that suits best (RFC 6724) and a port that is hard to guess (RFC 6056).
    /// Whether it comes about shows in its state. Segments are no larger than the path carries, whatever `config` says.
    ///
    /// # Errors
    /// When it cannot even be tried.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        to: SocketAddrV6,
        config: Config,
    ) -> Result<TcpHandle, ConnectError> {
        self.tcp_connect_asking(now, to, config, Asked::default())
    }

    /// As [`Host::tcp_connect`], with more security than the system asks for. If an association has to be made for it, the
    /// SYN waits.
    ///
    /// # Errors
    /// When it cannot even be tried; [`ConnectError::Security`] when there is no such security to be had.
    pub fn tcp_connect_asking(
        &mut self,
        now: Instant,
        to: SocketAddrV6,
        config: Config,
        asked: Asked,
    ) -> Result<TcpHandle, ConnectError> {
        let from = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
        self.tcp_connect_from(now, from, to, config, asked)
    }

    /// As [`Host::tcp_connect_asking`], from an address or a port of the caller's choice (RFC 9293 §3.9.1.1, MUST-43): what is
    /// unspecified, or 0, is chosen.
    ///
    /// # Errors
    /// When it cannot even be tried; [`ConnectError::NoSource`] when the address is not ours, [`ConnectError::NoPort`] when
    /// the port is taken.
    pub fn tcp_connect_from(
        &mut self,
        now: Instant,
        from: SocketAddrV6,
        to: SocketAddrV6,
        config: Config,
        asked: Asked,
    ) -> Result<TcpHandle, ConnectError> {
        if asked.bypasses && !self.interface.permits_bypass() {
            return Err(ConnectError::NotPermitted);
        }
        if to.port() == 0 || to.ip().is_unspecified() || !may_be_one(*to.ip()) {
            return Err(ConnectError::Destination);
        }
        let wanted = Some(*from.ip()).filter(|address| !address.is_unspecified());
        let source = match wanted {
            Some(address) => self.interface.is_ours(address, *to.ip()).then_some(address),
            None => self.interface.source_for(now, *to.ip()),
        };
        let source = source.ok_or(ConnectError::NoSource)?;
        let with_port = |port| flow((source.into(), port), ((*to.ip()).into(), to.port()));
        let (first, last) = if from.port() == 0 { EPHEMERAL } else { (from.port(), from.port()) };
        let sockets = &self.tcp.sockets;
        let port =
            self.tcp.secrets.ephemeral_port(&with_port(0), first, last, &mut self.tcp.counter, |port| {
                let flow = with_port(port);
                flow.local != flow.remote
                    && sockets.find(&flow).is_none()
                    // A port that was asked for may be listened to as well (MUST-42).
                    && (port == from.port() || sockets.listener_at(end(flow.local)).is_none())
            });
        let flow = with_port(port.ok_or(ConnectError::NoPort)?);
        let policy = self.policy(asked);
        let traffic = traffic(&flow);
        self.interface.prepare(now, &traffic, Some(&policy)).map_err(|_| ConnectError::Security)?;
        let largest = self.interface.largest_payload_of(now, &traffic, Some(&policy));
        let connection = Connection::connect(now, &flow, &self.tcp.secrets, &limited(config, largest));
        let (index, handle) =
            self.tcp.add(flow, connection, Holder::User, policy, Marks::of(&config), largest);
        self.tcp.settle(index);
        Ok(handle)
    }

    /// Takes connections to an address of ours, or to any, of both IP versions, if it is `::`. A listener that names the
    /// address goes before one that does not. Up to `backlog` connections wait for [`Host::tcp_accept`].
    ///
    /// # Errors
    /// When somebody does so already, or nobody could.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddrV6,
        config: Config,
        backlog: usize,
    ) -> Result<ListenerHandle, ListenError> {
        self.tcp_listen_asking(local, config, backlog, Asked::default())
    }

    /// As [`Host::tcp_listen`], with more security than the system asks for: what comes with less finds nobody here, and
    /// no answer. Connections that it takes ask for the same.
    ///
    /// # Errors
    /// When somebody does so already, or nobody could.
    pub fn tcp_listen_asking(
        &mut self,
        local: SocketAddrV6,
        config: Config,
        backlog: usize,
        asked: Asked,
    ) -> Result<ListenerHandle, ListenError> {
        if asked.bypasses && !self.interface.permits_bypass() {
            return Err(ListenError::NotPermitted);
        }
        if local.port() == 0 || !may_be_one(*local.ip()) {
            return Err(ListenError::Local);
        }
        if self.tcp.sockets.is_listened_to(local) {
            return Err(ListenError::InUse);
        }
        // What they send to us is limited by our link alone.
        let config = limited(config, self.interface.link_mtu().saturating_sub(ipv6::HEADER_LEN));
        let listening = Listening {
            local,
            listener: Listener::new(config, self.tcp.secrets.clone()),
            policy: self.policy(asked),
            marks: Marks::of(&config),
            backlog: VecDeque::new(),
            limit: backlog.clamp(1, MAX_BACKLOG),
            half_open: 0,
        };
        Ok(self.tcp.sockets.add_listener(listening))
    }

    /// The connection that has waited longest; `None` if none does.
    ///
    /// # Errors
    /// When there is no such listener.
    pub fn tcp_accept(&mut self, listener: ListenerHandle) -> Result<Option<TcpHandle>, Stale> {
        let (_, listening) = self.tcp.sockets.held_listener(listener)?;
        let Some(index) = listening.backlog.pop_front() else { return Ok(None) };
        listening.pause_if_full();
        if let Some(endpoint) = self.tcp.sockets.connection(index) {
            endpoint.holder = Holder::User;
        }
        Ok(self.tcp.sockets.handle(index))
    }

    /// Takes no more connections, and resets those that nobody has accepted.
    ///
    /// # Errors
    /// When there is no such listener.
    pub fn tcp_unlisten(&mut self, listener: ListenerHandle) -> Result<(), Stale> {
        let (index, _) = self.tcp.sockets.held_listener(listener)?;
        self.tcp.agenda.forget(index);
        if let Some(Socket::Listener(listening)) = self.tcp.sockets.remove(index) {
            for waiting in listening.backlog {
                self.tcp.abort(waiting);
            }
        }
        Ok(())
    }

    /// Reads what has arrived; see [`Connection::read`].
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn read(&mut self, handle: TcpHandle, out: &mut [u8]) -> Result<usize, Stale> {
        self.with(handle, |connection| connection.read(out))
    }

    /// Writes to the send buffer; see [`Connection::write`].
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn write(&mut self, handle: TcpHandle, bytes: &[u8]) -> Result<usize, Stale> {
        self.with(handle, |connection| connection.write(bytes))
    }

    /// Writes what is urgent; see [`Connection::write_urgent`].
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn write_urgent(&mut self, handle: TcpHandle, bytes: &[u8]) -> Result<usize, Stale> {
        self.with(handle, |connection| connection.write_urgent(bytes))
    }

    /// As [`Host::write`], if security lets the data leave or can be had. [`Host::write`] leaves that to be seen when it is
    /// sent, and tried again.
    ///
    /// # Errors
    /// When the handle has been given up, or security cannot be had.
    pub fn write_secured(
        &mut self,
        now: Instant,
        handle: TcpHandle,
        bytes: &[u8],
    ) -> Result<usize, WriteError> {
        let endpoint = self.tcp.sockets.held(handle)?;
        self.interface
            .prepare(now, &endpoint.traffic(), Some(&endpoint.policy))
            .map_err(|_| WriteError::Security)?;
        Ok(self.write(handle, bytes)?)
    }

    /// Asks for security for a connection, beside what the system asks for: of what is sent from now on, and what is
    /// taken from now on.
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn tcp_set_levels(&mut self, handle: TcpHandle, levels: Levels) -> Result<(), Stale> {
        let (_, endpoint) = self.tcp.sockets.held_mut(handle)?;
        endpoint.policy.levels = levels;
        Ok(())
    }

    /// Nothing more will be written; what arrives can still be read. See [`Connection::close`].
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn close(&mut self, handle: TcpHandle) -> Result<(), Stale> {
        self.with(handle, Connection::close)
    }

    /// Gives a connection up, which closes and ends by itself: what was written is still sent, what arrives is refused. See
    /// [`Connection::abandon`].
    ///
    /// # Errors
    /// When the handle has been given up already.
    pub fn release(&mut self, now: Instant, handle: TcpHandle) -> Result<(), Stale> {
        let (index, _) = self.tcp.sockets.held_mut(handle)?;
        self.tcp.let_go(now, index);
        Ok(())
    }

    /// Gives a connection up and ends it at once, with a RST. See [`Connection::abort`].
    ///
    /// # Errors
    /// When the handle has been given up already.
    pub fn abort(&mut self, handle: TcpHandle) -> Result<(), Stale> {
        let (index, _) = self.tcp.sockets.held_mut(handle)?;
        self.tcp.abort(index);
        Ok(())
    }

    /// Whether small segments wait (RFC 896).
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn set_nagle(&mut self, handle: TcpHandle, nagle: bool) -> Result<(), Stale> {
        self.with(handle, |connection| connection.set_nagle(nagle))
    }

    /// The Differentiated Services codepoint of what is sent from now on, six bits (RFC 9293 §3.9.1.9, SHLD-21).
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn tcp_set_dscp(&mut self, handle: TcpHandle, dscp: u8) -> Result<(), Stale> {
        let (_, endpoint) = self.tcp.sockets.held_mut(handle)?;
        endpoint.marks.dscp = dscp;
        Ok(())
    }

    /// A connection, for its state, its error, and what can be read and written.
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn tcp(&self, handle: TcpHandle) -> Result<&Connection, Stale> {
        Ok(&self.tcp.sockets.held(handle)?.connection)
    }

    /// Our end of a connection, and theirs.
    ///
    /// # Errors
    /// When the handle has been given up.
    pub fn tcp_ends(&self, handle: TcpHandle) -> Result<(SocketAddrV6, SocketAddrV6), Stale> {
        let Endpoint { flow, .. } = self.tcp.sockets.held(handle)?;
        Ok((end(flow.local), end(flow.remote)))
    }

    /// All connections, also those that nobody holds any longer: our end, theirs, and the connection.
    pub fn connections(&self) -> impl Iterator<Item = (SocketAddrV6, SocketAddrV6, &Connection)> + '_ {
        self.tcp.sockets.iter().filter_map(|socket| match socket {
            Socket::Connection(known) => {
                Some((end(known.flow.local), end(known.flow.remote), &known.connection))
            }
            Socket::Listener(_) => None,
        })
    }

    /// Where is listened, and how many connections wait to be accepted there.
    pub fn listeners(&self) -> impl Iterator<Item = (SocketAddrV6, usize)> + '_ {
        self.tcp.sockets.iter().filter_map(|socket| match socket {
            Socket::Listener(listening) => Some((listening.local, listening.backlog.len())),
            Socket::Connection(_) => None,
        })
    }

    /// The next socket that something has happened to, other than by its caller. A connection that has just been accepted
    /// is to be looked at without that.
    pub fn poll_tcp(&mut self) -> Option<TcpEvent> {
        loop {
            let index = self.tcp.agenda.next_changed()?;
            match self.tcp.sockets.get(index) {
                Some(Socket::Connection(endpoint)) if endpoint.holder == Holder::User => {
                    return self.tcp.sockets.handle(index).map(TcpEvent::Connection);
                }
                Some(Socket::Listener(_)) => {
                    return self.tcp.sockets.listener_handle(index).map(TcpEvent::Listener);
                }
                _ => {}
            }
        }
    }

    fn policy(&mut self, asked: Asked) -> policy::Socket {
        policy::Socket { id: self.tcp.number(), levels: asked.levels, bypasses: asked.bypasses }
    }

    /// Whatever the user does, something may have to be sent.
    fn with<T>(&mut self, handle: TcpHandle, act: impl FnOnce(&mut Connection) -> T) -> Result<T, Stale> {
        let (index, endpoint) = self.tcp.sockets.held_mut(handle)?;
        let result = act(&mut endpoint.connection);
        self.tcp.agenda.ready(index);
        self.tcp.settle(index);
        Ok(result)
    }
}

/// Whether one host may have the address, or, of IPv6, it is the unspecified one.
fn may_be_one(address: Ipv6Addr) -> bool {
    let many = |v4: Ipv4Addr| v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified();
    !address.is_multicast() && !address.to_ipv4_mapped().is_some_and(many)
}

/// No segments larger than that, TCP header included.
fn limited(config: Config, largest: usize) -> Config {
    let most = u16::try_from(largest.saturating_sub(tcp::HEADER_LEN)).unwrap_or(u16::MAX);
    Config { max_segment_size: config.max_segment_size.min(most), ..config }
}
