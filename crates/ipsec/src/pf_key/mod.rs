//! PF_KEY version 2 (RFC 2367): how key management daemons talk with the key engine. The host has a socket for each daemon
//! and carries messages to and fro; what they are about happens here.
//!
//! | message | who gets the answer |
//! |---|---|
//! | `GETSPI`, `UPDATE`, `ADD`, `DELETE`, `FLUSH` | all daemons, without keys; an error the asker alone |
//! | `GET`, `DUMP` | the asker |
//! | `REGISTER` | those registered for the protocol |
//! | `ACQUIRE` from the engine | those registered for the protocol |
//! | `EXPIRE` | all daemons |
//! | `ACQUIRE` with an error from a daemon | nobody: what waits is dropped |
//! | `X_SPDADD`, `X_SPDDELETE`, `X_SPDFLUSH` | all daemons |
//! | `X_SPDDUMP` | the asker |
//! | `X_PROMISC` | the asker, who from then on gets what any daemon gets |
//!
//! Keys go in and never come out: `GET` and `DUMP` show none, unlike in the RFC, since a transform keeps them expanded only
//! and nobody but its peer needs them.
//!
//! What they show instead is how long each key is, in the extensions that say which algorithms are supported.
//! `DELETE` without an SPI takes away all associations between two addresses, as in KAME. A tunnel's association without a
//! proxy address is for what the policies select that name its ends.
//!
//! The request number of `sadb_x_sa2` above [`MANUAL_REQUEST_ID_MAX`] is a socket: the association is that socket's own, as
//! in KAME. An `ACQUIRE` for such a one carries it.

pub(crate) mod algorithms;
pub(crate) mod answers;
pub mod extension;
pub mod message;
pub mod policies;

use std::collections::VecDeque;

use crate::acquire::AcquireId;
use crate::association::{Age, Lifetimes};
use crate::key_engine::{Ended, Event, KeyEngine, Random};
use crate::policy::PolicyDatabase;
use crate::request::{DaemonId, Request};
use answers::{Answer, Errno};
use extension::{Lifetime, Sa};
use message::{Extensions, Message, MessageError, MessageType, state};

pub use algorithms::{authentication_name, encryption_name};
pub use answers::{Clock, MANUAL_REQUEST_ID_MAX};

/// Messages that wait for one daemon. One that reads nothing misses what is more, as with a full socket, and has
/// [overrun](PfKey::has_overrun).
pub const MAX_QUEUED: usize = crate::key_engine::MAX_ASSOCIATIONS + 1024;
/// Daemons at once, registered or not.
pub const MAX_SOCKETS: usize = 64;

/// The sockets of daemons.
#[derive(Debug, Default)]
pub struct PfKey {
    sockets: Vec<Socket>,
}

#[derive(Debug)]
struct Socket {
    daemon: DaemonId,
    queue: VecDeque<Vec<u8>>,
    is_promiscuous: bool,
    has_overrun: bool,
}

impl Socket {
    fn push(&mut self, message: Vec<u8>) {
        if self.queue.len() < MAX_QUEUED {
            self.queue.push_back(message);
        } else {
            self.has_overrun = true;
        }
    }
}

impl PfKey {
    /// Without daemons.
    pub fn new() -> Self {
        Self::default()
    }

    /// A daemon has opened a socket. `false`: there are too many.
    pub fn open(&mut self, daemon: DaemonId) -> bool {
        if self.sockets.iter().any(|socket| socket.daemon == daemon) {
            return true;
        }
        if self.sockets.len() == MAX_SOCKETS {
            return false;
        }
        let socket = Socket { daemon, queue: VecDeque::new(), is_promiscuous: false, has_overrun: false };
        self.sockets.push(socket);
        true
    }

    /// A daemon has closed its socket.
    pub fn close(&mut self, daemon: DaemonId, engine: &mut KeyEngine) {
        self.sockets.retain(|socket| socket.daemon != daemon);
        engine.unregister(daemon);
    }

