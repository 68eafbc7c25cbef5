//! The socket for key management daemons and `sidestep key`: PF_KEY messages over a Unix socket that keeps them apart.
//!
//! Who may connect is decided by the file's mode, 0600, alone. The socket lives in a main loop that another module owns: it
//! adds its descriptors to that loop's [`Poller`], under [`KeySocket::TOKENS`] numbers from the first that it is given, and
//! is handed the [events](linux::event::Event) that it [owns](KeySocket::owns).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (mut engine, mut policies) = (ipsec::key_engine::KeyEngine::new(), ipsec::policy::PolicyDatabase::new());
//! use ipsec_runtime::key_socket::{KeySocket, clock};
//!
//! let poller = linux::event::Poller::new()?;
//! let mut keys = KeySocket::open("/run/sidestep/home.key".as_ref(), &poller, 1000)?;
//! let mut events = linux::event::Events::with_capacity(64);
//! loop {
//!     poller.wait(&mut events, None)?;
//!     for event in events.iter().filter(|event| KeySocket::owns(1000, event.token)) {
//!         keys.handle(&poller, event, &mut engine, &mut policies, clock());
//!     }
//!     while let Some(event) = engine.next_event() {
//!         keys.tell(&poller, &event, &mut engine, clock());
//!     }
//! }
//! # }
//! ```
//!
//! A daemon whose answers wait is not read from until it has taken them; one that has missed messages because it does not
//! read is cut off.

use std::path::Path;
use std::time::{Instant, SystemTime};

use ipsec::key_engine::{self, KeyEngine};
use ipsec::pf_key::message::MAX_MESSAGE;
use ipsec::pf_key::{Clock, MAX_SOCKETS, PfKey};
use ipsec::policy::PolicyDatabase;
use ipsec::request::DaemonId;
use linux::event::{Event, Interest, Poller};
use linux::seqpacket::{Connection, Listener};

/// Daemons of this socket have numbers from here on; lower ones are for those inside the program.
const FIRST_DAEMON: u64 = 1 << 32;

/// The listening socket, and those who have connected.
#[derive(Debug)]
pub struct KeySocket {
    listener: Listener,
    first_token: u64,
    daemons: Vec<Option<Daemon>>,
    pf_key: PfKey,
    next_daemon: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Daemon {
    id: DaemonId,
    connection: Connection,
    /// It is to take what it has asked for, before it may ask for more.
    is_blocked: bool,
}

impl KeySocket {
    /// How many tokens of the poller it needs.
    pub const TOKENS: u64 = 1 + MAX_SOCKETS as u64;

    /// Listens at `path`. Its descriptors go into `poller`, with tokens from `first_token` on.
    ///
    /// # Errors
    /// Where another process answers, or the kernel refuses.
    pub fn open(path: &Path, poller: &Poller, first_token: u64) -> linux::Result<Self> {
        let listener = Listener::bind(path)?;
        poller.add(&listener, first_token, Interest::Readable)?;
        Ok(Self {
            listener,
            first_token,
            daemons: (0..MAX_SOCKETS).map(|_| None).collect(),
            pf_key: PfKey::new(),
            next_daemon: FIRST_DAEMON,
            // One byte more, so that what is too long is seen to be.
            buffer: vec![0; MAX_MESSAGE + 1],
        })
    }

    /// Whether an event with this token is for the socket that was given `first_token`.
    pub fn owns(first_token: u64, token: u64) -> bool {
        (first_token..first_token + Self::TOKENS).contains(&token)
    }

    /// Does what an event is about. Returns how many delayed packets were dropped because a daemon has failed:
    /// [`DropReason::NotKeyed`](ipsec::drops::DropReason::NotKeyed). There may be packets to
    /// [release](KeyEngine::next_released), and another [deadline](KeyEngine::deadline).
    pub fn handle(
        &mut self,
        poller: &Poller,
        event: Event,
        engine: &mut KeyEngine,
        policies: &mut PolicyDatabase,
        clock: Clock,
    ) -> usize {
        let Some(at) = event.token.checked_sub(self.first_token + 1) else {
            self.accept(poller);
            return 0;
        };
        let at = at as usize;
        let Some(Some(daemon)) = self.daemons.get(at) else { return 0 };
        if daemon.is_blocked {
            if event.error || event.hung_up {
                self.close(at, poller, engine);
            }
            self.flush(poller, engine);
            return 0;
        }
        let dropped = match daemon.connection.receive(&mut self.buffer) {
            Ok(None) => 0,
            Ok(Some(length)) => {
                let message = &self.buffer[..length];
                self.pf_key.handle(engine, policies, daemon.id, message, &mut SystemRandom, clock)
            }
            Err(_) => {
                self.close(at, poller, engine);
                0
            }
        };
        // The last message may have had keys in it.
        self.buffer.fill(0);
        self.flush(poller, engine);
        dropped
    }

