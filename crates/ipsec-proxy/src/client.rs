//! One client: what it asks for, and the two directions of its connection once there is one.
//!
//! Nothing here waits. A client is advanced whenever its socket, its connection in the tunnel, its lookup or the clock has
//! news; it goes as far as it can. What one side does not take stays unread at the other: at most [`CHUNK`] bytes each way
//! are kept here, beside the buffers of the two connections.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use linux::event::Interest;
use linux::owner::{Owners, User};
use stack::host::{ConnectError, Host, TcpHandle};
use stack::tcp::{Config, Error, KeepAlive, State};

use crate::asking::{self, Speaks, Step, Understood, Wish, Words};
use crate::association::{Around, Association, Who};
use crate::dns::Kind;
use crate::http_connect::{self, Refusal};
use crate::passwords::Passwords;
use crate::resolver::{Found, LookupError, LookupId, Resolver, as_ipv6};
use crate::socks5::{self, Reply};
use crate::stream::Stream;
use crate::target::Destination;

/// What is read at once, and kept of what the other side does not take.
pub(crate) const CHUNK: usize = 16 << 10;
/// How long a client may take to say what it wants.
const ASKING: Duration = Duration::from_secs(10);
/// How long it waits for a tunnel.
const WAITING: Duration = Duration::from_secs(20);
/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(30);
/// How long a client waits that has said a wrong password: whoever tries them has to have patience.
const PENANCE: Duration = Duration::from_secs(1);
/// How long a client that is refused may take to read why.
const ENDING: Duration = Duration::from_secs(2);
/// Connections in the tunnel: what they keep for a side that is slow, at most, and when one is dead whose other end is gone.
const TUNNEL_TCP: Config = Config {
    max_receive_buffer: 512 << 10,
    max_send_buffer: 512 << 10,
    nagle: false,
    keepalive: Some(KeepAlive {
        idle: Duration::from_secs(300),
        interval: Duration::from_secs(30),
        probes: 6,
    }),
    ..Config::new(u16::MAX)
};

/// One client.
pub(crate) struct Client {
    stream: Stream,
    speaks: Speaks,
    /// The user whose connection it is, if that is known.
    owner: Option<User>,
    stage: Stage,
    /// When the stage has taken too long.
    pub(crate) deadline: Option<Instant>,
    from_client: Vec<u8>,
    to_client: Vec<u8>,
    client_has_ended: bool,
}

enum Stage {
    Asking(Step),
    /// It has said a wrong password, and is told so in a while.
    Held,
    Waiting(Wish),
    Resolving {
        port: u16,
    },
    Connecting(Connecting),
    Relaying {
        handle: TcpHandle,
        has_closed: bool,
        has_shut: bool,
    },
    /// Datagrams are carried, as long as its connection lasts.
    Associated(Box<Association>),
    /// What is to be said is being said; then the client is hung up on.
    Ending {
        has_shut: bool,
    },
}

struct Connecting {
    addresses: VecDeque<IpAddr>,
    port: u16,
    handle: Option<TcpHandle>,
    failure: Failure,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    NoTunnel,
    Forbidden,
    NotFound,
    Unreachable,
    Refused,
    TimedOut,
    Busy,
}

/// What a client works with.
pub(crate) struct Surroundings<'a> {
    pub(crate) host: &'a mut Host,
    pub(crate) resolver: &'a mut Resolver,
    pub(crate) by_handle: &'a mut HashMap<TcpHandle, usize>,
    /// Without, whose a connection is cannot be told.
    pub(crate) owners: Option<&'a mut Owners>,
    /// What clients have to say, where they have to.
    pub(crate) passwords: Option<&'a Passwords>,
    /// Whether there is room for one more association.
    pub(crate) may_associate: bool,
    pub(crate) scratch: &'a mut [u8],
    /// Kinds of addresses that the tunnel has, the better first; none: there is no tunnel.
    pub(crate) kinds: &'a [Kind],
    pub(crate) slot: usize,
    pub(crate) now: Instant,
}

/// Whether a client goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    GoesOn,
    Over,
}

