//! A connection to a key engine: questions, and the answers to them among what else it says.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipsec::pf_key::message::{Extensions, MAX_MESSAGE, Message, MessageType, satype};
use ipsec::setkey::Command;
use ipsec::setkey::messages::{self, Untold};
use linux::seqpacket::Connection;

use crate::failure::Failure;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Error number of an answer: there is no such policy.
pub(super) const NO_POLICY: u8 = 2;
/// There is no such association.
pub(super) const NOT_FOUND: u8 = 3;
/// There is one already.
pub(super) const EXISTS: u8 = 17;
/// The table is full.
const FULL: u8 = 105;

/// A connection.
pub(super) struct Session {
    path: PathBuf,
    connection: Connection,
    pid: u32,
    sequence: u32,
}

impl Session {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let connection = Connection::connect(path).map_err(|error| {
            let shown = path.display();
            Failure::Message(match error.kind() {
                ErrorKind::PermissionDenied => {
                    format!("only the owner of {shown} may use it: try again with sudo")
                }
                ErrorKind::NotFound => format!(
                    "{shown} is not there: `sidestep ipsec up FILE` opens one in {}, and programs on the stack one with \
                     --key-socket",
                    control::FOLDER
                ),
                _ => format!(
                    "nothing answers on {shown} ({error}); is a program with this `--key-socket` running?"
                ),
            })
        })?;
        connection.set_patience(Some(PATIENCE))?;
        Ok(Self { path: path.to_owned(), connection, pid: std::process::id(), sequence: 0 })
    }

    /// The message for a command.
    pub(super) fn message(&mut self, command: &Command) -> Result<Message, Untold> {
        self.sequence += 1;
        messages::message(command, self.sequence, self.pid)
    }

    /// Asks; an error is an answer, too.
    pub(super) fn ask(&mut self, question: &Message) -> Result<Message, Failure> {
        self.send(question)?;
        loop {
            let message = self.receive()?;
            if self.is_answer(&message, question) && message.sequence == question.sequence {
                return Ok(message);
            }
        }
    }

    /// What a command shows; nothing if there is nothing.
    pub(super) fn show(&mut self, command: &Command) -> Result<Vec<Message>, Failure> {
        let question = self.message(command)?;
        match command {
            Command::Get(_) => {
                let answer = self.ask(&question)?;
                match answer.errno {
                    0 => Ok(vec![answer]),
                    errno => Err(Failure::Message(meaning(errno).to_owned())),
                }
            }
            _ => self.dump(&question),
        }
    }

    /// All policies.
    pub(super) fn policies(&mut self) -> Result<Vec<Message>, Failure> {
        let question = self.plain(MessageType::PolicyDump, satype::UNSPECIFIED);
        self.dump(&question)
    }

    /// Hands over each message that any daemon gets, for ever.
    pub(super) fn monitor(
        &mut self,
        mut hear: impl FnMut(&Message) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let question = self.plain(MessageType::Promiscuous, 1);
        let answer = self.ask(&question)?;
        if answer.errno != 0 {
            return Err(Failure::Message(meaning(answer.errno).to_owned()));
        }
        self.connection.set_patience(None)?;
        loop {
            hear(&self.receive()?)?;
        }
    }

    /// Messages count down to 0, which is the last.
    fn dump(&mut self, question: &Message) -> Result<Vec<Message>, Failure> {
        self.send(question)?;
        let mut shown = Vec::new();
        loop {
            let message = self.receive()?;
            if !self.is_answer(&message, question) {
                continue;
            }
            match message.errno {
                0 => {}
                NOT_FOUND | NO_POLICY => return Ok(shown),
                errno => return Err(Failure::Message(meaning(errno).to_owned())),
            }
            let is_last = message.sequence == 0;
            shown.push(message);
            if is_last {
                return Ok(shown);
            }
        }
    }

    fn plain(&mut self, message_type: MessageType, satype: u8) -> Message {
        self.sequence += 1;
        let (sequence, pid) = (self.sequence, self.pid);
        Message { message_type, errno: 0, satype, sequence, pid, extensions: Extensions::default() }
    }

    fn is_answer(&self, message: &Message, question: &Message) -> bool {
        message.pid == self.pid && message.message_type == question.message_type
    }

    fn send(&self, message: &Message) -> Result<(), Failure> {
        let bytes = zeroize::Zeroizing::new(message.to_bytes());
        match self.connection.send(&bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.is_silent()),
            Err(error) => Err(self.is_gone(&error)),
        }
    }

    fn receive(&self) -> Result<Message, Failure> {
        let mut buffer = [0; MAX_MESSAGE];
        let length = match self.connection.receive(&mut buffer) {
            Ok(Some(length)) => length,
            Ok(None) => return Err(self.is_silent()),
            Err(error) => return Err(self.is_gone(&error)),
        };
        Message::parse(&buffer[..length]).map_err(|error| {
            let path = self.path.display();
            Failure::Message(format!(
                "{path}: cannot understand the answer: {error}; is another version running?"
            ))
        })
    }

    fn is_silent(&self) -> Failure {
        Failure::Message(format!("{}: no answer in {} seconds", self.path.display(), PATIENCE.as_secs()))
    }

    fn is_gone(&self, error: &linux::Error) -> Failure {
        let path = self.path.display();
        Failure::Message(format!(
            "{path}: the daemon has closed the connection ({error}): it has ended, or too many are connected"
        ))
    }
}

/// What an error number says of a command, and what to do.
pub(super) fn refusal(command: &Command, errno: u8) -> &'static str {
    match (command, errno) {
        (Command::PolicyAdd(_), EXISTS) => {
            "there is a policy for these packets in this direction already; take it away with spddelete first"
        }
        _ => meaning(errno),
    }
}

/// What an error number says, and what to do.
fn meaning(errno: u8) -> &'static str {
    match errno {
        NO_POLICY => "there is no such policy; `sidestep key dump --policies` shows those there are",
        NOT_FOUND => "there is no such association; `sidestep key dump` shows those there are",
        EXISTS => "it is there already; take another SPI, or delete it first",
        FULL => "the table is full; delete what is not needed first",
        _ => "the daemon takes it for malformed; is another version running?",
    }
}