    /// Tells those who are registered what the engine has to say.
    pub fn tell(&mut self, poller: &Poller, event: &key_engine::Event, engine: &mut KeyEngine, clock: Clock) {
        self.pf_key.tell(event, engine, clock);
        self.flush(poller, engine);
    }

    /// One more; those beyond [`MAX_SOCKETS`] are hung up on.
    fn accept(&mut self, poller: &Poller) {
        let Ok(Some(connection)) = self.listener.accept() else { return };
        let Some(at) = self.daemons.iter().position(Option::is_none) else { return };
        let id = DaemonId(self.next_daemon);
        let token = self.first_token + 1 + at as u64;
        if !self.pf_key.open(id) || poller.add(&connection, token, Interest::Readable).is_err() {
            return;
        }
        self.next_daemon += 1;
        self.daemons[at] = Some(Daemon { id, connection, is_blocked: false });
    }

    fn close(&mut self, at: usize, poller: &Poller, engine: &mut KeyEngine) {
        let Some(daemon) = self.daemons[at].take() else { return };
        // It leaves the poller with its descriptor, at the latest.
        let _ = poller.remove(&daemon.connection);
        self.pf_key.close(daemon.id, engine);
    }

    /// Hands over what there is for each.
    fn flush(&mut self, poller: &Poller, engine: &mut KeyEngine) {
        for at in 0..self.daemons.len() {
            let Some(daemon) = &mut self.daemons[at] else { continue };
            let token = self.first_token + 1 + at as u64;
            let result = daemon.flush(&mut self.pf_key, poller, token);
            if result.is_err() || self.pf_key.has_overrun(daemon.id) {
                self.close(at, poller, engine);
            }
        }
    }
}

impl Daemon {
    fn flush(&mut self, pf_key: &mut PfKey, poller: &Poller, token: u64) -> linux::Result<()> {
        let mut is_blocked = false;
        while !is_blocked && let Some(message) = pf_key.output_of(self.id) {
            if self.connection.send(message)? {
                pf_key.sent(self.id);
            } else {
                is_blocked = true;
            }
        }
        if is_blocked != self.is_blocked {
            let interest = if is_blocked { Interest::Writable } else { Interest::Readable };
            poller.modify(&self.connection, token, interest)?;
            self.is_blocked = is_blocked;
        }
        Ok(())
    }
}

/// Both clocks of this machine.
pub fn clock() -> Clock {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Clock { now: Instant::now(), since_1970 }
}

struct SystemRandom;

impl key_engine::Random for SystemRandom {
    /// Where the kernel has none, SPIs can be guessed, which harms nobody who has no key.
    fn next_u32(&mut self) -> u32 {
        getrandom::u32().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ipsec::association::Protocol;
    use ipsec::key_engine::Lookup;
    use ipsec::pf_key::message::{Extensions, Message, MessageType, satype};
    use ipsec::request::{Request, Service};
    use ipsec::selector::{Detail, Traffic};
    use ipsec::setkey;
    use linux::event::Events;

    use super::*;

    struct Host {
        _folder: tempfile::TempDir,
        path: std::path::PathBuf,
        poller: Poller,
        keys: KeySocket,
        engine: KeyEngine,
        policies: PolicyDatabase,
    }

    impl Host {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("home.key");
            let poller = Poller::new().unwrap();
            let keys = KeySocket::open(&path, &poller, 100).unwrap();
            Self {
                _folder: folder,
                path,
                poller,
                keys,
                engine: KeyEngine::new(),
                policies: PolicyDatabase::new(),
            }
        }

        fn connect(&mut self) -> Connection {
            let connection = Connection::connect(&self.path).unwrap();
            connection.set_patience(Some(Duration::from_millis(1))).unwrap();
            self.turn();
            connection
        }

        /// Handles all that has come.
        fn turn(&mut self) {
            let mut events = Events::with_capacity(100);
            while self.poller.wait(&mut events, Some(Duration::ZERO)).unwrap() > 0 {
                for event in events.iter() {
                    assert!(KeySocket::owns(100, event.token));
                    self.keys.handle(&self.poller, event, &mut self.engine, &mut self.policies, clock());
                }
            }
            while let Some(event) = self.engine.next_event() {
                self.keys.tell(&self.poller, &event, &mut self.engine, clock());
            }
        }

        fn say(&mut self, daemon: &Connection, text: &str) {
            for command in setkey::parse(text).unwrap() {
                self.send(daemon, &setkey::messages::message(&command, 7, 8).unwrap());
            }
        }

        fn send(&mut self, daemon: &Connection, message: &Message) {
            assert!(daemon.send(&message.to_bytes()).unwrap());
            self.turn();
        }
    }

    fn heard(daemon: &Connection) -> Vec<Message> {
        let mut buffer = [0; MAX_MESSAGE];
        std::iter::from_fn(|| {
            daemon.receive(&mut buffer).unwrap().map(|length| Message::parse(&buffer[..length]).unwrap())
        })
        .collect()
    }