    /// A daemon has written `bytes`. Answers come by [`next_output`](Self::next_output). Returns how many delayed packets
    /// were dropped because the daemon has failed: [`DropReason::NotKeyed`](crate::drops::DropReason::NotKeyed).
    pub fn handle(
        &mut self,
        engine: &mut KeyEngine,
        policies: &mut PolicyDatabase,
        from: DaemonId,
        bytes: &[u8],
        random: &mut impl Random,
        clock: Clock,
    ) -> usize {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => {
                let is_length = error == MessageError::Length;
                self.refuse(from, bytes, if is_length { Errno::Length } else { Errno::Invalid });
                return 0;
            }
        };
        if message.message_type == MessageType::Promiscuous {
            self.listen(from, &message);
            return 0;
        }
        let answer = match policies::answer(policies, &message) {
            Some(answer) => answer,
            None => answers::answer(engine, policies, from, &message, random, clock),
        };
        match answer {
            Ok(Answer::Nobody(dropped)) => return dropped,
            Ok(Answer::Asker(messages)) => {
                for message in messages {
                    self.send_to(from, &message);
                }
            }
            Ok(Answer::All(message)) => self.send(|_| true, &message),
            Ok(Answer::Registered(protocol, message)) => {
                let registered: Vec<_> = engine.daemons(protocol).collect();
                self.send(|daemon| registered.contains(&daemon), &message);
            }
            Err(errno) => {
                let error = Message { errno: errno as u8, extensions: Extensions::default(), ..message };
                self.send_to(from, &error);
            }
        }
        0
    }

    /// Tells the daemons of what the engine has to say: those that are registered of what is to be made, all of what ends
    /// (RFC 2367 §3.1.8). The host takes events out of the engine, since a
    /// daemon of its own, without PF_KEY, may want them, too.
    pub fn tell(&mut self, event: &Event, engine: &KeyEngine, clock: Clock) {
        match event {
            Event::Acquire { acquire, request } => {
                let registered: Vec<_> = engine.daemons(request.service.protocol()).collect();
                self.send(|daemon| registered.contains(&daemon), &acquire_message(*acquire, request));
            }
            Event::SoftExpired(ended) => self.send(|_| true, &expire_message(ended, Age::Soft, clock)),
            Event::HardExpired(ended) => self.send(|_| true, &expire_message(ended, Age::Hard, clock)),
        }
    }

    /// What is to be handed to a daemon next.
    pub fn next_output(&mut self) -> Option<(DaemonId, Vec<u8>)> {
        self.sockets.iter_mut().find_map(|socket| Some((socket.daemon, socket.queue.pop_front()?)))
    }

    /// What is to be handed to this daemon next; [`sent`](Self::sent) is called when it was.
    pub fn output_of(&self, daemon: DaemonId) -> Option<&[u8]> {
        Some(self.socket(daemon)?.queue.front()?)
    }

    /// A daemon was handed its [next message](Self::output_of).
    pub fn sent(&mut self, daemon: DaemonId) {
        if let Some(socket) = self.socket_mut(daemon) {
            socket.queue.pop_front();
        }
    }

    /// Whether a daemon has missed messages since it did not read.
    pub fn has_overrun(&self, daemon: DaemonId) -> bool {
        self.socket(daemon).is_some_and(|socket| socket.has_overrun)
    }

    fn socket(&self, daemon: DaemonId) -> Option<&Socket> {
        self.sockets.iter().find(|socket| socket.daemon == daemon)
    }

    fn socket_mut(&mut self, daemon: DaemonId) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| socket.daemon == daemon)
    }

    fn send_to(&mut self, daemon: DaemonId, message: &Message) {
        if let Some(socket) = self.socket_mut(daemon) {
            socket.push(message.to_bytes());
        }
    }

    /// To those who are meant, and to those who listen to all.
    fn send(&mut self, is_meant: impl Fn(DaemonId) -> bool, message: &Message) {
        let bytes = message.to_bytes();
        for socket in &mut self.sockets {
            if is_meant(socket.daemon) || socket.is_promiscuous {
                socket.push(bytes.clone());
            }
        }
    }

    /// The satype is whether to listen (RFC 2367 §3.1.11).
    fn listen(&mut self, from: DaemonId, message: &Message) {
        let Some(socket) = self.socket_mut(from) else { return };
        let errno = match message.satype {
            listen @ (0 | 1) => {
                socket.is_promiscuous = listen == 1;
                0
            }
            _ => Errno::Invalid as u8,
        };
        let answer = Message { errno, extensions: Extensions::default(), ..message.clone() };
        socket.push(answer.to_bytes());
    }

    /// Answers what is no message with its own header and an error, if it has one.
    fn refuse(&mut self, from: DaemonId, bytes: &[u8], errno: Errno) {
        let Some((header, _)) = bytes.split_first_chunk::<16>() else { return };
        let mut error = header.to_vec();
        error[2] = errno as u8;
        error[4..6].copy_from_slice(&2u16.to_ne_bytes());
        if let Some(socket) = self.socket_mut(from) {
            socket.push(error);
        }
    }
}

fn acquire_message(acquire: AcquireId, request: &Request) -> Message {
    Message {
        message_type: MessageType::Acquire,
        errno: 0,
        satype: answers::number_of(request.service.protocol()),
        sequence: acquire.0,
        pid: 0,
        extensions: answers::wanted(request),
    }
}

fn expire_message(ended: &Ended, age: Age, clock: Clock) -> Message {
    let Lifetimes { soft, hard } = ended.lifetimes;
    let mut extensions = Extensions {
        sa: Some(Sa {
            spi: ended.name.spi.0,
            state: if age == Age::Hard { 3 } else { state::DYING },
            ..Sa::default()
        }),
        lifetime_current: Some(Lifetime {
            allocations: u32::try_from(ended.usage.packets).unwrap_or(u32::MAX),
            bytes: ended.usage.bytes,
            added: answers::unix_time(Some(ended.added), clock),
            used: answers::unix_time(ended.first_used, clock),
        }),
        address_source: Some(answers::host_address(ended.source)),
        address_destination: Some(answers::host_address(ended.name.destination)),
        sa2: Some(answers::sa2(ended.mode, None)),
        ..Extensions::default()
    };
    if age == Age::Hard {
        extensions.lifetime_hard = Some(answers::lifetime_extension(&hard));
    } else {
        extensions.lifetime_soft = Some(answers::lifetime_extension(&soft));
    }
    Message {
        message_type: MessageType::Expire,
        errno: 0,
        satype: answers::number_of(ended.name.protocol),
        sequence: 0,
        pid: 0,
        extensions,
    }
}