impl Client {
    pub(crate) fn new(stream: Stream, speaks: Speaks, owner: Option<User>, now: Instant) -> Self {
        let (stage, time) = match &speaks {
            Speaks::Nothing(target) => (Stage::Waiting(Wish::Connection(target.clone())), WAITING),
            Speaks::Socks | Speaks::Http => (Stage::Asking(Step::Greeting), ASKING),
        };
        Self {
            stream,
            speaks,
            owner,
            stage,
            deadline: Some(now + time),
            from_client: Vec::new(),
            to_client: Vec::new(),
            client_has_ended: false,
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Its datagrams, if it has any.
    pub(crate) fn association(&self) -> Option<&Association> {
        match &self.stage {
            Stage::Associated(association) => Some(association),
            _ => None,
        }
    }

    /// Datagrams have come, from it or for it.
    pub(crate) fn carry_datagrams(&mut self, around: &mut Surroundings<'_>) {
        if let Stage::Associated(association) = &mut self.stage {
            association.outward(&mut of(around));
            association.inward(&mut of(around));
        }
    }

    /// What of the socket it waits for.
    pub(crate) fn interest(&self, host: &Host) -> Interest {
        if matches!(self.stage, Stage::Held) {
            return Interest::None;
        }
        let reads = match &self.stage {
            Stage::Asking(_) | Stage::Associated(_) | Stage::Ending { has_shut: true } => true,
            Stage::Relaying { handle, .. } => {
                !self.client_has_ended
                    && self.from_client.is_empty()
                    && host.tcp(*handle).is_ok_and(stack::tcp::Connection::is_writable)
            }
            _ => false,
        };
        match (reads, !self.to_client.is_empty()) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Readable,
            (false, true) => Interest::Writable,
            (false, false) => Interest::None,
        }
    }

    /// Goes as far as it can.
    pub(crate) fn advance(&mut self, around: &mut Surroundings<'_>) -> Outcome {
        if self.deadline.is_some_and(|deadline| deadline <= around.now) {
            match self.stage {
                Stage::Waiting(_) => self.refuse(Failure::NoTunnel, around),
                Stage::Resolving { .. } | Stage::Connecting(_) => self.refuse(Failure::TimedOut, around),
                Stage::Held => self.hang_up(around.now),
                Stage::Asking(_) | Stage::Ending { .. } | Stage::Relaying { .. } | Stage::Associated(_) => {
                    return Outcome::Over;
                }
            }
        }
        loop {
            let goes_further = match &mut self.stage {
                Stage::Asking(step) => {
                    let step = *step;
                    self.ask(step, around)
                }
                Stage::Waiting(_) => self.find(around),
                Stage::Resolving { .. } | Stage::Held => Ok(false),
                Stage::Associated(_) => self.attend(around),
                Stage::Connecting(_) => self.connect(around),
                Stage::Relaying { .. } => self.relay(around),
                Stage::Ending { .. } => self.end(around),
            };
            match goes_further {
                Ok(true) => {}
                Ok(false) => return Outcome::GoesOn,
                Err(Over) => return Outcome::Over,
            }
        }
    }

    /// Its lookup has ended.
    pub(crate) fn resolved(&mut self, found: Found, around: &mut Surroundings<'_>) {
        if let Stage::Associated(association) = &mut self.stage {
            return association.resolved(found, &mut of(around));
        }
        let Stage::Resolving { port } = self.stage else { return };
        match found {
            Ok(addresses) => self.begin(addresses.into(), port, around.now),
            Err(LookupError::NotFound) => self.refuse(Failure::NotFound, around),
            Err(LookupError::TimedOut) => self.refuse(Failure::TimedOut, around),
            Err(LookupError::Unavailable) => self.refuse(Failure::Busy, around),
        }
    }

    /// Gives back what it holds in the tunnel. A connection that is not over is reset, at both ends.
    pub(crate) fn give_up(&mut self, around: &mut Surroundings<'_>) {
        let handle = match &mut self.stage {
            Stage::Associated(association) => {
                association.close(&mut of(around));
                None
            }
            Stage::Resolving { .. } => {
                around.resolver.cancel(around.host, LookupId(around.slot as u64));
                None
            }
            Stage::Connecting(connecting) => connecting.handle,
            Stage::Relaying { handle, .. } => Some(*handle),
            Stage::Asking(_) | Stage::Held | Stage::Waiting(_) | Stage::Ending { .. } => None,
        };
        if let Some(handle) = handle {
            let _ = around.host.abort(handle);
            around.by_handle.remove(&handle);
            self.stream.reset_on_close();
        }
    }

    fn ask(&mut self, step: Step, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        let has_more = self.read_request(around)?;
        let most = if self.speaks == Speaks::Http { http_connect::MAX_HEAD } else { socks5::MAX_MESSAGE };
        let words = Words { said: &mut self.from_client, answer: &mut self.to_client };
        let understood = asking::hear(&self.speaks, step, words, around.passwords).map_err(|_| Over)?;
        match understood {
            Understood::Step(step) => {
                self.stage = Stage::Asking(step);
                self.flush()?;
                Ok(true)
            }
            Understood::Wish(wish) => {
                self.deadline = Some(around.now + WAITING);
                self.stage = Stage::Waiting(wish);
                Ok(true)
            }
            Understood::Partly if self.client_has_ended || self.from_client.len() > most => Err(Over),
            Understood::Partly => {
                self.flush()?;
                Ok(has_more)
            }
            Understood::Refused => {
                self.hang_up(around.now);
                Ok(true)
            }
            Understood::WrongPassword => {
                self.deadline = Some(around.now + PENANCE);
                self.stage = Stage::Held;
                Ok(true)
            }
        }
    }

    /// Returns whether there may be more to read.
    fn read_request(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        match (&self.stream).read(around.scratch) {
            Ok(0) => self.client_has_ended = true,
            Ok(length) => {
                self.from_client.extend_from_slice(&around.scratch[..length]);
                return Ok(true);
            }
            Err(error) if is_for_later(&error) => {}
            Err(_) => return Err(Over),
        }
        Ok(false)
    }

    /// Finds out where the target is, when there is a tunnel.
    fn find(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        let Stage::Waiting(wish) = &self.stage else { return Ok(true) };
        if around.kinds.is_empty() {
            return Ok(false);
        }
        let target = match wish {
            Wish::Connection(target) => target,
            Wish::Datagrams(port) => {
                let port = *port;
                self.associate(port, around);
                return Ok(true);
            }
        };
        let port = target.port;
        match target.host.clone() {
            Destination::Address(address) => self.begin([address].into(), port, around.now),
            Destination::Name(name) => {
                let id = LookupId(around.slot as u64);
                match around.resolver.ask(around.now, around.host, id, name, around.kinds) {
                    Ok(()) => {
                        self.deadline = None;
                        self.stage = Stage::Resolving { port };
                    }
                    Err(_) => self.refuse(Failure::Busy, around),
                }
            }
        }
        Ok(true)
    }

    fn associate(&mut self, port: Option<u16>, around: &mut Surroundings<'_>) {
        let (here, ip) = self.stream.addresses();
        let who = Who { ip, port, owner: self.owner };
        let opened = around.may_associate.then(|| Association::open(here, who, around.host));
        let opened = opened.and_then(|opened| {
            let association = opened.inspect_err(|error| tracing::debug!("{error}")).ok()?;
            Some((association.relay().ok()?, association))
        });
        let Some((relay, association)) = opened else { return self.refuse(Failure::Busy, around) };
        self.to_client.extend(Reply::associated(relay));
        self.deadline = None;
        self.stage = Stage::Associated(Box::new(association));
    }

    /// Its connection says nothing more but that it lasts.
    fn attend(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        self.flush()?;
        match (&self.stream).read(around.scratch) {
            Ok(0) => Err(Over),
            Ok(_) => Ok(true),
            Err(error) if is_for_later(&error) => Ok(false),
            Err(_) => Err(Over),
        }
    }

    fn begin(&mut self, addresses: VecDeque<IpAddr>, port: u16, now: Instant) {
        self.deadline = Some(now + CONNECTING);
        let failure = Failure::Unreachable;
        self.stage = Stage::Connecting(Connecting { addresses, port, handle: None, failure });
    }

    /// Tries one address after the other.
    fn connect(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        let Stage::Connecting(connecting) = &mut self.stage else { return Ok(true) };
        if let Some(handle) = connecting.handle {
            let Ok(connection) = around.host.tcp(handle) else { return Err(Over) };
            match connection.state() {
                State::SynSent | State::SynReceived => return Ok(false),
                State::Closed => {
                    connecting.failure = match connection.error() {
                        Some(Error::Refused | Error::Reset) => Failure::Refused,
                        Some(Error::Security) => Failure::Forbidden,
                        Some(Error::TimedOut) => Failure::TimedOut,
                        _ => Failure::Unreachable,
                    };
                    let _ = around.host.abort(handle);
                    around.by_handle.remove(&handle);
                    connecting.handle = None;
                }
                _ => {
                    match self.speaks {
                        Speaks::Socks => self.to_client.extend_from_slice(&Reply::Succeeded.message()),
                        Speaks::Http => self.to_client.extend_from_slice(http_connect::ESTABLISHED),
                        Speaks::Nothing(_) => {}
                    }
                    self.deadline = None;
                    self.stage = Stage::Relaying { handle, has_closed: false, has_shut: false };
                    return Ok(true);
                }
            }
        }
        let Some(address) = connecting.addresses.pop_front() else {
            let failure = connecting.failure;
            self.refuse(failure, around);
            return Ok(true);
        };
        let to = SocketAddrV6::new(as_ipv6(address), connecting.port, 0, 0);
        match around.host.tcp_connect(around.now, to, TUNNEL_TCP) {
            Ok(handle) => {
                around.by_handle.insert(handle, around.slot);
                connecting.handle = Some(handle);
            }
            Err(ConnectError::Security | ConnectError::NotPermitted) => {
                connecting.failure = Failure::Forbidden;
            }
            Err(ConnectError::NoPort) => connecting.failure = Failure::Busy,
            Err(ConnectError::Destination | ConnectError::NoSource) => {
                connecting.failure = Failure::Unreachable;
            }
        }
        Ok(true)
    }

    fn relay(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        let Stage::Relaying { handle, mut has_closed, mut has_shut } = self.stage else { return Ok(true) };
        let host = &mut *around.host;
        self.relay_inward(host, handle, around.scratch)?;
        if self.client_has_ended && self.from_client.is_empty() && !has_closed {
            host.close(handle).map_err(|_| Over)?;
            has_closed = true;
        }
        self.relay_outward(host, handle, around.scratch)?;
        let connection = host.tcp(handle).map_err(|_| Over)?;
        if connection.has_ended() && self.to_client.is_empty() && !has_shut {
            let _ = self.stream.shutdown_write();
            has_shut = true;
        }
        self.stage = Stage::Relaying { handle, has_closed, has_shut };
        if has_closed && has_shut {
            let _ = host.release(around.now, handle);
            around.by_handle.remove(&handle);
            self.stage = Stage::Ending { has_shut: true };
            return Err(Over);
        }
        if connection.error().is_some() && connection.readable() == 0 && self.to_client.is_empty() {
            return Err(Over);
        }
        Ok(false)
    }

    /// From the client into the tunnel.
    fn relay_inward(&mut self, host: &mut Host, handle: TcpHandle, scratch: &mut [u8]) -> Result<(), Over> {
        loop {
            if !self.from_client.is_empty() {
                let written = host.write(handle, &self.from_client).map_err(|_| Over)?;
                self.from_client.drain(..written);
            }
            let has_room = host.tcp(handle).is_ok_and(stack::tcp::Connection::is_writable);
            if !self.from_client.is_empty() || self.client_has_ended || !has_room {
                return Ok(());
            }
            match (&self.stream).read(scratch) {
                Ok(0) => self.client_has_ended = true,
                Ok(length) => {
                    let written = host.write(handle, &scratch[..length]).map_err(|_| Over)?;
                    self.from_client.extend_from_slice(&scratch[written..length]);
                }
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(_) => return Err(Over),
            }
        }
    }

    /// Out of the tunnel to the client.
    fn relay_outward(&mut self, host: &mut Host, handle: TcpHandle, scratch: &mut [u8]) -> Result<(), Over> {
        loop {
            self.flush()?;
            if !self.to_client.is_empty() {
                return Ok(());
            }
            let length = host.read(handle, scratch).map_err(|_| Over)?;
            if length == 0 {
                return Ok(());
            }
            let written = match (&self.stream).write(&scratch[..length]) {
                Ok(written) => written,
                Err(error) if is_for_later(&error) => 0,
                Err(_) => return Err(Over),
            };
            self.to_client.extend_from_slice(&scratch[written..length]);
        }
    }

    /// Says what is to be said, as far as the client takes it.
    fn flush(&mut self) -> Result<(), Over> {
        while !self.to_client.is_empty() {
            match (&self.stream).write(&self.to_client) {
                Ok(written) => drop(self.to_client.drain(..written)),
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(_) => return Err(Over),
            }
        }
        // What a burst has needed is not kept by a thousand clients.
        if self.to_client.capacity() > 0 && !matches!(self.stage, Stage::Asking(_)) {
            self.to_client = Vec::new();
        }
        Ok(())
    }

    /// The client hears why, if it speaks something that has words for it; one that does not sees a reset.
    fn refuse(&mut self, failure: Failure, around: &mut Surroundings<'_>) {
        self.give_up_quietly(around);
        match self.speaks {
            Speaks::Socks => self.to_client.extend_from_slice(&failure.reply().message()),
            Speaks::Http => self.to_client.extend_from_slice(failure.refusal().message()),
            Speaks::Nothing(_) => self.stream.reset_on_close(),
        }
        self.hang_up(around.now);
    }

    fn give_up_quietly(&mut self, around: &mut Surroundings<'_>) {
        if let Stage::Connecting(Connecting { handle: Some(handle), .. }) = self.stage {
            let _ = around.host.abort(handle);
            around.by_handle.remove(&handle);
        }
    }

    fn hang_up(&mut self, now: Instant) {
        self.deadline = Some(now + ENDING);
        self.stage = Stage::Ending { has_shut: false };
    }

    /// What the client still says is read and forgotten: a RST for it could overtake the answer.
    fn end(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Over> {
        self.flush()?;
        if !self.to_client.is_empty() {
            return Ok(false);
        }
        if matches!(self.speaks, Speaks::Nothing(_)) {
            return Err(Over);
        }
        if matches!(self.stage, Stage::Ending { has_shut: false }) {
            self.stream.shutdown_write().map_err(|_| Over)?;
            self.stage = Stage::Ending { has_shut: true };
        }
        match (&self.stream).read(around.scratch) {
            Ok(0) => Err(Over),
            Ok(_) => Ok(true),
            Err(error) if is_for_later(&error) => Ok(false),
            Err(_) => Err(Over),
        }
    }
}

/// The client is to be forgotten.
struct Over;

/// What its association works with.
fn of<'a>(around: &'a mut Surroundings<'_>) -> Around<'a> {
    Around {
        host: around.host,
        resolver: around.resolver,
        owners: around.owners.as_deref_mut(),
        scratch: around.scratch,
        kinds: around.kinds,
        lookup: LookupId(around.slot as u64),
        now: around.now,
    }
}

impl Failure {
    const fn reply(self) -> Reply {
        match self {
            Self::NoTunnel => Reply::NetworkUnreachable,
            Self::Forbidden => Reply::NotAllowed,
            Self::NotFound | Self::Unreachable => Reply::HostUnreachable,
            Self::Refused => Reply::Refused,
            Self::TimedOut => Reply::TimedOut,
            Self::Busy => Reply::Failure,
        }
    }

    const fn refusal(self) -> Refusal {
        match self {
            Self::NoTunnel | Self::Busy => Refusal::Unavailable,
            Self::Forbidden | Self::NotFound | Self::Unreachable | Self::Refused => Refusal::BadGateway,
            Self::TimedOut => Refusal::GatewayTimeout,
        }
    }
}

fn is_for_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