    fn of(message_type: MessageType) -> Message {
        let extensions = Extensions::default();
        Message { message_type, errno: 0, satype: satype::ESP, sequence: 1, pid: 2, extensions }
    }

    const ADD: &str = "add ::1 ::2 esp 0x1000 -E aes-gcm-16 \"0123456789abcdef0123\";";

    #[test]
    fn two_daemons_hear_of_what_one_adds() {
        let mut host = Host::new();
        let (one, other) = (host.connect(), host.connect());
        host.say(&one, ADD);
        for daemon in [&one, &other] {
            let heard = heard(daemon);
            assert_eq!((heard.len(), heard[0].errno, heard[0].sequence), (1, 0, 7));
        }
        drop(one);
        host.say(&other, "flush;");
        assert_eq!(heard(&other).len(), 1);
        assert_eq!(host.engine.associations().count(), 0);
    }

    #[test]
    fn an_association_that_is_wanted_is_asked_for_and_releases_what_waits() {
        let mut host = Host::new();
        let daemon = host.connect();
        host.send(&daemon, &of(MessageType::Register));
        heard(&daemon);
        let traffic = Traffic {
            source: "::1".parse().unwrap(),
            destination: "::2".parse().unwrap(),
            protocol: 17,
            detail: Detail::Opaque,
        };
        let request = Request {
            service: Service::TransportEncryption,
            traffic,
            socket: None,
            is_unique: false,
            tunnel: None,
        };
        let Ok(Lookup::Delayed(acquire)) = host.engine.lookup(&request, Instant::now()) else { panic!() };
        assert!(host.engine.delay(acquire, b"packet", None));
        host.turn();
        let asked = heard(&daemon);
        assert_eq!((asked[0].message_type, asked[0].sequence), (MessageType::Acquire, acquire.0));
        host.say(&daemon, ADD);
        assert_eq!(host.engine.next_released().unwrap().packet, b"packet");
        drop(daemon);
        host.turn();
        assert_eq!(host.engine.daemons(Protocol::Esp).count(), 0, "it has unregistered by leaving");
    }

    #[test]
    fn nonsense_is_answered_and_harms_nobody() {
        let mut host = Host::new();
        let daemon = host.connect();
        for nonsense in [vec![9; 16], vec![0xff; MAX_MESSAGE + 100]] {
            assert!(daemon.send(&nonsense).unwrap());
            host.turn();
            let mut answer = [0; 64];
            assert_eq!(daemon.receive(&mut answer).unwrap(), Some(16));
            assert_eq!(answer[2], 22);
        }
        assert!(daemon.send(b"short").unwrap());
        host.turn();
        host.say(&daemon, ADD);
        assert_eq!(heard(&daemon).len(), 1);
    }

    #[test]
    fn daemons_are_bounded_and_those_who_leave_make_room() {
        let mut host = Host::new();
        let mut daemons: Vec<_> = (0..MAX_SOCKETS).map(|_| host.connect()).collect();
        let refused = host.connect();
        assert!(refused.receive(&mut [0; 16]).is_err(), "it is hung up on");
        daemons.pop();
        host.turn();
        let taken = host.connect();
        host.say(&taken, ADD);
        assert_eq!(heard(&taken).len(), 1);
    }

    #[test]
    fn a_dump_comes_whole_to_a_slow_reader_while_others_are_served() {
        let mut host = Host::new();
        let (slow, quick) = (host.connect(), host.connect());
        let all: String = (0x1000..0x1400).map(|spi| ADD.replace("0x1000", &spi.to_string())).collect();
        let all = setkey::parse(&all).unwrap();
        setkey::apply(all, &mut host.engine, &mut host.policies, Instant::now()).unwrap();
        host.send(&slow, &of(MessageType::Dump));
        host.say(&quick, "get ::1 ::2 esp 0x1000;");
        assert_eq!(heard(&quick).len(), 1);
        let mut count = 0;
        loop {
            let some = heard(&slow);
            host.turn();
            count += some.len();
            if some.last().is_some_and(|last| last.sequence == 0) {
                break;
            }
            assert!(!some.is_empty());
        }
        assert_eq!(count, 0x400);
    }

    #[test]
    fn who_never_reads_is_cut_off() {
        let mut host = Host::new();
        let (stuck, quick) = (host.connect(), host.connect());
        let (flush, from) = (of(MessageType::Flush).to_bytes(), host.keys.daemons[1].as_ref().unwrap().id);
        let pf_key = &mut host.keys.pf_key;
        for _ in 0..=ipsec::pf_key::MAX_QUEUED {
            pf_key.handle(&mut host.engine, &mut host.policies, from, &flush, &mut SystemRandom, clock());
            pf_key.sent(from);
        }
        host.send(&quick, &of(MessageType::Flush));
        assert_eq!(heard(&quick).len(), 1);
        assert!(host.keys.daemons[0].is_none() && host.keys.daemons[1].is_some());
        drop(stuck);
    }
}
