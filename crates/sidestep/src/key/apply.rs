//! Commands, as a whole or not at all: whether each can be carried out is looked at first, and what was put in before one
//! that fails all the same is taken away again. What was deleted by then does not come back, since keys never come out of an
//! engine.
//!
//! Policies go first, in their order: a tunnel's association takes its selectors from those that name its ends, and a
//! packet that a policy protects waits for an association, or is refused; it does not leave in clear.

use std::collections::HashMap;
use std::net::IpAddr;

use ipsec::association::{Protocol, Spi};
use ipsec::key_engine::Name;
use ipsec::pf_key::message::{Message, MessageType, satype};
use ipsec::policy::{Direction, Rule};
use ipsec::selector::Selector;
use ipsec::setkey::{Command, Position};

use super::session::{EXISTS, NO_POLICY, NOT_FOUND, Session, refusal};
use crate::failure::Failure;

/// Carries out commands, and returns what they show. `place` says where a command stands.
pub(super) fn run(
    session: &mut Session,
    commands: &[(Position, Command)],
    place: impl Fn(Position) -> String,
) -> Result<Vec<Message>, Failure> {
    let is_of_policies = |command: &&(Position, Command)| {
        matches!(command.1, Command::PolicyAdd(_) | Command::PolicyDelete(..) | Command::PolicyFlush)
    };
    let ordered: Vec<_> = commands
        .iter()
        .filter(is_of_policies)
        .chain(commands.iter().filter(|command| !is_of_policies(command)))
        .collect();
    let mut messages = Vec::new();
    for (position, command) in &ordered {
        let told = session.message(command);
        messages.push(told.map_err(|error| Failure::Message(format!("{}: {error}", place(*position))))?);
    }
    let mut tables = Tables::of(session)?;
    for (position, command) in &ordered {
        tables.carry_out(command).map_err(|errno| {
            Failure::Message(format!(
                "{}: {}; nothing was changed",
                place(*position),
                refusal(command, errno)
            ))
        })?;
    }
    let (mut shown, mut done) = (Vec::new(), Vec::new());
    for (&(position, ref command), message) in ordered.into_iter().zip(&messages) {
        if matches!(command, Command::Get(_) | Command::Dump(_) | Command::PolicyDump) {
            shown.extend(session.show(command)?);
            continue;
        }
        let errno = session.ask(message)?.errno;
        let is_nothing_to_delete = errno == NOT_FOUND && matches!(command, Command::DeleteAll { .. });
        if errno != 0 && !is_nothing_to_delete {
            let undone = undo(session, &done)?;
            return Err(Failure::Message(format!(
                "{}: {}; {undone}",
                place(position),
                refusal(command, errno)
            )));
        }
        done.push((command, message));
    }
    Ok(shown)
}

/// Takes away what was put in, and says what cannot be put back.
fn undo(session: &mut Session, done: &[(&Command, &Message)]) -> Result<&'static str, Failure> {
    let mut has_deleted = false;
    for (command, message) in done.iter().rev() {
        let message_type = match command {
            Command::Add(..) => MessageType::Delete,
            Command::PolicyAdd(_) => MessageType::PolicyDelete,
            _ => {
                has_deleted = true;
                continue;
            }
        };
        let mut opposite = Message { message_type, ..(*message).clone() };
        opposite.extensions.key_encryption = None;
        opposite.extensions.key_authentication = None;
        session.ask(&opposite)?;
    }
    Ok(if has_deleted {
        "what was put in before it was taken away again, but what was deleted before it is gone"
    } else {
        "nothing was changed"
    })
}

/// What there is, as far as commands depend on it.
struct Tables {
    /// With where their packets come from.
    associations: HashMap<Name, IpAddr>,
    policies: Vec<(Direction, Selector)>,
}

impl Tables {
    fn of(session: &mut Session) -> Result<Self, Failure> {
        let mut associations = HashMap::new();
        for message in session.show(&Command::Dump(None))? {
            let protocol = if message.satype == satype::AH { Protocol::Ah } else { Protocol::Esp };
            let given = message.extensions;
            if let (Some(sa), Some(from), Some(to)) =
                (given.sa, given.address_source, given.address_destination)
            {
                let name = Name { destination: to.address, protocol, spi: Spi(sa.spi) };
                associations.insert(name, from.address);
            }
        }
        let rules = session.policies()?;
        let policies = rules
            .iter()
            .filter_map(|message| ipsec::pf_key::policies::rule(&message.extensions))
            .map(|Rule { direction, selector, .. }| (direction, selector))
            .collect();
        Ok(Self { associations, policies })
    }

    /// The error number that the engine would answer with.
    fn carry_out(&mut self, command: &Command) -> Result<(), u8> {
        match command {
            Command::Add(parameters, _) => {
                let protocol = parameters.transform.protocol();
                let name = Name { destination: parameters.destination, protocol, spi: parameters.spi };
                if self.associations.insert(name, parameters.source).is_some() {
                    return Err(EXISTS);
                }
            }
            Command::Get(name) if !self.associations.contains_key(name) => return Err(NOT_FOUND),
            Command::Delete(name) => {
                self.associations.remove(name).ok_or(NOT_FOUND)?;
            }
            Command::DeleteAll { source, destination, protocol } => self.associations.retain(|name, from| {
                (&*from, name.destination, name.protocol) != (source, *destination, *protocol)
            }),
            Command::Flush(protocol) => {
                self.associations
                    .retain(|name, _| protocol.is_some_and(|protocol| protocol != name.protocol));
            }
            Command::PolicyAdd(rule) => {
                let key = (rule.direction, rule.selector.clone());
                if self.policies.contains(&key) {
                    return Err(EXISTS);
                }
                self.policies.push(key);
            }
            Command::PolicyDelete(direction, selector) => {
                let key = (*direction, selector.clone());
                let at = self.policies.iter().position(|there| *there == key).ok_or(NO_POLICY)?;
                self.policies.remove(at);
            }
            Command::PolicyFlush => self.policies.clear(),
            Command::Get(_) | Command::Dump(_) | Command::PolicyDump => {}
        }
        Ok(())
    }
}
